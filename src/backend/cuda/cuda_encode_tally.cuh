/* What a change does, from changed words: counts of bits, bytes and elements, and the change of
 * the digest (src/base/digest.h is the law; docs/format.md, "Digest"). One tally a lane, added up
 * at the end. */
#ifndef XCI_CUDA_ENCODE_TALLY_CUH
#define XCI_CUDA_ENCODE_TALLY_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "backend/cuda/cuda_kernels.h"
#include "base/digest.h"

typedef struct xci_cuda_tally {
    uint32_t bits, bytes, elements;
    uint64_t low, high;
} xci_cuda_tally;

/* The segments of a chunk; of one segment, it alone, so that nothing is looked up. */
typedef struct xci_cuda_keys {
    const xci_cuda_segment *segments;
    uint32_t count;
    xci_cuda_segment first;
} xci_cuda_keys;

/* Elements of a word that are not zero. `tops` has the top bit of each. */
__device__ __forceinline__ uint32_t d_count_elements(uint64_t mask, uint64_t tops) {
    return (uint32_t)__popcll((((mask & ~tops) + ~tops) | mask) & tops);
}

__device__ __forceinline__ uint64_t d_element_tops(uint32_t element_bytes) {
    return element_bytes == 1   ? UINT64_C(0x8080808080808080)
           : element_bytes == 2 ? UINT64_C(0x8000800080008000)
           : element_bytes == 4 ? UINT64_C(0x8000000080000000)
                                : UINT64_C(0x8000000000000000);
}

/* sign is 1 or -1. */
__device__ __forceinline__ void d_digest_term(xci_cuda_tally *tally, uint64_t value, uint64_t key,
                                              uint64_t sign) {
    const uint64_t x = value ^ key;
    const uint64_t y = ((x << 32) | (x >> 32)) ^ XCI_DIGEST_SALT;
    tally->low += sign * (x * y);
    tally->high += sign * __umul64hi(x, y);
}

/* The segment that holds the word at `offset` of the chunk; false if none does. */
__device__ __forceinline__ bool d_find_segment(const xci_cuda_keys *keys, uint32_t offset,
                                               xci_cuda_segment *segment_out) {
    if (XCI_RARE(keys->count == 0))
        return false;
    uint32_t low = 0, high = keys->count;
    *segment_out = keys->first;
    if (XCI_RARE(high > 1)) {
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            const xci_cuda_segment *at = &keys->segments[middle];
            if (at->offset + at->bytes > offset)
                high = middle;
            else
                low = middle + 1;
        }
        if (low == keys->count)
            return false;
        *segment_out = keys->segments[low];
    }
    return offset - segment_out->offset < segment_out->bytes;
}

/* One changed word of a chunk. */
__device__ __forceinline__ void d_tally_word(xci_cuda_tally *tally, const xci_cuda_keys *keys,
                                             uint32_t offset, uint64_t old_word, uint64_t mask,
                                             uint64_t tops) {
    tally->bits += (uint32_t)__popcll(mask);
    tally->bytes += d_count_elements(mask, d_element_tops(1));
    tally->elements += d_count_elements(mask, tops);
    xci_cuda_segment segment;
    if (!d_find_segment(keys, offset, &segment))
        return;
    const uint32_t from = offset - segment.offset, left = segment.bytes - from;
    const uint64_t kept = left >= 8 ? UINT64_MAX : (UINT64_C(1) << left * 8) - 1;
    const uint64_t key = segment.key + (uint64_t)(from / 8) * XCI_DIGEST_STRIDE;
    d_digest_term(tally, (old_word ^ mask) & kept, key, 1);
    d_digest_term(tally, old_word & kept, key, UINT64_MAX);
}

#endif
