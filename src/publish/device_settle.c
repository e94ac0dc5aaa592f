/* The shadow and the records: see device_settle.h. */
#include "publish/device_settle.h"

#include "base/bytes.h"
#include "publish/device_pieces.h"

/* Where settling has its tables and blocks: in the scratch, which is free between two encodes. */
typedef struct settle_place {
    xci_cuda_move *moves;
    xci_cuda_block *blocks;
    uint8_t *aligned;
} settle_place;

uint64_t xci_settle_bytes(const xci_device_encoder *e) {
    return e->most_chunks * (sizeof(xci_cuda_move) + sizeof(xci_cuda_block) + XCI_BLOCK_ALIGNMENT) +
           e->capacity + 256;
}

static settle_place place_to_settle(const xci_device_encoder *e) {
    uint8_t *at = e->scratch.at, *blocks = at + e->most_chunks * sizeof(xci_cuda_move);
    const uint64_t bytes = e->most_chunks * (sizeof(xci_cuda_move) + sizeof(xci_cuda_block));
    return (settle_place){(xci_cuda_move *)(void *)at, (xci_cuda_block *)(void *)blocks,
                          at + xci_round_up(bytes, 64)};
}

static bool settles(const xci_cuda_result *result, bool booked) {
    const bool moved = result->moved == 1;
    return result->block_bytes > 0 && result->status == XORCAST_OK && booked != moved;
}

/* Lists the blocks of a range that are to be applied, aligned one behind the other from `at` on. */
static void list_range(const xci_device_encoder *e, xci_encode_slot *slot,
                       const xci_put_range *range, bool booked, uint8_t **at) {
    const xci_slot_tables on = xci_slot_host(slot);
    for (uint64_t c = xci_range_first(e, range); c < xci_range_end(e, range); c++) {
        const xci_cuda_result *result = &on.results[c - slot->first];
        if (!settles(result, booked))
            continue;
        on.settling[slot->settled] =
            (xci_cuda_move){slot->output.at + result->block_offset, *at, result->block_bytes};
        on.blocks[slot->settled++] =
            (xci_cuda_block){*at, result->block_bytes, result->block_codec, c};
        *at += xci_round_up(result->block_bytes, XCI_BLOCK_ALIGNMENT);
    }
}

/* Applies what the slot lists from `first` on, before what is encoded from now on. */
static xorcast_status apply_listed(xci_device_encoder *e, const xci_encode_slot *slot,
                                   uint64_t first) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    const xci_slot_tables from = xci_slot_host(slot);
    const settle_place to = place_to_settle(e);
    const xci_device_map *shadow = xci_device_shadow_home(e->shadow, e->share);
    const uint64_t count = slot->settled - first;
    const xci_cuda_block_call call = {
        .grid = shadow->grid, .places = shadow->places, .blocks = to.blocks, .count = count};
    TRY(xci_device_join_lanes(e));
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, to.moves, from.settling + first,
                                 count * sizeof *to.moves, e->compute));
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, to.blocks, from.blocks + first,
                                 count * sizeof *to.blocks, e->compute));
    XCI_DEVICE(context, "align blocks",
               device->ops->copy_many(device->handle, to.moves, count, e->compute));
    XCI_DEVICE(context, "move the shadow", device->ops->apply(device->handle, &call, e->compute));
    return xci_device_result(context,
                             device->ops->event_record(device->handle, e->settled, e->compute),
                             "mark a stream");
}

xorcast_status xci_device_settle(xci_device_encoder *e, xci_encode_slot *slot, uint64_t first,
                                 uint64_t end, const xci_range_note *notes) {
    uint8_t *at = place_to_settle(e).aligned;
    const uint64_t before = slot->settled;
    for (uint64_t r = first; r < end; r++) {
        const bool booked = notes != NULL && notes[r - first].booked;
        if (!booked || notes[r - first].behind)
            list_range(e, slot, &e->ranges[r], booked, &at);
    }
    const xorcast_status status =
        slot->settled > before ? apply_listed(e, slot, before) : XORCAST_OK;
    if (status < 0)
        xci_device_shadow_lose(e->shadow);
    return status;
}

/* Undoes the blocks of a group that has moved. */
static xorcast_status undo_group(xci_device_encoder *e, const xci_encode_slot *slot,
                                 uint64_t number) {
    const xci_put_range *range = &e->ranges[slot->ranges.first + number];
    const uint64_t first = xci_range_first(e, range) - slot->first;
    const xci_cuda_result *results = xci_slot_results(slot) + first;
    xci_record record = {.group = range->group, .blocks = e->pending->workers[0].blocks};
    for (uint64_t c = 0; c < range->end - range->first; c++) {
        xci_chunk chunk;
        if (results[c].bytes_changed == 0 || results[c].moved != 1)
            continue;
        xci_bundle_chunk(e->pending->bundle, range->first + c, NULL, &chunk);
        record.blocks[record.block_count++] = (xci_block){
            .chunk = (uint32_t)c, .element_bytes = chunk.element_bytes, .chunk_bytes = chunk.bytes};
    }
    if (record.block_count == 0)
        return XORCAST_OK;
    xci_device_gap_take(&slot->gap, number, first, slot->payload.at, &record);
    return xci_device_shadow_undo_record(e->shadow, &record);
}

xorcast_status xci_device_take_back(xci_device_encoder *e, const xci_encode_slot *slot,
                                    const xci_range_note *notes) {
    const uint64_t count = slot->ranges.end - slot->ranges.first;
    xorcast_status status = XORCAST_OK;
    for (uint64_t i = 0; i < count && status == XORCAST_OK; i++)
        if (notes == NULL || !notes[i].booked)
            status = undo_group(e, slot, i);
    const xorcast_status ended = xci_device_shadow_undone(e->shadow);
    status = status < 0 ? status : ended;
    if (status < 0)
        xci_device_shadow_lose(e->shadow);
    return status;
}
