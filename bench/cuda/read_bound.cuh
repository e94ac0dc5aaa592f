/* The bound of everything that looks at two versions: both read once, and nothing else. */
#ifndef BENCH_CUDA_READ_BOUND_CUH
#define BENCH_CUDA_READ_BOUND_CUH

#include <algorithm>

#include "cuda/timing.cuh"

static __device__ __forceinline__ uint4 d_load_once(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

template <uint32_t DEPTH>
static __global__ void k_read_both(const uint4 *a, const uint4 *b, uint64_t count, uint32_t *sink) {
    const uint64_t stride = (uint64_t)blockDim.x * DEPTH;
    uint32_t sum = 0;
    for (uint64_t first = blockIdx.x * stride; first < count; first += gridDim.x * stride) {
        uint4 va[DEPTH], vb[DEPTH];
#pragma unroll
        for (uint32_t k = 0; k < DEPTH; ++k) {
            const uint64_t i = first + k * blockDim.x + threadIdx.x;
            va[k] = vb[k] = make_uint4(0, 0, 0, 0);
            if (i < count) {
                va[k] = d_load_once(a + i);
                vb[k] = d_load_once(b + i);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < DEPTH; ++k)
            sum ^= va[k].x ^ va[k].y ^ va[k].z ^ va[k].w ^ vb[k].x ^ vb[k].y ^ vb[k].z ^ vb[k].w;
    }
    if (sum == 0x12345678)
        *sink = sum;
}

/* By one of three plain loops. */
#define READ_SHAPES 3
static double read_both_ms(const void *a, const void *b, uint64_t bytes, unsigned rounds,
                           int shape) {
    const uint64_t count = bytes / 16;
    const uint4 *const at = (const uint4 *)a, *const bt = (const uint4 *)b;
    uint32_t *const sink = device_array<uint32_t>(1);
    const double ms = median_ms(rounds, [&] {
        if (shape == 0)
            k_read_both<4><<<132 * 4, 512>>>(at, bt, count, sink);
        else if (shape == 1)
            k_read_both<4><<<132 * 8, 256>>>(at, bt, count, sink);
        else
            k_read_both<2><<<132 * 16, 256>>>(at, bt, count, sink);
    });
    CUDA(cudaFree(sink));
    return ms;
}

/* By the fastest of them. */
static double read_bound_ms(const void *a, const void *b, uint64_t bytes, unsigned rounds) {
    double best = read_both_ms(a, b, bytes, rounds, 0);
    for (int shape = 1; shape < READ_SHAPES; ++shape)
        best = std::min(best, read_both_ms(a, b, bytes, rounds, shape));
    return best;
}

#endif
