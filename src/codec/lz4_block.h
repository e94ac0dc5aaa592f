/* The LZ4 block format: its limits, the canonical zero-run rule and a bounded reader of foreign
 * blocks. Header only, because the backend's hot loops are built from it. Does not own decoding
 * into memory (codec.c), encoding (backend/cpu/cpu_writer.h), what a mask means, or weights.
 *
 *     sequence = token, [literal length...], literals, offset (2 bytes), [match length...]
 *     block    = sequence..., token, [literal length...], literals
 *
 * The canonical rule. A maximal zero run becomes one literal zero plus one offset-1 match over
 * the rest, if that match is at least 4 bytes, starts at or before n-12 and ends at or before
 * n-5 (a longer run is cut there); otherwise it is literals. */
#ifndef XCI_LZ4_BLOCK_H
#define XCI_LZ4_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define XCI_LZ4_MIN_MATCH 4u
#define XCI_LZ4_NIBBLE 15u           /* length bytes follow */
#define XCI_LZ4_LAST_LITERALS 5u     /* no match reaches into the last 5 bytes */
#define XCI_LZ4_LAST_MATCH_START 12u /* nor starts in the last 11 */

typedef enum xci_lz4_state {
    XCI_LZ4_INSIDE,
    XCI_LZ4_DONE, /* after the last sequence, with input and output exactly used up */
    XCI_LZ4_BAD   /* after the first violation */
} xci_lz4_state;

/* A position in a foreign block. */
typedef struct xci_lz4_walk {
    const uint8_t *at, *end;
    uint32_t produced, bytes; /* decoded so far; the declared size, at most 1 MiB */
    xci_lz4_state state;
} xci_lz4_walk;

typedef struct xci_lz4_sequence {
    const uint8_t *literals;
    uint32_t position, literal_count;
    uint32_t match_count, offset; /* 0 in the last sequence */
} xci_lz4_sequence;

static inline xci_lz4_walk xci_lz4_begin(const uint8_t *block, uint32_t block_bytes,
                                         uint32_t bytes) {
    return (xci_lz4_walk){block, block + block_bytes, 0, bytes, XCI_LZ4_INSIDE};
}

/* The bytes of 255 that a chain of length bytes at `at` begins with; UINT32_MAX if the block's end
 * is too near to tell. */
static inline uint32_t xci_lz4_full_lengths(const uint8_t *at, const uint8_t *end) {
    uint32_t full = 0;
    for (; end - at > 8; at += 8, full += 8) {
        const uint64_t not_full = ~xci_load64(at);
        if (__builtin_expect(not_full != 0, 1))
            return full + (uint32_t)__builtin_ctzll(not_full) / 8;
    }
    return UINT32_MAX;
}

/* Adds a chain of length bytes to `*length`. Bounded by the input and by what is left to
 * produce, so that a long chain of 0xff ends early. */
static inline bool xci_lz4_read_length(xci_lz4_walk *walk, uint32_t *length) {
    const uint32_t left = walk->bytes - walk->produced;
    /* Eight bytes at once: nearly every chain ends among them. */
    if (walk->end - walk->at >= 8) {
        const uint64_t not_full = ~xci_load64(walk->at);
        if (not_full != 0) {
            const uint32_t full = (uint32_t)__builtin_ctzll(not_full) >> 3;
            *length += 255u * full + walk->at[full];
            walk->at += full + 1;
            return *length <= left;
        }
    }
    uint8_t byte;
    do {
        if (walk->at == walk->end || *length > left)
            return false;
        byte = *walk->at++;
        *length += byte;
    } while (byte == 255);
    return *length <= left;
}

/* The next sequence, checked against input and output, or false: the state tells why. */
static inline bool xci_lz4_next(xci_lz4_walk *walk, xci_lz4_sequence *sequence) {
    if (walk->state != XCI_LZ4_INSIDE)
        return false;
    walk->state = XCI_LZ4_BAD;
    if (walk->at == walk->end)
        return false;
    const uint32_t token = *walk->at++;
    uint32_t literals = token >> 4;
    if (literals == XCI_LZ4_NIBBLE && !xci_lz4_read_length(walk, &literals))
        return false;
    if (literals > (uint64_t)(walk->end - walk->at) || literals > walk->bytes - walk->produced)
        return false;
    sequence->literals = walk->at;
    sequence->position = walk->produced;
    sequence->literal_count = literals;
    walk->at += literals;
    walk->produced += literals;
    if (walk->at == walk->end) {
        sequence->match_count = 0;
        sequence->offset = 0;
        if (walk->produced != walk->bytes)
            return false;
        walk->state = XCI_LZ4_DONE;
        return true;
    }
    if (walk->end - walk->at < 2)
        return false;
    const uint32_t offset = xci_load16(walk->at);
    walk->at += 2;
    if (offset == 0 || offset > walk->produced)
        return false;
    uint32_t match = (token & XCI_LZ4_NIBBLE) + XCI_LZ4_MIN_MATCH;
    if (match == XCI_LZ4_NIBBLE + XCI_LZ4_MIN_MATCH && !xci_lz4_read_length(walk, &match))
        return false;
    const uint32_t left = walk->bytes - walk->produced;
    if (left < XCI_LZ4_LAST_MATCH_START || match > left - XCI_LZ4_LAST_LITERALS)
        return false;
    sequence->match_count = match;
    sequence->offset = offset;
    walk->produced += match;
    walk->state = XCI_LZ4_INSIDE;
    return true;
}

/* The zero-run profile: whether the sequence's match, if it has one, copies a zero. Matches must
 * have offset 1; what precedes one is a literal or, if it has none, a match that was found to be
 * zero. */
static inline bool xci_lz4_repeats_zero(const xci_lz4_sequence *sequence) {
    const bool zero =
        sequence->literal_count == 0 || sequence->literals[sequence->literal_count - 1] == 0;
    return sequence->match_count == 0 || (sequence->offset == 1 && zero);
}

#endif
