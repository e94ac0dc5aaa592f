/* Sums over a group: `size` threads of a warp, a power of two, that begin at a multiple of
 * `size`. All threads of a group call together; other groups of the warp may be elsewhere. */
#ifndef XCI_CUDA_GROUP_CUH
#define XCI_CUDA_GROUP_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t d_group_threads(uint32_t size) {
    const uint32_t lane = threadIdx.x % 32;
    return (size < 32 ? (1u << size) - 1 : UINT32_MAX) << (lane - lane % size);
}

/* The sum, in all threads. */
template <typename T> static __device__ __forceinline__ T d_group_sum(T value, uint32_t size) {
    for (uint32_t step = size / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(d_group_threads(size), value, step);
    return value;
}

/* The sum of this thread's value and those of the threads before it. */
static __device__ __forceinline__ uint32_t d_group_prefix(uint32_t value, uint32_t size) {
    for (uint32_t step = 1; step < size; step *= 2) {
        const uint32_t before = __shfl_up_sync(d_group_threads(size), value, step, size);
        value += threadIdx.x % size >= step ? before : 0;
    }
    return value;
}

#endif
