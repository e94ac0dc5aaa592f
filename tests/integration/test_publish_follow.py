#!/usr/bin/env python3
"""xorcast publish and follow as they are used: separate processes over TCP on this machine.

Followers end with the publisher's bytes, whether they came early, late, from a strange checkpoint
or back from the dead; and nobody hangs when the other side is gone. Checkpoints come from
bench/gen with a fixed seed, and from recorded traces where XORCAST_TRACES names some.
"""

import os
import signal
import socket
import time

import tool
from tool import DTYPES, ToolTest, content, copy_of, error_of, generate, rows, traces, weights_in


def versions(process):
    return process.rows("version")


def at_step(step):
    """Has a process come to this step?"""
    return lambda found: any(row["event"] in ("version", "open") and
                             (row["version"]["step"] or 0) >= step for row in found)


class Following(ToolTest):
    def publish(self, steps, *options):
        """A publisher of a folder of steps, ready to be followed; its URL."""
        url_file = self.path(f"url{tool.Running.count}")
        publisher = self.start("publish", steps, "--json", "--url-file", url_file, *options)
        publisher.wait_for(lambda found: found, "a URL")
        row, = publisher.rows("open")
        self.assertEqual(url_file.read_text(), row["url"] + "\n")
        return publisher, row["url"]

    def follow(self, url, base, *options):
        return self.start("follow", url, base, "--json", *options)

    def steps(self, name="steps", count=6, *options):
        return generate(self.path(name), "--bytes", "1500k", "--steps", count, "--shards", 2,
                        "--extras", *options)

    def equal_histories(self, publisher, follower):
        """Every version that a follower had is one that was published, digest for digest."""
        known = {row["version"]["step"]: row["version"] for row in
                 publisher.rows("open") + publisher.rows("version")}
        for row in versions(follower):
            self.assertEqual(row["version"], known[row["version"]["step"]])


class Together(Following):
    def check(self, steps, *options):
        """Two followers: one from the beginning, one that joins late."""
        last = len(steps) - 1
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 1, "--interval", "0.1",
                                      "--linger", 60, *options)
        first = self.follow(url, steps[0], "--until", last, "-o", self.path("out1"), "--audit")
        publisher.wait_for(at_step(max(2, last - 1)), "the last steps but one")
        second = self.follow(url, steps[0], "--until", last, "-o", self.path("out2"))
        for follower, out in ((first, "out1"), (second, "out2")):
            follower.finish()
            self.same(self.path(out), steps[-1])
            self.equal_histories(publisher, follower)
            end, = follower.rows("end")
            self.assertEqual(end["version"]["step"], last)
        publisher.process.send_signal(signal.SIGINT)
        publisher.finish(12)
        for out in ("out1", "out2"):
            tool.remove(self.path(out))
        return publisher, first, second

    def test_dtypes_and_codecs(self):
        for dtype, codec in zip(DTYPES, ("lz4", "snappy", "raw")):
            with self.subTest(dtype=dtype, codec=codec):
                steps = self.steps(dtype, 6, "--dtype", dtype, "--lr-like")
                publisher, first, second = self.check(steps, "--codec", codec, "--run", dtype)
                self.assertEqual(len(versions(publisher)), 5)
                self.assertEqual(versions(publisher)[-1]["version"]["run"], dtype)
                self.assertEqual(sum(row["deltas_folded"] for row in versions(first)), 5)
                self.assertEqual({row["by"] for row in versions(first)}, {"delta"})
                self.assertLess(len(versions(second)), 5, "the late one was not late")
                self.assertEqual(sum(row["deltas_folded"] for row in versions(second)), 5)
                for row in versions(publisher):
                    self.assertGreater(row["delta"]["entropy_bound_bytes"], 0)
                    self.assertGreater(row["delta"]["ratio"], 1)
                for row in versions(first):
                    self.assertGreater(row["pause_ns"], 0)

    def test_traces(self):
        for name, steps in traces().items():
            with self.subTest(trace=name):
                self.check(steps)

    def test_lines_for_people(self):
        steps = self.steps(count=3)
        publisher = self.start("publish", steps[0].parent, "--wait-peers", 1, "--run", "words")
        end = time.monotonic() + tool.DEADLINE
        while not publisher.lines() and time.monotonic() < end:
            time.sleep(0.01)
        url = publisher.lines()[0]
        follower = self.start("follow", url, steps[0], "--until", 2)
        follower.finish()
        publisher.finish()
        digest = publisher.lines()[-1].split()[-1]
        self.assertEqual(len(digest), 32)
        self.assertEqual(follower.lines()[-1].split()[-1], digest)
        self.assertIn("run words", publisher.lines()[1])
        self.assertEqual(publisher.err.read_text() + follower.err.read_text(), "")


class Bases(Following):
    def test_keyframe_for_a_strange_checkpoint(self):
        steps = self.steps(count=3)
        strange = self.steps("strange", 1, "--seed", 99)[0]
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 1)
        follower = self.follow(url, strange, "--until", 2, "-o", self.path("out"))
        follower.finish()
        publisher.finish()
        row = versions(follower)[0]
        self.assertEqual((row["by"], row["pause_ns"], row["bytes_changed"]),
                         ("keyframe", None, None))
        self.assertGreater(row["wire_bytes"], 0)
        # The weights are the publisher's, the files those of the checkpoint that was given.
        self.same(self.path("out"), steps[-1])

    def test_keyframe_when_the_log_is_short(self):
        steps = self.steps()
        publisher, url = self.publish(steps[0].parent, "--log", 1, "--linger", 60)
        publisher.wait_for(at_step(5), "step 5")
        follower = self.follow(url, steps[0], "--until", 5, "-o", self.path("out"), "--audit")
        follower.finish()
        self.same(self.path("out"), steps[-1])
        self.assertEqual([row["by"] for row in versions(follower)], ["keyframe"])
        self.assertIsNone(follower.rows("open")[0]["version"])

    def test_base_in_the_middle(self):
        """A follower that has step 3 gets what comes after it and nothing else."""
        steps = self.steps()
        publisher, url = self.publish(steps[0].parent, "--linger", 60)
        publisher.wait_for(at_step(5), "step 5")
        follower = self.follow(url, steps[3], "--until", 5, "-o", self.path("out"))
        follower.finish()
        self.same(self.path("out"), steps[-1])
        self.assertEqual(follower.rows("open")[0]["version"]["step"], 3)
        self.assertEqual([row["deltas_folded"] for row in versions(follower)], [2])

    def test_over_the_base(self):
        steps = self.steps(count=3)
        base = copy_of(steps[0], self.path("base"))
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 1)
        self.follow(url, base, "--until", 2, "-o", base).finish()
        self.same(base, steps[-1])
        publisher.finish()

    def test_other_model(self):
        steps = self.steps(count=2)
        other = self.steps("other", 1, "--dtype", "fp8")[0]
        _, url = self.publish(steps[0].parent, "--linger", 60)
        process = self.bad(33, "follow", url, other, "--json")
        self.assertEqual(error_of(process)["status"], "LAYOUT_MISMATCH")

    def test_number_of_versions(self):
        steps = self.steps(count=4)
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 1, "--interval", "0.3",
                                      "--linger", 60)
        follower = self.follow(url, steps[0], "--versions", 1)
        follower.finish()
        self.assertEqual(len(versions(follower)), 1)
        self.assertIsNone(follower.rows("end")[0]["output"])


class Deaths(Following):
    def test_follower_killed_and_back(self):
        steps = self.steps(count=8)
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 2, "--interval", "0.2",
                                      "--linger", 60)
        victim = self.follow(url, steps[0], "--until", 7, "-o", self.path("out"))
        other = self.follow(url, steps[0], "--until", 7, "-o", self.path("other"))
        victim.wait_for(at_step(2), "step 2")
        victim.kill()
        self.assertFalse(self.path("out").exists())
        back = self.follow(url, steps[0], "--until", 7, "-o", self.path("out"))
        for follower, out in ((back, "out"), (other, "other")):
            follower.finish()
            self.same(self.path(out), steps[-1])
            self.equal_histories(publisher, follower)

    def test_publisher_killed(self):
        steps = self.steps(count=3)
        before = content(steps[0])
        publisher, url = self.publish(steps[0].parent, "--wait-peers", 1, "--linger", 60)
        followers = [self.follow(url, steps[0], "--timeout", "1", "-o", self.path("free")),
                     self.follow(url, steps[0], "--timeout", "1", "-o", self.path("bound"),
                                 "--until", 9)]
        for follower in followers:
            follower.wait_for(at_step(2), "step 2")
        publisher.kill()
        for follower in followers:
            follower.finish(40)
            self.assertEqual(follower.error()["status"], "LINK_DOWN")
            self.assertEqual(follower.rows("end")[0]["version"]["step"], 2)
        self.same(self.path("free"), steps[2])
        self.assertFalse(self.path("bound").exists())
        self.assertEqual(content(steps[0]), before)

    def test_goal_not_reached(self):
        steps = self.steps(count=2)
        _, url = self.publish(steps[0].parent, "--linger", 60)
        process = self.bad(11, "follow", url, steps[0], "--timeout", "0.5", "--until", 9, "-o",
                           self.path("out"))
        self.assertIn(b"not written: step 1 of 9 was reached", process.stderr)

    def test_silent_publisher(self):
        steps = self.steps(count=2)
        _, url = self.publish(steps[0].parent, "--linger", 60)
        process = self.bad(11, "follow", url, steps[0], "--timeout", "0.5", "--json", "--until",
                           9)
        self.assertEqual(error_of(process)["status"], "TIMED_OUT")
        self.assertEqual(rows(process.stdout)[-1]["version"]["step"], 1)

    def test_publisher_back_again(self):
        """The same run at the same address: the follower goes on by itself."""
        steps = self.steps(count=6)
        for i, step in enumerate(steps):
            copy_of(step, self.path("early" if i < 3 else "late") / step.name)
        copy_of(steps[2], self.path("late") / steps[2].name)
        publisher, url = self.publish(self.path("early"), "--run", "r", "--linger", 60)
        follower = self.follow(url, steps[0], "--until", 5, "-o", self.path("out"))
        follower.wait_for(at_step(2), "step 2")
        publisher.kill()
        publisher, _ = self.publish(self.path("late"), "--run", "r", "--linger", 60, "--listen",
                                    url)
        follower.finish()
        self.same(self.path("out"), steps[-1])

    def test_nobody_there(self):
        steps = self.steps(count=1)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"tcp:127.0.0.1:{unused.getsockname()[1]}"
            process = tool.run("follow", url, steps[0], "--timeout", "1", "--json")
        self.assertIn(process.returncode, (40, 41, 42))
        self.assertTrue(error_of(process)["text"])

    def test_deaf_publisher(self):
        """Something that accepts and says nothing."""
        steps = self.steps(count=1)
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            url = f"tcp:127.0.0.1:{deaf.getsockname()[1]}"
            self.bad(11, "follow", url, steps[0], "--timeout", "0.5")

    def test_signals(self):
        steps = self.steps(count=3)
        publisher, url = self.publish(steps[0].parent, "--linger", 600)
        follower = self.follow(url, steps[0], "-o", self.path("out"), "--timeout", 600)
        goal = self.follow(url, steps[0], "-o", self.path("goal"), "--timeout", 600, "--until", 9)
        for process in (follower, goal):
            process.wait_for(at_step(2), "step 2")
            for _ in range(2):  # as timeout does: the child, and its group
                process.process.send_signal(signal.SIGINT)
                time.sleep(0.001)
            process.finish(12)
            self.assertEqual(process.error()["status"], "CANCELLED")
        self.same(self.path("out"), steps[-1])
        self.assertFalse(self.path("goal").exists())
        publisher.process.send_signal(signal.SIGTERM)
        publisher.finish(12)
        self.assertEqual(publisher.rows("end")[0]["version"]["step"], 2)


class Publishing(Following):
    def test_step_numbers(self):
        """Numbers in names are the steps, in their order; otherwise names are counted."""
        steps = self.steps("source", 3)
        for names, numbers in ((("step-9", "step-10", "step-200"), [9, 10, 200]),
                               (("a", "b", "c"), [0, 1, 2]),
                               (("x1", "y", "z3"), [0, 1, 2])):
            folder = self.path("-".join(names))
            for step, name in zip(steps, names):
                copy_of(step, folder / name)
            (folder / "notes.txt").write_text("no step")
            (folder / ".hidden").mkdir()
            publisher, _ = self.publish(folder)
            publisher.finish()
            seen = publisher.rows("open") + versions(publisher)
            self.assertEqual([row["version"]["step"] for row in seen], numbers)
            said = self.good("publish", folder, "--linger", 0).stderr
            self.assertEqual(b"in order of names" in said, numbers[0] == 0)

    def test_what_is_no_step(self):
        """What training leaves beside its checkpoints neither ends a run nor moves its steps."""
        steps, folder = self.steps("source", 3), self.path("run")
        for step, name in zip(steps, ("checkpoint-50", "checkpoint-200", "checkpoint-450")):
            copy_of(step, folder / name)
        copy_of(steps[0], folder / "checkpoint-460.tmp")
        (folder / "runs").mkdir()
        (folder / "latest").symlink_to("checkpoint-450")
        publisher, _ = self.publish(folder)
        publisher.finish()
        seen = publisher.rows("open") + versions(publisher)
        self.assertEqual([row["version"]["step"] for row in seen], [50, 200, 450])
        said = self.good("publish", folder, "--linger", 0).stderr.decode().splitlines()
        self.assertEqual(len(said), 3, said)
        for name, why in (("460.tmp", "being written"), ("runs", "no .safetensors"),
                          ("latest", "a link to another step")):
            line, = [line for line in said if f"{name} is left out" in line]
            self.assertIn(why, line)

    def test_only_links(self):
        """Steps may lie elsewhere; of two links to one, one is taken."""
        steps, folder = self.steps("source", 2), self.path("links")
        folder.mkdir()
        for i, step in enumerate(steps + [steps[1]]):
            (folder / f"s{i}").symlink_to(step.absolute())
        publisher, _ = self.publish(folder)
        publisher.finish()
        self.assertEqual([row["version"]["step"] for row in versions(publisher)], [1])

    def test_single_files(self):
        steps = generate(self.path("source"), "--bytes", "500k", "--steps", 3)
        self.path("files").mkdir()
        for i, step in enumerate(steps):
            copy_of(weights_in(step), self.path(f"files/{7 + i}.safetensors"))
        publisher, url = self.publish(self.path("files"), "--wait-peers", 1)
        self.follow(url, self.path("files/7.safetensors"), "--until", 9, "-o",
                    self.path("out")).finish()
        publisher.finish()
        self.same(self.path("out"), self.path("files/9.safetensors"))

    def test_refused(self):
        steps = self.steps(count=2)
        self.path("empty").mkdir()
        self.bad(42, "publish", self.path("empty"))
        (self.path("empty") / "src").mkdir()
        process = self.bad(42, "publish", self.path("empty"))
        self.assertIn(b"no checkpoints in", process.stderr)
        self.bad(42, "publish", self.path("absent"))
        process = self.bad(2, "publish", steps[0])
        self.assertIn(b"one checkpoint", process.stderr)
        for url in ("tcp:0.0.0.0:0", "tcp:127.0.0.1:port", "nonsense:x", "nonsense"):
            process = tool.run("publish", steps[0].parent, "--listen", url, "--linger", 0)
            self.assertIn(process.returncode, (2, 3, 41), process.stderr)
        self.good("publish", steps[0].parent, "--listen", "tcp:0.0.0.0:0", "--insecure",
                  "--linger", 0)

    def test_one_checkpoint(self):
        """A checkpoint in place of the directory of steps is seen, or at least suspected."""
        step, = self.steps(count=1)
        hint = b"give the directory that holds the steps"
        for path in (step, sorted(step.glob("*.safetensors"))[0]):
            self.assertIn(hint, self.bad(2, "publish", path).stderr)
        for index in step.glob("*.index.json"):
            index.unlink()
        self.assertIn(hint, self.bad(2, "publish", step).stderr)
        single, = generate(self.path("single"), "--bytes", "500k", "--steps", 1)
        for path, hinted in ((single, True), (single.parent, False)):
            process = self.good("publish", path, "--linger", 0)
            self.assertIn(b"no version will follow it", process.stderr)
            self.assertEqual(b"that holds it" in process.stderr, hinted)
            log, = rows(self.good("publish", path, "--linger", 0, "--json").stderr)
            self.assertEqual(log["log"]["level"], "warning")
            self.assertEqual(self.good("publish", path, "--linger", 0, "-q").stderr, b"")

    def test_place_of_the_output(self):
        """What cannot be written at the end is refused at the beginning: nobody listens here."""
        single, = generate(self.path("single"), "--bytes", "500k", "--steps", 1)
        file, used = weights_in(single), self.path("used")
        copy_of(single, used)
        for base, out, code, hint in (
                (single, file, 2, "no directory"), (file, used, 2, "no regular file"),
                (single, used, 2, "files in it"), (single, self.path("no/out"), 42, "no: No such"),
                (single, "/dev/null", 2, "no directory"), (file, "/dev/null", 2, "no regular file"),
                (single, f"{self.path('new')}/", 41, "nothing listens"),
                (file, self.path("new"), 41, "nothing listens"), (file, file, 41, "nothing")):
            process = self.bad(code, "follow", "tcp:127.0.0.1:1", base, "-o", out)
            self.assertIn(hint, process.stderr.decode())

    def test_nobody_comes(self):
        steps = self.steps(count=2)
        process = self.bad(11, "publish", steps[0].parent, "--wait-peers", 1, "--timeout", "0.2",
                           "--json")
        self.assertIn("0 of 1", error_of(process)["text"])

    def test_other_tensors_in_the_middle(self):
        """The run ends, and followers keep the last version that there was."""
        steps = self.steps(count=3)
        for other in (("--dtype", "fp8"), ("--dtype", "nvfp4")):
            tool.remove(steps[2])
            copy_of(self.steps("other" + other[1], 1, *other)[0], steps[2])
            publisher, url = self.publish(steps[0].parent, "--wait-peers", 1)
            follower = self.follow(url, steps[0], "--timeout", "1", "-o", self.path(other[1]))
            publisher.finish(33)
            follower.finish(40)
            self.same(self.path(other[1]), steps[1])
        self.assertEqual(publisher.error()["status"], "LAYOUT_MISMATCH")
        self.assertIn(str(steps[2]), publisher.error()["text"])

    def test_scratch_is_bounded(self):
        steps = self.steps(count=2)
        self.bad(10, "publish", steps[0].parent, "--scratch", "100k", "--linger", 0)
        self.assertEqual(os.listdir(steps[0].parent), [step.name for step in steps])


if __name__ == "__main__":
    tool.main()
