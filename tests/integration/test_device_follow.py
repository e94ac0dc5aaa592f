#!/usr/bin/env python3
"""xorcast publish and follow with the weights in device memory, as separate processes over TCP:
checkpoints are loaded straight into it, published from it, followed in it and written back, and
the files are the publisher's.

On the stand-in for a GPU, or in the kit (tests/gpu/run_kit.py) on a GPU: XORCAST_PLUGIN_PATH, or
else XORCAST_STANDIN, is the folder of the plug-in, XORCAST_TEST_BYTES the size of a checkpoint.
"""

import os
import signal
import sys

import tool
from test_publish_follow import Following, at_step, versions

BYTES = os.environ.get("XORCAST_TEST_BYTES", "1500k")


class OnDevice(Following):
    def checkpoints(self, dtype, count=4, name="steps", *options):
        return tool.generate(self.path(name), "--bytes", BYTES, "--steps", count, "--shards", 2,
                             "--extras", "--dtype", dtype, "--lr-like", *options)

    def end(self, publisher):
        publisher.process.send_signal(signal.SIGINT)
        publisher.finish(12)

    def reach(self, follower, publisher, out, wanted):
        follower.finish()
        self.same(self.path(out), wanted)
        self.equal_histories(publisher, follower)
        tool.remove(self.path(out))

    def check(self, dtype, *options):
        """A follower on the device and one on the host from the beginning, then a late one."""
        steps = self.checkpoints(dtype)
        last = len(steps) - 1
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 2, "--linger", 600,
                                      "--backend", "cuda", *options)
        on_device = self.follow(url, steps[0], "--until", last, "-o", self.path("device"),
                                "--audit", "--backend", "cuda")
        on_host = self.follow(url, steps[0], "--until", last, "-o", self.path("host"),
                              "--backend", "cpu")
        self.reach(on_device, publisher, "device", steps[-1])
        self.reach(on_host, publisher, "host", steps[-1])
        late = self.follow(url, steps[0], "--until", last, "-o", self.path("late"), "--audit",
                           "--backend", "cuda")
        self.reach(late, publisher, "late", steps[-1])
        self.assertEqual([row["deltas_folded"] for row in versions(late)], [last])
        for row in versions(publisher):
            self.assertGreater(row["delta"]["entropy_bound_bytes"], 0)
        self.end(publisher)
        tool.remove(steps[0].parent)

    def test_dtypes_and_codecs(self):
        for dtype, options in (("nvfp4", ()),
                               ("bf16", ("--codec", "lz4", "--second-pass", "none")),
                               ("fp8", ("--codec", "gap")),
                               ("bf16", ("--codec", "gap", "--old-weights")),
                               ("nvfp4", ("--codec", "auto"))):
            with self.subTest(dtype=dtype, options=options):
                self.check(dtype, *options)

    def test_published_from_the_host(self):
        steps = self.checkpoints("nvfp4", 3)
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 1, "--linger", 600,
                                      "--codec", "snappy", "--backend", "cpu")
        follower = self.follow(url, steps[0], "--until", 2, "-o", self.path("out"), "--audit",
                               "--backend", "cuda")
        self.reach(follower, publisher, "out", steps[-1])
        self.end(publisher)

    def test_keyframe_for_a_strange_checkpoint(self):
        steps = self.checkpoints("nvfp4", 3)
        strange = self.checkpoints("nvfp4", 1, "strange", "--seed", 99)[0]
        publisher, url = self.publish(steps[0].parent, "--linger", 600, "--backend", "cuda")
        publisher.wait_for(at_step(2), "the last step")
        follower = self.follow(url, strange, "--until", 2, "-o", self.path("out"), "--audit",
                               "--backend", "cuda")
        self.reach(follower, publisher, "out", steps[-1])
        self.assertEqual([row["by"] for row in versions(follower)], ["keyframe"])
        self.end(publisher)

    def test_no_such_backend(self):
        steps = self.checkpoints("nvfp4", 1)
        refused = self.bad(3, "publish", steps[0].parent, "--backend", "nosuch")
        self.assertIn(b"nosuch", refused.stderr)


if __name__ == "__main__":
    plugins = os.environ.setdefault("XORCAST_PLUGIN_PATH", os.environ.get("XORCAST_STANDIN", ""))
    if not os.path.isdir(plugins):
        print("SKIPPED there is neither a GPU's plug-in nor its stand-in here")
        sys.exit(77)
    tool.main()
