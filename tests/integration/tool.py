"""What the tests of the command line tool share: running it with a deadline, checkpoints from
bench/gen and from recorded traces, and comparing files. Owns the folder that a test works in.

In: XORCAST (the tool) and XORCAST_BENCH (folder of gen_checkpoints); XORCAST_TRACES if there are
any. A test that finds no tool exits with 77 and says why.
"""

import ctypes
import filecmp
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TOOL = os.environ.get("XORCAST", "build/xorcast")
GENERATOR = os.path.join(os.environ.get("XORCAST_BENCH", "build/bench"), "gen_checkpoints")
TRACES = os.environ.get("XORCAST_TRACES")
DTYPES = ("bf16", "fp8", "nvfp4")
LIBC = ctypes.CDLL(None)
DEADLINE = 120  # seconds for what takes a moment: a sanitizer or a busy machine may need them


def run(*arguments, **options):
    """The finished process, its output as bytes."""
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([TOOL, *map(str, arguments)], timeout=DEADLINE, **options)


def rows(output):
    """The objects of an output of JSON lines."""
    return [json.loads(line) for line in output.splitlines()]


def error_of(process):
    """The error object that a failed command with --json ends with."""
    return rows(process.stderr)[-1]["error"]


def generate(folder, *options):
    """Consecutive checkpoints; the list of their paths."""
    subprocess.run([GENERATOR, "--out", str(folder), *map(str, options)], check=True,
                   timeout=DEADLINE, stdout=subprocess.DEVNULL)
    return sorted(pathlib.Path(folder).glob("step_*"))


def traces():
    """Recorded checkpoints by name of their dtype, each a list of steps."""
    if not TRACES:
        return {}
    folders = sorted(p for p in pathlib.Path(TRACES).iterdir() if p.is_dir())
    found = {folder.name: sorted(folder.glob("step_*")) for folder in folders}
    return {name: steps for name, steps in found.items() if len(steps) > 1}


def content(path):
    """Every file below a path with the hash of its bytes: what makes two checkpoints the same."""
    path = pathlib.Path(path)
    if path.is_file():
        return {"": hashlib.sha256(path.read_bytes()).hexdigest()}
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(path.rglob("*")) if p.is_file()}


def without_override():
    """Before exec: root, too, is held to the permissions of files. CAP_DAC_OVERRIDE and
    CAP_DAC_READ_SEARCH leave the bounding set."""
    for capability in (1, 2):
        if os.geteuid() == 0 and LIBC.prctl(24, capability, 0, 0, 0) != 0:
            raise OSError("the capability to override permissions cannot be dropped")


def weights_in(step):
    """The single file of weights of an unsharded step."""
    return pathlib.Path(step) / "model.safetensors"


def copy_of(source, target):
    source = pathlib.Path(source)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return pathlib.Path(target)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


class ToolTest(unittest.TestCase):
    """Works in an empty folder of its own; ends the processes that it started."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="xorcast_test_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return self.folder / name

    def good(self, *arguments, **options):
        process = run(*arguments, **options)
        self.assertEqual(process.returncode, 0, f"{arguments}: {process.stderr}")
        return process

    def bad(self, code, *arguments, **options):
        """Fails with this exit code, and tells people why."""
        process = run(*arguments, **options)
        self.assertEqual(process.returncode, code, f"{arguments}: {process.stderr}")
        self.assertTrue(process.stderr.strip(), f"{arguments} fails without a word")
        return process

    def same(self, a, b):
        a, b = pathlib.Path(a), pathlib.Path(b)
        if a.is_file() and b.is_file():
            self.assertTrue(filecmp.cmp(a, b, shallow=False), f"{a} differs from {b}")
        else:
            self.assertEqual(content(a), content(b))

    def start(self, *arguments, **options):
        """A process that runs beside the test, its output in files NAME.out and NAME.err."""
        return Running(self, arguments, **options)


class Running:
    """A tool that runs; its standard output is read as it grows."""

    count = 0

    def __init__(self, test, arguments):
        Running.count += 1
        self.test = test
        self.out = test.path(f"process{Running.count}.out")
        self.err = test.path(f"process{Running.count}.err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([TOOL, *map(str, arguments)], stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL)
        test.addCleanup(self.kill)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)

    def lines(self):
        text = self.out.read_text(encoding="utf-8")
        return text[:text.rfind("\n") + 1].splitlines()

    def rows(self, event=None):
        found = [json.loads(line) for line in self.lines()]
        return [row for row in found if event in (None, row["event"])]

    def wait_for(self, condition, what):
        """Until the condition of this process's rows holds."""
        end = time.monotonic() + DEADLINE
        while not condition(self.rows()):
            ended = self.process.poll()
            if ended is not None and not condition(self.rows()):
                self.test.fail(f"ended with {ended} before {what}: {self.err.read_text()}")
            if time.monotonic() > end:
                self.test.fail(f"no {what} after {DEADLINE} s: {self.lines()[-1:]}")
            time.sleep(0.01)

    def finish(self, code=0):
        self.process.wait(DEADLINE)
        self.test.assertEqual(self.process.returncode, code, self.err.read_text())
        return self

    def error(self):
        return json.loads(self.err.read_text().splitlines()[-1])["error"]


def main():
    for program in (TOOL, GENERATOR):
        if not os.access(program, os.X_OK):
            print(f"SKIPPED {program} is not built here")
            sys.exit(77)
    unittest.main(module="__main__", verbosity=1)
