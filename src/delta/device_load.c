/* Loading blocks onto a device: see device_load.h.
 *
 *     pinned memory of a slot:  payload | table of blocks | results | any_bad | moves
 *     device memory of a slot:  table of blocks | payload
 *                               notes of check, if the payload is kept */
#include "delta/device_load.h"

#include <string.h>

#include "backend/transcode.h"
#include "base/bytes.h"
#include "base/pool.h"
#include "delta/device_load_gap.h"
#include "delta/device_load_record.h"

/* Of a batch, unless a group needs more or the bundle less. What is applied at once is rare, and
 * takes device memory that is not kept: an eighth will do. */
#define SLOT_PAYLOAD (UINT64_C(24) << 20)
#define SLOT_BLOCKS UINT64_C(131072)
#define FLAG_BYTES UINT64_C(64)
#define MOVE_BYTES (XCI_LOAD_RECORDS * sizeof(xci_cuda_move))
#define ROOM_MIN (UINT64_C(64) << 10) /* a smaller rest of the arena's memory is left */

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

static uint64_t payload_room(const xorcast_bundle *bundle) {
    return xci_min(SLOT_PAYLOAD, bundle->layout.chunk_count * xci_load_block_room(bundle));
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
    xci_pinned_release(context, &slot->pinned);
    xci_device_release(context, &slot->device);
    slot->payload_room = slot->block_room = 0;
    TRY(xci_pinned_allocate(
        context, payload + table_bytes(blocks) + result_bytes(blocks) + FLAG_BYTES + MOVE_BYTES,
        &slot->pinned));
    TRY(xci_device_allocate(context,
                            loader->mode == XCI_LOAD_KEEP ? blocks * sizeof(uint32_t)
                                                          : table_bytes(blocks) + payload + 64,
                            &slot->device));
    slot->payload_room = payload;
    slot->block_room = blocks;
    return XORCAST_OK;
}

/* Batches that are kept have nothing to do with each other, and the longest block of each takes
 * its time: they are worked on side by side, unless they share the engine's window. */
static xorcast_status open_slot_stream(xci_device_loader *loader, unsigned index) {
    const xci_device *device = loader->context->shared->device;
    xci_load_slot *slot = &loader->slots[index];
    slot->stream = loader->stream;
    if (loader->mode != XCI_LOAD_KEEP || loader->engine.able || index == XCI_LOAD_SLOTS)
        return XORCAST_OK;
    slot->stream = NULL;
    return xci_device_result(
        loader->context, device->ops->stream_open(device->handle, &slot->stream), "make a stream");
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
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &loader->copies));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &loader->event));
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++) {
        xci_load_slot *slot = &loader->slots[i];
        XCI_DEVICE(context, "make an event",
                   device->ops->event_open(device->handle, &slot->copied));
        XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->event));
        TRY(open_slot_stream(loader, i));
    }
    const xorcast_bundle *bundle = loader->bundle;
    const uint64_t share = loader->mode == XCI_LOAD_KEEP ? 1 : 8;
    const uint64_t blocks = xci_min(SLOT_BLOCKS / share, bundle->layout.chunk_count);
    for (unsigned i = 0; i < XCI_LOAD_SLOTS; i++)
        TRY(reserve_slot(loader, &loader->slots[i], payload_room(bundle) / share,
                         xci_max(blocks, bundle->group_chunks_max)));
    return XORCAST_OK;
}

xorcast_status xci_device_loader_open(xci_device_loader *loader, xorcast_bundle *bundle,
                                      const xci_device_map *map, xci_load_mode mode,
                                      const xci_load_taker *taker) {
    memset(loader, 0, sizeof *loader);
    loader->context = bundle->context;
    loader->bundle = bundle;
    loader->map = map;
    loader->mode = mode;
    if (taker != NULL)
        loader->taker = *taker;
    xci_device_arena_open(&loader->arena, bundle->context);
    const xorcast_status status = open_parts(loader);
    if (status < 0)
        xci_device_loader_close(loader);
    return status;
}

/* Whether a delta's digest proves what a loader takes: some receiver of the same weights has each
 * of them. */
static bool is_proved(const xorcast_bundle *bundle) {
    return bundle->complete || (bundle->twin != NULL && bundle->twin->complete);
}

/* Reads another side from now on, if it is memory of a device that this one can copy from. */
static void change_side(xci_device_loader *loader, xci_device_side *side) {
    if (loader->side != NULL)
        xci_device_side_leave(loader->side);
    loader->side = NULL;
    if (side == NULL || loader->mode != XCI_LOAD_KEEP || !is_proved(loader->bundle) ||
        side->shares[0].context->shared->device->ops != loader->context->shared->device->ops ||
        !xci_device_side_enter(side))
        return;
    loader->side = side;
}

void xci_device_loader_close(xci_device_loader *loader) {
    xorcast_context *context = loader->context;
    if (context == NULL)
        return;
    xci_stream_close(context, &loader->copies);
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++)
        if (loader->slots[i].stream != loader->stream)
            xci_stream_close(context, &loader->slots[i].stream);
    xci_stream_close(context, &loader->stream);
    change_side(loader, NULL);
    xci_event_close(context, &loader->event);
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++) {
        xci_event_close(context, &loader->slots[i].copied);
        xci_event_close(context, &loader->slots[i].event);
        xci_engine_batch_close(&loader->engine, &loader->slots[i].engine);
        xci_pinned_release(context, &loader->slots[i].pinned);
        xci_device_release(context, &loader->slots[i].device);
        xci_device_release(context, &loader->slots[i].own);
        xci_load_gap_release(context, &loader->slots[i]);
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
    xci_device_release(context, &loader->list);
    xci_device_arena_close(&loader->arena);
    memset(loader, 0, sizeof *loader);
}

/* ---- Parts of a slot ---- */

static xci_cuda_result *results_of(const xci_load_slot *slot) {
    return (xci_cuda_result *)(void *)(slot->pinned.at + slot->payload_room +
                                       table_bytes(slot->block_room));
}

static xci_cuda_move *moves_of(const xci_load_slot *slot) {
    return (xci_cuda_move *)(void *)((uint8_t *)results_of(slot) + result_bytes(slot->block_room) +
                                     FLAG_BYTES);
}

/* Becomes 1 where the check finds a damaged block. */
static uint32_t *any_bad(const xci_load_slot *slot) {
    return (uint32_t *)(void *)((uint8_t *)results_of(slot) + result_bytes(slot->block_room));
}

/* ---- Items of the pool ---- */

typedef struct load_job {
    xci_device_loader *loader;
    xci_load_slot *slot;
    const xci_load_slot *source; /* of blocks that are made ready: where they are now, and */
    uint64_t done;               /* how many of the rejected ones are done already */
} load_job;

static xorcast_status load_item(void *user, uint64_t index, uint32_t worker_index) {
    const load_job *job = user;
    return xci_load_record(job->loader, job->slot, &job->slot->items[index], worker_index);
}

/* ---- A batch on the device ---- */

/* Closes the gaps of the table. */
static void squeeze(xci_load_slot *slot) {
    xci_cuda_block *table = xci_load_table(slot);
    slot->count = slot->listed;
    if (atomic_load(&slot->skipped) == 0)
        return;
    slot->count = 0;
    for (uint64_t i = 0; i < slot->listed; i++)
        if (table[i].chunk != XCI_LOAD_SKIPPED) {
            if (slot->engine.wanted)
                slot->engine.forms[slot->count] = slot->engine.forms[i];
            table[slot->count++] = table[i];
        }
}

/* Where the device has the slot's entries: in the list of what is kept, if there is room. */
static xorcast_status place_table(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_device_memory *memory = &slot->device;
    const bool keep = loader->mode == XCI_LOAD_KEEP;
    loader->list_whole =
        keep && loader->list_whole &&
        (loader->listed + slot->count) * sizeof(xci_cuda_block) <= loader->list.bytes;
    if (loader->list_whole) {
        slot->table_at = (xci_cuda_block *)(void *)loader->list.at + loader->listed;
        loader->listed += slot->count;
        return XORCAST_OK;
    }
    if (keep) {
        memory = &slot->own;
        TRY(xci_device_reserve(loader->context, &slot->own,
                               slot->block_room * sizeof(xci_cuda_block)));
    }
    slot->table_at = (xci_cuda_block *)(void *)memory->at;
    return XORCAST_OK;
}

static xci_cuda_block_call call_of(const xci_device_loader *loader, const xci_load_slot *slot) {
    return (xci_cuda_block_call){
        .grid = loader->map->grid,
        .places = loader->map->places,
        .blocks = slot->table_at,
        .count = slot->count,
        .results = results_of(slot),
        .notes = loader->mode == XCI_LOAD_KEEP ? (uint32_t *)(void *)slot->device.at : NULL,
        .any_bad = any_bad(slot)};
}

static xorcast_status send_table(xci_device_loader *loader, const xci_load_slot *slot,
                                 void *stream) {
    const xci_device *device = loader->context->shared->device;
    return xci_device_result(loader->context,
                             device->ops->copy(device->handle, slot->table_at, xci_load_table(slot),
                                               slot->count * sizeof(xci_cuda_block), stream),
                             "copy blocks");
}

static xorcast_status start_check(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_block_call call = call_of(loader, slot);
    if (loader->mode == XCI_LOAD_KEEP) /* prepared too: lists are faster in the pause */
        return xci_engine_check(&loader->engine, &slot->engine, &call, xci_load_table(slot),
                                slot->stream);
    return xci_device_result(context, device->ops->check(device->handle, &call, slot->stream),
                             "check blocks");
}

static xorcast_status start_apply(xci_device_loader *loader, const xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    const xci_cuda_block_call call = call_of(loader, slot);
    return xci_device_result(
        loader->context, device->ops->apply(device->handle, &call, slot->stream), "apply blocks");
}

/* Where the device will have a slot's payload. */
static xorcast_status place_payload(xci_device_loader *loader, xci_load_slot *slot) {
    slot->payload_at = slot->device.at + table_bytes(slot->block_room);
    return loader->mode == XCI_LOAD_KEEP
               ? xci_device_arena_take(&loader->arena,
                                       slot->pinned_bytes + slot->copied_bytes + XCI_LOAD_ALIGNMENT,
                                       &slot->payload_at)
               : XORCAST_OK;
}

/* From one device after the other, as many records of one at a time as follow each other. */
static xorcast_status send_moves(xci_device_loader *loader, const xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    for (uint64_t i = 0; i < slot->item_count;) {
        const xci_load_item *first = &slot->items[i];
        uint64_t count = 0;
        while (i < slot->item_count && (slot->items[i].move == NULL || first->move == NULL ||
                                        slot->items[i].from == first->from)) {
            if (first->move == NULL)
                first = &slot->items[i];
            count += slot->items[i++].move != NULL;
        }
        if (count > 0)
            XCI_DEVICE(loader->context, "copy blocks",
                       device->ops->copy_peer_many(device->handle, first->from->handle, first->move,
                                                   count, loader->copies));
    }
    return XORCAST_OK;
}

static xorcast_status send_payload(xci_device_loader *loader, const xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    if (slot->pinned_bytes > 0)
        XCI_DEVICE(context, "copy blocks",
                   device->ops->copy(device->handle, slot->payload_at, slot->pinned.at,
                                     slot->pinned_bytes, loader->copies));
    return slot->move_count > 0 ? send_moves(loader, slot) : XORCAST_OK;
}

/* Moves the blocks of a loose batch together, and gives them their places on the device. */
static xorcast_status pack(xci_device_loader *loader, xci_load_slot *slot) {
    xci_cuda_block *table = xci_load_table(slot);
    uint64_t at = 0;
    slot->pinned_bytes = slot->copied_bytes = slot->move_count = 0;
    for (uint64_t i = 0; i < slot->count; i++)
        slot->pinned_bytes += xci_round_up(table[i].block_bytes, XCI_LOAD_ALIGNMENT);
    TRY(place_payload(loader, slot));
    for (uint64_t i = 0; i < slot->count; i++) {
        memmove(slot->pinned.at + at, table[i].bytes, table[i].block_bytes);
        table[i].bytes = slot->payload_at + at;
        at += xci_round_up(table[i].block_bytes, XCI_LOAD_ALIGNMENT);
    }
    return XORCAST_OK;
}

/* Sends a batch whose payload is in the slot's pinned memory. */
static xorcast_status launch(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    squeeze(slot);
    if (slot->count == 0 && atomic_load(&slot->gap.record_count) == 0)
        return XORCAST_OK;
    if (slot->loose)
        TRY(pack(loader, slot));
    if (slot->move_count == 0) /* what comes from a device was not looked at here */
        xci_engine_sort(&loader->engine, &slot->engine, xci_load_table(slot), slot->count);
    TRY(place_table(loader, slot));
    *any_bad(slot) = 0;
    slot->busy = true; /* also if only a part of what follows gets onto the streams */
    TRY(send_payload(loader, slot));
    TRY(send_table(loader, slot, loader->copies));
    TRY(xci_stream_follow(context, slot->stream, loader->copies, slot->copied));
    TRY(loader->mode == XCI_LOAD_APPLY_OWN ? start_apply(loader, slot) : start_check(loader, slot));
    TRY(xci_load_gap_start(loader, slot));
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, slot->event, slot->stream));
    return XORCAST_OK;
}

/* ---- Taking the results ---- */

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
    const xci_cuda_result *results = results_of(job->slot);
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
    const xci_cuda_result *results = results_of(job->slot);
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
    if (*any_bad(slot) != 0 || slot->engine.decoded > 0)
        TRY(xci_pool_run(loader->context->shared->pool, xci_divide_up(slot->count, XCI_LOAD_RUN),
                         count_rejected, &job));
    *rejected_out = atomic_load(&job.rejected);
    if (*rejected_out == 0)
        return XORCAST_OK;
    loader->list_whole = false;
    xci_cuda_result *results = results_of(slot);
    xci_cuda_block *table = xci_load_table(slot);
    void *memory = loader->rejected;
    const xorcast_status status = xci_reserve(loader->context, &memory, &loader->rejected_capacity,
                                              *rejected_out * sizeof *table);
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
        TRY(send_table(loader, slot, slot->stream));
    return start_apply(loader, slot);
}

static xorcast_status wait_for(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    slot->busy = false;
    return xci_device_result(loader->context, device->ops->event_wait(device->handle, slot->event),
                             "work on blocks");
}

/* Blocks of the last slot, made ready from `source`; index is of `rejected`. */
static xorcast_status ready_block(void *user, uint64_t index, uint32_t worker_index) {
    const load_job *job = user;
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
        if (results_of(slot)[i].status < 0)
            return xci_load_bad_chunk(loader->bundle, xci_load_table(slot)[i].chunk,
                                      "its block is damaged");
    TRY(give(loader, slot));
    return loader->mode == XCI_LOAD_APPLY ? apply_good(loader, slot, 0) : XORCAST_OK;
}

static xorcast_status make_rejected_ready(xci_device_loader *loader, const xci_load_slot *source,
                                          uint64_t rejected) {
    xci_load_slot *slot = &loader->slots[XCI_LOAD_SLOTS];
    const uint64_t room = xci_load_block_room(loader->bundle);
    const uint64_t most = payload_room(loader->bundle) / room;
    load_job job = {.loader = loader, .slot = slot, .source = source};
    TRY(reserve_slot(loader, slot, most * room, most));
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
        TRY(launch(loader, slot));
        TRY(take_ready(loader, slot));
    }
    return XORCAST_OK;
}

/* Gap blocks of the batch become device-ready, and are listed and taken as the others were. */
static xorcast_status take_gap(xci_device_loader *loader, xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    if (atomic_load(&slot->gap.record_count) == 0)
        return XORCAST_OK;
    TRY(xci_load_gap_finish(loader, slot, xci_load_table(slot), results_of(slot)));
    TRY(place_table(loader, slot));
    TRY(send_table(loader, slot, slot->stream));
    XCI_DEVICE(loader->context, "copy blocks",
               device->ops->stream_wait(device->handle, slot->stream));
    loader->engine.decoding.kernel_chunks += slot->count;
    return give(loader, slot);
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
        return take_gap(loader, slot);
    const xci_device *device = loader->context->shared->device;
    slot->busy = true; /* the apply still reads it */
    TRY(apply_good(loader, slot, rejected));
    XCI_DEVICE(loader->context, "mark a stream",
               device->ops->event_record(device->handle, slot->event, slot->stream));
    return wait_for(loader, slot);
}

/* ---- Records ---- */

/* Whether all chunks of a group are here, in checkpoint order. */
static bool has_group(const xci_device_loader *loader, uint64_t group) {
    const xorcast_bundle *bundle = loader->bundle;
    if (bundle->complete)
        return true;
    for (uint64_t c = bundle->group_first[group]; c < bundle->group_first[group + 1]; c++)
        if (loader->map->direct[c] == NULL)
            return false;
    return true;
}

/* Where another device, which is said too, has a record's blocks, or NULL: for whole chunks that
 * are here in checkpoint order only, because nothing else that comes from there is looked at on the
 * host. */
static const uint8_t *elsewhere(const xci_device_loader *loader, const xci_record *record,
                                uint64_t room, const xci_device **device_out) {
    const xorcast_bundle *bundle = loader->bundle;
    const uint32_t ready = 1u << XORCAST_CODEC_RAW | 1u << XORCAST_CODEC_LZ4;
    if (loader->side == NULL || record->codecs == 0 || (record->codecs & ~ready) != 0 ||
        bundle->group_first[record->group] >= bundle->whole_chunk_count ||
        !has_group(loader, record->group))
        return NULL;
    const uint8_t *at = loader->side->groups[record->group];
    const uint8_t *end = at != NULL ? xci_device_side_end(loader->side, at, device_out) : NULL;
    return end != NULL && (uint64_t)(end - at) >= room ? at : NULL;
}

bool xci_device_load_elsewhere(const xci_device_loader *loader, const xci_record *record) {
    const xci_device *device;
    bool loose;
    return elsewhere(loader, record, xci_load_record_room(loader, record, &loose), &device) != NULL;
}

/* Gives a record that takes `room` its place behind those that are there; false: it has none. */
static bool place_record(const xci_device_loader *loader, xci_load_slot *slot,
                         const xci_record *record, uint64_t room, bool loose) {
    const xci_device *device = NULL;
    const uint8_t *from = elsewhere(loader, record, room, &device);
    loose = loose && from == NULL; /* on the other device blocks have the sizes that are said */
    uint64_t *bytes = from != NULL ? &slot->copied_bytes : &slot->pinned_bytes;
    xci_cuda_move *move = from != NULL ? &moves_of(slot)[slot->move_count] : NULL;
    if (slot->listed + record->block_count > slot->block_room ||
        (slot->listed > 0 && loose != slot->loose) ||
        (slot->listed > 0 && !loose &&
         slot->pinned_bytes + slot->copied_bytes + room > slot->payload_most) ||
        (from == NULL && slot->pinned_bytes + room > slot->payload_room))
        return false;
    if (move != NULL) {
        *move = (xci_cuda_move){.from = from, .bytes = room};
        slot->move_count++;
    }
    slot->items[slot->item_count++] = (xci_load_item){record, move, device, *bytes, slot->listed};
    slot->loose = loose;
    *bytes += room;
    slot->listed += record->block_count;
    return true;
}

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
        bool loose;
        const uint64_t room = xci_load_record_room(loader, record, &loose);
        if (record->block_count > bundle->group_chunks_max)
            FAIL(loader->context, XORCAST_DATA_CORRUPT,
                 "group %llu cannot have %u chunks; fetch the delta again",
                 (unsigned long long)record->group, record->block_count);
        if (slot->listed == 0) /* one record always fits */
            TRY(reserve_slot(loader, slot, room, record->block_count));
        if (xci_load_gap_here(loader, record))
            TRY(xci_load_gap_reserve(loader, slot, slot->block_room));
        if (!place_record(loader, slot, record, room, loose))
            break;
    }
    *next_out = next;
    slot->payload_at = slot->pinned.at;
    return slot->loose ? XORCAST_OK : place_payload(loader, slot);
}

/* Batches end where the arena's memory does, so that none of it is left. */
static uint64_t payload_most(const xci_device_loader *loader) {
    const uint64_t room = xci_device_arena_room(&loader->arena);
    return room >= ROOM_MIN ? room - XCI_LOAD_ALIGNMENT : UINT64_MAX;
}

/* The next slot, once the device is done with it. */
static xorcast_status open_slot(xci_device_loader *loader, xci_load_slot **slot_out) {
    xci_load_slot *slot = &loader->slots[loader->turn];
    *slot_out = slot;
    loader->turn = (loader->turn + 1) % XCI_LOAD_SLOTS;
    TRY(complete(loader, slot));
    TRY(xci_engine_begin(&loader->engine, &slot->engine, slot->block_room));
    slot->loose = false;
    slot->payload_most = payload_most(loader);
    slot->listed = slot->pinned_bytes = slot->copied_bytes = slot->move_count = 0;
    atomic_store(&slot->skipped, 0);
    atomic_store(&slot->gap.record_count, 0);
    atomic_store(&slot->gap.most_tables, 1);
    atomic_store(&slot->gap.most_params, 0);
    return XORCAST_OK;
}

xorcast_status xci_device_load_begin(xci_device_loader *loader, uint64_t block_count,
                                     uint64_t bytes) {
    const xorcast_layout *layout = &loader->bundle->layout;
    const uint64_t most = xci_min(block_count, layout->chunk_count);
    loader->expected_bytes = bytes;
    loader->expected_blocks = most;
    loader->listed = loader->taken = 0;
    loader->list_whole = true;
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++)
        TRY(xci_stream_follow(loader->context, loader->slots[i].stream, NULL, loader->event));
    return xci_device_reserve(loader->context, &loader->list, most * sizeof(xci_cuda_block));
}

/* Memory for all blocks, if they stay as they come: what a manifest says of its size is said of
 * these. They are padded by half a vector in the mean, and never larger than their chunks. */
static void expect_blocks(xci_device_loader *loader, const xci_record *first) {
    const uint64_t bytes = xci_min(loader->expected_bytes, loader->bundle->layout.total_bytes);
    bool loose;
    (void)xci_load_record_room(loader, first, &loose);
    if (loader->mode != XCI_LOAD_KEEP || loader->expected_bytes == 0)
        return;
    loader->expected_bytes = 0;
    xci_device_arena_expect(&loader->arena,
                            loose || first->params_bytes > 0
                                ? 0
                                : bytes + loader->expected_blocks * (XCI_LOAD_ALIGNMENT / 2));
}

xorcast_status xci_device_load(xci_device_loader *loader, const xci_record *records, uint64_t count,
                               xci_device_side *side) {
    if (count > 0)
        expect_blocks(loader, &records[0]);
    if (side != loader->side)
        change_side(loader, side);
    for (uint64_t first = 0, next; first < count; first = next) {
        xci_load_slot *slot;
        TRY(open_slot(loader, &slot));
        TRY(plan(loader, slot, records, count, first, &next));
        load_job job = {.loader = loader, .slot = slot};
        TRY(xci_pool_run(loader->context->shared->pool, slot->item_count, load_item, &job));
        TRY(launch(loader, slot));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_load_end(xci_device_loader *loader) {
    for (unsigned i = 0; i < XCI_LOAD_SLOTS; i++)
        TRY(complete(loader, &loader->slots[(loader->turn + i) % XCI_LOAD_SLOTS]));
    change_side(loader, NULL);
    return XORCAST_OK;
}

static void come_to_rest(xci_device_loader *loader, void *stream) {
    const xci_device *device = loader->context->shared->device;
    const int error = device->ops->stream_wait(device->handle, stream);
    if (error != 0)
        xci_log(loader->context, XORCAST_LOG_WARNING, "the device stopped with %s",
                device->ops->error_text(error));
}

void xci_device_load_drop(xci_device_loader *loader) {
    come_to_rest(loader, loader->copies);
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++) {
        come_to_rest(loader, loader->slots[i].stream);
        loader->slots[i].busy = false;
    }
    loader->listed = loader->taken = 0;
    change_side(loader, NULL);
    xci_device_arena_reset(&loader->arena);
    xci_engine_reset(&loader->engine);
}
