/* Pieces to the device: see device_launch.h. */
#include "publish/device_launch.h"

#include "base/bytes.h"
#include "publish/device_pieces.h"

void xci_device_unplace(xci_device_encoder *e, uint32_t turn) {
    const xci_range_span ranges = e->joined[turn];
    for (uint64_t r = ranges.first; r < ranges.end; r++)
        for (uint64_t c = e->ranges[r].first; c < e->ranges[r].end; c++)
            if (xci_device_join_has_in(&e->join, turn, *xci_chunk_place(e, c)))
                *xci_chunk_place(e, c) = xci_device_incoming_small(&e->incoming, c);
    e->joined[turn] = (xci_range_span){0, 0};
}

/* Gives scattered chunks of a piece a place in the bounce buffer, where two pieces take turns. */
static xorcast_status place_scattered(xci_device_encoder *e, xci_range_span ranges) {
    const xci_device *device = e->context->shared->device;
    const xci_join_lot lot = {e->turn, e->ranges[ranges.first].first};
    if (e->joined[lot.turn].first < e->joined[lot.turn].end)
        XCI_DEVICE(e->context, "encode weights",
                   device->ops->event_wait(device->handle, e->joined_read[lot.turn]));
    xci_device_unplace(e, lot.turn);
    TRY(xci_device_join_reserve(&e->join));
    e->joined[lot.turn] = ranges;
    for (uint64_t r = ranges.first; r < ranges.end; r++)
        for (uint64_t c = e->ranges[r].first; c < e->ranges[r].end; c++)
            if (xci_chunk_scattered(e, c))
                *xci_chunk_place(e, c) = xci_device_join_place(&e->join, &lot, c);
    return XORCAST_OK;
}

/* Small tensors are copied on the drain streams; this device's have been waited for. */
static void list_sources(const xci_device_encoder *e, bool packed, xci_join_source *sources) {
    for (uint32_t s = 0; s < e->pending->bundle->share_count; s++) {
        const xci_device_encoder *one = e->siblings[s];
        sources[s].stream = packed && one != e ? one->drain : one->join_stream;
        sources[s].packed = packed ? one->incoming.small.at : NULL;
    }
}

/* What was placed, in runs of chunks that follow each other. */
static xorcast_status gather_runs(xci_device_encoder *e) {
    const xci_range_span ranges = e->joined[e->turn];
    const xci_join_lot lot = {e->turn, e->ranges[ranges.first].first};
    xci_join_source sources[XCI_SHARES_MAX];
    uint64_t first = lot.base, count = 0;
    list_sources(e, lot.base >= e->pending->bundle->whole_chunk_count, sources);
    for (uint64_t r = ranges.first; r < ranges.end; r++)
        for (uint64_t c = e->ranges[r].first; c < e->ranges[r].end; c++) {
            if (!xci_device_join_has_in(&e->join, lot.turn, *xci_chunk_place(e, c)))
                continue;
            if (count > 0 && c != first + count)
                TRY(xci_device_join_run(&e->join, &lot, first, count, sources));
            if (count == 0 || c != first + count) {
                first = c;
                count = 0;
            }
            count++;
        }
    return count > 0 ? xci_device_join_run(&e->join, &lot, first, count, sources) : XORCAST_OK;
}

/* Scattered chunks are there when `stream` comes to what is put on it next. */
static xorcast_status gather_scattered(xci_device_encoder *e, void *stream) {
    const xci_device *device = e->context->shared->device;
    XCI_DEVICE(e->context, "order two streams",
               device->ops->stream_after(device->handle, e->join_stream, e->gathered));
    TRY(gather_runs(e));
    return xci_stream_follow(e->context, stream, e->join_stream, e->computed);
}

/* ---- Streams ---- */

xorcast_status xci_device_join_lanes(xci_device_encoder *e) {
    if (!e->apart)
        return XORCAST_OK;
    TRY(xci_stream_follow(e->context, e->compute, e->second, e->computed));
    e->apart = false;
    return XORCAST_OK;
}

static void *stream_of(const xci_device_encoder *e, const xci_encode_slot *slot) {
    return slot->lane == 0 ? e->compute : e->second;
}

/* Chooses the stream of a piece, on which everything is that must be before it. What is gathered
 * for it, and what needs all of the scratch, goes on the first one. */
static xorcast_status choose_lane(xci_device_encoder *e, xci_encode_slot *slot, bool scattered) {
    slot->lane = slot->has_gap && !scattered ? e->launched % XCI_ENCODE_LANES : 0;
    if (!slot->has_gap)
        return xci_device_join_lanes(e);
    if (slot->lane == 0 || e->apart)
        return XORCAST_OK;
    TRY(xci_stream_follow(e->context, e->second, e->compute, e->computed));
    e->apart = true;
    return XORCAST_OK;
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

/* Whole groups, in each form that is wanted; then the shadow. */
static xorcast_status start_gap(xci_device_encoder *e, xci_encode_slot *slot,
                                const xci_cuda_encode_call *call) {
    const uint64_t count = slot->ranges.end - slot->ranges.first;
    const uint64_t half = e->scratch.bytes / XCI_ENCODE_LANES / 256 * 256;
    xci_cuda_encode_call lane = *call;
    const xci_gap_piece piece = {&lane, xci_device_encoding(e), e->gap_first, count};
    xci_device_gap *beside = piece.encoding->old_weights != 0 ? &slot->beside : NULL;
    for (uint64_t i = 0; i < count; i++)
        e->gap_first[i] = xci_range_first(e, &e->ranges[slot->ranges.first + i]);
    e->gap_first[count] = slot->first + slot->count;
    lane.scratch += slot->lane * half;
    lane.scratch_bytes = half;
    TRY(xci_device_gap_start(&slot->gap, e->context, NULL, &piece, stream_of(e, slot)));
    if (beside != NULL)
        TRY(xci_device_gap_start(beside, e->context, &slot->gap, &piece, stream_of(e, slot)));
    if (!xci_device_shadow_on_device(e->shadow))
        return XORCAST_OK;
    TRY(xci_device_gap_move(&slot->gap, e->context, beside, &piece, stream_of(e, slot)));
    slot->moved = true;
    return XORCAST_OK;
}

static xorcast_status start_blocks(xci_device_encoder *e, xci_encode_slot *slot,
                                   const xci_cuda_encode_call *call) {
    const xci_device *device = e->context->shared->device;
    XCI_DEVICE(e->context, "encode weights", device->ops->encode(device->handle, call, e->compute));
    slot->moved = e->moves;
    return XORCAST_OK;
}

static xorcast_status fetch_results(const xci_device_encoder *e, const xci_encode_slot *slot) {
    const xci_device *device = e->context->shared->device;
    if (!slot->has_gap)
        return xci_device_result(e->context,
                                 device->ops->copy(device->handle, slot->pinned.at, slot->tables.at,
                                                   xci_slot_results_bytes(slot), e->sizes),
                                 "copy results");
    TRY(xci_device_gap_fetch(&slot->gap, e->context, e->sizes));
    return xci_device_encoding(e)->old_weights == 0
               ? XORCAST_OK
               : xci_device_gap_fetch(&slot->beside, e->context, e->sizes);
}

/* Whether the device writes the groups of a piece itself. */
static bool writes_groups(const xci_device_encoder *e, const xci_encode_slot *slot) {
    return e->encodes_gap && xci_slot_whole(e, slot) && slot->ranges.first != e->host_range;
}

static xorcast_status start_encode(xci_device_encoder *e, xci_encode_slot *slot, bool scattered) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_encode_call call = call_of(e, slot);
    const uint64_t at = slot->first * sizeof(uint8_t *);
    slot->has_gap = writes_groups(e, slot);
    TRY(choose_lane(e, slot, scattered));
    void *const stream = stream_of(e, slot);
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, e->incoming.table.at + at,
                                 e->incoming.pinned.at + at, slot->count * sizeof(uint8_t *),
                                 stream));
    if (e->ranges[slot->ranges.end - 1].end > e->pending->bundle->whole_chunk_count)
        XCI_DEVICE(context, "order two streams",
                   device->ops->stream_after(device->handle, stream, e->gathered));
    if (scattered)
        TRY(gather_scattered(e, stream));
    if (e->launched >= XCI_ENCODE_SLOTS) /* what the slot holds may still be copied */
        XCI_DEVICE(context, "order two streams",
                   device->ops->stream_after(device->handle, stream, slot->kept));
    TRY(slot->has_gap ? start_gap(e, slot, &call) : start_blocks(e, slot, &call));
    if (scattered)
        XCI_DEVICE(context, "mark a stream",
                   device->ops->event_record(device->handle, e->joined_read[e->turn], stream));
    TRY(xci_stream_follow(context, e->sizes, stream, e->computed));
    TRY(fetch_results(e, slot));
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
    if (scattered)
        e->turn = (e->turn + 1) % XCI_JOIN_TURNS;
    e->launched++;
    return status;
}
