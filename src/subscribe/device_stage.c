/* Staging on a device: see device_stage.h. The loader (delta/device_load.h) does the work. */
#include "subscribe/device_stage.h"

#include "base/digest.h"

/* Blocks that passed: what commit applies, and what it will change. */
static xorcast_status take(void *user, const xci_cuda_block *blocks, const xci_cuda_result *results,
                           uint64_t count) {
    xci_stage *stage = user;
    void *list = stage->ready;
    const xorcast_status status = xci_reserve(stage->bundle->context, &list, &stage->ready_capacity,
                                              (stage->ready_count + count) * sizeof(xci_ready));
    stage->ready = list;
    TRY(status);
    for (uint64_t i = 0; i < count; i++) {
        const xci_cuda_result *result = &results[i];
        stage->ready[stage->ready_count++] = (xci_ready){.chunk = blocks[i].chunk,
                                                         .block = blocks[i].bytes,
                                                         .block_bytes = blocks[i].block_bytes,
                                                         .block_codec = blocks[i].block_codec,
                                                         .change = result->change};
        stage->ready_bytes += blocks[i].block_bytes;
        stage->counts.bits_changed += result->bits_changed;
        stage->counts.bytes_changed += result->bytes_changed;
        stage->counts.elements_changed += result->elements_changed;
        /* foreign blocks may be all zeros */
        stage->counts.chunks_changed += result->bytes_changed > 0;
        xci_digest_merge(&stage->change, &result->change);
    }
    return XORCAST_OK;
}

xorcast_status xci_device_stage_open(xci_stage *stage) {
    xorcast_context *context = stage->bundle->context;
    void *memory;
    TRY(xci_allocate(context, sizeof(xci_device_loader), &memory));
    const xorcast_status status = xci_device_loader_open(memory, stage->bundle, stage->bundle->map,
                                                         XCI_LOAD_KEEP, take, stage);
    if (status < 0)
        xci_release(context, memory);
    else
        stage->loader = memory;
    return status;
}

void xci_device_stage_close(xci_stage *stage) {
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
    return xci_stream_follow(loader->context, loader->stream, NULL, loader->event);
}

xorcast_status xci_device_stage_part(xci_stage *stage, const xci_load_beside *beside) {
    return xci_device_load(stage->loader, stage->records.records, stage->records.count, beside);
}

xorcast_status xci_device_stage_finish(xci_stage *stage) {
    return xci_device_load_end(stage->loader);
}

void xci_device_stage_decoding(const xci_stage *stage, xorcast_decoding *decoding_out) {
    if (stage->loader != NULL)
        *decoding_out = *xci_engine_decoding(&stage->loader->engine);
}
