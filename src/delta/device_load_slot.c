/* A slot's memory: see device_load_slot.h. */
#include "delta/device_load_slot.h"

#include "base/bytes.h"
#include "delta/device_load_gap.h"
#include "delta/device_load_record.h"

/* Of a batch, unless a group needs more or the bundle less. What is applied at once is rare, and
 * takes device memory that is not kept: an eighth will do. */
#define SLOT_PAYLOAD (UINT64_C(24) << 20)
#define SLOT_BLOCKS UINT64_C(131072)
#define FLAG_BYTES UINT64_C(64)
#define MOVE_BYTES (XCI_LOAD_RECORDS * sizeof(xci_cuda_move))

/* ---- Parts ---- */

uint64_t xci_load_payload_room(const xorcast_bundle *bundle) {
    return xci_min(SLOT_PAYLOAD, bundle->layout.chunk_count * xci_load_block_room(bundle));
}

static uint64_t table_bytes(uint64_t blocks) {
    return xci_round_up(blocks * sizeof(xci_cuda_block), 64);
}

static uint64_t result_bytes(uint64_t blocks) {
    return xci_round_up(blocks * sizeof(xci_cuda_result), 64);
}

xci_cuda_result *xci_load_results(const xci_load_slot *slot) {
    return (xci_cuda_result *)(void *)(slot->pinned.at + slot->payload_room +
                                       table_bytes(slot->block_room));
}

xci_cuda_move *xci_load_moves(const xci_load_slot *slot) {
    return (xci_cuda_move *)(void *)((uint8_t *)xci_load_results(slot) +
                                     result_bytes(slot->block_room) + FLAG_BYTES);
}

uint32_t *xci_load_any_bad(const xci_load_slot *slot) {
    return (uint32_t *)(void *)((uint8_t *)xci_load_results(slot) + result_bytes(slot->block_room));
}

uint8_t *xci_load_payload_on_device(const xci_load_slot *slot) {
    return slot->device.at + table_bytes(slot->block_room);
}

/* ---- Opening and closing ---- */

xorcast_status xci_load_slot_reserve(xci_device_loader *loader, xci_load_slot *slot,
                                     uint64_t payload, uint64_t blocks) {
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
static xorcast_status open_stream(xci_device_loader *loader, unsigned index) {
    const xci_device *device = loader->context->shared->device;
    xci_load_slot *slot = &loader->slots[index];
    slot->stream = loader->stream;
    if (loader->mode != XCI_LOAD_KEEP || loader->engine.able || index == XCI_LOAD_SLOTS)
        return XORCAST_OK;
    slot->stream = NULL;
    return xci_device_result(
        loader->context, device->ops->stream_open(device->handle, &slot->stream), "make a stream");
}

xorcast_status xci_load_slot_open(xci_device_loader *loader, unsigned index) {
    xorcast_context *context = loader->context;
    const xci_device *device = context->shared->device;
    const xorcast_bundle *bundle = loader->bundle;
    const uint64_t share = loader->mode == XCI_LOAD_KEEP ? 1 : 8;
    const uint64_t blocks = xci_min(SLOT_BLOCKS / share, bundle->layout.chunk_count);
    xci_load_slot *slot = &loader->slots[index];
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->copied));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->event));
    TRY(open_stream(loader, index));
    if (index == XCI_LOAD_SLOTS) /* rarely needed */
        return XORCAST_OK;
    return xci_load_slot_reserve(loader, slot, xci_load_payload_room(bundle) / share,
                                 xci_max(blocks, bundle->group_chunks_max));
}

void xci_load_slot_close(xci_device_loader *loader, xci_load_slot *slot) {
    xorcast_context *context = loader->context;
    xci_event_close(context, &slot->copied);
    xci_event_close(context, &slot->event);
    xci_engine_batch_close(&loader->engine, &slot->engine);
    xci_pinned_release(context, &slot->pinned);
    xci_device_release(context, &slot->device);
    xci_device_release(context, &slot->own);
    xci_load_gap_release(context, slot);
}
