/* Slots of a device's encoder: see device_slot.h. */
#include "publish/device_slot.h"

#include "base/bytes.h"

typedef struct table_offsets {
    uint64_t used, moves, settling, blocks;
} table_offsets;

static table_offsets offsets_for(uint64_t chunks) {
    table_offsets at;
    at.used = xci_round_up(chunks * sizeof(xci_cuda_result), 64);
    at.moves = at.used + 64;
    at.settling = at.moves + xci_round_up(chunks * sizeof(xci_cuda_move), 64);
    at.blocks = at.settling + xci_round_up(chunks * sizeof(xci_cuda_move), 64);
    return at;
}

static uint64_t device_bytes(uint64_t chunks) {
    return offsets_for(chunks).settling;
}
static uint64_t host_bytes(uint64_t chunks) {
    return offsets_for(chunks).blocks + chunks * sizeof(xci_cuda_block);
}

xci_slot_tables xci_slot_host(const xci_encode_slot *slot) {
    const table_offsets at = offsets_for(slot->most_chunks);
    uint8_t *base = slot->pinned.at;
    return (xci_slot_tables){(xci_cuda_result *)(void *)base, (uint64_t *)(void *)(base + at.used),
                             (xci_cuda_move *)(void *)(base + at.moves),
                             (xci_cuda_move *)(void *)(base + at.settling),
                             (xci_cuda_block *)(void *)(base + at.blocks)};
}

xci_slot_tables xci_slot_device(const xci_encode_slot *slot) {
    const table_offsets at = offsets_for(slot->most_chunks);
    uint8_t *base = slot->tables.at;
    return (xci_slot_tables){.results = (xci_cuda_result *)(void *)base,
                             .used = (uint64_t *)(void *)(base + at.used),
                             .moves = (xci_cuda_move *)(void *)(base + at.moves)};
}

const xci_cuda_result *xci_slot_results(const xci_encode_slot *slot) {
    return slot->has_gap ? xci_device_gap_host(&slot->gap).results : xci_slot_host(slot).results;
}

uint64_t xci_slot_results_bytes(const xci_encode_slot *slot) {
    return offsets_for(slot->most_chunks).moves;
}

static xorcast_status open_gap(xci_encode_slot *slot, xorcast_context *context,
                               const xci_slot_room *room) {
    xci_gap_room gap = {room->most_chunks, room->gap_groups, room->capacity, slot->output.at};
    if (room->gap_groups == 0)
        return XORCAST_OK;
    TRY(xci_device_gap_open(&slot->gap, context, &gap));
    if (room->beside_capacity == 0)
        return XORCAST_OK;
    TRY(xci_device_allocate(context, room->beside_capacity + 64, &slot->beside_output));
    gap.output = slot->beside_output.at;
    gap.capacity = room->beside_capacity;
    TRY(xci_device_gap_open(&slot->beside, context, &gap));
    return xci_pinned_allocate(context, room->beside_capacity, &slot->beside_payload);
}

xorcast_status xci_slot_open(xci_encode_slot *slot, xorcast_context *context,
                             const xci_slot_room *room) {
    const xci_device *device = context->shared->device;
    const uint64_t chunks = room->most_chunks;
    slot->most_chunks = chunks;
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->encoded));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->drained));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->kept));
    TRY(xci_device_allocate(context, room->capacity + 64, &slot->output));
    TRY(xci_device_allocate(context, device_bytes(chunks), &slot->tables));
    TRY(xci_pinned_allocate(context, host_bytes(chunks), &slot->pinned));
    TRY(open_gap(slot, context, room));
    return xci_pinned_allocate(context, room->capacity + 64, &slot->payload);
}

void xci_slot_close(xci_encode_slot *slot, xorcast_context *context) {
    xci_event_close(context, &slot->encoded);
    xci_event_close(context, &slot->drained);
    xci_event_close(context, &slot->kept);
    xci_device_release(context, &slot->output);
    xci_device_release(context, &slot->tables);
    xci_pinned_release(context, &slot->pinned);
    xci_device_gap_close(&slot->gap, context);
    xci_device_gap_close(&slot->beside, context);
    xci_device_release(context, &slot->beside_output);
    xci_pinned_release(context, &slot->beside_payload);
    xci_pinned_release(context, &slot->payload);
}
