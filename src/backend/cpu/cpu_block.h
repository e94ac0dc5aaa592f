/* check() and apply() of one instruction set. An LZ4 block becomes a list of changed bytes first
 * (cpu_walk.h), which is then gone through; a raw block must be as long as the chunk. */
#ifndef XCI_CPU_BLOCK_H
#define XCI_CPU_BLOCK_H

#include "backend/cpu/cpu_list.h"
#include "backend/cpu/cpu_walk.h"

/* ---- Check ---- */

#define XCI_MASKS 16u

/* What the loop over changes needs now and then. It has an address, so nothing of it stays in
 * registers. */
typedef struct xci_check_rest {
    const uint8_t *weights; /* or NULL */
    uint32_t bytes, element_bytes;
    uint64_t masks[XCI_MASKS + XCI_MASK_PAD]; /* of words that are done, not yet counted */
    xci_tally counts;                         /* of bytes and elements */
    xci_cursor cursor;
} xci_check_rest;

typedef struct xci_checker {
    const uint8_t *weights;
    uint32_t whole; /* words that lie wholly in the chunk; 0: no weights */
    uint32_t word;  /* may get more parts */
    uint64_t mask;  /* of it */
    uint32_t masked;
    xci_tally tally; /* of bits and digest */
    xci_check_rest *rest;
} xci_checker;

static xci_check_rest xci_check_rest_of(const xci_block_job *job) {
    return (xci_check_rest){
        .weights = job->weights,
        .bytes = job->bytes,
        .element_bytes = job->element_bytes,
        .cursor = xci_cursor_over(job->segments, job->segment_count),
    };
}

static xci_checker xci_checker_of(const xci_block_job *job, xci_check_rest *rest) {
    return (xci_checker){
        .weights = job->weights, .whole = job->weights != NULL ? job->bytes / 8 : 0, .rest = rest};
}

static __attribute__((noinline)) void xci_count_masks(xci_check_rest *rest, uint32_t count) {
    memset(rest->masks + count, 0, XCI_MASK_PAD * sizeof *rest->masks);
    count_masks(rest->masks, count, rest->element_bytes, &rest->counts);
}

static __attribute__((noinline)) uint64_t xci_rest_word(const xci_check_rest *rest, uint32_t word) {
    return rest->weights != NULL ? xci_load_word(rest->weights, word, rest->bytes) : 0;
}

/* The word that is still open. Of none, word 0, the mask is 0, which changes nothing. */
XCI_CPU_INLINE void xci_check_word(xci_checker *checker) {
    const uint64_t old_word = __builtin_expect(checker->word < checker->whole, 1)
                                  ? xci_load64(checker->weights + (size_t)checker->word * 8)
                                  : xci_rest_word(checker->rest, checker->word);
    xci_tally_word(&checker->tally, &checker->rest->cursor, checker->word, old_word, checker->mask);
    checker->rest->masks[checker->masked++] = checker->mask;
    if (checker->masked == XCI_MASKS) {
        xci_count_masks(checker->rest, XCI_MASKS);
        checker->masked = 0;
    }
}

XCI_CPU_INLINE void xci_check_part(xci_checker *checker, uint32_t word, uint64_t mask) {
    if (__builtin_expect(word == checker->word, 0)) {
        checker->mask |= mask;
        return;
    }
    xci_check_word(checker);
    checker->word = word;
    checker->mask = mask;
}

XCI_CPU_INLINE void xci_check_entry(void *state, uint32_t entry) {
    xci_check_part(state, entry >> 11, (uint64_t)(entry & 0xff) << (entry >> 8 & 7) * 8);
}

XCI_CPU_INLINE void xci_check_raw(xci_checker *checker, const xci_block_job *job) {
    for (uint32_t word = 0; word * 8 < job->bytes; ++word) {
        const uint64_t mask = xci_load_word(job->block, word, job->bytes);
        if (mask != 0)
            xci_check_part(checker, word, mask);
    }
}

#define XCI_PIECE 512u /* entries */

/* A block whose list had no room. */
XCI_CPU_INLINE void xci_check_by_pieces(xci_checker *checker, xci_block_job *job) {
    uint32_t list[XCI_PIECE];
    xci_walk walk;
    xci_walk_open(&walk, job, list, XCI_PIECE);
    do {
        walk.at = list;
        xci_walk_on(&walk);
        for (const uint32_t *entry = list; entry < walk.at; ++entry)
            xci_check_entry(checker, *entry);
    } while (!xci_walk_is_over(&walk));
    job->status = walk.tokens.state == XCI_LZ4_DONE ? XORCAST_OK : XORCAST_DATA_CORRUPT;
}

/* Ends the open word and sets the results. */
XCI_CPU_INLINE void xci_check_end(xci_checker *checker, xci_block_job *job) {
    const xci_tally *tally = &checker->tally, *counts = &checker->rest->counts;
    const bool known = job->weights != NULL;
    xci_check_word(checker);
    xci_count_masks(checker->rest, checker->masked);
    job->change = (xorcast_digest){{known ? tally->low : 0, known ? tally->high : 0}};
    job->bits_changed = tally->bits;
    job->bytes_changed = (uint32_t)counts->bytes;
    job->elements_changed = (uint32_t)counts->elements;
}

/* Blocks that are not gone through by lists: raw ones, and those whose lists had no room. */
static __attribute__((noinline)) void xci_check_without_list(xci_block_job *job,
                                                             xci_check_rest *rest) {
    xci_checker checker = xci_checker_of(job, rest);
    if (job->status == XORCAST_BUFFER_TOO_SMALL)
        xci_check_by_pieces(&checker, job);
    else if (job->block_codec == XORCAST_CODEC_RAW && job->status == XORCAST_OK)
        xci_check_raw(&checker, job);
    xci_check_end(&checker, job);
}

/* Of a job whose block was walked, or is not to be; `next` is walked beside it. */
static void xci_check_job(xci_block_job *job, xci_walk *next) {
    xci_check_rest rest = xci_check_rest_of(job);
    xci_checker checker = xci_checker_of(job, &rest);
    if (job->list_bytes == 0) {
        xci_check_without_list(job, &rest);
        xci_walk_on(next);
        return;
    }
    xci_visit_beside(job->list, job->list_bytes / XCI_LIST_ENTRY, next, xci_check_entry, &checker);
    xci_check_end(&checker, job);
}

static void xci_list_open(xci_walk *walk, const xci_block_job *job) {
    const bool room = job != NULL && job->list != NULL;
    xci_walk_open(walk, job, room ? job->list : NULL, room ? XCI_LIST_ROOM(job->block_bytes) : 0);
}

/* What a walk came to; BUFFER_TOO_SMALL if its list had no room. */
static void xci_list_end(xci_block_job *job, const xci_walk *walk) {
    const bool raw = job->block_codec == XORCAST_CODEC_RAW && job->block_bytes == job->bytes;
    const bool done = walk->tokens.state == XCI_LZ4_DONE;
    const uint64_t bytes = done ? (uint64_t)(walk->at - job->list) * XCI_LIST_ENTRY : 0;
    const bool too_long = !xci_walk_is_over(walk) || bytes > job->block_bytes;
    job->list_bytes = too_long ? 0 : (uint32_t)bytes;
    job->status = too_long      ? XORCAST_BUFFER_TOO_SMALL
                  : raw || done ? XORCAST_OK
                                : XORCAST_DATA_CORRUPT;
}

/* Blocks are listed at least XCI_LIST_AHEAD changes before they are worked on. */
static void check(xci_block_job *jobs, uint64_t count) {
    uint64_t listed = 0, ahead = 0;
    xci_walk walk;
    for (uint64_t i = 0; i < count; ++i) {
        for (; listed < count && (listed == i || ahead < XCI_LIST_AHEAD); ++listed) {
            xci_list_open(&walk, &jobs[listed]);
            xci_walk_on(&walk);
            xci_list_end(&jobs[listed], &walk);
            ahead += jobs[listed].list_bytes / XCI_LIST_ENTRY;
        }
        ahead -= jobs[i].list_bytes / XCI_LIST_ENTRY;
        xci_list_open(&walk, listed < count ? &jobs[listed] : NULL);
        xci_check_job(&jobs[i], &walk);
        if (listed == count)
            continue;
        xci_list_end(&jobs[listed], &walk);
        ahead += jobs[listed++].list_bytes / XCI_LIST_ENTRY;
    }
}

/* ---- Apply ---- */

/* By pieces of its list: one is applied while the next is made. */
static void xci_apply_walked(const xci_block_job *job) {
    uint32_t lists[2][XCI_PIECE];
    xci_walk walk;
    xci_walk_open(&walk, job, lists[0], XCI_PIECE);
    xci_walk_on(&walk);
    for (unsigned k = 0; walk.at > lists[k]; k = !k) {
        const uint32_t entries = (uint32_t)(walk.at - lists[k]);
        walk.at = lists[!k];
        walk.end = lists[!k] + XCI_PIECE;
        xci_visit_beside(lists[k], entries, &walk, xci_apply_entry, job->weights);
    }
}

static void apply(const xci_block_job *jobs, uint64_t count) {
    for (uint64_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && jobs[end].block_codec == XCI_CODEC_LIST; ++end)
            continue;
        if (end > i) {
            xci_apply_lists(jobs + i, end - i);
            continue;
        }
        end = i + 1;
        if (xci_may_walk(&jobs[i]))
            xci_apply_walked(&jobs[i]);
        else
            xci_xor_into(jobs[i].weights, jobs[i].block, jobs[i].bytes);
    }
}

#endif
