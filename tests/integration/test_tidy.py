#!/usr/bin/env python3
"""Plants one breach of each rule of tidy.py in a small tree and expects its finding at its line.

In: nothing. Out: exit status 1 and what is missing. A tree without breaches must give no finding.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

TIDY = pathlib.Path(__file__).resolve().parent.parent / "tidy.py"
OPENING = "/* A file of the test tree, which owns nothing and does not own more. */\n"
GUARDED = OPENING + "#ifndef XCI_{0}_H\n#define XCI_{0}_H\n{1}#endif\n"
LONG = "int f(void) {{\n{}    return 0;\n}}\n".format("    g();\n" * 80)

CLEAN = {
    "include/xorcast.h":
        OPENING + "#ifndef XORCAST_H\n#define XORCAST_H\n#define XORCAST_ONE 1\n#endif\n",
    "src/base/one.h": GUARDED.format("ONE", "int xci_one(void);\n"),
    "src/base/one.c":
        '/* Calls xci_one(), see xci_o... */\n#include "base/one.h"\n/* long: flat */\n' + LONG,
    "src/frame/two.c": OPENING + '#include "base/one.h"\n#include "frame/two.h"\n',
    "src/frame/two.h": GUARDED.format("TWO", ""),
    "tests/unit/test_one.c": OPENING + "int one = XORCAST_ONE;\n",
}

# (file, text, line of the finding, part of its message)
BREACHES = [
    ("src/base/a.c", OPENING + '#include "bundle/bundle.h"\n', 2, "base uses nothing, not bundle"),
    ("src/publish/a.c", OPENING + '#include "subscribe/x.h"\n', 2, "not subscribe"),
    ("src/subscribe/a.c", OPENING + '#include "publish/x.h"\n', 2, "not publish"),
    ("src/ship/tcp/a.c", OPENING + '#include "bundle/bundle.h"\n', 2, "ship uses base, not bundle"),
    ("src/base/a.c", OPENING + '#include "one.h"\n', 2, "write the folder"),
    ("cli/a.c", OPENING + '#include "base/one.h"\n', 2, "cli knows only xorcast.h"),
    ("src/base/a.c", OPENING + "#include <cuda_runtime.h>\n", 2, "knows CUDA"),
    ("tests/unit/one.c", OPENING, 1, "named like"),
    ("src/base/a.c", OPENING + "int " + "y" * 100 + ";\n", 2, "columns"),
    ("src/base/a.c", OPENING + LONG, 2, "a function of 83 lines"),
    ("src/base/a.c", OPENING + "void f(void) { abort(); }\n", 2, "abort in the library"),
    ("src/base/a.c", OPENING + 'void f(void) { printf("x"); }\n', 2, "printf in the library"),
    ("src/base/a.c", OPENING + "/* TO" + "DO: later */\n", 2, "unfinished work"),
    ("src/base/a.c", OPENING + "// x = y + 1;\n", 2, "looks like code"),
    ("src/base/a.c", OPENING + "/* Was:\n * release(memory);\n */\n", 3, "looks like code"),
    ("src/base/a.c", OPENING + "/* See xci_gone. */\n", 2, "xci_gone exists nowhere"),
    ("docs/a.md", "# A\n\nCall `xorcast_gone` first.\n", 3, "xorcast_gone exists nowhere"),
    ("src/base/a.c", "int x;\n", 1, "no opening paragraph"),
    ("tests/a.py", "print(1)\n", 1, "no opening paragraph"),
    ("src/base/a.h", OPENING + "int x;\n", 1, "no include guard"),
    ("src/base/a.h", GUARDED.format("B", ""), 2, "the guard is not XCI_A_H"),
    ("src/base/a.c", OPENING + "int x;  \n", 2, "blanks at the end"),
    ("src/base/a.c", OPENING + "\tint x;\n", 2, "a tab"),
    ("src/base/a.c", OPENING + "/* \u201cquoted\u201d */\n", 2, "not ASCII"),
    ("docs/a.md", "one\u200btwo\n", 1, "invisible"),
    ("src/base/a.c", OPENING + "int x;", 2, "does not end"),
    ("tests/unit/test_one.c", OPENING + "/* XORCAST_ONE */\n", None, "XORCAST_ONE is expanded by"),
]


def tidy(files, untracked=None):
    """tidy.py on these files; with `untracked`, which git does not track, in a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, **(untracked or {})}.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if untracked:
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", *files], check=True)
        return subprocess.run([sys.executable, str(TIDY), folder], capture_output=True, text=True,
                              timeout=60, check=False)


def main():
    failed = 0
    clean = tidy(CLEAN)
    if clean.returncode != 0:
        failed += 1
        print(f"the clean tree has findings:\n{clean.stdout}{clean.stderr}")
    if shutil.which("git"):
        carried = tidy(CLEAN, {"carried/a.c": "int x;\n"})
        if carried.returncode != 0 or carried.stdout != clean.stdout:
            failed += 1
            print(f"files that git does not track have findings:\n{carried.stdout}{carried.stderr}")
    for name, text, line, message in BREACHES:
        result = tidy({**CLEAN, name: text})
        place = f"{name}:{line}: " if line else "include/xorcast.h:4: "
        lines = result.stdout.splitlines()
        hits = [found for found in lines if found.startswith(place) and message in found]
        if result.returncode != 1 or not hits:
            failed += 1
            print(f"not found: {place}{message}\n{result.stdout}{result.stderr}")
    print(f"{failed} of {len(BREACHES) + 2} not as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
