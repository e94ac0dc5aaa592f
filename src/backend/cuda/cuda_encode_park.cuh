/* Blocks that are done and wait for their place in the output. Which place a block has depends on
 * chunks that other warps are at, some of which take several times as long as others; so blocks
 * stay where they were written, in order, in the warp's slot, and the warp goes on. A slot is a
 * ring of rows in global memory, filled from its end to its beginning. */
#ifndef XCI_CUDA_ENCODE_PARK_CUH
#define XCI_CUDA_ENCODE_PARK_CUH

#include "backend/cuda/cuda_encode_back.cuh"
#include "backend/cuda/cuda_encode_copy.cuh"
#include "backend/cuda/cuda_encode_order.cuh"

#define XCI_PARKED 16u /* blocks; a power of two, at most a warp */

typedef struct xci_parked {
    uint32_t index, bytes;
    uint16_t row, rows; /* of the slot: where the block ends, and how many it has */
} xci_parked;

/* In shared memory, with the queue. */
typedef struct xci_parking {
    xci_parked queue[XCI_PARKED];
    uint32_t first, count; /* of the queue */
    uint8_t *slot;
    uint32_t slot_rows, room; /* rows of the slot; of those, free */
    uint32_t row, stored;     /* the row for the block in the making; its rows so far */
    bool outgrown;            /* the slot: not all its rows are there */
    bool padded;              /* blocks begin with a row; else they end with one */
    /* Where the block in the making is written straight to, when it has its place; else NULL. */
    uint8_t *straight;
    uint32_t straight_bytes;
} xci_parking;

__device__ __forceinline__ xci_parked *d_parked(xci_parking *parking, uint32_t i) {
    return &parking->queue[(parking->first + i) % XCI_PARKED];
}

/* The place in the output. Returns whether the block fits there. One lane. */
__device__ __forceinline__ bool d_set_place(xci_cuda_result *result, uint32_t bytes, uint64_t place,
                                            uint64_t capacity) {
    const bool fits = bytes == 0 || place + bytes <= capacity;
    result->block_offset = place;
    if (!fits)
        result->status = XORCAST_BUFFER_TOO_SMALL;
    return fits;
}

/* Writes a block that is parked to its place: what of it lies below the slot's upper end, and
 * then the rest. */
static __device__ __forceinline__ void d_unpark(const xci_parking *parking,
                                                const xci_parked *parked, uint8_t *to) {
    const uint32_t padding = parking->padded ? (0u - parked->bytes) % XCI_ROW : 0;
    const uint32_t below = (parked->row + 1u) * XCI_ROW - padding;
    const uint32_t bytes = min(parked->bytes, below), rest = parked->bytes - bytes;
    d_copy(to + rest, parking->slot + (below - bytes), bytes);
    if (XCI_RARE(rest > 0))
        d_copy(to, parking->slot + (uint64_t)parking->slot_rows * XCI_ROW - rest, rest);
}

/* Old as it was, of a block that is parked, or in the making, and ends in `row`. */
__device__ __forceinline__ void d_take_slot_back(const xci_parking *parking, uint32_t row,
                                                 uint32_t bytes, uint32_t codec, uint8_t *old_at) {
    const uint32_t padding = parking->padded ? (0u - bytes) % XCI_ROW : 0;
    d_take_back(d_slot_block(parking->slot, parking->slot_rows * XCI_ROW,
                             (row + 1) * XCI_ROW - padding, bytes),
                codec, old_at);
}

/* Lets go of a block that is parked and does not fit. */
static __device__ __noinline__ void d_drop_parked(const xci_cuda_encode_call *call,
                                                  const xci_parking *parking,
                                                  const xci_parked *parked) {
    xci_cuda_result *result = &call->results[parked->index];
    if (result->moved == 0)
        return;
    d_take_slot_back(parking, parked->row, parked->bytes, result->block_codec,
                     call->old_at[call->first + parked->index]);
    if (d_lane() == 0)
        result->moved = 0;
}

/* Writes the blocks whose places are known, first ones first, and lets go of them. */
static __device__ __noinline__ void d_place_parked(const xci_cuda_encode_call *call,
                                                   const uint64_t *words, xci_parking *parking) {
    const uint32_t count = parking->count;
    uint64_t word = 0;
    if (d_lane() < count)
        word = d_load_shared_word(&words[d_parked(parking, d_lane())->index]);
    const uint64_t place = word & XCI_ORDER_VALUE;
    const uint32_t unknown = ~__ballot_sync(XCI_ALL, word >= XCI_ORDER_PLACE);
    const uint32_t known = unknown != 0 ? (uint32_t)__ffs((int)unknown) - 1 : XCI_WARP;
    bool fits = false;
    uint32_t rows = 0;
    if (d_lane() < known) {
        const xci_parked *parked = d_parked(parking, d_lane());
        fits = d_set_place(&call->results[parked->index], parked->bytes, place, call->capacity) &&
               parked->bytes > 0;
        rows = parked->rows;
    }
    const uint32_t writable = __ballot_sync(XCI_ALL, fits);
#pragma unroll 1
    for (uint32_t i = 0; i < known; ++i) {
        const uint64_t to = __shfl_sync(XCI_ALL, place, i);
        if (XCI_USUAL((writable >> i & 1) != 0))
            d_unpark(parking, d_parked(parking, i), call->blocks + to);
        else
            d_drop_parked(call, parking, d_parked(parking, i));
    }
    rows = d_sum(rows);
    __syncwarp();
    if (d_lane() == 0) {
        parking->first += known;
        parking->count -= known;
        parking->room += rows;
    }
    __syncwarp();
}

/* Stores a row of the block in the making, of which each lane has a vector, before those stored.
 * If it needs to, waits for parked blocks to go; if there are none, the block outgrows the slot. */
__device__ __forceinline__ void d_store_row(const xci_cuda_encode_call *call, const uint64_t *words,
                                            xci_parking *parking, uint4 vector) {
    while (XCI_RARE(parking->room == 0) && parking->count != 0) {
        d_place_parked(call, words, parking);
        d_pause();
    }
    const uint32_t row = parking->row, room = parking->room;
    if (XCI_USUAL(room != 0))
        *(uint4 *)(parking->slot + (uint64_t)row * XCI_ROW + d_lane() * XCI_VECTOR) = vector;
    __syncwarp();
    if (d_lane() == 0) {
        if (room != 0) {
            parking->row = (row != 0 ? row : parking->slot_rows) - 1;
            parking->room = room - 1;
            ++parking->stored;
        } else {
            parking->outgrown = true;
        }
    }
    __syncwarp();
}

/* The row in which the block in the making ends. */
__device__ __forceinline__ uint32_t d_end_row(const xci_parking *parking) {
    const uint32_t row = parking->row + parking->stored;
    return row >= parking->slot_rows ? row - parking->slot_rows : row;
}

/* Parks the block that was stored. */
__device__ __forceinline__ void d_park(const xci_cuda_encode_call *call, const uint64_t *words,
                                       xci_parking *parking, uint64_t index, uint32_t bytes) {
    while (XCI_RARE(parking->count == XCI_PARKED)) {
        d_place_parked(call, words, parking);
        d_pause();
    }
    if (d_lane() == 0) {
        xci_parked *parked = d_parked(parking, parking->count);
        parked->index = (uint32_t)index;
        parked->bytes = bytes;
        parked->row = (uint16_t)d_end_row(parking);
        parked->rows = (uint16_t)parking->stored;
    }
    __syncwarp();
    if (d_lane() == 0) {
        ++parking->count;
        parking->stored = 0;
    }
    __syncwarp();
}

/* Takes back all rows of the block in the making. One lane. */
__device__ __forceinline__ void d_drop_rows(xci_parking *parking) {
    parking->row = d_end_row(parking);
    parking->room += parking->stored;
    parking->stored = 0;
    parking->outgrown = false;
}

/* Where a block goes that is not in the slot, once that is known and all before it are written.
 * NULL: it does not fit. */
static __device__ __noinline__ uint8_t *d_wait_for_place(const xci_cuda_encode_call *call,
                                                         const uint64_t *words, uint64_t index,
                                                         uint32_t bytes) {
    uint64_t place;
    while (!d_has_place(words, index, &place))
        d_pause();
    bool fits = false;
    if (d_lane() == 0)
        fits = d_set_place(&call->results[index], bytes, place, call->capacity);
    return __any_sync(XCI_ALL, fits) ? call->blocks + place : NULL;
}

#endif
