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
 * booked; the others come again, from weights that have not moved. */
static xorcast_status cut(xci_device_encoder *e, xci_encode_slot *slot) {
    const xci_slot_tables on = xci_slot_host(slot);
    const uint64_t fits = fitting_chunks(e, slot), end = slot->ranges.end;
    uint64_t from = slot->ranges.first;
    while (from < end && xci_range_end(e, &e->ranges[from]) - slot->first <= fits)
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

/* The next pieces have as many chunks as would have fitted of one like this, with some room to
 * spare; one piece at most doubles or halves what is expected. What was cut stays cut. */
static void expect(xci_device_encoder *e, const xci_encode_slot *slot, uint64_t used,
                   uint64_t capacity) {
    const uint64_t room = capacity - capacity / 8, before = e->piece_chunks;
    const uint64_t fits = slot->count * room / xci_max(1, used);
    const uint64_t most = e->span_count > 1 ? before : xci_max(before, 2 * slot->count);
    const uint64_t least = xci_max(1, before / 2);
    e->piece_chunks = xci_min(e->most_chunks, xci_max(least, xci_min(fits, most)));
}

static xorcast_status receive_blocks(xci_device_encoder *e, xci_encode_slot *slot) {
    const xci_device *device = e->context->shared->device;
    slot->used = *xci_slot_host(slot).used;
    if (slot->used > e->capacity)
        TRY(cut(e, slot));
    else
        expect(e, slot, slot->used, e->capacity);
    if (slot->used == 0)
        return XORCAST_OK;
    return xci_device_result(
        e->context,
        device->ops->copy(device->handle, slot->payload.at, slot->output.at, slot->used, e->drain),
        "copy blocks");
}

/* ---- Groups that the device has written ---- */

/* How many groups were written, in each form that is wanted. */
static uint64_t written_groups(const xci_encode_slot *slot, bool beside) {
    const uint64_t count = slot->ranges.end - slot->ranges.first;
    uint64_t written = 0;
    while (written < count && xci_device_gap_holds(&slot->gap, written) &&
           (!beside || xci_device_gap_holds(&slot->beside, written)))
        written++;
    return written;
}

/* Groups that were not written come again: their weights have not moved. One alone is too large for
 * the scratch, beside the old weights; then the host writes it. */
static void cut_groups(xci_device_encoder *e, xci_encode_slot *slot, uint64_t written) {
    const xci_range_span rest = {slot->ranges.first + written, slot->ranges.end};
    if (written == 0 && rest.end - rest.first == 1)
        e->host_range = rest.first;
    slot->ranges.end = rest.first;
    e->piece_chunks = xci_max(1, slot->count / 2);
    xci_pieces_push(e, rest);
}

static xorcast_status receive_payloads(xci_device_encoder *e, const xci_encode_slot *slot,
                                       uint64_t beside_used) {
    const xci_device *device = e->context->shared->device;
    if (slot->used > 0)
        XCI_DEVICE(e->context, "copy payloads",
                   device->ops->copy(device->handle, slot->payload.at, slot->output.at, slot->used,
                                     e->drain));
    if (beside_used > 0)
        XCI_DEVICE(e->context, "copy payloads",
                   device->ops->copy(device->handle, slot->beside_payload.at,
                                     slot->beside_output.at, beside_used, e->drain));
    return XORCAST_OK;
}

/* By what is scarcest: room for payloads, or for lists, without which encoding takes twice as
 * long. */
static void expect_groups(xci_device_encoder *e, const xci_encode_slot *slot, bool beside) {
    const xci_device_gap *last = beside ? &slot->beside : &slot->gap;
    const xci_cuda_gap_used *used = xci_device_gap_host(last).used;
    const uint64_t bytes = xci_max(slot->used, beside ? used->bytes * 2 : 0);
    if (used->list_bytes / 64 * e->capacity > bytes * (e->list_bytes / 64))
        expect(e, slot, used->list_bytes, e->list_bytes);
    else
        expect(e, slot, bytes, e->capacity);
}

static xorcast_status receive_groups(xci_device_encoder *e, xci_encode_slot *slot) {
    const bool beside = xci_device_encoding(e)->old_weights != 0;
    const uint64_t written = written_groups(slot, beside);
    slot->used = xci_device_gap_end(&slot->gap, written);
    if (written < slot->ranges.end - slot->ranges.first)
        cut_groups(e, slot, written);
    else
        expect_groups(e, slot, beside);
    return receive_payloads(e, slot, beside ? xci_device_gap_end(&slot->beside, written) : 0);
}

xorcast_status xci_device_receive(xci_device_encoder *e) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    xci_encode_slot *slot = &e->slots[e->received++ % XCI_ENCODE_SLOTS];
    TRY(xci_device_wait(e, slot->encoded, "encode weights"));
    TRY(slot->has_gap ? receive_groups(e, slot) : receive_blocks(e, slot));
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
