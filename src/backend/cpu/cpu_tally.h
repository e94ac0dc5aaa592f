/* What a change does: counts of bits, bytes and elements, and the change of the digest, from
 * changed words alone. Shared by encode and check, so that both sides of a delta count alike.
 * Owns where a word lies in the chunk's segments; does not own finding the changed words.
 *
 * The file that includes it defines count_masks(masks, count, element_bytes, tally): adds the
 * bytes and elements that are not zero in `count` masks of words, behind which XCI_MASK_PAD
 * zeros may be read. */
#ifndef XCI_CPU_TALLY_H
#define XCI_CPU_TALLY_H

#include <string.h>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/digest.h"

#define XCI_CPU_INLINE static inline __attribute__((always_inline))

/* So that vectors of any size may be loaded from the end of a list of masks. */
#define XCI_MASK_PAD 7u

typedef struct xci_tally {
    uint64_t bits, bytes, elements;
    uint64_t low, high; /* lanes of the digest's change */
} xci_tally;

/* Where words of a chunk lie in its segments. */
typedef struct xci_cursor {
    const xci_segment *segment, *segment_end; /* the one looked at, and after the last */
    uint32_t word_end; /* from the last word looked at to here they lie wholly in the segment */
    uint64_t key; /* of word 0 of the chunk, if it were the segment's */
} xci_cursor;

/* A job that nothing counts has no segments, not even an address to add 0 to. */
XCI_CPU_INLINE xci_cursor xci_cursor_over(const xci_segment *segments, uint32_t count) {
    return (xci_cursor){.segment = segments,
                        .segment_end = count > 0 ? segments + count : segments};
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
    return left >= 8 ? xci_load64(at + (size_t)index * 8)
                     : xci_load_part(at + (size_t)index * 8, left);
}

/* The change of the digest by a word at `key`. */
XCI_CPU_INLINE xorcast_digest xci_digest_change(uint64_t old_word, uint64_t new_word,
                                                uint64_t key) {
    uint64_t old_low, old_high, new_low, new_high;
    xci_digest_term(old_word, key, &old_low, &old_high);
    xci_digest_term(new_word, key, &new_low, &new_high);
    return (xorcast_digest){{new_low - old_low, new_high - old_high}};
}

/* The same for a word that the cursor is not ready for: a later segment's, the last part of one,
 * or no one's. */
static __attribute__((noinline)) xorcast_digest
xci_digest_edge(xci_cursor *cursor, uint32_t word, uint64_t old_word, uint64_t new_word) {
    const uint64_t offset = (uint64_t)word * 8;
    const xci_segment *segment = cursor->segment;
    while (segment < cursor->segment_end && (uint64_t)segment->offset + segment->bytes <= offset)
        ++segment;
    cursor->segment = segment;
    if (segment == cursor->segment_end || offset < segment->offset)
        return (xorcast_digest){{0, 0}};
    cursor->key = segment->key - segment->offset / 8 * XCI_DIGEST_STRIDE;
    cursor->word_end = (segment->offset + segment->bytes) / 8;
    const uint64_t left = (uint64_t)segment->offset + segment->bytes - offset;
    const uint64_t kept = left >= 8 ? UINT64_MAX : (UINT64_C(1) << (left * 8)) - 1;
    return xci_digest_change(old_word & kept, new_word & kept,
                             cursor->key + word * XCI_DIGEST_STRIDE);
}

/* Adds bits and digest of one word and the change of it. Words come in rising order, each once. */
XCI_CPU_INLINE void xci_tally_word(xci_tally *tally, xci_cursor *cursor, uint32_t word,
                                   uint64_t old_word, uint64_t change) {
    tally->bits += (uint64_t)__builtin_popcountll(change);
    const xorcast_digest digest =
        __builtin_expect(word < cursor->word_end, 1)
            ? xci_digest_change(old_word, old_word ^ change, cursor->key + word * XCI_DIGEST_STRIDE)
            : xci_digest_edge(cursor, word, old_word, old_word ^ change);
    tally->low += digest.lane[0];
    tally->high += digest.lane[1];
}

#endif
