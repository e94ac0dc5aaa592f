/* encode() of one instruction set. The including file defines what depends on it, list_line(old,
 * new, first, list): it writes the numbers of the words that differ in 64 bytes, counted from
 * `first`, to the list and returns how many; what it leaves in the rest of eight places does not
 * matter. Everything else is the same source for all levels, hence the same bytes.
 *
 * Old and new are streamed once. Words that differ are listed without a branch on the data, and
 * worked on when a batch is full: loops of a fixed length, which the processor predicts. Meanwhile
 * prefetches keep memory busy. Small batches overlap the two better than large ones: 16 words reach
 * 0.71 of the read bound at 0.6 % of bytes changed, 32 words 0.63, 64 words 0.56 (Zen 3;
 * bench/kernels). */
#ifndef XCI_CPU_ENCODE_H
#define XCI_CPU_ENCODE_H

#include "backend/cpu/cpu_writer.h"

#define XCI_LINE 64u
#define XCI_LINE_WORDS 8u
#define XCI_ENCODE_BATCH 16u
/* Bytes between prefetch and use. A page ahead lines would share the cache's sets with those in
 * use. */
#define XCI_AHEAD 3072u
#define XCI_CHUNK_LINES ((1u << 20) / XCI_LINE)

/* A hint: the address may lie beyond the chunk, where the next one usually is. */
XCI_CPU_INLINE void xci_prefetch(const uint8_t *at, size_t distance) {
    __builtin_prefetch((const void *)((uintptr_t)at + distance));
}

/* Words of a chunk that differ, found line by line. */
typedef struct xci_differ {
    const uint8_t *old_bytes, *new_bytes;
    uint32_t bytes, offset; /* whole words of the chunk; looked at so far */
    uint32_t listed;
    uint32_t list[XCI_ENCODE_BATCH + 2 * XCI_LINE_WORDS];
} xci_differ;

/* The last line, if it is not whole. */
XCI_CPU_INLINE void xci_diff_rest(xci_differ *differ) {
    uint8_t old_line[XCI_LINE] = {0}, new_line[XCI_LINE] = {0};
    memcpy(old_line, differ->old_bytes + differ->offset, differ->bytes - differ->offset);
    memcpy(new_line, differ->new_bytes + differ->offset, differ->bytes - differ->offset);
    differ->listed +=
        list_line(old_line, new_line, differ->offset / 8, differ->list + differ->listed);
    differ->offset = differ->bytes;
}

/* Looks at lines until a batch is full or the chunk is at its end. */
XCI_CPU_INLINE void xci_diff_lines(xci_differ *differ) {
    const uint8_t *const old_bytes = differ->old_bytes, *const new_bytes = differ->new_bytes;
    const uint32_t whole = differ->bytes / XCI_LINE * XCI_LINE;
    uint32_t offset = differ->offset, listed = differ->listed;
    for (; offset < whole && listed < XCI_ENCODE_BATCH; offset += XCI_LINE) {
        xci_prefetch(old_bytes, offset + XCI_AHEAD);
        xci_prefetch(new_bytes, offset + XCI_AHEAD);
        listed +=
            list_line(old_bytes + offset, new_bytes + offset, offset / 8, differ->list + listed);
    }
    differ->offset = offset;
    differ->listed = listed;
    if (listed < XCI_ENCODE_BATCH && offset < differ->bytes)
        xci_diff_rest(differ);
}

typedef struct xci_encoder {
    xci_tally tally;
    xci_cursor cursor;
    xci_writer writer;
    uint32_t element_bytes;
    bool fits; /* the block is still smaller than raw */
    /* Lines that differ; the first of them have moved. Old may move only behind the writer, which
     * reads it again. */
    uint32_t line_count, last_line, moved;
    uint16_t *lines;
} xci_encoder;

XCI_CPU_INLINE void xci_note_line(xci_encoder *encoder, uint32_t word) {
    const uint32_t line = word / XCI_LINE_WORDS;
    encoder->lines[encoder->line_count] = (uint16_t)line;
    encoder->line_count += line != encoder->last_line;
    encoder->last_line = line;
}

/* Moves lines behind the writer, XCI_MOVED or more at a time: later they would have to come from
 * the second-level cache again. Not before the block is sure to stay smaller than raw, for which
 * old is needed: LZ4 makes what is left longer by 1/255 and a token at most. A writer that had no
 * room has gone on without writing. */
#define XCI_MOVED 64u
XCI_CPU_INLINE void xci_move_early(xci_encoder *encoder, const xci_encode_job *job) {
    const uint32_t anchor = encoder->writer.anchor, left = job->bytes - anchor;
    const int64_t most = encoder->writer.at - encoder->writer.block + left + left / 255 + 64;
    if (encoder->line_count - encoder->moved < XCI_MOVED || !encoder->fits || most >= job->bytes)
        return;
    uint32_t i = encoder->moved;
    for (; i < encoder->line_count && encoder->lines[i] < anchor / XCI_LINE; ++i) {
        const uint32_t at = encoder->lines[i] * XCI_LINE;
        memcpy(job->move + at, job->new_bytes + at, XCI_LINE);
    }
    encoder->moved = i;
}

/* Old becomes new. Other lines are the same already and stay clean. */
XCI_CPU_INLINE void xci_move_lines(const xci_encoder *encoder, const xci_encode_job *job) {
    for (uint32_t i = encoder->moved; i < encoder->line_count; ++i) {
        const uint32_t at = encoder->lines[i] * XCI_LINE;
        if (__builtin_expect(job->bytes - at >= XCI_LINE, 1))
            memcpy(job->move + at, job->new_bytes + at, XCI_LINE);
        else
            memcpy(job->move + at, job->new_bytes + at, job->bytes - at);
    }
}

/* Counts and writes a batch. While that goes on, lines after those already on their way are
 * fetched. */
XCI_CPU_INLINE void xci_encode_words(xci_encoder *encoder, const xci_differ *differ,
                                     uint32_t count) {
    const uint8_t *const old_bytes = differ->old_bytes, *const new_bytes = differ->new_bytes;
    uint64_t masks[XCI_ENCODE_BATCH + XCI_MASK_PAD];
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t word = differ->list[i];
        xci_prefetch(old_bytes, differ->offset + XCI_AHEAD + i * XCI_LINE);
        xci_prefetch(new_bytes, differ->offset + XCI_AHEAD + i * XCI_LINE);
        const uint64_t old_word = xci_load64(old_bytes + (size_t)word * 8);
        masks[i] = old_word ^ xci_load64(new_bytes + (size_t)word * 8);
        xci_tally_word(&encoder->tally, &encoder->cursor, word, old_word, masks[i]);
        xci_note_line(encoder, word);
    }
    memset(masks + count, 0, XCI_MASK_PAD * sizeof *masks);
    count_masks(masks, count, encoder->element_bytes, &encoder->tally);
    for (uint32_t i = 0; i < count && encoder->fits; ++i)
        encoder->fits = xci_write_word(&encoder->writer, differ->list[i], masks[i]);
}

/* The last word, which is not whole. Works on a copy: what the other loops use must have no
 * address, or it could not stay in registers. */
static __attribute__((noinline)) xci_encoder xci_encode_rest(xci_encoder encoder,
                                                             const xci_encode_job *job) {
    const uint32_t word = job->bytes / 8;
    const uint64_t old_word = xci_load_word(job->old_bytes, word, job->bytes);
    const uint64_t new_word = xci_load_word(job->new_bytes, word, job->bytes);
    const uint64_t masks[1 + XCI_MASK_PAD] = {old_word ^ new_word};
    if (masks[0] == 0)
        return encoder;
    xci_tally_word(&encoder.tally, &encoder.cursor, word, old_word, masks[0]);
    xci_note_line(&encoder, word);
    count_masks(masks, 1, encoder.element_bytes, &encoder.tally);
    encoder.fits = encoder.fits && xci_write_word(&encoder.writer, word, masks[0]);
    return encoder;
}

/* Ends the block, or makes it raw, and sets the results. */
static void xci_encode_finish(xci_encode_job *job, xci_encoder *encoder) {
    const xci_tally *tally = &encoder->tally;
    job->bits_changed = tally->bits;
    job->bytes_changed = (uint32_t)tally->bytes;
    job->elements_changed = (uint32_t)tally->elements;
    job->change = (xorcast_digest){{tally->low, tally->high}};
    job->block_codec = encoder->writer.codec;
    job->block_bytes = tally->bytes != 0 && encoder->fits ? xci_write_end(&encoder->writer) : 0;
    if (tally->bytes != 0 && job->block_bytes == 0) {
        job->block_codec = XORCAST_CODEC_RAW;
        job->block_bytes = job->bytes;
        xci_xor(job->block, job->old_bytes, job->new_bytes, job->bytes);
    }
}

/* `codec` is a constant wherever this is inlined. */
XCI_CPU_INLINE void xci_encode_chunk(xci_encode_job *job, uint32_t codec) {
    xci_differ differ = {
        .old_bytes = job->old_bytes, .new_bytes = job->new_bytes, .bytes = job->bytes / 8 * 8};
    uint16_t lines[XCI_CHUNK_LINES + 1]; /* one more than can be noted is written */
    xci_encoder encoder = {
        .cursor = xci_cursor_over(job->segments, job->segment_count),
        .writer = xci_write_begin(job, codec),
        .element_bytes = job->element_bytes,
        .fits = codec != XORCAST_CODEC_RAW,
        .last_line = UINT32_MAX,
        .lines = lines,
    };
    while (differ.offset < differ.bytes || differ.listed > 0) {
        xci_diff_lines(&differ);
        const uint32_t count = differ.listed < XCI_ENCODE_BATCH ? differ.listed : XCI_ENCODE_BATCH;
        encoder.writer.codec = codec; /* so that the compiler still knows it in the loop */
        xci_encode_words(&encoder, &differ, count);
        memcpy(differ.list, differ.list + XCI_ENCODE_BATCH, XCI_LINE_WORDS * sizeof *differ.list);
        differ.listed -= count;
        if (codec == XORCAST_CODEC_LZ4 && job->move != NULL)
            xci_move_early(&encoder, job);
    }
    if (job->bytes % 8 != 0)
        encoder = xci_encode_rest(encoder, job);
    xci_encoder last = encoder;
    xci_encode_finish(job, &last);
    if (job->move != NULL)
        xci_move_lines(&last, job);
}

static __attribute__((noinline)) void encode_raw(xci_encode_job *job) {
    xci_encode_chunk(job, XORCAST_CODEC_RAW);
}

static __attribute__((noinline)) void encode_lz4(xci_encode_job *job) {
    xci_encode_chunk(job, XORCAST_CODEC_LZ4);
}

static __attribute__((noinline)) void encode_snappy(xci_encode_job *job) {
    xci_encode_chunk(job, XORCAST_CODEC_SNAPPY);
}

static __attribute__((noinline)) void encode_words(xci_encode_job *job) {
    xci_encode_chunk(job, XCI_CODEC_WORDS);
}

static void encode(xci_encode_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        if (jobs[i].codec == XORCAST_CODEC_LZ4)
            encode_lz4(&jobs[i]);
        else if (jobs[i].codec == XORCAST_CODEC_SNAPPY)
            encode_snappy(&jobs[i]);
        else if (jobs[i].codec == XORCAST_CODEC_GAP)
            encode_words(&jobs[i]);
        else
            encode_raw(&jobs[i]);
    }
}

#endif
