/* Copies by one warp to memory of any alignment: from shared memory, and from global memory that
 * this block has written. Nothing outside the destination is written. */
#ifndef XCI_CUDA_ENCODE_COPY_CUH
#define XCI_CUDA_ENCODE_COPY_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_COPY_STEPS 3u /* loads in flight */

/* From shared memory, four bytes a lane. Reads up to 3 bytes before and behind too. */
static __device__ __noinline__ void d_copy_near(uint8_t *to, const uint8_t *from, uint32_t count) {
    const uint32_t shift = (uint32_t)((uintptr_t)(from - (uintptr_t)to % 4) % 4);
    for (int32_t i = (int32_t)(d_lane() * 4) - (int32_t)((uintptr_t)to % 4); i < (int32_t)count;
         i += XCI_WARP * 4) {
        const uint32_t *at = (const uint32_t *)(from + i - shift);
        const uint32_t four = __funnelshift_r(at[0], shift != 0 ? at[1] : 0, shift * 8);
        if (i >= 0 && i + 4 <= (int32_t)count) {
            *(uint32_t *)(to + i) = four;
        } else {
            for (int32_t k = max(0, -i); k < 4 && i + k < (int32_t)count; ++k)
                to[i + k] = (uint8_t)(four >> k * 8);
        }
    }
}

static __device__ __noinline__ void d_store_edge(uint8_t *to, int32_t at, uint32_t count, uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int32_t k = 0; k < 16; ++k)
        if (at + k >= 0 && at + k < (int32_t)count)
            to[at + k] = (uint8_t)(words[k / 4] >> k % 4 * 8);
}

/* Sixteen bytes a lane of memory at any address, several loads in flight. The bytes of a vector
 * before the first and behind the last that counts are read if they share its aligned vector. */
static __device__ __noinline__ void d_copy(uint8_t *to, const uint8_t *from, uint32_t count) {
    const uint32_t shift = (uint32_t)((uintptr_t)(from - (uintptr_t)to % 16) % 16);
    const uint8_t *const end = from + count;
    int32_t i = (int32_t)(d_lane() * 16) - (int32_t)((uintptr_t)to % 16);
    for (; i < (int32_t)count; i += XCI_WARP * 16 * XCI_COPY_STEPS) {
        uint4 low[XCI_COPY_STEPS], high[XCI_COPY_STEPS];
#pragma unroll
        for (int32_t k = 0; k < (int32_t)XCI_COPY_STEPS; ++k) {
            const uint8_t *at = from + i + k * (int32_t)XCI_WARP * 16 - shift;
            low[k] = high[k] = make_uint4(0, 0, 0, 0);
            if (at + 16 > from && at < end)
                low[k] = __ldcg((const uint4 *)at);
            if (at + 16 < end)
                high[k] = __ldcg((const uint4 *)at + 1);
        }
#pragma unroll
        for (int32_t k = 0; k < (int32_t)XCI_COPY_STEPS; ++k) {
            const int32_t at = i + k * (int32_t)XCI_WARP * 16;
            const uint4 v = d_shift_vector(low[k], high[k], shift);
            if (at >= 0 && at + 16 <= (int32_t)count)
                *(uint4 *)(to + at) = v;
            else if (at < (int32_t)count)
                d_store_edge(to, at, count, v);
        }
    }
}

__device__ __forceinline__ void d_clear(uint8_t *to, uint32_t count) {
    for (uint32_t i = d_lane(); i < count; i += XCI_WARP)
        to[i] = 0;
}

#endif
