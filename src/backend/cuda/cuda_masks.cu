/* check_masks: what check and prepare do, for blocks whose masks lie decoded in memory. A thread
 * block a chunk: each warp has a stretch of its mask, counts and sums it, and then, once all know
 * how many entries come before theirs, writes its part of the list over the block, which nobody
 * reads any more. */
#include "backend/cuda/cuda_group.cuh"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_tally.cuh"

#define WARP 32u
#define WARPS 8u
#define THREADS (WARP * WARPS)
#define AHEAD 4u /* words of a mask, and old ones, that a thread has in flight */

/* A warp's stretch of a mask, in words of 8 bytes; the last may be shorter. */
typedef struct xci_cuda_stretch {
    const uint64_t *words;
    uint32_t begin, end; /* of the stretch */
    uint32_t bytes;      /* of the chunk */
} xci_cuda_stretch;

static __device__ __forceinline__ xci_cuda_stretch d_stretch_of(const uint8_t *mask,
                                                                uint32_t bytes) {
    const uint32_t words = (bytes + 7) / 8, each = (words + WARPS - 1) / WARPS;
    const uint32_t begin = threadIdx.x / WARP * each;
    return {(const uint64_t *)mask, begin < words ? begin : words,
            begin + each < words ? begin + each : words, bytes};
}

static __device__ __forceinline__ uint64_t d_stretch_word(const xci_cuda_stretch &stretch,
                                                          uint32_t word) {
    if (word >= stretch.end)
        return 0;
    const uint32_t left = stretch.bytes - word * 8;
    return left < 8 ? stretch.words[word] & ((UINT64_C(1) << (8 * left)) - 1) : stretch.words[word];
}

/* Calls visit(word, masks) for the stretch, AHEAD words a lane that are a row apart, where any lane
 * has one that changes; all lanes together, words rising. */
template <typename Visit>
static __device__ __forceinline__ void d_visit_rows_of(const xci_cuda_stretch &stretch,
                                                       Visit visit) {
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t row = stretch.begin; row < stretch.end; row += AHEAD * WARP) {
        uint64_t masks[AHEAD], any = 0;
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; ++i)
            any |= masks[i] = d_stretch_word(stretch, row + i * WARP + lane);
        if (__any_sync(UINT32_MAX, any != 0))
            visit(row + lane, masks);
    }
}

/* Where the tally of a stretch is kept, and what it is counted by. */
typedef struct xci_cuda_counter {
    xci_cuda_place place;
    xci_cuda_segments segments;
    uint32_t element_bytes;
    xci_cuda_tally tally;
} xci_cuda_counter;

/* All old words are asked for before the first is needed: they lie anywhere. */
static __device__ __forceinline__ void d_count_rows(xci_cuda_counter *counter, uint32_t word,
                                                    const uint64_t *masks) {
    uint64_t olds[AHEAD];
    bool placed[AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; ++i) {
        olds[i] = 0;
        placed[i] = false;
        if (masks[i] == 0)
            continue;
        const xci_cuda_spot spot = d_first_spot(&counter->place, word + i * WARP);
        placed[i] = spot.bytes != 0;
        olds[i] = d_load_spot(spot);
    }
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; ++i) {
        uint64_t kept, key;
        if (masks[i] == 0)
            continue;
        d_count_mask(&counter->tally, masks[i], counter->element_bytes);
        if (placed[i] && d_find_key(&counter->segments, word + i * WARP, &kept, &key))
            d_add_change(&counter->tally, olds[i], masks[i], kept, key);
    }
}

static __device__ __forceinline__ xci_cuda_tally d_tally_stretch(const xci_cuda_block_call &call,
                                                                 const xci_cuda_stretch &stretch,
                                                                 uint64_t index) {
    const xci_cuda_chunk chunk = call.grid.chunks[index];
    xci_cuda_counter counter = {};
    counter.place = d_place_of(call.places, index, chunk.bytes);
    counter.segments = d_segments_of(call.grid, chunk);
    counter.element_bytes = chunk.element_bytes;
    d_visit_rows_of(stretch, [&](uint32_t word, const uint64_t *masks) {
        d_count_rows(&counter, word, masks);
    });
    d_sum_tally(&counter.tally, WARP);
    return counter.tally;
}

/* Entries of the stretch, from number `at` of the list on. */
static __device__ __forceinline__ void d_write_stretch(const xci_cuda_stretch &stretch,
                                                       uint32_t *list, uint32_t at) {
    d_visit_rows_of(stretch, [&](uint32_t word, const uint64_t *masks) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; ++i) {
            if (!__any_sync(UINT32_MAX, masks[i] != 0))
                continue;
            const uint32_t mine = d_changed_bytes(masks[i]);
            const uint32_t end = d_group_prefix(mine, WARP);
            uint32_t *entry = list + at + end - mine;
            uint32_t position = (word + i * WARP) * 8;
            for (uint64_t mask = masks[i]; mask != 0; mask >>= 8, ++position)
                if ((mask & 0xff) != 0)
                    *entry++ = d_entry(position, (uint32_t)mask & 0xff);
            at += __shfl_sync(UINT32_MAX, end, WARP - 1);
        }
    });
}

/* The whole chunk's; the same in all threads. `before_out`: entries of the warps before this. */
static __device__ __forceinline__ xci_cuda_tally d_sum_warps(const xci_cuda_tally &mine,
                                                             uint32_t *before_out) {
    __shared__ xci_cuda_tally parts[WARPS];
    const uint32_t warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == 0)
        parts[warp] = mine;
    __syncthreads();
    xci_cuda_tally sum = {};
    for (uint32_t i = 0; i < WARPS; ++i) {
        if (i == warp)
            *before_out = sum.bytes;
        sum.bits += parts[i].bits;
        sum.bytes += parts[i].bytes;
        sum.elements += parts[i].elements;
        d_add(&sum.change, parts[i].change);
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS) k_check_masks(const xci_cuda_mask_call call) {
    const uint64_t index = blockIdx.x;
    xci_cuda_block block = call.of.blocks[index];
    const uint32_t bytes = call.of.grid.chunks[block.chunk].bytes;
    xci_cuda_result result = {};
    result.block_bytes = block.block_bytes;
    result.block_codec = block.block_codec;
    if (call.decoded[2 * index] != bytes) {
        result.status = XORCAST_DATA_CORRUPT;
        if (threadIdx.x == 0) {
            call.of.results[index] = result;
            if (call.of.any_bad != nullptr)
                *call.of.any_bad = 1;
        }
        return;
    }
    const xci_cuda_stretch stretch = d_stretch_of(call.masks + index * call.stride, bytes);
    uint32_t before = 0;
    const xci_cuda_tally tally =
        d_sum_warps(d_tally_stretch(call.of, stretch, block.chunk), &before);
    const uint32_t list_bytes = tally.bytes * XCI_CUDA_ENTRY_BYTES;
    if (list_bytes <= block.block_bytes)
        d_write_stretch(stretch, (uint32_t *)block.bytes, before);
    if (threadIdx.x != 0)
        return;
    result.bytes_changed = tally.bytes;
    result.elements_changed = tally.elements;
    result.bits_changed = tally.bits;
    result.change = tally.change;
    result.list_bytes = list_bytes <= block.block_bytes ? list_bytes : 0;
    call.of.results[index] = result;
    if (result.list_bytes == 0)
        return;
    block.block_bytes = list_bytes;
    block.block_codec = XCI_CUDA_CODEC_LIST;
    /* The caller's blocks are not constant; they only are for check and apply. */
    ((xci_cuda_block *)call.of.blocks)[index] = block;
}

extern "C" int xci_cuda_check_masks(const xci_cuda_mask_call *call, void *stream) {
    return d_launch(k_check_masks, *call, call->of.count, 1, THREADS, stream);
}
