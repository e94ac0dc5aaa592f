/* copy_many: pieces of any length and alignment, a warp a piece. Used for what is small and lies
 * anywhere: tensors that share a chunk, blocks that must begin at a multiple of 16.
 *
 * copy_aligned, join_aligned: pieces in whole vectors, a thread block a piece, some vectors of each
 * thread on their way at a time: a long stretch must come in many pieces. Used for what lies on
 * another GPU: groups of blocks, and parts of chunks. */
#include "backend/cuda/cuda_kernels.h"
#include "backend/cuda/cuda_launch.cuh"
#include "backend/cuda/cuda_move.h"

#define THREADS 128u
#define WARP 32u
#define AHEAD 4u

typedef struct move_list {
    const xci_cuda_move *moves;
    uint64_t count;
} move_list;

/* Four bytes from any address on. */
static __device__ __forceinline__ uint32_t d_word_at(const uint8_t *at) {
    const uint32_t shift = (uint32_t)((uintptr_t)at & 3);
    const uint32_t *const aligned = (const uint32_t *)(at - shift);
    return shift == 0 ? aligned[0] : __funnelshift_r(aligned[0], aligned[1], shift * 8);
}

static __device__ __forceinline__ void d_move(const xci_cuda_move &move, uint32_t lane) {
    const xci_move_cut cut = xci_cut_move((uintptr_t)move.to, (uintptr_t)move.from, move.bytes);
    for (uint64_t i = lane; i < cut.first; i += WARP)
        move.to[i] = move.from[i];
    for (uint64_t i = cut.first + lane * 4; i < cut.end; i += WARP * 4)
        *(uint32_t *)(move.to + i) = d_word_at(move.from + i);
    for (uint64_t i = cut.end + lane; i < move.bytes; i += WARP)
        move.to[i] = move.from[i];
}

static __global__ void __launch_bounds__(THREADS) k_copy_pieces(const move_list list) {
    const uint64_t index = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) / WARP;
    if (index < list.count)
        d_move(list.moves[index], threadIdx.x % WARP);
}

template <bool joins>
static __device__ __forceinline__ void d_put(uint4 *to, uint4 some) {
    if (joins) {
        const uint4 there = *to;
        some = {some.x ^ there.x, some.y ^ there.y, some.z ^ there.z, some.w ^ there.w};
    }
    *to = some;
}

template <bool joins>
static __global__ void __launch_bounds__(THREADS) k_move_vectors(const move_list list) {
    const xci_cuda_move move = list.moves[blockIdx.x];
    const uint4 *const from = (const uint4 *)move.from;
    uint4 *const to = (uint4 *)move.to;
    const uint64_t count = move.bytes / sizeof(uint4);
    uint64_t i = threadIdx.x;
    for (; i + (AHEAD - 1) * THREADS < count; i += AHEAD * THREADS) {
        uint4 some[AHEAD];
#pragma unroll
        for (uint32_t n = 0; n < AHEAD; ++n)
            some[n] = from[i + n * THREADS];
#pragma unroll
        for (uint32_t n = 0; n < AHEAD; ++n)
            d_put<joins>(to + i + n * THREADS, some[n]);
    }
    for (; i < count; i += THREADS)
        d_put<joins>(to + i, from[i]);
}

extern "C" int xci_cuda_copy_aligned(const xci_cuda_move *moves, uint64_t count, void *stream) {
    const move_list list = {moves, count};
    return d_launch(k_move_vectors<false>, list, count, 1, THREADS, stream);
}

extern "C" int xci_cuda_join_aligned(const xci_cuda_move *moves, uint64_t count, void *stream) {
    const move_list list = {moves, count};
    return d_launch(k_move_vectors<true>, list, count, 1, THREADS, stream);
}

extern "C" int xci_cuda_copy_many(const xci_cuda_move *moves, uint64_t count, void *stream) {
    const move_list list = {moves, count};
    return d_launch(k_copy_pieces, list, count, THREADS / WARP, THREADS, stream);
}
