#!/usr/bin/env python3
"""xorcast bench codecs: what it prints is true of the checkpoints, adds up, is the same again, and
can be drawn; what cannot be compared is refused.

Checkpoints come from bench/gen with a fixed seed, and from recorded traces where XORCAST_TRACES
names some. On a GPU: its stand-in, in the folder XORCAST_STANDIN.
"""

import os
import re
import unittest
import xml.etree.ElementTree

import tool
from tool import DTYPES, ToolTest, copy_of, generate, rows, run, traces, weights_in
from test_bounds import tensors_of, WIDTHS

OF_THE_FORMAT = ("raw", "lz4", "snappy", "lz4+zstd", "snappy+zstd", "gap", "gap+old", "auto",
                 "auto+old")
COMPARED = ("lz4hc", "zstd 1", "zstd 3", "zstd 19", "tensor zstd", "liblz4+zstd", "index+value",
            "gaps zstd", "coo zstd")
SLOW = ("lz4hc", "zstd 19")
PHASES = ("encode", "stage", "commit")
SVG = "{http://www.w3.org/2000/svg}"


def varint_bytes(number):
    return max(1, (number.bit_length() + 6) // 7)


def index_and_value_bytes(old, new):
    """The layout counted by hand: positions, values, and the two numbers before them."""
    size, due = 0, 0
    olds, news = tensors_of(old), tensors_of(new)
    for at, name in enumerate(sorted(olds)):
        dtype, data = olds[name]
        width = WIDTHS[dtype]
        changed = sum(data[i:i + width] != news[name][1][i:i + width]
                      for i in range(0, len(data), width))
        if changed:
            size += varint_bytes(at - due) + varint_bytes(changed) + changed * (4 + width)
            due = at + 1
    return size


class Measuring(ToolTest):
    backend = "cpu"
    environment = os.environ

    def steps(self, dtype, *options):
        folder = self.path(f"steps-{dtype}")
        generate(folder, "--dtype", dtype, "--bytes", "900k", "--steps", 3, "--lr", "1e-6",
                 *options)
        return folder

    def measure(self, folder, *options):
        steps, *found = rows(self.good("bench", "codecs", folder, "--repeat", 1, "--json",
                                       "--backend", self.backend, *options,
                                       env=self.environment).stdout)
        self.assertEqual(steps["event"], "steps")
        self.assertTrue(all(row["event"] == "codec" for row in found))
        return steps, {row["name"]: row for row in found}

    def check_picture(self, picture, labels):
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertEqual(root.tag, SVG + "svg")
        width, height = float(root.get("width")), float(root.get("height"))
        texts = list(root.iter(SVG + "text"))
        names = [text.text for text in texts]
        for name in labels:
            self.assertEqual(names.count(name), 2, name)
        for mark in texts + list(root.iter(SVG + "circle")):
            x, y = (float(mark.get(a, mark.get("c" + a))) for a in ("x", "y"))
            self.assertTrue(0 <= x <= width and 0 <= y <= height, mark.text)
        self.no_labels_overlap([text for text in texts if text.text in labels])

    def no_labels_overlap(self, labels):
        boxes = []
        for label in labels:
            x, y = float(label.get("x")), float(label.get("y"))
            boxes.append((label.text, x, y - 9, x + 6 * len(label.text), y))
        for i, (name, *a) in enumerate(boxes):
            for other, *b in boxes[:i]:
                self.assertFalse(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3],
                                 f"{name} lies over {other}")

class Codecs(Measuring):
    def check(self, folder, paths, left_out=()):
        names = [name for name in OF_THE_FORMAT + COMPARED if name not in left_out]
        steps, found = self.measure(folder, *(("--only", ",".join(names)) if left_out else ()))
        for name in names:
            self.assertEqual(found[name]["of_the_format"], name in OF_THE_FORMAT)
        pairs = list(zip(paths, paths[1:]))
        self.assertEqual(steps["steps"], len(pairs))
        infos = []
        for old, new in pairs:
            delta = self.path("delta")
            infos.append(rows(self.good("diff", old, new, "-o", delta, "--bound", "--json",
                                        "--codec", "lz4", "--second-pass", "none").stdout)[0])
        for key in ("bytes_changed", "bits_changed", "elements_changed"):
            self.assertEqual(steps[key], sum(info[key] for info in infos))
        bound = sum(info["entropy_bound_bytes"] for info in infos)
        self.assertAlmostEqual(steps["order0_bound_bytes"] / bound, 1, delta=1e-4)
        # Deltas of files carry their headers too, if these differ, and else a few bytes.
        self.assertAlmostEqual(found["lz4"]["bytes"], sum(info["delta_bytes"] for info in infos),
                               delta=300 * len(pairs))
        self.assertEqual(found["index+value"]["bytes"],
                         sum(index_and_value_bytes(old, new) for old, new in pairs))
        for name, row in found.items():
            with self.subTest(name):
                self.assertGreater(row["bytes"], steps["conditional_bound_bytes"])
                self.assertAlmostEqual(row["of_order0_bound"] * steps["order0_bound_bytes"],
                                       row["bytes"], delta=1e-4 * row["bytes"])
                self.assertAlmostEqual(row["ratio"] * row["bytes"], steps["weight_bytes"],
                                       delta=1e-4 * steps["weight_bytes"])
                for phase in PHASES:
                    self.assertGreater(row[phase]["ns"], 0)
                    self.assertAlmostEqual(
                        row[phase]["gigabytes_per_second"] * row[phase]["ns"],
                        steps["weight_bytes"], delta=1e-4 * steps["weight_bytes"])
        self.assertLess(found["lz4"]["bytes"], found["snappy"]["bytes"])
        self.assertLess(found["lz4+zstd"]["bytes"], found["lz4"]["bytes"])
        # Zero runs alone explain nearly all of the difference.
        runs = steps["zero_runs"]
        self.assertAlmostEqual(
            (runs["snappy_bytes"] - runs["lz4_bytes"]) /
            (found["snappy"]["bytes"] - found["lz4"]["bytes"]), 1, delta=0.15)

    def test_generated(self):
        for dtype in DTYPES:
            with self.subTest(dtype):
                folder = self.steps(dtype)
                self.check(folder, sorted(folder.glob("step_*")))

    def test_traces(self):
        for name, paths in traces().items():
            with self.subTest(name):
                self.check(paths[0].parent, paths, SLOW)

    def test_same_again(self):
        """Sizes and bounds depend on nothing but the weights."""
        folder = self.steps("fp8", "--shards", 2, "--extras")
        first, again = self.measure(folder), self.measure(folder, "--threads", 3)
        self.assertEqual({**first[0], "threads": 3}, again[0])
        for name, row in first[1].items():
            self.assertEqual(row["bytes"], again[1][name]["bytes"], name)

    def test_text(self):
        folder = self.steps("bf16")
        text = self.good("bench", "codecs", folder, "--repeat", 1, "--backend",
                         "cpu").stdout.decode()
        self.assertEqual(text.count("no GPU: --backend cpu"), 1)
        for piece in OF_THE_FORMAT + COMPARED + ("Why LZ4 and not Snappy", "for comparison",
                                                 "order 0", "given old"):
            self.assertIn(piece, text)
        found = self.measure(folder)[1]
        self.assertIn(f"{found['lz4']['bytes'] // 2:,}", text)
        self.assertEqual(self.good("bench", "codecs", folder, "-q", "--repeat", 1).stdout, b"")

    def test_only(self):
        folder = self.steps("bf16")
        steps, found = self.measure(folder, "--only", "zstd 1,snappy")
        self.assertEqual(set(found), {"zstd 1", "snappy"})
        every = self.measure(folder)
        self.assertEqual(steps, every[0])
        for name, row in found.items():
            self.assertEqual(row["bytes"], every[1][name]["bytes"])
        self.good("bench", "codecs", folder, "--only", "lz4hc", "--repeat", 1)
        for wrong in ("zstd", "lz4x", "snapp", "lz4,foo"):
            self.assertIn(wrong.encode(),
                          self.bad(2, "bench", "codecs", folder, "--only", wrong).stderr)

    def test_picture(self):
        folder, picture = self.steps("nvfp4"), self.path("codecs.svg")
        self.good("bench", "codecs", folder, "--repeat", 1, "--svg", picture, "--backend", "cpu")
        self.check_picture(picture, OF_THE_FORMAT + COMPARED)

    def test_nothing_changed(self):
        first = sorted(self.steps("bf16").glob("step_*"))[0]
        folder = self.path("still")
        folder.mkdir()
        for step in (1, 2):
            copy_of(first, folder / f"step_{step}")
        steps, found = self.measure(folder, "--svg", self.path("empty.svg"))
        self.assertEqual((steps["bytes_changed"], steps["order0_bound_bytes"]), (0, 0))
        self.assertIsNone(found["lz4"]["of_order0_bound"])
        self.assertLess(found["lz4"]["bytes"], 400)
        self.good("bench", "codecs", folder, "--repeat", 1)
        xml.etree.ElementTree.parse(self.path("empty.svg"))

    def test_refused(self):
        folder = self.steps("bf16")
        steps = sorted(folder.glob("step_*"))
        self.bad(42, "bench", "codecs", self.path("absent"))
        self.bad(2, "bench", "codecs", steps[0])
        one = self.path("one")
        one.mkdir()
        copy_of(steps[0], one / "step_0")
        self.assertIn(b"one checkpoint", self.bad(2, "bench", "codecs", one).stderr)
        copy_of(sorted(self.steps("nvfp4").glob("step_*"))[0], one / "step_1")
        self.bad(33, "bench", "codecs", one)
        self.bad(2, "bench", "codecs", folder, "--svg", folder / "inside.svg")
        self.bad(42, "bench", "codecs", folder, "--svg", self.path("no/such/folder.svg"))
        self.bad(10, "bench", "codecs", folder, "--scratch", "200k")
        self.assertFalse(list(self.folder.glob("*.svg*")))
        damaged = weights_in(steps[1])
        damaged.write_bytes(damaged.read_bytes()[:-8])
        self.assertIn(run("bench", "codecs", folder).returncode, (20, 21))

    def test_no_gpu(self):
        """A machine without one says so, unless it was to be measured."""
        folder = self.steps("bf16")
        nothing = {**os.environ, "XORCAST_PLUGIN_PATH": str(self.folder)}
        if run("inspect", "--device", env=nothing).returncode == 0:
            self.skipTest("this machine's GPU is found without XORCAST_PLUGIN_PATH")
        options = ("bench", "codecs", folder, "--repeat", 1, "--only", "lz4,snappy")
        text = self.good(*options, env=nothing).stdout.decode()
        # There is no plug-in, or one beside the tool that finds no driver.
        self.assertEqual(len(re.findall("^no GPU: .*backend cuda", text, re.MULTILINE)), 1)
        for row in rows(self.good(*options, "--json", env=nothing).stdout):
            self.assertIsNone(row["device"])
        for name in ("cuda", "nosuch"):
            self.assertIn(name.encode(), self.bad(3, *options, "--backend", name,
                                                  env=nothing).stderr)


STANDIN = os.environ.get("XORCAST_STANDIN", "")


@unittest.skipUnless(os.path.isdir(STANDIN), "there is no stand-in for a GPU")
class OnDevice(Measuring):
    """With a GPU beside the CPU."""

    backend = "cuda"
    environment = {**os.environ, "XORCAST_PLUGIN_PATH": STANDIN}

    def measure(self, folder, *options):
        if "--bytes" not in options:
            options += ("--bytes", 1)
        steps, found = super().measure(folder, *options)
        self.assertEqual(steps["device"].pop("name"), "Fake 0")
        for key in [key for key in steps["device"] if key.endswith("per_second")]:
            self.assertGreater(steps["device"].pop(key), 0)
        for name, row in found.items():
            with self.subTest(name):
                self.check_device(steps, row)
        return steps, found

    def check_device(self, steps, row):
        device = row["device"]
        if not row["of_the_format"]:
            self.assertIsNone(device)
            return
        if steps["device"]["copies"] == 1:
            self.assertEqual(device["bytes"], row["bytes"])
        for phase in PHASES:
            if phase == "encode" and row["name"].startswith("snappy"):
                self.assertIsNone(device[phase])
                continue
            self.assertGreater(device[phase]["ns"], 0)
            self.assertAlmostEqual(device[phase]["gigabytes_per_second"] * device[phase]["ns"],
                                   steps["device"]["weight_bytes"],
                                   delta=1e-4 * steps["device"]["weight_bytes"])

    def test_dtypes(self):
        """The GPU sends what the CPU sends, and what is beside it stays as it was."""
        for dtype in DTYPES:
            with self.subTest(dtype):
                folder = self.steps(dtype)
                steps, found = self.measure(folder)
                backend, self.backend = self.backend, "cpu"
                alone = super().measure(folder)
                self.backend = backend
                self.assertEqual({**steps, "device": None}, alone[0])
                for name, row in found.items():
                    self.assertEqual(row["bytes"], alone[1][name]["bytes"], name)

    def test_nothing_changed(self):
        first = self.steps("bf16") / "step_000000"
        folder = self.path("still")
        for step in (1, 2):
            copy_of(first, folder / f"step_{step}")
        found = self.measure(folder, "--only", "lz4,gap+old")[1]
        self.assertLess(found["lz4"]["device"]["bytes"], 400)

    def test_copies(self):
        """As many as fit, and each codec sends about as much for each."""
        folder = self.steps("nvfp4")
        one = self.measure(folder)
        several = self.measure(folder, "--bytes", "5m")
        copies = several[0]["device"]["copies"]
        self.assertEqual(one[0]["device"]["copies"], 1)
        self.assertIn(copies, (4, 5))  # tensors begin at multiples of 256 bytes
        self.assertEqual(several[0]["device"]["weight_bytes"], copies * one[0]["weight_bytes"])
        # zstd finds one copy in another where a group has several.
        for name in ("raw", "lz4", "snappy", "gap", "gap+old"):
            sizes = [found[name]["device"]["bytes"] for found in (one[1], several[1])]
            self.assertAlmostEqual(sizes[1] / sizes[0], copies, delta=0.3 * copies, msg=name)

    def test_device_text(self):
        folder, picture = self.steps("bf16"), self.path("codecs.svg")
        text = self.good("bench", "codecs", folder, "--repeat", 1, "--bytes", "2m", "--svg",
                         picture, env=self.environment).stdout.decode()
        self.assertNotIn("no GPU", text)
        table = text[text.index("on a GPU: the tensors 2 times in its memory, 1.80 MB"):]
        for name in OF_THE_FORMAT:
            self.assertIn(f"\n{name} ", table)
        self.assertEqual(table.count(" - "), 4)  # speed and time of encoding as Snappy, twice
        self.check_picture(picture, OF_THE_FORMAT + COMPARED + tuple(
            f"{name}, GPU" for name in OF_THE_FORMAT if "snappy" not in name))

    def test_failures(self):
        """A GPU that fails is no result, whenever it does."""
        folder = self.steps("fp8")
        ends = {}
        for kind, code in (("CALL", 50), ("WORK", 50), ("MEMORY", 10)):
            for n in (0, 10, 30, 100, 300, 1000, 100000):
                process = run("bench", "codecs", folder, "--repeat", 1, "--bytes", "2m", "--only",
                              "lz4,snappy,gap+old", "--json",
                              env={**self.environment, f"XORCAST_TEST_FAIL_{kind}": str(n)})
                ends.setdefault(kind, []).append(process.returncode)
                if process.returncode == 0:
                    steps, *found = rows(process.stdout)
                    self.assertEqual(steps["device"] is None, found[0]["device"] is None)
                    continue
                self.assertIn(process.returncode, (code, 60))
                self.assertEqual(process.stdout, b"")
            self.assertEqual(ends[kind][-1], 0)
            self.assertGreater(ends[kind].count(code), 1, ends)


if __name__ == "__main__":
    tool.main()
