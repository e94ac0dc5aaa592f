#!/usr/bin/env python3
"""Runs the CPU rows and compares them with the bars: bench/cpu_rows against the bound that reading
sets, and against NumPy + zstandard on the same bytes. Prints the rows of both as JSON lines, then
one "bar" row for each bar; what a person wants to read goes to standard error. Exit 0 whether bars
are met or not: a measurement is not a test.

The weights are four times the last-level cache, so that
they come from memory: many minutes, and about eight times as much memory. --quick takes two rows
of 470 MB; what it shows may come from the cache.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_BYTES = 470_000_000
DENSITIES = {0.0005: {"read_bound": 0.8, "peer": 5.0}, 0.006: {"read_bound": 0.55, "peer": 4.0}}
seen = {}  # the last row, for the machine and the commit that it names
# Debian's own Python has Debian's NumPy, zstandard and xxhash; another one first in PATH may not.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def last_level_cache():
    """Bytes, as the system tells; 0 if it does not."""
    found = [0]
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        found.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(found)


def weight_bytes(quick):
    """Four times the cache, and never more than an eighth of the memory that is to be had."""
    wanted = max(LEAST_BYTES, 0 if quick else 4 * last_level_cache())
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    most = int(re.search(r"^MemAvailable: *([0-9]+) kB", text, re.M).group(1)) * 1024 // 8
    return str(max(1 << 24, min(wanted, most)) // 4096 * 4096)


def rows_of(command):
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    seen.update(rows[-1])
    return rows


def bar(name, value, at_least, **more):
    met = value >= at_least
    row = {"row": "bar", "bar": name, "value": round(value, 4), "at_least": at_least, "met": met}
    row.update({key: seen.get(key) for key in ("machine", "commit")})
    print(json.dumps({**row, **more}), flush=True)
    print(f"{'met' if met else 'MISSED'}: {name}: {value:.2f} (bar {at_least})", file=sys.stderr)


def one_row(arguments, pattern, density, threads, scratch):
    """Ours and the peer by turns, then the bars of this row."""
    cpu_rows = os.path.join(arguments.build, "bench", "cpu_rows")
    common = ["--bytes", arguments.bytes, "--density", str(density), "--threads", str(threads)]
    common += ["--clustered"] if pattern == "clustered" else []
    bars = DENSITIES[density]
    what = f"{pattern}, {100 * density:g} % of bytes, {threads} thread(s)"
    ours = [cpu_rows, *common, "--repeat", str(arguments.repeat)]
    theirs = [PYTHON, os.path.join(HERE, "peers", "numpy_zstd.py"), f"{scratch}/step_000000",
              f"{scratch}/step_000001", "--threads", str(threads), "--repeat",
              str(arguments.peer_repeat)]
    plain, full, peer = [], [], []
    subprocess.run([cpu_rows, *common, "--dump", scratch], check=True)
    for _ in range(arguments.turns):
        plain += rows_of(ours)
        peer += rows_of(theirs)
        full += rows_of([*ours, "--second-pass"])
    shutil.rmtree(scratch)

    def middle(rows, key):
        return statistics.median(row[key] for row in rows)

    bar(f"diff+encode, of the read bound ({what})", middle(plain, "encode_of_read_bound"),
        bars["read_bound"])
    bar(f"commit, times as fast as diff+encode ({what})",
        middle(plain, "commit_faster_than_encode"), 1.5,
        with_stage=round(middle(plain, "stage_and_commit_faster_than_encode"), 4))
    for rows, name in ((full, "second pass"), (plain, "no second pass")):
        seconds, peer_seconds = middle(rows, "total_seconds"), middle(peer, "total_seconds")
        without = peer_seconds - middle(peer, "snapshot_seconds")
        bar(f"end to end, times as fast as the peer, {name} ({what})", without / seconds,
            bars["peer"], seconds=seconds, peer_seconds=without,
            peer_with_snapshot_seconds=peer_seconds,
            wire_bytes=middle(rows, "delta_bytes"), peer_wire_bytes=middle(peer, "wire_bytes"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"), help="folder (build)")
    parser.add_argument("--quick", action="store_true", help="470m, changes independent, all "
                        "cores, fewer versions, one turn")
    parser.add_argument("--bytes", help="of the weights (four times the last-level cache, at least "
                        "470m, at most an eighth of the memory to be had)")
    parser.add_argument("--repeat", type=int, help="versions for each median (11)")
    parser.add_argument("--peer-repeat", type=int, help="the same for the peer (5)")
    parser.add_argument("--turns", type=int, help="ours and the peer by turns (2)")
    parser.add_argument("--scratch", default="/dev/shm", help="where the peer's weights lie")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.bytes = arguments.bytes or weight_bytes(quick)
    arguments.repeat = arguments.repeat or (3 if quick else 11)
    arguments.peer_repeat = arguments.peer_repeat or (1 if quick else 5)
    arguments.turns = arguments.turns or (1 if quick else 2)
    cpus = len(os.sched_getaffinity(0))
    cpu_rows = os.path.join(arguments.build, "bench", "cpu_rows")
    digest = rows_of([cpu_rows, "--bytes", arguments.bytes, "--threads", "1", "--digest"])[-1]
    bar("digest scan, GB/s on one core", digest["gigabytes_per_second"], 4.0)
    for threads in sorted({cpus} if quick else {1, cpus}):
        for density in DENSITIES:
            for pattern in ("independent",) if quick else ("independent", "clustered"):
                with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
                    one_row(arguments, pattern, density, threads, os.path.join(folder, "weights"))


if __name__ == "__main__":
    main()
