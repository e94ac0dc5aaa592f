/* Masks of synthetic steps, made on the GPU by a hash of the position, and a slow, simple
 * encoder of them: a thread a chunk. What a benchmark of commit needs before the clock starts. */
#ifndef BENCH_CUDA_MASKS_CUH
#define BENCH_CUDA_MASKS_CUH

#include <stdint.h>

/* How the bytes of a chunk change. */
struct mask_rule {
    uint32_t element_bytes;
    uint32_t share;  /* of elements, in 2^-32, inside dirty pages */
    uint32_t dirty;  /* of 4 KiB pages, in 2^-32; UINT32_MAX: all */
    uint32_t bit_of; /* a change is one of so many low bits, or else a random byte */
};

#define MASK_PAGE 4096u

static __host__ __device__ inline uint32_t mask_hash(uint64_t x) {
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    return (uint32_t)(x >> 32);
}

static __device__ inline bool mask_page_dirty(const mask_rule &rule, uint64_t chunk,
                                              uint32_t page) {
    return rule.dirty == UINT32_MAX || mask_hash((chunk << 20 | page) ^ 0x5bd1e995u) < rule.dirty;
}

/* The byte of the mask at `at` of a chunk, in a dirty page. */
static __device__ inline uint8_t mask_at(const mask_rule &rule, uint64_t chunk, uint32_t at) {
    const uint32_t element = at / rule.element_bytes;
    const uint32_t hash = mask_hash(chunk << 20 | element);
    if (hash >= rule.share)
        return 0;
    const uint32_t value = mask_hash((chunk << 20 | element) + UINT64_C(0x10000000000));
    if (at % rule.element_bytes != 0)
        return at % rule.element_bytes == 1 && value % 29 == 0 ? 1 : 0;
    return value % 4 != 0 ? (uint8_t)(1u << value / 4 % rule.bit_of)
                          : (uint8_t)(1 + value / 4 % 255);
}

struct mask_writer {
    const mask_rule *rule;
    uint64_t chunk;
    uint32_t bytes;
    uint8_t *out; /* NULL: only sizes */
    uint32_t size, anchor, zero;
};

static __device__ inline uint8_t mask_any(const mask_rule &rule, uint64_t chunk, uint32_t at) {
    return mask_page_dirty(rule, chunk, at / MASK_PAGE) ? mask_at(rule, chunk, at) : 0;
}

static __device__ inline void mask_put(mask_writer *w, uint32_t byte) {
    if (w->out != nullptr)
        w->out[w->size] = (uint8_t)byte;
    ++w->size;
}

static __device__ inline void mask_put_length(mask_writer *w, uint32_t length) {
    if (length < 15)
        return;
    for (length -= 15; length >= 255; length -= 255)
        mask_put(w, 255);
    mask_put(w, length);
}

/* Literals up to `literal_end`, and a match of so many bytes, or none. */
static __device__ inline void mask_sequence(mask_writer *w, uint32_t literal_end, uint32_t match) {
    const uint32_t literals = literal_end - w->anchor, code = match != 0 ? match - 4 : 0;
    mask_put(w, (literals < 15 ? literals : 15) << 4 | (code < 15 ? code : 15));
    mask_put_length(w, literals);
    if (w->out == nullptr)
        w->size += literals;
    else
        for (uint32_t i = w->anchor; i < literal_end; ++i)
            mask_put(w, mask_any(*w->rule, w->chunk, i));
    if (match == 0)
        return;
    mask_put(w, 1);
    mask_put(w, 0);
    mask_put_length(w, code);
    w->anchor = literal_end + match;
}

/* The zero run that ends at `end`. */
static __device__ inline void mask_run(mask_writer *w, uint32_t end) {
    const uint32_t stop = end < w->bytes - 5 ? end : w->bytes - 5;
    if (end - w->zero >= 5 && w->zero + 13 <= w->bytes)
        mask_sequence(w, w->zero + 1, stop - w->zero - 1);
}

/* The block of a chunk: its size as LZ4, or `bytes` for raw, or 0 for no change. */
static __device__ inline uint32_t mask_encode(const mask_rule &rule, uint64_t chunk, uint32_t bytes,
                                              uint8_t *out) {
    mask_writer w = {&rule, chunk, bytes, out, 0, 0, 0};
    bool changed = false;
    for (uint32_t page = 0; page * MASK_PAGE < bytes; ++page) {
        if (!mask_page_dirty(rule, chunk, page))
            continue;
        const uint32_t end = (page + 1) * MASK_PAGE < bytes ? (page + 1) * MASK_PAGE : bytes;
        for (uint32_t at = page * MASK_PAGE; at < end; ++at) {
            if (mask_at(rule, chunk, at) == 0)
                continue;
            mask_run(&w, at);
            w.zero = at + 1;
            changed = true;
        }
    }
    if (bytes > 5)
        mask_run(&w, bytes);
    mask_sequence(&w, bytes, 0);
    return !changed ? 0 : w.size < bytes ? w.size : bytes;
}

struct mask_chunk {
    uint8_t *at;
    uint32_t bytes, rule;
};

static __global__ void k_size_blocks(const mask_chunk *chunks, const mask_rule *rules,
                                     uint64_t count, uint32_t *sizes) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sizes[i] = mask_encode(rules[chunks[i].rule], i, chunks[i].bytes, nullptr);
}

static __global__ void k_write_blocks(const mask_chunk *chunks, const mask_rule *rules,
                                      uint64_t count, const uint32_t *sizes,
                                      const uint64_t *offsets, uint8_t *blocks) {
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || sizes[i] == 0)
        return;
    uint8_t *const out = blocks + offsets[i];
    if (sizes[i] < chunks[i].bytes)
        mask_encode(rules[chunks[i].rule], i, chunks[i].bytes, out);
    else
        for (uint32_t at = 0; at < chunks[i].bytes; ++at)
            out[at] = mask_any(rules[chunks[i].rule], i, at);
}

/* weights ^= mask, byte by byte: what commit must come to. */
static __global__ void k_xor_masks(const mask_chunk *chunks, const mask_rule *rules) {
    const mask_chunk chunk = chunks[blockIdx.x];
    const mask_rule rule = rules[chunk.rule];
    for (uint32_t at = threadIdx.x; at < chunk.bytes; at += blockDim.x) {
        const uint8_t mask = mask_any(rule, blockIdx.x, at);
        if (mask != 0)
            chunk.at[at] ^= mask;
    }
}

static __global__ void k_fill(uint64_t *words, uint64_t count) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        words[i] = (uint64_t)mask_hash(2 * i) << 32 | mask_hash(2 * i + 1);
}

#endif
