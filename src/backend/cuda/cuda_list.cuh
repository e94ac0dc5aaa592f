/* The device's own form of a block, a list of changed bytes (cuda_kernels.h): its entries, and how
 * many a word makes. */
#ifndef XCI_CUDA_LIST_CUH
#define XCI_CUDA_LIST_CUH

#include <stdint.h>

#define XCI_CUDA_ENTRY_BYTES 4u
/* Threads that walk a block together in check and in prepare: check answers for prepare that words
 * taken so many at a time leave room for their entries. */
#ifndef XCI_CUDA_STAGE_GROUP
#define XCI_CUDA_STAGE_GROUP 2u
#endif

static __device__ __forceinline__ uint32_t d_entry(uint32_t position, uint32_t byte) {
    return position << 8 | byte;
}
static __device__ __forceinline__ uint32_t d_entry_position(uint32_t entry) { return entry >> 8; }
static __device__ __forceinline__ uint32_t d_entry_byte(uint32_t entry) { return entry & 0xff; }

static __device__ __forceinline__ uint32_t d_changed_bytes(uint64_t mask) {
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    return __popcll((((mask & low) + low) | mask) & ~low);
}

#endif
