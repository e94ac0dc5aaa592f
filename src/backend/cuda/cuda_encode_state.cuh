/* What a warp holds while it works, and the way of bytes from its ring to the slot. */
#ifndef XCI_CUDA_ENCODE_STATE_CUH
#define XCI_CUDA_ENCODE_STATE_CUH

#include "backend/cuda/cuda_encode_park.cuh"
#include "backend/cuda/cuda_encode_words.cuh"

/* A warp's shared memory; its ring lies behind. */
typedef struct __align__(16) xci_warp_memory {
    xci_feed_memory feed;
    xci_list list;
    xci_encode_tally tally;
    xci_parking parking;
    uint32_t flushed; /* bytes of the block that have left the ring, or more than there are */
}
xci_warp_memory;

/* Whole lines of 128 bytes, so that a row of a tile is whole lines in every warp. */
__host__ __device__ static inline uint32_t xci_warp_shared(uint32_t ring_bytes) {
    return ((uint32_t)sizeof(xci_warp_memory) + ring_bytes + XCI_RING_SPILL + 127) / 128 * 128;
}

/* What a warp holds while it works. */
typedef struct xci_encoder {
    const xci_cuda_encode_call *call;
    const xci_encode_plan *plan;
    xci_warp_memory *memory;
    xci_ring ring;
    xci_feed feed;
    xci_block_state state;
    uint32_t listed; /* words */
} xci_encoder;

/* Moves the next row of the block out of the ring, of which `flushed` bytes have been moved. */
__device__ __forceinline__ void d_flush_row(xci_encoder *e, uint32_t flushed) {
    xci_parking *parking = &e->memory->parking;
    uint4 *at = (uint4 *)d_ring_at(&e->ring, 0u - flushed - XCI_ROW) + d_lane();
    uint4 row = *at;
    *at = make_uint4(0, 0, 0, 0);
    if (at == (uint4 *)e->ring.words) {
        uint4 *spill = (uint4 *)((uint8_t *)e->ring.words + e->plan->ring_bytes);
        row = make_uint4(row.x | spill->x, row.y | spill->y, row.z | spill->z, row.w | spill->w);
        *spill = make_uint4(0, 0, 0, 0);
    }
    row = make_uint4(~row.x, ~row.y, ~row.z, ~row.w);
    if (XCI_RARE(parking->straight != NULL))
        d_store_edge(parking->straight,
                     (int32_t)(parking->straight_bytes - flushed - XCI_ROW + d_lane() * XCI_VECTOR),
                     parking->straight_bytes, row);
    else
        d_store_row(e->call, e->plan->words, parking, row);
}

/* Moves rows out of the ring as long as more than `limit` bytes are in it. */
__device__ __forceinline__ void d_flush(xci_encoder *e, uint32_t limit) {
    uint32_t flushed = e->memory->flushed;
    if (XCI_USUAL((int32_t)(e->state.size - flushed) <= (int32_t)limit))
        return;
#pragma unroll 1
    for (; (int32_t)(e->state.size - flushed) > (int32_t)limit; flushed += XCI_ROW)
        d_flush_row(e, flushed);
    __syncwarp();
    if (d_lane() == 0)
        e->memory->flushed = flushed;
    __syncwarp();
}

#endif
