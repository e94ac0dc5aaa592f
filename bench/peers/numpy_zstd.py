#!/usr/bin/env python3
"""What the disk-delta family of systems does, at its best on a CPU: for each tensor XOR of old and
new with NumPy, zstandard level 1 of the mask, xxh3-128 of the new bytes, and the new bytes into the
trainer's snapshot, which the next version is against; the receiver decompresses, XORs in place and
compares the hash. Memory to memory, no files, no network.

Reads two checkpoints of equal layout (safetensors) and prints one JSON row: medians of trainer,
snapshot (part of trainer), receiver and total seconds. Buffers are reused and large integers XORed,
which real systems do not all do: the comparison is to be won against a good implementation.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xxhash
import zstandard


def read_checkpoint(directory):
    """Tensors by name, as arrays of bytes in memory."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        body = np.fromfile(file, np.uint8)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = body[begin:end].copy()  # aligned, apart from its neighbours
    return tensors


def xor(a, b, out):
    """out = a ^ b, eight bytes at a time where the length allows."""
    whole = a.size // 8 * 8
    wide_a, wide_b, wide_out = (x[:whole].view(np.uint64) for x in (a, b, out))
    np.bitwise_xor(wide_a, wide_b, out=wide_out)
    np.bitwise_xor(a[whole:], b[whole:], out=out[whole:])


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else "unknown"


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip() or "unknown"


class Worker(threading.local):
    """A thread's own compressor and mask buffer."""

    def __init__(self, largest):
        self.mask = np.empty(largest, np.uint8)
        self.compressor = zstandard.ZstdCompressor(level=1)
        self.decompressor = zstandard.ZstdDecompressor()


def publish(worker, snapshot, new):
    mask = worker.mask[:new.size]
    xor(snapshot, new, mask)
    return worker.compressor.compress(mask), xxhash.xxh3_128_digest(new)


def take_snapshot(snapshot, new):
    np.copyto(snapshot, new)


def apply(worker, weights, message):
    blob, digest = message
    mask = worker.decompressor.decompress(blob, max_output_size=weights.size)
    xor(weights, np.frombuffer(mask, np.uint8), weights)
    if xxhash.xxh3_128_digest(weights) != digest:
        raise ValueError("the digest does not match")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.threads == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    old, new = read_checkpoint(arguments.old), read_checkpoint(arguments.new)
    names = sorted((n for n in new if new[n].size), key=lambda n: -new[n].size)  # for balance
    sampler = {n: old[n].copy() for n in names}
    snapshot = {n: old[n].copy() for n in names}
    total = sum(new[n].size for n in names)
    worker = Worker(max(new[n].size for n in names))
    pool = ThreadPoolExecutor(arguments.threads) if arguments.threads > 1 else None
    run = pool.map if pool else map

    trainer_seconds, snapshot_seconds, receiver_seconds = [], [], []
    for _ in range(arguments.repeat + 1):  # the first is not counted
        start = time.perf_counter()
        messages = list(run(lambda n: publish(worker, snapshot[n], new[n]), names))
        encoded = time.perf_counter()
        list(run(lambda n: take_snapshot(snapshot[n], new[n]), names))
        published = time.perf_counter()
        list(run(lambda n, m: apply(worker, sampler[n], m), names, messages))
        receiver_seconds.append(time.perf_counter() - published)
        trainer_seconds.append(published - start)
        snapshot_seconds.append(published - encoded)
        for n in names:
            assert np.array_equal(sampler[n], new[n]), n
            sampler[n][:] = old[n]
            snapshot[n][:] = old[n]
    changed = sum(int(np.count_nonzero(old[n] != new[n])) for n in names)
    wire = sum(len(blob) + len(digest) for blob, digest in messages)
    totals = [t + r for t, r in zip(trainer_seconds, receiver_seconds)][1:]
    row = {
        "row": "peer_numpy_zstd1_xxh3",
        "machine": machine(),
        "commit": commit(),
        "command": " ".join(sys.argv),
        "threads": arguments.threads,
        "weight_bytes": total,
        "bytes_changed_share": changed / total,
        "wire_bytes": wire,
        "repeats": arguments.repeat,
        "trainer_seconds": statistics.median(trainer_seconds[1:]),
        "snapshot_seconds": statistics.median(snapshot_seconds[1:]),
        "receiver_seconds": statistics.median(receiver_seconds[1:]),
        "total_seconds": statistics.median(totals),
    }
    print(json.dumps(row))
    print(f"peer, {arguments.threads} thread(s), {100 * changed / total:.3f} % of bytes: "
          f"{1e3 * row['total_seconds']:.0f} ms", file=sys.stderr)


if __name__ == "__main__":
    main()
