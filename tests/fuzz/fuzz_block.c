/* Blocks of chunks from anywhere, through every reader of them: decoding, the question whether a
 * block is ready, check, apply and transcoding, on every level of the CPU. Beyond not crashing they
 * must agree with each other.
 *
 *     input = codec (1 byte), size of the chunk (2 bytes), the block */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_level.h"
#include "backend/transcode.h"
#include "base/bytes.h"
#include "codec/codec.h"
#include "codec/list_block.h"
#include "support/fuzzing.h"

#define MOST 65536u

/* With room for a list check says the same, and the list does what the block did. */
static void check_list(const xci_backend *backend, xci_block_job job, const uint8_t *mask) {
    const xorcast_status status = job.status;
    job.list = malloc(XCI_LIST_ROOM(job.block_bytes) * XCI_LIST_ENTRY);
    must(job.list != NULL);
    backend->check(&job, 1);
    must(job.status == status && job.list_bytes <= job.block_bytes);
    must(status == XORCAST_OK || job.list_bytes == 0);
    if (job.list_bytes > 0) {
        job.block_codec = XCI_CODEC_LIST;
        backend->apply(&job, 1);
        for (uint32_t i = 0; i < job.bytes; i++)
            must(job.weights[i] == (0x5a ^ mask[i]));
    }
    free(job.list);
}

/* Check and apply agree with the decoded mask, if there is one. */
static void check_level(const xci_backend *backend, const uint8_t *block, uint32_t size,
                        uint32_t codec, uint32_t n, const uint8_t *mask) {
    uint8_t *weights = malloc(n);
    must(weights != NULL);
    memset(weights, 0x5a, n);
    const xci_segment whole = {0, n, 1};
    xci_block_job job = {.block = block,
                         .block_bytes = size,
                         .block_codec = codec,
                         .bytes = n,
                         .element_bytes = 2,
                         .segment_count = 1,
                         .segments = &whole,
                         .weights = weights};
    backend->check(&job, 1);
    must((job.status == XORCAST_OK) == xci_codec_is_ready(codec, block, size, n));
    if (job.status == XORCAST_OK) {
        uint64_t bits = 0;
        must(mask != NULL);
        for (uint32_t i = 0; i < n; i++)
            bits += (uint64_t)__builtin_popcount(mask[i]);
        must(bits == job.bits_changed);
        backend->apply(&job, 1);
        for (uint32_t i = 0; i < n; i++)
            must(weights[i] == (0x5a ^ mask[i]));
        backend->apply(&job, 1);
    }
    check_list(backend, job, mask);
    free(weights);
}

static void check_transcode(const uint8_t *block, uint32_t size, uint32_t codec, uint32_t n,
                            const uint8_t *mask) {
    uint8_t *scratch = malloc(XCI_TRANSCODE_SCRATCH(n)), *ready = malloc(n + XCI_BLOCK_SLACK);
    uint8_t *again = malloc(n);
    uint32_t ready_bytes, ready_codec;
    must(scratch != NULL && ready != NULL && again != NULL);
    must(xci_transcode(the_context(), XCI_NOWHERE, &xci_backend_cpu, codec, block, size, n, scratch,
                       ready, &ready_bytes, &ready_codec) == XORCAST_OK);
    if (ready_bytes > 0) {
        must(xci_codec_is_ready(ready_codec, ready, ready_bytes, n));
        must(xci_codec_decode(the_context(), XCI_NOWHERE, ready_codec, ready, ready_bytes, again,
                              n) == XORCAST_OK);
        must(memcmp(again, mask, n) == 0);
    }
    free(again);
    free(ready);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    if (count < 3 || count > MOST)
        return 0;
    const uint32_t codec = data[0], n = 1u + xci_load16(data + 1), size = (uint32_t)count - 3;
    uint8_t *block = malloc(size + 1), *mask = malloc(n);
    must(block != NULL && mask != NULL);
    memcpy(block, data + 3, size);
    block = realloc(block, size > 0 ? size : 1);
    must(block != NULL);
    const bool valid =
        xci_codec_decode(the_context(), XCI_NOWHERE, codec, block, size, mask, n) == XORCAST_OK;
    for (int level = 0; level < XCI_CPU_LEVELS; level++) {
        const xci_backend *backend = xci_cpu_backend_at((xci_cpu_level)level);
        if (backend != NULL)
            check_level(backend, block, size, codec, n, valid ? mask : NULL);
    }
    if (valid)
        check_transcode(block, size, codec, n, mask);
    free(mask);
    free(block);
    return 0;
}
