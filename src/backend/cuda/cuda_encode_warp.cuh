/* What the encode kernel asks of the hardware: loads that stream, words shared by all blocks of a
 * grid, barriers of a block. Everything else it uses is plain CUDA. A host test replaces this
 * file by an emulation of a warp (tests/gpu/warp_emulator.h) and runs the same kernel without a
 * GPU.
 *
 * All collectives of the kernel are called by whole warps. */
#ifndef XCI_CUDA_ENCODE_WARP_CUH
#define XCI_CUDA_ENCODE_WARP_CUH

#include <stdint.h>

#define XCI_WARP 32u
#define XCI_ALL 0xffffffffu
#define XCI_RARE(condition) __builtin_expect(!!(condition), 0)
#define XCI_USUAL(condition) __builtin_expect(!!(condition), 1)

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t d_lane(void) {
    return threadIdx.x % XCI_WARP;
}

/* Sixteen bytes that are read once: not kept in L1. */
__device__ __forceinline__ uint4 d_load_once(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

__device__ __forceinline__ uint64_t d_load_shared_word(const uint64_t *at) {
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ void d_store_shared_word(uint64_t *at, uint64_t v) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

/* A barrier in shared memory. Phases are numbered from 0; one ends when `count` threads have
 * arrived. What was written before arriving is seen after waiting. Barriers of shared memory, not
 * those with numbers, because of these a multiprocessor has only as many as four blocks need. */
__device__ __forceinline__ void d_barrier_init(uint64_t *barrier, uint32_t count) {
    asm volatile(
        "mbarrier.init.shared.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(barrier)),
        "r"(count)
        : "memory");
}

__device__ __forceinline__ void d_barrier_arrive(uint64_t *barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(barrier))
                 : "memory");
}

/* Waits for the end of `phase`; a whole warp. */
__device__ __forceinline__ void d_barrier_wait(uint64_t *barrier, uint32_t phase) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(barrier), parity = phase & 1;
    uint32_t over;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                     " selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(at), "r"(parity)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
                     " selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(at), "r"(parity)
                     : "memory");
#endif
    } while (over == 0);
    __syncwarp();
}

__device__ __forceinline__ void d_pause(void) {
    __nanosleep(100);
}

/* Sixteen bytes from global to shared memory, on their way until the thread waits. */
__device__ __forceinline__ void d_copy_async(uint4 *to, const uint4 *from) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}

__device__ __forceinline__ void d_copy_async_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#define XCI_SHARED_MEMORY(name) extern __shared__ uint4 name[]

#endif

/* Sum over the lanes, in all of them. */
__device__ __forceinline__ uint32_t d_sum(uint32_t v) {
    return __reduce_add_sync(XCI_ALL, v);
}

__device__ __forceinline__ uint64_t d_sum64(uint64_t v) {
    for (uint32_t step = XCI_WARP / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(XCI_ALL, v, step);
    return v;
}

/* Sum over this lane and those before it. */
__device__ __forceinline__ uint32_t d_scan(uint32_t v) {
    for (uint32_t step = 1; step < XCI_WARP; step *= 2) {
        const uint32_t before = __shfl_up_sync(XCI_ALL, v, step);
        v += d_lane() >= step ? before : 0;
    }
    return v;
}

__device__ __forceinline__ uint64_t d_scan64(uint64_t v) {
    for (uint32_t step = 1; step < XCI_WARP; step *= 2) {
        const uint64_t before = __shfl_up_sync(XCI_ALL, v, step);
        v += d_lane() >= step ? before : 0;
    }
    return v;
}

/* The highest bit that is set; `mask` is not 0. */
__device__ __forceinline__ uint32_t d_highest(uint32_t mask) {
    return 31 - (uint32_t)__clz((int)mask);
}

__device__ __forceinline__ uint4 d_shuffle_vector(uint4 v, uint32_t lane) {
    return make_uint4(__shfl_sync(XCI_ALL, v.x, lane), __shfl_sync(XCI_ALL, v.y, lane),
                      __shfl_sync(XCI_ALL, v.z, lane), __shfl_sync(XCI_ALL, v.w, lane));
}

/* The first 16 bytes behind `shift` (0 to 15) of the 32 that `a` and `b` are. */
__device__ __forceinline__ uint4 d_shift_vector(uint4 a, uint4 b, uint32_t shift) {
    const uint32_t bits = shift % 4 * 8;
    if (shift & 8)
        a = make_uint4(a.z, a.w, b.x, b.y), b = make_uint4(b.z, b.w, b.z, b.w);
    if (shift & 4)
        a = make_uint4(a.y, a.z, a.w, b.x), b = make_uint4(b.y, b.z, b.w, b.w);
    return make_uint4(__funnelshift_r(a.x, a.y, bits), __funnelshift_r(a.y, a.z, bits),
                      __funnelshift_r(a.z, a.w, bits), __funnelshift_r(a.w, b.x, bits));
}

#endif
