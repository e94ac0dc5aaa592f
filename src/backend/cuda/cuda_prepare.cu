/* prepare: LZ4 blocks that check found good become lists of changed bytes, written over them. A
 * group of threads has a block, as in check: it reads its next words, puts their entries in a ring
 * in shared memory, and writes those that go where the block has been read. That the ring does not
 * overflow is what check has found out. */
#include "backend/cuda/cuda_group.cuh"
#include "backend/cuda/cuda_kernels.h"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#define THREADS 128u
#define RINGS (THREADS / XCI_CUDA_SMALL_GROUP * XCI_CUDA_WAITING(XCI_CUDA_SMALL_GROUP))

/* Entries of a word, from number `at` on, to the ring of those that wait. */
template <uint32_t GROUP>
static __device__ __forceinline__ void d_put_entries(uint32_t *ring, uint32_t at, uint32_t word,
                                                     uint64_t mask) {
    for (uint32_t position = word * 8; mask != 0; mask >>= 8, ++position)
        if ((mask & 0xff) != 0)
            ring[at++ % XCI_CUDA_WAITING(GROUP)] = d_entry(position, (uint32_t)mask & 0xff);
}

template <uint32_t GROUP>
static __device__ __forceinline__ void d_prepare_block(const xci_cuda_block &block, uint32_t bytes,
                                                       uint32_t lane, uint32_t *ring) {
    uint32_t *const list = (uint32_t *)block.bytes;
    xci_cuda_walk walk = xci_cuda_walk_begin(block.bytes, block.block_bytes, bytes);
    xci_cuda_item item;
    xci_cuda_listing listing = {0, 0};
    while (xci_cuda_take(&walk, lane, GROUP, &item) != 0) {
        const uint32_t mine = d_changed_bytes(item.mask);
        const uint32_t end = listing.found + d_group_prefix(mine, GROUP);
        d_put_entries<GROUP>(ring, end - mine, item.word, item.mask);
        listing.found += d_group_sum(mine, GROUP);
        const uint32_t writable = d_writable(listing, xci_cuda_walk_read(&walk));
        __syncwarp(d_group_threads(GROUP));
        for (uint32_t at = listing.written + lane; at < writable; at += GROUP)
            list[at] = ring[at % XCI_CUDA_WAITING(GROUP)];
        __syncwarp(d_group_threads(GROUP));
        listing.written = writable;
    }
}

template <uint32_t GROUP>
static __device__ __forceinline__ void d_prepare_part(const xci_cuda_block_call &call,
                                                      uint32_t part, uint32_t *rings) {
    static_assert(THREADS / GROUP * XCI_CUDA_WAITING(GROUP) <= RINGS, "a ring for each group");
    const uint64_t index = (uint64_t)part * (THREADS / GROUP) + threadIdx.x / GROUP;
    if (index >= call.count)
        return;
    const uint32_t note = call.notes[index];
    if (note == 0 || d_note_group(note) != GROUP)
        return;
    xci_cuda_block block = call.blocks[index];
    if (block.block_codec != XORCAST_CODEC_LZ4)
        return;
    d_prepare_block<GROUP>(block, call.grid.chunks[block.chunk].bytes, threadIdx.x % GROUP,
                           rings + threadIdx.x / GROUP * XCI_CUDA_WAITING(GROUP));
    if (threadIdx.x % GROUP != 0)
        return;
    block.block_bytes = d_note_bytes(note);
    block.block_codec = XCI_CUDA_CODEC_LIST;
    /* The caller's blocks are not constant; they only are for check and apply. */
    ((xci_cuda_block *)call.blocks)[index] = block;
}

static __global__ void __launch_bounds__(THREADS) k_prepare_blocks(const xci_cuda_block_call call) {
    __shared__ uint32_t rings[RINGS];
    const uint32_t large = d_parts(call.count, THREADS / XCI_CUDA_LARGE_GROUP);
    if (blockIdx.x < large)
        d_prepare_part<XCI_CUDA_LARGE_GROUP>(call, blockIdx.x, rings);
    else
        d_prepare_part<XCI_CUDA_SMALL_GROUP>(call, blockIdx.x - large, rings);
}

extern "C" int xci_cuda_prepare(const xci_cuda_block_call *call, void *stream) {
    return d_launch(k_prepare_blocks, *call, d_small_and_large(call->count, THREADS), 1, THREADS,
                    stream);
}
