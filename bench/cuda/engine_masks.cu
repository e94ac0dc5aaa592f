/* Times the kernel's half of the Decompression Engine's way, which any GPU has: masks that lie
 * decoded in memory are checked and become lists (check_masks), in turns as large as the window, by
 * the side of check and prepare of the same blocks in the same run. What the engine itself takes
 * comes on top. The lists are committed and compared. One JSON line a case.
 *
 *     engine_masks [--bytes N] [--rounds N] */
#include "cuda/arguments.h"
#include "cuda/setting.cuh"

#define CHUNK (64u << 10)
#define TURN (512u) /* blocks in a window of 32 MiB */

/* The same masks for chunks that lie in `masks`, of zeros, in place of weights. */
static void write_masks(const model &m, uint8_t *masks, const uint8_t *weights) {
    std::vector<mask_chunk> chunks = m.chunks;
    for (mask_chunk &c : chunks)
        c.at = masks + (c.at - weights);
    mask_chunk *const at = to_device(chunks);
    mask_rule *const rules = to_device(m.rules);
    CUDA(cudaMemset(masks, 0, m.bytes));
    k_xor_masks<<<(unsigned)chunks.size(), 256>>>(at, rules);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(at));
    CUDA(cudaFree(rules));
}

/* LZ4 blocks alone: an engine gets no others. */
static std::vector<xci_cuda_block> lz4_blocks(const step &s) {
    std::vector<xci_cuda_block> kept;
    for (const xci_cuda_block &b : to_host(s.call.blocks, s.block_count))
        if (b.block_codec == XORCAST_CODEC_LZ4)
            kept.push_back(b);
    return kept;
}

/* Masks of one turn, as a call; the blocks of a turn are not always neighbours. */
struct turns {
    std::vector<xci_cuda_mask_call> calls;
    uint8_t *masks; /* of the blocks, CHUNK apart */
    uint32_t *decoded;
};

static turns make_turns(const step &s, const std::vector<xci_cuda_block> &blocks,
                        xci_cuda_block *table, const uint8_t *chunks) {
    turns t = {};
    std::vector<uint32_t> decoded(2 * blocks.size(), CHUNK);
    t.masks = device_array<uint8_t>(blocks.size() * (uint64_t)CHUNK);
    for (size_t i = 0; i < blocks.size(); ++i)
        CUDA(cudaMemcpyAsync(t.masks + i * (uint64_t)CHUNK,
                             chunks + blocks[i].chunk * (uint64_t)CHUNK, CHUNK,
                             cudaMemcpyDeviceToDevice));
    t.decoded = to_device(decoded);
    for (size_t first = 0; first < blocks.size(); first += TURN) {
        xci_cuda_mask_call call = {s.call, t.masks + first * (uint64_t)CHUNK, CHUNK,
                                   t.decoded + 2 * first};
        call.of.blocks = table + first;
        call.of.results += first;
        call.of.count = std::min<uint64_t>(TURN, blocks.size() - first);
        t.calls.push_back(call);
    }
    return t;
}

static void measure(const model &m, const uint8_t *weights, uint8_t *masks, unsigned rounds) {
    step s = make_step(m);
    const std::vector<xci_cuda_block> blocks = lz4_blocks(s);
    xci_cuda_block *const table = to_device(blocks), *const as_they_came = to_device(blocks);
    xci_cuda_block_call call = s.call;
    call.blocks = table;
    call.count = blocks.size();
    const double check_ms = median_ms(rounds, [&] { CUDA(xci_cuda_check(&call, nullptr)); });
    /* Once: it consumes its blocks. */
    const double listed_ms = once_ms([&] { CUDA(xci_cuda_prepare(&call, nullptr)); });
    write_masks(m, masks, weights);
    const turns t = make_turns(s, blocks, table, masks);
    const double masks_ms = median_ms(rounds, [&] {
        CUDA(cudaMemcpyAsync(table, as_they_came, blocks.size() * sizeof blocks[0],
                             cudaMemcpyDeviceToDevice));
        for (const xci_cuda_mask_call &one : t.calls)
            CUDA(xci_cuda_check_masks(&one, nullptr));
    });
    uint64_t lists = 0;
    for (const xci_cuda_block &b : to_host(table, blocks.size()))
        lists += b.block_codec == XCI_CUDA_CODEC_LIST;
    const bool right = blocks.size() == s.block_count &&
                       commits_right(s, [&] { CUDA(xci_cuda_apply(&call, nullptr)); });
    printf("{\"row\":\"engine_masks\",\"case\":\"%s\",\"right\":%s,\"bytes\":%llu,\"blocks\":%zu,"
           "\"lists\":%llu,\"check_ms\":%.3f,\"prepare_ms\":%.3f,\"masks_ms\":%.3f,"
           "\"masks_tb_s\":%.3f}\n",
           m.name, right ? "true" : "false", (unsigned long long)m.bytes, blocks.size(),
           (unsigned long long)lists, check_ms, listed_ms, masks_ms,
           (double)blocks.size() * CHUNK / masks_ms / 1e9);
    fflush(stdout);
    CUDA(cudaFree(t.masks));
    CUDA(cudaFree(t.decoded));
    CUDA(cudaFree(table));
    CUDA(cudaFree(as_they_came));
    free_step(&s);
}

int main(int argc, char **argv) {
    uint64_t bytes = 8ull << 30;
    unsigned rounds = 11;
    const argument options[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                                {"--rounds", ARGUMENT_COUNT, &rounds}};
    read_options(argc, argv, options, 2);
    bytes = bytes / CHUNK * CHUNK;
    const mask_rule nvfp4 = {1, share_of(0.0002), UINT32_MAX, 8};
    const mask_rule bf16 = {2, share_of(0.013), UINT32_MAX, 3};
    const mask_rule one_percent = {2, share_of(0.01), UINT32_MAX, 3};
    const mask_rule pages = {2, share_of(0.2), share_of(0.05), 3};
    uint8_t *const weights = device_array<uint8_t>(bytes);
    uint8_t *const masks = device_array<uint8_t>(bytes);
    k_fill<<<132 * 16, 256>>>((uint64_t *)weights, bytes / 8);
    for (const model &m : {make_model("nvfp4 mix", weights, bytes, CHUNK, {nvfp4, bf16}, 25),
                           make_model("bf16 1 %", weights, bytes, CHUNK, {one_percent}, 0),
                           make_model("bf16 1 %, clustered", weights, bytes, CHUNK, {pages}, 0)})
        measure(m, weights, masks, rounds);
    CUDA(cudaFree(weights));
    CUDA(cudaFree(masks));
    return 0;
}
