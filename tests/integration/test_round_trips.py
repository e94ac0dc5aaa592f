#!/usr/bin/env python3
"""diff, check and apply on files: the target comes out, file for file, whatever the dtype, the
codec, the number of threads, and of shards beside the limits of memory and open files.

Checkpoints come from bench/gen with a fixed seed, and from recorded traces where XORCAST_TRACES
names some.
"""

import resource

import tool
from tool import DTYPES, ToolTest, copy_of, error_of, generate, remove, traces, weights_in

CODECS = ("raw", "lz4", "snappy", "gap", "auto")
THREADS = (1, 2, 7)


class RoundTrip(ToolTest):
    def round_trip(self, old, new, *options):
        """diff, then apply elsewhere and in place; the same delta for any number of threads."""
        deltas = set()
        for threads in THREADS:
            delta, out = self.path(f"delta{threads}"), self.path(f"out{threads}")
            self.good("diff", old, new, "-o", delta, "--threads", threads, *options)
            self.good("apply", old, delta, "-o", out, "--threads", threads)
            self.same(out, new)
            deltas.add(delta.read_bytes())
            remove(out)
        self.assertEqual(len(deltas), 1, "the delta depends on the number of threads")
        place = copy_of(old, self.path("place"))
        self.good("check", place, delta)
        self.good("apply", place, delta)
        self.same(place, new)
        remove(place)

    def test_generated(self):
        for dtype in DTYPES:
            for shards in (1, 3):
                old, new = generate(self.path(f"{dtype}-{shards}"), "--dtype", dtype, "--bytes",
                                    "900k", "--shards", shards, "--extras", "--lr-like")
                for codec in CODECS:
                    with self.subTest(dtype=dtype, shards=shards, codec=codec):
                        self.round_trip(old, new, "--codec", codec)
                with self.subTest(dtype=dtype, shards=shards, second_pass="none"):
                    self.round_trip(old, new, "--second-pass", "none")
                if shards == 1:
                    with self.subTest(dtype=dtype, single_file=True):
                        self.round_trip(weights_in(old), weights_in(new))

    def test_masters(self):
        """Steps of an optimizer: values and scales move together."""
        for dtype in DTYPES:
            for options in (("--heavy",), ("--pow2", "--extras")):
                old, new = generate(self.path(dtype + options[0]), "--dtype", dtype, "--bytes",
                                    "600k", "--lr", "1e-5", *options)
                with self.subTest(dtype=dtype, options=options):
                    self.round_trip(old, new)

    def test_traces(self):
        for name, steps in traces().items():
            for old, new in zip(steps, steps[1:]):
                for codec in CODECS:
                    with self.subTest(trace=name, step=new.name, codec=codec):
                        self.round_trip(old, new, "--codec", codec)
                with self.subTest(trace=name, step=new.name, old_weights=True):
                    self.round_trip(old, new, "--codec", "gap", "--old-weights")
                with self.subTest(trace=name, step=new.name, back=True):
                    self.round_trip(new, old)

    def test_dense_and_nothing(self):
        for density in ("0", "0.5"):
            old, new = generate(self.path(density), "--bytes", "900k", "--density", density)
            with self.subTest(density=density):
                self.round_trip(old, new)
        self.good("diff", old, old, "-o", self.path("none"))
        self.assertLess(self.path("none").stat().st_size, 512)

    def test_other_tensors(self):
        """Another model altogether is a delta like any other."""
        old, _ = generate(self.path("a"), "--bytes", "900k", "--shards", 3)
        new, _ = generate(self.path("b"), "--bytes", "700k", "--dtype", "fp8", "--shards", 2)
        self.round_trip(old, new)

    def test_memory_limit(self):
        """Memory does not grow with the checkpoints: these are larger than what there is."""
        old, new = generate(self.path("c"), "--bytes", "200m", "--sparse")

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20))

        delta, out = self.path("delta"), self.path("out")
        for command in (("diff", old, new, "-o", delta), ("apply", old, delta, "-o", out)):
            self.good(*command, "--threads", 2, preexec_fn=limit)
        self.same(out, new)

    def test_more_shards_than_open_files(self):
        old, new = generate(self.path("c"), "--bytes", "3m", "--shards", 200, "--extras")

        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        delta, out, place = self.path("delta"), self.path("out"), self.path("place")
        copy_of(old, place)
        for command in (("diff", old, new, "-o", delta), ("check", old, delta),
                        ("apply", old, delta, "-o", out), ("apply", place, delta)):
            self.good(*command, "--threads", 7, preexec_fn=limit)
        self.same(out, new)
        self.same(place, new)

    def test_scratch_limit(self):
        old, new = generate(self.path("c"), "--bytes", "900k")
        process = self.bad(10, "diff", old, new, "-o", self.path("e"), "--scratch", "4k", "--json")
        self.assertEqual(error_of(process)["status"], "NO_HOST_MEMORY")
        self.assertIn("raise --scratch", error_of(process)["text"])
        self.assertFalse(self.path("e").exists())


if __name__ == "__main__":
    tool.main()
