/* check: walks foreign blocks with every bounds check, reads the old words at changed positions and
 * sums what applying would do. A group of threads has a block, raw ones too: it runs beside other
 * work, and needs no speed that this work would pay for. Large blocks, which take longest, come
 * first. Changes nothing but results. */
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_list.cuh"
#include "backend/cuda/cuda_tally.cuh"
#include "backend/cuda/cuda_tokens.cuh"

#define THREADS 128u

typedef struct xci_cuda_checker {
    xci_cuda_place place;
    xci_cuda_segments segments;
    uint32_t element_bytes, list_bytes;
    xci_cuda_tally tally;
} xci_cuda_checker;

static __device__ __forceinline__ void d_check_word(xci_cuda_checker *checker, uint32_t word,
                                                    uint64_t mask) {
    if (mask == 0)
        return;
    d_count_mask(&checker->tally, mask, checker->element_bytes);
    d_count_change(&checker->tally, &checker->place, &checker->segments, word, mask);
}

/* Also finds whether prepare can make a list of the block. */
template <uint32_t GROUP>
static __device__ __forceinline__ bool d_check_tokens(xci_cuda_checker *checker,
                                                      const xci_cuda_block &block, uint32_t lane) {
    xci_cuda_walk walk = xci_cuda_walk_begin(block.bytes, block.block_bytes, checker->place.bytes);
    xci_cuda_item item;
    xci_cuda_listing listing = {0, 0};
    bool fits = true;
    while (xci_cuda_take(&walk, lane, GROUP, &item) != 0) {
        d_check_word(checker, item.word, item.mask);
        const uint32_t more = d_group_sum(d_changed_bytes(item.mask), GROUP);
        fits = fits && d_may_wait(listing, more, XCI_CUDA_WAITING(GROUP));
        listing.found += more;
        listing.written = d_writable(listing, xci_cuda_walk_read(&walk));
    }
    fits = fits && listing.written == listing.found;
    checker->list_bytes = fits ? listing.found * XCI_CUDA_ENTRY_BYTES : 0;
    return walk.state == XCI_LZ4_DONE;
}

template <uint32_t GROUP>
static __device__ __forceinline__ void d_check_raw(xci_cuda_checker *checker,
                                                   const xci_cuda_block &block, uint32_t lane) {
    const uint32_t bytes = checker->place.bytes;
    for (uint32_t word = lane; word * 8 < bytes; word += GROUP) {
        const uint32_t left = bytes - word * 8;
        const uint64_t mask = *(const uint64_t *)(block.bytes + word * 8);
        d_check_word(checker, word, left < 8 ? mask & ((UINT64_C(1) << (8 * left)) - 1) : mask);
    }
}

template <uint32_t GROUP>
static __device__ __forceinline__ bool d_check_block(xci_cuda_checker *checker,
                                                     const xci_cuda_block &block, uint32_t lane) {
    const uint32_t bytes = checker->place.bytes;
    if (block.block_codec == XORCAST_CODEC_LZ4 && block.block_bytes < bytes)
        return d_check_tokens<GROUP>(checker, block, lane);
    if (block.block_codec != XORCAST_CODEC_RAW || block.block_bytes != bytes)
        return false;
    d_check_raw<GROUP>(checker, block, lane);
    return true;
}

/* One of the blocks for each GROUP threads of thread block `part`, if it is for so many. */
template <uint32_t GROUP>
static __device__ __forceinline__ void d_check_part(const xci_cuda_block_call &call,
                                                    uint32_t part) {
    const uint64_t index = (uint64_t)part * (THREADS / GROUP) + threadIdx.x / GROUP;
    const uint32_t lane = threadIdx.x % GROUP;
    if (index >= call.count)
        return;
    const xci_cuda_block block = call.blocks[index];
    if (d_group_of(block) != GROUP)
        return;
    const xci_cuda_chunk chunk = call.grid.chunks[block.chunk];
    xci_cuda_checker checker = {};
    checker.place = d_place_of(call.places, block.chunk, chunk.bytes);
    checker.segments = d_segments_of(call.grid, chunk);
    checker.element_bytes = chunk.element_bytes;
    const bool good = d_check_block<GROUP>(&checker, block, lane);
    d_sum_tally(&checker.tally, GROUP);
    if (lane != 0)
        return;
    xci_cuda_result result = {};
    result.block_bytes = block.block_bytes;
    result.block_codec = block.block_codec;
    result.status = good ? XORCAST_OK : XORCAST_DATA_CORRUPT;
    if (good) {
        result.bytes_changed = checker.tally.bytes;
        result.elements_changed = checker.tally.elements;
        result.bits_changed = checker.tally.bits;
        result.change = checker.tally.change;
        result.list_bytes = checker.list_bytes;
    }
    call.results[index] = result;
    if (call.notes != nullptr)
        call.notes[index] = d_note(result.list_bytes, GROUP);
    if (!good && call.any_bad != nullptr)
        *call.any_bad = 1;
}

static __global__ void __launch_bounds__(THREADS) k_check_blocks(const xci_cuda_block_call call) {
    const uint32_t large = d_parts(call.count, THREADS / XCI_CUDA_LARGE_GROUP);
    if (blockIdx.x < large)
        d_check_part<XCI_CUDA_LARGE_GROUP>(call, blockIdx.x);
    else
        d_check_part<XCI_CUDA_SMALL_GROUP>(call, blockIdx.x - large);
}

extern "C" int xci_cuda_check(const xci_cuda_block_call *call, void *stream) {
    return d_launch(k_check_blocks, *call, d_small_and_large(call->count, THREADS), 1, THREADS,
                    stream);
}
