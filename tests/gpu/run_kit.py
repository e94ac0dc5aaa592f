#!/usr/bin/env python3
"""Runs the tests of a kit, one after the other: programs built elsewhere for a machine with a GPU.

usage: run_kit.py KIT REPORT

In: KIT/tests.txt, a line a test: a program of the kit, and settings NAME=VALUE for it. Out: a line
a test, and REPORT, a JUnit report as ctest writes them, for tests/summary.py. Exit status 77 of a
program is a skip. Exit status 1 if any failed or there are none.
"""

import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

SECONDS = 600
SKIP = 77


def run(kit, program, settings):
    """(status, seconds, output) of a program; the status of one that was ended is a text."""
    environment = dict(os.environ, XORCAST_PLUGIN_PATH=str(kit))
    environment.update(setting.split("=", 1) for setting in settings)
    begun = time.monotonic()
    try:
        done = subprocess.run([kit / program], env=environment, cwd=kit, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        status, output = f"ended after {SECONDS} s", error.stdout or b""
    except OSError as error:
        status, output = str(error), b""
    # XML has no control characters.
    text = output.decode(errors="replace")
    text = "".join(c for c in text if c in "\n\t" or c.isprintable())
    return status, time.monotonic() - begun, text


def report(suite, name, status, seconds, output):
    if isinstance(status, str):
        output += f"\n{status}\n"
    words = {0: "run", SKIP: "notrun"}
    case = ElementTree.SubElement(suite, "testcase", name=name, time=f"{seconds:.3f}",
                                  status=words.get(status, "fail"))
    if status == SKIP:
        ElementTree.SubElement(case, "skipped", message="SKIP_RETURN_CODE=77")
    ElementTree.SubElement(case, "system-out").text = output
    word = {0: "passed", SKIP: "skipped"}.get(status, "FAILED")
    print(f"{name}: {word} ({seconds:.1f} s)", flush=True)
    if word == "FAILED":
        print(output[-4000:], flush=True)
    return word != "FAILED"


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    kit = pathlib.Path(sys.argv[1]).resolve()
    suite = ElementTree.Element("testsuite", name="gpu")
    good = True
    for line in (kit / "tests.txt").read_text().splitlines():
        program, *settings = line.split()
        good = report(suite, pathlib.Path(program).name, *run(kit, program, settings)) and good
    ElementTree.ElementTree(suite).write(sys.argv[2])
    return 0 if good and len(suite) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
