/* Old and new bytes of a piece of a chunk, streamed by one warp into its shared memory ahead of use,
 * from the end to the beginning: each byte is read from memory once, and processing does not keep
 * loads waiting. Tiles of a few rows of 32 aligned vectors of 16 bytes; where a chunk does not lie
 * aligned, its vectors are put together from two, the second of which may be of the tile before.
 * Nothing is read behind the chunk, nor before the aligned vector that holds its first byte. */
#ifndef XCI_CUDA_ENCODE_STREAM_CUH
#define XCI_CUDA_ENCODE_STREAM_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_VECTOR 16u
#define XCI_ROW (XCI_WARP * XCI_VECTOR)
#ifndef XCI_TILE_ROWS
#define XCI_TILE_ROWS 2u
#endif
#define XCI_TILE (XCI_TILE_ROWS * XCI_ROW)
#ifndef XCI_TILES
#define XCI_TILES 3u /* one is worked on, the others are on their way */
#endif

/* A warp's tiles of one of the two buffers. */
typedef struct xci_tiles {
    uint4 rows[XCI_TILES][XCI_TILE_ROWS * XCI_WARP];
    uint4 next; /* the aligned vector behind the tile that is worked on */
} xci_tiles;

typedef struct xci_stream {
    uint32_t tiles_at; /* in shared memory */
    const uint8_t *begin; /* of the chunk */
    uint32_t bytes, shift; /* shift: of the first byte in its aligned vector */
} xci_stream;

__device__ __forceinline__ xci_stream d_stream(uint32_t tiles_at, const uint8_t *begin,
                                               uint32_t bytes) {
    xci_stream stream;
    stream.tiles_at = tiles_at;
    stream.begin = begin;
    stream.bytes = bytes;
    stream.shift = (uint32_t)((uintptr_t)begin % XCI_VECTOR);
    return stream;
}

__device__ __forceinline__ xci_tiles *d_tiles(const xci_stream *stream) {
    return (xci_tiles *)d_near(stream->tiles_at);
}

/* Fetches the aligned vector at `offset` from the first; bytes behind the chunk are zero. */
__device__ __forceinline__ void d_fetch_edge(const xci_stream *stream, uint4 *to, int32_t offset,
                                             bool wanted) {
    const int32_t left = (int32_t)(stream->bytes + stream->shift) - offset;
    const uint32_t bytes = wanted ? (uint32_t)min(max(left, 0), (int32_t)XCI_VECTOR) : 0;
    const uint8_t *at = stream->begin - stream->shift + (bytes > 0 ? offset : 0);
    d_copy_async_part(to, (const uint4 *)at, bytes);
}

/* Fetches the tile at `left` into place `tile`; rows before `bottom` are not read. */
__device__ __forceinline__ void d_fetch_tile(const xci_stream *stream, uint32_t tile, int32_t left,
                                             int32_t bottom) {
    uint4 *to = &d_tiles(stream)->rows[tile][d_lane()];
    const int32_t offset = left + (int32_t)(d_lane() * XCI_VECTOR);
    if (left >= bottom && left + (int32_t)XCI_TILE <= (int32_t)(stream->bytes + stream->shift)) {
        const uint4 *from = (const uint4 *)(stream->begin - stream->shift + offset);
#pragma unroll
        for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row)
            d_copy_async(to + row * XCI_WARP, from + row * XCI_WARP);
    } else {
#pragma unroll 1
        for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row)
            d_fetch_edge(stream, to + row * XCI_WARP, offset + (int32_t)(row * XCI_ROW),
                         left + (int32_t)(row * XCI_ROW) >= bottom);
    }
}

/* This lane's vector of a row of a tile that has arrived. */
__device__ __forceinline__ uint4 d_row(const xci_stream *stream, uint32_t tile, uint32_t row) {
    const uint4 *at = &d_tiles(stream)->rows[tile][row * XCI_WARP + d_lane()];
    const uint4 v = *at;
    if (stream->shift == 0)
        return v;
    const bool last = row * XCI_WARP + d_lane() + 1 == XCI_TILE_ROWS * XCI_WARP;
    return d_shift_vector(v, last ? d_tiles(stream)->next : at[1], stream->shift);
}

/* Keeps what the tile to the left needs of this one. */
__device__ __forceinline__ void d_leave_tile(const xci_stream *stream, uint32_t tile) {
    if (stream->shift != 0 && d_lane() == 0)
        d_tiles(stream)->next = d_tiles(stream)->rows[tile][0];
}

#endif
