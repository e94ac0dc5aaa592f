/* For code that the host and kernels share: how it is declared, and counting of bits, which the two
 * sides name differently. */
#ifndef XCI_BOTH_H
#define XCI_BOTH_H

#include <stdint.h>

#ifdef __CUDACC__
#define XCI_BOTH static __host__ __device__ __forceinline__
#else
#define XCI_BOTH static inline
#endif

/* Zeros above the highest one of a number that is not 0. */
XCI_BOTH uint32_t xci_zeros_above32(uint32_t value) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__clz((int)value);
#else
    return (uint32_t)__builtin_clz(value);
#endif
}

XCI_BOTH uint32_t xci_zeros_above64(uint64_t value) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__clzll((long long)value);
#else
    return (uint32_t)__builtin_clzll(value);
#endif
}

/* Zeros below the lowest one of a number that is not 0. */
XCI_BOTH uint32_t xci_zeros_below64(uint64_t value) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__ffsll((long long)value) - 1;
#else
    return (uint32_t)__builtin_ctzll(value);
#endif
}

#endif
