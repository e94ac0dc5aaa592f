/* apply: XORs blocks into weights where they lie. Two kernels, one behind the other: lists, and what is
 * still tokens or raw; each passes over the other's blocks.
 *
 * Memory is what bounds it: nearly every changed byte is in a 32-byte sector of its own, which is read,
 * changed and written back. Such sectors are fastest when those of one stretch of memory are asked
 * for at about the same time, hence many threads on the entries of neighbouring chunks, in order.
 * Tokens are found by groups of few threads: large groups would do the same work in each
 * (bench/kernels/README.md, "CUDA apply").
 *
 * Bounds are checked again: whatever a block says, no byte outside its chunk's places is touched. */
#include "backend/cuda/cuda_group.cuh"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_places.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#ifndef LIST_THREADS
#define LIST_THREADS 256u
#define LIST_BLOCKS 8u
#define LIST_AHEAD 4u /* entries that a thread has in flight */
#endif

#define THREADS 128u
#ifndef GROUP
#define GROUP 4u
#endif
#define BLOCKS (THREADS / GROUP)

static __device__ __forceinline__ bool d_closed(const xci_cuda_block_call &call) {
    return call.gate != nullptr && *call.gate != 0;
}

/* The blocks of a call that this thread block has: `most`, or fewer at the end. */
static __device__ __forceinline__ uint32_t d_share(const xci_cuda_block_call &call, uint32_t most) {
    const uint64_t left = call.count - (uint64_t)blockIdx.x * most;
    return left < most ? (uint32_t)left : most;
}

static __device__ __forceinline__ void d_count_progress(const xci_cuda_block_call &call,
                                                        uint32_t finished) {
    if (threadIdx.x == 0 && call.progress != nullptr && finished != 0)
        atomicAdd((unsigned long long *)call.progress, (unsigned long long)finished);
}

/* ---- Lists ---- */

/* The lists of a thread block, whose entries count as one long list: those of list i end at end[i]. */
typedef struct xci_cuda_lists {
    const uint32_t *entries[LIST_BLOCKS];
    xci_cuda_place places[LIST_BLOCKS];
    uint32_t end[LIST_BLOCKS];
    uint32_t count;
} xci_cuda_lists;

/* Threads 0 .. LIST_BLOCKS - 1 enter a block each. */
static __device__ __forceinline__ void d_enter_list(const xci_cuda_block_call &call,
                                                    uint32_t share, xci_cuda_lists *lists) {
    const uint32_t lane = threadIdx.x;
    uint32_t entries = 0;
    bool listed = false;
    if (lane < share) {
        const xci_cuda_block block = call.blocks[(uint64_t)blockIdx.x * LIST_BLOCKS + lane];
        listed = block.block_codec == XCI_CUDA_CODEC_LIST;
        if (listed) {
            const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
            lists->entries[lane] = (const uint32_t *)block.bytes;
            lists->places[lane] = d_place_of(call.places, block.chunk, bytes);
            entries = block.block_bytes / XCI_CUDA_ENTRY_BYTES;
        }
    }
    const uint32_t count = d_group_sum<uint32_t>(listed, LIST_BLOCKS);
    lists->end[lane] = d_group_prefix(entries, LIST_BLOCKS);
    if (lane == 0)
        lists->count = count;
}

static __global__ void __launch_bounds__(LIST_THREADS)
k_apply_lists(const xci_cuda_block_call call) {
    __shared__ xci_cuda_lists lists;
    if (d_closed(call))
        return;
    if (threadIdx.x < LIST_BLOCKS)
        d_enter_list(call, d_share(call, LIST_BLOCKS), &lists);
    __syncthreads();
    const uint32_t total = lists.end[LIST_BLOCKS - 1];
    uint32_t list = 0, placed = LIST_BLOCKS;
    xci_cuda_place place;
    for (uint32_t first = threadIdx.x; first < total; first += LIST_AHEAD * LIST_THREADS) {
        uint32_t entry[LIST_AHEAD], of[LIST_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < LIST_AHEAD; ++i) {
            const uint32_t at = first + i * LIST_THREADS;
            of[i] = LIST_BLOCKS;
            if (at >= total)
                continue;
            while (at >= lists.end[list])
                ++list;
            of[i] = list;
            entry[i] = lists.entries[list][at - (list != 0 ? lists.end[list - 1] : 0)];
        }
#pragma unroll
        for (uint32_t i = 0; i < LIST_AHEAD; ++i) {
            if (of[i] == LIST_BLOCKS)
                continue;
            if (of[i] != placed) {
                placed = of[i];
                place = lists.places[placed];
            }
            if (d_entry_position(entry[i]) < place.bytes)
                d_xor_byte(&place, d_entry_position(entry[i]), d_entry_byte(entry[i]));
        }
    }
    __syncthreads();
    d_count_progress(call, lists.count);
}

/* ---- Tokens and raw ---- */

static __device__ __forceinline__ void d_apply_tokens(const xci_cuda_block &block,
                                                      xci_cuda_place place, uint32_t lane) {
    xci_cuda_walk walk = xci_cuda_walk_begin(block.bytes, block.block_bytes, place.bytes);
    xci_cuda_item item;
    while (xci_cuda_take(&walk, lane, GROUP, &item) != 0)
        if (item.mask != 0)
            d_xor_word(&place, item.word, item.mask);
}

static __device__ void d_apply_raw(const xci_cuda_block &block, xci_cuda_place place) {
    for (uint32_t word = threadIdx.x; word * 8 < place.bytes; word += THREADS) {
        const uint32_t left = place.bytes - word * 8;
        const uint64_t bytes = *(const uint64_t *)(block.bytes + word * 8);
        const uint64_t mask = left < 8 ? bytes & ((UINT64_C(1) << (8 * left)) - 1) : bytes;
        if (mask != 0)
            d_xor_word(&place, word, mask);
    }
}

static __device__ __forceinline__ bool d_is_raw(const xci_cuda_block &block, uint32_t bytes) {
    return block.block_codec == XORCAST_CODEC_RAW && block.block_bytes == bytes;
}

static __global__ void __launch_bounds__(THREADS) k_apply_blocks(const xci_cuda_block_call call) {
    if (d_closed(call))
        return;
    const uint64_t first = (uint64_t)blockIdx.x * BLOCKS;
    const uint32_t share = d_share(call, BLOCKS), group = threadIdx.x / GROUP;
    bool raw = false, listed = true;
    if (group < share) {
        const xci_cuda_block block = call.blocks[first + group];
        const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
        raw = d_is_raw(block, bytes);
        listed = block.block_codec == XCI_CUDA_CODEC_LIST;
        if (block.block_codec == XORCAST_CODEC_LZ4 && block.block_bytes < bytes)
            d_apply_tokens(block, d_place_of(call.places, block.chunk, bytes),
                           threadIdx.x % GROUP);
    }
    if (__syncthreads_or(raw)) {
        for (uint32_t i = 0; i < share; ++i) {
            const xci_cuda_block block = call.blocks[first + i];
            const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
            if (d_is_raw(block, bytes))
                d_apply_raw(block, d_place_of(call.places, block.chunk, bytes));
        }
    }
    d_count_progress(call, (uint32_t)__syncthreads_count(!listed) / GROUP);
}

extern "C" int xci_cuda_apply(const xci_cuda_block_call *call, void *stream) {
    const int error =
        d_launch(k_apply_lists, *call, call->count, LIST_BLOCKS, LIST_THREADS, stream);
    return error != cudaSuccess
               ? error
               : d_launch(k_apply_blocks, *call, call->count, BLOCKS, THREADS, stream);
}
