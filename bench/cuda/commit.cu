/* Times commit, check and digest of the CUDA backend on synthetic models, against what reading and
 * copying the same memory takes in the same run; every result is verified by digests. One JSON line
 * a row.
 *
 *     commit [--bytes N] [--rounds N] [CASE...] */
#include "cuda/arguments.h"
#include "cuda/setting.cuh"

static __global__ void k_read(const uint4 *at, uint64_t count, uint4 *out) {
    uint4 sum = {};
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = at[i], b = at[i + step], c = at[i + 2 * step], d = at[i + 3 * step];
        sum.x ^= a.x ^ b.x ^ c.x ^ d.x;
        sum.y ^= a.y ^ b.y ^ c.y ^ d.y;
        sum.z ^= a.z ^ b.z ^ c.z ^ d.z;
        sum.w ^= a.w ^ b.w ^ c.w ^ d.w;
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u)
        *out = sum;
}

static void measure_bounds(uint8_t *weights, uint64_t bytes, unsigned rounds) {
    uint4 *const out = device_array<uint4>(1);
    const double read = median_ms(
        rounds, [&] { k_read<<<132 * 8, 512>>>((const uint4 *)weights, bytes / 16, out); });
    const uint64_t half = bytes / 2 / 4096 * 4096;
    const double copy = median_ms(
        3, [&] { CUDA(cudaMemcpyAsync(weights, weights + half, half, cudaMemcpyDeviceToDevice)); });
    CUDA(cudaFree(out));
    printf("{\"row\":\"bound\",\"bytes\":%llu,\"read_ms\":%.3f,\"read_tb_s\":%.3f,"
           "\"copy_tb_s\":%.3f}\n",
           (unsigned long long)bytes, read, (double)bytes / read / 1e9,
           2 * (double)half / copy / 1e9);
}

/* The same step into windows. */
static void measure_windows(const model &m, step *s, unsigned rounds) {
    put_in_windows(m, s);
    const auto apply = [&] { CUDA(xci_cuda_apply(&s->call, nullptr)); };
    const bool right = commits_right(*s, apply);
    const double commit_ms = median_ms(rounds, apply);
    xorcast_digest *const digests = device_array<xorcast_digest>(s->chunk_count);
    const xci_cuda_digest_call digest = {s->call.grid, s->call.places, 0, s->chunk_count, digests};
    const double digest_ms = median_ms(rounds, [&] { CUDA(xci_cuda_digest(&digest, nullptr)); });
    CUDA(cudaFree(digests));
    printf("{\"row\":\"windows\",\"case\":\"%s\",\"right\":%s,\"commit_ms\":%.3f,"
           "\"digest_ms\":%.3f,\"digest_tb_s\":%.3f}\n",
           m.name, right ? "true" : "false", commit_ms, digest_ms,
           (double)m.bytes / digest_ms / 1e9);
}

static void measure_case(const model &m, unsigned rounds) {
    step s = make_step(m);
    const auto apply = [&] { CUDA(xci_cuda_apply(&s.call, nullptr)); };
    bool right = commits_right(s, apply);
    const double tokens_ms = median_ms(rounds, apply);
    const double check_ms = median_ms(rounds, [&] { CUDA(xci_cuda_check(&s.call, nullptr)); });
    uint64_t changed = 0, bad = 0;
    for (const xci_cuda_result &r : to_host(s.call.results, s.block_count)) {
        changed += r.elements_changed;
        bad += r.status != XORCAST_OK;
    }
    /* Once: it consumes its blocks. */
    const double prepare_ms = once_ms([&] { CUDA(xci_cuda_prepare(&s.call, nullptr)); });
    right = right && commits_right(s, apply);
    const double commit_ms = median_ms(rounds, apply);
    uint64_t lists = 0, ready = 0;
    for (const xci_cuda_block &b : to_host(s.call.blocks, s.block_count)) {
        lists += b.block_codec == XCI_CUDA_CODEC_LIST;
        ready += b.block_bytes;
    }
    xorcast_digest *const digests = device_array<xorcast_digest>(s.chunk_count);
    const xci_cuda_digest_call digest = {s.call.grid, s.call.places, 0, s.chunk_count, digests};
    const double digest_ms = median_ms(rounds, [&] { CUDA(xci_cuda_digest(&digest, nullptr)); });
    CUDA(cudaFree(digests));
    printf("{\"row\":\"commit\",\"case\":\"%s\",\"right\":%s,\"bytes\":%llu,\"blocks\":%llu,"
           "\"lz4_bytes\":%llu,\"lists\":%llu,\"ready_bytes\":%llu,\"elements_changed\":%llu,"
           "\"refused\":%llu,\"check_ms\":%.3f,\"prepare_ms\":%.3f,\"commit_ms\":%.3f,"
           "\"commit_from_lz4_ms\":%.3f,\"digest_ms\":%.3f,\"digest_tb_s\":%.3f}\n",
           m.name, right ? "true" : "false", (unsigned long long)m.bytes,
           (unsigned long long)s.block_count, (unsigned long long)s.stream_bytes,
           (unsigned long long)lists, (unsigned long long)ready, (unsigned long long)changed,
           (unsigned long long)bad, check_ms, prepare_ms, commit_ms, tokens_ms, digest_ms,
           (double)m.bytes / digest_ms / 1e9);
    if (m.chunks[0].bytes % WINDOW_ROW == 0 && m.bytes % WINDOW_ROW == 0)
        measure_windows(m, &s, rounds);
    fflush(stdout);
    free_step(&s);
}

/* Expert matrices of a quantised model: values, block scales, and a global scale each; the small
 * scales are left to the tests. */
static model many_tensors(uint8_t *weights, uint64_t bytes) {
    model m = {"200000 tensors",
               {{1, share_of(0.0002), UINT32_MAX, 8}, {1, share_of(0.002), UINT32_MAX, 3}},
               {},
               0};
    const uint64_t count = 200000, each = bytes / (count / 2);
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t size = i % 2 == 0 ? each / 9 * 8 / 16 * 16 : each / 9 / 16 * 16;
        add_tensor(&m, weights + at, size, 64 << 10, (uint32_t)(i % 2));
        at += size;
    }
    return m;
}

int main(int argc, char **argv) {
    uint64_t bytes = 55600000000;
    unsigned rounds = 11;
    const argument options[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                                {"--rounds", ARGUMENT_COUNT, &rounds}};
    const int names = read_arguments(argc, argv, options, 2);
    bytes = bytes / 65536 * 65536;
    uint8_t *const weights = device_array<uint8_t>(bytes);
    k_fill<<<132 * 16, 256>>>((uint64_t *)weights, bytes / 8);
    measure_bounds(weights, bytes, rounds);
    const uint32_t usual = 64 << 10;
    const std::vector<model> models = {
        make_mix(weights, bytes, usual),
        make_model("nvfp4 mix, clustered", weights, bytes, usual,
                   {clustered(nvfp4, 0.0002), clustered(bf16, 0.013)}, 25),
        make_model("bf16 1 %", weights, bytes, usual, {scattered(bf16, 0.01)}, 0),
        make_model("bf16 1 %, clustered", weights, bytes, usual, {clustered(bf16, 0.01)}, 0),
        many_tensors(weights, std::min<uint64_t>(bytes, 10000000000)),
    };
    for (const model &m : models)
        if (is_wanted(names, argv, m.name))
            measure_case(m, rounds);
    CUDA(cudaFree(weights));
    return 0;
}
