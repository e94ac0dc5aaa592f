/* apply: XORs blocks into weights where they lie. Two kernels, one behind the other: lists, and
 * what is still tokens or raw; each passes over the other's blocks.
 *
 * Memory is what bounds it: nearly every changed byte is in a 32-byte sector of its own, which is
 * read, changed and written back. Such sectors are fastest when those of one stretch of memory are
 * asked for at about the same time, hence many threads on the entries of neighbouring chunks, in
 * order. Tokens are found by groups of few threads: large groups would do the same work in each
 * (bench/kernels/README.md, "CUDA apply").
 *
 * Bounds are checked again: whatever a block says, no byte outside its chunk's places is
 * touched. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_places.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#ifndef LIST_THREADS
#define LIST_THREADS 128u
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

static __global__ void __launch_bounds__(LIST_THREADS)
    k_apply_lists(const xci_cuda_block_call call) {
    const xci_cuda_block block = call.blocks[blockIdx.x];
    if (block.block_codec != XCI_CUDA_CODEC_LIST || d_closed(call))
        return;
    xci_cuda_place place =
        d_place_of(call.places, block.chunk, call.grid.chunks[block.chunk].bytes);
    const uint32_t *const list = (const uint32_t *)block.bytes;
    const uint32_t count = block.block_bytes / XCI_CUDA_ENTRY_BYTES;
    for (uint32_t first = threadIdx.x; first < count; first += LIST_AHEAD * LIST_THREADS) {
        uint32_t entries[LIST_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < LIST_AHEAD; ++i)
            entries[i] = first + i * LIST_THREADS < count ? __ldg(list + first + i * LIST_THREADS)
                                                          : UINT32_MAX;
#pragma unroll
        for (uint32_t i = 0; i < LIST_AHEAD; ++i)
            if (d_entry_position(entries[i]) < place.bytes)
                d_xor_byte(&place, d_entry_position(entries[i]), d_entry_byte(entries[i]));
    }
    __syncthreads();
    d_count_progress(call, 1);
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
            d_apply_tokens(block, d_place_of(call.places, block.chunk, bytes), threadIdx.x % GROUP);
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
    const int error = d_launch(k_apply_lists, *call, call->count, 1, LIST_THREADS, stream);
    return error != cudaSuccess
               ? error
               : d_launch(k_apply_blocks, *call, call->count, BLOCKS, THREADS, stream);
}
