/* Encoding on a device: see device_encode.h. */
#include "publish/device_encode.h"

#include "base/bytes.h"
#include "publish/device_encode_state.h"
#include "publish/device_launch.h"
#include "publish/device_pieces.h"
#include "publish/device_receive.h"
#include "publish/device_settle.h"

#define OUTPUT_BYTES (UINT64_C(40) << 20) /* of a piece's blocks, unless a group needs more */
#define PIECE_CHUNKS UINT64_C(65536)      /* two milliseconds; fewer cost encode a tenth */
/* In the gap codec, of a piece at most: two rounds of thread blocks, each with 28 KB of scratch. */
#define GAP_GROUPS UINT64_C(1056)

/* For the lists of a chunk, on average, at least: one changed word in 154. They have what scratch
 * encode takes beyond that, too; pieces that need more are shorter. */
#define LIST_BYTES UINT64_C(640)

static atomic_uint_fast64_t output_limit = OUTPUT_BYTES;

void xci_device_encoder_limit(uint64_t bytes) {
    atomic_store(&output_limit, bytes != 0 ? bytes : OUTPUT_BYTES);
}

/* ---- Opening and closing ---- */

static xorcast_status open_slots(xci_device_encoder *e) {
    const bool beside = e->encodes_gap && xci_device_encoding(e)->old_weights != 0;
    const xci_slot_room room = {
        .most_chunks = e->most_chunks,
        .capacity = e->capacity,
        .gap_groups = e->encodes_gap ? e->gap_groups : 0,
        /* This form is the shorter one, as a rule. */
        .beside_capacity =
            beside ? xci_max(e->pending->bundle->group_size_max, e->capacity / 2) : 0};
    for (unsigned i = 0; i < XCI_ENCODE_SLOTS; i++)
        TRY(xci_slot_open(&e->slots[i], e->context, &room));
    return XORCAST_OK;
}

/* Both streams' scratch, with the least room for lists. */
static uint64_t gap_scratch(const xci_device_encoder *e) {
    const uint64_t chunk_bytes = e->pending->bundle->layout.chunk_bytes;
    const uint64_t fixed = e->context->shared->device->ops->gap_scratch(
        e->most_chunks, e->gap_groups, (uint32_t)chunk_bytes);
    return XCI_ENCODE_LANES * xci_round_up(fixed + e->most_chunks * LIST_BYTES, 256);
}

static xorcast_status open_parts(xci_device_encoder *e) {
    xorcast_context *context = e->context;
    xorcast_bundle *bundle = e->pending->bundle;
    const xci_device *device = context->shared->device;
    void *memory;
    const uint64_t chunk_bytes = bundle->layout.chunk_bytes;
    const uint64_t all = bundle->layout.chunk_count << bundle->chunk_log2;
    e->capacity = xci_max(bundle->group_size_max, xci_min(atomic_load(&output_limit), all));
    e->most_chunks =
        xci_max(bundle->group_chunks_max, xci_min(PIECE_CHUNKS, bundle->layout.chunk_count));
    e->piece_chunks = e->most_chunks;
    uint64_t scratch =
        xci_max(device->ops->encode_scratch(device->handle, e->most_chunks, (uint32_t)chunk_bytes),
                xci_settle_bytes(e));
    e->encodes_gap = xci_device_encoding(e)->codec >= XORCAST_CODEC_GAP &&
                     e->pending->bound == NULL && device->ops->gap_encode != NULL;
    /* Groups are at least so large, but for the last of whole chunks and the last of all. */
    e->gap_groups = xci_min(
        GAP_GROUPS, (e->most_chunks << bundle->chunk_log2) / bundle->layout.group_bytes + 2);
    if (e->encodes_gap)
        scratch = xci_max(scratch, gap_scratch(e));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->compute));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->second));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->sizes));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->drain));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->keep));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->join_stream));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->event));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->computed));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->settled));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->gathered));
    for (uint32_t turn = 0; turn < XCI_JOIN_TURNS; turn++)
        XCI_DEVICE(context, "make an event",
                   device->ops->event_open(device->handle, &e->joined_read[turn]));
    TRY(xci_device_incoming_open(&e->incoming, bundle, e->share, e->shadow));
    TRY(xci_device_join_open(&e->join, bundle, e->share));
    TRY(xci_device_allocate(context, scratch, &e->scratch));
    if (e->encodes_gap)
        e->list_bytes = (scratch - gap_scratch(e)) / XCI_ENCODE_LANES + e->most_chunks * LIST_BYTES;
    TRY(xci_allocate_array(context, xci_max(1, bundle->layout.group_count), sizeof *e->notes,
                           &memory));
    e->notes = memory;
    TRY(xci_allocate_array(context, e->gap_groups + 1, sizeof *e->gap_first, &memory));
    e->gap_first = memory;
    return open_slots(e);
}

xorcast_status xci_device_encoder_open(xci_pending *pending, uint32_t share,
                                       const xci_device_encoder *const *siblings,
                                       xci_device_encoder **encoder_out) {
    xorcast_context *context = pending->bundle->shares[share]->context;
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_device_encoder), &memory));
    xci_device_encoder *e = memory;
    e->context = context;
    e->pending = pending;
    e->shadow = xci_shadow_device(pending->shadow);
    e->share = share;
    e->siblings = siblings;
    /* What is encoded beside the old weights needs them when it is booked. */
    e->moves = xci_device_shadow_on_device(e->shadow) && xci_device_encoding(e)->old_weights == 0;
    const xorcast_status status = open_parts(e);
    if (status < 0) {
        xci_device_encoder_close(e);
        return status;
    }
    *encoder_out = e;
    return XORCAST_OK;
}

void xci_device_encoder_close(xci_device_encoder *e) {
    if (e == NULL)
        return;
    xorcast_context *context = e->context;
    xci_stream_close(context, &e->compute);
    xci_stream_close(context, &e->second);
    xci_stream_close(context, &e->sizes);
    xci_stream_close(context, &e->drain);
    xci_stream_close(context, &e->keep);
    xci_stream_close(context, &e->join_stream);
    xci_event_close(context, &e->event);
    xci_event_close(context, &e->computed);
    xci_event_close(context, &e->settled);
    xci_event_close(context, &e->gathered);
    for (uint32_t turn = 0; turn < XCI_JOIN_TURNS; turn++)
        xci_event_close(context, &e->joined_read[turn]);
    for (unsigned i = 0; i < XCI_ENCODE_SLOTS; i++)
        xci_slot_close(&e->slots[i], context);
    xci_device_incoming_close(&e->incoming);
    xci_device_release(context, &e->scratch);
    xci_device_join_close(&e->join);
    xci_release(context, e->notes);
    xci_release(context, e->gap_first);
    xci_release(context, e);
}

void xci_device_encoder_begin(xci_device_encoder *e, xci_device_side *side) {
    e->side = side;
}

uint64_t xci_device_encoder_room(const xci_device_encoder *e) {
    return e->capacity;
}

xorcast_status xci_device_encoder_take(xci_device_encoder *e, uint64_t tensor, const void *data,
                                       bool kept) {
    return xci_device_incoming_take(&e->incoming, tensor, data, kept);
}

xorcast_status xci_device_encoder_take_all(xci_device_encoder *e) {
    return xci_device_incoming_take_all(&e->incoming);
}

/* ---- The pieces of a put ---- */

bool xci_device_encoder_busy(const xci_device_encoder *e) {
    return e->span_count > 0 || e->booked < e->launched;
}

xorcast_status xci_device_encoder_launch(xci_device_encoder *e) {
    while (e->span_count > 0 && e->launched < e->booked + XCI_ENCODE_SLOTS)
        TRY(xci_device_launch(e));
    return xci_device_receive_ready(e);
}

xorcast_status xci_device_encoder_await(xci_device_encoder *e) {
    if (e->received == e->booked)
        TRY(xci_device_receive(e));
    return xci_device_receive_ready(e);
}

/* The put is over: nothing is read any more, and the shadow has moved. */
static xorcast_status come_to_rest(const xci_device_encoder *e) {
    const xci_device *device = e->context->shared->device;
    const int computed = device->ops->stream_wait(device->handle, e->compute);
    const int beside = device->ops->stream_wait(device->handle, e->second);
    const int sized = device->ops->stream_wait(device->handle, e->sizes);
    const int drained = device->ops->stream_wait(device->handle, e->drain);
    const int kept = device->ops->stream_wait(device->handle, e->keep);
    const int joined = device->ops->stream_wait(device->handle, e->join_stream);
    if (computed != 0 || beside != 0 || sized != 0 || joined != 0)
        xci_device_shadow_lose(e->shadow);
    XCI_DEVICE(e->context, "encode weights", computed);
    XCI_DEVICE(e->context, "encode weights", beside);
    XCI_DEVICE(e->context, "copy results", sized);
    XCI_DEVICE(e->context, "copy blocks", drained);
    XCI_DEVICE(e->context, "join weights", joined);
    return xci_device_result(e->context, kept, "align blocks");
}

static xorcast_status take_slot_back(xci_device_encoder *e, xci_encode_slot *slot) {
    const xci_device *device = e->context->shared->device;
    if (slot->has_gap) {
        TRY(xci_device_gap_fetch_now(&slot->gap, e->context, slot->payload.at));
        return xci_device_take_back(e, slot, NULL);
    }
    XCI_DEVICE(e->context, "copy results",
               device->ops->copy_now(device->handle, slot->pinned.at, slot->tables.at,
                                     xci_slot_results_bytes(slot)));
    return xci_device_settle(e, slot, slot->ranges.first, slot->ranges.end, NULL);
}

/* The put failed and all is at rest: pieces that were encoded and not booked go back. */
static xorcast_status take_back(xci_device_encoder *e) {
    for (unsigned i = 0; i < XCI_ENCODE_SLOTS; i++) {
        xci_encode_slot *slot = &e->slots[i];
        if (!slot->moved)
            continue;
        const xorcast_status status = take_slot_back(e, slot);
        if (status < 0) {
            xci_device_shadow_lose(e->shadow);
            return status;
        }
        slot->moved = false;
    }
    return come_to_rest(e);
}

xorcast_status xci_device_encoder_rest(xci_device_encoder *e, bool failed) {
    const xorcast_status rested = come_to_rest(e);
    for (uint32_t turn = 0; turn < XCI_JOIN_TURNS; turn++)
        xci_device_unplace(e, turn);
    if (failed)
        (void)take_back(e);
    return rested;
}

/* Waits for the caller's work; small tensors are copied beside the first pieces, which have none of
 * them: those stand last. */
static xorcast_status begin_pieces(xci_device_encoder *e, void *ready, bool all) {
    const xci_device *device = e->context->shared->device;
    XCI_DEVICE(e->context, "order two streams",
               device->ops->stream_after(device->handle, e->compute, ready));
    if (e->context != e->pending->bundle->context)
        TRY(xci_stream_follow(e->context, e->compute, NULL, e->event));
    XCI_DEVICE(e->context, "mark a stream",
               device->ops->event_record(device->handle, e->event, e->compute));
    XCI_DEVICE(e->context, "order two streams",
               device->ops->stream_after(device->handle, e->drain, e->event));
    XCI_DEVICE(e->context, "order two streams",
               device->ops->stream_after(device->handle, e->second, e->event));
    XCI_DEVICE(e->context, "order two streams",
               device->ops->stream_after(device->handle, e->join_stream, e->event));
    e->apart = true;
    TRY(xci_device_incoming_gather(&e->incoming, all, e->drain));
    XCI_DEVICE(e->context, "mark a stream",
               device->ops->event_record(device->handle, e->gathered, e->drain));
    return xci_device_result(e->context,
                             device->ops->event_record(device->handle, e->settled, e->compute),
                             "mark a stream");
}

xorcast_status xci_device_encoder_start(xci_device_encoder *e, void *ready,
                                        const xci_put_range *ranges, uint64_t first, uint64_t end,
                                        bool all) {
    e->ranges = ranges;
    e->span_count = 0;
    e->launched = e->received = e->booked = 0;
    e->host_range = UINT64_MAX;
    xci_pieces_push(e, (xci_range_span){first, end});
    return begin_pieces(e, ready, all);
}
