/* Lists the changed bytes of LZ4 blocks that came from elsewhere (codec/list_block.h), straight
 * from their tokens; no mask is ever built. Owns the profile: a block is accepted if it is shorter
 * than the chunk and a valid LZ4 block whose matches all have offset 1 and repeat a zero.
 *
 * A change's weights are asked for as it is listed, and looked at when many more changes are, so
 * that as many fetches are on their way as a core can have.
 *
 * The including file defines full_lengths(at, end): xci_lz4_full_lengths, or as fast as the
 * instruction set allows. */
#ifndef XCI_CPU_WALK_H
#define XCI_CPU_WALK_H

#include "backend/cpu/cpu_tally.h"
#include "codec/list_block.h"
#include "codec/lz4_block.h"

/* A walk over one block. It stops for want of room and goes on when there is some. */
typedef struct xci_walk {
    xci_lz4_walk tokens;
    const uint8_t *weights;
    const uint8_t *literals; /* not yet listed: `left` of them, at `position` of the chunk */
    uint32_t position, left;
    uint32_t *at, *end; /* room for entries */
} xci_walk;

/* Fetches into the second level: a core has three times as many under way to there as to the
 * first. */
XCI_CPU_INLINE void xci_fetch(const uint8_t *weights, uint32_t position) {
    __builtin_prefetch((const void *)((uintptr_t)weights + position), 0, 2);
}

XCI_CPU_INLINE uint32_t *xci_list_put(uint32_t *at, const uint8_t *weights, uint32_t position,
                                      uint32_t mask) {
    xci_fetch(weights, position);
    *at = position << 8 | mask;
    return at + 1;
}

#define XCI_SINGLE_BYTES 5 /* of a block, at least */
#define XCI_SINGLE_LOADED 13

/* The walk's numbers in registers, for the fast path. */
typedef struct xci_singles {
    const uint8_t *in, *load_end, *end;
    uint32_t produced, limit;
    uint32_t *at;
    const uint8_t *weights;
} xci_singles;

XCI_CPU_INLINE xci_singles xci_singles_of(const xci_walk *walk) {
    const xci_lz4_walk *tokens = &walk->tokens;
    const int64_t loaded = tokens->end - tokens->at - XCI_SINGLE_LOADED;
    const int64_t listed = (walk->end - walk->at) * XCI_SINGLE_BYTES;
    const int64_t most = loaded < listed ? loaded : listed;
    return (xci_singles){
        .in = tokens->at,
        .load_end = tokens->at + (most > 0 && walk->left == 0 ? most : 0),
        .end = tokens->end,
        .produced = tokens->produced,
        .limit = tokens->bytes - (uint32_t)xci_min(tokens->bytes, XCI_LZ4_LAST_MATCH_START),
        .at = walk->at,
        .weights = walk->weights,
    };
}

XCI_CPU_INLINE void xci_singles_end(const xci_singles *singles, xci_walk *walk) {
    walk->tokens.at = singles->in;
    walk->tokens.produced = singles->produced;
    walk->at = singles->at;
}

/* What sparse masks consist of: one changed byte, one zero and a match of offset 1, in most cases
 * all seen in two loads.
 *
 *     2M xx 00 01 00 [length bytes]
 *
 * Lists one such sequence. False: it is another or near an end of the block. All that it takes
 * xci_lz4_next would take as well. No processor can predict whether length bytes follow: there is
 * no branch on it. */
XCI_CPU_INLINE bool xci_list_single(xci_singles *s) {
    if (s->in >= s->load_end)
        return false;
    const uint64_t head = xci_load64(s->in);
    if ((head & UINT64_C(0xffffff00f0)) != UINT64_C(0x0001000020))
        return false;
    const uint32_t nibble = head & XCI_LZ4_NIBBLE;
    const uint32_t has_length = (nibble + 1) >> 4, if_length = 0 - has_length;
    const uint64_t not_full = ~xci_load64(s->in + 5);
    uint32_t full = 0; /* length bytes of 255 */
    if (__builtin_expect(not_full != 0, 1))
        full = ((uint32_t)__builtin_ctzll(not_full) & if_length) / 8;
    else if (has_length)
        full = full_lengths(s->in + 5, s->end);
    if (full > s->limit / 255)
        return false;
    const uint32_t above = 255 * full + (s->in[5 + full] & if_length);
    const uint32_t next = s->produced + 2 + XCI_LZ4_MIN_MATCH + nibble + above;
    if (next > s->limit)
        return false;
    s->at = xci_list_put(s->at, s->weights, s->produced, head >> 8 & 0xff);
    s->produced = next;
    s->in += 5 + has_length + full;
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

/* Lists the next literals, up to a word of them. */
XCI_CPU_INLINE void xci_list_literals(xci_walk *walk) {
    const uint32_t count = walk->left < 8 ? walk->left : 8, position = walk->position;
    uint64_t mask = walk->tokens.end - walk->literals >= 8
                        ? xci_load64(walk->literals) & (UINT64_MAX >> (64 - 8 * count))
                        : xci_load_part(walk->literals, count);
    while (mask != 0) {
        const uint32_t shift = (uint32_t)__builtin_ctzll(mask) & ~7u;
        const uint64_t byte = mask >> shift & 0xff;
        walk->at = xci_list_put(walk->at, walk->weights, position + shift / 8, (uint32_t)byte);
        mask &= ~(UINT64_C(0xff) << shift);
    }
    walk->literals += count;
    walk->position = position + count;
    walk->left -= count;
}

/* Lists the next sequence, or what is left of one. False at the end of the block, where it is
 * damaged, or for want of room. */
XCI_CPU_INLINE bool xci_list_sequence(xci_walk *walk) {
    if (walk->left == 0 && !xci_next_literals(walk))
        return false;
    while (walk->left > 0) {
        if (walk->end - walk->at < XCI_LIST_STEP)
            return false;
        xci_list_literals(walk);
    }
    return true;
}

XCI_CPU_INLINE bool xci_may_walk(const xci_block_job *job) {
    return job->block_codec == XORCAST_CODEC_LZ4 && job->block_bytes < job->bytes;
}

/* Of no job, or of a block that is not walked, a walk without changes. `list` has room for
 * `entries`. */
static void xci_walk_open(xci_walk *walk, const xci_block_job *job, uint32_t *list,
                          uint64_t entries) {
    static const uint8_t nothing; /* an address to which zero may be added */
    *walk = (xci_walk){.tokens = xci_lz4_begin(&nothing, 0, 0)};
    walk->tokens.state = XCI_LZ4_BAD;
    if (job == NULL || !xci_may_walk(job))
        return;
    walk->tokens = xci_lz4_begin(job->block, job->block_bytes, job->bytes);
    walk->weights = job->weights;
    walk->at = list;
    walk->end = entries > 0 ? list + entries : list;
}

/* Goes on to the end of the block, or of the room. */
static void xci_walk_on(xci_walk *walk) {
    do {
        xci_singles singles = xci_singles_of(walk);
        while (xci_list_single(&singles))
            continue;
        xci_singles_end(&singles, walk);
    } while (xci_list_sequence(walk));
}

/* The block was good if the tokens' state is XCI_LZ4_DONE then. */
XCI_CPU_INLINE bool xci_walk_is_over(const xci_walk *walk) {
    return walk->left == 0 && walk->tokens.state != XCI_LZ4_INSIDE;
}

/* What becomes of a change: an entry of a list. */
typedef void (*xci_visitor)(void *state, uint32_t entry);

/* Calls visit for `count` entries while another block, or more of the same, is walked: what one
 * waits for is time for the other. */
XCI_CPU_INLINE void xci_visit_beside(const uint32_t *entries, uint32_t count, xci_walk *walk,
                                     xci_visitor visit, void *state) {
    const uint32_t *const end = entries + count;
    do {
        xci_singles singles = xci_singles_of(walk);
        while (entries < end && xci_list_single(&singles))
            visit(state, *entries++);
        xci_singles_end(&singles, walk);
    } while (entries < end && xci_list_sequence(walk));
    while (entries < end)
        visit(state, *entries++);
    xci_walk_on(walk);
}

#endif
