/* A model on the GPU, and a step of it as blocks: what the benchmarks of the CUDA backend share. */
#ifndef BENCH_CUDA_SETTING_CUH
#define BENCH_CUDA_SETTING_CUH

#include <algorithm>
#include <string.h>

#include "backend/cuda/cuda_kernels.h"
#include "base/digest.h"
#include "cuda/masks.cuh"
#include "cuda/timing.cuh"

/* Chunks of a model in order, and how each changes. */
struct model {
    const char *name;
    std::vector<mask_rule> rules;
    std::vector<mask_chunk> chunks;
    uint64_t bytes;
};

/* Adds a tensor at `at`, cut into chunks. */
static void add_tensor(model *m, uint8_t *at, uint64_t bytes, uint32_t chunk_bytes, uint32_t rule) {
    for (uint64_t done = 0; done < bytes; done += chunk_bytes)
        m->chunks.push_back(
            {at + done, (uint32_t)std::min<uint64_t>(chunk_bytes, bytes - done), rule});
    m->bytes += bytes;
}

/* A step of a model as it is ready to be committed. */
struct step {
    uint64_t chunk_count, block_count, stream_bytes;
    mask_chunk *mask_chunks;
    mask_rule *rules;
    uint8_t *stream;
    xci_cuda_block_call call;
};

/* A segment for each `row` bytes of a chunk. */
static xci_cuda_grid make_grid(const model &m, uint32_t row) {
    std::vector<xci_cuda_chunk> chunks;
    std::vector<xci_cuda_segment> segments;
    uint32_t largest = 0;
    for (const mask_chunk &c : m.chunks) {
        const uint32_t first = (uint32_t)segments.size();
        for (uint32_t at = 0; at < c.bytes; at += row)
            segments.push_back({xci_digest_key(chunks.size()) + at / 8 * XCI_DIGEST_STRIDE, at,
                                std::min(row, c.bytes - at)});
        chunks.push_back(
            {c.bytes, m.rules[c.rule].element_bytes, first, (uint32_t)segments.size() - first});
        largest = std::max(largest, c.bytes);
    }
    return {to_device(chunks), to_device(segments), chunks.size(), largest};
}

/* Sizes and offsets of the blocks, then the blocks. */
static void make_blocks(const model &m, step *s) {
    const unsigned threads = 64, grids = (unsigned)((s->chunk_count + threads - 1) / threads);
    uint32_t *sizes_at = device_array<uint32_t>(s->chunk_count);
    k_size_blocks<<<grids, threads>>>(s->mask_chunks, s->rules, s->chunk_count, sizes_at);
    const std::vector<uint32_t> sizes = to_host(sizes_at, s->chunk_count);
    std::vector<uint64_t> offsets;
    uint64_t end = 0;
    for (uint32_t size : sizes) {
        offsets.push_back(end);
        end += (size + 15) / 16 * 16;
        s->stream_bytes += size;
    }
    s->stream = device_array<uint8_t>(end);
    std::vector<xci_cuda_block> blocks;
    for (uint64_t i = 0; i < s->chunk_count; ++i)
        if (sizes[i] != 0)
            blocks.push_back(
                {s->stream + offsets[i], sizes[i],
                 (uint32_t)(sizes[i] < m.chunks[i].bytes ? XORCAST_CODEC_LZ4 : XORCAST_CODEC_RAW),
                 i});
    uint64_t *offsets_at = to_device(offsets);
    k_write_blocks<<<grids, threads>>>(s->mask_chunks, s->rules, s->chunk_count, sizes_at,
                                       offsets_at, s->stream);
    CUDA(cudaDeviceSynchronize());
    s->block_count = blocks.size();
    s->call.blocks = to_device(blocks);
    s->call.count = blocks.size();
    CUDA(cudaFree(sizes_at));
    CUDA(cudaFree(offsets_at));
}

static step make_step(const model &m) {
    step s = {};
    s.chunk_count = m.chunks.size();
    s.mask_chunks = to_device(m.chunks);
    s.rules = to_device(m.rules);
    std::vector<uint8_t *> direct;
    for (const mask_chunk &c : m.chunks)
        direct.push_back(c.at);
    s.call.grid = make_grid(m, UINT32_MAX);
    s.call.places.direct = to_device(direct);
    make_blocks(m, &s);
    s.call.results = device_array<xci_cuda_result>(s.block_count);
    s.call.notes = device_array<uint32_t>(s.block_count);
    s.call.progress = device_array<uint64_t>(1);
    CUDA(cudaMemset(s.call.progress, 0, sizeof *s.call.progress));
    uint32_t *const gate = device_array<uint32_t>(1);
    CUDA(cudaMemset(gate, 0, sizeof *gate));
    s.call.gate = gate;
    return s;
}

static void free_grid(step *s) {
    CUDA(cudaFree((void *)s->call.grid.chunks));
    CUDA(cudaFree((void *)s->call.grid.segments));
}

/* The same memory as a shard's would be: each chunk one window of rows of WINDOW_ROW bytes, a
 * segment a row. Chunks are whole rows. */
#define WINDOW_ROW 4096u
static void put_in_windows(const model &m, step *s) {
    std::vector<uint8_t *> direct(m.chunks.size(), nullptr);
    std::vector<uint32_t> first = {0};
    std::vector<xci_cuda_window> windows;
    for (const mask_chunk &c : m.chunks) {
        windows.push_back({c.at, WINDOW_ROW, 0, WINDOW_ROW, WINDOW_ROW, c.bytes / WINDOW_ROW});
        first.push_back((uint32_t)windows.size());
    }
    free_grid(s);
    s->call.grid = make_grid(m, WINDOW_ROW);
    CUDA(cudaFree((void *)s->call.places.direct));
    s->call.places = {to_device(direct), to_device(first), to_device(windows)};
}

static void free_step(step *s) {
    free_grid(s);
    for (const void *at :
         {(const void *)s->mask_chunks, (const void *)s->rules, (const void *)s->stream,
          (const void *)s->call.places.direct, (const void *)s->call.places.window_first,
          (const void *)s->call.places.windows, (const void *)s->call.blocks,
          (const void *)s->call.results, (const void *)s->call.notes, (const void *)s->call.gate,
          (const void *)s->call.progress})
        CUDA(cudaFree((void *)at));
}

static std::vector<xorcast_digest> digests_of(const step &s, xorcast_digest *digests) {
    const xci_cuda_digest_call call = {s.call.grid, s.call.places, 0, s.chunk_count, digests};
    CUDA(xci_cuda_digest(&call, nullptr));
    return to_host(digests, s.chunk_count);
}

static bool equal(const std::vector<xorcast_digest> &a, const std::vector<xorcast_digest> &b) {
    return memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

/* Whether work(), run once, makes of the weights what the masks say; leaves them as they were. */
template <typename Work> static bool commits_right(const step &s, Work work) {
    xorcast_digest *const digests = device_array<xorcast_digest>(s.chunk_count);
    const std::vector<xorcast_digest> before = digests_of(s, digests);
    k_xor_masks<<<(unsigned)s.chunk_count, 256>>>(s.mask_chunks, s.rules);
    const std::vector<xorcast_digest> wanted = digests_of(s, digests);
    k_xor_masks<<<(unsigned)s.chunk_count, 256>>>(s.mask_chunks, s.rules);
    work();
    const std::vector<xorcast_digest> got = digests_of(s, digests);
    work();
    const std::vector<xorcast_digest> after = digests_of(s, digests);
    CUDA(cudaFree(digests));
    return !equal(before, wanted) && equal(got, wanted) && equal(after, before);
}

/* Interleaved tensors: two in `every` follow the second rule. */
static model make_model(const char *name, uint8_t *weights, uint64_t bytes, uint32_t chunk_bytes,
                        std::vector<mask_rule> rules, uint64_t every) {
    const uint64_t tensor_bytes = 32 << 20;
    model m = {name, rules, {}, 0};
    for (uint64_t i = 0; m.bytes < bytes; ++i)
        add_tensor(&m, weights + m.bytes, std::min(tensor_bytes, bytes - m.bytes), chunk_bytes,
                   every != 0 && (i % every == every / 4 || i % every == every * 3 / 4));
    return m;
}

/* 1: all but one in 2^32. */
static uint32_t share_of(double share) {
    return (uint32_t)std::min(share * 4294967296.0, 4294967295.0);
}

/* Steps of an optimizer: of packed NVFP4, of BF16. */
static const mask_rule nvfp4 = {1, 0, UINT32_MAX, 8}, bf16 = {2, 0, UINT32_MAX, 3};

static mask_rule scattered(mask_rule rule, double share) {
    rule.share = share_of(share);
    return rule;
}

/* The same changes in 5 % of the pages. */
static mask_rule clustered(mask_rule rule, double share) {
    rule.share = share_of(share / 0.05);
    rule.dirty = share_of(0.05);
    return rule;
}

/* The mix of the bars: 92 % of bytes NVFP4, 8 % BF16, interleaved by tensor. */
static model make_mix(uint8_t *weights, uint64_t bytes, uint32_t chunk_bytes) {
    return make_model("nvfp4 mix", weights, bytes, chunk_bytes,
                      {scattered(nvfp4, 0.0002), scattered(bf16, 0.013)}, 25);
}

static model make_bf16(uint8_t *weights, uint64_t bytes, uint32_t chunk_bytes, double share) {
    return make_model("bf16", weights, bytes, chunk_bytes, {scattered(bf16, share)}, 0);
}

#endif
