/* check() and apply() of one instruction set: walks blocks that came from elsewhere, straight from their
 * LZ4 tokens to the weights; no mask is ever built. Owns the profile: a block is accepted if it is raw and as
 * long as the chunk, or if it is a shorter, valid LZ4 block whose matches all have offset 1 and repeat a
 * zero.
 *
 * Both operations list the changed words of a batch of sequences, prefetch the weights there, and then work
 * on the batch before, whose weights have arrived meanwhile. */
#ifndef XCI_CPU_BLOCK_H
#define XCI_CPU_BLOCK_H

#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"

#ifndef XCI_BATCH
#define XCI_BATCH 32u
#endif

typedef struct xci_change {
    uint64_t mask;
    uint32_t word;
} xci_change;

/* A reader of changed words. A word may be made of several literals, so the newest one stays open until the
 * next begins. */
typedef struct xci_lister {
    xci_lz4_walk walk;
    const uint8_t *literals, *block_end, *weights;
    uint32_t position, left; /* of literals not yet listed */
    uint32_t open_word;
    uint64_t open_mask; /* 0: none yet */
} xci_lister;

XCI_CPU_INLINE xci_lister xci_lister_begin(const xci_block_job *job) {
    return (xci_lister){
        .walk = xci_lz4_begin(job->block, job->block_bytes, job->bytes),
        .block_end = job->block + job->block_bytes,
        .weights = job->weights,
    };
}

/* Adds a part of a word's mask; `*at` is where the next closed word goes. */
XCI_CPU_INLINE xci_change *xci_list_part(xci_lister *lister, uint32_t word, uint64_t mask, xci_change *at) {
    if (word == lister->open_word) {
        lister->open_mask |= mask;
        return at;
    }
    at->mask = lister->open_mask;
    at->word = lister->open_word;
    at += lister->open_mask != 0;
    lister->open_mask = mask;
    lister->open_word = word;
    __builtin_prefetch((const void *)((uintptr_t)lister->weights + (uint64_t)word * 8));
    return at;
}

/* Adds up to eight mask bytes that begin at `position`. */
XCI_CPU_INLINE xci_change *xci_list_bytes(xci_lister *lister, uint32_t position, uint64_t mask, xci_change *at) {
    const uint32_t shift = position % 8 * 8;
    const uint64_t high = mask >> 1 >> (63 - shift);
    at = xci_list_part(lister, position / 8, mask << shift, at);
    if (__builtin_expect(high != 0, 0))
        at = xci_list_part(lister, position / 8 + 1, high, at);
    return at;
}

/* The kind of sequence that a sparse mask consists of, from one load: 1 to 4 literals and a match that is 19 or
 * more bytes long, of which a few length bytes tell. False: none of that kind, or too near an end; nothing
 * was done. */
XCI_CPU_INLINE bool xci_list_short(xci_lister *lister, xci_change **at) {
    xci_lz4_walk *walk = &lister->walk;
    if (walk->end - walk->at < 8)
        return false;
    const uint64_t head = xci_load64(walk->at);
    const uint32_t literals = (uint32_t)(head >> 4) & 15;
    if ((head & 15) != 15 || literals - 1 > 3)
        return false;
    const uint64_t mask = head >> 8 & (UINT64_MAX >> (64 - 8 * literals));
    const uint64_t tail = head >> 8 >> (8 * literals);
    const uint64_t lengths = tail >> 16;
    const uint32_t full = (uint32_t)__builtin_ctzll(~lengths) / 8;
    const uint32_t match = 19 + 255 * full + (uint8_t)(lengths >> (8 * full));
    const uint32_t produced = walk->produced + literals;
    if ((tail & 0xffff) != 1 || mask >> (8 * literals - 8) != 0 || full + literals > 4 ||
        walk->bytes - produced < match + XCI_LZ4_LAST_LITERALS)
        return false;
    *at = xci_list_bytes(lister, walk->produced, mask, *at);
    walk->at += 4 + literals + full;
    walk->produced = produced + match;
    return true;
}

/* Any other sequence: takes up its literals. */
XCI_CPU_INLINE bool xci_list_sequence(xci_lister *lister) {
    xci_lz4_sequence sequence;
    if (!xci_lz4_next(&lister->walk, &sequence))
        return false;
    if (!xci_lz4_repeats_zero(&sequence)) {
        lister->walk.state = XCI_LZ4_BAD;
        return false;
    }
    lister->literals = sequence.literals;
    lister->position = sequence.position;
    lister->left = sequence.literal_count;
    return true;
}

/* Lists words until the batch is full or the block is at its end; returns how many. */
XCI_CPU_INLINE uint32_t xci_list_changes(xci_lister *lister, xci_change *changes) {
    xci_change *at = changes, *const last = changes + XCI_BATCH;
    while (at < last) {
        if (lister->left == 0) {
            if (xci_list_short(lister, &at))
                continue;
            if (!xci_list_sequence(lister))
                break;
        }
        const uint32_t count = lister->left < 8 ? lister->left : 8;
        const uint64_t mask = count == 8 ? xci_load64(lister->literals)
                                         : xci_load_part(lister->literals, count);
        at = xci_list_bytes(lister, lister->position, mask, at);
        lister->literals += count;
        lister->position += count;
        lister->left -= count;
    }
    return (uint32_t)(at - changes);
}

typedef struct xci_checker {
    xci_tally tally;
    xci_cursor cursor;
} xci_checker;

XCI_CPU_INLINE void xci_check_change(xci_checker *checker, const xci_block_job *job, uint32_t word, uint64_t mask) {
    const uint64_t old_word = job->weights != NULL ? xci_load_word(job->weights, word, job->bytes) : 0;
    xci_tally_word(&checker->tally, &checker->cursor, word, old_word, mask);
}

XCI_CPU_INLINE bool xci_check_lz4(xci_checker *checker, const xci_block_job *job) {
    if (job->block_bytes >= job->bytes)
        return false;
    xci_lister lister = xci_lister_begin(job);
    xci_change changes[2][XCI_BATCH + 2];
    uint32_t listed = xci_list_changes(&lister, changes[0]);
    for (uint32_t batch = 0; listed > 0; ++batch) {
        const uint32_t next = xci_list_changes(&lister, changes[(batch + 1) & 1]);
        for (uint32_t i = 0; i < listed; ++i)
            xci_check_change(checker, job, changes[batch & 1][i].word, changes[batch & 1][i].mask);
        listed = next;
    }
    if (lister.open_mask != 0)
        xci_check_change(checker, job, lister.open_word, lister.open_mask);
    return lister.walk.state == XCI_LZ4_DONE;
}

XCI_CPU_INLINE bool xci_check_raw(xci_checker *checker, const xci_block_job *job) {
    if (job->block_bytes != job->bytes)
        return false;
    for (uint32_t word = 0; word * 8 < job->bytes; ++word) {
        const uint64_t mask = xci_load_word(job->block, word, job->bytes);
        if (mask != 0)
            xci_check_change(checker, job, word, mask);
    }
    return true;
}

static void check(xci_block_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        xci_block_job *job = &jobs[i];
        xci_checker checker = {xci_tally_begin(job->element_bytes),
                               xci_cursor_begin(job->segments, job->segment_count)};
        const bool good = job->block_codec == XORCAST_CODEC_LZ4   ? xci_check_lz4(&checker, job)
                          : job->block_codec == XORCAST_CODEC_RAW ? xci_check_raw(&checker, job)
                                                                  : false;
        const xci_tally *tally = &checker.tally;
        const bool known = job->weights != NULL;
        job->status = good ? XORCAST_OK : XORCAST_DATA_CORRUPT;
        job->bits_changed = tally->bits;
        job->bytes_changed = (uint32_t)tally->bytes;
        job->elements_changed = (uint32_t)tally->elements;
        job->change = (xorcast_digest){{known ? tally->low : 0, known ? tally->high : 0}};
    }
}

XCI_CPU_INLINE void xci_apply_change(const xci_block_job *job, uint32_t word, uint64_t mask) {
    uint8_t *at = job->weights + (size_t)word * 8;
    const uint32_t left = job->bytes - word * 8;
    if (__builtin_expect(left >= 8, 1)) {
        xci_store64(at, xci_load64(at) ^ mask);
        return;
    }
    /* The next chunk begins behind this word: another thread may be writing there. */
    const uint64_t changed = xci_load_part(at, left) ^ mask;
    memcpy(at, &changed, left);
}

XCI_CPU_INLINE void xci_apply_lz4(const xci_block_job *job) {
    xci_lister lister = xci_lister_begin(job);
    xci_change changes[2][XCI_BATCH + 2];
    uint32_t listed = xci_list_changes(&lister, changes[0]);
    for (uint32_t batch = 0; listed > 0; ++batch) {
        const uint32_t next = xci_list_changes(&lister, changes[(batch + 1) & 1]);
        for (uint32_t i = 0; i < listed; ++i)
            xci_apply_change(job, changes[batch & 1][i].word, changes[batch & 1][i].mask);
        listed = next;
    }
    if (lister.open_mask != 0)
        xci_apply_change(job, lister.open_word, lister.open_mask);
}

static void apply(const xci_block_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        const xci_block_job *job = &jobs[i];
        if (job->block_codec == XORCAST_CODEC_LZ4) {
            xci_apply_lz4(job);
            continue;
        }
        for (uint32_t word = 0; word * 8 < job->bytes; ++word)
            xci_apply_change(job, word, xci_load_word(job->block, word, job->bytes));
    }
}

#endif
