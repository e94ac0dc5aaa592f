/* What a change does: counts of bits, bytes and elements, and the change of the digest, from changed words
 * alone. Shared by encode and check, so that both sides of a delta count alike. Owns where a word lies in
 * the chunk's segments; does not own finding the changed words. */
#ifndef XCI_CPU_TALLY_H
#define XCI_CPU_TALLY_H

#include <string.h>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/digest.h"

#define XCI_CPU_INLINE static inline __attribute__((always_inline))

#define XCI_LOW_BITS UINT64_C(0x7f7f7f7f7f7f7f7f)
#define XCI_TOP_BITS UINT64_C(0x8080808080808080)
#define XCI_LOWEST_BITS UINT64_C(0x0101010101010101)

/* Where the words of a chunk lie in its segments. Apart from the sums, which stay in registers. */
typedef struct xci_cursor {
    const xci_segment *segment, *segment_end; /* the one that `first_word` belongs to, and after the last */
    uint32_t first_word, full_words;          /* words of the segment that lie wholly in it */
    uint64_t key;                             /* of first_word */
} xci_cursor;

typedef struct xci_tally {
    uint64_t bits, bytes, elements, low, high; /* low, high: the lanes of the digest's change */
    uint64_t element_mask; /* the lowest bit of each element of a word */
    uint32_t fold[3];      /* shifts that OR the lowest bits of an element's bytes into that one; 0: none */
} xci_tally;

/* Bit 7 of every byte that is not zero. */
XCI_CPU_INLINE uint64_t xci_nonzero_bytes(uint64_t word) {
    return (((word & XCI_LOW_BITS) + XCI_LOW_BITS) | word) & XCI_TOP_BITS;
}

/* `count` bytes (0 .. 7) as a word whose other bytes are zero. */
XCI_CPU_INLINE uint64_t xci_load_part(const uint8_t *at, uint32_t count) {
    uint64_t word = 0;
    memcpy(&word, at, count);
    return word;
}

/* Word `index` of a chunk of `bytes`; what lies behind its end is zero. */
XCI_CPU_INLINE uint64_t xci_load_word(const uint8_t *at, uint32_t index, uint32_t bytes) {
    const uint32_t left = bytes - index * 8;
    return left >= 8 ? xci_load64(at + (size_t)index * 8) : xci_load_part(at + (size_t)index * 8, left);
}

static inline void xci_cursor_set(xci_cursor *cursor, const xci_segment *segment) {
    cursor->segment = segment;
    if (segment == cursor->segment_end) {
        cursor->full_words = 0;
        return;
    }
    cursor->first_word = segment->offset / 8;
    cursor->full_words = segment->bytes / 8;
    cursor->key = segment->key;
}

XCI_CPU_INLINE xci_cursor xci_cursor_begin(const xci_segment *segments, uint32_t segment_count) {
    /* A job that nothing counts has no segments, not even an address to add 0 to. */
    xci_cursor cursor = {.segment_end = segment_count > 0 ? segments + segment_count : segments};
    xci_cursor_set(&cursor, segments);
    return cursor;
}

XCI_CPU_INLINE xci_tally xci_tally_begin(uint32_t element_bytes) {
    xci_tally tally = {.element_mask = XCI_LOWEST_BITS};
    for (uint32_t level = 0, width = 1; width < element_bytes; ++level, width *= 2) {
        tally.fold[level] = width * 8;
        tally.element_mask &= UINT64_MAX / ((UINT64_C(1) << (width * 8)) + 1);
    }
    return tally;
}

/* The change of the digest by a word at `key`. */
XCI_CPU_INLINE xorcast_digest xci_digest_change(uint64_t old_word, uint64_t new_word, uint64_t key) {
    uint64_t old_low, old_high, new_low, new_high;
    xci_digest_term(old_word, key, &old_low, &old_high);
    xci_digest_term(new_word, key, &new_low, &new_high);
    return (xorcast_digest){{new_low - old_low, new_high - old_high}};
}

/* The same for a word that is not wholly in the current segment: the next segment's, the last part of one, or no
 * one's. */
static __attribute__((noinline)) xorcast_digest xci_digest_edge(xci_cursor *cursor, uint32_t word,
                                                                uint64_t old_word, uint64_t new_word) {
    const uint64_t offset = (uint64_t)word * 8;
    const xci_segment *segment = cursor->segment;
    while (segment < cursor->segment_end && (uint64_t)segment->offset + segment->bytes <= offset)
        ++segment;
    xci_cursor_set(cursor, segment);
    if (segment == cursor->segment_end || offset < segment->offset)
        return (xorcast_digest){{0, 0}};
    const uint64_t left = (uint64_t)segment->offset + segment->bytes - offset;
    const uint64_t kept = left >= 8 ? UINT64_MAX : (UINT64_C(1) << (left * 8)) - 1;
    return xci_digest_change(old_word & kept, new_word & kept,
                             cursor->key + (uint64_t)(word - cursor->first_word) * XCI_DIGEST_STRIDE);
}

/* Adds one word and the change of it, which is not 0. Words come in rising order, each once. */
XCI_CPU_INLINE void xci_tally_word(xci_tally *tally, xci_cursor *cursor, uint32_t word, uint64_t old_word,
                                   uint64_t change) {
    const uint64_t bytes = xci_nonzero_bytes(change) >> 7;
    uint64_t elements = bytes;
    elements |= elements >> tally->fold[2];
    elements |= elements >> tally->fold[1];
    elements |= elements >> tally->fold[0];
    tally->bits += (uint64_t)__builtin_popcountll(change);
    tally->bytes += (uint64_t)__builtin_popcountll(bytes);
    tally->elements += (uint64_t)__builtin_popcountll(elements & tally->element_mask);
    const uint64_t index = word - cursor->first_word;
    const xorcast_digest digest =
        __builtin_expect((uint32_t)index < cursor->full_words, 1)
            ? xci_digest_change(old_word, old_word ^ change, cursor->key + (uint32_t)index * XCI_DIGEST_STRIDE)
            : xci_digest_edge(cursor, word, old_word, old_word ^ change);
    tally->low += digest.lane[0];
    tally->high += digest.lane[1];
}

#endif
