/* The digest of words on the device: the term of one word, and which segment counts it with which
 * key. The law is docs/format.md, "Digest"; base/digest.h is the same for the host. */
#ifndef XCI_CUDA_TERM_CUH
#define XCI_CUDA_TERM_CUH

#include "backend/cuda/cuda_kernels.h"
#include "base/digest.h"

static __device__ __forceinline__ void d_add(xorcast_digest *sum, xorcast_digest part) {
    sum->lane[0] += part.lane[0];
    sum->lane[1] += part.lane[1];
}

/* A product of 64 x 64 bits by four of 32 x 32, each with an addition that cannot overflow: half of
 * what separate instructions for its halves would take. */
static __device__ __forceinline__ xorcast_digest d_term(uint64_t value, uint64_t key) {
    const uint64_t x = value ^ key;
    const uint64_t x0 = (uint32_t)x, x1 = x >> 32;
    const uint64_t y0 = (uint32_t)x1 ^ (uint32_t)XCI_DIGEST_SALT;
    const uint64_t y1 = (uint32_t)x0 ^ (uint32_t)(XCI_DIGEST_SALT >> 32);
    const uint64_t lowest = x0 * y0;
    const uint64_t middle = x1 * y0 + (lowest >> 32);
    const uint64_t other = x0 * y1 + (uint32_t)middle;
    const uint64_t highest = x1 * y1 + (middle >> 32) + (other >> 32);
    return {{other << 32 | (uint32_t)lowest, highest}};
}

/* The segments of a chunk that may count words from the last one asked for on. */
typedef struct xci_cuda_segments {
    const xci_cuda_segment *first;
    uint32_t count;
} xci_cuda_segments;

static __device__ __forceinline__ xci_cuda_segments d_segments_of(const xci_cuda_grid &grid,
                                                                  const xci_cuda_chunk &chunk) {
    return {grid.segments + chunk.segment_first, chunk.segment_count};
}

/* What of a word is counted, and its key. False: nothing. Words are asked for in rising order. */
static __device__ __forceinline__ bool d_find_key(xci_cuda_segments *segments, uint32_t word,
                                                  uint64_t *kept_out, uint64_t *key_out) {
    const uint32_t offset = word * 8;
    /* The first that ends behind the word's first byte. */
    const xci_cuda_segment *first = segments->first;
    for (uint32_t count = segments->count; count != 0;) {
        const uint32_t half = count / 2;
        if (first[half].offset + first[half].bytes > offset) {
            count = half;
        } else {
            first += half + 1;
            count -= half + 1;
        }
    }
    segments->count -= (uint32_t)(first - segments->first);
    segments->first = first;
    if (segments->count == 0 || segments->first->offset > offset)
        return false;
    const xci_cuda_segment segment = *segments->first;
    const uint32_t left = segment.offset + segment.bytes - offset;
    *kept_out = left >= 8 ? UINT64_MAX : (UINT64_C(1) << (8 * left)) - 1;
    *key_out = segment.key + (word - segment.offset / 8) * XCI_DIGEST_STRIDE;
    return true;
}

#endif
