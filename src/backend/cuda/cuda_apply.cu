/* apply: XORs blocks into weights where they lie. One kernel for lists and one for what is still
 * tokens or raw, each of which passes over the other's blocks; then progress is counted.
 *
 * Memory is what bounds it: nearly every changed byte is in a 32-byte sector of its own, which is
 * read, changed and written back. Such sectors are fastest when those of one stretch of memory are
 * asked for at about the same time, hence all threads of a large thread block on one long list, and
 * few such lists under way. Short lists are the opposite, waiting is all they do: four at a time.
 * Tokens are found by groups of few threads: large groups would do the same work in each
 * (bench/kernels/README.md, "CUDA apply").
 *
 * Bounds are checked again: whatever a block says, no byte outside its chunk's places is
 * touched. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_places.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#define LIST_THREADS 512u
#define TEAM 128u /* threads that a short list has, and its most entries */
#define TEAMS (LIST_THREADS / TEAM)

#define THREADS 128u
#define GROUP 4u
#define BLOCKS (THREADS / GROUP)

static __device__ __forceinline__ bool d_closed(const xci_cuda_block_call &call) {
    return call.gate != nullptr && *call.gate != 0;
}

/* ---- Lists ---- */

static __device__ __forceinline__ uint32_t d_list_length(const xci_cuda_block_call &call,
                                                         uint64_t index) {
    return index < call.count && call.blocks[index].block_codec == XCI_CUDA_CODEC_LIST
               ? call.blocks[index].block_bytes / XCI_CUDA_ENTRY_BYTES
               : 0;
}

/* Entries of a list by `threads` threads, of which this is number `rank`. */
static __device__ __forceinline__ void d_apply_list(const xci_cuda_block_call &call, uint64_t index,
                                                    uint32_t length, uint32_t rank,
                                                    uint32_t threads) {
    const xci_cuda_block block = call.blocks[index];
    const uint32_t *const list = (const uint32_t *)block.bytes;
    xci_cuda_place place =
        d_place_of(call.places, block.chunk, call.grid.chunks[block.chunk].bytes);
    for (uint32_t i = rank; i < length; i += threads) {
        const uint32_t entry = __ldg(list + i);
        if (d_entry_position(entry) < place.bytes)
            d_xor_byte(&place, d_entry_position(entry), d_entry_byte(entry));
    }
}

static __global__ void __launch_bounds__(LIST_THREADS)
    k_apply_lists(const xci_cuda_block_call call) {
    __shared__ uint32_t lengths[TEAMS];
    if (d_closed(call))
        return;
    const uint64_t first = (uint64_t)blockIdx.x * TEAMS;
    const uint32_t team = threadIdx.x / TEAM, rank = threadIdx.x % TEAM;
    const uint32_t mine = d_list_length(call, first + team);
    if (mine != 0 && mine <= TEAM)
        d_apply_list(call, first + team, mine, rank, TEAM);
    if (rank == 0)
        lengths[team] = mine;
    if (!__syncthreads_or(mine > TEAM))
        return;
    for (uint32_t i = 0; i < TEAMS; ++i)
        if (lengths[i] > TEAM)
            d_apply_list(call, first + i, lengths[i], threadIdx.x, LIST_THREADS);
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
    const uint64_t first = (uint64_t)blockIdx.x * BLOCKS, index = first + threadIdx.x / GROUP;
    bool raw = false;
    if (index < call.count && call.blocks[index].block_codec != XCI_CUDA_CODEC_LIST) {
        const xci_cuda_block block = call.blocks[index];
        const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
        raw = d_is_raw(block, bytes);
        if (block.block_codec == XORCAST_CODEC_LZ4 && block.block_bytes < bytes)
            d_apply_tokens(block, d_place_of(call.places, block.chunk, bytes), threadIdx.x % GROUP);
    }
    if (!__syncthreads_or(raw))
        return;
    for (uint64_t i = first; i < first + BLOCKS && i < call.count; ++i) {
        const xci_cuda_block block = call.blocks[i];
        const uint32_t bytes = call.grid.chunks[block.chunk].bytes;
        if (d_is_raw(block, bytes))
            d_apply_raw(block, d_place_of(call.places, block.chunk, bytes));
    }
}

/* ---- Progress ---- */

/* One addition for all: each on the same address costs 4 ns, and there are a million chunks. */
static __global__ void k_count_progress(const xci_cuda_block_call call) {
    if (!d_closed(call))
        atomicAdd((unsigned long long *)call.progress, (unsigned long long)call.count);
}

extern "C" int xci_cuda_apply(const xci_cuda_block_call *call, void *stream) {
    int error = d_launch(k_apply_lists, *call, call->count, TEAMS, LIST_THREADS, stream);
    if (error == cudaSuccess)
        error = d_launch(k_apply_blocks, *call, call->count, BLOCKS, THREADS, stream);
    if (error == cudaSuccess && call->count != 0 && call->progress != nullptr)
        error = d_launch(k_count_progress, *call, 1, 1, 1, stream);
    return error;
}
