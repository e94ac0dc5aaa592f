/* Blocks that wait for their place in the output. Which place a block has depends on chunks that
 * other blocks of threads are at, some of which take several times as long as others; so blocks
 * are parked, in order, in a ring in global memory, and workers go on. Larger blocks than half
 * the ring are not parked. One packer owns a parking. */
#ifndef XCI_CUDA_ENCODE_PARK_CUH
#define XCI_CUDA_ENCODE_PARK_CUH

#include "backend/cuda/cuda_encode_pack.cuh"

#define XCI_PARKED 64u            /* blocks */
#define XCI_PARK_BYTES (1u << 16) /* of the ring */

typedef struct xci_parked {
    uint64_t index;
    uint32_t bytes, end; /* end: of the block in the ring, counted on and on */
} xci_parked;

typedef struct xci_parking {
    xci_parked *queue; /* XCI_PARKED, in shared memory */
    uint8_t *ring;
    uint32_t first, count; /* of the queue */
    uint32_t begin, end;   /* of the ring's bytes that are taken */
} xci_parking;

__device__ __forceinline__ xci_parked *d_parked(const xci_parking *parking, uint32_t i) {
    return &parking->queue[(parking->first + i) % XCI_PARKED];
}

/* Writes a block that is parked to its place. */
__device__ __forceinline__ void d_unpark(const xci_cuda_encode_call *call,
                                         const xci_parking *parking, const xci_parked *parked,
                                         uint64_t place) {
    if (parked->bytes == 0 || place + parked->bytes > call->capacity)
        return;
    const uint32_t room = (parked->bytes + XCI_VECTOR - 1) / XCI_VECTOR * XCI_VECTOR;
    d_copy(call->blocks + place, parking->ring + (parked->end - room) % XCI_PARK_BYTES,
           parked->bytes);
}

/* Writes the blocks whose places are known, first ones first, and lets go of them. */
__device__ __forceinline__ void d_place_parked(const xci_cuda_encode_call *call,
                                               const uint64_t *words, xci_parking *parking) {
    uint64_t word = 0;
    if (d_lane() < parking->count)
        word = d_load_shared_word(&words[d_parked(parking, d_lane())->index]);
    const uint64_t place = word & XCI_ORDER_VALUE;
    const uint32_t unknown = ~__ballot_sync(XCI_ALL, word >= XCI_ORDER_PLACE);
    const uint32_t known = unknown != 0 ? (uint32_t)__ffs((int)unknown) - 1 : XCI_WARP;
    if (d_lane() < known) {
        const xci_parked *parked = d_parked(parking, d_lane());
        d_set_place(&call->results[parked->index], parked->bytes, place, call->capacity);
    }
#pragma unroll 1
    for (uint32_t i = 0; i < known; ++i) {
        const xci_parked *parked = d_parked(parking, i);
        d_unpark(call, parking, parked, __shfl_sync(XCI_ALL, place, i));
        parking->begin = parked->end;
    }
    parking->first += known;
    parking->count -= known;
    __syncwarp();
}

/* Waits until there is room for a block, and takes it. NULL: the block is too large. */
__device__ __forceinline__ uint8_t *d_park(const xci_cuda_encode_call *call, const uint64_t *words,
                                           xci_parking *parking, uint64_t index, uint32_t bytes) {
    if (bytes > XCI_PARK_BYTES / 2)
        return NULL;
    const uint32_t room = (bytes + XCI_VECTOR - 1) / XCI_VECTOR * XCI_VECTOR;
    uint32_t begin = parking->end;
    if (begin % XCI_PARK_BYTES + room > XCI_PARK_BYTES)
        begin += XCI_PARK_BYTES - begin % XCI_PARK_BYTES;
    while (parking->count == XCI_PARKED ||
           (parking->count > 0 && begin + room - parking->begin > XCI_PARK_BYTES)) {
        d_place_parked(call, words, parking);
        d_pause();
    }
    parking->begin = parking->count > 0 ? parking->begin : begin;
    parking->end = begin + room;
    if (d_lane() == 0) {
        xci_parked *parked = d_parked(parking, parking->count);
        parked->index = index;
        parked->bytes = bytes;
        parked->end = parking->end;
    }
    ++parking->count;
    __syncwarp();
    return parking->ring + begin % XCI_PARK_BYTES;
}

/* Where a block goes that is too large to be parked, once that is known and all before it is
 * written. NULL: it does not fit. */
__device__ __forceinline__ uint8_t *d_wait_for_place(const xci_cuda_encode_call *call,
                                                     const uint64_t *words, xci_parking *parking,
                                                     uint64_t index, uint32_t bytes) {
    while (parking->count > 0) {
        d_place_parked(call, words, parking);
        d_pause();
    }
    uint64_t place;
    while (!d_has_place(words, index, &place))
        d_pause();
    bool fits = false;
    if (d_lane() == 0)
        fits = d_set_place(&call->results[index], bytes, place, call->capacity);
    return __any_sync(XCI_ALL, fits) ? call->blocks + place : NULL;
}

/* A chunk whose pieces are done: says its size, sets its result, and parks or writes its block.
 * The pieces are not needed any more. */
__device__ __forceinline__ void d_finish_chunk(const xci_cuda_encode_call *call, uint64_t *words,
                                               const xci_pack *pack, xci_parking *parking) {
    const uint64_t index = pack->job->index;
    xci_joint joint;
    xci_block_plan plan;
    uint32_t codec;
    d_size_block(pack, call->codec, &joint, &plan, &codec);
    d_say_size(words, index, plan.size);
    d_set_result(pack, &plan, codec, &call->results[index]);
    __syncwarp();
    uint8_t *block = d_park(call, words, parking, index, plan.size);
    if (block == NULL)
        block = d_wait_for_place(call, words, parking, index, plan.size);
    if (plan.size != 0 && block != NULL)
        d_write_block(pack, &joint, &plan, codec, call->codec, block);
    __syncwarp();
}

#endif
