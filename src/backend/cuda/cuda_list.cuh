/* The device's own form of a block, a list of changed bytes (cuda_kernels.h): its entries, and
 * the rule by which it can be written over the LZ4 block while that is read. check tries the
 * rule, prepare relies on it. */
#ifndef XCI_CUDA_LIST_CUH
#define XCI_CUDA_LIST_CUH

#include <stdint.h>

#define XCI_CUDA_ENTRY_BYTES 4u
/* Threads that walk a block together in check and in prepare: the same, since the rule is tried
 * after each batch of words. More would do the same work in each; one alone writes lists more
 * slowly. */
#define XCI_CUDA_STAGE_GROUP 2u
/* Entries that may wait until what they replace has been read: at least those of one batch. An
 * entry is four bytes and a literal one, so a dense stretch at the beginning of a block runs
 * ahead. Where 26 % of BF16 elements change in 5 % of the pages 8 are enough for 87 % of the
 * blocks, 16 for 96 and 32 for 99.9. */
#define XCI_CUDA_WAITING 32u

static __device__ __forceinline__ uint32_t d_entry(uint32_t position, uint32_t byte) {
    return position << 8 | byte;
}
static __device__ __forceinline__ uint32_t d_entry_position(uint32_t entry) {
    return entry >> 8;
}
static __device__ __forceinline__ uint32_t d_entry_byte(uint32_t entry) {
    return entry & 0xff;
}

static __device__ __forceinline__ uint32_t d_changed_bytes(uint64_t mask) {
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    return __popcll((((mask & low) + low) | mask) & ~low);
}

/* Entries found, and those of them that have been written. */
typedef struct xci_cuda_listing {
    uint32_t found, written;
} xci_cuda_listing;

/* Whether so many more may wait, before any is written. */
static __device__ __forceinline__ bool d_may_wait(const xci_cuda_listing &listing, uint32_t more) {
    return listing.found + more - listing.written <= XCI_CUDA_WAITING;
}

/* Up to which entry a list may be written when so many bytes of the block have been read. */
static __device__ __forceinline__ uint32_t d_writable(const xci_cuda_listing &listing,
                                                      uint32_t bytes_read) {
    const uint32_t room = bytes_read / XCI_CUDA_ENTRY_BYTES;
    return listing.found < room ? listing.found : room;
}

#endif
