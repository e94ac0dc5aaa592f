/* Batches to the device: see device_load_batch.h. */
#include "delta/device_load_batch.h"

#include <string.h>

#include "base/bytes.h"
#include "delta/device_load_gap.h"
#include "delta/device_load_record.h"
#include "delta/device_load_slot.h"

/* ---- Entries ---- */

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

xorcast_status xci_load_place_table(xci_device_loader *loader, xci_load_slot *slot) {
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

xorcast_status xci_load_send_table(xci_device_loader *loader, const xci_load_slot *slot,
                                   void *stream) {
    const xci_device *device = loader->context->shared->device;
    return xci_device_result(loader->context,
                             device->ops->copy(device->handle, slot->table_at, xci_load_table(slot),
                                               slot->count * sizeof(xci_cuda_block), stream),
                             "copy blocks");
}

/* ---- Payload ---- */

xorcast_status xci_load_place_payload(xci_device_loader *loader, xci_load_slot *slot) {
    slot->payload_at = xci_load_payload_on_device(slot);
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
    TRY(xci_load_place_payload(loader, slot));
    for (uint64_t i = 0; i < slot->count; i++) {
        memmove(slot->pinned.at + at, table[i].bytes, table[i].block_bytes);
        table[i].bytes = slot->payload_at + at;
        at += xci_round_up(table[i].block_bytes, XCI_LOAD_ALIGNMENT);
    }
    return XORCAST_OK;
}

/* ---- Work ---- */

static xci_cuda_block_call call_of(const xci_device_loader *loader, const xci_load_slot *slot) {
    return (xci_cuda_block_call){
        .grid = loader->map->grid,
        .places = loader->map->places,
        .blocks = slot->table_at,
        .count = slot->count,
        .results = xci_load_results(slot),
        .notes = loader->mode == XCI_LOAD_KEEP ? (uint32_t *)(void *)slot->device.at : NULL,
        .any_bad = xci_load_any_bad(slot)};
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

xorcast_status xci_load_start_apply(xci_device_loader *loader, const xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    const xci_cuda_block_call call = call_of(loader, slot);
    return xci_device_result(
        loader->context, device->ops->apply(device->handle, &call, slot->stream), "apply blocks");
}

xorcast_status xci_load_launch(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    squeeze(slot);
    if (slot->count == 0 && atomic_load(&slot->gap.record_count) == 0)
        return XORCAST_OK;
    if (slot->loose)
        TRY(pack(loader, slot));
    if (slot->move_count == 0) /* what comes from a device was not looked at here */
        xci_engine_sort(&loader->engine, &slot->engine, xci_load_table(slot), slot->count);
    TRY(xci_load_place_table(loader, slot));
    *xci_load_any_bad(slot) = 0;
    slot->busy = true; /* also if only a part of what follows gets onto the streams */
    TRY(send_payload(loader, slot));
    TRY(xci_load_send_table(loader, slot, loader->copies));
    TRY(xci_stream_follow(context, slot->stream, loader->copies, slot->copied));
    TRY(loader->mode == XCI_LOAD_APPLY_OWN ? xci_load_start_apply(loader, slot)
                                           : start_check(loader, slot));
    TRY(xci_load_gap_start(loader, slot));
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, slot->event, slot->stream));
    return XORCAST_OK;
}
