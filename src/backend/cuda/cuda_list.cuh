/* The device's own form of a block, a list of changed bytes (cuda_kernels.h): its entries, and
 * the rule by which it can be written over the LZ4 block while that is read. check tries the
 * rule, prepare relies on it. */
#ifndef XCI_CUDA_LIST_CUH
#define XCI_CUDA_LIST_CUH

#include "backend/cuda/cuda_kernels.h"

#define XCI_CUDA_ENTRY_BYTES 4u
/* Threads that walk a block together in check and in prepare: the same, since the rule is tried
 * after each batch of words. All of them walk all tokens, so that few do least for many blocks; but
 * a batch waits for its longest block, and that is done twice as fast by more. */
#define XCI_CUDA_SMALL_GROUP 2u
#define XCI_CUDA_LARGE_GROUP 8u
#define XCI_CUDA_LARGE_BYTES 4096u
/* Entries that may wait until what they replace has been read: at least those of one batch. An
 * entry is four bytes and a literal one, so a dense stretch at the beginning of a block runs
 * ahead. Where 26 % of BF16 elements change in 5 % of the pages 8 are enough for 87 % of the
 * blocks, 16 for 96 and 32 for 99.9. */
#define XCI_CUDA_WAITING(group) ((group) == XCI_CUDA_LARGE_GROUP ? 64u : 32u)

static __device__ __forceinline__ uint32_t d_group_of(const xci_cuda_block &block) {
    return block.block_bytes < XCI_CUDA_LARGE_BYTES ? XCI_CUDA_SMALL_GROUP : XCI_CUDA_LARGE_GROUP;
}

/* What check notes for prepare: the size as a list, 0 if it becomes none, and how many threads had
 * the block, whose size prepare changes. */
static __device__ __forceinline__ uint32_t d_note(uint32_t list_bytes, uint32_t group) {
    return list_bytes | (list_bytes != 0 && group == XCI_CUDA_LARGE_GROUP ? 1 : 0);
}
static __device__ __forceinline__ uint32_t d_note_bytes(uint32_t note) {
    return note & ~1u;
}
static __device__ __forceinline__ uint32_t d_note_group(uint32_t note) {
    return (note & 1) != 0 ? XCI_CUDA_LARGE_GROUP : XCI_CUDA_SMALL_GROUP;
}

/* Thread blocks for `count` blocks, so many each; and of both kinds, the large ones' first. */
static __host__ __device__ __forceinline__ uint32_t d_parts(uint64_t count, uint32_t each) {
    return (uint32_t)((count + each - 1) / each);
}
static inline uint64_t d_small_and_large(uint64_t count, uint32_t threads) {
    return (uint64_t)d_parts(count, threads / XCI_CUDA_LARGE_GROUP) +
           d_parts(count, threads / XCI_CUDA_SMALL_GROUP);
}

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
static __device__ __forceinline__ bool d_may_wait(const xci_cuda_listing &listing, uint32_t more,
                                                  uint32_t waiting) {
    return listing.found + more - listing.written <= waiting;
}

/* Up to which entry a list may be written when so many bytes of the block have been read. */
static __device__ __forceinline__ uint32_t d_writable(const xci_cuda_listing &listing,
                                                      uint32_t bytes_read) {
    const uint32_t room = bytes_read / XCI_CUDA_ENTRY_BYTES;
    return listing.found < room ? listing.found : room;
}

#endif
