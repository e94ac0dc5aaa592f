#!/usr/bin/env python3
"""Runs the demo and holds its numbers against what it promises.

For each dtype, at a fixed seed: the reward rises by the stated margin over the whole run and by a
smaller one in the RL phase; less than a tenth of the bytes changes in every RL step, and the
warm-up changes clearly more; all rollouts were drawn from the version that the sampler had
committed; all committed versions are the published ones; the deltas are smaller than full copies
where little changed; all bytes are equal at the end. Then: the same seed gives the same rewards
and digests, a killed sampler ends the run with a message, samplers do not outlive a killed
trainer, and wrong options are refused.

Needs XORCAST_DEMO, the built demo. With XORCAST_STANDIN, the folder of a stand-in for a GPU, it
also runs with weights in that device's memory, which must change nothing but the times.
"""

import json
import os
import signal
import subprocess
import sys
import time

DEMO = os.environ["XORCAST_DEMO"]
SEED = 1
STEPS = {"bf16": 50, "fp8": 24, "nvfp4": 24}
WARMUP = 18
WINDOW = 5
# Means of WINDOW steps, last minus first. The arithmetic is the same on every machine; the margins
# leave room for changes of the policy.
MARGIN = 0.30
# In the RL phase the reward rises slowly: only the long run tells it from noise.
RL_WINDOW = 10
RL_MARGIN = {"bf16": 0.03}
LIMIT_S = 220

failures = []


def check(good, text):
    if not good:
        failures.append(text)
        print(f"FAILED {text}", flush=True)


def run(*options, **variables):
    begin = time.monotonic()
    done = subprocess.run([DEMO, *options], capture_output=True, text=True, timeout=LIMIT_S,
                          env={**os.environ, **variables})
    return done, time.monotonic() - begin


def reports(text):
    return [json.loads(line) for line in text.splitlines()]


def mean(values):
    return sum(values) / len(values)


def check_versions(name, steps, samplers):
    """What a sampler drew from is what it had committed, and that is what was published."""
    published = {step["step"]: step["version"] for step in steps}
    for step in steps:
        check(step["version"]["step"] == step["step"], f"{name}: version of step {step['step']}")
        check(len(step["samplers"]) == samplers, f"{name}: samplers of step {step['step']}")
        drawn = {json.dumps(s["rollouts_from"]) for s in step["samplers"]}
        check(len(drawn) == 1, f"{name}: step {step['step']} mixes versions: {drawn}")
        for index, sampler in enumerate(step["samplers"]):
            check(sampler["synced"] == step["version"],
                  f"{name}: sampler {index} committed {sampler['synced']} at step {step['step']}")
            source = sampler["rollouts_from"]
            check(source["step"] == max(step["step"] - 2, 0),
                  f"{name}: sampler {index} drew from {source} for step {step['step']}")
            if source["step"] > 0:
                check(source == published[source["step"]],
                      f"{name}: {source} was never published")
                committed = steps[source["step"] - 1]["samplers"][index]["synced"]
                check(source == committed, f"{name}: sampler {index} never committed {source}")
    digests = {step["version"]["digest"] for step in steps}
    check(len(digests) == len(steps), f"{name}: digests repeat")


def check_run(dtype):
    count = STEPS[dtype]
    done, seconds = run("--json", "--dtype", dtype, "--seed", str(SEED), "--steps", str(count),
                        "--warmup", str(WARMUP))
    check(done.returncode == 0, f"{dtype}: exit code {done.returncode}: {done.stderr}")
    if done.returncode != 0:
        return None
    begin, *steps, end = reports(done.stdout)
    check((begin["type"], end["type"]) == ("begin", "end"), f"{dtype}: first and last line")
    check([step["step"] for step in steps] == list(range(1, count + 1)), f"{dtype}: all steps")
    rewards = [step["reward"] for step in steps]
    rise = mean(rewards[-WINDOW:]) - mean(rewards[:WINDOW])
    check(rise >= MARGIN, f"{dtype}: the reward rose by {rise:.3f}, not by {MARGIN}")
    rl = [step for step in steps if step["phase"] == "rl"]
    warmup = [step for step in steps if step["phase"] == "warmup"]
    check(len(rl) == count - WARMUP, f"{dtype}: {len(rl)} RL steps")
    rl_rise = None
    if dtype in RL_MARGIN:
        # The first rollouts of the weights that warm-up left reach the second RL step.
        start = [step["reward"] for step in rl[1:1 + RL_WINDOW]]
        rl_rise = mean(rewards[-RL_WINDOW:]) - mean(start)
        check(rl_rise >= RL_MARGIN[dtype], f"{dtype}: the reward rose by {rl_rise:.3f} in RL")
    for step in rl:
        check(0 < step["bytes_changed_percent"] < 10,
              f"{dtype}: step {step['step']} changed {step['bytes_changed_percent']} % of bytes")
        check(step["wire_bytes"] < step["full_bytes"] / 5,
              f"{dtype}: step {step['step']} took {step['wire_bytes']} bytes")
        check(step["entropy_bound_bytes"] > 0, f"{dtype}: no bound at step {step['step']}")
    check(min(step["bytes_changed_percent"] for step in warmup) >
          3 * max(step["bytes_changed_percent"] for step in rl),
          f"{dtype}: warm-up is not clearly denser than RL")
    check_versions(dtype, steps, begin["samplers"])
    check(end["equal"] is True, f"{dtype}: not equal")
    check(end["sampler_bytes_equal"] == [begin["full_bytes"]] * begin["samplers"],
          f"{dtype}: equal bytes {end['sampler_bytes_equal']}")
    check(end["rollouts_recomputed"] > 0, f"{dtype}: no rollout was computed again")
    share = mean([step["bytes_changed_percent"] for step in rl])
    in_rl = "" if rl_rise is None else f" (in RL {rl_rise:+.3f})"
    print(f"{dtype}: reward {rise:+.3f}{in_rl}, {share:.3f} % of bytes changed in an RL step, "
          f"{seconds:.1f} s", flush=True)
    return steps


def check_repeats(steps):
    done, _ = run("--json", "--seed", str(SEED), "--steps", "3", "--warmup", str(WARMUP))
    again = [line for line in reports(done.stdout) if line["type"] == "step"]
    check(len(again) == 3, f"the second run ended with {done.returncode}: {done.stderr}")
    for old, new in zip(steps, again):
        check((old["reward"], old["version"]) == (new["reward"], new["version"]),
              f"step {old['step']} is not the same twice")
    other, _ = run("--json", "--seed", str(SEED + 1), "--steps", "1")
    check(reports(other.stdout)[1]["version"] != steps[0]["version"], "the seed does not matter")


def check_device(steps):
    """A GPU is taken unasked, and said to be; --backend cpu goes without it. The stand-in cannot be
    read through its addresses, so weights that were not copied would end the run."""
    folder = os.environ.get("XORCAST_STANDIN", "")
    if not os.path.isdir(folder):
        print("no stand-in for a GPU: not run on one", flush=True)
        return
    done, _ = run("--json", "--seed", str(SEED), "--steps", "2", "--warmup", str(WARMUP),
                  XORCAST_PLUGIN_PATH=folder)
    check(done.returncode == 0, f"on a GPU: exit code {done.returncode}: {done.stderr}")
    if done.returncode == 0:
        begin, *again, end = reports(done.stdout)
        check((begin["backend"], begin["device"]) == ("cuda", "Fake 0"), f"on a GPU: {begin}")
        check(end["equal"], "on a GPU: weights differ")
        for old, new in zip(steps, again):
            check((old["reward"], old["version"]) == (new["reward"], new["version"]),
                  f"on a GPU: step {old['step']} is another")
            check(all(sampler["load_ns"] > 0 for sampler in new["samplers"]), "on a GPU: no copy")
    for backend, words in (("cuda", "live weights are on the GPU: cuda 0, Fake 0"),
                           ("cpu", "live weights are in host memory.")):
        done, _ = run("--steps", "0", "--backend", backend, XORCAST_PLUGIN_PATH=folder)
        check(words in done.stdout, f"backend {backend}: said {done.stdout}")


def gone(pid):
    """True once the process has ended; one that waits to be reaped counts."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def all_gone(pids, seconds):
    deadline = time.monotonic() + seconds
    while not all(gone(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return all(gone(pid) for pid in pids)


def start_and_read(lines):
    demo = subprocess.Popen([DEMO, "--json", "--steps", "1000"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    for _ in range(lines):
        report = json.loads(demo.stdout.readline())
    return demo, [sampler["pid"] for sampler in report["samplers"]]


def check_killed_sampler():
    demo, pids = start_and_read(3)
    os.kill(pids[1], signal.SIGKILL)
    begin = time.monotonic()
    _, errors = demo.communicate(timeout=90)
    check(demo.returncode == 1, f"a killed sampler: exit code {demo.returncode}")
    check("sampler 1" in errors and "signal 9" in errors, f"a killed sampler: said {errors!r}")
    check(time.monotonic() - begin < 60, "a killed sampler: was noticed late")
    check(all_gone(pids, 10), "a killed sampler: the other one lives on")


def check_killed_trainer():
    demo, pids = start_and_read(3)
    demo.kill()
    demo.communicate(timeout=30)
    check(all_gone(pids, 60), "a killed trainer: samplers live on")


def check_options():
    for options in (["--dtype", "int3"], ["--steps", "-1"], ["--seed", "x"], ["--rate", "nan"],
                    ["--backend", "tpu"],
                    ["--nonsense"], ["word"]):
        done, _ = run(*options)
        check(done.returncode == 2, f"{options}: exit code {done.returncode}")
        check("--help" in done.stderr and done.stdout == "", f"{options}: said {done.stderr!r}")
    done, _ = run("--help")
    check(done.returncode == 0 and "--dtype" in done.stdout, "--help")
    done, _ = run("--steps", "0")
    check(done.returncode == 0 and "All equal" in done.stdout, f"no steps: {done.stdout}")
    done, _ = run("--json", "--steps", "1")
    end = reports(done.stdout)[-1]
    check(end["first_reward"] == end["last_reward"] and end["rl_first_reward"] is None,
          f"one step: {end}")
    done, _ = run("--steps", "2")
    check(done.returncode == 0 and done.stdout.count(" warm ") == 2, "plain lines")
    check("\x1b" not in done.stdout and "\r" not in done.stdout, "a pipe gets no escapes")


def main():
    check_options()
    check_killed_sampler()
    check_killed_trainer()
    bf16 = check_run("bf16")
    if bf16 is not None:
        check_repeats(bf16)
        check_device(bf16)
    check_run("fp8")
    check_run("nvfp4")
    print(f"{len(failures)} failed" if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
