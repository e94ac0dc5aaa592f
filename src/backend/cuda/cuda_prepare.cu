/* prepare: LZ4 blocks that check found good become lists of changed bytes, written over them. A
 * group of GROUP threads has a block: it reads its next words, puts their entries in a ring in
 * shared memory, and writes those that go where the block has been read. That the ring does not
 * overflow is what check has found out. */
#include "backend/cuda/cuda_group.cuh"
#include "backend/cuda/cuda_kernels.h"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#define THREADS 128u
#define GROUP XCI_CUDA_STAGE_GROUP
#define BLOCKS (THREADS / GROUP)

/* Entries of a word, from number `at` on, to the ring of those that wait. */
static __device__ __forceinline__ void d_put_entries(uint32_t *ring, uint32_t at, uint32_t word,
                                                     uint64_t mask) {
    for (uint32_t position = word * 8; mask != 0; mask >>= 8, ++position)
        if ((mask & 0xff) != 0)
            ring[at++ % XCI_CUDA_WAITING] = d_entry(position, (uint32_t)mask & 0xff);
}

static __device__ __forceinline__ void d_prepare_block(const xci_cuda_block &block, uint32_t bytes,
                                                       uint32_t lane, uint32_t *ring) {
    uint32_t *const list = (uint32_t *)block.bytes;
    xci_cuda_walk walk = xci_cuda_walk_begin(block.bytes, block.block_bytes, bytes);
    xci_cuda_item item;
    xci_cuda_listing listing = {0, 0};
    while (xci_cuda_take(&walk, lane, GROUP, &item) != 0) {
        const uint32_t mine = d_changed_bytes(item.mask);
        const uint32_t end = listing.found + d_group_prefix(mine, GROUP);
        d_put_entries(ring, end - mine, item.word, item.mask);
        listing.found += d_group_sum(mine, GROUP);
        const uint32_t writable = d_writable(listing, xci_cuda_walk_read(&walk));
        __syncwarp(d_group_threads(GROUP));
        for (uint32_t at = listing.written + lane; at < writable; at += GROUP)
            list[at] = ring[at % XCI_CUDA_WAITING];
        __syncwarp(d_group_threads(GROUP));
        listing.written = writable;
    }
}

static __global__ void __launch_bounds__(THREADS) k_prepare_blocks(const xci_cuda_block_call call) {
    __shared__ uint32_t rings[BLOCKS][XCI_CUDA_WAITING];
    const uint64_t index = (uint64_t)blockIdx.x * BLOCKS + threadIdx.x / GROUP;
    if (index >= call.count)
        return;
    const uint32_t list_bytes = call.list_bytes[index];
    xci_cuda_block block = call.blocks[index];
    if (list_bytes == 0 || block.block_codec != XORCAST_CODEC_LZ4)
        return;
    d_prepare_block(block, call.grid.chunks[block.chunk].bytes, threadIdx.x % GROUP,
                    rings[threadIdx.x / GROUP]);
    if (threadIdx.x % GROUP != 0)
        return;
    block.block_bytes = list_bytes;
    block.block_codec = XCI_CUDA_CODEC_LIST;
    /* The caller's blocks are not constant; they only are for check and apply. */
    ((xci_cuda_block *)call.blocks)[index] = block;
}

extern "C" int xci_cuda_prepare(const xci_cuda_block_call *call, void *stream) {
    return d_launch(k_prepare_blocks, *call, call->count, BLOCKS, THREADS, stream);
}
