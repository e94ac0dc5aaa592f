"""A second implementation of docs/format.md, written from that text alone: layouts, digests,
deltas, codecs and safetensors. It proves that the text is enough, and judges what we write.

In: bytes. Out: objects, or Refused with a reason. Uses xxhash and zstandard, nothing of ours. Slow,
and it holds everything in memory. Does not run the tool: the tests do.
"""

import json
import re
import struct
from collections import namedtuple

import xxhash
import zstandard

MASK = (1 << 64) - 1
RAW, LZ4, SNAPPY, GAP, AUTO = 1, 2, 3, 4, 5
SMALL = 4096
CHUNKS_MAX = 32768
PART_MAX = 192 << 20
HEADER_MAX = 100000000
FILES_MAX = 256 << 20
SIDE_MAX = 64 << 20
VERSION = 1
DELTA_HEAD, END_MAGIC = b"XORCAST\0" + struct.pack("<II", VERSION, 0), b"XORCEND\0"


class Refused(Exception):
    """The bytes break a rule of the format."""


def need(condition, what):
    if not condition:
        raise Refused(what)


class Reader:
    """A cursor over foreign bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, count):
        need(count <= len(self.data) - self.at, "the bytes end too early")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, count):
        return int.from_bytes(self.bytes(count), "little")

    def varint(self):
        value = 0
        for index in range(10):
            byte = self.number(1)
            need(index < 9 or byte <= 1, "a varint above 2^64")
            need(index == 0 or byte != 0, "a varint in a longer form")
            value |= (byte & 127) << (7 * index)
            if byte < 128:
                return value
        raise Refused("a varint of more than ten bytes")

    def digest(self):
        return self.number(8), self.number(8)

    def is_done(self):
        return self.at == len(self.data)


def hash128(data):
    return xxhash.xxh3_128_digest(data)


def xor(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


# ---- Layout -------------------------------------------------------------------------------------

Tensor = namedtuple("Tensor", "name dtype shape bytes")  # the name as bytes
Piece = namedtuple("Piece", "tensor offset bytes place")  # part of a tensor, its place in a chunk
Chunk = namedtuple("Chunk", "pieces bytes width")


def element_width(tensor):
    elements = 1
    for number in tensor.shape:
        elements *= number
    if elements == 0 or tensor.bytes % elements != 0:
        return 1
    width = tensor.bytes // elements
    return width if width in (2, 4, 8) else 1


class Layout:
    """Order, grid and fingerprint of tensors."""

    def __init__(self, tensors, chunk_bytes, group_bytes):
        self.tensors = sorted(tensors, key=lambda tensor: tensor.name)
        self.chunk_bytes, self.group_bytes = chunk_bytes, group_bytes
        self.chunks = self.whole_chunks()
        whole = len(self.chunks)
        self.chunks += self.packed_chunks()
        self.groups = self.form_groups(0, whole) + self.form_groups(whole, len(self.chunks))
        self.fingerprint = self.make_fingerprint()

    def whole_chunks(self):
        chunks = []
        for index, tensor in enumerate(self.tensors):
            if tensor.bytes < SMALL:
                continue
            for offset in range(0, tensor.bytes, self.chunk_bytes):
                size = min(self.chunk_bytes, tensor.bytes - offset)
                chunks.append(Chunk([Piece(index, offset, size, 0)], size, element_width(tensor)))
        return chunks

    def packed_chunks(self):
        chunks = []
        for width in (1, 2, 4, 8):
            pieces, fill = [], 0
            for index, tensor in enumerate(self.tensors):
                if not 0 < tensor.bytes < SMALL or element_width(tensor) != width:
                    continue
                padded = (tensor.bytes + 7) // 8 * 8
                if pieces and fill + padded > self.chunk_bytes:
                    chunks.append(Chunk(pieces, pieces[-1].place + pieces[-1].bytes, width))
                    pieces, fill = [], 0
                pieces.append(Piece(index, 0, tensor.bytes, fill))
                fill += padded
            if pieces:
                chunks.append(Chunk(pieces, pieces[-1].place + pieces[-1].bytes, width))
        return chunks

    def form_groups(self, first, end):
        groups, fill = [], self.group_bytes
        for index in range(first, end):
            if fill >= self.group_bytes:
                groups.append([])
                fill = 0
            groups[-1].append(index)
            fill += self.chunks[index].bytes
        return groups

    def make_fingerprint(self):
        text = [b"xorcast layout 0",
                struct.pack("<QQQ", self.chunk_bytes, self.group_bytes, len(self.tensors))]
        for tensor in self.tensors:
            for word in (tensor.name, tensor.dtype):
                text += [struct.pack("<Q", len(word)), word]
            text.append(struct.pack("<Q", len(tensor.shape)))
            text += [struct.pack("<Q", number) for number in tensor.shape]
            text.append(struct.pack("<Q", tensor.bytes))
        self.fingerprint_text = b"".join(text)
        return hash128(self.fingerprint_text)

    def read(self, chunk, content):
        """The chunk's bytes; `content` has one bytearray for each tensor."""
        data = bytearray(chunk.bytes)
        for tensor, offset, size, place in chunk.pieces:
            data[place:place + size] = content[tensor][offset:offset + size]
        return bytes(data)

    def write(self, chunk, content, data):
        for tensor, offset, size, place in chunk.pieces:
            content[tensor][offset:offset + size] = data[place:place + size]

    def touches_padding(self, chunk, mask):
        ends = [piece.place for piece in chunk.pieces[1:]] + [chunk.bytes]
        return any(any(mask[piece.place + piece.bytes:end])
                   for piece, end in zip(chunk.pieces, ends))


# ---- Digest -------------------------------------------------------------------------------------


def mix(tensor):
    z = (tensor + 1) * 0xD1342543DE82EF95 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def term(tensor, index, word):
    x = word ^ (mix(tensor) + index * 0x9E3779B97F4A7C15 & MASK)
    y = (x << 32 & MASK | x >> 32) ^ 0xD6E8FEB86659FD93
    return x * y & MASK, x * y >> 64


def digest(content):
    low = high = 0
    for tensor, data in enumerate(content):
        key = mix(tensor)
        padded = bytes(data) + bytes(-len(data) % 8)
        for (word,) in struct.iter_unpack("<Q", padded):
            x = word ^ key
            product = x * ((x << 32 & MASK | x >> 32) ^ 0xD6E8FEB86659FD93)
            low += product & MASK
            high += product >> 64
            key = key + 0x9E3779B97F4A7C15 & MASK
    return low & MASK, high & MASK


# ---- Codecs -------------------------------------------------------------------------------------


def copy_back(out, offset, length):
    """Repeats what was written before, which may overlap what is being written."""
    need(0 < offset <= len(out), "a copy from before the block")
    pattern = bytes(out[-offset:])
    out += (pattern * (length // offset + 1))[:length]


def lz4_decode(block, size):
    reader, out = Reader(block), bytearray()

    def length(nibble):
        total, byte = nibble, 255
        while nibble == 15 and byte == 255:
            byte = reader.number(1)
            total += byte
        return total

    while True:
        token = reader.number(1)
        out += reader.bytes(length(token >> 4))
        need(len(out) <= size, "too many literals")
        if reader.is_done():
            need(len(out) == size, "too few bytes")
            return bytes(out)
        offset, match = reader.number(2), length(token & 15) + 4
        need(size - len(out) >= 12 and match <= size - len(out) - 5, "a match too near to the end")
        copy_back(out, offset, match)


def snappy_decode(block, size):
    reader, out = Reader(block), bytearray()
    need(reader.varint() == size, "another size")
    while not reader.is_done():
        tag = reader.number(1)
        kind, upper = tag & 3, tag >> 2
        if kind == 0:
            out += reader.bytes((upper if upper < 60 else reader.number(upper - 59)) + 1)
        elif kind == 1:
            copy_back(out, (upper >> 3) << 8 | reader.number(1), (upper & 7) + 4)
        else:
            copy_back(out, reader.number(2 if kind == 2 else 4), upper + 1)
        need(len(out) <= size, "too many bytes")
    need(len(out) == size, "too few bytes")
    return bytes(out)


# ---- Gap ----

Shape = namedtuple("Shape", "bits dense knows_old class_of classes")
HEADS = (3, 7, 6, 5, 4)
KEYS = (8, 128, 256, 256, 256)
ELEMENTS_OF_A_SEGMENT = 4096


class Bits:
    """A stream: bits from the lowest up, filled up with ones."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        begin, end = self.at, self.at + count
        need(end <= 8 * len(self.data), "a stream that ends too early")
        self.at = end
        part = int.from_bytes(self.data[begin // 8:end // 8 + 1], "little")
        return part >> begin % 8 & (1 << count) - 1

    def is_done(self):
        left = 8 * len(self.data) - self.at
        return left == 0 or (left < 8 and self.data[-1] >> 8 - left == (1 << left) - 1)


class Prefix:
    """A prefix code: symbols by length and code."""

    def __init__(self, reader, symbol_count):
        kind = reader.number(1)
        need(kind <= 1, "the kind of a prefix code")
        if kind == 1:
            self.symbols = {(0, 0): reader.varint()}
            need(self.symbols[0, 0] < symbol_count, "the only symbol")
            return
        lengths, share, nibbles = [], 0, []

        def nibble():
            if not nibbles:
                byte = reader.number(1)
                nibbles.extend((byte & 15, byte >> 4))
            return nibbles.pop(0)

        while share < 4096:
            item = nibble()
            if item <= 12:
                run = [item]
            elif item == 13:
                run = [0] * (nibble() + 2)
            elif item == 14:
                run = [0] * (nibble() + 16 * nibble() + 18)
            else:
                need(lengths and lengths[-1], "a length that is repeated")
                run = [lengths[-1]] * (nibble() + 3)
            lengths += run
            share += sum(4096 >> length for length in run if length)
            need(len(lengths) <= symbol_count, "symbols of a prefix code")
        need(share == 4096 and not any(nibbles), "a prefix code that is not complete")
        self.symbols, code, before = {}, 0, 0
        for length, symbol in sorted((n, s) for s, n in enumerate(lengths) if n):
            code <<= length - before
            self.symbols[length, code] = symbol
            code, before = code + 1, length

    def take(self, bits):
        length, code = 0, 0
        while (length, code) not in self.symbols:
            length, code = length + 1, code << 1 | bits.take(1)
            need(length <= 12, "a code that does not exist")
        return self.symbols[length, code]


def take_value(bits, table):
    head, prefix = table
    symbol = prefix.take(bits)
    tail = max(0, (symbol >> head) - 1)
    return symbol - (tail << head) << tail | bits.take(tail)


class Window:
    """The parameter of gaps, from those before."""

    def __init__(self, prior):
        self.prior, self.ends = prior, [0]

    def parameter(self):
        i = len(self.ends) - 1
        j = max(0, i - 16)
        passed, count, k = self.prior + self.ends[i] - self.ends[j], 2 + i - j, 0
        while count << (k + 1) < passed:
            k += 1
        return k

    def take(self, bits):
        """The number of the next change."""
        k, ones = self.parameter(), 0
        while ones < 20 and bits.take(1):
            ones += 1
        gap = bits.take(21) if ones == 20 else ones << k | bits.take(k)
        need(ones < 20 or gap >> k >= 20, "a long form of a short gap")
        self.ends.append(self.ends[-1] + gap + 1)
        return self.ends[-1] - 1


class Parameters:
    """What the gap blocks of a record share: shape and chunk size of each."""

    def __init__(self, data, gap_count):
        reader = Reader(data)
        self.tables = [self.read_table(reader) for _ in range(self.count(reader, 32))]
        self.shapes = [self.read_shape(reader) for _ in range(self.count(reader, 8))]
        sizes = [self.count(reader, 1 << 20) for _ in range(self.count(reader, gap_count))]
        bits = Bits(reader.bytes(len(data) - reader.at))
        self.places = []
        for _ in range(gap_count):
            shape = bits.take((len(self.shapes) - 1).bit_length())
            size = bits.take((len(sizes) - 1).bit_length())
            need(shape < len(self.shapes) and size < len(sizes), "a shape or size of a chunk")
            self.places.append((self.shapes[shape], sizes[size]))
        need(bits.is_done(), "bytes behind the parameters")

    @staticmethod
    def count(reader, most):
        value = reader.varint()
        need(1 <= value <= most, "a number of the parameters")
        return value

    @staticmethod
    def read_table(reader):
        width, head = (lambda kind: (kind & 7, kind >> 3))(reader.number(1))
        need(width < 5 and head <= HEADS[width], "the kind of a table")
        return width, (head, Prefix(reader, ((4 << width) - head + 1) << head))

    def read_shape(self, reader):
        kind = reader.number(1)
        width, dense, knows_old = kind & 7, bool(kind & 8), bool(kind & 16)
        need(kind < 32 and width < 5, "the kind of a shape")
        class_of, classes = [], []
        if knows_old:
            for index in range(self.count(reader, 8)):
                class_of += [index] * self.count(reader, KEYS[width])
            need(len(class_of) == KEYS[width], "the keys of the classes")
        for _ in range(class_of[-1] + 1 if knows_old else 1):
            prior = None if dense else self.count(reader, 1 << 23)
            table = reader.number(1)
            need(table < len(self.tables) and self.tables[table][0] == width, "a table")
            classes.append((prior, self.tables[table][1]))
        return Shape(4 << width, dense, knows_old, class_of, classes)


def gap_streams(reader, count):
    for left in range(count, 0, -1):
        yield Bits(reader.bytes(reader.varint() if left > 1 else len(reader.data) - reader.at))


def gap_class(shape, element):
    if not shape.knows_old:
        return 0
    if shape.bits >= 16:
        return shape.class_of[element >> shape.bits - 9 & 255]
    return shape.class_of[element & len(shape.class_of) - 1]


def gap_step(shape, element, value):
    """The mask of a step, or the mask itself."""
    if not shape.knows_old:
        return value

    def order(x):
        return x ^ (1 << shape.bits - 1) - 1 if x >> shape.bits - 1 else x

    step = -(value + 1 >> 1) if value & 1 else value >> 1
    return element ^ order((order(element) + step) % (1 << shape.bits))


def cut_elements(data, bits):
    if bits == 4:
        return [nibble for byte in data for nibble in (byte & 15, byte >> 4)]
    return [int.from_bytes(data[i:i + bits // 8], "little") for i in range(0, len(data), bits // 8)]


def gap_decode(block, shape, size, old):
    """The mask of a chunk; `old` is the chunk in the base."""
    reader, bits = Reader(block), shape.bits
    count = -(-8 * size // bits)
    elements = cut_elements(old, bits)
    classes = [gap_class(shape, element) for element in elements]
    masks = [0] * count
    if shape.dense:
        segments = range(0, count, ELEMENTS_OF_A_SEGMENT)
        for first, stream in zip(segments, gap_streams(reader, len(segments))):
            for i in range(first, min(count, first + ELEMENTS_OF_A_SEGMENT)):
                value = take_value(stream, shape.classes[classes[i]][1])
                masks[i] = gap_step(shape, elements[i], value)
            need(stream.is_done(), "bits behind a dense stream")
    else:
        streams = gap_streams(reader, len(shape.classes))
        for number, ((prior, table), stream) in enumerate(zip(shape.classes, streams)):
            members = [i for i in range(count) if classes[i] == number]
            window = Window(prior)
            while not stream.is_done():
                at, value = window.take(stream), take_value(stream, table)
                need(at < len(members) and value != 0, "a change that is none")
                masks[members[at]] = gap_step(shape, elements[members[at]], value)
    if bits == 4:
        masks = [low | high << 4 for low, high in zip(masks[::2], masks[1::2])]
    mask = b"".join(value.to_bytes(max(1, bits // 8), "little") for value in masks)
    need(not any(mask[size:]), "a change behind the end")
    return mask[:size]


def decode(codec, block, size):
    if codec == RAW:
        need(len(block) == size, "a raw block of another size")
        return block
    return (lz4_decode if codec == LZ4 else snappy_decode)(block, size)


def zero_runs(mask):
    return [match.span() for match in re.finditer(rb"\0{5,}", mask)]


def lz4_sequence(literals, match):
    def more(value):
        return b"" if value < 15 else b"\xff" * ((value - 15) // 255) + bytes([(value - 15) % 255])

    code = match - 4 if match else 0
    token = bytes([min(len(literals), 15) << 4 | min(code, 15)])
    tail = b"\1\0" + more(code) if match else b""
    return token + more(len(literals)) + literals + tail


def lz4_encode(mask):
    out, anchor, size = b"", 0, len(mask)
    for begin, end in zero_runs(mask):
        stop = min(end, size - 5)
        if begin + 1 <= size - 12 and stop - (begin + 1) >= 4:
            out += lz4_sequence(mask[anchor:begin + 1], stop - (begin + 1))
            anchor = stop
    return out + lz4_sequence(mask[anchor:], 0)


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def snappy_literal(literals):
    code = len(literals) - 1
    if code < 60:
        return bytes([code << 2]) + literals
    extra = (code.bit_length() + 7) // 8
    return bytes([59 + extra << 2]) + code.to_bytes(extra, "little") + literals


def snappy_copies(length):
    out = b"\xfe\1\0" * (length // 64)
    rest = length % 64
    if 4 <= rest <= 11:
        return out + bytes([rest - 4 << 2 | 1, 1])
    return out + (bytes([rest - 1 << 2 | 2, 1, 0]) if rest else b"")


def snappy_encode(mask):
    out, anchor = varint(len(mask)), 0
    for begin, end in zero_runs(mask):
        out += snappy_literal(mask[anchor:begin + 1]) + snappy_copies(end - begin - 1)
        anchor = end
    return out + (snappy_literal(mask[anchor:]) if anchor < len(mask) else b"")


def encode(codec, mask):
    """What a canonical writer makes of a mask: codec and block."""
    if codec != RAW:
        block = (lz4_encode if codec == LZ4 else snappy_encode)(mask)
        if len(block) < len(mask):
            return codec, block
    return RAW, mask


def zstd_frame(data, size):
    """One frame that declares `size` bytes and ends where the data ends."""
    need(zstandard.frame_content_size(data) == size, "a frame that declares another size")
    decoder = zstandard.ZstdDecompressor().decompressobj()
    try:
        out = decoder.decompress(data)
    except zstandard.ZstdError as error:
        raise Refused(f"zstd: {error}") from error
    need(len(out) == size and not decoder.unused_data, "a frame of another size")
    return out


# ---- Delta --------------------------------------------------------------------------------------

Block = namedtuple("Block", "chunk codec width data place")
Record = namedtuple("Record", "group second_pass blocks")


def read_record(reader, delta):
    begin = reader.at
    group, flags = reader.varint(), reader.number(1)
    need(group < delta.layout_groups and flags <= 3, "group or flags of a record")
    params = reader.varint() if flags & 2 else 0
    need(params > 0 or not flags & 2, "parameters of no bytes")
    runs, chunks = reader.varint(), []
    need(1 <= runs <= CHUNKS_MAX, "the number of chunk runs")
    at = 0
    for run in range(runs):
        skip, take = reader.varint(), reader.varint()
        need(take > 0 and (run == 0 or skip > 0), "an empty chunk run")
        need(at + skip + take <= CHUNKS_MAX, "a chunk run")
        chunks += range(at + skip, at + skip + take)
        at += skip + take
    descriptors = []
    while len(descriptors) < len(chunks):
        descriptor, count = reader.number(1), reader.varint()
        need(1 <= count <= len(chunks) - len(descriptors), "a codec run")
        need(descriptor >> 4 <= 3 and descriptor & 15 in (RAW, LZ4, SNAPPY, GAP), "a descriptor")
        descriptors += [descriptor] * count
    sizes = [reader.varint() for _ in chunks]
    gaps = [descriptor & 15 == GAP for descriptor in descriptors]
    need(all(size <= delta.chunk_bytes and (size or gap) for size, gap in zip(sizes, gaps)),
         "the size of a block")
    need(any(gaps) == bool(params), "parameters and gap blocks")
    raw_bytes = stored = sum(sizes) + params
    need(raw_bytes <= delta.group_bytes + delta.chunk_bytes, "the size of a group")
    if flags & 1:
        stored = reader.varint()
        need(1 <= stored < raw_bytes, "the stored size of a group")
    seed = xxhash.xxh3_64_intdigest(reader.data[begin:reader.at])
    checksum, payload = reader.number(4), reader.bytes(stored)
    need(xxhash.xxh3_64_intdigest(payload, seed) & 0xFFFFFFFF == checksum, "a checksum")
    delta.payload_seen += stored
    delta.encoded_seen += raw_bytes
    blocks, data = [], Reader(zstd_frame(payload, raw_bytes) if flags & 1 else payload)
    places = iter(Parameters(data.data[raw_bytes - params:], sum(gaps)).places if params else ())
    for chunk, descriptor, size, gap in zip(chunks, descriptors, sizes, gaps):
        blocks.append(Block(chunk, descriptor & 15, 1 << (descriptor >> 4), data.bytes(size),
                            next(places) if gap else None))
    return Record(group, bool(flags & 1), blocks)


class Delta:
    """Everything that the bytes of a delta say, checked as far as that needs no weights."""

    def __init__(self, data):
        need(len(data) >= 48, "too few bytes for a delta")
        need(data[:16] == DELTA_HEAD, "the head")
        foot = Reader(data[-32:])
        size, want = foot.number(8), foot.bytes(16)
        need(foot.bytes(8) == END_MAGIC, "the foot")
        need(size <= min(1 << 30, len(data) - 48), "the size of the manifest")
        manifest = data[len(data) - 32 - size:len(data) - 32]
        need(hash128(manifest) == want, "the hash of the manifest")
        self.read_manifest(Reader(manifest))
        need(16 + sum(part[0] for part in self.parts) + size + 32 == len(data), "the sizes")
        self.read_parts(Reader(data[16:len(data) - 32 - size]))

    def read_manifest(self, reader):
        need(reader.number(4) == VERSION, "the version")
        flags = reader.number(4)
        need(flags <= 31, "flags of the manifest")
        self.needs_old = bool(flags & 8)
        length = reader.number(1)
        need(length <= 63, "the name of the run")
        self.run = reader.bytes(length).decode()
        base_step, target_step = reader.number(8), reader.number(8)
        self.base_step = base_step if flags & 1 else None
        self.target_step = target_step if flags & 2 else None
        self.base_digest, self.target_digest = reader.digest(), reader.digest()
        self.base_fingerprint, self.target_fingerprint = reader.bytes(16), reader.bytes(16)
        chunk_log2, group_log2 = reader.number(1), reader.number(1)
        need(14 <= chunk_log2 <= 20 and 20 <= group_log2 <= 26, "chunk or group size")
        self.chunk_bytes, self.group_bytes = 1 << chunk_log2, 1 << group_log2
        self.asked = reader.number(1), reader.number(1), reader.number(4)
        if self.asked[0] == AUTO:
            self.asked += reader.number(1), reader.number(8)
        self.counts = [reader.varint() for _ in range(6)]
        self.payload_bytes, self.encoded_bytes = reader.varint(), reader.varint()
        self.layout_groups, self.layout_chunks = reader.varint(), reader.varint()
        self.group_count, part_count = reader.varint(), reader.varint()
        need(part_count <= self.group_count <= self.layout_groups <= 1 << 32, "a count")
        self.parts = [(reader.varint(), reader.varint(), reader.bytes(16))
                      for _ in range(part_count)]
        need(all(1 <= part[0] <= PART_MAX and part[1] >= 1 for part in self.parts), "a part")
        need(sum(part[1] for part in self.parts) == self.group_count, "the groups of the parts")
        self.attachment = reader.bytes(reader.varint()) if flags & 4 else None
        need(reader.is_done(), "bytes behind the manifest")

    def read_parts(self, reader):
        self.records, self.payload_seen, self.encoded_seen, last = [], 0, 0, -1
        for size, groups, want in self.parts:
            part = Reader(reader.bytes(size))
            need(hash128(part.data) == want, "the hash of a part")
            before = len(self.records)
            while not part.is_done():
                record = read_record(part, self)
                need(record.group > last, "the order of groups")
                last = record.group
                self.records.append(record)
            need(len(self.records) - before == groups, "the number of groups in a part")

    def mask_of(self, block, chunk, old):
        if block.codec != GAP:
            return decode(block.codec, block.data, chunk.bytes)
        shape, size = block.place
        need(size == chunk.bytes, "the size of a chunk")
        need(self.needs_old or not shape.knows_old, "a block that needs the old weights")
        return gap_decode(block.data, shape, size, old)

    def apply(self, layout, content):
        """Changes the content of a target layout in place; the masks, for whoever wants them."""
        need(layout.fingerprint == self.target_fingerprint, "the target's fingerprint")
        need(len(layout.groups) == self.layout_groups, "the number of groups")
        need(len(layout.chunks) == self.layout_chunks, "the number of chunks")
        masks = []
        for record in self.records:
            group = layout.groups[record.group]
            for block in record.blocks:
                need(block.chunk < len(group), "a chunk that the group has not")
                chunk = layout.chunks[group[block.chunk]]
                need(block.width == chunk.width, "an element width")
                mask = self.mask_of(block, chunk, layout.read(chunk, content))
                need(not layout.touches_padding(chunk, mask), "a change of padding")
                layout.write(chunk, content, xor(layout.read(chunk, content), mask))
                masks.append((mask, chunk, block))
        need(digest(content) == self.target_digest, "the target's digest")
        return masks


# ---- Files --------------------------------------------------------------------------------------

Files = namedtuple("Files", "directory shards sides removed whole")


def read_names(reader, count, directory, item):
    """`count` items by name; `item` reads what follows each name."""
    found, last = {}, None
    for _ in range(count):
        name = reader.bytes(reader.varint()) if directory else b""
        need(not directory or 1 <= len(name) <= 255, "a name")
        need(last is None or name > last, "names out of order")
        last = name
        found[name] = item()
    return found


def read_files(attachment):
    reader = Reader(attachment)
    size, packed = reader.varint(), reader.number(1)
    need(1 <= size <= FILES_MAX and packed <= 1, "the attachment")
    data = reader.bytes(len(attachment) - reader.at)
    need(packed or len(data) == size, "the attachment's size")
    reader = Reader(zstd_frame(data, size) if packed else data)
    kind = reader.number(1)
    need(kind <= 1, "the kind of checkpoint")

    def shard():
        how = reader.number(1)
        need(how <= 1, "how a header comes")
        return how, reader.bytes(16 if how == 0 else min(reader.varint(), HEADER_MAX + 1))

    def side():
        how, count = reader.number(1), reader.varint()
        need(how <= 1 and count <= SIDE_MAX, "how a side file comes")
        return how, count, reader.bytes(16 if how == 0 else count)

    shards = read_names(reader, reader.varint(), kind == 1, shard)
    sides = read_names(reader, reader.varint(), True, side)
    removed = read_names(reader, reader.varint(), True, lambda: None)
    files = Files(kind == 1, shards, sides, set(removed), reader.varint())
    need(reader.is_done(), "bytes behind the list of files")
    need(kind == 1 or (len(shards) == 1 and not sides and not removed), "one file or several")
    need(shards and not files.removed & set(sides), "the list of files")
    return files


Place = namedtuple("Place", "tensor shard begin")


def parse_header(header, shard):
    """The tensors of a safetensors header, by name."""
    found = {}
    for name, entry in json.loads(header).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensor = Tensor(name.encode(), entry["dtype"].encode(), tuple(entry["shape"]), end - begin)
        found[tensor.name] = Place(tensor, shard, begin)
    return found


class Checkpoint:
    """Files in memory: `files` by name, the only one of a single file by the empty name."""

    def __init__(self, files, directory):
        self.files, self.directory = files, directory
        self.headers, self.places = {}, {}
        for name, data in files.items():
            if directory and not name.endswith(b".safetensors"):
                continue
            size = int.from_bytes(data[:8], "little")
            self.headers[name] = bytes(data[8:8 + size])
            self.places.update(parse_header(self.headers[name], name))

    def layout(self, delta):
        tensors = [place.tensor for place in self.places.values()]
        return Layout(tensors, delta.chunk_bytes, delta.group_bytes)

    def tensor(self, name):
        place = self.places[name]
        begin = 8 + len(self.headers[place.shard]) + place.begin
        return bytearray(self.files[place.shard][begin:begin + place.tensor.bytes])

    def content(self, layout):
        return [self.tensor(tensor.name) for tensor in layout.tensors]


def target_headers(files, base):
    headers = {}
    for name, (how, data) in files.shards.items():
        if how == 0:
            need(hash128(base.headers.get(name, b"")) == data, "the header of a base's shard")
            data = base.headers[name]
        headers[name] = data
    return headers


def target_sides(files, base):
    sides = {}
    for name, (how, size, data) in files.sides.items():
        if how == 0:
            kept = base.files.get(name, b"")
            need(len(kept) == size and hash128(kept) == data, "a base's side file")
            data = kept
        sides[name] = data
    return sides


def own_files(base):
    """What a delta without FILES leaves as it is."""
    return Files(base.directory, {name: (1, header) for name, header in base.headers.items()},
                 {name: (1, len(data), data) for name, data in base.files.items()
                  if name not in base.headers}, set(), 0)


def apply_to_checkpoint(delta, base):
    """The files of the target, by name; the target's layout; the masks."""
    files = own_files(base) if delta.attachment is None else read_files(delta.attachment)
    base_layout = base.layout(delta)
    need(base_layout.fingerprint == delta.base_fingerprint, "the base's fingerprint")
    need(digest(base.content(base_layout)) == delta.base_digest, "the base's digest")
    headers, places = target_headers(files, base), {}
    for name, header in headers.items():
        places.update(parse_header(header, name))
    layout = Layout([place.tensor for place in places.values()], delta.chunk_bytes,
                    delta.group_bytes)
    content, whole = [], 0
    for tensor in layout.tensors:
        same = tensor.name in base.places and base.places[tensor.name].tensor == tensor
        content.append(base.tensor(tensor.name) if same else bytearray(tensor.bytes))
        whole += not same
    need(whole == files.whole, "the number of tensors that start from zeros")
    masks = delta.apply(layout, content)
    target = dict(target_sides(files, base))
    for name, header in headers.items():
        own = sorted((places[tensor.name].begin, data)
                     for tensor, data in zip(layout.tensors, content)
                     if places[tensor.name].shard == name)
        target[name] = struct.pack("<Q", len(header)) + header + b"".join(d for _, d in own)
    return target, layout, masks
