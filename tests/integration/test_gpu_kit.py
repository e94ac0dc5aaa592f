#!/usr/bin/env python3
"""The runner of what needs a GPU (tests/gpu/run_kit.py), on a kit of scripts: programs that pass,
fail, skip, end by a signal or are missing, as tests/summary.py counts them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["XORCAST_SOURCE"])

PROGRAMS = {
    "good": 'echo "[ RUN      ] a"; echo "[       OK ] a"; echo "[ RUN      ] b"; '
            'echo "[       OK ] b"',
    "bad": 'printf "\\001 no \\377 good\\n"; exit 3',
    "skip": 'echo "there is no GPU"; exit 77',
    "killed": "kill -9 $$",
    "settings": '[ "$ONE" = 1 ] && [ "$XORCAST_PLUGIN_PATH" = "$PWD" ] && [ "$TWO" = a=b ]',
}


class GpuKit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.kit = pathlib.Path(folder.name).resolve()

    def run_kit(self, *lines):
        for name, text in PROGRAMS.items():
            program = self.kit / name
            program.write_text(f"#!/bin/bash\n{text}\n")
            program.chmod(0o755)
        (self.kit / "tests.txt").write_text("".join(line + "\n" for line in lines))
        report = self.kit / "report.xml"
        ran = subprocess.run([sys.executable, SOURCE / "tests/gpu/run_kit.py", self.kit, report],
                             stdout=subprocess.PIPE, text=True)
        summed = subprocess.run([sys.executable, SOURCE / "tests/summary.py", "--tidy", "0",
                                 f"gpu={report}"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(ran.returncode != 0, summed.returncode != 0)
        return ran, summed.stdout

    def test_good(self):
        ran, summary = self.run_kit("good", "settings ONE=1 TWO=a=b", "skip")
        self.assertEqual(ran.returncode, 0)
        self.assertIn("SKIPPED gpu skip: there is no GPU", summary)
        self.assertTrue(summary.endswith("4 passed, 0 failed, 1 skipped\n"), summary)

    def test_failures(self):
        ran, summary = self.run_kit("good", "bad", "killed", "missing", "settings")
        self.assertEqual(ran.returncode, 1)
        for name in ("bad", "killed", "missing", "settings"):
            self.assertIn(f"FAILED gpu {name}", summary)
        self.assertTrue(summary.endswith("3 passed, 4 failed, 0 skipped\n"), summary)

    def test_none(self):
        ran, summary = self.run_kit()
        self.assertEqual(ran.returncode, 1)
        self.assertIn("ran no test", summary)


if __name__ == "__main__":
    unittest.main()
