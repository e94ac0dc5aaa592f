/* apply: XORs blocks into weights where they lie, straight from tokens or raw bytes. A group of
 * GROUP threads has a block: it finds GROUP changed words, then XORs them all at once; groups that
 * are small keep few threads busy with one and the same token, groups that are large keep accesses
 * that are close in memory close in time (bench/kernels/README.md, "CUDA apply"). Raw blocks are
 * the whole thread block's. Bounds are checked again: whatever a block says, no byte outside its
 * chunk's places is touched. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_places.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#define THREADS 128u
#define GROUP 8u
#define BLOCKS (THREADS / GROUP)

static __device__ __forceinline__ void d_apply_tokens(const xci_cuda_block &block,
                                                      xci_cuda_place place, uint32_t lane) {
    xci_cuda_walk walk = xci_cuda_walk_begin(block.bytes, block.block_bytes, place.bytes);
    xci_cuda_item item;
    for (uint32_t count; (count = xci_cuda_take(&walk, lane, GROUP, &item)) != 0;)
        if (lane < count && item.mask != 0)
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

static __global__ void __launch_bounds__(THREADS) k_apply_blocks(const xci_cuda_block_call call) {
    if (call.gate != nullptr && *call.gate != 0)
        return;
    const uint64_t first = (uint64_t)blockIdx.x * BLOCKS;
    const uint32_t count = (uint32_t)(call.count - first < BLOCKS ? call.count - first : BLOCKS);
    const uint32_t group = threadIdx.x / GROUP;
    bool raw = false;
    if (group < count) {
        const xci_cuda_block block = call.blocks[first + group];
        const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
        raw = block.block_codec == XORCAST_CODEC_RAW && block.block_bytes == bytes;
        if (block.block_codec == XORCAST_CODEC_LZ4 && block.block_bytes < bytes)
            d_apply_tokens(block, d_place_of(call.places, block.chunk, bytes),
                           threadIdx.x % GROUP);
    }
    if (__syncthreads_or(raw)) {
        for (uint32_t i = 0; i < count; ++i) {
            const xci_cuda_block block = call.blocks[first + i];
            const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
            if (block.block_codec == XORCAST_CODEC_RAW && block.block_bytes == bytes)
                d_apply_raw(block, d_place_of(call.places, block.chunk, bytes));
        }
        __syncthreads();
    }
    if (threadIdx.x == 0 && call.progress != nullptr)
        atomicAdd((unsigned long long *)call.progress, (unsigned long long)count);
}

extern "C" int xci_cuda_apply(const xci_cuda_block_call *call, void *stream) {
    return d_launch(k_apply_blocks, *call, call->count, BLOCKS, THREADS, stream);
}
