/* check_masks of the CUDA backend on an emulated warp, against the CPU backend's check of the same
 * mask as a raw block: masks of all lengths, from none to all bytes changed. A program of its own;
 * exit status 0: all good. A chunk a launch: blocks that run at once would share what is static. */
#include "warp_emulator.h"

#include <atomic>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

/* What the kernel's files need beyond the emulator's, and their launcher. */
#define __shared__ static
static inline uint32_t atomicXor(uint32_t *at, uint32_t v) {
    const uint32_t before = *at;
    *at ^= v;
    return before;
}
#define XCI_CUDA_LAUNCH_CUH
template <typename Call>
static int d_launch(void (*kernel)(Call), const Call &call, uint64_t count, uint32_t per_block,
                    uint32_t threads, void *stream) {
    Call argument = call;
    void *arguments[] = {&argument};
    return cudaLaunchKernel(kernel, dim3((uint32_t)((count + per_block - 1) / per_block)),
                            dim3(threads), arguments, 0, stream);
}
#include "backend/cuda/cuda_masks.cu"

/* The context of the library is C. */
using std::atomic_uint;
using std::atomic_uint_fast64_t;
extern "C" {
#include "backend/backend.h"
}

#define KEY 123457u
#define UNTOUCHED 0x77

static uint64_t state = 88172645463325252;
static unsigned lists;

static uint32_t next_random(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % below;
}

struct mask_case {
    uint32_t bytes, element_bytes, block_bytes;
    std::vector<uint8_t> weights;
    std::vector<uint64_t> mask, block; /* 16-byte aligned by their size */
    uint8_t *mask_at() { return (uint8_t *)mask.data(); }
    uint8_t *block_at() { return (uint8_t *)block.data(); }
};

static mask_case make_case(uint32_t bytes, uint32_t per_mille) {
    mask_case c = {bytes, 1u << next_random(4), 1 + next_random(4 * bytes), {}, {}, {}};
    c.weights.resize(bytes);
    c.mask.resize(bytes / 8 + 3, UINT64_MAX); /* behind the mask there is anything */
    c.block.resize(bytes / 2 + 8);
    memset(c.block_at(), UNTOUCHED, c.block.size() * 8);
    for (uint32_t i = 0; i < bytes; ++i) {
        c.weights[i] = (uint8_t)next_random(256);
        c.mask_at()[i] = (uint8_t)(next_random(1000) < per_mille ? 1 + next_random(255) : 0);
    }
    return c;
}

static xci_cuda_result run(mask_case &c, uint32_t decoded_bytes, xci_cuda_block *block) {
    uint8_t *direct[] = {c.weights.data()};
    const uint32_t decoded[] = {decoded_bytes, 99};
    const xci_cuda_chunk chunk = {c.bytes, c.element_bytes, 0, 1};
    const xci_cuda_segment segment = {KEY, 0, c.bytes};
    xci_cuda_result result;
    xci_cuda_mask_call call = {};
    *block = {c.block_at(), c.block_bytes, XORCAST_CODEC_LZ4, 0};
    call.of.grid = {&chunk, &segment, 1, c.bytes};
    call.of.places.direct = direct;
    call.of.blocks = block;
    call.of.count = 1;
    call.of.results = &result;
    call.masks = c.mask_at();
    call.stride = c.bytes;
    call.decoded = decoded;
    xci_cuda_check_masks(&call, nullptr);
    return result;
}

static xci_block_job expected(mask_case &c, const xci_segment *segment) {
    xci_block_job job = {};
    job.block = c.mask_at();
    job.block_bytes = job.bytes = c.bytes;
    job.block_codec = XORCAST_CODEC_RAW;
    job.element_bytes = c.element_bytes;
    job.segments = segment;
    job.segment_count = 1;
    job.weights = c.weights.data();
    xci_backend_cpu.check(&job, 1);
    return job;
}

static bool is_list(mask_case &c, uint32_t list_bytes) {
    const uint32_t *entry = (const uint32_t *)c.block.data();
    for (uint32_t i = 0; i < c.bytes; ++i)
        if (c.mask_at()[i] != 0 && *entry++ != (i << 8 | c.mask_at()[i]))
            return false;
    return (const uint8_t *)entry == c.block_at() + list_bytes &&
           *(const uint8_t *)entry == UNTOUCHED;
}

static bool good_case(uint32_t bytes, uint32_t per_mille) {
    mask_case c = make_case(bytes, per_mille);
    const xci_segment segment = {0, bytes, KEY};
    xci_cuda_block block;
    const xci_cuda_result wrong = run(c, bytes - 1, &block);
    if (wrong.status != XORCAST_DATA_CORRUPT || wrong.list_bytes != 0 ||
        block.block_codec != XORCAST_CODEC_LZ4 || c.block_at()[0] != UNTOUCHED)
        return false;
    const xci_cuda_result got = run(c, bytes, &block);
    const xci_block_job job = expected(c, &segment);
    const uint32_t list_bytes = 4 * job.bytes_changed <= c.block_bytes ? 4 * job.bytes_changed : 0;
    if (got.status != XORCAST_OK || got.bytes_changed != job.bytes_changed ||
        got.bits_changed != job.bits_changed || got.elements_changed != job.elements_changed ||
        got.change.lane[0] != job.change.lane[0] || got.change.lane[1] != job.change.lane[1] ||
        got.list_bytes != list_bytes)
        return false;
    lists += list_bytes != 0;
    if (list_bytes == 0)
        return block.block_codec == XORCAST_CODEC_LZ4 && c.block_at()[0] == UNTOUCHED;
    return block.block_codec == XCI_CUDA_CODEC_LIST && block.block_bytes == list_bytes &&
           is_list(c, list_bytes);
}

int main() {
    std::vector<uint32_t> lengths = {63,   64,   65,    127,   128,   129,   1000,   1023,   1024,
                                     1025, 4096, 16384, 65535, 65536, 65537, 100003, 1 << 20};
    unsigned failures = 0, cases = 0;
    for (uint32_t n = 1; n < 40; ++n)
        lengths.push_back(n);
    for (uint32_t bytes : lengths)
        for (uint32_t per_mille : {0u, 1u, 20u, 300u, 1000u}) {
            ++cases;
            if (good_case(bytes, per_mille))
                continue;
            ++failures;
            printf("FAILED: %u bytes, %u of 1000 changed\n", bytes, per_mille);
        }
    printf("masks_on_host: %u cases, %u lists, %u failures\n", cases, lists, failures);
    return failures != 0 || lists < cases / 4;
}
