/* Results of a batch: see device_load_take.h. */
#include "delta/device_load_take.h"

#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "delta/device_load_batch.h"
#include "delta/device_load_gap.h"
#include "delta/device_load_record.h"
#include "delta/device_load_slot.h"

/* ---- Results ---- */

typedef struct take_job {
    xci_device_loader *loader;
    xci_load_slot *slot;
    atomic_uint_fast64_t rejected;
} take_job;

static uint64_t run_end(const xci_load_slot *slot, uint64_t run) {
    return xci_min((run + 1) * XCI_LOAD_RUN, slot->count);
}

static xorcast_status count_rejected(void *user, uint64_t run, uint32_t worker) {
    (void)worker;
    take_job *job = user;
    const xci_cuda_result *results = xci_load_results(job->slot);
    uint64_t rejected = 0;
    for (uint64_t i = run * XCI_LOAD_RUN; i < run_end(job->slot, run); i++)
        rejected += results[i].status < 0;
    atomic_fetch_add(&job->rejected, rejected);
    return XORCAST_OK;
}

/* Gives blocks, which are good, to the taker, as prepare has left them. */
static xorcast_status take_run(void *user, uint64_t run, uint32_t worker) {
    const take_job *job = user;
    const xci_device_loader *loader = job->loader;
    const uint64_t first = run * XCI_LOAD_RUN, end = run_end(job->slot, run);
    const xci_cuda_result *results = xci_load_results(job->slot);
    xci_cuda_block *table = xci_load_table(job->slot);
    for (uint64_t i = first; loader->mode == XCI_LOAD_KEEP && i < end; i++) {
        if (results[i].list_bytes == 0)
            continue;
        table[i].block_bytes = results[i].list_bytes;
        table[i].block_codec = XCI_CUDA_CODEC_LIST;
    }
    loader->taker.take(loader->taker.user, loader->taken + first, table + first, results + first,
                       end - first, worker);
    return XORCAST_OK;
}

static xorcast_status give(xci_device_loader *loader, xci_load_slot *slot) {
    take_job job = {.loader = loader, .slot = slot};
    TRY(loader->taker.expect(loader->taker.user, slot->count));
    TRY(xci_pool_run(loader->context->shared->pool, xci_divide_up(slot->count, XCI_LOAD_RUN),
                     take_run, &job));
    loader->taken += slot->count;
    return XORCAST_OK;
}

/* Leaves only good blocks in the tables; the others become `rejected`. */
static xorcast_status sort_out(xci_device_loader *loader, xci_load_slot *slot,
                               uint64_t *rejected_out) {
    take_job job = {.loader = loader, .slot = slot};
    if (*xci_load_any_bad(slot) != 0 || slot->engine.decoded > 0)
        TRY(xci_pool_run(loader->context->shared->pool, xci_divide_up(slot->count, XCI_LOAD_RUN),
                         count_rejected, &job));
    *rejected_out = atomic_load(&job.rejected);
    if (*rejected_out == 0)
        return XORCAST_OK;
    loader->list_whole = false;
    xci_cuda_result *results = xci_load_results(slot);
    xci_cuda_block *table = xci_load_table(slot);
    TRY(xci_grow(loader->context, &loader->rejected, &loader->rejected_capacity,
                 *rejected_out * sizeof *table));
    uint64_t good = 0, rejected = 0;
    for (uint64_t i = 0; i < slot->count; i++) {
        if (results[i].status < 0) {
            loader->rejected[rejected++] = table[i];
            continue;
        }
        table[good] = table[i];
        results[good++] = results[i];
    }
    if (slot->move_count > 0) /* made on a device: no other device rejects them */
        return xci_load_bad_chunk(loader->bundle, loader->rejected[0].chunk,
                                  "its block is damaged");
    slot->count = good;
    return XORCAST_OK;
}

/* What is left in the table, which the device has if nothing was rejected. */
static xorcast_status apply_good(xci_device_loader *loader, xci_load_slot *slot,
                                 uint64_t rejected) {
    if (slot->count == 0)
        return XORCAST_OK;
    if (rejected > 0)
        TRY(xci_load_send_table(loader, slot, slot->stream));
    return xci_load_start_apply(loader, slot);
}

static xorcast_status wait_for(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    slot->busy = false;
    return xci_device_result(loader->context, device->ops->event_wait(device->handle, slot->event),
                             "work on blocks");
}

/* ---- Blocks that the device did not take ---- */

typedef struct ready_job {
    xci_device_loader *loader;
    xci_load_slot *slot;
    const xci_load_slot *source; /* where the blocks are now */
    uint64_t done;               /* how many of the rejected ones are done already */
} ready_job;

/* Blocks of the last slot, made ready from `source`; index is of `rejected`. */
static xorcast_status ready_block(void *user, uint64_t index, uint32_t worker_index) {
    const ready_job *job = user;
    xci_device_loader *loader = job->loader;
    xci_load_worker *worker = &loader->workers[worker_index];
    const xci_cuda_block *from = &loader->rejected[job->done + index];
    const uint8_t *bytes =
        job->source->pinned.at + (uint64_t)(from->bytes - job->source->payload_at);
    const uint64_t at = index * xci_load_block_room(loader->bundle);
    xci_cuda_block *entry = &xci_load_table(job->slot)[index];
    uint32_t count, codec;
    xci_chunk chunk;
    xci_bundle_chunk_places(loader->bundle, from->chunk, &chunk);
    TRY(xci_load_make_ready(worker, loader->bundle, &chunk, from->block_codec, bytes,
                            from->block_bytes, &count, &codec));
    if (count == 0)
        return xci_load_skip(job->slot, entry);
    memcpy(job->slot->pinned.at + at, worker->ready, count);
    *entry = (xci_cuda_block){job->slot->payload_at + at, count, codec, from->chunk};
    return XORCAST_OK;
}

/* Checks what was made ready; now every block must pass. */
static xorcast_status take_ready(xci_device_loader *loader, xci_load_slot *slot) {
    if (!slot->busy)
        return XORCAST_OK;
    TRY(wait_for(loader, slot));
    for (uint64_t i = 0; i < slot->count; i++)
        if (xci_load_results(slot)[i].status < 0)
            return xci_load_bad_chunk(loader->bundle, xci_load_table(slot)[i].chunk,
                                      "its block is damaged");
    TRY(give(loader, slot));
    return loader->mode == XCI_LOAD_APPLY ? apply_good(loader, slot, 0) : XORCAST_OK;
}

static xorcast_status make_rejected_ready(xci_device_loader *loader, const xci_load_slot *source,
                                          uint64_t rejected) {
    xci_load_slot *slot = &loader->slots[XCI_LOAD_SLOTS];
    const uint64_t room = xci_load_block_room(loader->bundle);
    const uint64_t most = xci_load_payload_room(loader->bundle) / room;
    ready_job job = {.loader = loader, .slot = slot, .source = source};
    TRY(xci_load_slot_reserve(loader, slot, most * room, most));
    for (uint64_t done = 0; done < rejected; done += most) {
        const uint64_t count = xci_min(most, rejected - done);
        const xci_device *device = loader->context->shared->device;
        /* The apply of the turn before may still read the slot. */
        XCI_DEVICE(loader->context, "work on blocks",
                   device->ops->stream_wait(device->handle, slot->stream));
        job.done = done;
        slot->listed = count;
        slot->loose = true;
        slot->payload_at = slot->pinned.at;
        atomic_store(&slot->skipped, 0);
        TRY(xci_pool_run(loader->context->shared->pool, count, ready_block, &job));
        TRY(xci_load_launch(loader, slot));
        TRY(take_ready(loader, slot));
    }
    return XORCAST_OK;
}

/* ---- The whole of a batch ---- */

/* Gap blocks of the batch become device-ready, and are listed and taken as the others were. */
static xorcast_status take_gap(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    if (atomic_load(&slot->gap.record_count) == 0)
        return XORCAST_OK;
    TRY(xci_load_gap_finish(loader, slot, xci_load_table(slot), xci_load_results(slot)));
    TRY(xci_load_place_table(loader, slot));
    TRY(xci_load_send_table(loader, slot, slot->stream));
    XCI_DEVICE(loader->context, "copy blocks",
               device->ops->stream_wait(device->handle, slot->stream));
    loader->engine.decoding.kernel_chunks += slot->count;
    return give(loader, slot);
}

xorcast_status xci_load_complete(xci_device_loader *loader, xci_load_slot *slot) {
    uint64_t rejected;
    if (!slot->busy)
        return XORCAST_OK;
    TRY(wait_for(loader, slot));
    if (loader->mode == XCI_LOAD_APPLY_OWN)
        return XORCAST_OK;
    if (loader->mode == XCI_LOAD_KEEP)
        TRY(xci_engine_end(&loader->engine, &slot->engine, xci_load_results(slot), slot->count));
    TRY(sort_out(loader, slot, &rejected));
    TRY(give(loader, slot));
    if (rejected > 0)
        TRY(make_rejected_ready(loader, slot, rejected));
    if (loader->mode != XCI_LOAD_APPLY)
        return take_gap(loader, slot);
    const xci_device *device = loader->context->shared->device;
    slot->busy = true; /* the apply still reads it */
    TRY(apply_good(loader, slot, rejected));
    XCI_DEVICE(loader->context, "mark a stream",
               device->ops->event_record(device->handle, slot->event, slot->stream));
    return wait_for(loader, slot);
}
