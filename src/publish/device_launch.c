/* Pieces to the device: see device_launch.h. */
#include "publish/device_launch.h"

#include "base/bytes.h"
#include "publish/device_pieces.h"

void xci_device_unplace(xci_device_encoder *e) {
    for (uint64_t r = e->joined.first; r < e->joined.end; r++)
        for (uint64_t c = e->ranges[r].first; c < e->ranges[r].end; c++)
            if (xci_device_join_has(&e->join, *xci_chunk_place(e, c)))
                *xci_chunk_place(e, c) = xci_device_incoming_small(&e->incoming, c);
    e->joined = (xci_range_span){0, 0};
}

/* Gives scattered chunks of a piece a place in the bounce buffer, of which there is one. */
static xorcast_status place_scattered(xci_device_encoder *e, xci_range_span ranges) {
    const xci_device *device = e->context->shared->device;
    const uint64_t base = e->ranges[ranges.first].first;
    if (e->joined.first < e->joined.end)
        XCI_DEVICE(e->context, "encode weights",
                   device->ops->event_wait(device->handle, e->joined_read));
    xci_device_unplace(e);
    TRY(xci_device_join_reserve(&e->join));
    e->joined = ranges;
    for (uint64_t r = ranges.first; r < ranges.end; r++)
        for (uint64_t c = e->ranges[r].first; c < e->ranges[r].end; c++)
            if (xci_chunk_scattered(e, c))
                *xci_chunk_place(e, c) = xci_device_join_place(&e->join, base, c);
    return XORCAST_OK;
}

/* Small tensors of other devices are copied on their drain streams. */
static void list_sources(const xci_device_encoder *e, bool packed, xci_join_source *sources) {
    for (uint32_t s = 0; s < e->pending->bundle->share_count; s++) {
        const xci_device_encoder *one = e->siblings[s];
        sources[s].stream = packed && one != e ? one->drain : one->compute;
        sources[s].packed = packed ? one->incoming.small.at : NULL;
    }
}

/* What was placed, in runs of chunks that follow each other. */
static xorcast_status gather_scattered(xci_device_encoder *e) {
    const uint64_t base = e->ranges[e->joined.first].first;
    xci_join_source sources[XCI_SHARES_MAX];
    uint64_t first = base, count = 0;
    list_sources(e, base >= e->pending->bundle->whole_chunk_count, sources);
    for (uint64_t r = e->joined.first; r < e->joined.end; r++)
        for (uint64_t c = e->ranges[r].first; c < e->ranges[r].end; c++) {
            if (!xci_device_join_has(&e->join, *xci_chunk_place(e, c)))
                continue;
            if (count > 0 && c != first + count)
                TRY(xci_device_join_run(&e->join, base, first, count, sources));
            if (count == 0 || c != first + count) {
                first = c;
                count = 0;
            }
            count++;
        }
    return count > 0 ? xci_device_join_run(&e->join, base, first, count, sources) : XORCAST_OK;
}

static xci_cuda_encode_call call_of(const xci_device_encoder *e, const xci_encode_slot *slot) {
    const xci_slot_tables on = xci_slot_device(slot);
    const xci_device_map *shadow = xci_device_shadow_home(e->shadow, e->share);
    return (xci_cuda_encode_call){
        .grid = shadow->grid,
        .old_at = shadow->places.direct,
        .new_at = (const uint8_t *const *)e->incoming.device_at,
        .first = slot->first,
        .count = slot->count,
        .codec = (uint32_t)xci_min(xci_device_encoding(e)->codec, XORCAST_CODEC_LZ4),
        .move = e->moves,
        .blocks = slot->output.at,
        .capacity = e->capacity,
        .results = on.results,
        .used_bytes = on.used,
        .scratch = e->scratch.at,
        .scratch_bytes = e->scratch.bytes};
}

/* In the gap codec, in each form that is wanted. */
static xorcast_status start_gap(xci_device_encoder *e, xci_encode_slot *slot,
                                const xci_cuda_encode_call *call) {
    const uint64_t count = slot->ranges.end - slot->ranges.first;
    for (uint64_t i = 0; i < count; i++)
        e->gap_first[i] = xci_range_first(e, &e->ranges[slot->ranges.first + i]);
    e->gap_first[count] = slot->first + slot->count;
    TRY(xci_device_gap_start(&slot->gap, e->context, NULL, call, e->gap_first, count, e->compute));
    if (xci_device_encoding(e)->old_weights == 0)
        return XORCAST_OK;
    return xci_device_gap_start(&slot->beside, e->context, &slot->gap, call, e->gap_first, count,
                                e->compute);
}

static xorcast_status start_encode(xci_device_encoder *e, xci_encode_slot *slot, bool scattered) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_encode_call call = call_of(e, slot);
    const uint64_t at = slot->first * sizeof(uint8_t *);
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, e->incoming.table.at + at,
                                 e->incoming.pinned.at + at, slot->count * sizeof(uint8_t *),
                                 e->compute));
    if (e->ranges[slot->ranges.end - 1].end > e->pending->bundle->whole_chunk_count)
        XCI_DEVICE(context, "order two streams",
                   device->ops->stream_after(device->handle, e->compute, e->gathered));
    if (scattered)
        TRY(gather_scattered(e));
    if (e->launched >= XCI_ENCODE_SLOTS) /* what the slot holds may still be copied */
        XCI_DEVICE(context, "order two streams",
                   device->ops->stream_after(device->handle, e->compute, slot->kept));
    slot->gap.here = e->encodes_gap && xci_slot_whole(e, slot);
    if (slot->gap.here)
        TRY(start_gap(e, slot, &call));
    XCI_DEVICE(context, "encode weights", device->ops->encode(device->handle, &call, e->compute));
    slot->moved = e->moves;
    if (scattered)
        XCI_DEVICE(context, "mark a stream",
                   device->ops->event_record(device->handle, e->joined_read, e->compute));
    TRY(xci_stream_follow(context, e->sizes, e->compute, e->computed));
    XCI_DEVICE(context, "copy results",
               device->ops->copy(device->handle, slot->pinned.at, slot->tables.at,
                                 xci_slot_results_bytes(slot), e->sizes));
    if (slot->gap.here)
        TRY(xci_device_gap_fetch(&slot->gap, context, e->sizes));
    if (slot->gap.here && xci_device_encoding(e)->old_weights != 0)
        TRY(xci_device_gap_fetch(&slot->beside, context, e->sizes));
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, slot->encoded, e->sizes));
    return XORCAST_OK;
}

xorcast_status xci_device_launch(xci_device_encoder *e) {
    xci_encode_slot *slot = &e->slots[e->launched % XCI_ENCODE_SLOTS];
    slot->ranges = xci_pieces_next(e);
    slot->first = xci_range_first(e, &e->ranges[slot->ranges.first]);
    slot->count = xci_range_end(e, &e->ranges[slot->ranges.end - 1]) - slot->first;
    slot->settled = 0;
    const bool scattered = xci_range_scattered(e, &e->ranges[slot->ranges.first]);
    if (scattered)
        TRY(place_scattered(e, slot->ranges));
    const xorcast_status status = start_encode(e, slot, scattered);
    e->launched++;
    return status;
}
