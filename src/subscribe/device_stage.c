/* Staging on a device: see device_stage.h. The loader (delta/device_load.h) does the work. */
#include "subscribe/device_stage.h"

#include <string.h>

#include "base/counts.h"
#include "base/digest.h"

static xorcast_status expect(void *user, uint64_t count) {
    xci_stage *stage = user;
    void *list = stage->ready;
    const xorcast_status status = xci_reserve(stage->bundle->context, &list, &stage->ready_capacity,
                                              (stage->ready_count + count) * sizeof(xci_ready));
    stage->ready = list;
    TRY(status);
    stage->ready_count += count;
    return XORCAST_OK;
}

/* Blocks that passed: what commit applies, and what it will change. */
static void take(void *user, uint64_t first, const xci_cuda_block *blocks,
                 const xci_cuda_result *results, uint64_t count, uint32_t worker) {
    xci_stage *stage = user;
    xci_ready *ready = &stage->ready[first];
    xci_stage_sums sums = {.ready_bytes = 0};
    for (uint64_t i = 0; i < count; i++) {
        const xci_cuda_result *result = &results[i];
        ready[i] = (xci_ready){.chunk = blocks[i].chunk,
                               .block = blocks[i].bytes,
                               .block_bytes = blocks[i].block_bytes,
                               .block_codec = blocks[i].block_codec,
                               .change = result->change};
        sums.ready_bytes += blocks[i].block_bytes;
        sums.counts.bits_changed += result->bits_changed;
        sums.counts.bytes_changed += result->bytes_changed;
        sums.counts.elements_changed += result->elements_changed;
        /* foreign blocks may be all zeros */
        sums.counts.chunks_changed += result->bytes_changed > 0;
        xci_digest_merge(&sums.change, &result->change);
    }
    xci_stage_sums *sum = &stage->sums[worker];
    xci_counts_add(&sum->counts, &sums.counts);
    xci_digest_merge(&sum->change, &sums.change);
    sum->ready_bytes += sums.ready_bytes;
}

xorcast_status xci_device_stage_open(xci_stage *stage) {
    xorcast_context *context = stage->bundle->context;
    const xci_load_taker taker = {expect, take, stage};
    void *memory;
    TRY(xci_allocate_array(context, xci_context_threads(context), sizeof(xci_stage_sums), &memory));
    stage->sums = memory;
    TRY(xci_allocate(context, sizeof(xci_device_loader), &memory));
    const xorcast_status status =
        xci_device_loader_open(memory, stage->bundle, stage->bundle->map, XCI_LOAD_KEEP, &taker);
    if (status < 0)
        xci_release(context, memory);
    else
        stage->loader = memory;
    return status;
}

void xci_device_stage_close(xci_stage *stage) {
    xci_release(stage->bundle->context, stage->sums);
    stage->sums = NULL;
    if (stage->loader == NULL)
        return;
    xci_device_loader_close(stage->loader);
    xci_release(stage->bundle->context, stage->loader);
    stage->loader = NULL;
}

void xci_device_stage_reset(xci_stage *stage) {
    if (stage->loader != NULL)
        xci_device_load_drop(stage->loader);
}

xorcast_status xci_device_stage_begin(xci_stage *stage) {
    xci_device_loader *loader = stage->loader;
    loader->beside_old_weights = stage->info.needs_old_weights != 0;
    memset(stage->sums, 0, xci_context_threads(loader->context) * sizeof *stage->sums);
    return xci_device_load_begin(loader, stage->info.counts.chunks_changed);
}

xorcast_status xci_device_stage_records(xci_stage *stage, xci_device_side *side) {
    return xci_device_load(stage->loader, stage->records, stage->record_count, side);
}

bool xci_device_stage_elsewhere(const xci_stage *stage, const xci_record *record) {
    return xci_device_load_elsewhere(stage->loader, record);
}

xorcast_status xci_device_stage_finish(xci_stage *stage) {
    TRY(xci_device_load_end(stage->loader));
    for (uint32_t i = 0; i < xci_context_threads(stage->bundle->context); i++) {
        const xci_stage_sums *sum = &stage->sums[i];
        xci_counts_add(&stage->counts, &sum->counts);
        xci_digest_merge(&stage->change, &sum->change);
        stage->ready_bytes += sum->ready_bytes;
    }
    return XORCAST_OK;
}

void xci_device_stage_decoding(const xci_stage *stage, xorcast_decoding *decoding_out) {
    if (stage->loader != NULL)
        *decoding_out = *xci_engine_decoding(&stage->loader->engine);
}
