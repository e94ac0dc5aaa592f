/* Arithmetic of LZ4 blocks of the canonical zero-run rule (docs/format.md, "LZ4"), and a writer
 * that works from the end of a block to its beginning. Owns no memory and knows no weights.
 *
 * Backwards, because then everything that a byte's place depends on is known when it is written:
 * a token stands before its literals and tells their number, which a writer from the front learns
 * last. Bytes are named by their distance from the end: 0 is the last.
 *
 * The writer's ring is shared memory that holds the complement of each byte, and zeros where
 * nothing was written yet: so the 255s of long lengths, which may be thousands, are there without
 * being written, and several lanes can write to one word. */
#ifndef XCI_CUDA_ENCODE_LZ4_CUH
#define XCI_CUDA_ENCODE_LZ4_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "codec/lz4_block.h"

/* A zero run as a copy of `match` bytes, 0 if it stays literal. Literals go on at `anchor`. */
typedef struct xci_run {
    uint32_t match, anchor;
} xci_run;

/* What ends the literals to the left of a place, in one word, because it travels between lanes:
 * above, up to where they go; below, of the copy that comes then, what the token says of it, and
 * XCI_COPIES. Without a copy: the end of the block. */
#define XCI_COPIES 16u
typedef uint32_t xci_close;

__device__ __forceinline__ xci_close d_close(uint32_t end, uint32_t code) {
    return end * (2 * XCI_COPIES) | code;
}

__device__ __forceinline__ uint32_t d_close_end(xci_close close) {
    return close / (2 * XCI_COPIES);
}

/* The zero run [zero, stop) of a chunk of `bytes`. */
__device__ __forceinline__ xci_run d_run(uint32_t zero, uint32_t stop, uint32_t bytes) {
    const uint32_t copy_end = bytes > XCI_LZ4_LAST_LITERALS ? bytes - XCI_LZ4_LAST_LITERALS : 0;
    const uint32_t anchor = min(stop, copy_end);
    const bool copied =
        zero + 1 + XCI_LZ4_LAST_MATCH_START <= bytes && anchor >= zero + 1 + XCI_LZ4_MIN_MATCH;
    xci_run run;
    run.match = copied ? anchor - zero - 1 : 0;
    run.anchor = copied ? anchor : stop;
    return run;
}

/* A length as a token and the bytes behind it say it: `count` bytes, of which the last is `last`
 * and all others are 255. */
typedef struct xci_length {
    uint32_t nibble, count, last;
} xci_length;

__device__ __forceinline__ xci_length d_length(uint32_t length) {
    const uint32_t above = length - XCI_LZ4_NIBBLE, full = above / 255;
    xci_length l;
    l.nibble = min(length, XCI_LZ4_NIBBLE);
    l.count = length >= XCI_LZ4_NIBBLE ? full + 1 : 0;
    l.last = above - full * 255;
    return l;
}

__device__ __forceinline__ xci_length d_match_length(uint32_t match) {
    return d_length(match - XCI_LZ4_MIN_MATCH);
}

/* `match` 0: there is none. */
__device__ __forceinline__ uint32_t d_match_code(uint32_t match) {
    return match != 0 ? min(match - XCI_LZ4_MIN_MATCH, XCI_LZ4_NIBBLE) | XCI_COPIES : 0;
}

/* A token, for literals of that length, and the copy behind them: a code, or a close. */
__device__ __forceinline__ uint32_t d_token(xci_length literals, uint32_t code) {
    return literals.nibble << 4 | (code & XCI_LZ4_NIBBLE);
}

/* `bytes`, a power of two, and room behind them for what begins inside and ends outside. That is
 * added to the first bytes when these are taken out. */
#define XCI_RING_SPILL 16u
typedef struct xci_ring {
    uint32_t *words;
    uint32_t mask; /* of the place of a byte, to a multiple of four */
} xci_ring;

__device__ __forceinline__ uint32_t *d_ring_at(const xci_ring *ring, uint32_t from) {
    return (uint32_t *)((uint8_t *)ring->words + (from & ring->mask));
}

/* Up to eight bytes, given by their complement, whose first has distance ~from. */
__device__ __forceinline__ void d_put(const xci_ring *ring, uint32_t from, uint64_t inverse) {
    const uint32_t shift = from * 8; /* of which shifts use what a word needs */
    const uint32_t low = (uint32_t)inverse, high = (uint32_t)(inverse >> 32);
    uint32_t *at = d_ring_at(ring, from);
    d_set_bits<0>(at, low << (shift & 31));
    d_set_bits<1>(at, __funnelshift_l(low, high, shift));
    d_set_bits<2>(at, __funnelshift_l(high, 0, shift));
}

/* Up to four bytes. */
__device__ __forceinline__ void d_put_few(const xci_ring *ring, uint32_t from, uint32_t inverse) {
    const uint32_t shift = from * 8;
    uint32_t *at = d_ring_at(ring, from);
    d_set_bits<0>(at, inverse << (shift & 31));
    d_set_bits<1>(at, __funnelshift_l(inverse, 0, shift));
}

__device__ __forceinline__ void d_put_byte(const xci_ring *ring, uint32_t from, uint32_t byte) {
    d_put_few(ring, from, ~byte & 0xff);
}

/* Ones for the lowest `count` bytes, 0 to 8. */
__device__ __forceinline__ uint64_t d_ones(uint32_t count) {
    return count == 0 ? 0 : UINT64_MAX >> (64 - 8 * count);
}

/* Up to sixteen zeros. */
__device__ __forceinline__ void d_put_zeros(const xci_ring *ring, uint32_t from, uint32_t count) {
    d_put(ring, from, d_ones(min(count, 8u)));
    if (count > 8)
        d_put(ring, from + 8, d_ones(count - 8));
}

/* The writer of single tokens, for what is written once a block. Places are distances. */
__device__ __forceinline__ uint32_t d_put_length(const xci_ring *ring, uint32_t at, xci_length l) {
    if (l.count > 0)
        d_put_byte(ring, ~at, l.last);
    return at + l.count;
}

__device__ __forceinline__ uint32_t d_put_head(const xci_ring *ring, uint32_t at, uint32_t literals,
                                               uint32_t code) {
    const xci_length l = d_length(literals);
    at = d_put_length(ring, at, l);
    d_put_byte(ring, ~at, d_token(l, code));
    return at + 1;
}

/* The copy and the literal zero before it. */
__device__ __forceinline__ uint32_t d_put_match(const xci_ring *ring, uint32_t at, uint32_t match) {
    at = d_put_length(ring, at, d_match_length(match)) + 3;
    d_put_few(ring, 0u - at, 0xfffeff);
    return at;
}

#endif
