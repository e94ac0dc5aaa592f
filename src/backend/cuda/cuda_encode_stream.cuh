/* Old and new bytes of a chunk as 16-byte vectors of any alignment, each byte read from memory
 * once: a warp reads rows of 32 aligned vectors, from the end of the chunk to its beginning, and
 * where vectors do not lie aligned it makes them of two neighbours, the second by shuffle from
 * the next lane or from the row before. Bytes outside the chunk are never read; they are zero. */
#ifndef XCI_CUDA_ENCODE_STREAM_CUH
#define XCI_CUDA_ENCODE_STREAM_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_VECTOR 16u
#define XCI_ROW (XCI_WARP * XCI_VECTOR)

typedef struct xci_stream {
    const uint8_t *begin; /* of the chunk */
    uint32_t bytes;
    uint4 *next; /* in shared memory: the aligned vector behind the last rows that were shifted */
} xci_stream;

__device__ __forceinline__ uint32_t d_shift_of(const uint8_t *begin) {
    return (uint32_t)((uintptr_t)begin % XCI_VECTOR);
}

/* The aligned vector of the row at `low` that is this lane's. */
__device__ __forceinline__ const uint4 *d_vector_at(const uint8_t *begin, int32_t low) {
    const int64_t offset = (int64_t)low + d_lane() * XCI_VECTOR;
    return (const uint4 *)(begin - d_shift_of(begin) + offset);
}

/* An aligned vector, of which only the bytes in the chunk are read. */
__device__ __forceinline__ uint4 d_load_edge(const xci_stream *stream, const uint4 *at) {
    const uint8_t *bytes = (const uint8_t *)at;
    if (bytes >= stream->begin && bytes + XCI_VECTOR <= stream->begin + stream->bytes)
        return d_load_once(at);
    uint64_t low = 0, high = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < XCI_VECTOR; ++i) {
        if (bytes + i < stream->begin || bytes + i >= stream->begin + stream->bytes)
            continue;
        const uint64_t byte = (uint64_t)bytes[i] << i % 8 * 8;
        low |= i < 8 ? byte : 0;
        high |= i < 8 ? 0 : byte;
    }
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

/* For rows that end at `top` (a multiple of 16) and before. */
__device__ __forceinline__ void d_stream_begin(const xci_stream *stream, uint32_t top) {
    if (d_shift_of(stream->begin) != 0 && d_lane() == 0)
        *stream->next = d_load_edge(stream, d_vector_at(stream->begin, (int32_t)top));
    __syncwarp();
}

/* This lane's aligned vectors of ROWS rows that begin at `low`, all of them inside the chunk. */
template <uint32_t ROWS>
__device__ __forceinline__ void d_load_rows(const uint8_t *begin, int32_t low, uint4 *rows) {
    const uint4 *at = d_vector_at(begin, low);
#pragma unroll
    for (uint32_t row = 0; row < ROWS; ++row)
        rows[row] = d_load_once(at + row * XCI_WARP);
}

/* The same at the edges of a chunk or piece; rows before `bottom` are zero. */
template <uint32_t ROWS>
__device__ __forceinline__ void d_load_edge_rows(const xci_stream *stream, int32_t low,
                                                 int32_t bottom, uint4 *rows) {
    const uint4 *at = d_vector_at(stream->begin, low);
#pragma unroll
    for (uint32_t row = 0; row < ROWS; ++row)
        rows[row] = low + (int32_t)(row * XCI_ROW) >= bottom
                        ? d_load_edge(stream, at + row * XCI_WARP)
                        : make_uint4(0, 0, 0, 0);
}

/* From aligned vectors to those that begin with the chunk. */
template <uint32_t ROWS>
__device__ __forceinline__ void d_shift_rows(const xci_stream *stream, int32_t low, int32_t bottom,
                                             uint4 *rows) {
    uint4 next = *stream->next;
    __syncwarp();
    if (d_lane() == 0)
        *stream->next = rows[0];
    __syncwarp();
#pragma unroll
    for (uint32_t row = ROWS; row-- > 0;) {
        const uint4 first = d_shuffle_vector(rows[row], 0);
        uint4 right = d_shuffle_vector(rows[row], (d_lane() + 1) % XCI_WARP);
        if (d_lane() == XCI_WARP - 1)
            right = next;
        const bool inside = low + (int32_t)(row * XCI_ROW) >= bottom;
        const uint4 shifted = d_shift_vector(rows[row], right, d_shift_of(stream->begin));
        rows[row] = inside ? shifted : make_uint4(0, 0, 0, 0);
        next = first;
    }
}

#endif
