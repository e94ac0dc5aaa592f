/* Rows in which every word differs and no run of zeros is long enough to be copied: they are
 * literals, and go to the ring as they are. Most rows of dense chunks are like that, and so are
 * all of those that end as raw blocks. */
#ifndef XCI_CUDA_ENCODE_DENSE_CUH
#define XCI_CUDA_ENCODE_DENSE_CUH

#include "backend/cuda/cuda_encode_words.cuh"

/* A bit for each of the four bytes that is zero. */
__device__ __forceinline__ uint32_t d_zero_bytes(uint32_t v) {
    const uint32_t tops = ~(((v & 0x7f7f7f7f) + 0x7f7f7f7f) | v) & 0x80808080;
    return tops * 0x00204081 >> 28;
}

/* Whether a row has no five zeros in a row. */
__device__ __forceinline__ bool d_is_literal(uint4 mask) {
    const uint32_t mine = d_zero_bytes(mask.x) | d_zero_bytes(mask.y) << 4 |
                          d_zero_bytes(mask.z) << 8 | d_zero_bytes(mask.w) << 12;
    const uint32_t next = __shfl_down_sync(XCI_ALL, mine, 1);
    const uint32_t zeros = mine | (d_lane() + 1 < XCI_WARP ? next << 16 : 0);
    const uint32_t pairs = zeros & zeros >> 1;
    return !__any_sync(XCI_ALL, (pairs & pairs >> 2 & zeros >> 4) != 0);
}

/* The run of zeros between a row, whose last changed byte is before `end`, and what is written
 * already. One lane writes it, all keep count. */
__device__ __forceinline__ void d_write_gap(const xci_ring *ring, xci_block_state *state,
                                            uint32_t end, uint32_t bytes) {
    const xci_run run = d_run(end, state->first, bytes);
    const uint32_t zeros = state->first - (run.match != 0 ? run.anchor : end);
    uint32_t at = state->size + zeros;
    if (d_lane() == 0)
        d_put_zeros(ring, 0u - at, zeros);
    if (run.match != 0) {
        const uint32_t literals = d_close_end(state->close) - run.anchor;
        if (d_lane() == 0)
            d_put_match(ring, d_put_head(ring, at, literals, state->close), run.match);
        at += 1 + d_length(literals).count + d_match_length(run.match).count + 3;
        state->close = d_close(end + 1, d_match_code(run.match));
    }
    state->size = at;
}

/* The bytes of a vector that are in [from, to) of it, by their complement. */
__device__ __forceinline__ uint4 d_inverse(uint4 mask, uint32_t from, uint32_t to) {
    const uint64_t low = d_ones(min(to, 8u)) & ~d_ones(min(from, 8u));
    const uint64_t high = d_ones(max(to, 8u) - 8) & ~d_ones(max(from, 8u) - 8);
    return make_uint4(~mask.x & (uint32_t)low, ~mask.y & (uint32_t)(low >> 32),
                      ~mask.z & (uint32_t)high, ~mask.w & (uint32_t)(high >> 32));
}

/* Sixteen bytes, the first of which has distance ~from. */
__device__ __forceinline__ void d_put_vector(const xci_ring *ring, uint32_t from, uint4 inverse) {
    const uint32_t shift = from * 8;
    uint32_t *at = d_ring_at(ring, from);
    d_set_bits<0>(at, inverse.x << (shift & 31));
    d_set_bits<1>(at, __funnelshift_l(inverse.x, inverse.y, shift));
    d_set_bits<2>(at, __funnelshift_l(inverse.y, inverse.z, shift));
    d_set_bits<3>(at, __funnelshift_l(inverse.z, inverse.w, shift));
    d_set_bits<4>(at, __funnelshift_l(inverse.w, 0, shift));
}

/* A row at `offset` of the chunk that is literal. */
__device__ __forceinline__ void d_write_row(const xci_ring *ring, xci_block_state *state,
                                            uint4 mask, uint32_t offset, uint32_t bytes) {
    const uint64_t low = (uint64_t)mask.y << 32 | mask.x, high = (uint64_t)mask.w << 32 | mask.z;
    const uint32_t before = (uint32_t)(__ffsll((long long)low) - 1) / 8;
    const uint32_t behind = (uint32_t)__clzll((long long)high) / 8;
    const uint32_t first = __shfl_sync(XCI_ALL, before, 0);
    const uint32_t last = __shfl_sync(XCI_ALL, behind, XCI_WARP - 1);
    const uint32_t end = offset + XCI_ROW - last;
    d_write_gap(ring, state, end, bytes);
    const uint32_t mine = offset + d_lane() * XCI_VECTOR;
    d_put_vector(ring, 0u - (state->size + end - mine),
                 d_inverse(mask, d_lane() == 0 ? first : 0,
                           d_lane() == XCI_WARP - 1 ? XCI_VECTOR - last : XCI_VECTOR));
    state->first = offset + first;
    state->size += XCI_ROW - first - last;
    __syncwarp();
}

#endif
