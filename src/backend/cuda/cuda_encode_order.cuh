/* Places of blocks in the packed output: the sum of the sizes of all chunks before, found while the
 * grid runs (decoupled look-back, Merrill and Garland 2016). Each chunk has a word: first its size,
 * then the sum up to its end. Chunks are taken in order by blocks that are running, so whoever
 * waits, waits for work that goes on. */
#ifndef XCI_CUDA_ENCODE_ORDER_CUH
#define XCI_CUDA_ENCODE_ORDER_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_ORDER_SIZE (UINT64_C(1) << 62)
#define XCI_ORDER_SUM (UINT64_C(2) << 62)
#define XCI_ORDER_VALUE (XCI_ORDER_SIZE - 1)

/* Says the size of chunk `index`, waits, and returns where its block begins. A whole warp. */
__device__ __forceinline__ uint64_t d_take_place(uint64_t *words, uint64_t index, uint64_t size) {
    if (index == 0) {
        if (d_lane() == 0)
            d_store_shared_word(&words[0], XCI_ORDER_SUM | size);
        return 0;
    }
    if (d_lane() == 0)
        d_store_shared_word(&words[index], XCI_ORDER_SIZE | size);
    uint64_t sum = 0;
    for (uint64_t end = index;; end -= XCI_WARP) {
        /* Lane 0 has the nearest; before the first chunk the sum is 0. */
        uint64_t word = XCI_ORDER_SUM;
        if (d_lane() < end) {
            const uint64_t *at = &words[end - 1 - d_lane()];
            while ((word = d_load_shared_word(at)) == 0)
                d_pause();
        }
        const uint32_t sums = __ballot_sync(XCI_ALL, word >= XCI_ORDER_SUM);
        const uint32_t nearest = sums != 0 ? (uint32_t)__ffs((int)sums) - 1 : XCI_WARP;
        sum += d_sum64(d_lane() <= nearest ? word & XCI_ORDER_VALUE : 0);
        if (sums != 0)
            break;
    }
    if (d_lane() == 0)
        d_store_shared_word(&words[index], XCI_ORDER_SUM | (sum + size));
    return sum;
}

#endif
