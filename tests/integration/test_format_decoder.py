#!/usr/bin/env python3
"""docs/format.md against the library: a decoder written from the text reads deltas that the tool
made, applies them, and compares files, digests, fingerprints, counts and encoded blocks.

The tables and the worked example of the document are read out of it and must be true.
"""

import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import unittest

try:
    import format_decoder as ours
except ImportError as error:
    print(f"SKIPPED {error.name} is not installed here")
    sys.exit(77)
import tool
from tool import DTYPES, ToolTest, generate

SOURCE = pathlib.Path(os.environ.get("XORCAST_SOURCE", "."))
BUILD = pathlib.Path(os.environ.get("XORCAST_BUILD", "build"))
FORMAT = (SOURCE / "docs" / "format.md").read_text(encoding="utf-8")

# The tool has one chunk and group size; the library has others.
OTHER_SIZES = r"""
#include <stdio.h>
#include <xorcast.h>

static int put(void *user, const void *bytes, uint64_t count) {
    return fwrite(bytes, 1, count, user) == count ? 0 : 5;
}

int main(int argc, char **argv) {
    xorcast_context *context;
    xorcast_checkpoint *old_one, *new_one;
    xorcast_bundle_options sizes = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_delta_info info;
    const xorcast_sink sink = {put, stdout};
    sizes.chunk_bytes = 16384;
    sizes.group_bytes = 1 << 20;
    return argc != 3 || xorcast_context_create(NULL, &context) ||
           xorcast_checkpoint_open(context, argv[1], &sizes, &old_one) ||
           xorcast_checkpoint_open(context, argv[2], &sizes, &new_one) ||
           xorcast_delta_encode(xorcast_checkpoint_bundle(old_one),
                                xorcast_checkpoint_bundle(new_one), NULL, &sink, &info);
}
"""


def safetensors(tensors):
    """The bytes of a file with these tensors: name, dtype, shape, bytes."""
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensor[3] for tensor in tensors)


def load(path):
    path = pathlib.Path(path)
    if path.is_file():
        return ours.Checkpoint({b"": path.read_bytes()}, False)
    return ours.Checkpoint({p.name.encode(): p.read_bytes() for p in path.iterdir()}, True)


def table_rows(after, columns):
    """Rows of the first table with so many columns behind a text of the document."""
    rows = []
    for line in FORMAT[FORMAT.index(after):].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == columns:
            rows.append(cells)
        elif rows:
            break
    return rows[2:]


class Decoding(ToolTest):
    def judge(self, old, new, delta):
        """Applies a delta by the document and checks everything that it says of itself."""
        base, target = load(old), load(new)
        files, layout, masks = ours.apply_to_checkpoint(delta, base)
        self.assertEqual(files, target.files)
        bits = sum(int.from_bytes(mask, "little").bit_count() for mask, _, _ in masks)
        changed = sum(len(mask) - mask.count(0) for mask, _, _ in masks)
        elements = sum(any(mask[i:i + chunk.width]) for mask, chunk, _ in masks
                       for i in range(0, len(mask), chunk.width))
        covered = sum(tensor.bytes for tensor in layout.tensors)
        all_elements = sum(tensor.bytes // ours.element_width(tensor) for tensor in layout.tensors)
        self.assertEqual(delta.counts, [bits, changed, elements, len(masks), covered, all_elements])
        self.assertEqual(delta.payload_bytes, delta.payload_seen)
        self.assertEqual(delta.encoded_bytes, delta.encoded_seen)
        for mask, _, block in masks:
            self.assertTrue(any(mask), "a chunk without a change has a block")
            if block.codec == ours.GAP:
                self.assertLess(len(block.data), len(mask))
            elif delta.asked[0] == ours.AUTO:
                self.assertEqual((block.codec, block.data), ours.encode(block.codec, mask))
            elif delta.asked[0] != ours.GAP:
                self.assertEqual((block.codec, block.data), ours.encode(delta.asked[0], mask))
        return masks

    def diff(self, old, new, *options):
        path = self.path("delta")
        self.good("diff", old, new, "-o", path, *options)
        delta = ours.Delta(path.read_bytes())
        told = tool.rows(self.good("inspect", path, "--json").stdout)[0]
        for side, lanes in (("base", delta.base_digest), ("target", delta.target_digest)):
            self.assertEqual(told[side]["digest"], "%016x%016x" % lanes)
        self.assertEqual(told["target_fingerprint"], delta.target_fingerprint.hex())
        return delta

    def test_generated(self):
        for dtype in DTYPES:
            for shards in (1, 3):
                old, new = generate(self.path(f"{dtype}{shards}"), "--dtype", dtype, "--bytes",
                                    "500k", "--shards", shards, "--extras", "--lr-like")
                for options in (("--codec", "raw"), ("--codec", "snappy"), ("--codec", "lz4"),
                                ("--second-pass", "none"), ("--level", "9"), ("--codec", "gap"),
                                ("--codec", "gap", "--old-weights"), ("--codec", "auto"),
                                ("--codec", "auto", "--link-rate", "100m", "--receiver", "gpu")):
                    with self.subTest(dtype=dtype, shards=shards, options=options):
                        self.judge(old, new, self.diff(old, new, *options))

    def test_many_small_tensors(self):
        old, new = generate(self.path("many"), "--many", 6000, "--bytes", "900k")
        self.judge(old, new, self.diff(old, new))

    def test_gap_of_all_kinds(self):
        """Sparse, dense and raw chunks of all dtypes, odd sizes; with and without old weights."""
        noise = random.Random(4)
        old, new, wanted = self.path("old"), self.path("new"), set()
        for density in (0, 0.02, 0.3, 0.9):
            tensors, others = [], []
            for name, dtype, width, size in (("a", "BF16", 2, 40001), ("b", "U8", 1, 66000),
                                             ("c", "F32", 4, 5001), ("d", "F64", 8, 3001),
                                             ("e", "U8", 1, 13), ("f", "F32", 4, 7)):
                data = noise.randbytes(size * width)
                other = bytearray(data)
                for i in range(0, len(data), width):
                    if noise.random() < density or (density == 0 and i == 0):
                        value = int.from_bytes(data[i:i + width], "little")
                        value = (value + noise.choice((-1, 1))) % (1 << 8 * width)
                        other[i:i + width] = value.to_bytes(width, "little")
                tensors.append((name, dtype, [size], data))
                others.append((name, dtype, [size], bytes(other)))
            old.write_bytes(safetensors(tensors))
            new.write_bytes(safetensors(others))
            for options in ((), ("--old-weights",)):
                with self.subTest(density=density, options=options):
                    delta = self.diff(old, new, "--codec", "gap", *options)
                    self.assertEqual(delta.needs_old, bool(options))
                    for _, _, block in self.judge(old, new, delta):
                        shape = block.place and block.place[0]
                        wanted.add((shape.bits, shape.dense, shape.knows_old) if shape else None)
        self.assertGreaterEqual(len(wanted), 12)

    def test_several_groups_and_parts(self):
        noise = random.Random(1)
        size = 5 << 20
        tensors = [(name, "BF16", [size // 2], noise.randbytes(size)) for name in ("a", "b")]
        old, new = self.path("old"), self.path("new")
        old.write_bytes(safetensors(tensors))
        tensors = [(name, *rest, noise.randbytes(size)) for name, *rest, _ in tensors]
        new.write_bytes(safetensors(tensors))
        delta = self.diff(old, new, "--codec", "lz4")
        self.assertEqual((len(delta.parts), delta.group_count), (3, 3))
        self.judge(old, new, delta)

    def test_other_sizes(self):
        program, source = self.path("sizes"), self.path("sizes.c")
        source.write_text(OTHER_SIZES)
        subprocess.run([os.environ.get("CC", "cc"), source, "-o", program,
                        f"-I{SOURCE / 'include'}", f"-L{BUILD.resolve()}", "-lxorcast",
                        f"-Wl,-rpath,{BUILD.resolve()}"], check=True)
        for dtype in ("bf16", "nvfp4"):
            old, new = generate(self.path(dtype), "--dtype", dtype, "--bytes", "2500k", "--extras")
            made = subprocess.run([program, old, new], check=True, stdout=subprocess.PIPE)
            delta = ours.Delta(made.stdout)
            self.assertEqual((delta.chunk_bytes, delta.group_bytes), (16384, 1 << 20))
            self.assertIsNone(delta.attachment)
            self.assertGreater(delta.layout_groups, 2)
            self.judge(old, new, delta)

    def test_fold(self):
        steps = generate(self.path("steps"), "--bytes", "600k", "--steps", 4, "--lr-like")
        deltas = []
        for i, (old, new) in enumerate(zip(steps, steps[1:])):
            deltas.append(self.path(f"delta{i}"))
            self.good("diff", old, new, "-o", deltas[-1], "--run", "r", "--base", i, "--target",
                      i + 1)
        folded = self.path("folded")
        self.good("fold", *deltas, "-o", folded)
        delta = ours.Delta(folded.read_bytes())
        self.assertEqual((delta.run, delta.base_step, delta.target_step), ("r", 0, 3))
        self.judge(steps[0], steps[-1], delta)

    def test_files(self):
        """Tensors and files that come, go, change their shape or move to another shard."""
        noise = random.Random(2)
        kept, moved = noise.randbytes(9000), noise.randbytes(200)
        old, new = self.path("old"), self.path("new")
        for folder, files in (
                (old, {"a.safetensors": safetensors([("kept", "U8", [9000], kept),
                                                     ("gone", "I64", [2], bytes(16)),
                                                     ("moved", "BF16", [100], moved)]),
                       "b.safetensors": safetensors([("shape", "F32", [2, 3], bytes(24))]),
                       "same.json": b"{}", "changed.json": b"old", "gone.json": b"gone"}),
                (new, {"a.safetensors": safetensors([("kept", "U8", [9000], kept[::-1])]),
                       "c.safetensors": safetensors([("moved", "BF16", [100], moved[:-1] + b"!"),
                                                     ("shape", "F32", [6], bytes(range(24))),
                                                     ("empty", "F32", [0], b""),
                                                     ("zeros", "F16", [50], bytes(100))]),
                       "same.json": b"{}", "changed.json": b"new", "came.json": b"came" * 99})):
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
        delta = self.diff(old, new)
        self.assertNotEqual(delta.base_fingerprint, delta.target_fingerprint)
        self.judge(old, new, delta)

    def test_damage(self):
        old, new = generate(self.path("damage"), "--bytes", "200k")
        self.diff(old, new)
        data, noise = self.path("delta").read_bytes(), random.Random(3)
        for size in (0, 15, 47, len(data) // 2, len(data) - 1):
            self.assertRaises(ours.Refused, ours.Delta, data[:size])
        for _ in range(200):
            at = noise.randrange(len(data))
            flipped = bytes([data[at] ^ 1 << noise.randrange(8)])
            self.assertRaises(ours.Refused, ours.Delta, data[:at] + flipped + data[at + 1:])


class Document(ToolTest):
    def test_digest(self):
        rows = table_rows("### Digest", 5)
        self.assertEqual(len(rows), 5)
        for tensor, index, word, low, high in rows:
            lanes = ours.term(int(tensor), int(index), int(word, 16))
            self.assertEqual(("%016x" % lanes[0], "%016x" % lanes[1]), (low, high))
        for tensor in range(3):
            self.assertIn("%016x" % ours.mix(tensor), FORMAT)

    def test_codecs(self):
        for title, codec in (("### LZ4 (2)", ours.LZ4), ("### Snappy (3)", ours.SNAPPY)):
            rows = table_rows(title, 3)
            self.assertGreaterEqual(len(rows), 4)
            for size, changes, block in rows:
                mask = bytearray(int(size))
                for at, value in re.findall(r"\[(\d+)\] = (\w\w)", changes):
                    mask[int(at)] = int(value, 16)
                made, data = ours.encode(codec, bytes(mask))
                if block.startswith("raw"):
                    self.assertEqual(made, ours.RAW)
                else:
                    self.assertEqual((made, data), (codec, bytes.fromhex(block)))
                    self.assertEqual(ours.decode(codec, data, int(size)), mask)

    def test_gap(self):
        rows = table_rows("#### Writing", 4)
        self.assertGreaterEqual(len(rows), 3)
        for size, changes, params, block in rows:
            mask = bytearray(int(size))
            for at, value in re.findall(r"\[(\d+)\] = (\w\w)", changes):
                mask[int(at)] = int(value, 16)
            (shape, chunk_bytes), = ours.Parameters(bytes.fromhex(params), 1).places
            self.assertEqual(chunk_bytes, int(size))
            self.assertEqual(ours.gap_decode(bytes.fromhex(block), shape, chunk_bytes, bytes(mask)),
                             mask)
            old, new, path = self.path("old"), self.path("new"), self.path("delta")
            old.write_bytes(safetensors([("w", "U8", [len(mask)], bytes(len(mask)))]))
            new.write_bytes(safetensors([("w", "U8", [len(mask)], bytes(mask))]))
            self.good("diff", old, new, "-o", path, "--codec", "gap", "--second-pass", "none")
            self.assertIn(bytes.fromhex(block + params), path.read_bytes())

    def make_example(self):
        weights, other = bytearray(range(64)), bytes(range(100, 112))
        for name in ("old.safetensors", "new.safetensors"):
            self.path(name).write_bytes(safetensors([("w", "BF16", [4, 8], bytes(weights)),
                                                     ("b", "F32", [3], other)]))
            weights[2] ^= 0x01
            weights[40] ^= 0x03
            weights[41] ^= 0x80
        command = re.search(r"    xorcast (diff .*)\n", FORMAT)[1].split()
        self.good(*(self.path(word) if "." in word else word for word in command))
        return self.path("d.xorcast").read_bytes()

    def test_example(self):
        example = FORMAT[FORMAT.index("## Worked example"):]
        lines = re.findall(r"^([0-9a-f]{3})  ((?:[0-9a-f]{2}(?: |$))+)", example, re.M)
        shown = b""
        for at, text in lines:
            self.assertEqual(int(at, 16), len(shown))
            shown += bytes.fromhex(text)
        self.assertEqual(shown.hex(" "), self.make_example().hex(" "))
        delta = ours.Delta(shown)
        layout = load(self.path("old.safetensors")).layout(delta)
        serialized = re.findall(r"^    ((?:[0-9a-f]{2} {1,2})+)", example, re.M)
        self.assertEqual(bytes.fromhex("".join(serialized)), layout.fingerprint_text)
        self.assertIn(layout.fingerprint.hex(), example)


if __name__ == "__main__":
    tool.main()
