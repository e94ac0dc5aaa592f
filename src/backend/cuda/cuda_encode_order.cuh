/* Places of blocks in the packed output. Each chunk has a word: first nothing, then the size of
 * its block, then where the block begins. Packers say sizes in any order; one warp of the grid,
 * the sequencer, follows in the order of the chunks and says the places. It is three trips to L2
 * from a size to its place, however many chunks are on their way: a look-back over those took
 * sixteen. */
#ifndef XCI_CUDA_ENCODE_ORDER_CUH
#define XCI_CUDA_ENCODE_ORDER_CUH

#include "backend/cuda/cuda_encode_feed.cuh"

#define XCI_ORDER_SIZE (UINT64_C(1) << 62)
#define XCI_ORDER_PLACE (UINT64_C(2) << 62)
#define XCI_ORDER_VALUE (XCI_ORDER_SIZE - 1)
#define XCI_ORDER_STEP 4u /* words of a lane */

__device__ __forceinline__ void d_say_size(uint64_t *words, uint64_t index, uint64_t size) {
    if (d_lane() == 0)
        d_store_shared_word(&words[index], XCI_ORDER_SIZE | size);
}

/* Whether the place of chunk `index` is known. A whole warp. */
__device__ __forceinline__ bool d_has_place(const uint64_t *words, uint64_t index,
                                            uint64_t *place_out) {
    uint64_t word = 0;
    if (d_lane() == 0)
        word = d_load_shared_word(&words[index]);
    word = __shfl_sync(XCI_ALL, word, 0);
    *place_out = word & XCI_ORDER_VALUE;
    return word >= XCI_ORDER_PLACE;
}

/* How many of the lane's words have a size, none left out, and the sum of those sizes. */
__device__ __forceinline__ uint32_t d_read_sizes(const uint64_t *words, uint64_t first,
                                                 uint64_t count, uint64_t *sizes,
                                                 uint64_t *sum_out) {
    uint32_t ready = 0;
    *sum_out = 0;
#pragma unroll
    for (uint32_t k = 0; k < XCI_ORDER_STEP; ++k)
        sizes[k] = first + k < count ? d_load_shared_word(&words[first + k]) : 0;
#pragma unroll
    for (uint32_t k = 0; k < XCI_ORDER_STEP; ++k) {
        if (ready == k && sizes[k] != 0) {
            ++ready;
            *sum_out += sizes[k] & XCI_ORDER_VALUE;
        }
    }
    return ready;
}

/* The sequencer: one warp, until all chunks have their place. */
__device__ __forceinline__ void d_run_sequencer(const xci_cuda_encode_call *call,
                                                const xci_encode_plan *plan) {
    uint64_t *const words = plan->words;
    const uint64_t count = call->count;
    uint64_t used = 0;
    for (uint64_t done = 0; done < count;) {
        uint64_t sizes[XCI_ORDER_STEP], sum;
        const uint64_t first = done + d_lane() * XCI_ORDER_STEP;
        const uint32_t ready = d_read_sizes(words, first, count, sizes, &sum);
        const uint32_t broken = __ballot_sync(XCI_ALL, ready < XCI_ORDER_STEP);
        const uint32_t lane = broken != 0 ? (uint32_t)__ffs((int)broken) - 1 : XCI_WARP;
        sum = d_lane() <= lane ? sum : 0;
        const uint64_t end = d_scan64(sum);
        uint64_t place = used + end - sum;
#pragma unroll
        for (uint32_t k = 0; k < XCI_ORDER_STEP; ++k) {
            if (d_lane() <= lane && k < ready) {
                d_store_shared_word(&words[first + k], XCI_ORDER_PLACE | place);
                place += sizes[k] & XCI_ORDER_VALUE;
            }
        }
        used += __shfl_sync(XCI_ALL, end, XCI_WARP - 1);
        done += lane * XCI_ORDER_STEP;
        if (lane < XCI_WARP)
            done += __shfl_sync(XCI_ALL, ready, lane);
        if (used > call->capacity && d_lane() == 0)
            d_store_shared_word(plan->full, 1);
        if (lane == 0)
            d_pause();
    }
    if (d_lane() == 0)
        *call->used_bytes = used;
}

#endif
