/* What a change does, from changed words: counts of bits, bytes and elements, and the change of
 * the digest (src/base/digest.h is the law; docs/format.md, "Digest"). One tally a lane, added up
 * at the end. */
#ifndef XCI_CUDA_ENCODE_TALLY_CUH
#define XCI_CUDA_ENCODE_TALLY_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "backend/cuda/cuda_term.cuh"

/* Of each lane, in shared memory, because registers are needed for other things. */
typedef struct __align__(16) xci_encode_tally {
    struct __align__(16) {
        uint64_t low, high; /* lanes of the digest's change */
    }
    sums[XCI_WARP];
    struct __align__(8) {
        uint32_t bits, bytes_elements; /* bytes below, elements above: at most 32 Ki of each */
    }
    counts[XCI_WARP];
}
xci_encode_tally;

/* The segments of a chunk. `whole`: there is one, and it holds all words, so that none is looked
 * up. */
typedef struct xci_cuda_keys {
    const xci_cuda_segment *segments;
    uint64_t first_key;
    uint32_t count;
    bool whole;
} xci_cuda_keys;

/* How a word enters the digest: the bits that count, none if it does not, and its key. */
typedef struct xci_word_key {
    uint64_t kept, key;
} xci_word_key;

/* The top bits of elements, in a half of a word; 0 for elements that are whole words. */
__device__ __forceinline__ uint32_t d_element_tops(uint32_t element_bytes) {
    return element_bytes == 1   ? 0x80808080
           : element_bytes == 2 ? 0x80008000
           : element_bytes == 4 ? 0x80000000
                                : 0;
}

/* The tops of elements that are not zero. */
__device__ __forceinline__ uint32_t d_changed_tops(uint32_t half, uint32_t tops) {
    return (((half & ~tops) + ~tops) | half) & tops;
}

/* A bit for each of the eight bytes of a word that is not zero. */
__device__ __forceinline__ uint32_t d_changed_bytes(uint64_t mask) {
    const uint32_t low = d_changed_tops((uint32_t)mask, 0x80808080);
    const uint32_t high = d_changed_tops((uint32_t)(mask >> 32), 0x80808080);
    return low * 0x00204081 >> 28 | high * 0x00204081 >> 28 << 4;
}

/* Elements of a word that are not zero. */
__device__ __forceinline__ uint32_t d_count_elements(uint32_t low, uint32_t high, uint32_t tops) {
    return (uint32_t)__popc(d_changed_tops(low, tops) | d_changed_tops(high, tops) >> 1);
}

static __device__ __noinline__ xci_word_key d_find_word_key(const xci_cuda_keys *keys,
                                                            uint32_t offset) {
    xci_cuda_segments segments = {keys->segments, keys->count};
    xci_word_key word = {0, 0};
    if (!d_find_key(&segments, offset / 8, &word.kept, &word.key))
        word.kept = 0;
    return word;
}

/* Adds a changed word of a chunk, of which `bytes` bytes changed; a mask of 0 adds nothing. */
__device__ __forceinline__ void d_tally_word(xci_encode_tally *tally, const xci_cuda_keys *keys,
                                             uint32_t tops, uint32_t offset, uint64_t old_word,
                                             uint64_t mask, uint32_t bytes) {
    const uint32_t low = (uint32_t)mask, high = (uint32_t)(mask >> 32);
    const uint32_t elements = tops != 0 ? d_count_elements(low, high, tops) : mask != 0;
    tally->counts[d_lane()].bits += (uint32_t)(__popc(low) + __popc(high));
    tally->counts[d_lane()].bytes_elements += bytes + (elements << 16);
    xci_word_key word = {UINT64_MAX, keys->first_key + (uint64_t)(offset / 8) * XCI_DIGEST_STRIDE};
    if (XCI_RARE(!keys->whole))
        word = d_find_word_key(keys, offset);
    const xorcast_digest before = d_term(old_word & word.kept, word.key);
    const xorcast_digest after = d_term((old_word ^ mask) & word.kept, word.key);
    tally->sums[d_lane()].low += after.lane[0] - before.lane[0];
    tally->sums[d_lane()].high += after.lane[1] - before.lane[1];
}

#endif
