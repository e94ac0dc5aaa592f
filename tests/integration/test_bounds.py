#!/usr/bin/env python3
"""The entropy bounds of bench/bounds: counted once more here, from their description alone, and
compared with those of the program, of `diff --bound` and of `bench codecs`.

Checkpoints come from bench/gen with a fixed seed, and from recorded traces where XORCAST_TRACES
names some; of those only the totals are compared, as this counts slowly.
"""

import collections
import json
import math
import os
import struct
import subprocess
import sys

import tool
from tool import DEADLINE, DTYPES, ToolTest, copy_of, generate, rows, traces, weights_in

BOUNDS = os.path.join(os.environ.get("XORCAST_BENCH", "build/bench"), "bounds")
WIDTHS = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}


def bounds(*arguments):
    return subprocess.run([BOUNDS, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=DEADLINE)


def tensors_of(step):
    """Name to (dtype, bytes)."""
    raw = weights_in(step).read_bytes()
    size, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], raw[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def entropy_bits(counts):
    total = sum(counts)
    return sum(count * math.log2(total / count) for count in counts if count)


def order0_bytes(dtype, old, new):
    """Positions and XOR values of bytes, of byte planes, or of nibbles."""
    mask = [a ^ b for a, b in zip(old, new)]
    if dtype == "U8":
        streams = [[half for byte in mask for half in (byte & 15, byte >> 4)]]
    elif dtype == "F32":
        streams = [mask[plane::4] for plane in range(4)]
    else:
        streams = [mask]
    bits = 0
    for stream in streams:
        values = collections.Counter(stream)
        same = values.pop(0, 0)
        bits += entropy_bits([same, len(stream) - same]) + entropy_bits(values.values())
    return bits / 8


def codes_of(dtype, data):
    if dtype == "U8":
        return [half for byte in data for half in (byte & 15, byte >> 4)]
    form = {1: "B", 2: "<H", 4: "<I"}[WIDTHS[dtype]]
    return [code for code, in struct.iter_unpack(form, data)]


def conditional_bytes(dtype, old, new):
    """Which elements change, and by how many steps, given the old exponent."""
    sign, shift = {"BF16": (1 << 15, 7), "F32": (1 << 31, 23), "F8_E4M3": (128, 3),
                   "U8": (8, 0)}[dtype]
    elements, steps, bits = collections.Counter(), {}, 0
    for a, b in zip(codes_of(dtype, old), codes_of(dtype, new)):
        group = (a & (sign - 1)) >> shift
        elements[group] += 1
        if a == b:
            continue
        size, target = a & (sign - 1), b & (sign - 1)
        step = target - size if (a ^ b) & sign == 0 else -(size + target + 1)
        if abs(step) > 15:  # its length, and the bits below the first
            length = abs(step).bit_length()
            bits += length - 1
            step = (step > 0, length)
        steps.setdefault(group, collections.Counter())[step] += 1
    for group, count in elements.items():
        sizes = steps.get(group, collections.Counter())
        changed = sum(sizes.values())
        bits += entropy_bits([changed, count - changed]) + entropy_bits(sizes.values())
    return bits / 8


class Bounds(ToolTest):
    def rows_of(self, *arguments):
        process = bounds(*arguments, "--json")
        self.assertEqual(process.returncode, 0, process.stderr)
        return rows(process.stdout)

    def near(self, value, expected, what):
        self.assertLessEqual(abs(value - expected), 1e-5 * expected + 1e-6, what)

    def generated(self, dtype, *options):
        return generate(self.path(f"{dtype}{len(options)}"), "--dtype", dtype, "--bytes", "500k",
                        "--steps", 3, *options)[1:]

    def test_counted_again(self):
        for dtype in DTYPES:
            for options in (("--lr", "2e-6", "--extras"), ("--lr-like",)):
                old, new = self.generated(dtype, *options)
                found = {row["name"]: row for row in self.rows_of(old, new)
                         if row["row"] == "tensor"}
                olds, news = tensors_of(old), tensors_of(new)
                changed = [name for name in olds if olds[name] != news[name]]
                self.assertEqual(set(found), set(changed))
                for name in changed:
                    kind, data = olds[name]
                    row = found[name]
                    self.near(row["order0_bytes"], order0_bytes(kind, data, news[name][1]), name)
                    self.near(row["conditional_bytes"],
                              conditional_bytes(kind, data, news[name][1]), name)
                    self.assertEqual((row["dtype"], row["bytes"]), (kind, len(data)))

    def steps(self):
        for dtype in DTYPES:
            yield dtype, self.generated(dtype, "--lr", "1e-6", "--heavy")
        for name, steps in traces().items():
            yield f"trace-{name}", steps[:2]

    def test_one_definition(self):
        """The library, this program and the tool say the same."""
        for name, (old, new) in self.steps():
            with self.subTest(name):
                found = self.rows_of(old, new, "--totals")
                total, = (row for row in found if row["row"] == "all")
                one, = (row for row in found if row["row"] == "all_one_model")
                info, = rows(self.good("diff", old, new, "-o", self.path("delta"), "--bound",
                                       "--json").stdout)
                self.near(total["order0_bytes"], info["entropy_bound_bytes"], name)
                both = self.path(f"both-{name}")
                both.mkdir()
                for step in (old, new):
                    copy_of(step, both / step.name)
                steps = rows(self.good("bench", "codecs", both, "--repeat", 1, "--json").stdout)[0]
                self.near(total["order0_bytes"], steps["order0_bound_bytes"], name)
                self.near(total["conditional_bytes"], steps["conditional_bound_bytes"], name)
                for row in (total, one):
                    for bound in ("order0", "conditional"):
                        self.assertGreater(row[f"{bound}_charged_bytes"], row[f"{bound}_bytes"])
                    self.assertLess(row["conditional_bytes"], row["order0_bytes"])
                # One model has fewer counts to learn, and fits each tensor less well.
                self.assertGreaterEqual(one["order0_bytes"], total["order0_bytes"])
                self.assertGreaterEqual(one["conditional_bytes"], total["conditional_bytes"])
                sums = [row for row in found if row["row"] == "dtype"]
                self.near(sum(row["order0_bytes"] for row in sums), total["order0_bytes"], name)
                self.assertEqual(sum(row["changed"] for row in sums), total["changed"])
                text = bounds(old, new, "--totals").stdout.decode()
                self.assertIn(f"{total['conditional_charged_bytes']:.0f}", text)

    def test_other_tensors_are_named(self):
        old, _ = self.generated("bf16", "--lr", "1e-6")
        _, new = self.generated("nvfp4", "--lr", "1e-6")
        process = bounds(old, new, "--json")
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"left out", process.stderr)

    def test_nothing_changed(self):
        old, _ = self.generated("fp8", "--lr", "1e-6")
        *_, total, one = self.rows_of(old, old)
        for row in (total, one):
            self.assertEqual((row["order0_bytes"], row["conditional_bytes"], row["changed"]),
                             (0, 0, 0))

    def test_usage(self):
        self.assertEqual(bounds("--help").returncode, 0)
        self.assertIn(b"conditional", bounds("--help").stdout)
        for wrong in ((), ("a",), ("a", "b", "c"), ("a", "b", "--nonsense")):
            self.assertEqual(bounds(*wrong).returncode, 2, wrong)
        self.assertEqual(bounds(self.path("absent"), self.path("absent")).returncode, 1)


if __name__ == "__main__":
    if not os.access(BOUNDS, os.X_OK):
        print(f"SKIPPED {BOUNDS} is not built here")
        sys.exit(77)
    tool.main()
