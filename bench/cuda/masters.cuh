/* Weights that follow FP32 masters, grown in device memory: the same bytes as gen_run_bytes writes
 * on the host, of any range of any tensor. A thread makes a piece at a time. */
#ifndef BENCH_CUDA_MASTERS_CUH
#define BENCH_CUDA_MASTERS_CUH

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <vector>

extern "C" {
#include "gen/gen_matrix.h"
}

#define MASTERS_PIECE 64u

static __global__ void __launch_bounds__(128)
    k_masters(const gen_matrix m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x * MASTERS_PIECE;
    for (uint64_t at = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * MASTERS_PIECE;
         at < count; at += step)
        gen_matrix_range(&m, offset + at, bytes + at,
                         count - at < MASTERS_PIECE ? count - at : MASTERS_PIECE);
}

/* Bytes [offset, offset + count) of the tensor after `step` steps into device memory; `offset` is a
 * multiple of 8. On the default stream; what has no masters is made by the host and copied. */
static inline cudaError_t masters_grow(const gen_run *run, const gen_tensor *tensor, uint64_t step,
                                       uint64_t offset, uint8_t *bytes, uint64_t count) {
    if (count == 0)
        return cudaSuccess;
    if (!gen_has_masters(run, tensor)) {
        std::vector<uint8_t> made(count);
        gen_run_bytes(run, tensor, step, offset, made.data(), count);
        return cudaMemcpy(bytes, made.data(), count, cudaMemcpyHostToDevice);
    }
    const uint64_t blocks = (count + 128 * MASTERS_PIECE - 1) / (128 * MASTERS_PIECE);
    k_masters<<<(unsigned)std::min<uint64_t>(blocks, 1u << 20), 128>>>(
        gen_matrix_of(run, tensor, step), offset, bytes, count);
    return cudaGetLastError();
}

#endif
