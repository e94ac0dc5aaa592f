/* Copies by one warp to memory of any alignment: from a ring in shared memory, and from memory that
 * this block has written. Nothing outside the destination is written; sources may be read up to 15
 * bytes beyond their end. */
#ifndef XCI_CUDA_ENCODE_COPY_CUH
#define XCI_CUDA_ENCODE_COPY_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_COPY_STEPS 4u /* loads in flight */

/* `count` bytes of the ring, of `ring_bytes`, from byte `from` on. Four bytes a lane. */
__device__ __forceinline__ void d_copy_ring(uint8_t *to, const uint8_t *ring, uint32_t ring_bytes,
                                            uint32_t from, uint32_t count) {
    const uint32_t *words = (const uint32_t *)ring;
    const int32_t skew = (int32_t)((uintptr_t)to % 4);
    for (int32_t i = (int32_t)(d_lane() * 4) - skew; i < (int32_t)count; i += XCI_WARP * 4) {
        const uint32_t at = from + (uint32_t)i;
        const uint32_t word = at / 4 % (ring_bytes / 4);
        const uint32_t next = (word + 1) % (ring_bytes / 4);
        const uint32_t four = __funnelshift_r(words[word], words[next], at % 4 * 8);
        if (i >= 0 && i + 4 <= (int32_t)count) {
            *(uint32_t *)(to + i) = four;
        } else {
            for (int32_t k = max(0, -i); k < 4 && i + k < (int32_t)count; ++k)
                to[i + k] = (uint8_t)(four >> k * 8);
        }
    }
}

__device__ __forceinline__ void d_store_edge(uint8_t *to, int32_t at, uint32_t count, uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int32_t k = 0; k < 16; ++k)
        if (at + k >= 0 && at + k < (int32_t)count)
            to[at + k] = (uint8_t)(words[k / 4] >> k % 4 * 8);
}

/* Sixteen bytes from any address. */
__device__ __forceinline__ uint4 d_load_any(const uint8_t *from) {
    const uint32_t shift = (uint32_t)((uintptr_t)from % 16);
    const uint4 *at = (const uint4 *)(from - shift);
    const uint4 a = __ldcg(at);
    return shift != 0 ? d_shift_vector(a, __ldcg(at + 1), shift) : a;
}

/* The same from global memory, sixteen bytes a lane. Reads up to 15 bytes before `from` too. */
__device__ __forceinline__ void d_copy(uint8_t *to, const uint8_t *from, uint32_t count) {
    const int32_t skew = (int32_t)((uintptr_t)to % 16);
    int32_t i = (int32_t)(d_lane() * 16) - skew;
    for (; i < (int32_t)count; i += XCI_WARP * 16 * XCI_COPY_STEPS) {
        uint4 parts[XCI_COPY_STEPS];
#pragma unroll
        for (int32_t k = 0; k < (int32_t)XCI_COPY_STEPS; ++k) {
            const int32_t at = i + k * (int32_t)XCI_WARP * 16;
            if (at < (int32_t)count)
                parts[k] = d_load_any(from + at);
        }
#pragma unroll
        for (int32_t k = 0; k < (int32_t)XCI_COPY_STEPS; ++k) {
            const int32_t at = i + k * (int32_t)XCI_WARP * 16;
            if (at >= 0 && at + 16 <= (int32_t)count)
                *(uint4 *)(to + at) = parts[k];
            else if (at < (int32_t)count)
                d_store_edge(to, at, count, parts[k]);
        }
    }
}

__device__ __forceinline__ void d_clear(uint8_t *to, uint32_t count) {
    for (uint32_t i = d_lane(); i < count; i += XCI_WARP)
        to[i] = 0;
}

#endif
