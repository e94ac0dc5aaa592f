#!/usr/bin/env python3
"""Kills `xorcast apply` with SIGKILL and looks at what it leaves; then lets many run at once.

First at every single call that changes the file system (a small shared object, loaded before libc,
counts them), then at random times. Whatever the moment: the next command on the checkpoint, here
`check`, finds it wholly old or wholly new, byte for byte and without a file too many, and an apply
of the same delta then succeeds. Applies and checks of one checkpoint that run at once, some of them
killed, each find it whole.

Needs XORCAST, the built tool, and CC, a C compiler.
"""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

XORCAST = os.environ["XORCAST"]
CC = os.environ.get("CC", "cc")
SEED = 20
RANDOM_KILLS = 40
ROUNDS = 60

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int calls;
static void count(void) {
    const char *at = getenv("KILL_AT");
    if (at != NULL && atomic_fetch_add(&calls, 1) == atoi(at))
        kill(getpid(), SIGKILL);
}
#define WRAP(result, name, parameters, arguments)                        \
    result name parameters {                                             \
        result (*next) parameters = (result (*) parameters)dlsym(RTLD_NEXT, #name); \
        count();                                                         \
        return next arguments;                                           \
    }
WRAP(int, rename, (const char *a, const char *b), (a, b))
WRAP(int, unlink, (const char *a), (a))
WRAP(int, rmdir, (const char *a), (a))
WRAP(int, mkdir, (const char *a, mode_t m), (a, m))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, ftruncate, (int fd, off_t n), (fd, n))
WRAP(int, ftruncate64, (int fd, off_t n), (fd, n))
WRAP(int, fchmod, (int fd, mode_t m), (fd, m))
WRAP(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t o), (fd, p, n, o))
WRAP(ssize_t, pwrite64, (int fd, const void *p, size_t n, off_t o), (fd, p, n, o))
"""

failures = []


def check(good, text):
    if not good:
        failures.append(text)
        print(f"FAILED {text}", flush=True)


def put_safetensors(path, tensors):
    header, data = {}, b""
    for name, content in tensors:
        begin = len(data)
        data += content
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def changed(content, rng):
    content = bytearray(content)
    for _ in range(len(content) // 300):
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    return bytes(content)


def build_folders(old, new, rng, shard_bytes):
    """The new one has other shards, changed weights, and side files changed, added and removed."""
    os.mkdir(old)
    os.mkdir(new)
    for shard in range(3):
        tensors = [(f"t.{shard}.{i}", rng.randbytes(shard_bytes // 4 + i)) for i in range(4)]
        put_safetensors(f"{old}/m-{shard}.safetensors", tensors)
        name = "n" if shard == 2 else "m"
        put_safetensors(f"{new}/{name}-{shard}.safetensors",
                        [(n, changed(c, rng)) for n, c in tensors])
    for folder, files in ((old, {"config.json": "1", "same": "s", "gone": "g"}),
                          (new, {"config.json": "2", "same": "s", "come": "c"})):
        for name, text in files.items():
            with open(f"{folder}/{name}", "w") as f:
                f.write(text)


def build_files(old, new, rng, file_bytes):
    content = rng.randbytes(file_bytes)
    put_safetensors(old, [("a", content), ("b", b"xyz")])
    put_safetensors(new, [("a", changed(content, rng)), ("b", b"xyZ")])


def tree(path):
    if not os.path.isdir(path):
        with open(path, "rb") as f:
            return f.read()
    return {name: tree(f"{path}/{name}") for name in os.listdir(path)}


def fresh(old, work):
    if os.path.isdir(old):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(old, work)
    else:
        shutil.copyfile(old, work)


def tool(*arguments):
    return subprocess.run([XORCAST, *arguments], capture_output=True, text=True, timeout=60)


def look_after(case, moment, work, delta, old, new):
    """What the next command finds; returns "old" or "new"."""
    case = f"{case}, killed at {moment}"
    seen = tool("check", work, delta, "--json")
    found = tree(work)
    state = "old" if found == old else "new" if found == new else "neither"
    check(state != "neither", f"{case}: neither old nor new ({seen.stderr.strip()})")
    check(seen.returncode == 0, f"{case}: {state}, check says {seen.returncode}")
    check(seen.returncode != 0 or json.loads(seen.stdout)["already_there"] == (state == "new"),
          f"{case}: {state}, check says {seen.stdout}")
    beside = [n for n in os.listdir(os.path.dirname(work)) if n.startswith(".")]
    check(not beside, f"{case}: {beside} stayed")
    again = tool("apply", work, delta)
    check(again.returncode == 0 and tree(work) == new, f"{case}: apply again: {again.stderr}")
    check(again.stdout.startswith("already there") == (state == "new"),
          f"{case}: {state}, apply again says {again.stdout}")
    return state


def kill_at_calls(case, place, shim, old_path, delta, old, new):
    """Every call in turn, until an apply has fewer of them."""
    work, states = f"{place}/work", []
    environment = dict(os.environ, LD_PRELOAD=shim,
                       ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")
    for n in range(10000):
        fresh(old_path, work)
        environment["KILL_AT"] = str(n)
        run = subprocess.run([XORCAST, "apply", work, delta, "-q", "-t", "1"], env=environment,
                             capture_output=True, timeout=60)
        if run.returncode != -signal.SIGKILL:
            check(run.returncode == 0 and tree(work) == new,
                  f"{case}: the apply that was not killed: {run.stderr}")
            break
        states.append(look_after(case, f"call {n}", work, delta, old, new))
    print(f"{case}: killed at each of {len(states)} calls: {states.count('old')} times old, "
          f"{states.count('new')} times new", flush=True)
    check(states.count("old") >= 3 and states.count("new") >= 1,
          f"{case}: the kills missed the switch")
    check(states == sorted(states, reverse=True), f"{case}: old again after the switch")


def kill_at_times(case, place, old_path, delta, old, new, rng):
    work, states = f"{place}/work", []
    fresh(old_path, work)
    begin = time.monotonic()
    check(tool("apply", work, delta).returncode == 0, f"{case}: apply")
    took = time.monotonic() - begin
    for _ in range(RANDOM_KILLS):
        fresh(old_path, work)
        run = subprocess.Popen([XORCAST, "apply", work, delta, "-q"], stderr=subprocess.DEVNULL)
        moment = rng.uniform(0, took * 1.1)
        time.sleep(moment)
        run.kill()
        run.wait()
        states.append(look_after(case, f"{moment * 1e3:.1f} ms", work, delta, old, new))
    print(f"{case}: killed at {len(states)} random times of {took * 1e3:.0f} ms: "
          f"{states.count('old')} times old, {states.count('new')} times new", flush=True)


def all_at_once(case, place, old_path, new_path, rng):
    """There and back by several processes: each does its work, or finds it done."""
    work, there, back = f"{place}/work", f"{place}/there", f"{place}/back"
    for delta, (a, b) in ((there, (old_path, new_path)), (back, (new_path, old_path))):
        check(tool("diff", a, b, "-o", delta).returncode == 0, f"{case}: diff")
    fresh(old_path, work)
    versions, seen = (tree(old_path), tree(new_path)), {}
    for _ in range(ROUNDS):
        running = [subprocess.Popen([XORCAST, rng.choice(("apply", "apply", "check")), work,
                                     rng.choice((there, back)), "-q"], stderr=subprocess.PIPE)
                   for _ in range(rng.randint(2, 6))]
        time.sleep(rng.uniform(0, 0.02))
        for process in running:
            if rng.random() < 0.2:
                process.kill()
        for process in running:
            text = process.communicate(timeout=60)[1]
            code = process.returncode
            seen[code] = seen.get(code, 0) + 1
            check(code in (0, -signal.SIGKILL),
                  f"{case}: {process.args[1]} at once: {code}, {text}")
        tool("check", work, there)
        check(tree(work) in versions, f"{case}: neither old nor new")
    print(f"{case}: {ROUNDS} times some at once: exit codes {seen}", flush=True)


def main():
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="xorcast-kill-") as top:
        shim = f"{top}/shim.so"
        with open(f"{top}/shim.c", "w") as f:
            f.write(SHIM)
        built = subprocess.run([CC, "-shared", "-fPIC", "-O1", "-w", "-o", shim,
                                f"{top}/shim.c", "-ldl"])
        if built.returncode != 0:
            print("no shared object can be built here")
            return 77
        for case, build, small, large in (("folder", build_folders, 20000, 6 << 20),
                                          ("file", build_files, 20000, 16 << 20)):
            for size in (small, large):
                place = tempfile.mkdtemp(dir=top)
                os.mkdir(f"{place}/in")
                old_path, new_path, delta = f"{place}/old", f"{place}/new", f"{place}/delta"
                build(old_path, new_path, rng, size)
                made = tool("diff", old_path, new_path, "-o", delta)
                check(made.returncode == 0, f"{case}: diff: {made.stderr}")
                old, new = tree(old_path), tree(new_path)
                if size == small:
                    all_at_once(case, f"{place}/in", old_path, new_path, rng)
                    kill_at_calls(case, f"{place}/in", shim, old_path, delta, old, new)
                else:
                    kill_at_times(case, f"{place}/in", old_path, delta, old, new, rng)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
