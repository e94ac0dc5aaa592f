/* What the device has encoded: see device_receive.h. */
#include "publish/device_receive.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "publish/device_pieces.h"
#include "publish/device_settle.h"

/* How many chunks of a piece have blocks that fitted. */
static uint64_t fitting_chunks(const xci_device_encoder *e, const xci_encode_slot *slot) {
    const xci_slot_tables on = xci_slot_host(slot);
    uint64_t used = 0, fits = 0;
    while (fits < slot->count && used + on.results[fits].block_bytes <= e->capacity)
        used += on.results[fits++].block_bytes;
    return fits;
}

/* The blocks did not fit: the piece is cut, by the sizes that are known now. Ranges that fit are
 * booked; the others come again, from weights that have not moved. In the gap codec all come again,
 * as nothing of it is there. */
static xorcast_status cut(xci_device_encoder *e, xci_encode_slot *slot) {
    const xci_slot_tables on = xci_slot_host(slot);
    const uint64_t fits = fitting_chunks(e, slot), end = slot->ranges.end;
    uint64_t from = slot->ranges.first;
    while (!slot->gap.here && from < end &&
           xci_range_end(e, &e->ranges[from]) - slot->first <= fits)
        from++;
    slot->used = 0;
    const uint64_t booked =
        from > slot->ranges.first ? xci_range_end(e, &e->ranges[from - 1]) - slot->first : 0;
    for (uint64_t i = 0; i < booked; i++)
        slot->used += on.results[i].block_bytes;
    slot->ranges.end = from;
    e->piece_chunks = xci_max(1, xci_min(fits - fits / 8, slot->count / 2));
    xci_pieces_push(e, (xci_range_span){from, end});
    return e->moves ? xci_device_settle(e, slot, from, end, NULL) : XORCAST_OK;
}

xorcast_status xci_device_wait(const xci_device_encoder *e, void *event, const char *what) {
    const xci_device *device = e->context->shared->device;
    const uint64_t begun = xci_now_ns();
    XCI_DEVICE(e->context, what, device->ops->event_wait(device->handle, event));
    e->pending->sums[0].encode_ns += (xci_now_ns() - begun) * xci_context_threads(e->context);
    return XORCAST_OK;
}

/* Whether what the device has encoded in the gap codec is all there; else the host writes it. */
static bool gap_fits(const xci_device_encoder *e, xci_encode_slot *slot) {
    slot->gap.used = *xci_device_gap_host(&slot->gap).used;
    slot->beside.used =
        xci_device_encoding(e)->old_weights != 0 ? *xci_device_gap_host(&slot->beside).used : 0;
    return slot->gap.used <= slot->gap.capacity && slot->beside.used <= slot->beside.capacity;
}

static xorcast_status receive_gap(xci_device_encoder *e, const xci_encode_slot *slot) {
    const xci_device *device = e->context->shared->device;
    XCI_DEVICE(e->context, "copy payloads",
               device->ops->copy(device->handle, slot->payload.at, slot->gap.output.at,
                                 slot->gap.used, e->drain));
    if (slot->beside.used > 0)
        XCI_DEVICE(e->context, "copy payloads",
                   device->ops->copy(device->handle, slot->beside_payload.at,
                                     slot->beside.output.at, slot->beside.used, e->drain));
    return XORCAST_OK;
}

/* The next pieces have as many chunks as would have fitted of one like this, with some room to
 * spare; one piece at most doubles or halves what is expected. What was cut stays cut. */
static void expect(xci_device_encoder *e, const xci_encode_slot *slot) {
    const uint64_t room = e->capacity - e->capacity / 8, before = e->piece_chunks;
    const uint64_t fits = slot->count * room / xci_max(1, slot->used);
    const uint64_t most = e->span_count > 1 ? before : xci_max(before, 2 * slot->count);
    const uint64_t least = xci_max(1, before / 2);
    e->piece_chunks = xci_min(e->most_chunks, xci_max(least, xci_min(fits, most)));
}

xorcast_status xci_device_receive(xci_device_encoder *e) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    xci_encode_slot *slot = &e->slots[e->received++ % XCI_ENCODE_SLOTS];
    TRY(xci_device_wait(e, slot->encoded, "encode weights"));
    slot->used = *xci_slot_host(slot).used;
    if (slot->used > e->capacity) {
        TRY(cut(e, slot));
        slot->gap.here = false;
    } else {
        expect(e, slot);
    }
    slot->gap.here = slot->gap.here && slot->used > 0 && gap_fits(e, slot);
    if (slot->gap.here)
        TRY(receive_gap(e, slot));
    else if (slot->used > 0)
        XCI_DEVICE(context, "copy blocks",
                   device->ops->copy(device->handle, slot->payload.at, slot->output.at, slot->used,
                                     e->drain));
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, slot->drained, e->drain));
    return XORCAST_OK;
}

xorcast_status xci_device_receive_ready(xci_device_encoder *e) {
    const xci_device *device = e->context->shared->device;
    while (e->received < e->launched) {
        bool here = false;
        XCI_DEVICE(e->context, "encode weights",
                   device->ops->event_done(
                       device->handle, e->slots[e->received % XCI_ENCODE_SLOTS].encoded, &here));
        if (!here)
            break;
        TRY(xci_device_receive(e));
    }
    return XORCAST_OK;
}
