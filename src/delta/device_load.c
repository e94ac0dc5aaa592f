/* Loading blocks onto a device: see device_load.h.
 *
 *     pinned memory of a slot:  payload | table of blocks | results
 *     device memory of a slot:  table of blocks | results | payload, unless it is kept */
#include "delta/device_load.h"

#include <string.h>

#include "backend/transcode.h"
#include "base/bytes.h"
#include "base/pool.h"
#include "codec/codec.h"

/* Of a batch, unless a group needs more or the bundle less. */
#define SLOT_PAYLOAD (UINT64_C(16) << 20)
#define SLOT_BLOCKS UINT64_C(32768)
#define BLOCK_ALIGNMENT 16u /* and as much may be read behind the last block */
#define SKIPPED UINT64_MAX  /* in place of a chunk: nothing to do */

/* ---- Opening and closing ---- */

static xorcast_status open_worker(xci_load_worker *worker, const xorcast_bundle *bundle) {
    xorcast_context *context = bundle->context;
    const uint64_t chunk_bytes = bundle->layout.chunk_bytes;
    void *memory;
    xci_group_reader_open(&worker->reader, context);
    TRY(xci_allocate(context, XCI_TRANSCODE_SCRATCH(chunk_bytes), &memory));
    worker->scratch = memory;
    TRY(xci_allocate(context, chunk_bytes + XCI_BLOCK_SLACK, &memory));
    worker->ready = memory;
    TRY(xci_allocate(context, chunk_bytes, &memory));
    worker->old = memory;
    return XORCAST_OK;
}

/* What a block takes at most once it is device-ready. */
static uint64_t block_room(const xorcast_bundle *bundle) {
    return xci_round_up(bundle->layout.chunk_bytes + XCI_BLOCK_SLACK, BLOCK_ALIGNMENT);
}

static uint64_t payload_room(const xorcast_bundle *bundle) {
    return xci_min(SLOT_PAYLOAD, bundle->layout.chunk_count * block_room(bundle));
}

static uint64_t table_bytes(uint64_t blocks) {
    return xci_round_up(blocks * sizeof(xci_cuda_block), 64);
}

static uint64_t result_bytes(uint64_t blocks) {
    return xci_round_up(blocks * sizeof(xci_cuda_result), 64);
}

/* Makes a slot's memory large enough; nothing may work on it. */
static xorcast_status reserve_slot(xci_device_loader *loader, xci_load_slot *slot, uint64_t payload,
                                   uint64_t blocks) {
    xorcast_context *context = loader->context;
    if (slot->pinned.at != NULL && payload <= slot->payload_room && blocks <= slot->block_room)
        return XORCAST_OK;
    payload = xci_round_up(xci_max(payload, slot->payload_room), 64);
    blocks = xci_max(blocks, slot->block_room);
    const uint64_t tables = table_bytes(blocks) + result_bytes(blocks);
    xci_pinned_release(context, &slot->pinned);
    xci_device_release(context, &slot->device);
    slot->payload_room = slot->block_room = 0;
    TRY(xci_pinned_allocate(context, payload + tables, &slot->pinned));
    TRY(xci_device_allocate(context, tables + (loader->mode == XCI_LOAD_KEEP ? 0 : payload + 64),
                            &slot->device));
    slot->payload_room = payload;
    slot->block_room = blocks;
    return XORCAST_OK;
}

static xorcast_status open_parts(xci_device_loader *loader) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    const uint32_t threads = xci_context_threads(context);
    void *memory;
    TRY(xci_allocate_array(context, threads, sizeof(xci_load_worker), &memory));
    loader->workers = memory;
    for (uint32_t i = 0; i < threads; i++)
        TRY(open_worker(&loader->workers[i], loader->bundle));
    if (loader->mode == XCI_LOAD_KEEP)
        xci_engine_open(&loader->engine, loader->bundle);
    loader->arena.for_engine = loader->engine.able;
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &loader->stream));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &loader->event));
    for (unsigned i = 0; i < 3; i++)
        XCI_DEVICE(context, "make an event",
                   device->ops->event_open(device->handle, &loader->slots[i].event));
    for (unsigned i = 0; i < 2; i++)
        TRY(reserve_slot(loader, &loader->slots[i], payload_room(loader->bundle),
                         xci_max(xci_min(SLOT_BLOCKS, loader->bundle->layout.chunk_count),
                                 loader->bundle->group_chunks_max)));
    return XORCAST_OK;
}

xorcast_status xci_device_loader_open(xci_device_loader *loader, xorcast_bundle *bundle,
                                      const xci_device_map *map, xci_load_mode mode,
                                      xci_load_take take, void *user) {
    memset(loader, 0, sizeof *loader);
    loader->context = bundle->context;
    loader->bundle = bundle;
    loader->map = map;
    loader->mode = mode;
    loader->take = take;
    loader->user = user;
    xci_device_arena_open(&loader->arena, bundle->context);
    const xorcast_status status = open_parts(loader);
    if (status < 0)
        xci_device_loader_close(loader);
    return status;
}

void xci_device_loader_close(xci_device_loader *loader) {
    xorcast_context *context = loader->context;
    if (context == NULL)
        return;
    xci_stream_close(context, &loader->stream);
    xci_event_close(context, &loader->event);
    for (unsigned i = 0; i < 3; i++) {
        xci_event_close(context, &loader->slots[i].event);
        xci_engine_batch_close(&loader->engine, &loader->slots[i].engine);
        xci_pinned_release(context, &loader->slots[i].pinned);
        xci_device_release(context, &loader->slots[i].device);
    }
    for (uint32_t i = 0; loader->workers != NULL && i < xci_context_threads(context); i++) {
        xci_group_reader_close(&loader->workers[i].reader);
        xci_release(context, loader->workers[i].scratch);
        xci_release(context, loader->workers[i].ready);
        xci_release(context, loader->workers[i].old);
    }
    xci_release(context, loader->workers);
    xci_release(context, loader->rejected);
    xci_engine_close(&loader->engine);
    xci_device_arena_close(&loader->arena);
    memset(loader, 0, sizeof *loader);
}

/* ---- Parts of a slot ---- */

static xci_cuda_block *table_of(const xci_load_slot *slot) {
    return (xci_cuda_block *)(void *)(slot->pinned.at + slot->payload_room);
}

static xci_cuda_result *results_of(const xci_load_slot *slot) {
    return (xci_cuda_result *)(void *)(slot->pinned.at + slot->payload_room +
                                       table_bytes(slot->block_room));
}

static xci_cuda_block *device_table(const xci_load_slot *slot) {
    return (xci_cuda_block *)(void *)slot->device.at;
}

static xci_cuda_result *device_results(const xci_load_slot *slot) {
    return (xci_cuda_result *)(void *)(slot->device.at + table_bytes(slot->block_room));
}

/* ---- One block ---- */

static xorcast_status bad_chunk(xorcast_bundle *bundle, uint64_t chunk, const char *what) {
    char words[300];
    const xci_place place = {xci_bundle_tensor_of(bundle, chunk), chunk, 0};
    FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place, "%s: %s; fetch the delta again",
            xci_chunk_words(bundle, chunk, words, sizeof words), what);
}

/* A mask must not touch the padding between the tensors of a packed chunk: nothing there could
 * take it. */
static bool padding_untouched(const xci_chunk *chunk, const uint8_t *mask) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < chunk->tensor_count; i++) {
        for (; at < chunk->places[i].offset; at++)
            if (mask[at] != 0)
                return false;
        at = chunk->places[i].offset + chunk->places[i].bytes;
    }
    return true;
}

/* Decodes block `index` of a record to a mask, at the beginning of the worker's scratch. The
 * weights are fetched for blocks that need them; only a whole chunk is what these were made
 * beside. */
static xorcast_status decode(xci_device_loader *loader, xci_load_worker *worker,
                             const xci_record *record, uint32_t index, const xci_chunk *chunk,
                             const uint8_t *bytes) {
    xorcast_bundle *bundle = loader->bundle;
    const xci_place place = {chunk->tensor, chunk->index, 0};
    const uint8_t *old = NULL;
    if (loader->beside_old_weights && bundle->complete)
        TRY(xci_chunk_read(bundle, chunk, worker->old, &old));
    const xorcast_status status = xci_block_decode(&worker->reader, place, record, index, bytes,
                                                   old, worker->scratch, chunk->bytes);
    if (status == XORCAST_DATA_CORRUPT)
        return bad_chunk(bundle, chunk->index, "its block does not decode to the chunk's size");
    return status;
}

/* Makes an LZ4 block that no device takes device-ready in the worker's memory; 0 bytes if it
 * changes nothing. */
static xorcast_status make_ready(xci_load_worker *worker, xorcast_bundle *bundle,
                                 const xci_chunk *chunk, uint32_t codec, const uint8_t *bytes,
                                 uint32_t count, uint32_t *ready_bytes, uint32_t *ready_codec) {
    const xci_place place = {chunk->tensor, chunk->index, 0};
    const xorcast_status status =
        xci_transcode(bundle->context, place, bundle->context->shared->backend, codec, bytes, count,
                      chunk->bytes, worker->scratch, worker->ready, ready_bytes, ready_codec);
    if (status == XORCAST_DATA_CORRUPT)
        return bad_chunk(bundle, chunk->index, "its block does not decode to the chunk's size");
    return status;
}

static bool device_codec(uint32_t codec) {
    return codec == XORCAST_CODEC_RAW || codec == XORCAST_CODEC_LZ4;
}

/* Writes block `index` of a record to the payload at `at` and lists it; tables hold offsets until
 * the batch is whole. */
static xorcast_status place_block(xci_device_loader *loader, xci_load_worker *worker,
                                  xci_load_slot *slot, const xci_chunk *chunk,
                                  const xci_record *record, uint32_t index, const uint8_t *bytes,
                                  uint64_t *at, xci_cuda_block *entry) {
    const xci_block *block = &record->blocks[index];
    uint32_t count = block->bytes, codec = block->codec;
    const bool pads = chunk->packed && loader->mode != XCI_LOAD_APPLY_OWN;
    if (block->element_bytes != chunk->element_bytes)
        return bad_chunk(loader->bundle, chunk->index, "its elements have another width");
    if (pads || !device_codec(codec))
        TRY(decode(loader, worker, record, index, chunk, bytes));
    if (pads && !padding_untouched(chunk, worker->scratch))
        return bad_chunk(loader->bundle, chunk->index, "it changes bytes between tensors");
    if (!device_codec(codec)) {
        xci_mask_to_ready(loader->context->shared->backend, chunk->bytes, worker->scratch,
                          worker->ready, &count, &codec);
        bytes = worker->ready;
        if (count == 0)
            return XORCAST_OK;
    }
    memcpy(slot->pinned.at + *at, bytes, count);
    *entry = (xci_cuda_block){(const uint8_t *)(uintptr_t)*at, count, codec, chunk->index};
    if (slot->engine.wanted)
        slot->engine.forms[entry - table_of(slot)] = (uint8_t)xci_engine_form(
            &loader->engine, &slot->engine, codec, bytes, count, chunk->bytes);
    *at += xci_round_up(count, BLOCK_ALIGNMENT);
    return XORCAST_OK;
}

/* ---- One record ---- */

/* Room that a record's blocks take at most once they are device-ready. */
static uint64_t record_room(const xorcast_bundle *bundle, const xci_record *record) {
    uint64_t room = 0;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        const uint64_t bytes = device_codec(block->codec) ? block->bytes : block_room(bundle);
        room += xci_round_up(bytes, BLOCK_ALIGNMENT);
    }
    return room;
}

typedef struct load_job {
    xci_device_loader *loader;
    xci_load_slot *slot;
    const xci_load_beside *beside; /* its `also` is the item behind the records */
    const xci_load_slot *source;   /* of blocks that are made ready: where they are now, and */
    uint64_t done;                 /* how many of the rejected ones are done already */
} load_job;

static xorcast_status load_record(const load_job *job, uint64_t index, uint32_t worker_index) {
    xci_device_loader *loader = job->loader;
    xorcast_bundle *bundle = loader->bundle;
    xci_load_worker *worker = &loader->workers[worker_index];
    const xci_load_item *item = &job->slot->items[index];
    const xci_record *record = item->record;
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    const xci_place place = {xci_bundle_tensor_of(bundle, first), first, 0};
    uint64_t at = item->at;
    const uint8_t *bytes;
    TRY(xci_group_read(&worker->reader, place, record, &bytes));
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        xci_cuda_block *entry = &table_of(job->slot)[item->first + i];
        xci_chunk chunk;
        entry->chunk = SKIPPED;
        if (first + block->chunk >= end)
            FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place,
                    "group %llu has no chunk %u; fetch the delta again",
                    (unsigned long long)record->group, block->chunk);
        if (xci_bundle_holds(bundle, first + block->chunk)) {
            xci_bundle_chunk_places(bundle, first + block->chunk, &chunk);
            TRY(place_block(loader, worker, job->slot, &chunk, record, i, bytes, &at, entry));
        }
        bytes += block->bytes;
    }
    return XORCAST_OK;
}

static xorcast_status load_item(void *user, uint64_t index, uint32_t worker_index) {
    const load_job *job = user;
    if (index == job->slot->item_count)
        return job->beside->also(job->beside->user);
    if (job->beside != NULL)
        TRY(job->beside->check(job->beside->user, job->slot->items[index].record));
    return load_record(job, index, worker_index);
}

/* ---- A batch on the device ---- */

/* Closes the gaps of the table and makes addresses of its offsets. */
static void squeeze(xci_load_slot *slot) {
    xci_cuda_block *table = table_of(slot);
    slot->count = 0;
    for (uint64_t i = 0; i < slot->listed; i++) {
        if (table[i].chunk == SKIPPED)
            continue;
        xci_cuda_block entry = table[i];
        entry.bytes = slot->payload_at + (uintptr_t)entry.bytes;
        if (slot->engine.wanted)
            slot->engine.forms[slot->count] = slot->engine.forms[i];
        table[slot->count++] = entry;
    }
}

static xci_cuda_block_call call_of(const xci_device_loader *loader, const xci_load_slot *slot) {
    return (xci_cuda_block_call){.grid = loader->map->grid,
                                 .places = loader->map->places,
                                 .blocks = device_table(slot),
                                 .count = slot->count,
                                 .results = device_results(slot)};
}

static xorcast_status send_table(xci_device_loader *loader, const xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    return xci_device_result(loader->context,
                             device->ops->copy(device->handle, device_table(slot), table_of(slot),
                                               slot->count * sizeof(xci_cuda_block),
                                               loader->stream),
                             "copy blocks");
}

static xorcast_status start_check(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_block_call call = call_of(loader, slot);
    if (loader->mode ==
        XCI_LOAD_KEEP) /* prepared too: for the pause, lists are faster than blocks */
        TRY(xci_engine_check(&loader->engine, &slot->engine, &call, table_of(slot),
                             loader->stream));
    else
        XCI_DEVICE(context, "check blocks",
                   device->ops->check(device->handle, &call, loader->stream));
    XCI_DEVICE(context, "copy results",
               device->ops->copy(device->handle, results_of(slot), device_results(slot),
                                 slot->count * sizeof(xci_cuda_result), loader->stream));
    return XORCAST_OK;
}

static xorcast_status start_apply(xci_device_loader *loader, const xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    const xci_cuda_block_call call = call_of(loader, slot);
    return xci_device_result(
        loader->context, device->ops->apply(device->handle, &call, loader->stream), "apply blocks");
}

/* Sends a batch whose payload is in the slot's pinned memory. */
static xorcast_status launch(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    slot->payload_at =
        slot->device.at + table_bytes(slot->block_room) + result_bytes(slot->block_room);
    if (loader->mode == XCI_LOAD_KEEP)
        TRY(xci_device_arena_take(&loader->arena, slot->payload_bytes + BLOCK_ALIGNMENT,
                                  &slot->payload_at));
    slot->open = false;
    squeeze(slot);
    xci_engine_sort(&loader->engine, &slot->engine, table_of(slot), slot->count);
    if (slot->count == 0)
        return XORCAST_OK;
    slot->busy = true; /* also if only a part of what follows gets onto the stream */
    XCI_DEVICE(context, "copy blocks",
               device->ops->copy(device->handle, slot->payload_at, slot->pinned.at,
                                 slot->payload_bytes, loader->stream));
    TRY(send_table(loader, slot));
    TRY(loader->mode == XCI_LOAD_APPLY_OWN ? start_apply(loader, slot) : start_check(loader, slot));
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, slot->event, loader->stream));
    return XORCAST_OK;
}

/* ---- Taking the results ---- */

/* Gives a slot's blocks, which are good, to `take`, as prepare has left them. */
static xorcast_status give(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_cuda_result *results = results_of(slot);
    xci_cuda_block *table = table_of(slot);
    for (uint64_t i = 0; loader->mode == XCI_LOAD_KEEP && i < slot->count; i++) {
        if (results[i].list_bytes == 0)
            continue;
        table[i].block_bytes = results[i].list_bytes;
        table[i].block_codec = XCI_CUDA_CODEC_LIST;
    }
    return loader->take(loader->user, table, results, slot->count);
}

/* Leaves only good blocks in the tables; the others become `rejected`. */
static xorcast_status sort_out(xci_device_loader *loader, xci_load_slot *slot,
                               uint64_t *rejected_out) {
    xci_cuda_result *results = results_of(slot);
    xci_cuda_block *table = table_of(slot);
    void *memory = loader->rejected;
    const xorcast_status status = xci_reserve(loader->context, &memory, &loader->rejected_capacity,
                                              slot->count * sizeof *table);
    loader->rejected = memory;
    TRY(status);
    uint64_t good = 0, rejected = 0;
    for (uint64_t i = 0; i < slot->count; i++) {
        if (results[i].status < 0) {
            loader->rejected[rejected++] = table[i];
            continue;
        }
        table[good] = table[i];
        results[good++] = results[i];
    }
    slot->count = good;
    *rejected_out = rejected;
    return XORCAST_OK;
}

/* What is left in the table, which the device has if nothing was rejected. */
static xorcast_status apply_good(xci_device_loader *loader, xci_load_slot *slot,
                                 uint64_t rejected) {
    if (slot->count == 0)
        return XORCAST_OK;
    if (rejected > 0)
        TRY(send_table(loader, slot));
    return start_apply(loader, slot);
}

static xorcast_status wait_for(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    slot->busy = false;
    return xci_device_result(loader->context, device->ops->event_wait(device->handle, slot->event),
                             "work on blocks");
}

/* Blocks of the third slot, made ready from `source`; index is of `rejected`. */
static xorcast_status ready_block(void *user, uint64_t index, uint32_t worker_index) {
    const load_job *job = user;
    xci_device_loader *loader = job->loader;
    xci_load_worker *worker = &loader->workers[worker_index];
    const xci_cuda_block *from = &loader->rejected[job->done + index];
    const uint8_t *bytes =
        job->source->pinned.at + (uint64_t)(from->bytes - job->source->payload_at);
    const uint64_t at = index * block_room(loader->bundle);
    xci_cuda_block *entry = &table_of(job->slot)[index];
    uint32_t count, codec;
    xci_chunk chunk;
    entry->chunk = SKIPPED;
    xci_bundle_chunk_places(loader->bundle, from->chunk, &chunk);
    TRY(make_ready(worker, loader->bundle, &chunk, from->block_codec, bytes, from->block_bytes,
                   &count, &codec));
    if (count == 0)
        return XORCAST_OK;
    memcpy(job->slot->pinned.at + at, worker->ready, count);
    *entry = (xci_cuda_block){(const uint8_t *)(uintptr_t)at, count, codec, from->chunk};
    return XORCAST_OK;
}

/* Checks what was made ready; now every block must pass. */
static xorcast_status take_ready(xci_device_loader *loader, xci_load_slot *slot) {
    if (!slot->busy)
        return XORCAST_OK;
    TRY(wait_for(loader, slot));
    for (uint64_t i = 0; i < slot->count; i++)
        if (results_of(slot)[i].status < 0)
            return bad_chunk(loader->bundle, table_of(slot)[i].chunk, "its block is damaged");
    TRY(give(loader, slot));
    return loader->mode == XCI_LOAD_APPLY ? apply_good(loader, slot, 0) : XORCAST_OK;
}

static xorcast_status make_rejected_ready(xci_device_loader *loader, const xci_load_slot *source,
                                          uint64_t rejected) {
    xci_load_slot *slot = &loader->slots[2];
    const uint64_t room = block_room(loader->bundle);
    const uint64_t most = payload_room(loader->bundle) / room;
    load_job job = {.loader = loader, .slot = slot, .source = source};
    TRY(reserve_slot(loader, slot, most * room, most));
    for (uint64_t done = 0; done < rejected; done += most) {
        const uint64_t count = xci_min(most, rejected - done);
        const xci_device *device = loader->context->shared->device;
        /* The apply of the turn before may still read the slot. */
        XCI_DEVICE(loader->context, "work on blocks",
                   device->ops->stream_wait(device->handle, loader->stream));
        job.done = done;
        TRY(xci_pool_run(loader->context->shared->pool, count, ready_block, &job));
        slot->listed = count;
        slot->payload_bytes = count * room;
        TRY(launch(loader, slot));
        TRY(take_ready(loader, slot));
    }
    return XORCAST_OK;
}

static xorcast_status complete(xci_device_loader *loader, xci_load_slot *slot) {
    uint64_t rejected;
    if (!slot->busy)
        return XORCAST_OK;
    TRY(wait_for(loader, slot));
    if (loader->mode == XCI_LOAD_APPLY_OWN)
        return XORCAST_OK;
    if (loader->mode == XCI_LOAD_KEEP)
        TRY(xci_engine_end(&loader->engine, &slot->engine, results_of(slot), slot->count));
    TRY(sort_out(loader, slot, &rejected));
    TRY(give(loader, slot));
    if (rejected > 0)
        TRY(make_rejected_ready(loader, slot, rejected));
    if (loader->mode != XCI_LOAD_APPLY)
        return XORCAST_OK;
    const xci_device *device = loader->context->shared->device;
    slot->busy = true; /* the apply still reads it */
    TRY(apply_good(loader, slot, rejected));
    XCI_DEVICE(loader->context, "mark a stream",
               device->ops->event_record(device->handle, slot->event, loader->stream));
    return wait_for(loader, slot);
}

/* ---- Records ---- */

/* Finds room in the slot for as many records from `first` on as it takes; `*next_out` is `first` if
 * there is room for none. */
static xorcast_status plan(xci_device_loader *loader, xci_load_slot *slot,
                           const xci_record *records, uint64_t count, uint64_t first,
                           uint64_t *next_out) {
    const xorcast_bundle *bundle = loader->bundle;
    uint64_t next = first;
    slot->item_count = 0;
    for (; next < count && slot->item_count < XCI_LOAD_RECORDS; next++) {
        const xci_record *record = &records[next];
        const uint64_t room = record_room(bundle, record);
        if (record->block_count > bundle->group_chunks_max)
            FAIL(loader->context, XORCAST_DATA_CORRUPT,
                 "group %llu cannot have %u chunks; fetch the delta again",
                 (unsigned long long)record->group, record->block_count);
        if (slot->listed == 0) /* one record always fits */
            TRY(reserve_slot(loader, slot, room, record->block_count));
        if (slot->payload_bytes + room > slot->payload_room ||
            slot->listed + record->block_count > slot->block_room)
            break;
        slot->items[slot->item_count++] =
            (xci_load_item){record, slot->payload_bytes, slot->listed};
        slot->payload_bytes += room;
        slot->listed += record->block_count;
    }
    *next_out = next;
    return XORCAST_OK;
}

/* The slot that is being filled, or the next one, once the device is done with it. */
static xorcast_status open_slot(xci_device_loader *loader, xci_load_slot **slot_out) {
    xci_load_slot *slot = &loader->slots[loader->turn];
    *slot_out = slot;
    if (slot->open)
        return XORCAST_OK;
    TRY(complete(loader, slot));
    TRY(xci_engine_begin(&loader->engine, &slot->engine, slot->block_room));
    slot->open = true;
    slot->listed = slot->payload_bytes = 0;
    return XORCAST_OK;
}

static xorcast_status close_slot(xci_device_loader *loader, xci_load_slot *slot) {
    loader->turn ^= 1;
    return launch(loader, slot);
}

xorcast_status xci_device_load(xci_device_loader *loader, const xci_record *records, uint64_t count,
                               const xci_load_beside *beside) {
    bool also = beside != NULL;
    for (uint64_t first = 0, next; first < count || also; first = next) {
        xci_load_slot *slot;
        TRY(open_slot(loader, &slot));
        TRY(plan(loader, slot, records, count, first, &next));
        const load_job job = {.loader = loader, .slot = slot, .beside = beside};
        TRY(xci_pool_run(loader->context->shared->pool, slot->item_count + also, load_item,
                         (void *)(uintptr_t)&job));
        also = false;
        if (next < count)
            TRY(close_slot(loader, slot));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_load_end(xci_device_loader *loader) {
    xci_load_slot *last = &loader->slots[loader->turn];
    if (last->open)
        TRY(close_slot(loader, last));
    TRY(complete(loader, &loader->slots[loader->turn]));
    return complete(loader, &loader->slots[loader->turn ^ 1]);
}

void xci_device_load_drop(xci_device_loader *loader) {
    const xci_device *device = loader->context->shared->device;
    const int error = device->ops->stream_wait(device->handle, loader->stream);
    if (error != 0)
        xci_log(loader->context, XORCAST_LOG_WARNING, "the device stopped with %s",
                device->ops->error_text(error));
    for (unsigned i = 0; i < 3; i++)
        loader->slots[i].open = loader->slots[i].busy = false;
    xci_device_arena_reset(&loader->arena);
    xci_engine_reset(&loader->engine);
}
