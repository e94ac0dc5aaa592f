/* Applying groups: see group_apply.h. */
#include "delta/group_apply.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/codec.h"

xorcast_status xci_apply_worker_open(xci_apply_worker *worker, xorcast_bundle *bundle) {
    xorcast_context *context = bundle->context;
    const uint64_t chunk_bytes = UINT64_C(1) << bundle->chunk_log2;
    void *mask = NULL, *weights = NULL, *segments = NULL;
    *worker = (xci_apply_worker){0};
    xci_group_reader_open(&worker->reader, context);
    xorcast_status status = xci_allocate(context, chunk_bytes, &mask);
    if (status == XORCAST_OK)
        status = xci_allocate(context, chunk_bytes, &weights);
    if (status == XORCAST_OK)
        status = xci_allocate_array(context, xci_bundle_segment_space(bundle), sizeof(xci_segment),
                                    &segments);
    worker->mask = mask;
    worker->weights = weights;
    worker->segments = segments;
    if (status < 0)
        xci_apply_worker_close(worker, context);
    return status;
}

void xci_apply_worker_close(xci_apply_worker *worker, xorcast_context *context) {
    xci_group_reader_close(&worker->reader);
    xci_release(context, worker->mask);
    xci_release(context, worker->weights);
    xci_release(context, worker->segments);
    *worker = (xci_apply_worker){0};
}

xorcast_status xci_apply_workers_open(xorcast_bundle *bundle, xci_apply_worker **workers_out) {
    xorcast_context *context = bundle->context;
    const uint32_t threads = xci_context_threads(context);
    void *memory;
    TRY(xci_allocate_array(context, threads, sizeof(xci_apply_worker), &memory));
    xci_apply_worker *workers = memory;
    for (uint32_t i = 0; i < threads; i++) {
        const xorcast_status status = xci_apply_worker_open(&workers[i], bundle);
        if (status < 0) {
            xci_apply_workers_close(context, workers);
            return status;
        }
    }
    *workers_out = workers;
    return XORCAST_OK;
}

void xci_apply_workers_close(xorcast_context *context, xci_apply_worker *workers) {
    for (uint32_t i = 0; workers != NULL && i < xci_context_threads(context); i++)
        xci_apply_worker_close(&workers[i], context);
    xci_release(context, workers);
}

static xorcast_digest digest_of(const xorcast_bundle *bundle, const xci_chunk *chunk,
                                const uint8_t *bytes) {
    xci_digest_job job = {bytes, chunk->segment_count, chunk->segments, {{0, 0}}};
    bundle->context->shared->backend->digest(&job, 1);
    return job.digest;
}

xorcast_status xci_chunk_digest(xorcast_bundle *bundle, uint64_t index, uint8_t *weights,
                                xci_segment *segments, xorcast_digest *digest_out) {
    xci_chunk chunk;
    const uint8_t *bytes;
    xci_bundle_chunk(bundle, index, segments, &chunk);
    TRY(xci_chunk_read(bundle, &chunk, weights, &bytes));
    *digest_out = digest_of(bundle, &chunk, bytes);
    return XORCAST_OK;
}

/* weights ^= mask, whatever form the mask has. */
static xorcast_status xor_block(xci_apply_worker *worker, xorcast_bundle *bundle,
                                const xci_chunk *chunk, const xci_record *record, uint32_t index,
                                const uint8_t *bytes, uint8_t *weights) {
    const xci_block *block = &record->blocks[index];
    const xci_place place = {chunk->tensor, chunk->index, 0};
    const bool ready =
        worker->own_blocks ? block->codec == XORCAST_CODEC_LZ4 || block->codec == XORCAST_CODEC_RAW
                           : xci_codec_is_ready(block->codec, bytes, block->bytes, chunk->bytes);
    if (ready) {
        const xci_block_job job = {.block = bytes,
                                   .block_bytes = block->bytes,
                                   .block_codec = block->codec,
                                   .bytes = chunk->bytes,
                                   .weights = weights};
        bundle->context->shared->backend->apply(&job, 1);
        return XORCAST_OK;
    }
    if (worker->own_blocks && block->codec == XORCAST_CODEC_GAP) {
        if (xci_gap_change_by(worker->reader.gap, index, bytes, block->bytes, NULL, weights))
            return XORCAST_OK;
        FAIL_AT(bundle->context, XORCAST_INTERNAL, place, "a block of our own does not decode");
    }
    TRY(xci_block_decode(&worker->reader, place, record, index, bytes, NULL, worker->mask,
                         chunk->bytes));
    xci_xor_into(weights, worker->mask, chunk->bytes);
    return XORCAST_OK;
}

/* The bytes that changed, in place or in the worker's copy, which is then written back. */
static xorcast_status apply_block(xci_apply_worker *worker, xorcast_bundle *bundle,
                                  const xci_chunk *chunk, const xci_record *record,
                                  uint32_t index, const uint8_t *bytes, const uint8_t **now_out) {
    uint8_t *direct = xci_chunk_direct(bundle, chunk);
    const uint8_t *old;
    *now_out = direct != NULL ? direct : worker->weights;
    if (direct != NULL)
        return xor_block(worker, bundle, chunk, record, index, bytes, direct);
    TRY(xci_chunk_read(bundle, chunk, worker->weights, &old));
    if (old != worker->weights)
        memcpy(worker->weights, old, chunk->bytes);
    TRY(xor_block(worker, bundle, chunk, record, index, bytes, worker->weights));
    xci_chunk_write(bundle, chunk, worker->weights);
    return XORCAST_OK;
}

static xorcast_status no_such_chunk(xorcast_bundle *bundle, const xci_record *record,
                                    const xci_block *block) {
    const xci_place place = {XORCAST_NO_INDEX, bundle->group_first[record->group], 0};
    FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place,
            "group %llu has no chunk %u; fetch the delta again", (unsigned long long)record->group,
            block->chunk);
}

xorcast_status xci_group_apply(xci_apply_worker *worker, xorcast_bundle *bundle,
                               const xci_record *record, xorcast_digest *chunk_digests) {
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    const xci_place place = {XORCAST_NO_INDEX, first, 0};
    const uint8_t *bytes;
    TRY(xci_group_read(&worker->reader, place, record, &bytes));
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        const uint64_t index = first + block->chunk;
        xci_chunk chunk;
        if (index >= end)
            return no_such_chunk(bundle, record, block);
        if (xci_bundle_holds(bundle, index)) {
            const uint8_t *now;
            xci_bundle_chunk(bundle, index, worker->segments, &chunk);
            TRY(apply_block(worker, bundle, &chunk, record, i, bytes, &now));
            if (chunk_digests != NULL)
                chunk_digests[index] = digest_of(bundle, &chunk, now);
        }
        bytes += block->bytes;
    }
    return XORCAST_OK;
}

xorcast_status xci_group_apply_copy(xci_apply_worker *worker, xorcast_bundle *bundle,
                                    const xci_record *record, uint8_t *copy) {
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    const xci_place place = {XORCAST_NO_INDEX, first, 0};
    const uint8_t *bytes;
    uint64_t at = first;
    TRY(xci_group_read(&worker->reader, place, record, &bytes));
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        if (first + block->chunk >= end)
            return no_such_chunk(bundle, record, block);
        for (; at < first + block->chunk; at++)
            copy += xci_bundle_chunk_bytes(bundle, at);
        xci_chunk chunk;
        xci_bundle_chunk_places(bundle, at, &chunk);
        TRY(xor_block(worker, bundle, &chunk, record, i, bytes, copy));
        bytes += block->bytes;
    }
    return XORCAST_OK;
}
