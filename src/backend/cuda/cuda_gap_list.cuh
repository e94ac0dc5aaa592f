/* Lists the changed words of all units and counts what they come to: the one time that old and new
 * are read as a whole. A warp works on one unit after the other and needs nobody else. */
#ifndef XCI_CUDA_GAP_LIST_CUH
#define XCI_CUDA_GAP_LIST_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "backend/cuda/cuda_gap_changes.cuh"
#include "backend/cuda/cuda_tally.cuh"

#define XCI_LIST_THREADS 128u
#define XCI_ROW_BYTES (XCI_WARP * 16u)
#define XCI_ROWS 8u /* that a warp reads at a time */
#define XCI_TILE_BYTES (XCI_ROWS * XCI_ROW_BYTES)
#define XCI_WAITING (31u + 64u) /* words: fewer than 32, and those of a row */

/* Words that wait for their turn, in shared memory. */
typedef struct xci_gap_waiting {
    uint64_t masks[XCI_WAITING + 1], olds[XCI_WAITING + 1];
    uint32_t words[XCI_WAITING + 1];
} xci_gap_waiting;

/* A warp's shared memory. */
typedef struct xci_gap_lister_memory {
    xci_gap_waiting waiting;
    uint32_t entries[XCI_LISTED_MOST * 3];
} xci_gap_lister_memory;

typedef struct xci_gap_lister {
    const uint8_t *old_at, *new_at;
    uint32_t bytes, element_bytes;
    xci_cuda_segments segments;
    xci_cuda_tally tally; /* the lane's */
    uint32_t nibbles;
    xci_gap_waiting *waiting;
    uint32_t count; /* that wait */
    uint32_t *entries;
    uint32_t listed; /* entries so far, or XCI_NOT_LISTED */
} xci_gap_lister;

/* ---- Loading ---- */

__device__ __forceinline__ uint64_t d_load_bytes(const uint8_t *at, uint32_t count) {
    uint64_t word = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

/* Sixteen bytes of any alignment, of which `left` are there. */
__device__ __forceinline__ uint4 d_load_part(const uint8_t *at, uint32_t left) {
    const uint64_t low = d_load_bytes(at, min(left, 8u));
    const uint64_t high = left > 8 ? d_load_bytes(at + 8, min(left - 8, 8u)) : 0;
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

/* The lane's vectors of the tile at `first`; zeros behind `end`. */
__device__ __forceinline__ void d_load_tile(const uint8_t *at, uint32_t first, uint32_t end,
                                            bool aligned, uint4 *rows) {
    const uint32_t offset = first + d_lane() * 16;
    if (XCI_USUAL(aligned && end - first >= XCI_TILE_BYTES)) {
#pragma unroll
        for (uint32_t row = 0; row < XCI_ROWS; ++row)
            rows[row] = d_load_once((const uint4 *)(at + offset + row * XCI_ROW_BYTES));
        return;
    }
#pragma unroll
    for (uint32_t row = 0; row < XCI_ROWS; ++row) {
        const uint32_t from = offset + row * XCI_ROW_BYTES;
        if (aligned && from + 16 <= end)
            rows[row] = d_load_once((const uint4 *)(at + from));
        else
            rows[row] = from < end ? d_load_part(at + from, end - from) : make_uint4(0, 0, 0, 0);
    }
}

/* ---- Listing ---- */

/* Counts and lists the first `count` words that wait, at most 32. */
__device__ __forceinline__ void d_list_batch(xci_gap_lister *lister, uint32_t count) {
    const xci_gap_waiting *waiting = lister->waiting;
    if (lister->listed != XCI_NOT_LISTED && lister->listed + count > XCI_LISTED_MOST)
        lister->listed = XCI_NOT_LISTED;
    if (d_lane() < count) {
        const uint64_t mask = waiting->masks[d_lane()], old_word = waiting->olds[d_lane()];
        const uint32_t word = waiting->words[d_lane()];
        uint64_t kept, key;
        xci_cuda_segments segments = lister->segments;
        d_count_mask(&lister->tally, mask, lister->element_bytes);
        lister->nibbles += (uint32_t)__popcll(d_marks(mask, 0));
        if (d_find_key(&segments, word, &kept, &key)) {
            const xorcast_digest before = d_term(old_word & kept, key);
            const xorcast_digest after = d_term((old_word ^ mask) & kept, key);
            lister->tally.change.lane[0] += after.lane[0] - before.lane[0];
            lister->tally.change.lane[1] += after.lane[1] - before.lane[1];
        }
        if (lister->listed != XCI_NOT_LISTED) {
            uint32_t *entry = lister->entries + (lister->listed + d_lane()) * 3;
            entry[0] = word;
            entry[1] = (uint32_t)mask;
            entry[2] = (uint32_t)(mask >> 32);
        }
    }
    if (lister->listed != XCI_NOT_LISTED)
        lister->listed += count;
}

/* Works on full batches, or on all words that wait. */
__device__ __forceinline__ void d_list_waiting(xci_gap_lister *lister, bool all) {
    xci_gap_waiting *waiting = lister->waiting;
    __syncwarp();
#pragma unroll 1
    while (lister->count >= (all ? 1u : XCI_WARP)) {
        const uint32_t batch = min(lister->count, XCI_WARP), left = lister->count - batch;
        d_list_batch(lister, batch);
        for (uint32_t at = d_lane(); at < (left + XCI_WARP - 1) / XCI_WARP * XCI_WARP;
             at += XCI_WARP) {
            const bool moves = at < left;
            const uint32_t from = moves ? at + batch : 0;
            const uint64_t mask = waiting->masks[from], old_word = waiting->olds[from];
            const uint32_t word = waiting->words[from];
            __syncwarp();
            if (moves) {
                waiting->masks[at] = mask;
                waiting->olds[at] = old_word;
                waiting->words[at] = word;
            }
            __syncwarp();
        }
        lister->count = left;
        __syncwarp();
    }
}

/* The words of a row that differ, in order, join those that wait. */
__device__ __forceinline__ void d_add_row(xci_gap_lister *lister, uint32_t offset, uint4 mask,
                                          uint4 old_part) {
    const uint64_t low = (uint64_t)mask.y << 32 | mask.x, high = (uint64_t)mask.w << 32 | mask.z;
    const uint32_t lows = __ballot_sync(XCI_ALL, low != 0);
    const uint32_t highs = __ballot_sync(XCI_ALL, high != 0);
    const uint32_t below = (1u << d_lane()) - 1;
    uint32_t at = lister->count + (uint32_t)(__popc(lows & below) + __popc(highs & below));
    if ((lows | highs) == 0)
        return;
    if (low != 0) {
        lister->waiting->masks[at] = low;
        lister->waiting->olds[at] = (uint64_t)old_part.y << 32 | old_part.x;
        lister->waiting->words[at++] = offset / 8;
    }
    if (high != 0) {
        lister->waiting->masks[at] = high;
        lister->waiting->olds[at] = (uint64_t)old_part.w << 32 | old_part.z;
        lister->waiting->words[at] = offset / 8 + 1;
    }
    lister->count += (uint32_t)(__popc(lows) + __popc(highs));
    if (lister->count >= XCI_WARP)
        d_list_waiting(lister, false);
}

/* Bytes [begin, end) of the chunk. */
__device__ __forceinline__ void d_list_unit(xci_gap_lister *lister, uint32_t begin, uint32_t end) {
    const bool aligned = ((uintptr_t)lister->old_at | (uintptr_t)lister->new_at) % 16 == 0;
#pragma unroll 1
    for (uint32_t first = begin; first < end; first += XCI_TILE_BYTES) {
        uint4 olds[XCI_ROWS], masks[XCI_ROWS];
        uint32_t any = 0;
        d_load_tile(lister->old_at, first, end, aligned, olds);
        d_load_tile(lister->new_at, first, end, aligned, masks);
#pragma unroll
        for (uint32_t row = 0; row < XCI_ROWS; ++row) {
            masks[row] = make_uint4(masks[row].x ^ olds[row].x, masks[row].y ^ olds[row].y,
                                    masks[row].z ^ olds[row].z, masks[row].w ^ olds[row].w);
            any |= masks[row].x | masks[row].y | masks[row].z | masks[row].w;
        }
        if (!__any_sync(XCI_ALL, any != 0))
            continue;
#pragma unroll
        for (uint32_t row = 0; row < XCI_ROWS; ++row)
            d_add_row(lister, first + row * XCI_ROW_BYTES + d_lane() * 16, masks[row], olds[row]);
    }
    d_list_waiting(lister, true);
}

/* ---- Units ---- */

/* Moves a unit's list to the scratch, if there is room. */
__device__ __forceinline__ void d_keep_list(const xci_gap_scratch *scratch, uint32_t unit,
                                            const xci_gap_lister *lister) {
    unsigned long long at = 0;
    const uint32_t words = lister->listed != XCI_NOT_LISTED ? lister->listed * 3 : 0;
    if (d_lane() == 0 && words != 0)
        at = atomicAdd(&scratch->counters[1], (unsigned long long)words);
    at = __shfl_sync(XCI_ALL, at, 0);
    const bool fits = lister->listed != XCI_NOT_LISTED && at + words <= scratch->list_words;
    if (d_lane() == 0) {
        scratch->units[unit].entries = scratch->lists + at;
        scratch->units[unit].count = fits ? lister->listed : XCI_NOT_LISTED;
    }
    for (uint32_t i = d_lane(); fits && i < words; i += XCI_WARP)
        scratch->lists[at + i] = lister->entries[i];
    __syncwarp();
}

__device__ __forceinline__ void d_add_tally(xci_cuda_result *result, uint32_t *nibbles_out,
                                            xci_cuda_tally tally, uint32_t nibbles) {
    if (!__any_sync(XCI_ALL, tally.bytes != 0))
        return;
    d_sum_tally(&tally, XCI_WARP);
    nibbles = d_sum(nibbles);
    if (d_lane() != 0)
        return;
    atomicAdd(nibbles_out, nibbles);
    atomicAdd(&result->bytes_changed, tally.bytes);
    atomicAdd(&result->elements_changed, tally.elements);
    atomicAdd((unsigned long long *)&result->bits_changed, (unsigned long long)tally.bits);
    atomicAdd((unsigned long long *)&result->change.lane[0],
              (unsigned long long)tally.change.lane[0]);
    atomicAdd((unsigned long long *)&result->change.lane[1],
              (unsigned long long)tally.change.lane[1]);
}

__device__ __forceinline__ void d_work_on_unit(const xci_cuda_gap_encode_call *call,
                                               const xci_gap_scratch *scratch, uint32_t unit,
                                               xci_gap_lister_memory *memory) {
    const uint32_t index = unit / scratch->units_per_chunk;
    const uint32_t begin = (unit - index * scratch->units_per_chunk) * XCI_UNIT_BYTES;
    const uint64_t number = call->first + index;
    const xci_cuda_chunk chunk = call->grid.chunks[number];
    if (begin >= chunk.bytes) {
        if (d_lane() == 0)
            scratch->units[unit].count = 0;
        return;
    }
    xci_gap_lister lister = {};
    lister.old_at = call->old_at[number];
    lister.new_at = call->new_at[number];
    lister.bytes = chunk.bytes;
    lister.element_bytes = chunk.element_bytes;
    lister.segments = d_segments_of(call->grid, chunk);
    lister.waiting = &memory->waiting;
    lister.entries = memory->entries;
    d_list_unit(&lister, begin, min(chunk.bytes, begin + XCI_UNIT_BYTES));
    d_keep_list(scratch, unit, &lister);
    d_add_tally(&call->results[index], &scratch->nibbles[index], lister.tally, lister.nibbles);
}

__global__ void __launch_bounds__(XCI_LIST_THREADS)
    k_gap_list(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    xci_gap_lister_memory *memory = (xci_gap_lister_memory *)shared + threadIdx.x / XCI_WARP;
    for (;;) {
        unsigned long long unit = 0;
        if (d_lane() == 0)
            unit = atomicAdd(&scratch.counters[0], 1ull);
        unit = __shfl_sync(XCI_ALL, unit, 0);
        if (unit >= scratch.unit_count)
            return;
        d_work_on_unit(&call, &scratch, (uint32_t)unit, memory);
    }
}

#endif
