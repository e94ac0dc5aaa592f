/* What the encode kernel asks of the hardware: loads that stream, copies that run beside the work,
 * words shared by all blocks of a grid. Everything else it uses is plain CUDA. A host test
 * replaces this file by an emulation of a warp (tests/gpu/emulated/warp_emulator.h) and runs the
 * same kernel without a GPU.
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

/* Sixteen bytes that are read once, not kept in L1. They may be what this warp has written. */
__device__ __forceinline__ uint4 d_load_once(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
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

__device__ __forceinline__ void d_pause(void) {
    __nanosleep(100);
}

/* Sets bits of word K from `at` on, in shared memory, where other lanes set others. */
template <uint32_t K> __device__ __forceinline__ void d_set_bits(uint32_t *at, uint32_t bits) {
    asm volatile("red.shared.or.b32 [%0+%2], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(at)),
                 "r"(bits), "n"(K * 4)
                 : "memory");
}

/* Sixteen bytes from global to shared memory, on their way until this thread waits. ONCE: they
 * leave L2 first, which keeps other things then: what is to be written. */
template <bool ONCE> __device__ __forceinline__ void d_copy_async(uint4 *to, const uint8_t *from) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if (ONCE)
        asm volatile("{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
                     " cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, policy; }"
                     :
                     : "r"(at), "l"(from)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

/* Makes a group of this thread's copies since the last one; and waits for all groups but the
 * last COUNT. */
__device__ __forceinline__ void d_copy_async_group(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <uint32_t COUNT> __device__ __forceinline__ void d_copy_async_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

/* Adds that of the lane `step` before to `v`, in lanes that have one. */
__device__ __forceinline__ uint32_t d_add_before(uint32_t v, uint32_t step) {
    asm volatile("{ .reg .u32 before; .reg .pred p;"
                 " shfl.sync.up.b32 before|p, %0, %1, 0, 0xffffffff;"
                 " @p add.u32 %0, %0, before; }"
                 : "+r"(v)
                 : "r"(step));
    return v;
}

/* Four of the eight bytes of `low` and `high`: those that the lowest four nibbles of `places`, each
 * below 8, say. */
__device__ __forceinline__ uint32_t d_pick_bytes(uint32_t low, uint32_t high, uint32_t places) {
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(places));
    return v;
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
#pragma unroll
    for (uint32_t step = 1; step < XCI_WARP; step *= 2)
        v = d_add_before(v, step);
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

__device__ __forceinline__ uint4 d_xor(uint4 a, uint4 b) {
    return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

/* That of the next lane. */
__device__ __forceinline__ uint4 d_next_vector(uint4 v) {
    return make_uint4(__shfl_down_sync(XCI_ALL, v.x, 1), __shfl_down_sync(XCI_ALL, v.y, 1),
                      __shfl_down_sync(XCI_ALL, v.z, 1), __shfl_down_sync(XCI_ALL, v.w, 1));
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
