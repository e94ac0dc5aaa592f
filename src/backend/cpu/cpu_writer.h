/* Turns the changed words of a chunk into an LZ4 or Snappy block of the canonical zero-run
 * profile, without ever holding the mask: literals are XORed out of old and new as they are
 * written. Owns the room in the block: nothing is written beyond `bytes` + XCI_BLOCK_SLACK. Does
 * not own finding changed words, nor the raw block that replaces one that has outgrown it.
 *
 * For the gap codec it lists the changed words instead (codec/words_block.h).
 *
 * LZ4 and Snappy obey one rule: a zero run of five bytes or more becomes one literal zero and
 * offset-1 copies of the rest. In LZ4 copies keep off the end of the block as codec/lz4_block.h
 * says. In Snappy there are as many copies of 64 bytes as fit and one for what is left, in the
 * two-byte form if that is 4 to 11 bytes. */
#ifndef XCI_CPU_WRITER_H
#define XCI_CPU_WRITER_H

#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"
#include "codec/snappy_block.h"
#include "codec/words_block.h"

#define XCI_SHORTEST_RUN (1 + XCI_LZ4_MIN_MATCH)

typedef struct xci_writer {
    const uint8_t *old_bytes, *new_bytes;
    uint32_t bytes, codec;
    uint32_t anchor;    /* literals not yet written begin here */
    uint32_t zero;      /* the zero run at the end of what was seen begins here */
    uint32_t zero_end;  /* a run that begins here or later stays literal */
    uint32_t copy_end;  /* no copy reaches beyond */
    uint32_t short_end; /* before it, sixteen bytes can be read and no rule of the end holds */
    uint8_t *block, *at;
    const uint8_t *limit; /* a block that reaches it is not smaller than raw */
} xci_writer;

/* out = old XOR new. */
XCI_CPU_INLINE void xci_xor(uint8_t *restrict out, const uint8_t *old_bytes,
                            const uint8_t *new_bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
        out[i] = old_bytes[i] ^ new_bytes[i];
}

typedef uint64_t xci_vector16 __attribute__((vector_size(16)));

/* Sixteen mask bytes, whatever is needed of them. */
XCI_CPU_INLINE void xci_xor16(uint8_t *out, const uint8_t *old_bytes, const uint8_t *new_bytes) {
    xci_vector16 old_part, new_part;
    memcpy(&old_part, old_bytes, sizeof old_part);
    memcpy(&new_part, new_bytes, sizeof new_part);
    old_part ^= new_part;
    memcpy(out, &old_part, sizeof old_part);
}

XCI_CPU_INLINE xci_writer xci_write_begin(const xci_encode_job *job, uint32_t codec) {
    const uint32_t bytes = job->bytes;
    xci_writer writer = {
        .old_bytes = job->old_bytes,
        .new_bytes = job->new_bytes,
        .bytes = bytes,
        .codec = codec,
        .zero_end = bytes,
        .copy_end = bytes,
        .short_end = bytes > 16 ? bytes - 16 : 0,
        .block = job->block,
        .at = job->block,
        .limit = job->block + bytes,
    };
    if (codec == XORCAST_CODEC_LZ4) {
        writer.zero_end = bytes > XCI_LZ4_LAST_MATCH_START ? bytes - XCI_LZ4_LAST_MATCH_START : 0;
        writer.copy_end = bytes - (uint32_t)xci_min(bytes, XCI_LZ4_LAST_LITERALS);
    } else if (codec == XORCAST_CODEC_SNAPPY) {
        writer.at += xci_varint_put(writer.at, bytes);
    }
    return writer;
}

XCI_CPU_INLINE void xci_write_literals(xci_writer *writer, uint32_t count) {
    xci_xor(writer->at, writer->old_bytes + writer->anchor, writer->new_bytes + writer->anchor,
            count);
    writer->at += count;
}

/* The bytes of an LZ4 length of which the token's nibble holds 15 already. */
XCI_CPU_INLINE void xci_write_lz4_length(xci_writer *writer, uint32_t above) {
    const uint32_t full = above / 255;
    memset(writer->at, 255, full);
    writer->at[full] = (uint8_t)(above - full * 255);
    writer->at += full + 1;
}

/* Few literals and a match that is not very long, without a branch on either: sixteen literals and
 * sixteen length bytes are written, of which the needed ones stay. */
XCI_CPU_INLINE void xci_write_lz4_short(xci_writer *writer, uint32_t literals, uint32_t code) {
    const uint32_t nibble = code < XCI_LZ4_NIBBLE ? code : XCI_LZ4_NIBBLE;
    const uint32_t above = code - nibble, full = above / 255;
    const uint32_t length_bytes = code < XCI_LZ4_NIBBLE ? 0 : full + 1;
    uint8_t *at = writer->at;
    *at = (uint8_t)(literals << 4 | nibble);
    xci_xor16(at + 1, writer->old_bytes + writer->anchor, writer->new_bytes + writer->anchor);
    at += 1 + literals;
    xci_store16(at, 1);
    memset(at + 2, 255, 16);
    at[2 + full] = (uint8_t)(above - full * 255);
    writer->at = at + 2 + length_bytes;
}

/* The codes that sixteen length bytes hold. */
#define XCI_SHORT_CODE (XCI_LZ4_NIBBLE + 16u * 255u)

/* Literals from the anchor and a match; 0: none, the block ends. False: the block is not smaller
 * than raw. `at` may end up to four bytes beyond `limit`, and nothing is written beyond `at`. */
XCI_CPU_INLINE bool xci_write_lz4(xci_writer *writer, uint32_t literals, uint32_t match) {
    const uint32_t code = match != 0 ? match - XCI_LZ4_MIN_MATCH : 0;
    const int64_t size = 1 + (int64_t)literals + literals / 255 + 3 + code / 255 + 1;
    if (size > writer->limit + 4 - writer->at)
        return false;
    *writer->at++ =
        (uint8_t)(xci_min(literals, XCI_LZ4_NIBBLE) << 4 | xci_min(code, XCI_LZ4_NIBBLE));
    if (literals >= XCI_LZ4_NIBBLE)
        xci_write_lz4_length(writer, literals - XCI_LZ4_NIBBLE);
    xci_write_literals(writer, literals);
    if (match == 0)
        return true;
    xci_store16(writer->at, 1);
    writer->at += 2;
    if (code >= XCI_LZ4_NIBBLE)
        xci_write_lz4_length(writer, code - XCI_LZ4_NIBBLE);
    return true;
}

/* As xci_write_lz4, in Snappy. */
XCI_CPU_INLINE bool xci_write_snappy(xci_writer *writer, uint32_t literals, uint32_t copy) {
    const int64_t size = 4 + (int64_t)literals + 3 * ((int64_t)copy / XCI_SNAPPY_LONGEST_COPY + 1);
    if (size > writer->limit + 8 - writer->at)
        return false;
    if (literals > 0) {
        writer->at = xci_snappy_put_literal(writer->at, literals);
        xci_write_literals(writer, literals);
    }
    for (; copy >= XCI_SNAPPY_LONGEST_COPY; copy -= XCI_SNAPPY_LONGEST_COPY)
        writer->at = xci_snappy_put_zeros(writer->at, XCI_SNAPPY_LONGEST_COPY);
    if (copy > 0)
        writer->at = xci_snappy_put_zeros(writer->at, copy);
    return true;
}

/* Writes the zero run that ends at `end` (a changed byte, or the end of the chunk), which is one
 * that becomes copies, and the literals before it. */
static __attribute__((noinline)) bool xci_write_run(xci_writer *writer, uint32_t end) {
    const uint32_t stop = end < writer->copy_end ? end : writer->copy_end;
    const uint32_t literals = writer->zero + 1 - writer->anchor, match = stop - writer->zero - 1;
    const bool fits = writer->codec == XORCAST_CODEC_LZ4
                          ? xci_write_lz4(writer, literals, match)
                          : xci_write_snappy(writer, literals, match);
    writer->anchor = stop;
    return fits;
}

/* The same for what masks mostly consist of: in LZ4, few literals, a match that is not very
 * long, and all of it far from the end of the chunk. False: it is another; nothing was done. At
 * most 50 bytes beyond `limit` are written. */
XCI_CPU_INLINE bool xci_write_short(xci_writer *writer, uint32_t end) {
    const uint32_t literals = writer->zero + 1 - writer->anchor;
    const uint32_t code = end - writer->zero - 1 - XCI_LZ4_MIN_MATCH;
    if (writer->codec != XORCAST_CODEC_LZ4 || literals >= XCI_LZ4_NIBBLE ||
        code >= XCI_SHORT_CODE || end >= writer->short_end || writer->at >= writer->limit)
        return false;
    xci_write_lz4_short(writer, literals, code);
    writer->anchor = end;
    return true;
}

/* The zero run that ends at `end`, if it is one that becomes copies. */
XCI_CPU_INLINE bool xci_write_to(xci_writer *writer, uint32_t end) {
    if (__builtin_expect(end - writer->zero < XCI_SHORTEST_RUN, 0) ||
        xci_write_short(writer, end) || writer->zero >= writer->zero_end)
        return true;
    /* A copy is handed out, so that the writer of the caller's loop stays in registers. */
    xci_writer copy = *writer;
    const bool fits = xci_write_run(&copy, end);
    *writer = copy;
    return fits;
}

/* Bytes `first` to `end` of the word at `base`, among which there is no run of five zeros. */
XCI_CPU_INLINE bool xci_write_part(xci_writer *writer, uint32_t base, uint32_t first,
                                   uint32_t end) {
    const bool fits = xci_write_to(writer, base + first);
    writer->zero = base + end;
    return fits;
}

/* The mask of a word, which is not zero. Words come in rising order. */
XCI_CPU_INLINE bool xci_write_word(xci_writer *writer, uint32_t word, uint64_t mask) {
    if (writer->codec == XCI_CODEC_WORDS) {
        writer->at = xci_words_put(writer->at, word, mask);
        return writer->at < writer->limit;
    }
    const uint32_t first = (uint32_t)__builtin_ctzll(mask) / 8;
    const uint32_t end = 8 - (uint32_t)__builtin_clzll(mask) / 8;
    const uint64_t middle = mask & UINT64_C(0xffffffff0000);
    /* A run of five lies round the middle four bytes if anywhere. */
    if (__builtin_expect(end - first >= 7, 0) && middle == 0) {
        const uint32_t low_end = (mask & 0xff00) != 0 ? 2 : 1;
        const uint32_t high_first = (mask >> 48 & 0xff) != 0 ? 6 : 7;
        return xci_write_part(writer, word * 8, first, low_end) &&
               xci_write_part(writer, word * 8, high_first, end);
    }
    return xci_write_part(writer, word * 8, first, end);
}

/* Size of the finished block, or 0 if it is not smaller than raw. */
XCI_CPU_INLINE uint32_t xci_write_end(xci_writer *writer) {
    if (writer->codec == XCI_CODEC_WORDS)
        return (uint32_t)(writer->at - writer->block);
    if (!xci_write_to(writer, writer->bytes))
        return 0;
    const uint32_t rest = writer->bytes - writer->anchor;
    const bool fits = writer->codec == XORCAST_CODEC_LZ4 ? xci_write_lz4(writer, rest, 0)
                                                         : xci_write_snappy(writer, rest, 0);
    return fits && writer->at < writer->limit ? (uint32_t)(writer->at - writer->block) : 0;
}

#endif
