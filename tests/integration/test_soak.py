#!/usr/bin/env python3
"""A long run in short, by bench/soak: hundreds of versions, a sampler that is killed and one that
opens its subscriber again and again. All weights are equal in the end, and no process holds more
at the end of the run than at half of it: memory, threads, open files.

Needs XORCAST_BENCH, the folder of the built benchmarks.
"""

import json
import os
import subprocess
import unittest

SOAK = os.path.join(os.environ["XORCAST_BENCH"], "soak")
VERSIONS = 4000
# With a log that is full before half of the run.
OPTIONS = ("--versions", str(VERSIONS), "--bytes", "1m", "--log", "200k", "--dense", "90",
           "--reopen", "20", "--kill", "400")
# What a sampler holds goes up and down with how many versions it takes at a time, so the least of
# the last tenths is held against the most of the first half. The trainer may have seen the two
# samplers that come and go only then: each has a connection.
GROWTH = {"files": 2, "threads": 0, "library_bytes": 1 << 20, "resident_bytes": 1 << 20}


class Soak(unittest.TestCase):
    def setUp(self):
        done = subprocess.run([SOAK, *OPTIONS], capture_output=True, text=True, timeout=200,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        *self.tenths, self.end = map(json.loads, done.stdout.splitlines())

    def of(self, process):
        return [row for row in self.tenths if row["process"] == process]

    def test_flat_and_equal(self):
        self.assertEqual((self.end["digests"], self.end["versions"]), ("equal", VERSIONS))
        self.assertGreater(self.end["kills"], 0)
        self.assertGreater(self.end["reopened"], 5)
        for process in ("trainer", "steady sampler", "reopening sampler"):
            with self.subTest(process):
                tenths = self.of(process)
                first = [row for row in tenths if row["step"] <= VERSIONS // 2]
                last = [row for row in tenths if row["step"] > VERSIONS * 7 // 10]
                if process == "trainer":
                    self.assertEqual((len(first), len(last)), (5, 3))
                elif len(first) < 3 or not last:
                    continue  # it had so little of the processors that it skipped versions there
                for key, growth in GROWTH.items():
                    self.assertLessEqual(min(row[key] for row in last),
                                         max(row[key] for row in first) + growth, key)


if __name__ == "__main__":
    unittest.main()
