/* The walk over an LZ4 block of the zero-run profile by a group of threads, straight from its
 * tokens to masks of words. Owns every bounds check of a foreign block: the same blocks are
 * accepted as by codec/lz4_block.h with the profile of backend/cpu/cpu_block.h. Does not own
 * weights.
 *
 * All threads of a group walk the same tokens; each keeps one of the words found, so that a group
 * that has found as many words as it has threads works on all of them at once. Threads never speak
 * to each other here, so host tests can play the threads of a group one after the other.
 *
 * Reads the block in aligned words of 8 bytes that begin inside it or up to 8 bytes behind one
 * that does: never beyond 15 bytes behind its end. */
#ifndef XCI_CUDA_TOKENS_CUH
#define XCI_CUDA_TOKENS_CUH

#include "codec/lz4_block.h"

typedef struct xci_cuda_walk {
    const uint8_t *block; /* 8-byte aligned */
    uint32_t at, end;     /* in the block: the next token, and its size */
    uint32_t produced, bytes;
    uint32_t literal_at;     /* in the block: literals not yet taken, `left` of them, */
    uint32_t position, left; /* which stand at `position` of the chunk */
    uint32_t few;            /* those literals themselves, if `has_few` */
    bool has_few;
    xci_lz4_state state;
} xci_cuda_walk;

/* The changed bytes of word `word` (8 bytes) of the chunk; may be none. */
typedef struct xci_cuda_item {
    uint64_t mask;
    uint32_t word;
} xci_cuda_item;

XCI_BOTH xci_cuda_walk xci_cuda_walk_begin(const uint8_t *block, uint32_t block_bytes,
                                           uint32_t bytes) {
    const xci_cuda_walk walk = {block, 0, block_bytes, 0, bytes, 0, 0, 0, 0, false, XCI_LZ4_INSIDE};
    return walk;
}

/* Eight bytes at any offset of the block. */
XCI_BOTH uint64_t xci_cuda_stream(const uint8_t *block, uint32_t offset) {
#ifdef __CUDA_ARCH__
    const uint2 *const words = (const uint2 *)(block + (offset & ~7u));
    const uint2 first = words[0], second = words[1];
    const bool upper = (offset & 4) != 0;
    const uint32_t a = upper ? first.y : first.x;
    const uint32_t b = upper ? second.x : first.y;
    const uint32_t c = upper ? second.y : second.x;
    const uint32_t shift = 8 * (offset & 3);
    return (uint64_t)__funnelshift_r(b, c, shift) << 32 | __funnelshift_r(a, b, shift);
#else
    return xci_load64(block + offset);
#endif
}

/* How many bytes of a word, counted from its lowest, are full before the first that is not. */
XCI_BOTH uint32_t xci_cuda_full_bytes(uint32_t word) {
    if (word == UINT32_MAX)
        return 4;
#ifdef __CUDA_ARCH__
    return (uint32_t)(__ffs((int)~word) - 1) / 8;
#else
    return (uint32_t)__builtin_ctz(~word) / 8;
#endif
}

/* Adds a chain of length bytes from `*at` on to `*length`. */
XCI_BOTH bool xci_cuda_length(const xci_cuda_walk *walk, uint32_t *at, uint32_t *length) {
    const uint32_t left = walk->bytes - walk->produced;
    while (*at < walk->end && *length <= left) {
        const uint64_t bytes = xci_cuda_stream(walk->block, *at);
        if (~bytes != 0) {
            const uint32_t low = xci_cuda_full_bytes((uint32_t)bytes);
            const uint32_t full = low < 4 ? low : 4 + xci_cuda_full_bytes((uint32_t)(bytes >> 32));
            *at += full + 1;
            *length += 255 * full + (uint8_t)(bytes >> (8 * full));
            return *at <= walk->end && *length <= left;
        }
        *at += 8;
        *length += 8 * 255;
    }
    return false;
}

/* Literals that the first load of a sequence holds, with the byte before the offset, the offset and
 * a length byte. */
#define XCI_CUDA_SHORT_LITERALS 4u

/* Takes up the next sequence. False at the end of the block, or where it is damaged: the state
 * tells. The zero that a match repeats changes nothing and is not counted among the literals. */
XCI_BOTH bool xci_cuda_next(xci_cuda_walk *walk) {
    if (walk->state != XCI_LZ4_INSIDE)
        return false;
    walk->state = XCI_LZ4_BAD;
    uint32_t at = walk->at;
    if (at >= walk->end)
        return false;
    const uint64_t head = xci_cuda_stream(walk->block, at++);
    const uint32_t nibble = (uint32_t)head & XCI_LZ4_NIBBLE;
    uint32_t literals = (uint32_t)head >> 4 & XCI_LZ4_NIBBLE;
    if (literals == XCI_LZ4_NIBBLE && !xci_cuda_length(walk, &at, &literals))
        return false;
    if (literals > walk->end - at || literals > walk->bytes - walk->produced)
        return false;
    walk->literal_at = at;
    walk->position = walk->produced;
    walk->produced += literals;
    at += literals;
    if (at == walk->end) {
        if (walk->produced != walk->bytes)
            return false;
        walk->left = literals;
        walk->has_few = false;
        walk->state = XCI_LZ4_DONE;
        return true;
    }
    if (walk->end - at < 2)
        return false;
    const bool is_short = literals <= XCI_CUDA_SHORT_LITERALS;
    const uint64_t tail = is_short ? head >> (8 * literals) : xci_cuda_stream(walk->block, at - 1);
    at += 2;
    /* The offset is 1, and what it copies is a zero or was copied from one. */
    const bool zero = literals != 0 ? (tail & 0xffffff) == 0x0100
                                    : (tail & 0xffff00) == 0x0100 && walk->produced != 0;
    uint32_t match = XCI_LZ4_MIN_MATCH + nibble;
    if (nibble == XCI_LZ4_NIBBLE) {
        const uint32_t lengths = (uint32_t)(tail >> 24);
        const uint32_t full = xci_cuda_full_bytes(lengths);
        if (full < (is_short && literals != 0 ? 5 - literals : 4)) {
            at += full + 1;
            match += 255 * full + (uint8_t)(lengths >> (8 * full));
        } else if (!xci_cuda_length(walk, &at, &match)) {
            return false;
        }
    }
    const uint32_t left = walk->bytes - walk->produced;
    if (!zero || at > walk->end || left < XCI_LZ4_LAST_MATCH_START ||
        match > left - XCI_LZ4_LAST_LITERALS)
        return false;
    walk->left = literals - (literals != 0);
    walk->few = (uint32_t)(head >> 8) & ~(UINT32_MAX << (8 * (walk->left & 3)));
    walk->has_few = is_short; /* then no more than three are left */
    walk->produced += match;
    walk->at = at;
    walk->state = XCI_LZ4_INSIDE;
    return true;
}

/* How much of the block has been read for good. */
XCI_BOTH uint32_t xci_cuda_walk_read(const xci_cuda_walk *walk) {
    if (walk->left != 0)
        return walk->literal_at;
    return walk->state == XCI_LZ4_INSIDE ? walk->at : walk->end;
}

/* What of the literals lies in a word of the chunk: some of it does. */
XCI_BOTH uint64_t xci_cuda_piece(const xci_cuda_walk *walk, uint32_t word) {
    const uint32_t begin = walk->position > word * 8 ? walk->position : word * 8;
    const uint32_t end = walk->position + walk->left;
    const uint32_t count = (end < word * 8 + 8 ? end : word * 8 + 8) - begin;
    const uint64_t bytes =
        xci_cuda_stream(walk->block, walk->literal_at + (begin - walk->position));
    return (bytes & UINT64_MAX >> (64 - 8 * count)) << (8 * (begin & 7));
}

/* Finds the next words of the block, `group` of them or, at its end, fewer; thread `lane` gets
 * the one with its number, or none (mask 0). Words rise and each is found once. Returns how
 * many: 0 at the end of the block or where it is damaged; words found before that are good as
 * far as the walk knows. */
XCI_BOTH uint32_t xci_cuda_take(xci_cuda_walk *walk, uint32_t lane, uint32_t group,
                                xci_cuda_item *mine) {
    uint32_t count = 0, last = UINT32_MAX;
    mine->mask = 0;
    mine->word = 0;
    for (;;) {
        if (walk->left == 0) {
            if (!xci_cuda_next(walk))
                return count;
            continue;
        }
        const uint32_t first = walk->position / 8, end = walk->position + walk->left;
        /* A word may hold the end of one sequence's literals and the beginning of the next
         * one's. */
        const uint32_t slot = count - (first == last);
        if (slot == group)
            return count;
        const uint32_t pieces = (end - 1) / 8 - first + 1;
        if (walk->has_few && pieces == 1) {
            if (lane == slot) {
                mine->word = first;
                mine->mask |= (uint64_t)walk->few << (8 * (walk->position & 7));
            }
            walk->left = 0;
            count = slot + 1;
            last = first;
            continue;
        }
        const uint32_t taken = pieces < group - slot ? pieces : group - slot;
        if (lane - slot < taken) {
            mine->word = first + (lane - slot);
            mine->mask |= xci_cuda_piece(walk, mine->word);
        }
        const uint32_t stop = taken == pieces ? end : (first + taken) * 8;
        walk->has_few = false;
        walk->literal_at += stop - walk->position;
        walk->left = end - stop;
        walk->position = stop;
        count = slot + taken;
        last = first + taken - 1;
    }
}

#endif
