/* encode() of one instruction set. The including file defines list_line(old, new, first, list): it writes the
 * numbers of the words that differ in 64 bytes, counted from `first`, to the list and returns how many;
 * what it leaves in the rest of eight places does not matter. Everything else is the same source for
 * all levels, hence the same bytes.
 *
 * Old and new are streamed once. Words that differ are listed without a branch on the data, and worked on when a
 * batch is full: loops of a fixed length, which the processor predicts. Meanwhile prefetches keep memory
 * busy. */
#ifndef XCI_CPU_ENCODE_H
#define XCI_CPU_ENCODE_H

#include "backend/cpu/cpu_writer.h"

#define XCI_LINE 64u
#define XCI_LINE_WORDS 8u
#ifndef XCI_ENCODE_BATCH
#define XCI_ENCODE_BATCH 32u
#endif
#ifndef XCI_AHEAD
#define XCI_AHEAD 2048u
#endif

typedef struct xci_encoder {
    const uint8_t *old_bytes, *new_bytes;
    uint32_t bytes;
    xci_tally tally;
    xci_cursor cursor;
    xci_writer writer;
    bool fits; /* the block is still smaller than raw */
} xci_encoder;

/* A hint: the address may lie beyond the chunk, where the next one usually is. */
XCI_CPU_INLINE void xci_prefetch(const uint8_t *at, size_t distance) {
#ifndef HINT
#define HINT 3
#endif
    __builtin_prefetch((const void *)((uintptr_t)at + distance), 0, HINT);
}

/* Counts listed words and gives their masks. While that goes on, the lines from `ahead` on are fetched. */
static __attribute__((noinline)) void xci_tally_words(xci_encoder *encoder, const uint32_t *list, uint32_t count,
                                                      size_t ahead, uint64_t *masks) {
    const uint8_t *const old_bytes = encoder->old_bytes, *const new_bytes = encoder->new_bytes;
    const uint32_t bytes = encoder->bytes;
    xci_tally tally = encoder->tally;
    for (uint32_t i = 0; i < count; ++i) {
        xci_prefetch(old_bytes, ahead + i * XCI_LINE);
        xci_prefetch(new_bytes, ahead + i * XCI_LINE);
        const uint64_t old_word = xci_load_word(old_bytes, list[i], bytes);
        masks[i] = old_word ^ xci_load_word(new_bytes, list[i], bytes);
        xci_tally_word(&tally, &encoder->cursor, list[i], old_word, masks[i]);
    }
    encoder->tally = tally;
}

XCI_CPU_INLINE void xci_write_words(xci_encoder *encoder, const uint32_t *list, uint32_t count,
                                    const uint64_t *masks, uint32_t codec) {
    xci_writer writer = encoder->writer;
    writer.codec = codec;
    bool fits = encoder->fits;
    for (uint32_t i = 0; i < count && fits; ++i)
        fits = xci_write_word(&writer, list[i], masks[i]);
    encoder->writer = writer;
    encoder->fits = fits;
}

static __attribute__((noinline)) void xci_encode_words(xci_encoder *encoder, const uint32_t *list, uint32_t count,
                                                       size_t ahead) {
    uint64_t masks[XCI_ENCODE_BATCH];
    xci_tally_words(encoder, list, count, ahead, masks);
    if (!encoder->fits)
        return;
    if (encoder->writer.codec == XORCAST_CODEC_LZ4)
        xci_write_words(encoder, list, count, masks, XORCAST_CODEC_LZ4);
    else
        xci_write_words(encoder, list, count, masks, XORCAST_CODEC_SNAPPY);
}

/* Lists the last line of a chunk, which is not whole. */
XCI_CPU_INLINE uint32_t xci_list_rest(const xci_encode_job *job, uint32_t offset, uint32_t *list) {
    uint8_t old_line[XCI_LINE] = {0}, new_line[XCI_LINE] = {0};
    memcpy(old_line, job->old_bytes + offset, job->bytes - offset);
    memcpy(new_line, job->new_bytes + offset, job->bytes - offset);
    return list_line(old_line, new_line, offset / 8, list);
}

/* Streams the chunk. */
XCI_CPU_INLINE void xci_encode_stream(xci_encoder *encoder, const xci_encode_job *job) {
    uint32_t list[XCI_ENCODE_BATCH + 2 * XCI_LINE_WORDS];
    uint32_t listed = 0, offset = 0;
    for (; job->bytes - offset >= XCI_LINE; offset += XCI_LINE) {
        xci_prefetch(job->old_bytes, offset + XCI_AHEAD);
        xci_prefetch(job->new_bytes, offset + XCI_AHEAD);
        listed += list_line(job->old_bytes + offset, job->new_bytes + offset, offset / 8, list + listed);
        if (listed >= XCI_ENCODE_BATCH) {
            xci_encode_words(encoder, list, XCI_ENCODE_BATCH, offset + XCI_AHEAD);
            memcpy(list, list + XCI_ENCODE_BATCH, XCI_LINE_WORDS * sizeof *list);
            listed -= XCI_ENCODE_BATCH;
        }
    }
    if (offset < job->bytes)
        listed += xci_list_rest(job, offset, list + listed);
    const uint32_t batch = listed < XCI_ENCODE_BATCH ? listed : XCI_ENCODE_BATCH;
    xci_encode_words(encoder, list, batch, offset + XCI_AHEAD);
    xci_encode_words(encoder, list + batch, listed - batch, offset + XCI_AHEAD);
}

static void xci_encode_chunk(xci_encode_job *job) {
    const uint32_t codec = job->codec;
    xci_encoder encoder = {
        .old_bytes = job->old_bytes,
        .new_bytes = job->new_bytes,
        .bytes = job->bytes,
        .tally = xci_tally_begin(job->element_bytes),
        .cursor = xci_cursor_begin(job->segments, job->segment_count),
        .fits = codec != XORCAST_CODEC_RAW,
    };
    xci_write_begin(&encoder.writer, job, codec);
    xci_encode_stream(&encoder, job);
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
    for (uint64_t i = 0; i < count; ++i)
        xci_encode_chunk(&jobs[i]);
}

#endif
