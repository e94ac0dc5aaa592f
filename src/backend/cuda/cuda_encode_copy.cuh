/* Copies by one warp to memory of any alignment. Nothing outside the destination is written. */
#ifndef XCI_CUDA_ENCODE_COPY_CUH
#define XCI_CUDA_ENCODE_COPY_CUH

#include "backend/cuda/cuda_encode_warp.cuh"

#define XCI_COPY_STEPS 2u /* vectors of a lane on their way */

/* Vectors of memory at any address to aligned ones: each is made of a lane's aligned vector and of
 * that of the next lane. Of the aligned vectors that they lie in, whole ones are read. */
__device__ __forceinline__ void d_copy_vectors(uint4 *to, const uint8_t *from, uint32_t count) {
    const uint32_t shift = (uint32_t)((uintptr_t)from % 16);
    const uint4 *at = (const uint4 *)(from - shift);
    const uint32_t loads = count + (shift != 0), step = XCI_WARP - 1;
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += step * XCI_COPY_STEPS) {
        uint4 vectors[XCI_COPY_STEPS];
#pragma unroll
        for (uint32_t k = 0; k < XCI_COPY_STEPS; ++k) {
            const uint32_t i = first + k * step + d_lane();
            vectors[k] = i < loads ? __ldcg(at + i) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (uint32_t k = 0; k < XCI_COPY_STEPS; ++k) {
            const uint32_t i = first + k * step + d_lane();
            const uint4 v = d_shift_vector(vectors[k], d_next_vector(vectors[k]), shift);
            if (d_lane() < step && i < count)
                to[i] = v;
        }
    }
}

/* Global memory that this warp has written. */
static __device__ __noinline__ void d_copy(uint8_t *to, const uint8_t *from, uint32_t count) {
    const uint32_t head = min(count, (uint32_t)(0u - (uintptr_t)to) % 16);
    const uint32_t tail = (count - head) % 16;
    if (d_lane() < head)
        to[d_lane()] = __ldcg(from + d_lane());
    if (d_lane() < tail)
        to[count - tail + d_lane()] = __ldcg(from + count - tail + d_lane());
    d_copy_vectors((uint4 *)(to + head), from + head, (count - head) / 16);
}

/* Of a vector that begins at `at` of memory of `count` bytes, the bytes that lie inside. */
static __device__ __noinline__ void d_store_edge(uint8_t *to, int32_t at, uint32_t count, uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int32_t k = 0; k < 16; ++k)
        if (at + k >= 0 && at + k < (int32_t)count)
            to[at + k] = (uint8_t)(words[k / 4] >> k % 4 * 8);
}

#endif
