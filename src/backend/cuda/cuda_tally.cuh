/* What changed words come to: counts of bits, bytes and elements, and the change of the digest.
 * Each thread of a group has a tally of its own; they are summed at the end. Does not own finding
 * the words. */
#ifndef XCI_CUDA_TALLY_CUH
#define XCI_CUDA_TALLY_CUH

#include "backend/cuda/cuda_group.cuh"
#include "backend/cuda/cuda_places.cuh"
#include "backend/cuda/cuda_term.cuh"

typedef struct xci_cuda_tally {
    uint32_t bits, bytes, elements; /* of one chunk: at most 8 Mi */
    xorcast_digest change;
} xci_cuda_tally;

/* Counts of a word that begins with an element and holds whole ones. */
static __device__ __forceinline__ void d_count_mask(xci_cuda_tally *tally, uint64_t mask,
                                                    uint32_t element_bytes) {
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    /* Bit 0 of every byte that is not zero; then the same for elements. */
    uint64_t marks = (((mask & low) + low) | mask) >> 7 & UINT64_C(0x0101010101010101);
    tally->bits += __popcll(mask);
    tally->bytes += __popcll(marks);
    if (element_bytes >= 2)
        marks = (marks | marks >> 8) & UINT64_C(0x0001000100010001);
    if (element_bytes >= 4)
        marks = (marks | marks >> 16) & UINT64_C(0x0000000100000001);
    if (element_bytes >= 8)
        marks = (marks | marks >> 32) & 1;
    tally->elements += __popcll(marks);
}

/* The digest's change by a word that is counted. */
static __device__ __forceinline__ void d_add_change(xci_cuda_tally *tally, uint64_t old_word,
                                                    uint64_t mask, uint64_t kept, uint64_t key) {
    const xorcast_digest before = d_term(old_word & kept, key);
    const xorcast_digest after = d_term((old_word ^ mask) & kept, key);
    tally->change.lane[0] += after.lane[0] - before.lane[0];
    tally->change.lane[1] += after.lane[1] - before.lane[1];
}

/* The same, if it has a place and is counted. */
static __device__ __forceinline__ void d_count_change(xci_cuda_tally *tally, xci_cuda_place *place,
                                                      xci_cuda_segments *segments, uint32_t word,
                                                      uint64_t mask) {
    uint64_t kept, key;
    const xci_cuda_spot spot = d_first_spot(place, word);
    if (spot.bytes == 0 || !d_find_key(segments, word, &kept, &key))
        return;
    d_add_change(tally, d_load_spot(spot), mask, kept, key);
}

static __device__ __forceinline__ void d_sum_digest(xorcast_digest *sum, uint32_t group) {
    sum->lane[0] = d_group_sum(sum->lane[0], group);
    sum->lane[1] = d_group_sum(sum->lane[1], group);
}

static __device__ __forceinline__ void d_sum_tally(xci_cuda_tally *tally, uint32_t group) {
    tally->bits = d_group_sum(tally->bits, group);
    tally->bytes = d_group_sum(tally->bytes, group);
    tally->elements = d_group_sum(tally->elements, group);
    d_sum_digest(&tally->change, group);
}

#endif
