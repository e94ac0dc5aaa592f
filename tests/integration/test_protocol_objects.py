#!/usr/bin/env python3
"""docs/protocol.md against the library: a subscriber written from the text talks to `xorcast
publish`, and every object must be what the text says, down to the last byte.

Follows, catches up and takes a keyframe by hand; the bytes it ends with are the checkpoint's.
"""

import pathlib
import socket
import struct
import sys

try:
    import format_decoder as ours
except ImportError as error:
    print(f"SKIPPED {error.name} is not installed here")
    sys.exit(77)
import tool
from tool import DEADLINE, ToolTest, generate

HELLO, WELCOME, GET, DATA, NEWEST, STEP, ACK, REFUSAL = range(1, 9)
HEAD = struct.Struct("<4sBBHIiQ")
NOTHING_NEW, NOT_FOUND, VERSION_GONE = 1, -503, -405
NO_STEP = (1 << 64) - 1


class Refusal(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status, self.text = status, text


class Peer:
    """One connection; a message at a time."""

    def __init__(self, url):
        host, port = url.removeprefix("tcp:").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), DEADLINE)
        self.id = 0
        self.send(HELLO, struct.pack("<I", 1))
        assert self.receive(WELCOME) == (0, b"")

    def send(self, kind, body):
        self.socket.sendall(HEAD.pack(b"XCLK", 1, kind, 0, self.id, 0, len(body)) + body)

    def exactly(self, count):
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the publisher closed"
            data += more
        return bytes(data)

    def receive(self, wanted):
        magic, version, kind, zero, number, status, size = HEAD.unpack(self.exactly(HEAD.size))
        assert (magic, version, zero, number) == (b"XCLK", 1, 0, self.id)
        body = self.exactly(size)
        self.id += 1
        if kind == REFUSAL:
            raise Refusal(status, body.decode())
        assert kind == wanted
        return status, body

    def get(self, name, limit=1 << 30):
        self.send(GET, struct.pack("<Q", limit) + name.encode())
        return self.receive(DATA)[1]

    def newest(self, after, wait_ms):
        self.send(NEWEST, struct.pack("<QI", after, wait_ms))
        status, body = self.receive(STEP)
        return int.from_bytes(body, "little") if status == 0 else status

    def acknowledge(self, step):
        self.send(ACK, struct.pack("<Q", step))
        self.id += 1

    def delta(self, step):
        """A version as a file: head, parts, manifest."""
        manifest = self.get(f"version/{step}/manifest")
        reader = ours.Reader(manifest[:-32])
        found = ours.Delta.__new__(ours.Delta)
        found.read_manifest(reader)
        parts = [self.get(f"version/{step}/part/{i}") for i in range(len(found.parts))]
        return ours.Delta(ours.DELTA_HEAD + b"".join(parts) + manifest)


class Objects(ToolTest):
    def setUp(self):
        super().setUp()
        self.steps = generate(self.path("steps"), "--bytes", "700k", "--steps", 4, "--extras",
                              "--lr-like")
        publisher = self.start("publish", self.path("steps"), "--run", "by-hand", "--json",
                               "--linger", DEADLINE, "--log", "100m")
        publisher.wait_for(lambda rows: sum(row["event"] == "version" for row in rows) == 3,
                           "last version")
        self.opened = publisher.rows("open")[0]
        self.peer = Peer(self.opened["url"])
        self.addCleanup(self.peer.socket.close)

    def load(self, step, like):
        """Layout and content of a published checkpoint."""
        files = {p.name.encode(): p.read_bytes() for p in pathlib.Path(self.steps[step]).iterdir()}
        checkpoint = ours.Checkpoint(files, True)
        layout = checkpoint.layout(like)
        return layout, checkpoint.content(layout)

    def refused(self, name, status, limit=1 << 30):
        with self.assertRaises(Refusal) as caught:
            self.peer.get(name, limit)
        self.assertEqual(caught.exception.status, status)
        self.assertTrue(caught.exception.text)

    def test_course(self):
        newest = self.peer.newest(NO_STEP, 0)
        self.assertEqual(newest, 3)
        self.assertEqual(self.peer.newest(newest, 10), NOTHING_NEW)
        # Walking back from the newest, then applying from the oldest on.
        chain = [self.peer.delta(newest)]
        while chain[0].base_step > 0:
            chain.insert(0, self.peer.delta(chain[0].base_step))
        self.assertEqual([(d.base_step, d.target_step) for d in chain], [(0, 1), (1, 2), (2, 3)])
        layout, content = self.load(0, chain[0])
        for delta in chain:
            self.assertEqual((delta.run, delta.attachment), ("by-hand", None))
            self.assertEqual(ours.digest(content), delta.base_digest)
            self.assertEqual(delta.base_fingerprint, layout.fingerprint)
            delta.apply(layout, content)
        self.assertEqual(content, self.load(3, chain[0])[1])
        self.peer.acknowledge(newest)
        self.refused("version/0/manifest", VERSION_GONE)

    def test_about(self):
        about = self.peer.get("about")
        self.assertEqual(len(about), 116)
        version, run, fingerprint = struct.unpack_from("<I64s16s", about)
        chunk_bytes, group_bytes, tensors, total = struct.unpack_from("<4Q", about, 84)
        layout, content = self.load(0, self.peer.delta(1))
        self.assertEqual((version, run), (0, b"by-hand".ljust(64, b"\0")))
        self.assertEqual(fingerprint, layout.fingerprint)
        self.assertEqual((chunk_bytes, group_bytes), (layout.chunk_bytes, layout.group_bytes))
        self.assertEqual((tensors, total), (len(content), sum(map(len, content))))

    def test_keyframe(self):
        layout, content = self.load(3, self.peer.delta(3))
        count = len(layout.groups)
        entries = self.peer.get(f"digests/0/{count}")
        self.assertEqual(len(entries), 24 * count)
        total = [0, 0]
        for group, chunks in enumerate(layout.groups):
            data = self.peer.get(f"group/{group}")
            self.assertEqual(int.from_bytes(data[:8], "little"), 3)
            self.assertEqual(data[8:], b"".join(layout.read(layout.chunks[c], content)
                                                for c in chunks))
            step, low, high = struct.unpack_from("<3Q", entries, 24 * group)
            self.assertEqual(step, 3)
            total = [total[0] + low & ours.MASK, total[1] + high & ours.MASK]
        self.assertEqual(tuple(total), ours.digest(content))

    def test_whois(self):
        like = self.peer.delta(1)
        for step in range(4):
            low, high = ours.digest(self.load(step, like)[1])
            answer = self.peer.get(f"whois/{low:x}/{high:x}")
            self.assertEqual(answer, step.to_bytes(8, "little"))
        self.refused("whois/1/2", NOT_FOUND)

    def test_refusals(self):
        self.refused("version/4/manifest", VERSION_GONE)
        self.refused("version/1/part/99", VERSION_GONE)
        self.refused("group/99999", NOT_FOUND)
        self.refused("digests/0/99999", NOT_FOUND)
        self.refused("digests/0/4097", NOT_FOUND)
        self.refused("nonsense", NOT_FOUND)
        self.refused("about", -304, 115)  # DATA_LIMIT
        self.assertEqual(len(self.peer.get("about", 116)), 116)


if __name__ == "__main__":
    tool.main()
