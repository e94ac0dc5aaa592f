/* Loading blocks onto a device: see device_load.h. The steps are elsewhere: device_load_record.c
 * and device_load_gap.c bring records to a slot's memory (device_load_slot.c), device_load_batch.c
 * sends what is there to the device, device_load_take.c takes what the device says of it. */
#include "delta/device_load.h"

#include <string.h>

#include "backend/transcode.h"
#include "base/bytes.h"
#include "base/pool.h"
#include "delta/device_load_batch.h"
#include "delta/device_load_gap.h"
#include "delta/device_load_record.h"
#include "delta/device_load_slot.h"
#include "delta/device_load_take.h"

#define ROOM_MIN (UINT64_C(64) << 10) /* a smaller rest of the arena's memory is left */

/* ---- Another side ---- */

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
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++)
        TRY(xci_load_slot_open(loader, i));
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
    for (unsigned i = 0; i <= XCI_LOAD_SLOTS; i++)
        xci_load_slot_close(loader, &loader->slots[i]);
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
    xci_cuda_move *move = from != NULL ? &xci_load_moves(slot)[slot->move_count] : NULL;
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
            TRY(xci_load_slot_reserve(loader, slot, room, record->block_count));
        if (xci_load_gap_here(loader, record))
            TRY(xci_load_gap_reserve(loader, slot, slot->block_room));
        if (!place_record(loader, slot, record, room, loose))
            break;
    }
    *next_out = next;
    slot->payload_at = slot->pinned.at;
    return slot->loose ? XORCAST_OK : xci_load_place_payload(loader, slot);
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
    TRY(xci_load_complete(loader, slot));
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

/* ---- A delta ---- */

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

typedef struct load_job {
    xci_device_loader *loader;
    xci_load_slot *slot;
} load_job;

static xorcast_status load_item(void *user, uint64_t index, uint32_t worker_index) {
    const load_job *job = user;
    return xci_load_record(job->loader, job->slot, &job->slot->items[index], worker_index);
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
        load_job job = {loader, slot};
        TRY(xci_pool_run(loader->context->shared->pool, slot->item_count, load_item, &job));
        TRY(xci_load_launch(loader, slot));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_load_end(xci_device_loader *loader) {
    for (unsigned i = 0; i < XCI_LOAD_SLOTS; i++)
        TRY(xci_load_complete(loader, &loader->slots[(loader->turn + i) % XCI_LOAD_SLOTS]));
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
