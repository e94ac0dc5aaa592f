/* encode() of one instruction set. The including file defines changed_words(old, new): a bit for each of the
 * eight words of 64 bytes that differs. Everything else is the same source for all levels, hence the same
 * bytes.
 *
 * Old and new are streamed once, a stretch of a few lines at a time: first the words that differ are listed
 * without a branch on the data, then the list is walked, while what was read is still in the first-level
 * cache and prefetches for the stretches ahead keep memory busy. */
#ifndef XCI_CPU_ENCODE_H
#define XCI_CPU_ENCODE_H

#include "backend/cpu/cpu_writer.h"

#define XCI_LINE 64u
/* A number of a word in its stretch is one byte: at most 32 lines. */
#ifndef XCI_STRETCH_LINES
#define XCI_STRETCH_LINES 32u
#endif
#ifndef XCI_AHEAD
#define XCI_AHEAD 4096u
#endif

/* The numbers of the bits set in 0 .. 255, lowest first, one a byte. */
#define XCI_BIT(m, b) (((m) >> (b) & 1) ? (uint64_t)(b) << (8 * __builtin_popcount((m) & ((1u << (b)) - 1))) : 0)
#define XCI_BITS(m)                                                                                     \
    (XCI_BIT(m, 0) | XCI_BIT(m, 1) | XCI_BIT(m, 2) | XCI_BIT(m, 3) | XCI_BIT(m, 4) | XCI_BIT(m, 5) |    \
     XCI_BIT(m, 6) | XCI_BIT(m, 7))
#define XCI_BITS_4(m) XCI_BITS(m), XCI_BITS((m) + 1u), XCI_BITS((m) + 2u), XCI_BITS((m) + 3u)
#define XCI_BITS_16(m) XCI_BITS_4(m), XCI_BITS_4((m) + 4u), XCI_BITS_4((m) + 8u), XCI_BITS_4((m) + 12u)
#define XCI_BITS_64(m) XCI_BITS_16(m), XCI_BITS_16((m) + 16u), XCI_BITS_16((m) + 32u), XCI_BITS_16((m) + 48u)
static const uint64_t bit_numbers[256] = {XCI_BITS_64(0u), XCI_BITS_64(64u), XCI_BITS_64(128u), XCI_BITS_64(192u)};

/* A hint: the address may lie beyond the chunk, where the next one usually is. */
XCI_CPU_INLINE void xci_prefetch(const uint8_t *at, size_t distance) {
    __builtin_prefetch((const void *)((uintptr_t)at + distance));
}

/* Lists the words that differ in `lines` whole lines, numbered from the first line's; returns how many. Up to
 * seven bytes behind the list are overwritten. */
XCI_CPU_INLINE uint32_t xci_list_words(const uint8_t *old_bytes, const uint8_t *new_bytes, uint32_t lines,
                                       uint8_t *list) {
    uint32_t listed = 0;
    for (uint32_t line = 0; line < lines; ++line) {
        xci_prefetch(old_bytes, XCI_AHEAD);
        xci_prefetch(new_bytes, XCI_AHEAD);
        const uint32_t changed = changed_words(old_bytes, new_bytes);
        xci_store64(list + listed, bit_numbers[changed] + line * 8 * XCI_LOWEST_BITS);
        listed += (uint32_t)__builtin_popcount(changed);
        old_bytes += XCI_LINE;
        new_bytes += XCI_LINE;
    }
    return listed;
}

typedef struct xci_encoder {
    xci_tally tally;
    xci_cursor cursor;
    xci_writer writer;
    bool fits; /* the block is still smaller than raw */
} xci_encoder;

/* Counts and writes the words that differ of a stretch that begins with word `first`. */
XCI_CPU_INLINE void xci_encode_lines(xci_encoder *encoder, uint32_t first, const uint8_t *old_bytes,
                                     const uint8_t *new_bytes, uint32_t lines) {
    uint8_t list[XCI_STRETCH_LINES * 8 + 8];
    uint64_t masks[XCI_STRETCH_LINES * 8];
    const uint32_t listed = xci_list_words(old_bytes, new_bytes, lines, list);
    for (uint32_t i = 0; i < listed; ++i) {
        const uint64_t old_word = xci_load64(old_bytes + list[i] * 8);
        masks[i] = old_word ^ xci_load64(new_bytes + list[i] * 8);
        xci_tally_word(&encoder->tally, &encoder->cursor, first + list[i], old_word, masks[i]);
    }
    for (uint32_t i = 0; i < listed && encoder->fits; ++i)
        encoder->fits = xci_write_word(&encoder->writer, first + list[i], masks[i]);
}

/* `codec` is a constant wherever this is inlined. */
XCI_CPU_INLINE void xci_encode_chunk(xci_encode_job *job, uint32_t codec) {
    xci_encoder encoder = {
        .tally = xci_tally_begin(job->element_bytes),
        .cursor = xci_cursor_begin(job->segments, job->segment_count),
        .fits = codec != XORCAST_CODEC_RAW,
    };
    xci_write_begin(&encoder.writer, job, codec);
    const uint32_t lines = job->bytes / XCI_LINE, rest = job->bytes % XCI_LINE;
    for (uint32_t line = 0; line < lines; line += XCI_STRETCH_LINES)
        xci_encode_lines(&encoder, line * 8, job->old_bytes + line * XCI_LINE, job->new_bytes + line * XCI_LINE,
                         lines - line < XCI_STRETCH_LINES ? lines - line : XCI_STRETCH_LINES);
    if (rest != 0) {
        uint8_t old_line[XCI_LINE] = {0}, new_line[XCI_LINE] = {0};
        memcpy(old_line, job->old_bytes + lines * XCI_LINE, rest);
        memcpy(new_line, job->new_bytes + lines * XCI_LINE, rest);
        xci_encode_lines(&encoder, lines * 8, old_line, new_line, 1);
    }
    const xci_tally *tally = &encoder.tally;
    job->bits_changed = tally->bits;
    job->bytes_changed = (uint32_t)tally->bytes;
    job->elements_changed = (uint32_t)tally->elements;
    job->change = (xorcast_digest){{tally->low, tally->high}};
    job->block_codec = codec;
    job->block_bytes = tally->bytes != 0 && encoder.fits ? xci_write_end(&encoder.writer) : 0;
    if (tally->bytes != 0 && job->block_bytes == 0) {
        job->block_codec = XORCAST_CODEC_RAW;
        job->block_bytes = job->bytes;
        xci_xor(job->block, job->old_bytes, job->new_bytes, job->bytes);
    }
}

static void encode(xci_encode_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        if (jobs[i].codec == XORCAST_CODEC_LZ4)
            xci_encode_chunk(&jobs[i], XORCAST_CODEC_LZ4);
        else if (jobs[i].codec == XORCAST_CODEC_SNAPPY)
            xci_encode_chunk(&jobs[i], XORCAST_CODEC_SNAPPY);
        else
            xci_encode_chunk(&jobs[i], XORCAST_CODEC_RAW);
    }
}

#endif
