/* Groups that a device encodes in the gap codec: see device_gap.h. */
#include "publish/device_gap.h"

#include <string.h>

#include "base/bytes.h"
#include "delta/choice.h"

/* Where the tables lie, on both sides. */
static uint64_t groups_at(const xci_gap_room *room) {
    return xci_round_up(room->chunks * sizeof(xci_cuda_result), 64);
}
static uint64_t used_at(const xci_gap_room *room) {
    return groups_at(room) + xci_round_up(room->groups * sizeof(xci_cuda_gap_group), 64);
}
static uint64_t first_at(const xci_gap_room *room) {
    return used_at(room) + 64;
}
static uint64_t tables_bytes(const xci_gap_room *room) {
    return first_at(room) + (room->groups + 1) * sizeof(uint64_t);
}

static xci_device_gap_tables tables_in(const xci_device_gap *gap, uint8_t *at) {
    const xci_gap_room *room = &gap->room;
    return (xci_device_gap_tables){(xci_cuda_result *)(void *)at,
                                   (xci_cuda_gap_group *)(void *)(at + groups_at(room)),
                                   (xci_cuda_gap_used *)(void *)(at + used_at(room)),
                                   (uint64_t *)(void *)(at + first_at(room))};
}

xci_device_gap_tables xci_device_gap_host(const xci_device_gap *gap) {
    return tables_in(gap, gap->pinned.at);
}

xorcast_status xci_device_gap_open(xci_device_gap *gap, xorcast_context *context,
                                   const xci_gap_room *room) {
    gap->room = *room;
    TRY(xci_device_allocate(context, tables_bytes(room), &gap->tables));
    return xci_pinned_allocate(context, tables_bytes(room), &gap->pinned);
}

void xci_device_gap_close(xci_device_gap *gap, xorcast_context *context) {
    xci_device_release(context, &gap->tables);
    xci_pinned_release(context, &gap->pinned);
}

static xci_cuda_gap_encode_call call_of(const xci_device_gap *gap, const xci_gap_piece *piece) {
    const xci_cuda_encode_call *call = piece->call;
    const xci_device_gap_tables on = tables_in(gap, gap->tables.at);
    return (xci_cuda_gap_encode_call){.grid = call->grid,
                                      .old_at = call->old_at,
                                      .new_at = call->new_at,
                                      .group_first = on.group_first,
                                      .first = call->first,
                                      .count = call->count,
                                      .group_count = piece->group_count,
                                      .blocks = gap->room.output,
                                      .capacity = gap->room.capacity,
                                      .results = on.results,
                                      .groups = on.groups,
                                      .used = on.used,
                                      .scratch = call->scratch,
                                      .scratch_bytes = call->scratch_bytes};
}

/* Of gap alone, or what `auto` minimises. */
static xci_cuda_prices prices_of(const xorcast_encoding *encoding, bool beside) {
    xci_cuda_prices prices = {0};
    if (encoding->codec != XORCAST_CODEC_AUTO)
        return prices;
    const xci_prices all = xci_prices_of(encoding);
    prices.wire = all.wire;
    memcpy(prices.weights, all.weights, sizeof prices.weights);
    if (beside)
        prices.weights[XORCAST_CODEC_GAP] = all.old_weights;
    return prices;
}

xorcast_status xci_device_gap_start(xci_device_gap *gap, xorcast_context *context,
                                    const xci_device_gap *plain, const xci_gap_piece *piece,
                                    void *stream) {
    const xci_device *device = context->shared->device;
    const xci_device_gap_tables on = tables_in(gap, gap->tables.at),
                                host = xci_device_gap_host(gap);
    const uint64_t first_bytes = (piece->group_count + 1) * sizeof *piece->group_first;
    xci_cuda_gap_encode_call encode = call_of(gap, piece);
    encode.beside = encode.listed = plain != NULL;
    encode.prices = prices_of(piece->encoding, plain != NULL);
    memcpy(host.group_first, piece->group_first, first_bytes);
    XCI_DEVICE(
        context, "copy a table",
        device->ops->copy(device->handle, on.group_first, host.group_first, first_bytes, stream));
    if (plain != NULL)
        XCI_DEVICE(context, "copy results",
                   device->ops->copy(device->handle, on.results,
                                     tables_in(plain, plain->tables.at).results,
                                     encode.count * sizeof *on.results, stream));
    XCI_DEVICE(context, "encode weights", device->ops->gap_encode(device->handle, &encode, stream));
    return XORCAST_OK;
}

xorcast_status xci_device_gap_move(const xci_device_gap *gap, xorcast_context *context,
                                   const xci_device_gap *beside, const xci_gap_piece *piece,
                                   void *stream) {
    const xci_device *device = context->shared->device;
    xci_cuda_gap_encode_call call = call_of(gap, piece);
    if (beside != NULL)
        call.other = tables_in(beside, beside->tables.at).results;
    return xci_device_result(context, device->ops->gap_move(device->handle, &call, stream),
                             "move the shadow");
}

xorcast_status xci_device_gap_fetch(const xci_device_gap *gap, xorcast_context *context,
                                    void *stream) {
    const xci_device *device = context->shared->device;
    return xci_device_result(context,
                             device->ops->copy(device->handle, gap->pinned.at, gap->tables.at,
                                               first_at(&gap->room), stream),
                             "copy results");
}

xorcast_status xci_device_gap_fetch_now(const xci_device_gap *gap, xorcast_context *context,
                                        uint8_t *payload) {
    const xci_device *device = context->shared->device;
    XCI_DEVICE(context, "copy results",
               device->ops->copy_now(device->handle, gap->pinned.at, gap->tables.at,
                                     first_at(&gap->room)));
    const uint64_t used = xci_min(xci_device_gap_host(gap).used->bytes, gap->room.capacity);
    return used == 0 ? XORCAST_OK
                     : xci_device_result(
                           context,
                           device->ops->copy_now(device->handle, payload, gap->room.output, used),
                           "copy payloads");
}

bool xci_device_gap_holds(const xci_device_gap *gap, uint64_t group) {
    const xci_device_gap_tables host = xci_device_gap_host(gap);
    return host.used->bytes != UINT64_MAX &&
           host.groups[group].offset + host.groups[group].bytes <= gap->room.capacity;
}

uint64_t xci_device_gap_end(const xci_device_gap *gap, uint64_t count) {
    const xci_cuda_gap_group *groups = xci_device_gap_host(gap).groups;
    return count > 0 ? groups[count - 1].offset + groups[count - 1].bytes : 0;
}

void xci_device_gap_take(const xci_device_gap *gap, uint64_t group, uint64_t first,
                         const uint8_t *payload, xci_record *record) {
    const xci_device_gap_tables host = xci_device_gap_host(gap);
    const xci_cuda_gap_group *of = &host.groups[group];
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_cuda_result *result = &host.results[first + record->blocks[i].chunk];
        record->blocks[i].codec = result->block_codec;
        record->blocks[i].bytes = result->block_bytes;
    }
    record->payload = payload + of->offset;
    record->raw_bytes = record->stored_bytes = of->bytes;
    record->params_bytes = of->params_bytes;
    record->lz4_bytes = of->lz4_bytes;
    record->encoded = true;
}
