#!/usr/bin/env python3
"""Adds up the reports of all test suites and closes with the line `N passed, N failed, N skipped`.

In: the status of tidy.py and NAME=FILE for each suite, FILE a JUnit report written by ctest. A
cmocka program counts as many tests as it ran cases, every other program and script counts one.
Every failure and every skip is printed with its reason. Out: exit status 1 if anything failed or
no suite ran. Owns no test and runs none.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree

CASE = re.compile(r"^\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] (?!---)(.+)$")


class Totals:
    """What has been seen so far; lines to print are kept with the suite that they belong to."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.notes = []

    def fail(self, where, reason):
        self.failed += 1
        self.notes.append(f"FAILED {where}: {reason}")

    def skip(self, where, reason):
        self.skipped += 1
        self.notes.append(f"SKIPPED {where}: {reason}")


def reason_of(text):
    """What a test said last, without cmocka's frame and without the word that announces a skip."""
    lines = [re.sub(r"^\[.*?\] (--- )?", "", line.strip()) for line in text.splitlines()]
    lines = [line for line in lines if line]
    return re.sub(r"^SKIPPED:? ", "", "; ".join(lines[-2:] if "Failure!" in text else lines[-1:]))


def read_cases(output):
    """The cmocka cases in a program's output: [(name, result, text printed by the case)]. A case
    that began and never ended took the program with it."""
    cases, name, text = [], None, []
    for line in output.splitlines():
        match = CASE.match(line)
        if not match:
            text.append(line)
        elif match[1] == "RUN":
            name, text = match[2], []
        elif name == match[2]:
            cases.append((name, match[1], "\n".join(text)))
            name = None
    if name:
        cases.append((name, "FAILED", "\n".join(text + ["ended the program"])))
    return cases


def add_program(totals, suite, element):
    where = f"{suite} {element.get('name')}"
    output = element.findtext("system-out") or ""
    status, skipped = element.get("status"), element.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
        totals.skip(where, reason_of(output) or "no reason given")
        return
    failures = 0
    cases = read_cases(output)
    for name, result, text in cases:
        if result == "OK":
            totals.passed += 1
        elif result == "SKIPPED":
            totals.skip(f"{where} {name}", reason_of(text) or "no reason given")
        else:
            failures += 1
            totals.fail(f"{where} {name}", reason_of(text) or "failed")
    if status != "run" and failures == 0:
        totals.fail(where, reason_of(output) or f"ctest says {status}")
    elif not cases:
        totals.passed += 1


def add_suite(totals, name, path):
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        totals.fail(name, f"no report: {error}")
        return
    elements = list(root.iter("testcase"))
    if not elements:
        totals.fail(name, "ran no test")
    before = (totals.passed, totals.failed, totals.skipped)
    for element in elements:
        add_program(totals, name, element)
    after = (totals.passed, totals.failed, totals.skipped)
    passed, failed, skipped = (now - then for now, then in zip(after, before))
    print(f"{name}: {len(elements)} programs, {passed} passed, {failed} failed, {skipped} skipped.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidy", type=int, required=True, help="exit status of tidy.py")
    parser.add_argument("--skip", action="append", default=[], metavar="WHAT: REASON")
    parser.add_argument("suites", nargs="+", metavar="NAME=FILE")
    arguments = parser.parse_args()
    totals = Totals()
    for argument in arguments.suites:
        name, _, path = argument.partition("=")
        add_suite(totals, name, path)
    if arguments.tidy == 0:
        totals.passed += 1
    else:
        totals.fail("tidy", "tests/tidy.py has findings, see above")
    for text in arguments.skip:
        totals.skip(*text.split(": ", 1))
    for note in totals.notes:
        print(note)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
