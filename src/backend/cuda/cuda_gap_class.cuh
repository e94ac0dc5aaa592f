/* Classes of old elements, 16 bytes at a time: how many of a vector's elements have a key that is
 * not below some number. Elements are looked at several at a time, in the fields of a word of 4
 * bytes. */
#ifndef XCI_CUDA_GAP_CLASS_CUH
#define XCI_CUDA_GAP_CLASS_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "codec/gap_format.h"

/* How the keys of elements of a width lie in a word of 4 bytes once it is moved down by `down`: in
 * fields that have a bit above the key's, which a sum with `above` - first carries into if the key
 * is not below `first`. */
typedef struct xci_gap_fields {
    uint32_t width, down, keys, tops, top; /* masks of keys and of the bits above; that bit */
    uint32_t ones;                         /* the lowest bit of each field */
    uint32_t above;                        /* the number of keys */
} xci_gap_fields;

__device__ __forceinline__ xci_gap_fields d_fields_of(uint32_t width) {
    xci_gap_fields f;
    f.width = width;
    f.above = xci_gap_key_count(width);
    f.down = width == 2 ? 7 : width > 2 ? 23 : 0;
    f.ones = width == 0 ? 0x11111111u : width == 1 ? 0x01010101u : width == 2 ? 0x00010001u : 1u;
    f.keys = f.ones * (f.above - 1);
    f.tops = f.ones * f.above;
    f.top = width == 0 ? 3 : width == 1 ? 7 : 8;
    return f;
}

/* What is added for keys that are not below `first`; for none, if there are no such keys. */
__device__ __forceinline__ uint32_t d_key_bound(const xci_gap_fields &f, uint32_t first) {
    return f.ones * (f.above - first);
}

/* The fields of a vector's words. Elements of 8 bytes have their keys in the upper halves. */
__device__ __forceinline__ void d_keys_of(const xci_gap_fields &f, uint4 v, uint32_t *words) {
    words[0] = (f.width == 4 ? v.y : v.x) >> f.down & f.keys;
    words[1] = (f.width == 4 ? v.w : v.y) >> f.down & f.keys;
    words[2] = v.z >> f.down & f.keys;
    words[3] = v.w >> f.down & f.keys;
}

/* For each element of a word, in the lowest bit of its field: whether its key is not below. */
__device__ __forceinline__ uint32_t d_not_below(const xci_gap_fields &f, uint32_t word,
                                                uint32_t bound) {
    return (word + bound) >> f.top & f.ones;
}

/* Marks of the first `count` elements of a vector; of all, if there are as many. */
__device__ __forceinline__ void d_keep_marks(const xci_gap_fields &f, uint32_t count,
                                             uint32_t *marks) {
    const uint32_t per_word = f.width == 4 ? 1 : 8u >> f.width;
    const uint32_t bits = f.width >= 3 ? 32 : 4u << f.width;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t before = i * per_word, here = count > before ? count - before : 0;
        const uint32_t kept = min(here, per_word) * bits;
        marks[i] = f.width == 4 && i > 1 ? 0 : kept >= 32 ? f.ones : f.ones & ((1u << kept) - 1);
    }
}

/* The sum of the fields of four words of marks. */
__device__ __forceinline__ uint32_t d_sum_marks(const xci_gap_fields &f, uint32_t sum) {
    if (f.width == 0) {
        sum = (sum & 0x0f0f0f0fu) + (sum >> 4 & 0x0f0f0f0fu);
        return sum * 0x01010101u >> 24;
    }
    return f.width == 1 ? sum * 0x01010101u >> 24 : (sum + (sum >> 16)) & 0xffff;
}

#endif
