/* check() and apply() of one instruction set: walks blocks that came from elsewhere, straight
 * from their LZ4 tokens to the weights; no mask is ever built. Owns the profile: a block is
 * accepted if it is raw and as long as the chunk, or if it is a shorter, valid LZ4 block whose
 * matches all have offset 1 and repeat a zero.
 *
 * A change is worked on XCI_DEPTH changes after its token was read and its weights were prefetched:
 * they have arrived by then, and as many prefetches are always on their way as a core can have.
 * Where a sequence begins is known only once the one before is read, so two blocks are walked side
 * by side.
 *
 * The including file defines full_lengths(at, end): xci_lz4_full_lengths, or as fast as the
 * instruction set allows. How long a chain of length bytes is, no processor can predict. */
#ifndef XCI_CPU_BLOCK_H
#define XCI_CPU_BLOCK_H

#include "backend/cpu/cpu_tally.h"
#include "codec/lz4_block.h"

#define XCI_DEPTH 16u /* of each of two walks; a power of two */

/* A part of a word's mask. Several literals may make one word. */
typedef struct xci_change {
    uint64_t mask;
    uint32_t word;
} xci_change;

/* A walk over the changes of one LZ4 block. */
typedef struct xci_walk {
    xci_lz4_walk tokens;
    uint8_t *weights;
    const uint8_t *literals; /* not yet listed: `left` of them, at `position` of the chunk */
    uint32_t position, left;
    uint32_t listed;            /* changes so far */
    xci_change ring[XCI_DEPTH]; /* the last ones, not yet worked on */
} xci_walk;

/* What becomes of the changes, in rising order. NULL: the ring is being filled. */
typedef void (*xci_visitor)(void *state, const xci_change *change);

XCI_CPU_INLINE void xci_list_change(xci_walk *walk, uint32_t listed, uint32_t word, uint64_t mask,
                                    xci_visitor visit, void *state) {
    xci_change *slot = &walk->ring[listed % XCI_DEPTH];
    __builtin_prefetch((const void *)((uintptr_t)walk->weights + (uint64_t)word * 8));
    if (visit != NULL)
        visit(state, slot);
    slot->word = word;
    slot->mask = mask;
}

/* The walk's numbers in registers, for the fast path. */
typedef struct xci_singles {
    xci_walk *walk;
    const uint8_t *in, *load_end;
    uint32_t produced, limit, listed;
} xci_singles;

XCI_CPU_INLINE xci_singles xci_singles_of(xci_walk *walk) {
    const xci_lz4_walk *tokens = &walk->tokens;
    const int64_t last = tokens->end - tokens->at - 8;
    return (xci_singles){
        .walk = walk,
        .in = tokens->at,
        .load_end = tokens->at + (last > 0 && walk->left == 0 ? last : 0),
        .produced = tokens->produced,
        .limit = tokens->bytes - (uint32_t)xci_min(tokens->bytes, XCI_LZ4_LAST_MATCH_START),
        .listed = walk->listed,
    };
}

XCI_CPU_INLINE void xci_singles_end(const xci_singles *singles) {
    singles->walk->tokens.at = singles->in;
    singles->walk->tokens.produced = singles->produced;
    singles->walk->listed = singles->listed;
}

/* What sparse masks consist of: one changed byte, one zero and a match of offset 1, in most cases
 * all seen in one load.
 *
 *     2M xx 00 01 00 [length bytes]
 *
 * Lists one such sequence. False: it is another or near an end of the block. All that it takes
 * xci_lz4_next would take as well. */
XCI_CPU_INLINE bool xci_list_single(xci_singles *s, xci_visitor visit, void *state) {
    if (s->in >= s->load_end)
        return false;
    const uint64_t head = xci_load64(s->in);
    if ((head & UINT64_C(0xffffff00f0)) != UINT64_C(0x0001000020))
        return false;
    const uint32_t nibble = head & XCI_LZ4_NIBBLE;
    const uint32_t full = full_lengths(s->in + 5, s->walk->tokens.end);
    if (full > s->limit / 255)
        return false;
    const uint32_t above = 255 * full + s->in[5 + full];
    const uint32_t match = XCI_LZ4_MIN_MATCH + nibble + (nibble == XCI_LZ4_NIBBLE ? above : 0);
    const uint32_t next = s->produced + 2 + match;
    if (next > s->limit)
        return false;
    const uint64_t byte = head >> 8 & 0xff;
    xci_list_change(s->walk, s->listed++, s->produced / 8, byte << (8 * (s->produced % 8)), visit,
                    state);
    s->produced = next;
    s->in += 5 + (nibble == XCI_LZ4_NIBBLE ? full + 1 : 0);
    return true;
}

/* Any sequence: takes up its literals. False at the end of the block, or where it is damaged. */
XCI_CPU_INLINE bool xci_next_literals(xci_walk *walk) {
    xci_lz4_sequence sequence;
    if (!xci_lz4_next(&walk->tokens, &sequence))
        return false;
    if (!xci_lz4_repeats_zero(&sequence)) {
        walk->tokens.state = XCI_LZ4_BAD;
        return false;
    }
    walk->literals = sequence.literals;
    walk->position = sequence.position;
    walk->left = sequence.literal_count;
    return true;
}

/* Lists the literals that lie in the next word. */
XCI_CPU_INLINE void xci_list_literals(xci_walk *walk, xci_visitor visit, void *state) {
    const uint32_t begin = walk->position % 8, word = walk->position / 8;
    const uint32_t count = walk->left < 8 - begin ? walk->left : 8 - begin;
    const uint64_t mask = walk->tokens.end - walk->literals >= 8
                              ? xci_load64(walk->literals) & (UINT64_MAX >> (64 - 8 * count))
                              : xci_load_part(walk->literals, count);
    walk->literals += count;
    walk->position += count;
    walk->left -= count;
    if (mask != 0)
        xci_list_change(walk, walk->listed++, word, mask << (8 * begin), visit, state);
}

/* Lists the next sequence, or what is left of one. False at the end of the block, or where it is
 * damaged. */
XCI_CPU_INLINE bool xci_list_sequence(xci_walk *walk, xci_visitor visit, void *state) {
    if (walk->left == 0 && !xci_next_literals(walk))
        return false;
    while (walk->left > 0)
        xci_list_literals(walk, visit, state);
    return true;
}

XCI_CPU_INLINE bool xci_may_walk(const xci_block_job *job) {
    return job->block_codec == XORCAST_CODEC_LZ4 && job->block_bytes < job->bytes;
}

/* NULL, or a block that is not walked: a walk without changes. */
XCI_CPU_INLINE void xci_walk_open(xci_walk *walk, const xci_block_job *job) {
    static const uint8_t nothing; /* an address to which zero may be added */
    walk->listed = walk->left = 0;
    walk->tokens = xci_lz4_begin(&nothing, 0, 0);
    walk->tokens.state = XCI_LZ4_BAD;
    if (job == NULL || !xci_may_walk(job))
        return;
    walk->tokens = xci_lz4_begin(job->block, job->block_bytes, job->bytes);
    walk->weights = job->weights;
}

/* Fills the ring. */
static void xci_walk_fill(xci_walk *walk) {
    while (walk->listed < XCI_DEPTH) {
        xci_singles singles = xci_singles_of(walk);
        while (singles.listed < XCI_DEPTH && xci_list_single(&singles, NULL, NULL))
            continue;
        xci_singles_end(&singles);
        if (walk->listed == XCI_DEPTH || (walk->left == 0 && !xci_next_literals(walk)))
            break;
        while (walk->left > 0 && walk->listed < XCI_DEPTH)
            xci_list_literals(walk, NULL, NULL);
    }
}

/* Begins the walks of the first two of `count` jobs: side by side, as they go on. */
static void xci_walks_begin(xci_walk walks[2], const xci_block_job *jobs, uint64_t count) {
    xci_walk_open(&walks[0], count > 0 ? &jobs[0] : NULL);
    xci_walk_open(&walks[1], count > 1 ? &jobs[1] : NULL);
    xci_singles first = xci_singles_of(&walks[0]), second = xci_singles_of(&walks[1]);
    bool more = true;
    while (more && first.listed < XCI_DEPTH && second.listed < XCI_DEPTH) {
        const bool more_first = xci_list_single(&first, NULL, NULL);
        more = xci_list_single(&second, NULL, NULL) && more_first;
    }
    xci_singles_end(&first);
    xci_singles_end(&second);
    xci_walk_fill(&walks[0]);
    xci_walk_fill(&walks[1]);
}

/* Goes on to the end of one of two blocks whose rings are full. */
XCI_CPU_INLINE void xci_walk_both(xci_walk *a, xci_walk *b, xci_visitor visit, void *state_a,
                                  void *state_b) {
    do {
        xci_singles of_a = xci_singles_of(a), of_b = xci_singles_of(b);
        bool more_a, more_b;
        do {
            more_a = xci_list_single(&of_a, visit, state_a);
            more_b = xci_list_single(&of_b, visit, state_b);
        } while (more_a && more_b);
        xci_singles_end(&of_a);
        xci_singles_end(&of_b);
    } while (xci_list_sequence(a, visit, state_a) && xci_list_sequence(b, visit, state_b));
}

XCI_CPU_INLINE void xci_walk_one(xci_walk *walk, xci_visitor visit, void *state) {
    do {
        xci_singles singles = xci_singles_of(walk);
        while (xci_list_single(&singles, visit, state))
            continue;
        xci_singles_end(&singles);
    } while (xci_list_sequence(walk, visit, state));
}

/* Works on what is in the ring. */
XCI_CPU_INLINE void xci_walk_drain(xci_walk *walk, xci_visitor visit, void *state) {
    const uint32_t left = walk->listed < XCI_DEPTH ? walk->listed : XCI_DEPTH;
    for (uint32_t i = walk->listed - left; i != walk->listed; ++i)
        visit(state, &walk->ring[i % XCI_DEPTH]);
}

/* Calls visit for the changes of two blocks that have begun. A block was good if its tokens' state
 * is XCI_LZ4_DONE afterwards; damage may be found after some calls. */
XCI_CPU_INLINE void xci_walk_two(xci_walk walks[2], xci_visitor visit, void *state_a,
                                 void *state_b) {
    if (walks[0].listed >= XCI_DEPTH && walks[1].listed >= XCI_DEPTH)
        xci_walk_both(&walks[0], &walks[1], visit, state_a, state_b);
    if (walks[0].listed >= XCI_DEPTH)
        xci_walk_one(&walks[0], visit, state_a);
    if (walks[1].listed >= XCI_DEPTH)
        xci_walk_one(&walks[1], visit, state_b);
    xci_walk_drain(&walks[0], visit, state_a);
    xci_walk_drain(&walks[1], visit, state_b);
}

#define XCI_MASKS 16u

typedef struct xci_checker {
    const uint8_t *weights;
    uint32_t bytes, element_bytes;
    uint32_t word; /* may get more parts */
    uint32_t masked;
    uint64_t mask;
    uint64_t masks[XCI_MASKS + XCI_MASK_PAD]; /* of words that are done, not yet counted */
    xci_tally tally;
    xci_cursor cursor;
} xci_checker;

XCI_CPU_INLINE void xci_count_masks(xci_checker *checker) {
    memset(checker->masks + checker->masked, 0, XCI_MASK_PAD * sizeof *checker->masks);
    count_masks(checker->masks, checker->masked, checker->element_bytes, &checker->tally);
    checker->masked = 0;
}

/* The word that is still open. */
XCI_CPU_INLINE void xci_check_word(xci_checker *checker) {
    const uint64_t old_word = checker->weights != NULL
                                  ? xci_load_word(checker->weights, checker->word, checker->bytes)
                                  : 0;
    xci_tally_word(&checker->tally, &checker->cursor, checker->word, old_word, checker->mask);
    checker->masks[checker->masked++] = checker->mask;
    if (checker->masked == XCI_MASKS)
        xci_count_masks(checker);
}

XCI_CPU_INLINE void xci_check_change(void *state, const xci_change *change) {
    xci_checker *checker = state;
    if (__builtin_expect(change->word == checker->word, 0)) {
        checker->mask |= change->mask;
        return;
    }
    if (__builtin_expect(checker->mask != 0, 1))
        xci_check_word(checker);
    checker->word = change->word;
    checker->mask = change->mask;
}

static void xci_check_end(xci_checker *checker) {
    if (checker->mask != 0)
        xci_check_word(checker);
    xci_count_masks(checker);
}

static void xci_check_raw(xci_checker *checker, const xci_block_job *job) {
    for (uint32_t word = 0; word * 8 < job->bytes; ++word) {
        const xci_change change = {xci_load_word(job->block, word, job->bytes), word};
        if (change.mask != 0)
            xci_check_change(checker, &change);
    }
}

static xci_checker xci_checker_of(const xci_block_job *job) {
    return (xci_checker){
        .weights = job->weights,
        .bytes = job->bytes,
        .element_bytes = job->element_bytes,
        .cursor = xci_cursor_over(job->segments, job->segment_count),
    };
}

/* A block that was walked, or raw and is now. Sets the results. */
static void xci_check_finish(xci_block_job *job, xci_checker *checker, const xci_walk *walk) {
    const bool raw = job->block_codec == XORCAST_CODEC_RAW && job->block_bytes == job->bytes;
    if (raw)
        xci_check_raw(checker, job);
    xci_check_end(checker);
    const xci_tally *tally = &checker->tally;
    const bool known = job->weights != NULL;
    job->status = raw || walk->tokens.state == XCI_LZ4_DONE ? XORCAST_OK : XORCAST_DATA_CORRUPT;
    job->change = (xorcast_digest){{known ? tally->low : 0, known ? tally->high : 0}};
    job->bits_changed = tally->bits;
    job->bytes_changed = (uint32_t)tally->bytes;
    job->elements_changed = (uint32_t)tally->elements;
}

/* The next blocks' walks begin before these are done, so that their first weights are on their way:
 * sparse blocks have few more. */
static void check(xci_block_job *jobs, uint64_t count) {
    xci_walk walks[2][2];
    xci_walks_begin(walks[0], jobs, count);
    for (uint64_t i = 0; i < count; i += 2) {
        xci_walk *const now = walks[i / 2 % 2];
        const uint64_t left = count - i;
        xci_checker first = xci_checker_of(&jobs[i]);
        xci_checker second = left > 1 ? xci_checker_of(&jobs[i + 1]) : first;
        xci_walks_begin(walks[(i / 2 + 1) % 2], jobs + i + 2, left > 2 ? left - 2 : 0);
        xci_walk_two(now, xci_check_change, &first, &second);
        xci_check_finish(&jobs[i], &first, &now[0]);
        if (left > 1)
            xci_check_finish(&jobs[i + 1], &second, &now[1]);
    }
}

typedef struct xci_target {
    uint8_t *weights;
    uint32_t bytes;
} xci_target;

XCI_CPU_INLINE void xci_apply_change(void *state, const xci_change *change) {
    const xci_target *target = state;
    uint8_t *at = target->weights + (size_t)change->word * 8;
    const uint32_t left = target->bytes - change->word * 8;
    if (__builtin_expect(left >= 8, 1)) {
        xci_store64(at, xci_load64(at) ^ change->mask);
        return;
    }
    /* The next chunk begins behind this word: another thread may be writing there. */
    const uint64_t changed = xci_load_part(at, left) ^ change->mask;
    memcpy(at, &changed, left);
}

static void xci_apply_raw(const xci_block_job *job) {
    if (xci_may_walk(job))
        return;
    for (uint32_t i = 0; i < job->bytes; ++i)
        job->weights[i] ^= job->block[i];
}

static void apply(const xci_block_job *jobs, uint64_t count) {
    xci_walk walks[2][2];
    xci_walks_begin(walks[0], jobs, count);
    for (uint64_t i = 0; i < count; i += 2) {
        const uint64_t left = count - i;
        xci_target first = {jobs[i].weights, jobs[i].bytes};
        xci_target second = {jobs[i + (left > 1)].weights, jobs[i + (left > 1)].bytes};
        xci_walks_begin(walks[(i / 2 + 1) % 2], jobs + i + 2, left > 2 ? left - 2 : 0);
        xci_walk_two(walks[i / 2 % 2], xci_apply_change, &first, &second);
        xci_apply_raw(&jobs[i]);
        if (left > 1)
            xci_apply_raw(&jobs[i + 1]);
    }
}

#endif
