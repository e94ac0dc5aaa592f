/* A whole version on the kernels alone: new weights are encoded against old ones, the blocks are
 * laid out as a stage does, checked, prepared, committed into old, and taken back. */
#ifndef BENCH_CUDA_CYCLE_CUH
#define BENCH_CUDA_CYCLE_CUH

#include "cuda/setting.cuh"

/* Old and new weights, room for blocks as encode packs them and as commit wants them. */
struct version_pair {
    uint8_t *old_bytes, *new_bytes, *packed, *ready;
    uint64_t bytes, capacity;
};

static version_pair make_pair(uint64_t bytes, uint64_t capacity) {
    version_pair p = {device_array<uint8_t>(bytes),
                      device_array<uint8_t>(bytes),
                      device_array<uint8_t>(capacity),
                      device_array<uint8_t>(capacity),
                      bytes,
                      capacity};
    k_fill<<<132 * 16, 256>>>((uint64_t *)p.old_bytes, bytes / 8);
    CUDA(cudaDeviceSynchronize());
    return p;
}

static void free_pair(const version_pair &p) {
    for (uint8_t *at : {p.old_bytes, p.new_bytes, p.packed, p.ready})
        CUDA(cudaFree(at));
}

/* New weights: the old ones, and the model's changes. */
static void make_new(const version_pair &p, const model &m) {
    std::vector<mask_chunk> chunks = m.chunks;
    for (mask_chunk &chunk : chunks)
        chunk.at = p.new_bytes + (chunk.at - p.old_bytes);
    mask_chunk *const chunks_at = to_device(chunks);
    mask_rule *const rules_at = to_device(m.rules);
    CUDA(cudaMemcpy(p.new_bytes, p.old_bytes, m.bytes, cudaMemcpyDeviceToDevice));
    k_xor_masks<<<(unsigned)chunks.size(), 256>>>(chunks_at, rules_at);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(chunks_at));
    CUDA(cudaFree(rules_at));
}

static __global__ void k_differ(const uint4 *a, const uint4 *b, uint64_t count, uint32_t *differ) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        if (a[i].x != b[i].x || a[i].y != b[i].y || a[i].z != b[i].z || a[i].w != b[i].w)
            *differ = 1;
}

static bool versions_equal(const version_pair &p, uint64_t bytes) {
    uint32_t *const differ = to_device(std::vector<uint32_t>{0});
    k_differ<<<132 * 8, 512>>>((const uint4 *)p.old_bytes, (const uint4 *)p.new_bytes, bytes / 16,
                               differ);
    const bool equal = to_host(differ, 1)[0] == 0;
    CUDA(cudaFree(differ));
    return equal;
}

struct cycle {
    const version_pair *pair;
    const model *m;
    xci_cuda_encode_call encode;
    xci_cuda_block_call call;
    xci_cuda_block *blocks; /* as they came: what prepare changes is put back from here */
    xci_cuda_move *moves;   /* from where encode puts blocks to where commit wants them */
    uint64_t packed_bytes, lists, ready_bytes;
    bool fits; /* blocks in the room for them */
};

/* Medians; `right`: committed old was new, and taken back it was old, in every round. */
struct cycle_times {
    double encode_ms, check_ms, prepare_ms, commit_ms;
    bool right;
};

static void list_blocks(cycle *c) {
    const std::vector<xci_cuda_result> results = to_host(c->encode.results, c->encode.count);
    std::vector<xci_cuda_block> blocks;
    std::vector<xci_cuda_move> moves;
    uint64_t at = 0;
    for (uint64_t i = 0; i < results.size(); ++i) {
        const xci_cuda_result &r = results[i];
        if (r.block_bytes == 0)
            continue;
        c->fits = c->fits && r.status == XORCAST_OK && at + r.block_bytes <= c->pair->capacity;
        blocks.push_back({c->pair->ready + at, r.block_bytes, r.block_codec, i});
        moves.push_back({c->pair->packed + r.block_offset, c->pair->ready + at, r.block_bytes});
        at += (r.block_bytes + 15) / 16 * 16;
    }
    c->packed_bytes = to_host(c->encode.used_bytes, 1)[0];
    c->blocks = to_device(blocks);
    c->moves = to_device(moves);
    c->call.blocks = device_array<xci_cuda_block>(blocks.size());
    c->call.count = blocks.size();
    c->call.results = device_array<xci_cuda_result>(blocks.size());
    c->call.notes = device_array<uint32_t>(blocks.size());
}

static cycle open_cycle(const version_pair &p, const model &m) {
    cycle c = {};
    std::vector<uint8_t *> olds, news;
    for (const mask_chunk &chunk : m.chunks) {
        olds.push_back(chunk.at);
        news.push_back(p.new_bytes + (chunk.at - p.old_bytes));
    }
    c.pair = &p;
    c.m = &m;
    c.fits = true;
    c.call.grid = make_grid(m, UINT32_MAX);
    c.call.places.direct = to_device(olds);
    c.call.gate = to_device(std::vector<uint32_t>{0});
    c.call.progress = to_device(std::vector<uint64_t>{0});
    xci_cuda_encode_call *const e = &c.encode;
    e->grid = c.call.grid;
    e->old_at = c.call.places.direct;
    e->new_at = (const uint8_t *const *)to_device(news);
    e->count = m.chunks.size();
    e->codec = XORCAST_CODEC_LZ4;
    e->blocks = p.packed;
    e->capacity = p.capacity;
    e->results = device_array<xci_cuda_result>(e->count);
    e->used_bytes = device_array<uint64_t>(1);
    e->scratch_bytes = xci_cuda_encode_scratch(e->count, e->grid.chunk_bytes);
    e->scratch = device_array<uint8_t>(e->scratch_bytes);
    CUDA(xci_cuda_encode(e, nullptr));
    list_blocks(&c);
    return c;
}

static void close_cycle(cycle *c) {
    for (const void *at :
         {(const void *)c->encode.grid.chunks, (const void *)c->encode.grid.segments,
          (const void *)c->encode.old_at, (const void *)c->encode.new_at,
          (const void *)c->encode.results, (const void *)c->encode.used_bytes,
          (const void *)c->encode.scratch, (const void *)c->call.blocks,
          (const void *)c->call.results, (const void *)c->call.notes, (const void *)c->call.gate,
          (const void *)c->call.progress, (const void *)c->blocks, (const void *)c->moves})
        CUDA(cudaFree((void *)at));
}

static void lay_out(cycle *c) {
    CUDA(xci_cuda_copy_many(c->moves, c->call.count, nullptr));
    CUDA(cudaMemcpyAsync((void *)c->call.blocks, c->blocks, c->call.count * sizeof *c->blocks,
                         cudaMemcpyDeviceToDevice));
}

static void count_lists(cycle *c) {
    c->lists = c->ready_bytes = 0;
    for (const xci_cuda_block &b : to_host(c->call.blocks, c->call.count)) {
        c->lists += b.block_codec == XCI_CUDA_CODEC_LIST;
        c->ready_bytes += b.block_bytes;
    }
}

static cycle_times run_cycle(cycle *c, unsigned rounds) {
    std::vector<double> encode, check, prepare, commit;
    bool right = true;
    if (!c->fits)
        return {0, 0, 0, 0, false};
    for (unsigned i = 0; i <= rounds && right; ++i) {
        encode.push_back(once_ms([&] { CUDA(xci_cuda_encode(&c->encode, nullptr)); }));
        lay_out(c);
        check.push_back(once_ms([&] { CUDA(xci_cuda_check(&c->call, nullptr)); }));
        prepare.push_back(once_ms([&] { CUDA(xci_cuda_prepare(&c->call, nullptr)); }));
        commit.push_back(once_ms([&] { CUDA(xci_cuda_apply(&c->call, nullptr)); }));
        right = versions_equal(*c->pair, c->m->bytes);
        CUDA(xci_cuda_apply(&c->call, nullptr));
        right = right && (c->call.count == 0 || !versions_equal(*c->pair, c->m->bytes));
    }
    count_lists(c);
    return {median(encode), median(check), median(prepare), median(commit), right};
}

#endif
