/* Gap blocks that the device decodes: see device_load_gap.h.
 *
 *     pinned and device memory of a slot:  blocks | records | results */
#include "delta/device_load_gap.h"

#include <string.h>

#include "base/bytes.h"
#include "delta/device_load_record.h"

bool xci_load_gap_here(const xci_device_loader *loader, const xci_record *record) {
    const xorcast_bundle *bundle = loader->bundle;
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    if (record->params_bytes == 0 || loader->mode != XCI_LOAD_KEEP ||
        loader->context->shared->device->ops->gap_check == NULL ||
        first >= bundle->whole_chunk_count)
        return false;
    if (!loader->beside_old_weights)
        return true;
    for (uint64_t c = first; c < end; c++)
        if (loader->map->direct[c] == NULL)
            return false;
    return true;
}

/* ---- Tables ---- */

static uint64_t blocks_bytes(const xci_load_gap *gap) {
    return xci_round_up(gap->block_room * sizeof(xci_cuda_gap_block), 64);
}

static uint64_t records_bytes(void) {
    return xci_round_up(XCI_LOAD_RECORDS * sizeof(xci_cuda_gap_record), 64);
}

typedef struct gap_tables {
    xci_cuda_gap_block *blocks;
    xci_cuda_gap_record *records;
    xci_cuda_result *results;
} gap_tables;

static gap_tables tables_in(const xci_load_gap *gap, const xci_device_memory *memory) {
    uint8_t *const at = memory->at;
    return (gap_tables){(xci_cuda_gap_block *)(void *)at,
                        (xci_cuda_gap_record *)(void *)(at + blocks_bytes(gap)),
                        (xci_cuda_result *)(void *)(at + blocks_bytes(gap) + records_bytes())};
}

xorcast_status xci_load_gap_reserve(xci_device_loader *loader, xci_load_slot *slot,
                                    uint64_t blocks) {
    xci_load_gap *gap = &slot->gap;
    xorcast_context *context = loader->context;
    if (gap->device.at != NULL && blocks <= gap->block_room) /* made last */
        return XORCAST_OK;
    xci_load_gap_release(context, slot);
    gap->block_room = blocks;
    const uint64_t bytes =
        blocks_bytes(gap) + records_bytes() + xci_round_up(blocks * sizeof(xci_cuda_result), 64);
    TRY(xci_pinned_allocate(context, bytes, &gap->pinned));
    return xci_device_allocate(context, bytes, &gap->device);
}

void xci_load_gap_release(xorcast_context *context, xci_load_slot *slot) {
    xci_pinned_release(context, &slot->gap.pinned);
    xci_device_release(context, &slot->gap.device);
    slot->gap.block_room = 0;
}

/* ---- Listing ---- */

void xci_load_gap_add(xci_load_slot *slot, xci_load_gap_list *list, const uint8_t *at,
                      uint32_t bytes, uint64_t chunk) {
    const gap_tables to = tables_in(&slot->gap, &slot->gap.pinned);
    to.blocks[list->item->first + list->count++] = (xci_cuda_gap_block){
        .bytes = at, .chunk = chunk, .block_bytes = bytes, .ordinal = list->ordinal - 1};
}

static void raise_to(atomic_uint_fast32_t *most, uint32_t value) {
    uint_fast32_t seen = atomic_load(most);
    while (value > seen && !atomic_compare_exchange_weak(most, &seen, value))
        continue;
}

void xci_load_gap_close(xci_load_slot *slot, const xci_load_gap_list *list, const uint8_t *params,
                        uint32_t params_bytes, uint8_t tables) {
    const gap_tables to = tables_in(&slot->gap, &slot->gap.pinned);
    if (list->count == 0)
        return;
    const uint64_t number = atomic_fetch_add(&slot->gap.record_count, 1);
    to.records[number] = (xci_cuda_gap_record){.params = params,
                                               .first = list->item->first,
                                               .params_bytes = params_bytes,
                                               .count = list->count,
                                               .gap_count = list->ordinal};
    raise_to(&slot->gap.most_tables, tables);
    raise_to(&slot->gap.most_params, params_bytes);
}

/* ---- On the device ---- */

static xci_cuda_gap_call call_of(const xci_device_loader *loader, const xci_load_slot *slot) {
    const gap_tables on = tables_in(&slot->gap, &slot->gap.device);
    const uint32_t tables = (uint32_t)atomic_load(&slot->gap.most_tables);
    return (xci_cuda_gap_call){.grid = loader->map->grid,
                               .places = loader->map->places,
                               .blocks = on.blocks,
                               .records = on.records,
                               .results = on.results,
                               .record_count = atomic_load(&slot->gap.record_count),
                               .most_tables = (uint32_t)xci_min(tables, XCI_GAP_TABLES),
                               .most_params = (uint32_t)atomic_load(&slot->gap.most_params),
                               .beside = loader->beside_old_weights};
}

static xorcast_status send_blocks(xci_device_loader *loader, const xci_load_slot *slot) {
    const xci_device *device = loader->context->shared->device;
    const gap_tables to = tables_in(&slot->gap, &slot->gap.device),
                     from = tables_in(&slot->gap, &slot->gap.pinned);
    return xci_device_result(loader->context,
                             device->ops->copy(device->handle, to.blocks, from.blocks,
                                               slot->listed * sizeof *to.blocks, slot->stream),
                             "copy blocks");
}

xorcast_status xci_load_gap_start(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    const uint64_t records = atomic_load(&slot->gap.record_count);
    if (records == 0)
        return XORCAST_OK;
    const gap_tables to = tables_in(&slot->gap, &slot->gap.device),
                     from = tables_in(&slot->gap, &slot->gap.pinned);
    const xci_cuda_gap_call call = call_of(loader, slot);
    TRY(send_blocks(loader, slot));
    XCI_DEVICE(context, "copy records",
               device->ops->copy(device->handle, to.records, from.records,
                                 records * sizeof *to.records, slot->stream));
    XCI_DEVICE(context, "decode blocks",
               device->ops->gap_check(device->handle, &call, slot->stream));
    XCI_DEVICE(context, "copy results",
               device->ops->copy(device->handle, from.results, to.results,
                                 slot->listed * sizeof *to.results, slot->stream));
    return XORCAST_OK;
}

/* ---- Forms ---- */

static xorcast_status refuse(xci_device_loader *loader, uint64_t chunk, int32_t status) {
    const xci_place place = {xci_bundle_tensor_of(loader->bundle, chunk), chunk, 0};
    if (status == XORCAST_UNSUPPORTED)
        FAIL_AT(loader->context, XORCAST_UNSUPPORTED, place,
                "a chunk is encoded for receivers that hold the weights before it; fetch the plain "
                "form of the delta");
    return xci_load_bad_chunk(loader->bundle, chunk,
                              "its block does not decode to the chunk's size");
}

/* What all forms take; fails if a block is not good. */
static xorcast_status sum_forms(xci_device_loader *loader, const xci_load_slot *slot,
                                uint64_t *bytes_out) {
    const gap_tables from = tables_in(&slot->gap, &slot->gap.pinned);
    *bytes_out = 0;
    for (uint64_t r = 0; r < atomic_load(&slot->gap.record_count); r++) {
        const xci_cuda_gap_record *record = &from.records[r];
        for (uint64_t i = record->first; i < record->first + record->count; i++) {
            if (from.results[i].status < 0)
                return refuse(loader, from.blocks[i].chunk, from.results[i].status);
            *bytes_out += xci_round_up(from.results[i].list_bytes, XCI_LOAD_ALIGNMENT);
        }
    }
    return XORCAST_OK;
}

/* Gives each block its place, and lists the forms as any device-ready blocks. */
static uint64_t list_forms(const xci_load_slot *slot, uint8_t *at, xci_cuda_block *table,
                           xci_cuda_result *results) {
    const gap_tables from = tables_in(&slot->gap, &slot->gap.pinned);
    uint64_t count = 0;
    for (uint64_t r = 0; r < atomic_load(&slot->gap.record_count); r++) {
        const xci_cuda_gap_record *record = &from.records[r];
        for (uint64_t i = record->first; i < record->first + record->count; i++) {
            const xci_cuda_result result = from.results[i];
            from.blocks[i].ready = at;
            if (result.list_bytes == 0)
                continue;
            table[count] =
                (xci_cuda_block){at, result.list_bytes, result.block_codec, from.blocks[i].chunk};
            results[count] = result;
            if (result.block_codec != XCI_CUDA_CODEC_LIST)
                results[count].list_bytes = 0;
            count++;
            at += xci_round_up(result.list_bytes, XCI_LOAD_ALIGNMENT);
        }
    }
    return count;
}

xorcast_status xci_load_gap_finish(xci_device_loader *loader, xci_load_slot *slot,
                                   xci_cuda_block *table, xci_cuda_result *results) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    uint64_t bytes;
    uint8_t *at;
    TRY(sum_forms(loader, slot, &bytes));
    TRY(xci_device_arena_take(&loader->arena, bytes + XCI_LOAD_ALIGNMENT, &at));
    slot->count = list_forms(slot, at, table, results);
    const xci_cuda_gap_call call = call_of(loader, slot);
    TRY(send_blocks(loader, slot));
    XCI_DEVICE(context, "make lists", device->ops->gap_ready(device->handle, &call, slot->stream));
    XCI_DEVICE(context, "make lists", device->ops->stream_wait(device->handle, slot->stream));
    atomic_store(&slot->gap.record_count, 0);
    return XORCAST_OK;
}
