#!/usr/bin/env python3
"""The command line tool on files: fold, inspect, bench, what it refuses, and its manners.

Checkpoints come from bench/gen with a fixed seed, and from recorded traces where XORCAST_TRACES
names some. Round trips, publish and follow have tests of their own.
"""

import errno
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
import unittest

import xxhash

import tool
from tool import DEADLINE, DTYPES, ToolTest, content, copy_of, error_of, generate, rows, run
from tool import remove, traces, weights_in

THREADS = (1, 2, 7)
COMMANDS = ("diff", "apply", "check", "inspect", "fold", "publish", "follow", "bench",
            "bench codecs")


class Fold(ToolTest):
    def chain(self, steps):
        deltas = []
        for i, (old, new) in enumerate(zip(steps, steps[1:])):
            deltas.append(self.path(f"delta{i}"))
            self.good("diff", old, new, "-o", deltas[-1], "--run", "chain", "--base", i,
                      "--target", i + 1)
        return deltas

    def check_chain(self, steps):
        deltas = self.chain(steps)
        folded, out = self.path("folded"), self.path("out")
        for threads in THREADS:
            self.good("fold", *deltas, "-o", folded, "--threads", threads)
            self.good("apply", steps[0], folded, "-o", out)
            self.same(out, steps[-1])
            remove(out)
        row, = rows(self.good("inspect", folded, "--json").stdout)
        self.assertEqual((row["base"]["step"], row["target"]["step"]), (0, len(steps) - 1))
        return deltas

    def test_chain(self):
        for dtype in DTYPES:
            with self.subTest(dtype=dtype):
                self.check_chain(generate(self.path(dtype), "--dtype", dtype, "--bytes", "900k",
                                          "--steps", 5, "--shards", 2, "--extras"))

    def test_traces(self):
        for name, steps in traces().items():
            with self.subTest(trace=name):
                self.check_chain(steps)

    def test_order(self):
        steps = generate(self.path("steps"), "--bytes", "500k", "--steps", 4)
        first, second, third = self.chain(steps)
        out = self.path("folded")
        process = self.bad(32, "fold", second, first, "-o", out, "--json")
        self.assertEqual(error_of(process)["status"], "VERSION_ORDER")
        self.assertIn(str(first), error_of(process)["text"])
        self.bad(32, "fold", first, third, "-o", out)
        damaged = self.path("damaged")
        damaged.write_bytes(second.read_bytes()[:-1] + b"?")
        process = self.bad(20, "fold", first, damaged, third, "-o", out, "--json")
        self.assertTrue(error_of(process)["text"].startswith(f"{damaged}: "), process.stderr)
        raw = bytearray(second.read_bytes())
        raw[len(raw) // 2] ^= 1  # in a part, which is read when the manifests are known
        damaged.write_bytes(raw)
        process = self.bad(21, "fold", first, damaged, third, "-o", out, "--json")
        self.assertTrue(error_of(process)["text"].startswith(f"{damaged}: "), process.stderr)
        other = self.path("other")
        self.good("diff", steps[1], steps[2], "-o", other, "--run", "else", "--base", 1,
                  "--target", 2)
        self.bad(31, "fold", first, other, "-o", out)
        unnamed = [self.path("unnamed0"), self.path("unnamed2")]
        for delta, (old, new) in zip(unnamed, (steps[0:2], steps[2:4])):
            self.good("diff", old, new, "-o", delta)
        self.bad(32, "fold", *unnamed, "-o", out)
        self.assertFalse(out.exists())


class BadInput(ToolTest):
    def setUp(self):
        super().setUp()
        self.old, self.new, self.third = generate(self.path("steps"), "--bytes", "500k",
                                                  "--steps", 3)
        self.delta = self.path("delta")
        self.good("diff", self.old, self.new, "-o", self.delta)

    def refused(self, codes, checkpoint, delta, *options):
        """check and apply refuse alike, and the checkpoint is as it was."""
        before = content(checkpoint)
        inodes = {p.name: p.stat().st_ino for p in checkpoint.iterdir()}
        for command in ("check", "apply"):
            process = run(command, checkpoint, delta, "--json", *options)
            self.assertIn(process.returncode, codes, f"{command}: {process.stderr}")
            error = error_of(process)
            self.assertEqual(error["exit_code"], process.returncode)
            self.assertTrue(error["text"])
            self.assertEqual(process.stdout, b"")
        self.assertEqual(content(checkpoint), before)
        self.assertEqual({p.name: p.stat().st_ino for p in checkpoint.iterdir()}, inodes)
        return error

    def test_wrong_base(self):
        error = self.refused({30}, self.third, self.delta)
        self.assertEqual((error["status"], error["code"], error["remedy"]),
                         ("BASE_MISMATCH", -401, "KEYFRAME"))
        back = self.path("back")
        self.good("diff", self.new, self.third, "-o", back)
        self.refused({30}, self.old, back)

    def test_one_bit_of_the_base(self):
        path = weights_in(copy_of(self.old, self.path("flipped")))
        raw = bytearray(path.read_bytes())
        for at in (-1, -len(raw) // 2):
            raw[at] ^= 0x80
            path.write_bytes(raw)
            self.refused({30}, path.parent, self.delta)
            raw[at] ^= 0x80

    def test_file_for_its_directory(self):
        """A delta between directories is for a directory: one file of it may not be all."""
        for command in ("check", "apply"):
            process = self.bad(30, command, weights_in(self.old), self.delta, "--json")
            self.assertIn("name that, not a file in it", error_of(process)["text"])

    def test_other_model(self):
        other, _ = generate(self.path("other"), "--bytes", "500k", "--dtype", "fp8")
        self.refused({33}, other, self.delta)

    def test_truncated(self):
        whole = self.delta.read_bytes()
        cut = self.path("cut")
        for count in sorted({0, 1, 7, 8, 63, 64, len(whole) // 3, len(whole) - 9, len(whole) - 1}):
            with self.subTest(bytes=count):
                cut.write_bytes(whole[:count])
                error = self.refused({20}, self.old, cut)
                self.assertTrue(error["text"].startswith(f"{cut}: "), error)
        self.path("0").touch()
        error = error_of(run("inspect", "0", "--json", cwd=self.folder))
        self.assertTrue(error["text"].startswith("0: 0 bytes"), error)

    def test_longer(self):
        self.path("long").write_bytes(self.delta.read_bytes() + b"\0")
        self.refused({20, 21}, self.old, self.path("long"))

    def test_corrupt(self):
        """Any byte changed, anywhere: damage is seen, or the bytes claim what is refused."""
        whole = self.delta.read_bytes()
        damaged = self.path("damaged")
        ends = set(range(0, 48, 5)) | set(range(len(whole) - 48, len(whole), 5))
        for at in sorted(ends | set(range(0, len(whole), len(whole) // 40))):
            with self.subTest(byte=at):
                raw = bytearray(whole)
                raw[at] ^= 1 << at % 8
                damaged.write_bytes(raw)
                known_format = 64 <= at < len(whole) - 64
                error = self.refused({21} if known_format else {20, 21, 22, 23}, self.old, damaged)
                self.assertTrue(error["text"].startswith(f"{damaged}: "), error)

    def test_no_delta_at_all(self):
        for name, raw in (("zeros", bytes(4096)), ("text", b"{}\n" * 99)):
            self.path(name).write_bytes(raw)
            self.refused({20, 21, 22}, self.old, self.path(name))
            self.assertIn(run("inspect", self.path(name)).returncode, (20, 21, 22))
        self.refused({42}, self.old, self.path("absent"))
        self.refused({2}, self.old, self.folder)

    def test_checkpoint(self):
        self.bad(42, "diff", self.path("absent"), self.new, "-o", self.path("x"))
        self.path("empty").mkdir()
        self.assertNotEqual(run("diff", self.path("empty"), self.new, "-o", "x").returncode, 0)
        cut = copy_of(self.old, self.path("cut"))
        os.truncate(weights_in(cut), 1000)
        process = run("apply", cut, self.delta)
        self.assertIn(process.returncode, (20, 21))
        self.assertFalse(self.path("x").exists())


class Repeated(ToolTest):
    """An apply that is done again finds the target: nothing is written, and that is success."""

    def setUp(self):
        super().setUp()
        self.old, self.new = generate(self.path("steps"), "--bytes", "500k")
        self.delta, self.out = self.path("delta"), self.path("out")
        self.good("diff", self.old, self.new, "-o", self.delta)

    def applied(self, *command):
        """What apply says, in both of its languages."""
        row, = rows(self.good("apply", *command, "--json").stdout)
        text = self.good("apply", *command).stdout.decode()
        return row["already_there"], row["copied"], text

    def untouched(self, path, *command):
        """Apply finds the target at `path`, which keeps its very files."""
        inodes = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in path.iterdir()}
        there, copied, text = self.applied(*command)
        self.assertEqual((there, copied), (True, False))
        said = f"already there: {path} has the weights that the delta leads to, digest "
        self.assertTrue(text.startswith(said), text)
        self.assertEqual(inodes, {p: (p.stat().st_ino, p.stat().st_mtime_ns)
                                  for p in path.iterdir()})

    def test_in_place(self):
        live = copy_of(self.old, self.path("live"))
        row, = rows(self.good("apply", live, self.delta, "--json").stdout)
        self.assertEqual((row["already_there"], row["copied"]), (False, False))
        self.untouched(live, live, self.delta)
        self.same(live, self.new)
        row, = rows(self.good("check", live, self.delta, "--json").stdout)
        self.assertTrue(row["already_there"])
        self.assertEqual(self.good("apply", live, self.delta, "-q").stdout, b"")
        damaged = bytearray(self.delta.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        self.path("damaged").write_bytes(damaged)
        self.bad(21, "check", live, self.path("damaged"))

    def test_one_file(self):
        live, delta = copy_of(weights_in(self.old), self.path("live.safetensors")), self.path("d")
        self.good("diff", live, weights_in(self.new), "-o", delta)
        for there in (False, True):
            row, = rows(self.good("apply", live, delta, "--json").stdout)
            self.assertEqual(row["already_there"], there)
        self.same(live, weights_in(self.new))

    def test_another_layout(self):
        """The target has tensors of its own: it is not the base by its shape alone."""
        other, _ = generate(self.path("other"), "--bytes", "500k", "--dtype", "fp8")
        delta, live = self.path("d"), copy_of(self.old, self.path("live"))
        self.good("diff", self.old, other, "-o", delta)
        self.good("apply", live, delta)
        self.untouched(live, live, delta)
        self.same(live, other)
        path = weights_in(live)
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
        self.bad(30, "apply", live, delta)

    def test_elsewhere(self):
        self.good("apply", self.old, self.delta, "-o", self.out)
        self.untouched(self.out, self.old, self.delta, "-o", self.out)
        self.untouched(self.out, self.new, self.delta, "-o", self.out)
        self.same(self.out, self.new)

    def test_elsewhere_of_the_target(self):
        """Only the checkpoint is there: the output must be there too."""
        row, = rows(self.good("apply", self.new, self.delta, "-o", self.out, "--json").stdout)
        self.assertEqual((row["already_there"], row["copied"]), (False, True))
        self.same(self.out, self.new)
        self.untouched(self.out, self.new, self.delta, "-o", self.out)
        tool.remove(self.out)
        text = self.good("apply", self.new, self.delta, "-o", self.out).stdout.decode()
        self.assertTrue(text.startswith(f"copied: {self.new} has"), text)

    def test_almost_there(self):
        """An output that is not the target, byte for byte, is none: it is not written into."""
        for step in (self.old, self.new):
            (step / "same.json").write_text("{}")
            (step / "other.json").write_text(step.name)
        self.good("diff", self.old, self.new, "-o", self.delta)
        for name in ("same.json", "other.json", weights_in(self.new).name):
            shutil.rmtree(self.out, ignore_errors=True)
            self.good("apply", self.old, self.delta, "-o", self.out)
            raw = bytearray((self.out / name).read_bytes())
            raw[-1] ^= 1
            (self.out / name).write_bytes(raw)
            before = content(self.out)
            for base in (self.old, self.new):
                process = self.bad(2, "apply", base, self.delta, "-o", self.out)
                self.assertIn(b"not empty", process.stderr)
            self.assertEqual(content(self.out), before)


class Interrupted(ToolTest):
    """Whoever comes after an apply that died finishes or discards it, and says so."""

    def setUp(self):
        super().setUp()
        self.old, self.new = generate(self.path("steps"), "--bytes", "500k")
        self.delta, self.live = self.path("delta"), self.path("live")
        self.good("diff", self.old, self.new, "-o", self.delta)

    def leave(self, decided):
        """What an apply leaves that is killed before, or after, its commit point."""
        shutil.rmtree(self.live, ignore_errors=True)
        stage = copy_of(self.old, self.live) / ".xorcast-new"
        stage.mkdir()
        name = weights_in(self.new).name
        shutil.copy(weights_in(self.new), stage / name)
        if decided:
            record = b"XORCOMMT\1" + bytes([len(name)]) + name.encode() + b"\0"
            (self.live / ".xorcast-commit").write_bytes(record + xxhash.xxh3_128_digest(record))

    def told(self, decided, *command):
        """The command does its work, and tells once what it found, to people and to programs."""
        wanted = "is finished" if decided else "is discarded"
        self.leave(decided)
        said = self.good(*command).stderr.decode().splitlines()
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], f"xorcast: warning: .*{self.live} {wanted}")
        self.same(self.live, self.new if decided or command[0] == "apply" else self.old)
        self.assertEqual(self.good(*command).stderr, b"")
        self.leave(decided)
        log, = rows(self.good(*command, "--json").stderr)
        self.assertEqual(log["log"]["level"], "warning")
        self.assertIn(f"{self.live} {wanted}", log["log"]["text"])
        self.leave(decided)
        self.assertEqual(self.good(*command, "-q").stderr, b"")

    def test_told(self):
        out = self.path("out")
        for decided in (False, True):
            for command in (("check", self.live, self.delta), ("apply", self.live, self.delta),
                            ("diff", self.live, self.new, "-o", out)):
                with self.subTest(decided=decided, command=command[0]):
                    self.told(decided, *command)


class Inspect(ToolTest):
    def test_fields(self):
        old, new = generate(self.path("steps"), "--bytes", "3m", "--extras")
        delta = self.path("delta")
        self.good("diff", old, new, "-o", delta, "--run", "grpo \u2192 7", "--base", 11,
                  "--target", 12, "--bound")
        row, = rows(self.good("inspect", delta, "--json").stdout)
        digest = re.compile(r"[0-9a-f]{32}")
        for end, step in (("base", 11), ("target", 12)):
            self.assertEqual((row[end]["run"], row[end]["step"]), ("grpo \u2192 7", step))
            self.assertTrue(digest.fullmatch(row[end]["digest"]))
        self.assertNotEqual(row["base"]["digest"], row["target"]["digest"])
        self.assertEqual(row["base_fingerprint"], row["target_fingerprint"])
        self.assertEqual(row["delta_bytes"], delta.stat().st_size)
        self.assertEqual(row["format_version"], 1)
        self.assertTrue(row["has_files"])
        raw = [weights_in(step).read_bytes() for step in (old, new)]
        mask = [a ^ b for a, b in zip(*raw)]
        self.assertEqual(row["bytes_changed"], sum(1 for byte in mask if byte))
        self.assertEqual(row["bits_changed"], sum(bin(byte).count("1") for byte in mask))
        self.assertAlmostEqual(row["bytes_changed_share"],
                               row["bytes_changed"] / row["bytes_covered"], places=6)
        self.assertAlmostEqual(row["ratio"], row["bytes_covered"] / row["delta_bytes"], places=3)
        for key in ("elements_changed", "chunks_changed", "elements_covered", "chunk_bytes",
                    "group_bytes", "group_count", "part_count", "payload_bytes",
                    "chunk_encoded_bytes"):
            self.assertGreater(row[key], 0, key)
        text = self.good("inspect", delta).stdout.decode()
        for piece in ("grpo \u2192 7", "step 11", row["target"]["digest"], " %", "ratio"):
            self.assertIn(piece, text)

    def test_unnamed(self):
        old, new = generate(self.path("steps"), "--bytes", "500k")
        self.good("diff", old, new, "-o", self.path("delta"))
        row, = rows(self.good("inspect", self.path("delta"), "--json").stdout)
        self.assertEqual((row["base"]["run"], row["target"]["step"]), (None, None))
        self.assertIn(b"not given", self.good("inspect", self.path("delta")).stdout)

    def test_results(self):
        """diff, apply, check and fold tell in JSON what inspect tells."""
        old, new = generate(self.path("steps"), "--bytes", "500k")
        delta, folded = self.path("delta"), self.path("folded")
        seen = {}
        for command in (("diff", old, new, "-o", delta), ("check", old, delta),
                        ("fold", delta, "-o", folded), ("apply", old, delta, "-o", self.path("o"))):
            row, = rows(self.good(*command, "--json").stdout)
            self.assertEqual(row["event"], command[0])
            seen[command[0]] = row["target"]
        self.assertEqual(len({json.dumps(target) for target in seen.values()}), 1)


class Output(ToolTest):
    def setUp(self):
        super().setUp()
        self.old, self.new = generate(self.path("steps"), "--bytes", "500k")

    def test_over_an_existing_file(self):
        delta = self.path("delta")
        delta.write_bytes(b"something else" * 100000)
        os.chmod(delta, 0o600)
        self.good("diff", self.old, self.new, "-o", delta)
        self.good("check", self.old, delta)

    def test_mode_follows_the_umask(self):
        self.good("diff", self.old, self.new, "-o", self.path("delta"),
                  preexec_fn=lambda: os.umask(0o027))
        self.assertEqual(self.path("delta").stat().st_mode & 0o777, 0o640)

    def test_failure_leaves_what_was_there(self):
        delta = self.path("delta")
        delta.write_bytes(b"precious")
        self.bad(42, "diff", self.path("absent"), self.new, "-o", delta)
        self.assertEqual(delta.read_bytes(), b"precious")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["delta", "steps"])

    def test_never_over_its_input(self):
        delta = self.path("delta")
        self.good("diff", self.old, self.new, "-o", delta)
        before = delta.read_bytes()
        os.symlink(delta, self.path("link"))
        for command in (("fold", delta, "-o", delta), ("fold", delta, "-o", self.path("link")),
                        ("apply", self.old, delta, "-o", delta),
                        ("diff", weights_in(self.old), weights_in(self.new), "-o",
                         weights_in(self.new)),
                        ("diff", self.old, self.new, "-o", self.old / "delta")):
            self.bad(2, *command)
        self.assertEqual(delta.read_bytes(), before)

    def test_no_place_for_it(self):
        self.bad(2, "diff", self.old, self.new, "-o", self.folder)
        self.bad(42, "diff", self.old, self.new, "-o", self.path("no") / "such" / "folder")
        self.bad(2, "diff", self.old, self.new)

    def test_without_permission(self):
        """What a user may not do is said to be so: trying again would not help."""
        try:
            run("help", preexec_fn=tool.without_override)
        except subprocess.SubprocessError:
            self.skipTest("this root cannot give up its override of permissions")
        delta, closed = self.path("delta"), self.path("closed")
        self.good("diff", self.old, self.new, "-o", delta)
        copy_of(delta, self.path("secret")).chmod(0)
        weights_in(copy_of(self.old, self.path("hidden"))).chmod(0)
        copy_of(self.old, self.path("shut")).chmod(0)
        closed.mkdir(mode=0o555)
        for command in (("inspect", self.path("secret")), ("check", self.path("hidden"), delta),
                        ("check", self.path("shut"), delta), ("publish", self.path("shut")),
                        ("apply", self.old, delta, "-o", closed / "new"),
                        ("diff", self.old, self.new, "-o", closed / "delta")):
            with self.subTest(command=command[0]):
                process = self.bad(14, *command, "--json", preexec_fn=tool.without_override)
                error = error_of(process)
                self.assertEqual((error["status"], error["remedy"], error["os_error"]),
                                 ("NO_PERMISSION", "FIX", errno.EACCES))
        self.path("shut").chmod(0o755)

    def test_standard_output(self):
        delta = self.path("delta")
        self.good("diff", self.old, self.new, "-o", delta)
        piped = self.good("diff", self.old, self.new, "-o", "-", "--json")
        self.assertEqual(piped.stdout, delta.read_bytes())
        self.assertEqual(rows(piped.stderr)[0]["event"], "diff")
        self.assertEqual(self.good("fold", delta, "-o", "-", "-q").stderr, b"")
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        process = run("diff", self.old, self.new, "-o", "-", stdout=slave)
        os.close(slave)
        self.assertEqual(process.returncode, 2)

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_results_that_cannot_be_written(self):
        self.good("diff", self.old, self.new, "-o", self.path("delta"))
        with open("/dev/full", "wb") as full:
            for command in (("inspect", self.path("delta")), ("help",),
                            ("diff", self.old, self.new, "-o", "-")):
                self.bad(13, *command, stdout=full)

    def test_limit_on_the_size_of_files(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        process = self.bad(13, "diff", self.old, self.new, "-o", self.path("delta"), "--json",
                           preexec_fn=limit)
        self.assertEqual(error_of(process)["os_error"], errno.EFBIG)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["steps"])

    def test_apply_into_a_used_folder(self):
        self.good("diff", self.old, self.new, "-o", self.path("delta"))
        self.path("used").mkdir()
        self.path("used/file").write_bytes(b"precious")
        self.bad(2, "apply", self.old, self.path("delta"), "-o", self.path("used"))
        self.assertEqual(content(self.path("used")).keys(), {"file"})

    def test_signal_removes_the_unfinished(self):
        old, new = generate(self.path("big"), "--bytes", "40m", "--density", "0.5")
        for number in (signal.SIGINT, signal.SIGTERM):
            running = self.start("diff", old, new, "-o", self.path("slow"), "--codec", "raw",
                                 "--level", 19, "--threads", 1)
            end = time.monotonic() + DEADLINE
            while not list(self.folder.glob("slow.*")) and time.monotonic() < end:
                time.sleep(0.005)
            running.process.send_signal(number)
            running.finish(-number)
            self.assertEqual(list(self.folder.glob("slow*")), [])


    def test_signal_ends_an_apply(self):
        """Nothing of an apply that a signal ends stays, and the checkpoint is what it was."""
        old, new = generate(self.path("big"), "--bytes", "30m")
        self.good("diff", old, new, "-o", self.path("delta"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.assertIn(-number, (self.signalled(number, old, new) for _ in range(20)))

    def test_signal_ends_an_apply_that_waits(self):
        """For another one, which may be stopped itself: a shell's loop must see the signal."""
        old, new = generate(self.path("steps"), "--bytes", "500k")
        live, delta = copy_of(old, self.path("live")), self.path("delta")
        self.good("diff", old, new, "-o", delta)
        stage = live / ".xorcast-new"
        stage.mkdir()
        claim = os.open(stage, os.O_RDONLY)
        self.addCleanup(os.close, claim)
        fcntl.flock(claim, fcntl.LOCK_EX)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            running = self.start("apply", live, delta)
            self.caught(running.process, number)
            running.process.send_signal(number)
            self.assertEqual(running.process.wait(DEADLINE), -number)
            self.assertIn("nothing was changed", running.err.read_text())
        stage.rmdir()
        self.same(live, old)

    def caught(self, process, number):
        """Waits until the process catches the signal."""
        deadline, mask = time.monotonic() + DEADLINE, 0
        while not mask >> number - 1 & 1:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            mask = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16)

    def signalled(self, number, old, new):
        """An apply that is signalled once it stages: its exit code."""
        live = copy_of(old, self.path("live"))
        running = self.start("apply", live, self.path("delta"), "--threads", 1)
        stage = live / ".xorcast-new"
        while not stage.exists() and running.process.poll() is None:
            time.sleep(0.001)
        running.process.send_signal(number)
        code = running.process.wait(DEADLINE)
        self.assertIn(code, (0, -number))
        self.same(live, new if code == 0 else old)
        self.assertEqual("nothing was changed" in running.err.read_text(), code != 0)
        shutil.rmtree(live)
        return code


class Terminal(ToolTest):
    def test_progress_only_there(self):
        old, new = generate(self.path("steps"), "--bytes", "8m")
        command = ("diff", old, new, "-o", self.path("delta"))
        for options in ((), ("--quiet",), ("--json",)):
            process = self.good(*command, *options)
            for sign in (b"\r", b"\x1b", b"comparing"):
                self.assertNotIn(sign, process.stderr + process.stdout)
        commands = ((command, b"comparing ["),
                    (("check", old, self.path("delta")), b"checking ["),
                    (("apply", old, self.path("delta"), "-o", self.path("out")), b"applying ["),
                    (("fold", self.path("delta"), "-o", self.path("folded")), b"folding ["),
                    (("publish", self.path("steps"), "--linger", "0"), b"loading ["))
        for command, words in commands:
            for options, bar in (((), True), (("--quiet",), False), (("--json",), False)):
                seen = self.on_terminal(*command, *options)
                self.assertEqual(words in seen, bar, seen)
                if bar:
                    self.assertTrue(seen.endswith(b"\r\x1b[K"), "the bar is left on the screen")
                if self.path("out").exists():
                    tool.remove(self.path("out"))

    def on_terminal(self, *arguments):
        """All that a terminal at standard error is sent: it comes in pieces, some of them after the
        command has ended."""
        master, slave = pty.openpty()
        with open(master, "rb", buffering=0) as terminal:
            with open(slave, "wb", buffering=0) as standard_error:
                self.good(*arguments, stderr=standard_error)
            return b"".join(iter(lambda: self.piece_of(terminal), b""))

    def piece_of(self, terminal):
        try:
            return terminal.read(1 << 16)
        except OSError as error:
            self.assertEqual(error.errno, errno.EIO)  # nobody can write to it any more
            return b""

    def test_quiet(self):
        old, new = generate(self.path("steps"), "--bytes", "500k")
        delta = self.path("delta")
        for command in (("diff", old, new, "-o", delta), ("check", old, delta),
                        ("inspect", delta), ("apply", old, delta, "-o", self.path("out"))):
            process = self.good(*command, "-q")
            self.assertEqual(process.stdout + process.stderr, b"")


class Words(ToolTest):
    def test_help(self):
        overview = self.good("help").stdout
        self.assertEqual(self.good("--help").stdout, overview)
        for command in COMMANDS:
            self.assertIn(command.encode(), overview)
            text = self.good("help", *command.split()).stdout.decode()
            self.assertEqual(self.good(*command.split(), "--help").stdout.decode(), text)
            self.assertEqual(self.good(*command.split(), "-h").stdout.decode(), text)
            self.assertTrue(text.startswith(f"usage: xorcast {command}"))
            for piece in ("\nexample:\n", f"xorcast {command} ", "\noptions:\n", "--json",
                          "exit codes:"):
                self.assertIn(piece, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)
        codes = self.good("help", "exit-codes").stdout.decode()
        for piece in ("30  BASE_MISMATCH", "KEYFRAME", "70  INTERNAL", " 0  OK"):
            self.assertIn(piece, codes)

    def test_man_page(self):
        """The manual knows every command, every option and every exit code that the help knows."""
        source = os.environ.get("XORCAST_SOURCE", pathlib.Path(__file__).parents[2])
        page = (pathlib.Path(source) / "docs/xorcast.1").read_text(encoding="utf-8")
        page = page.replace("\\-", "-")
        for command in COMMANDS:
            self.assertRegex(page, rf"(?m)^\.SS {command}\b")
            text = run("help", *command.split()).stdout.decode()
            for option in re.findall(r"^ .*?(--[a-z-]+)", text, re.M):
                self.assertIn(option, page, command)
        statuses, remedies = run("help", "exit-codes").stdout.decode().split("\nwhat to do")
        words = dict(row.split(maxsplit=1) for row in remedies.splitlines()[2:])
        for row in statuses.splitlines()[2:]:
            code, status, remedy, text = row.split(maxsplit=3)
            self.assertRegex(page, rf"(?m)^{code}\t{status}\t(T\{{\n)?{re.escape(text)}$")
            self.assertTrue(remedy == "NONE" or remedy in words, remedy)
        for word, text in words.items():
            self.assertIn(f"\n{word}\t{text}\n", page)

    def test_version(self):
        text = self.good("--version").stdout.decode()
        row, = rows(self.good("--version", "--json").stdout)
        self.assertEqual(text, f"xorcast {row['version']}\n")

    def test_device(self):
        """A GPU is described; a machine without one is told what is missing."""
        process = run("inspect", "--device", "--json")
        if process.returncode == 0:
            row, = rows(process.stdout)
            self.assertEqual(row["event"], "device")
            self.assertGreater(row["memory_bytes"], 0)
            self.assertEqual(row["decompresses_lz4"], row["decompress_mask"] & 4 != 0)
            self.assertEqual("decodes LZ4" in row["engine"], row["decompresses_lz4"])
        else:
            self.assertEqual(process.returncode, 3)
            self.assertIn("backend cuda", error_of(process)["text"])

    def test_standin_device(self):
        """On a stand-in for a GPU: rates are measured, and bench runs with weights there."""
        folder = os.environ.get("XORCAST_STANDIN", "")
        if not os.path.isdir(folder):
            self.skipTest("there is no stand-in for a GPU")
        environment = {**os.environ, "XORCAST_PLUGIN_PATH": folder}
        row, = rows(self.good("inspect", "--device", "--json", env=environment).stdout)
        self.assertEqual(row["name"], "Fake 0")
        for key in ("to_device", "from_device", "memory"):
            self.assertGreater(row[f"{key}_bytes_per_second"], 0)
        text = self.good("inspect", "--device", env=environment).stdout.decode()
        self.assertIn("this GPU has none: kernels decode", text)
        for options, on_device in ((("--device",), True), ((), False)):
            row, = rows(self.good("bench", "--bytes", "2m", "--repeat", "2", "--json", *options,
                                  env=environment).stdout)
            self.assertEqual(row["weights_on_device"], on_device)
            self.assertEqual(row["device"]["name"], "Fake 0")
            self.assertEqual("kernels" in row["decoding"], on_device)
        engine = {**environment, "XORCAST_TEST_ENGINE": "1"}
        text = self.good("inspect", "--device", env=engine).stdout.decode()
        self.assertIn("decodes LZ4, up to 4194304 bytes at once; whether it or kernels", text)

    def test_plugin_beside_tool_in_path(self):
        """The plug-in lies beside the tool, which is called by its name alone."""
        standin = os.path.join(os.environ.get("XORCAST_STANDIN", ""), "libxorcast_cuda.so")
        if not os.path.isfile(standin):
            self.skipTest("there is no stand-in for a GPU")
        folder = str(self.path("beside"))
        os.mkdir(folder)
        shutil.copy(tool.TOOL, os.path.join(folder, "xorcast"))
        shutil.copy(standin, folder)
        path = folder + os.pathsep + os.environ["PATH"]
        environment = {**os.environ, "PATH": path, "XORCAST_PLUGIN_PATH": ""}
        process = subprocess.run(["/bin/sh", "-c", "xorcast inspect --device --json"],
                                 env=environment, stdout=subprocess.PIPE, check=True,
                                 timeout=DEADLINE)
        self.assertEqual(rows(process.stdout)[0]["name"], "Fake 0")

    def test_wrong_usage(self):
        cases = (
            ((), "xorcast help"),
            (("dif",), "xorcast help"),
            (("help", "dif"), "xorcast help"),
            (("--json", "diff", "a", "b"), "xorcast diff ... --json"),
            (("--threads", "2", "bench", "codecs"), "xorcast bench codecs ... --threads"),
            (("--jsn",), "xorcast help"),
            (("diff",), "diff OLD NEW"),
            (("diff", "a", "b"), "-o"),
            (("diff", "a", "b", "c", "-o", "d"), "'c'"),
            (("inspect",), "inspect DELTA"),
            (("inspect", "a", "b"), "'b'"),
            (("inspect", "a", "--device"), "either"),
            (("check", "a"), "check CHECKPOINT DELTA"),
            (("apply", "a"), "apply CHECKPOINT DELTA"),
            (("fold", "-o", "d"), "fold DELTA..."),
            (("publish",), "publish DIRECTORY"),
            (("follow", "tcp:127.0.0.1:1"), "follow URL CHECKPOINT"),
            (("diff", "--nonsense"), "no option --nonsense;"),
            (("diff", "--quiet=1"), "--quiet takes no value"),
            (("publish", "a", "--listen", "inproc:a"), "no other can reach it"),
            (("follow", "inproc:a", "a"), "no other can reach it"),
            (("diff", "-z"), "-z"),
            (("check", "--codec", "lz4", "a", "b"), "--codec"),
            (("diff", "a", "b", "--codec"), "--codec"),
            (("diff", "a", "b", "-o", "d", "--codec", "gzip"),
             "one of raw, lz4, snappy, gap, auto;"),
            (("diff", "a", "b", "-o", "d", "--threads", "0"), "a whole number, 1 to 256;"),
            (("diff", "a", "b", "-o", "d", "--threads", "-1"), "-1"),
            (("diff", "a", "b", "-o", "d", "--threads", "2x"), "2x"),
            (("diff", "a", "b", "-o", "d", "--level", "99"), "a whole number, 1 to 19;"),
            (("diff", "a", "b", "-o", "d", "--level", "99"), "--level cannot be '99'"),
            (("diff", "a", "b", "-o", "d", "--scratch", "0"), "a number of bytes, 1 or more,"),
            (("diff", "a", "b", "-o", "d", "--second-pass", "7z"), "one of zstd, none;"),
            (("bench", "--bytes", "5"), "a number of bytes, 1048576 or more,"),
            (("bench", "--repeat", "101"), "a whole number, 1 to 100;"),
            (("publish", "a", "--timeout", "0"), "a number of seconds, 0.001 to 1000000000,"),
            (("follow", "u", "c", "--until", "-1"), "a whole number, 0 or more;"),
            (("diff", "a", "b", "-o", "d", "--base", "18446744073709551615"), "--base"),
            (("diff", "a", "b", "-o", "d", "--base", "99999999999999999999"), "--base"),
            (("diff", "a", "b", "-o", "d", "--scratch", "20000000000g"), "--scratch"),
            (("diff", "a", "b", "-o", "d", "--run", "x" * 64), "a text of 1 to 63 bytes"),
            (("publish", "a", "--run", "x" * 64), "--run"),
            (("diff", "a", "b", "-o", "d", "--old-weights"), "--old-weights goes with --codec gap"),
            (("bench", "--link-rate", "1m"), "--link-rate goes with --codec auto"),
            (("diff", "a", "b", "-o", "d", "--codec", "auto", "--receiver", "gpu"), "--link-rate"),
            (("fold", "a", "-o", "d", "--level", "3", "--second-pass", "none"), "--second-pass"),
            (("publish", "a", "--interval", "soon"), "soon"),
            (("publish", "a", "--interval", "nan"), "nan"),
            (("bench", "--density", "0.9"), "above 0 and at most 0.5"),
            (("bench", "codec"), "'codec' is too much: xorcast bench;"),
            (("bench", "codecs"), "bench codecs DIRECTORY"),
            (("bench", "codecs", "a", "--density", "0.1"), "--density"),
            (("bench", "codecs", ".", "--svg", "-"), "--svg"),
        )
        for arguments, hint in cases:
            with self.subTest(arguments=arguments):
                process = self.bad(2, *arguments, cwd=self.folder)
                self.assertIn(hint, process.stderr.decode())
                self.assertEqual(process.stdout, b"")
                process = self.bad(2, *arguments, "--json", cwd=self.folder)
                if arguments[-1:] != ("--codec",):
                    self.assertIn(hint, error_of(process)["text"])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_no_command(self):
        self.assertIn(self.good("help").stdout, self.bad(2).stderr)

    def test_json_of_odd_names(self):
        """Names are bytes; JSON is UTF-8 all the same."""
        for name in (b"\xff\xfe", b"quote\"back\\slash", b"\x01\x1b\n", b"\xed\xa0\x80\xc0\x80",
                     b"cut\xe2\x86", "\u2192".encode()):
            process = subprocess.run([tool.TOOL, b"inspect", name, b"--json"], cwd=self.folder,
                                     stderr=subprocess.PIPE, timeout=DEADLINE, check=False)
            self.assertEqual(process.returncode, 42)
            line, = process.stderr.decode("utf-8").splitlines()
            text = json.loads(line)["error"]["text"]
            kept = name.decode("utf-8", errors="replace")
            if "\ufffd" in kept:
                self.assertIn("\ufffd", text)
            else:
                self.assertIn(kept, text)

    def test_terminals_obey_nobody(self):
        """What comes from outside has no say on a terminal: runs, names of files and tensors."""
        old, new = generate(self.path("steps"), "--bytes", "500k")
        control = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
        evil = "e\x1b[2J\x9b\x07\r"
        delta, place = self.path(evil), copy_of(old, self.path("place" + evil))
        self.good("diff", old, new, "-o", delta, "--run", evil)
        text = self.good("inspect", delta).stdout
        self.assertIn(b"e?[2J???\n", text)
        self.assertIsNone(control.search(text))
        row, = rows(self.good("inspect", delta, "--json").stdout)
        self.assertEqual(row["target"]["run"], evil)
        self.assertIsNone(control.search(self.good("inspect", delta, "--json").stdout))
        os.symlink(self.path("steps"), self.path("steps" + evil))
        text = self.good("bench", "codecs", self.path("steps" + evil), "--backend", "cpu",
                         "--only", "lz4", "--repeat", 1).stdout
        self.assertIn(b"stepse?[2J???,", text)
        self.assertIsNone(control.search(text))
        weights_in(place).write_bytes(b"\xff" * 99)
        for command in (("check", place, delta), ("inspect", self.path("absent" + evil)),
                        (evil,), ("check", place, delta, "--json")):
            process = run(*command)
            self.assertIn(b"e?[2J" if "--json" not in command else b"text", process.stderr)
            self.assertIsNone(control.search(process.stderr), process.stderr)

    def test_error_fields(self):
        error = error_of(self.bad(42, "inspect", self.path("absent"), "--json"))
        self.assertEqual(set(error), {"status", "code", "exit_code", "remedy", "text", "tensor",
                                      "chunk", "os_error"})
        self.assertEqual((error["status"], error["os_error"], error["tensor"]),
                         ("NOT_FOUND", 2, None))


class Advice(ToolTest):
    """What a person reads about a failure: one line with cause and advice, one with the status."""

    def setUp(self):
        super().setUp()
        self.steps = self.path("steps")
        self.old, self.new, self.third = generate(self.steps, "--bytes", "500k", "--steps", 3)
        self.deltas = [self.path(f"{i}.xorcast") for i in range(3)]
        self.good("diff", self.old, self.new, "-o", self.deltas[0])
        self.good("diff", self.new, self.third, "-o", self.deltas[1])
        self.good("diff", self.new, self.third, "-o", self.deltas[2], "--codec", "gap",
                  "--old-weights")
        self.cut = copy_of(self.old, self.path("cut"))
        os.truncate(weights_in(self.cut), 100000)
        self.stump = self.path("stump")
        self.stump.write_bytes(self.deltas[0].read_bytes()[:99])
        self.text = self.path("text")
        self.text.write_text("this is neither a delta nor a checkpoint, but of some length\n" * 9)

    def explained(self, command, code, wanted, *wrong):
        """The first line has what is wanted, and no line what would lead astray."""
        process = self.bad(code, *command)
        said = process.stderr.decode()
        lines = said.splitlines()[-2:] if code != 2 else said.splitlines()[-1:]
        prefix = f"xorcast {command[0]}: "
        for line in lines:
            self.assertTrue(line.startswith(prefix), said)
        for piece in wanted:
            self.assertIn(str(piece), lines[0])
        for piece in wrong:
            self.assertNotIn(piece, said.replace(str(self.folder), ""))
        self.assertNotIn("to do:", said)
        if code != 2:
            status, text = re.fullmatch(prefix + r"([A-Z_]+) \(exit code %d\): (.+)" % code,
                                        lines[1]).groups()
            error = error_of(run(*command, "--json"))
            self.assertEqual((error["status"], error["exit_code"]), (status, code))
            self.assertIn(text, self.codes)

    def test_by_cause(self):
        """What is blamed is what is wrong: a checkpoint no delta, an order no weights."""
        self.codes = self.good("help", "exit-codes").stdout.decode()
        first, second, beside = self.deltas
        out, cut, old = self.path("out"), self.cut, self.old
        for command, code, wanted, *wrong in (
                (("diff", cut, self.new, "-o", out), 20, (cut, "fetch it again"), "delta"),
                (("apply", cut, first), 20, (cut, "fetch it again"), "delta"),
                (("check", cut, first), 20, (cut, "fetch it again"), "delta"),
                (("follow", "tcp:127.0.0.1:1", cut), 20, (cut, "fetch it again"), "delta"),
                (("apply", old, self.stump), 20, (self.stump, "cut short"), "checkpoint"),
                (("inspect", self.stump), 20, (self.stump, "cut short"), "checkpoint"),
                (("inspect", self.text), 21, (self.text, "no xorcast delta"), "checkpoint"),
                (("diff", self.text, self.new, "-o", out), 23, (self.text, "no safetensors"),
                 "delta"),
                (("fold", second, first, "-o", out), 32, (first, "oldest first"), "weights"),
                (("fold", first, first, "-o", out), 32, (first, "oldest first"), "weights"),
                (("fold", first, beside, "-o", out), 3, (beside, "fold plain deltas")),
                (("fold", first, "none", "-o", out), 42, ("none", "No such file")),
                (("apply", self.third, first), 30, (self.third, "apply the deltas between")),
                (("apply", self.path("none"), first), 42, (self.path("none"), "no checkpoint")),
                (("diff", old, self.new, "-o", out, "--scratch", "9k"), 10, ("raise", "--scratch"),
                 "try again", "time"),
                (("apply", first, old), 2, (old, "a delta is one")),
                (("follow", "tcp:127.0.0.1:0", old), 2, ("the port that the publisher reports",)),
                (("publish", self.steps, "--listen", "tcp:127.0.0.1:70000"), 2,
                 ("1 to 65535",), "reports"),
                (("publish", self.steps, "--wait-peers", 1, "--timeout", "0.01"), 11,
                 ("0 of 1 followers", "--timeout"), "memory")):
            with self.subTest(command=[str(part) for part in command]):
                self.explained(command, code, wanted, *wrong)

    def test_addresses(self):
        self.codes = self.good("help", "exit-codes").stdout.decode()
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"tcp:127.0.0.1:{server.getsockname()[1]}"
            self.explained(("publish", self.steps, "--listen", url), 41,
                           (url, "Address already in use", "choose another"), "correct")
        self.explained(("publish", self.steps, "--listen", "tcp:192.0.2.1:0", "--insecure"), 41,
                       ("192.0.2.1", "none of this machine's"), "port")
        self.explained(("follow", url, self.old), 41, (url, "start the publisher"))

    def test_backend_that_is_not_there(self):
        """What is missing stands in the error, not in a line of the log before it."""
        self.codes = self.good("help", "exit-codes").stdout.decode()
        command = ("publish", self.steps, "--backend", "none")
        self.explained(command, 3, ("the backend none is not installed",))
        self.assertEqual(len(run(*command).stderr.splitlines()), 2)


class Bench(ToolTest):
    def test_phases(self):
        row, = rows(self.good("bench", "--bytes", "8m", "--repeat", 3, "--threads", 2,
                              "--json").stdout)
        for phase in ("read", "encode", "finish", "stage", "commit", "digest"):
            self.assertGreater(row[phase]["ns"], 0)
            if phase == "finish":  # does not read the weights
                self.assertEqual(list(row[phase]), ["ns"])
            else:
                self.assertGreater(row[phase]["of_read_bound"], 0)
        self.assertEqual(row["read"]["of_read_bound"], 1)
        self.assertAlmostEqual(row["delta"]["bytes_changed_share"], 0.006, delta=0.001)
        self.assertGreater(row["entropy_bound_bytes"], 0)
        text = self.good("bench", "--bytes", "2m", "--repeat", 1, "--codec", "snappy").stdout
        self.assertIn(b"read bound", text)
        self.assertRegex(text, rb"(?m)^finish +\S+ \S+ +- +-  ")


if __name__ == "__main__":
    tool.main()
