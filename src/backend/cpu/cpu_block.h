/* check() and apply() of one instruction set: walks blocks that came from elsewhere, straight
 * from their LZ4 tokens to the weights; no mask is ever built. Owns the profile: a block is
 * accepted if it is raw and as long as the chunk, or if it is a shorter, valid LZ4 block whose
 * matches all have offset 1 and repeat a zero.
 *
 * Changed words are listed in batches: while one batch is read from the tokens and the weights
 * under it are prefetched, the batch before, whose weights have arrived, is worked on. */
#ifndef XCI_CPU_BLOCK_H
#define XCI_CPU_BLOCK_H

#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"

/* As many prefetches as a core keeps in flight; 64 made check slower by a third, 8 by a tenth. */
#define XCI_BATCH 16u

/* A part of a word's mask. Several literals may make one word. */
typedef struct xci_change {
    uint64_t mask;
    uint32_t word;
} xci_change;

typedef struct xci_lister {
    xci_lz4_walk walk;
    const uint8_t *weights;
    const uint8_t *literals; /* not yet listed: `left` of them, at `position` of the chunk */
    uint32_t position, left;
} xci_lister;

XCI_CPU_INLINE void xci_list_change(const uint8_t *weights, xci_change *change, uint32_t word,
                                    uint64_t mask) {
    change->word = word;
    change->mask = mask;
    __builtin_prefetch((const void *)((uintptr_t)weights + (uint64_t)word * 8));
}

/* What sparse masks consist of: one changed byte, one zero and a match of offset 1, all seen in
 * one load.
 *
 *     2M xx 00 01 00 [length bytes, at most three]
 *
 * Lists such sequences up to the first that is another or near an end of the block; returns the
 * new end of the list. All that it takes xci_lz4_next would take as well. */
XCI_CPU_INLINE xci_change *xci_list_singles(xci_lister *lister, xci_change *at,
                                            const xci_change *full_list) {
    const xci_lz4_walk *walk = &lister->walk;
    const uint8_t *in = walk->at, *const weights = lister->weights;
    const int64_t last = walk->end - in - 8;
    const uint8_t *const load_end = in + (last > 0 ? last : 0);
    uint32_t produced = walk->produced;
    const uint32_t limit = walk->bytes - (uint32_t)xci_min(walk->bytes, XCI_LZ4_LAST_MATCH_START);
    while (at < full_list && in < load_end) {
        const uint64_t head = xci_load64(in);
        if ((head & UINT64_C(0xffffff00f0)) != UINT64_C(0x0001000020))
            break;
        const uint32_t nibble = head & XCI_LZ4_NIBBLE;
        const uint64_t lengths = head >> 40;
        const uint32_t full = (uint32_t)__builtin_ctzll(~lengths) / 8;
        const uint32_t above = 255 * full + (uint8_t)(lengths >> (8 * full));
        const uint32_t match = XCI_LZ4_MIN_MATCH + nibble + (nibble == XCI_LZ4_NIBBLE ? above : 0);
        const uint32_t next = produced + 2 + match;
        if (full == 3 || next > limit)
            break;
        const uint64_t byte = head >> 8 & 0xff;
        xci_list_change(weights, at++, produced / 8, byte << (8 * (produced % 8)));
        produced = next;
        in += 5 + (nibble == XCI_LZ4_NIBBLE ? full + 1 : 0);
    }
    lister->walk.at = in;
    lister->walk.produced = produced;
    return at;
}

/* Any sequence: takes up its literals. False at the end of the block, or where it is damaged. */
XCI_CPU_INLINE bool xci_next_literals(xci_lister *lister) {
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

/* The bytes of literals that lie in the next word. */
XCI_CPU_INLINE uint64_t xci_take_literals(xci_lister *lister, uint32_t *word) {
    const uint32_t begin = lister->position % 8;
    const uint32_t count = lister->left < 8 - begin ? lister->left : 8 - begin;
    const uint64_t mask = lister->walk.end - lister->literals >= 8
                              ? xci_load64(lister->literals) & (UINT64_MAX >> (64 - 8 * count))
                              : xci_load_part(lister->literals, count);
    *word = lister->position / 8;
    lister->literals += count;
    lister->position += count;
    lister->left -= count;
    return mask << (8 * begin);
}

/* Lists parts of words until the list is full or the block is at its end; returns how many. Not
 * part of its callers, whose loops need the registers. */
static __attribute__((noinline)) uint32_t xci_list_changes(xci_lister *lister, xci_change *list) {
    xci_change *at = list, *const full_list = list + XCI_BATCH;
    while (at < full_list) {
        if (lister->left == 0) {
            at = xci_list_singles(lister, at, full_list);
            if (at == full_list || !xci_next_literals(lister))
                break;
        }
        while (at < full_list && lister->left > 0) {
            uint32_t word;
            const uint64_t mask = xci_take_literals(lister, &word);
            xci_list_change(lister->weights, at, word, mask);
            at += mask != 0;
        }
    }
    return (uint32_t)(at - list);
}

typedef void (*xci_visitor)(void *state, const xci_change *list, uint32_t count);

/* Calls visit for the changes of an LZ4 block, in rising order. False: the block is damaged,
 * which may be found after some calls. */
XCI_CPU_INLINE bool xci_visit_changes(const xci_block_job *job, xci_visitor visit, void *state) {
    xci_lister lister = {.walk = xci_lz4_begin(job->block, job->block_bytes, job->bytes),
                         .weights = job->weights};
    xci_change lists[2][XCI_BATCH];
    uint32_t listed = xci_list_changes(&lister, lists[0]);
    for (uint32_t batch = 0; listed > 0; ++batch) {
        const uint32_t next = xci_list_changes(&lister, lists[(batch + 1) % 2]);
        visit(state, lists[batch % 2], listed);
        listed = next;
    }
    return lister.walk.state == XCI_LZ4_DONE;
}

typedef struct xci_checker {
    const uint8_t *weights;
    uint32_t bytes, element_bytes;
    uint32_t word; /* may get more parts */
    uint64_t mask;
    xci_tally tally;
    xci_cursor cursor;
} xci_checker;

XCI_CPU_INLINE void xci_check_word(xci_tally *tally, xci_checker *checker, uint32_t word,
                                   uint64_t mask) {
    const uint64_t old_word =
        checker->weights != NULL ? xci_load_word(checker->weights, word, checker->bytes) : 0;
    xci_tally_word(tally, &checker->cursor, word, old_word, mask);
}

static void xci_check_changes(void *state, const xci_change *list, uint32_t count) {
    xci_checker *checker = state;
    xci_tally tally = checker->tally;
    uint32_t word = checker->word, masked = 0;
    uint64_t masks[XCI_BATCH + XCI_MASK_PAD], mask = checker->mask;
    for (uint32_t i = 0; i < count; ++i) {
        if (__builtin_expect(list[i].word == word, 0)) {
            mask |= list[i].mask;
            continue;
        }
        if (__builtin_expect(mask != 0, 1))
            xci_check_word(&tally, checker, word, mask);
        masks[masked++] = mask;
        word = list[i].word;
        mask = list[i].mask;
    }
    memset(masks + masked, 0, XCI_MASK_PAD * sizeof *masks);
    count_masks(masks, masked, checker->element_bytes, &tally);
    checker->word = word;
    checker->mask = mask;
    checker->tally = tally;
}

/* The word that is still open. */
static void xci_check_end(xci_checker *checker) {
    const xci_change none = {0, UINT32_MAX};
    xci_check_changes(checker, &none, 1);
}

static void xci_check_raw(xci_checker *checker, const xci_block_job *job) {
    xci_change list[XCI_BATCH];
    uint32_t listed = 0;
    for (uint32_t word = 0; word * 8 < job->bytes; ++word) {
        list[listed].word = word;
        list[listed].mask = xci_load_word(job->block, word, job->bytes);
        listed += list[listed].mask != 0;
        if (listed == XCI_BATCH) {
            xci_check_changes(checker, list, listed);
            listed = 0;
        }
    }
    xci_check_changes(checker, list, listed);
}

static bool xci_check_block(xci_checker *checker, const xci_block_job *job) {
    bool good = false;
    if (job->block_codec == XORCAST_CODEC_RAW && job->block_bytes == job->bytes) {
        xci_check_raw(checker, job);
        good = true;
    } else if (job->block_codec == XORCAST_CODEC_LZ4 && job->block_bytes < job->bytes) {
        good = xci_visit_changes(job, xci_check_changes, checker);
    }
    xci_check_end(checker);
    return good;
}

static void check(xci_block_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        xci_block_job *job = &jobs[i];
        xci_checker checker = {
            .weights = job->weights,
            .bytes = job->bytes,
            .element_bytes = job->element_bytes,
            .cursor = xci_cursor_over(job->segments, job->segment_count),
        };
        job->status = xci_check_block(&checker, job) ? XORCAST_OK : XORCAST_DATA_CORRUPT;
        const xci_tally *tally = &checker.tally;
        const bool known = job->weights != NULL;
        job->change = (xorcast_digest){{known ? tally->low : 0, known ? tally->high : 0}};
        job->bits_changed = tally->bits;
        job->bytes_changed = (uint32_t)tally->bytes;
        job->elements_changed = (uint32_t)tally->elements;
    }
}

typedef struct xci_target {
    uint8_t *weights;
    uint32_t bytes;
} xci_target;

static void xci_apply_changes(void *state, const xci_change *list, uint32_t count) {
    const xci_target target = *(const xci_target *)state;
    for (uint32_t i = 0; i < count; ++i) {
        uint8_t *at = target.weights + (size_t)list[i].word * 8;
        const uint32_t left = target.bytes - list[i].word * 8;
        if (__builtin_expect(left >= 8, 1)) {
            xci_store64(at, xci_load64(at) ^ list[i].mask);
            continue;
        }
        /* The next chunk begins behind this word: another thread may be writing there. */
        const uint64_t changed = xci_load_part(at, left) ^ list[i].mask;
        memcpy(at, &changed, left);
    }
}

static void apply(const xci_block_job *jobs, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        const xci_block_job *job = &jobs[i];
        xci_target target = {job->weights, job->bytes};
        if (job->block_codec == XORCAST_CODEC_LZ4)
            (void)xci_visit_changes(job, xci_apply_changes, &target);
        else
            for (uint32_t k = 0; k < job->bytes; ++k)
                job->weights[k] ^= job->block[k];
    }
}

#endif
