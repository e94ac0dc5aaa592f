/* Old and new bytes of a chunk as 16-byte vectors of any alignment, each byte read from memory once:
 * a warp reads rows of 32 aligned vectors, from the end of the chunk to its beginning, and where
 * vectors do not lie aligned it makes them of two neighbours, the second by shuffle from the next
 * lane or from the row before. Bytes outside the chunk are never read; they are zero. */
#ifndef XCI_CUDA_ENCODE_STREAM_CUH
#define XCI_CUDA_ENCODE_STREAM_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_VECTOR 16u
#define XCI_ROW (XCI_WARP * XCI_VECTOR)

typedef struct xci_stream {
    const uint8_t *begin; /* of the chunk */
    uint32_t bytes;
    uint32_t shift; /* of the first byte in its aligned vector */
    uint4 next;     /* the aligned vector behind the last rows that were shifted */
} xci_stream;

/* An aligned vector, of which only the bytes in [begin, end) are read. */
static __device__ __noinline__ uint4 d_load_edge(const uint8_t *begin, const uint8_t *end,
                                                 const uint4 *at) {
    const uint8_t *bytes = (const uint8_t *)at;
    if (bytes >= begin && bytes + XCI_VECTOR <= end)
        return d_load_once(at);
    uint32_t words[4] = {0, 0, 0, 0};
    if (bytes + XCI_VECTOR <= begin || bytes >= end)
        return make_uint4(0, 0, 0, 0);
#pragma unroll
    for (uint32_t i = 0; i < XCI_VECTOR; ++i)
        if (bytes + i >= begin && bytes + i < end)
            words[i / 4] |= (uint32_t)bytes[i] << i % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The aligned vector of the row at `low` that is this lane's. */
__device__ __forceinline__ const uint4 *d_vector_at(const xci_stream *stream, int32_t low) {
    const int64_t offset = (int64_t)low + d_lane() * XCI_VECTOR;
    return (const uint4 *)(stream->begin - stream->shift + offset);
}

/* For rows that end at `top` (a multiple of 16) and before. */
template <bool ALIGNED>
__device__ __forceinline__ xci_stream d_stream_begin(const uint8_t *at, uint32_t bytes,
                                                     uint32_t top) {
    xci_stream stream;
    stream.begin = at;
    stream.bytes = bytes;
    stream.shift = ALIGNED ? 0 : (uint32_t)((uintptr_t)at % XCI_VECTOR);
    stream.next = make_uint4(0, 0, 0, 0);
    if (stream.shift != 0)
        stream.next = d_load_edge(at, at + bytes, (const uint4 *)(at - stream.shift + top));
    return stream;
}

/* This lane's aligned vectors of ROWS rows that begin at `low`, all of them inside the chunk. */
template <uint32_t ROWS>
__device__ __forceinline__ void d_load_rows(const xci_stream *stream, int32_t low, uint4 *rows) {
    const uint4 *at = d_vector_at(stream, low);
#pragma unroll
    for (uint32_t row = 0; row < ROWS; ++row)
        rows[row] = d_load_once(at + row * XCI_WARP);
}

/* The same at the edges of a chunk or piece; rows before `bottom` are zero. */
template <uint32_t ROWS>
__device__ __forceinline__ void d_load_edge_rows(const xci_stream *stream, int32_t low,
                                                 int32_t bottom, uint4 *rows) {
    const uint4 *at = d_vector_at(stream, low);
#pragma unroll
    for (uint32_t row = 0; row < ROWS; ++row)
        rows[row] = low + (int32_t)(row * XCI_ROW) >= bottom
                        ? d_load_edge(stream->begin, stream->begin + stream->bytes,
                                      at + row * XCI_WARP)
                        : make_uint4(0, 0, 0, 0);
}

/* From aligned vectors to those that begin `shift` bytes later. */
template <uint32_t ROWS>
__device__ __forceinline__ void d_shift_rows(xci_stream *stream, int32_t low, int32_t bottom,
                                             uint4 *rows) {
    uint4 next = stream->next;
    stream->next = d_shuffle_vector(rows[0], 0);
#pragma unroll
    for (uint32_t row = ROWS; row-- > 0;) {
        const uint4 first = d_shuffle_vector(rows[row], 0);
        uint4 right = d_shuffle_vector(rows[row], (d_lane() + 1) % XCI_WARP);
        if (d_lane() == XCI_WARP - 1)
            right = next;
        const bool inside = low + (int32_t)(row * XCI_ROW) >= bottom;
        const uint4 shifted = d_shift_vector(rows[row], right, stream->shift);
        rows[row] = inside ? shifted : make_uint4(0, 0, 0, 0);
        next = first;
    }
}

#endif
