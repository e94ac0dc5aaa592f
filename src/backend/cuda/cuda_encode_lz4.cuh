/* Arithmetic of LZ4 blocks of the canonical zero-run rule (docs/format.md, "LZ4"), and a writer
 * that works from the end of a block to its beginning. Owns no memory and knows no weights.
 *
 * Backwards, because then everything that a byte's place depends on is known when it is written:
 * a token stands before its literals and tells their number, which a writer from the front learns
 * last. Bytes are named by their distance from the end: 0 is the last. */
#ifndef XCI_CUDA_ENCODE_LZ4_CUH
#define XCI_CUDA_ENCODE_LZ4_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "codec/lz4_block.h"

/* A zero run as a copy of `match` bytes, 0 if it stays literal. Literals go on at `anchor`. */
typedef struct xci_run {
    uint32_t match, anchor;
} xci_run;

/* What ends the literals to the left of a place: they go up to `end`, then come `match` copied
 * bytes. 0: the end of the block, or that it is not known yet. */
typedef struct xci_close {
    uint32_t end, match;
} xci_close;

/* The zero run [zero, stop) of a chunk of `bytes`. */
__device__ __forceinline__ xci_run d_run(uint32_t zero, uint32_t stop, uint32_t bytes) {
    const uint32_t copy_end = bytes > XCI_LZ4_LAST_LITERALS ? bytes - XCI_LZ4_LAST_LITERALS : 0;
    const uint32_t anchor = min(stop, copy_end);
    const bool copied =
        zero + 1 + XCI_LZ4_LAST_MATCH_START <= bytes && anchor >= zero + 1 + XCI_LZ4_MIN_MATCH;
    xci_run run;
    run.match = copied ? anchor - zero - 1 : 0;
    run.anchor = anchor;
    return run;
}

/* Length bytes behind the nibble. */
__device__ __forceinline__ uint32_t d_length_bytes(uint32_t length) {
    return length < XCI_LZ4_NIBBLE ? 0 : (length - XCI_LZ4_NIBBLE) / 255 + 1;
}

/* A token and the length of its literals. */
__device__ __forceinline__ uint32_t d_head_bytes(uint32_t literals) {
    return 1 + d_length_bytes(literals);
}

/* What follows the literals. */
__device__ __forceinline__ uint32_t d_match_bytes(uint32_t match) {
    return 2 + d_length_bytes(match - XCI_LZ4_MIN_MATCH);
}

/* A run of 255s that is left to the whole warp: longer ones than a lane writes alone. */
#define XCI_OWN_FILL 6u
typedef struct xci_fill {
    uint32_t at;
    uint32_t count;
} xci_fill;

/* Where a writer writes: distance t is base[~t & mask]. A ring has its size - 1; memory that ends
 * at `base` has all ones, and ~t is then -1 - t. */
typedef struct xci_sink {
    uint8_t *base;
    uint32_t mask;
} xci_sink;

__device__ __forceinline__ void d_put(xci_sink sink, uint32_t at, uint32_t byte) {
    sink.base[(int32_t)(~at & sink.mask)] = (uint8_t)byte;
}

__device__ __forceinline__ uint32_t d_put_zeros(xci_sink sink, uint32_t at, uint32_t count) {
    for (; XCI_RARE(count > 0); --count)
        d_put(sink, at++, 0);
    return at;
}

/* The bytes of a length, without the nibble. Many 255s are handed out. */
__device__ __forceinline__ uint32_t d_put_length(xci_sink sink, uint32_t at, uint32_t length,
                                                 xci_fill *fill) {
    fill->count = 0;
    if (length < XCI_LZ4_NIBBLE)
        return at;
    const uint32_t above = length - XCI_LZ4_NIBBLE, full = above / 255;
    d_put(sink, at++, above - full * 255);
    if (XCI_RARE(full > XCI_OWN_FILL)) {
        fill->at = at;
        fill->count = full;
        return at + full;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < full; ++i)
        d_put(sink, at++, 255);
    return at;
}

__device__ __forceinline__ uint32_t d_put_head(xci_sink sink, uint32_t at, uint32_t literals,
                                               uint32_t match, xci_fill *fill) {
    at = d_put_length(sink, at, literals, fill);
    const uint32_t code = match != 0 ? match - XCI_LZ4_MIN_MATCH : 0;
    d_put(sink, at++, min(literals, XCI_LZ4_NIBBLE) << 4 | min(code, XCI_LZ4_NIBBLE));
    return at;
}

/* The copy and the literal zero before it. */
__device__ __forceinline__ uint32_t d_put_match(xci_sink sink, uint32_t at, uint32_t match,
                                                xci_fill *fill) {
    at = d_put_length(sink, at, match - XCI_LZ4_MIN_MATCH, fill);
    d_put(sink, at++, 0);
    d_put(sink, at++, 1);
    d_put(sink, at++, 0);
    return at;
}

/* Writes what lanes handed out; a whole warp. */
__device__ __forceinline__ void d_put_fills(xci_sink sink, const xci_fill *fill) {
    uint32_t lanes = __ballot_sync(XCI_ALL, fill->count > 0);
    while (lanes != 0) {
        const uint32_t lane = d_highest(lanes);
        lanes ^= 1u << lane;
        const uint32_t at = __shfl_sync(XCI_ALL, fill->at, lane);
        const uint32_t count = __shfl_sync(XCI_ALL, fill->count, lane);
        for (uint32_t i = d_lane(); i < count; i += XCI_WARP)
            d_put(sink, at + i, 255);
    }
}

#endif
