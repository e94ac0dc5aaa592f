/* Runs kernels of the CUDA backend on the host, so that their logic is tested where there is no
 * GPU. Every thread is a fiber that runs until it waits: at a collective of its warp, at a
 * barrier of its block, or in d_pause(). A collective that not all lanes of a warp reach, or that
 * they reach by different calls, ends the program with a message. Fibers run in an order that
 * changes, so that a missing synchronisation tends to show. Does not model caches, the memory
 * model or time.
 *
 * Included before a .cu file that is compiled as C++; replaces the part of cuda_encode_warp.cuh
 * that speaks to the hardware. */
#ifndef WARP_EMULATOR_H
#define WARP_EMULATOR_H

#include <stdint.h>
#include <string.h>
#include <utility>

#include <cuda_runtime_api.h>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct uint4 {
    uint32_t x, y, z, w;
} __attribute__((aligned(16)));
struct uint2 {
    uint32_t x, y;
} __attribute__((aligned(8)));
struct emulated_index {
    uint32_t x;
};

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return uint4{x, y, z, w};
}
template <typename T> static inline T min(T a, T b) {
    return a < b ? a : b;
}
template <typename T> static inline T max(T a, T b) {
    return a > b ? a : b;
}

extern emulated_index threadIdx, blockIdx, blockDim, gridDim;
extern void *emulated_shared; /* of the block that runs */

/* Lets other threads run. */
void emulated_yield(void);
/* Gives `value` to the warp and waits for all lanes; `call` tells calls apart. Returns all values,
 * good until the lane's next collective. */
const uint64_t *emulated_collect(uint32_t mask, uint64_t value, int call);
/* Waits for all threads of the block; whether `v` was true in any of them. */
bool emulated_block_barrier(bool v);

static inline uint32_t d_lane(void) {
    return threadIdx.x % 32;
}
static inline uint4 d_load_once(const uint4 *at) {
    return *at;
}
static inline uint64_t d_load_shared_word(const uint64_t *at) {
    return *(const volatile uint64_t *)at;
}
static inline void d_store_shared_word(uint64_t *at, uint64_t v) {
    *(volatile uint64_t *)at = v;
}
static inline void d_pause(void) {
    emulated_yield();
}
/* Copies that run beside the work arrive when the thread waits for their group, and not before. */
void emulated_copy(void *to, const void *from, uint32_t bytes);
void emulated_copy_group(void);
void emulated_copy_wait(uint32_t groups);
template <bool ONCE> static inline void d_copy_async(uint4 *to, const uint8_t *from) {
    emulated_copy(to, from, 16);
}
static inline void d_copy_async_group(void) {
    emulated_copy_group();
}
template <uint32_t COUNT> static inline void d_copy_async_wait(void) {
    emulated_copy_wait(COUNT);
}
template <uint32_t K> static inline void d_set_bits(uint32_t *at, uint32_t bits) {
    at[K] |= bits;
}
#define XCI_SHARED_MEMORY(name) uint4 *const name = (uint4 *)emulated_shared

static inline void __syncwarp(void) {
    emulated_collect(0xffffffff, 0, 2);
}
static inline void __syncthreads(void) {
    emulated_block_barrier(false);
}
static inline bool __syncthreads_or(bool v) {
    return emulated_block_barrier(v);
}
static inline uint32_t __ballot_sync(uint32_t mask, bool v) {
    const uint64_t *all = emulated_collect(mask, v, 1);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 32; ++i)
        bits |= (uint32_t)all[i] << i;
    return bits;
}
static inline bool __any_sync(uint32_t mask, bool v) {
    return __ballot_sync(mask, v) != 0;
}
template <typename T> static inline T __shfl_sync(uint32_t mask, T v, uint32_t lane) {
    return (T)emulated_collect(mask, (uint64_t)v, 3)[lane % 32];
}
template <typename T>
static inline T __shfl_up_sync(uint32_t mask, T v, uint32_t by, uint32_t width = 32) {
    const uint32_t lane = d_lane();
    return (T)emulated_collect(mask, (uint64_t)v, 4)[lane % width >= by ? lane - by : lane];
}
static inline uint32_t d_add_before(uint32_t v, uint32_t step) {
    const uint32_t before = __shfl_up_sync(0xffffffff, v, step);
    return d_lane() >= step ? v + before : v;
}
template <typename T> static inline T __shfl_down_sync(uint32_t mask, T v, uint32_t by) {
    const uint32_t lane = d_lane();
    return (T)emulated_collect(mask, (uint64_t)v, 7)[lane + by < 32 ? lane + by : lane];
}
template <typename T> static inline T __shfl_xor_sync(uint32_t mask, T v, uint32_t by) {
    const uint32_t lane = d_lane();
    return (T)emulated_collect(mask, (uint64_t)v, 5)[lane ^ by];
}
static inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t v) {
    const uint64_t *all = emulated_collect(mask, v, 8);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 32; ++i)
        bits |= (uint32_t)all[i];
    return bits;
}
static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v) {
    const uint64_t *all = emulated_collect(mask, v, 6);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 32; ++i)
        sum += (uint32_t)all[i];
    return sum;
}
static inline uint32_t __match_any_sync(uint32_t mask, uint32_t v) {
    const uint64_t *all = emulated_collect(mask, v, 8);
    uint32_t same = 0;
    for (uint32_t i = 0; i < 32; ++i)
        same |= (uint32_t)(all[i] == v) << i;
    return same;
}

/* As the hardware has it: a nibble of 8 or more gives the sign of a byte in all its bits. */
static inline uint32_t d_pick_bytes(uint32_t low, uint32_t high, uint32_t places) {
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t picked = 0;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t place = places >> 4 * i & 15, byte = (uint32_t)(both >> place % 8 * 8) & 255;
        picked |= (place < 8 ? byte : byte / 128 * 255) << 8 * i;
    }
    return picked;
}
static inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t sum) {
    for (uint32_t i = 0; i < 32; i += 8)
        sum += (a >> i & 255) * (b >> i & 255);
    return sum;
}
static inline int __popc(uint32_t v) {
    return __builtin_popcount(v);
}
static inline int __popcll(uint64_t v) {
    return __builtin_popcountll(v);
}
static inline int __clz(int v) {
    return v == 0 ? 32 : __builtin_clz((unsigned)v);
}
static inline int __clzll(long long v) {
    return v == 0 ? 64 : __builtin_clzll((uint64_t)v);
}
static inline uint32_t __brev(uint32_t v) {
    uint32_t turned = 0;
    for (uint32_t i = 0; i < 32; ++i)
        turned |= (v >> i & 1) << (31 - i);
    return turned;
}
static inline int __ffs(int v) {
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v) {
    return __builtin_ffsll(v);
}
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (by & 31));
}
static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
template <typename T> static inline T __ldcg(const T *at) {
    return *at;
}
/* Fibers change hands at shuffles and barriers only. */
template <typename T> static inline T emulated_exchange(T *at, T next) {
    const T before = *at;
    *at = next;
    return before;
}
template <typename T> static inline T atomicAdd(T *at, T v) {
    return emulated_exchange(at, (T)(*at + v));
}
template <typename T> static inline T atomicXor(T *at, T v) {
    return emulated_exchange(at, (T)(*at ^ v));
}
template <typename T> static inline T atomicOr(T *at, T v) {
    return emulated_exchange(at, (T)(*at | v));
}
template <typename T> static inline T atomicMin(T *at, T v) {
    return emulated_exchange(at, min(*at, v));
}
template <typename T> static inline T atomicMax(T *at, T v) {
    return emulated_exchange(at, max(*at, v));
}

/* A device of two processors that each hold two blocks: enough for blocks to wait for others. */
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
struct dim3 {
    uint32_t x;
    dim3(uint32_t x_in) : x(x_in) {}
};
static inline cudaError_t cudaGetDevice(int *device_out) {
    return *device_out = 0, cudaSuccess;
}
static inline cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr attribute, int) {
    *out = attribute == cudaDevAttrMultiProcessorCount ? 2 : 232448;
    return cudaSuccess;
}
template <typename F> static inline cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute, int) {
    return cudaSuccess;
}
template <typename F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, F *, int,
                                                                        size_t) {
    return *out = 2, cudaSuccess;
}
/* Runs `body(context)` in every thread of the grid. */
void emulated_run(uint32_t blocks, uint32_t threads, size_t shared_bytes,
                  void (*body)(void *context), void *context);

template <typename... A, size_t... I>
static inline void emulated_call(void (*kernel)(A...), void **arguments,
                                 std::index_sequence<I...>) {
    kernel(*(A *)arguments[I]...);
}

template <typename... A> struct emulated_launch {
    void (*kernel)(A...);
    void **arguments;
    static void run(void *context) {
        const emulated_launch *launch = (const emulated_launch *)context;
        emulated_call(launch->kernel, launch->arguments, std::index_sequence_for<A...>());
    }
};

template <typename... A>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(A...), dim3 blocks, dim3 threads,
                                           void **arguments, size_t shared_bytes, cudaStream_t) {
    emulated_launch<A...> launch = {kernel, arguments};
    emulated_run(blocks.x, threads.x, shared_bytes, emulated_launch<A...>::run, &launch);
    return cudaSuccess;
}

#endif
