/* Encoding on a device: see device_encode.h. */
#include "publish/device_encode.h"

#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/counts.h"
#include "base/digest.h"
#include "base/pool.h"
#include "publish/device_gap.h"
#include "publish/device_incoming.h"
#include "publish/device_join.h"
#include "publish/device_lists.h"
#include "publish/device_shadow.h"

#define OUTPUT_BYTES (UINT64_C(40) << 20) /* of a piece's blocks, unless a group needs more */
#define PIECE_CHUNKS UINT64_C(65536)      /* two milliseconds; fewer cost encode a tenth */
/* The last pieces halve down to this: what the host does with the very last one is waited for. */
#define LAST_CHUNKS UINT64_C(16384)
#define BLOCK_ALIGNMENT 16u               /* where apply wants blocks; encode packs them closely */
#define BLOCK_ROOM 32u /* of each chunk, beyond its block: what aligning blocks takes at most */
#define SPANS 64u      /* every cut at least halves a piece, of which three are under way */
#define SLOTS 3u
/* In the gap codec, of a piece at most: two rounds of thread blocks, each with 28 KB of scratch. */
#define GAP_GROUPS UINT64_C(1056)

static atomic_uint_fast64_t output_limit = OUTPUT_BYTES;

void xci_device_encoder_limit(uint64_t bytes) {
    atomic_store(&output_limit, bytes != 0 ? bytes : OUTPUT_BYTES);
}

/* Ranges of the put that are still to be encoded. */
typedef struct range_span {
    uint64_t first, end;
} range_span;

typedef struct encode_slot {
    xci_device_memory output;         /* blocks */
    xci_device_memory tables, pinned; /* results, sizes, moves, blocks */
    xci_device_memory payload;        /* blocks on the host */
    void *encoded, *drained, *kept;   /* events */
    range_span ranges;          /* to book; fewer than were encoded if not all blocks fitted */
    uint64_t first, count;      /* chunks that were encoded, by their local numbers */
    uint64_t used;              /* bytes of the blocks to book */
    uint64_t settled;           /* blocks that were listed to be applied */
    bool moved;                 /* the shadow by them, and not all of it is booked */
    xci_device_gap gap, beside; /* beside: the old weights, if that form is wanted too */
    xci_device_memory beside_payload; /* on the host */
} encode_slot;

/* What became of a range of the piece that is booked. */
typedef struct range_note {
    bool booked, behind; /* behind: chunks of it have not moved */
} range_note;

struct xci_device_encoder {
    xorcast_context *context;
    xci_pending *pending;
    xci_device_shadow *shadow;
    uint32_t share;                              /* of the bundle, whose chunks it encodes */
    const xci_device_encoder *const *siblings;   /* one for each share */
    void *compute, *sizes, *drain, *keep;        /* streams, */
    void *event, *computed, *settled, *gathered; /* and events between them */
    xci_device_incoming incoming;
    xci_device_memory scratch; /* of encode; of settling, which is on the same stream */
    xci_device_side *side;     /* where blocks stay until the next version, or NULL; not owned */
    bool moves;                /* encode moves the shadow */
    xci_device_join join;      /* a group's scattered chunks */
    encode_slot slots[SLOTS];
    uint64_t launched, received, booked; /* pieces of the put; piece i is in slot i % SLOTS */
    uint64_t capacity, most_chunks;      /* of a piece */
    uint64_t piece_chunks;               /* how many are expected to fit */
    const xci_put_range *ranges;         /* of the put */
    range_note *notes;                   /* one for each range of a piece */
    range_span spans[SPANS];
    uint32_t span_count;
    bool encodes_gap;        /* whole groups are encoded in the gap codec by the device, */
    uint64_t gap_groups;     /* so many at most in a piece, */
    uint64_t *gap_first;     /* their first chunks, and where the last one ends */
    xci_device_lists *lists; /* one for each worker, where the host writes from lists; or NULL */
    const encode_slot *booking; /* the piece whose ranges are booked now, or NULL */
};

/* ---- Tables of a slot ----
 * Results and sizes stand first and go to the host together. What is to be settled is listed on the
 * host only. */

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

typedef struct slot_tables {
    xci_cuda_result *results;
    uint64_t *used;
    xci_cuda_move *moves; /* of blocks, to where they stay */
    xci_cuda_move *settling;
    xci_cuda_block *blocks;
} slot_tables;

static slot_tables host_tables(const xci_device_encoder *e, const encode_slot *slot) {
    const table_offsets at = offsets_for(e->most_chunks);
    uint8_t *base = slot->pinned.at;
    return (slot_tables){(xci_cuda_result *)(void *)base, (uint64_t *)(void *)(base + at.used),
                         (xci_cuda_move *)(void *)(base + at.moves),
                         (xci_cuda_move *)(void *)(base + at.settling),
                         (xci_cuda_block *)(void *)(base + at.blocks)};
}

static slot_tables device_tables(const xci_device_encoder *e, const encode_slot *slot) {
    const table_offsets at = offsets_for(e->most_chunks);
    uint8_t *base = slot->tables.at;
    return (slot_tables){.results = (xci_cuda_result *)(void *)base,
                         .used = (uint64_t *)(void *)(base + at.used),
                         .moves = (xci_cuda_move *)(void *)(base + at.moves)};
}

/* Where settling has its tables and blocks: in the scratch, which is free between two encodes. */
typedef struct settle_place {
    xci_cuda_move *moves;
    xci_cuda_block *blocks;
    uint8_t *aligned;
} settle_place;

static uint64_t settle_bytes(const xci_device_encoder *e) {
    return e->most_chunks * (sizeof(xci_cuda_move) + sizeof(xci_cuda_block) + BLOCK_ALIGNMENT) +
           e->capacity + 256;
}

static settle_place place_to_settle(const xci_device_encoder *e) {
    uint8_t *at = e->scratch.at, *blocks = at + e->most_chunks * sizeof(xci_cuda_move);
    const uint64_t bytes = e->most_chunks * (sizeof(xci_cuda_move) + sizeof(xci_cuda_block));
    return (settle_place){(xci_cuda_move *)(void *)at, (xci_cuda_block *)(void *)blocks,
                          at + xci_round_up(bytes, 64)};
}

/* ---- Opening and closing ---- */

static const xorcast_encoding *encoding_of(const xci_device_encoder *e) {
    return &e->pending->workers[0].writer.encoding;
}

static xorcast_status open_slot(xci_device_encoder *e, encode_slot *slot) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->encoded));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->drained));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &slot->kept));
    TRY(xci_device_allocate(context, e->capacity + 64, &slot->output));
    TRY(xci_device_allocate(context, device_bytes(e->most_chunks), &slot->tables));
    TRY(xci_pinned_allocate(context, host_bytes(e->most_chunks), &slot->pinned));
    if (e->encodes_gap)
        TRY(xci_device_gap_open(&slot->gap, context, e->most_chunks, e->gap_groups, e->capacity));
    if (e->encodes_gap && encoding_of(e)->old_weights != 0) {
        /* This form is the shorter one, and both are a half of the LZ4 blocks, as a rule. */
        const uint64_t capacity = xci_max(e->pending->bundle->group_size_max, e->capacity / 2);
        TRY(xci_device_gap_open(&slot->beside, context, e->most_chunks, e->gap_groups, capacity));
        TRY(xci_pinned_allocate(context, capacity, &slot->beside_payload));
    }
    return xci_pinned_allocate(context, e->capacity + 64, &slot->payload);
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
                settle_bytes(e));
    e->encodes_gap = encoding_of(e)->codec == XORCAST_CODEC_GAP && e->pending->bound == NULL &&
                     device->ops->gap_encode != NULL;
    /* Groups are at least so large, but for the last of whole chunks and the last of all. */
    e->gap_groups = xci_min(
        GAP_GROUPS, (e->most_chunks << bundle->chunk_log2) / bundle->layout.group_bytes + 2);
    if (e->encodes_gap)
        scratch = xci_max(scratch, device->ops->gap_scratch(e->most_chunks, e->gap_groups,
                                                            (uint32_t)chunk_bytes));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->compute));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->sizes));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->drain));
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &e->keep));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->event));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->computed));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->settled));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &e->gathered));
    TRY(xci_device_incoming_open(&e->incoming, bundle, e->share, e->shadow));
    TRY(xci_device_join_open(&e->join, bundle, e->share));
    TRY(xci_device_allocate(context, scratch, &e->scratch));
    TRY(xci_allocate_array(context, xci_max(1, bundle->layout.group_count), sizeof *e->notes,
                           &memory));
    e->notes = memory;
    TRY(xci_allocate_array(context, e->gap_groups + 1, sizeof *e->gap_first, &memory));
    e->gap_first = memory;
    if (encoding_of(e)->codec > XORCAST_CODEC_LZ4) {
        TRY(xci_allocate_array(context, xci_context_threads(context), sizeof *e->lists, &memory));
        e->lists = memory;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        TRY(open_slot(e, &e->slots[i]));
    return XORCAST_OK;
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
    e->moves = xci_device_shadow_on_device(e->shadow) && encoding_of(e)->old_weights == 0;
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
    xci_stream_close(context, &e->sizes);
    xci_stream_close(context, &e->drain);
    xci_stream_close(context, &e->keep);
    xci_event_close(context, &e->event);
    xci_event_close(context, &e->computed);
    xci_event_close(context, &e->settled);
    xci_event_close(context, &e->gathered);
    for (unsigned i = 0; i < SLOTS; i++) {
        encode_slot *slot = &e->slots[i];
        xci_event_close(context, &slot->encoded);
        xci_event_close(context, &slot->drained);
        xci_event_close(context, &slot->kept);
        xci_device_release(context, &slot->output);
        xci_device_release(context, &slot->tables);
        xci_pinned_release(context, &slot->pinned);
        xci_device_gap_close(&slot->gap, context);
        xci_device_gap_close(&slot->beside, context);
        xci_pinned_release(context, &slot->beside_payload);
        xci_pinned_release(context, &slot->payload);
    }
    xci_device_incoming_close(&e->incoming);
    xci_device_release(context, &e->scratch);
    xci_device_join_close(&e->join);
    for (uint32_t i = 0; e->lists != NULL && i < xci_context_threads(context); i++)
        xci_device_lists_close(context, &e->lists[i]);
    xci_release(context, e->lists);
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

/* ---- Which piece is next ---- */

static void push_span(xci_device_encoder *e, range_span span) {
    if (span.first < span.end)
        e->spans[e->span_count++] = span;
}

/* Chunks have local numbers: a device has its own alone, one behind the other. Those of a range
 * follow each other. */
static uint64_t first_of(const xci_device_encoder *e, const xci_put_range *range) {
    return xci_local(e->pending->bundle, range->first);
}

static uint64_t end_of(const xci_device_encoder *e, const xci_put_range *range) {
    return first_of(e, range) + (range->end - range->first);
}

static uint8_t **place_of(const xci_device_encoder *e, uint64_t chunk) {
    return &e->incoming.at[xci_local(e->pending->bundle, chunk)];
}

static bool is_scattered(const xci_device_encoder *e, uint64_t chunk) {
    return *place_of(e, chunk) == NULL || xci_joined(e->pending->bundle, chunk);
}

static bool has_scattered(const xci_device_encoder *e, const xci_put_range *range) {
    for (uint64_t c = range->first; e->incoming.scattered && c < range->end; c++)
        if (is_scattered(e, c))
            return true;
    return false;
}

static bool is_whole(const xci_device_encoder *e, const xci_put_range *range) {
    const uint64_t *group = &e->pending->bundle->group_first[range->group];
    return range->first == group[0] && range->end == group[1];
}

/* How many chunks the next piece has at most, of a span whose ranges are there. */
static uint64_t piece_limit(const xci_device_encoder *e, const range_span *span) {
    const uint64_t left =
        end_of(e, &e->ranges[span->end - 1]) - first_of(e, &e->ranges[span->first]);
    return xci_min(e->piece_chunks, xci_max(LAST_CHUNKS, left / 2));
}

/* Whether `next` can be in one piece with the range before it: it follows that one on the device,
 * is of another group, which nobody else books then, and goes the same way in the gap codec. */
static bool goes_along(const xci_device_encoder *e, const xci_put_range *next) {
    return first_of(e, next) == end_of(e, next - 1) && next->group != next[-1].group &&
           (!e->encodes_gap || is_whole(e, next) == is_whole(e, next - 1));
}

/* Ranges that follow each other on the device, as many as are expected to fit; a group with
 * scattered chunks, for which there is one bounce buffer, goes alone. */
static range_span next_piece(xci_device_encoder *e) {
    range_span *span = &e->spans[e->span_count - 1];
    range_span piece = {span->first, span->first + 1};
    const uint64_t limit = piece_limit(e, span);
    const uint64_t first = first_of(e, &e->ranges[piece.first]);
    bool scattered = has_scattered(e, &e->ranges[piece.first]);
    while (piece.end < span->end && !scattered) {
        const xci_put_range *next = &e->ranges[piece.end];
        if (!goes_along(e, next) || end_of(e, next) - first > limit ||
            (e->encodes_gap && piece.end - piece.first == e->gap_groups))
            break;
        scattered = has_scattered(e, next);
        if (scattered)
            break;
        piece.end++;
    }
    span->first = piece.end;
    if (span->first == span->end)
        e->span_count--;
    return piece;
}

/* ---- To the device ---- */

/* Gives scattered chunks a place in the bounce buffer: those of a piece of one range. */
static xorcast_status place_scattered(xci_device_encoder *e, const encode_slot *slot,
                                      bool *any_out) {
    const xci_put_range *range = &e->ranges[slot->ranges.first];
    *any_out = has_scattered(e, range);
    for (uint64_t c = range->first; *any_out && c < range->end; c++) {
        if (!is_scattered(e, c))
            continue;
        TRY(xci_device_join_reserve(&e->join));
        *place_of(e, c) = xci_device_join_place(&e->join, range->first, c);
    }
    return XORCAST_OK;
}

/* The table is on its way: the host's entries mark what is scattered again. */
static void unplace_scattered(xci_device_encoder *e, const encode_slot *slot) {
    const xci_put_range *range = &e->ranges[slot->ranges.first];
    for (uint64_t c = range->first; c < range->end; c++)
        if (xci_device_join_has(&e->join, *place_of(e, c)))
            *place_of(e, c) = xci_device_incoming_small(&e->incoming, c);
}

/* Small tensors of other devices are copied on their drain streams. */
static void list_sources(const xci_device_encoder *e, bool packed, xci_join_source *sources) {
    for (uint32_t s = 0; s < e->pending->bundle->share_count; s++) {
        const xci_device_encoder *one = e->siblings[s];
        sources[s].stream = packed && one != e ? one->drain : one->compute;
        sources[s].packed = packed ? one->incoming.small.at : NULL;
    }
}

static xorcast_status gather_scattered(xci_device_encoder *e, const encode_slot *slot) {
    const xci_put_range *range = &e->ranges[slot->ranges.first];
    xci_join_source sources[XCI_SHARES_MAX];
    list_sources(e, range->first >= e->pending->bundle->whole_chunk_count, sources);
    for (uint64_t c = range->first; c < range->end;) {
        uint64_t stop = c;
        while (stop < range->end && xci_device_join_has(&e->join, *place_of(e, stop)))
            stop++;
        if (stop > c)
            TRY(xci_device_join_run(&e->join, range->first, c, stop - c, sources));
        c = stop + (stop == c);
    }
    return XORCAST_OK;
}

static xci_cuda_encode_call call_of(const xci_device_encoder *e, const encode_slot *slot) {
    const slot_tables on = device_tables(e, slot);
    const xci_device_map *shadow = xci_device_shadow_home(e->shadow, e->share);
    return (xci_cuda_encode_call){.grid = shadow->grid,
                                  .old_at = shadow->places.direct,
                                  .new_at = (const uint8_t *const *)e->incoming.device_at,
                                  .first = slot->first,
                                  .count = slot->count,
                                  .codec =
                                      (uint32_t)xci_min(encoding_of(e)->codec, XORCAST_CODEC_LZ4),
                                  .move = e->moves,
                                  .blocks = slot->output.at,
                                  .capacity = e->capacity,
                                  .results = on.results,
                                  .used_bytes = on.used,
                                  .scratch = e->scratch.at,
                                  .scratch_bytes = e->scratch.bytes};
}

/* Whether all ranges of a piece are whole groups. */
static bool whole_groups(const xci_device_encoder *e, const encode_slot *slot) {
    for (uint64_t r = slot->ranges.first; r < slot->ranges.end; r++)
        if (!is_whole(e, &e->ranges[r]))
            return false;
    return true;
}

/* Whether no group of another device is between them. */
static bool without_gap(const xci_device_encoder *e, const encode_slot *slot) {
    const uint64_t groups =
        e->ranges[slot->ranges.end - 1].group - e->ranges[slot->ranges.first].group;
    return groups + 1 == slot->ranges.end - slot->ranges.first;
}

/* In the gap codec, in each form that is wanted. */
static xorcast_status start_gap(xci_device_encoder *e, encode_slot *slot,
                                const xci_cuda_encode_call *call) {
    const uint64_t count = slot->ranges.end - slot->ranges.first;
    for (uint64_t i = 0; i < count; i++)
        e->gap_first[i] = first_of(e, &e->ranges[slot->ranges.first + i]);
    e->gap_first[count] = slot->first + slot->count;
    TRY(xci_device_gap_start(&slot->gap, e->context, NULL, call, e->gap_first, count, e->compute));
    if (encoding_of(e)->old_weights == 0)
        return XORCAST_OK;
    return xci_device_gap_start(&slot->beside, e->context, &slot->gap, call, e->gap_first, count,
                                e->compute);
}

static xorcast_status start_encode(xci_device_encoder *e, encode_slot *slot, bool scattered) {
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
        TRY(gather_scattered(e, slot));
    if (e->launched >= SLOTS) /* what the slot holds may still be copied */
        XCI_DEVICE(context, "order two streams",
                   device->ops->stream_after(device->handle, e->compute, slot->kept));
    slot->gap.here = e->encodes_gap && whole_groups(e, slot);
    if (slot->gap.here)
        TRY(start_gap(e, slot, &call));
    XCI_DEVICE(context, "encode weights", device->ops->encode(device->handle, &call, e->compute));
    slot->moved = e->moves;
    TRY(xci_stream_follow(context, e->sizes, e->compute, e->computed));
    XCI_DEVICE(context, "copy results",
               device->ops->copy(device->handle, slot->pinned.at, slot->tables.at,
                                 offsets_for(e->most_chunks).moves, e->sizes));
    if (slot->gap.here)
        TRY(xci_device_gap_fetch(&slot->gap, context, e->sizes));
    if (slot->gap.here && encoding_of(e)->old_weights != 0)
        TRY(xci_device_gap_fetch(&slot->beside, context, e->sizes));
    XCI_DEVICE(context, "mark a stream",
               device->ops->event_record(device->handle, slot->encoded, e->sizes));
    return XORCAST_OK;
}

static xorcast_status launch(xci_device_encoder *e) {
    bool scattered;
    encode_slot *slot = &e->slots[e->launched % SLOTS];
    slot->ranges = next_piece(e);
    slot->first = first_of(e, &e->ranges[slot->ranges.first]);
    slot->count = end_of(e, &e->ranges[slot->ranges.end - 1]) - slot->first;
    slot->settled = 0;
    TRY(place_scattered(e, slot, &scattered));
    const xorcast_status status = start_encode(e, slot, scattered);
    e->launched++;
    if (!scattered)
        return status;
    const xci_device *device = e->context->shared->device;
    const int waited = device->ops->stream_wait(device->handle, e->compute); /* one bounce buffer */
    unplace_scattered(e, slot);
    TRY(status);
    return xci_device_result(e->context, waited, "encode weights");
}

/* ---- The shadow and the records ----
 * Encode moves the shadow by what has a block. Where a chunk has moved and is not booked, or is
 * booked and has not moved, its block is applied: an XOR does either. */

static bool settles(const xci_cuda_result *result, bool booked) {
    const bool moved = result->moved == 1;
    return result->block_bytes > 0 && result->status == XORCAST_OK && booked != moved;
}

/* Lists the blocks of a range that are to be applied, aligned one behind the other from `at` on. */
static void list_range(const xci_device_encoder *e, encode_slot *slot, const xci_put_range *range,
                       bool booked, uint8_t **at) {
    const slot_tables on = host_tables(e, slot);
    for (uint64_t c = first_of(e, range); c < end_of(e, range); c++) {
        const xci_cuda_result *result = &on.results[c - slot->first];
        if (!settles(result, booked))
            continue;
        on.settling[slot->settled] =
            (xci_cuda_move){slot->output.at + result->block_offset, *at, result->block_bytes};
        on.blocks[slot->settled++] =
            (xci_cuda_block){*at, result->block_bytes, result->block_codec, c};
        *at += xci_round_up(result->block_bytes, BLOCK_ALIGNMENT);
    }
}

/* Applies what the slot lists from `first` on, before what is encoded from now on. */
static xorcast_status apply_listed(xci_device_encoder *e, const encode_slot *slot, uint64_t first) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    const slot_tables from = host_tables(e, slot);
    const settle_place to = place_to_settle(e);
    const xci_device_map *shadow = xci_device_shadow_home(e->shadow, e->share);
    const uint64_t count = slot->settled - first;
    const xci_cuda_block_call call = {
        .grid = shadow->grid, .places = shadow->places, .blocks = to.blocks, .count = count};
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

/* Settles ranges [first, end) of a piece whose results are here; no `notes`: none is booked. */
static xorcast_status settle(xci_device_encoder *e, encode_slot *slot, uint64_t first, uint64_t end,
                             const range_note *notes) {
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

/* How many chunks of a piece have blocks that fitted. */
static uint64_t fitting_chunks(const xci_device_encoder *e, const encode_slot *slot) {
    const slot_tables on = host_tables(e, slot);
    uint64_t used = 0, fits = 0;
    while (fits < slot->count && used + on.results[fits].block_bytes <= e->capacity)
        used += on.results[fits++].block_bytes;
    return fits;
}

/* The blocks did not fit: the piece is cut, by the sizes that are known now. Ranges that fit are
 * booked; the others come again, from weights that have not moved. In the gap codec all come again,
 * as nothing of it is there. */
static xorcast_status cut(xci_device_encoder *e, encode_slot *slot) {
    const slot_tables on = host_tables(e, slot);
    const uint64_t fits = fitting_chunks(e, slot), end = slot->ranges.end;
    uint64_t from = slot->ranges.first;
    while (!slot->gap.here && from < end && end_of(e, &e->ranges[from]) - slot->first <= fits)
        from++;
    slot->used = 0;
    const uint64_t booked =
        from > slot->ranges.first ? end_of(e, &e->ranges[from - 1]) - slot->first : 0;
    for (uint64_t i = 0; i < booked; i++)
        slot->used += on.results[i].block_bytes;
    slot->ranges.end = from;
    e->piece_chunks = xci_max(1, xci_min(fits - fits / 8, slot->count / 2));
    push_span(e, (range_span){from, end});
    return e->moves ? settle(e, slot, from, end, NULL) : XORCAST_OK;
}

/* Waits for the device, which all threads do then. */
static xorcast_status wait_for(const xci_device_encoder *e, void *event, const char *what) {
    const xci_device *device = e->context->shared->device;
    const uint64_t begun = xci_now_ns();
    XCI_DEVICE(e->context, what, device->ops->event_wait(device->handle, event));
    e->pending->sums[0].encode_ns += (xci_now_ns() - begun) * xci_context_threads(e->context);
    return XORCAST_OK;
}

/* Whether what the device has encoded in the gap codec is all there; else the host writes it. */
static bool gap_fits(const xci_device_encoder *e, encode_slot *slot) {
    slot->gap.used = *xci_device_gap_host(&slot->gap).used;
    slot->beside.used =
        encoding_of(e)->old_weights != 0 ? *xci_device_gap_host(&slot->beside).used : 0;
    return slot->gap.used <= slot->gap.capacity && slot->beside.used <= slot->beside.capacity;
}

static xorcast_status receive_gap(xci_device_encoder *e, const encode_slot *slot) {
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
static void expect(xci_device_encoder *e, const encode_slot *slot) {
    const uint64_t room = e->capacity - e->capacity / 8, before = e->piece_chunks;
    const uint64_t fits = slot->count * room / xci_max(1, slot->used);
    const uint64_t most = e->span_count > 1 ? before : xci_max(before, 2 * slot->count);
    const uint64_t least = xci_max(1, before / 2);
    e->piece_chunks = xci_min(e->most_chunks, xci_max(least, xci_min(fits, most)));
}

/* Waits for the next piece's sizes and has its blocks copied to the host: on a stream where no
 * sizes of pieces behind it are waited for. */
static xorcast_status receive(xci_device_encoder *e) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    encode_slot *slot = &e->slots[e->received++ % SLOTS];
    TRY(wait_for(e, slot->encoded, "encode weights"));
    slot->used = *host_tables(e, slot).used;
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

/* Receives all pieces whose sizes are here. */
static xorcast_status receive_ready(xci_device_encoder *e) {
    const xci_device *device = e->context->shared->device;
    while (e->received < e->launched) {
        bool here = false;
        XCI_DEVICE(
            e->context, "encode weights",
            device->ops->event_done(device->handle, e->slots[e->received % SLOTS].encoded, &here));
        if (!here)
            break;
        TRY(receive(e));
    }
    return XORCAST_OK;
}

/* ---- To records ---- */

typedef struct book_job {
    xci_device_encoder *e;
    const encode_slot *slot;
    uint8_t *kept;       /* where the piece's blocks stay on the device; NULL: nowhere */
    uint64_t part_count; /* items before those of ranges: parts that can be hashed */
} book_job;

/* Where a range's first block, `offset` bytes behind the piece's first, stays: blocks that follow
 * each other at multiples of the alignment end before the next range's place, whichever chunks have
 * one. */
static uint8_t *kept_at(const book_job *job, const xci_put_range *range, uint64_t offset) {
    return job->kept + xci_round_up(offset, BLOCK_ALIGNMENT) +
           BLOCK_ROOM * (first_of(job->e, range) - job->slot->first);
}

/* Lists the block of a piece's chunk `index` for the copy to where it stays; one that has none is
 * listed as nothing. */
static void list_block(const book_job *job, uint64_t index, const xci_cuda_result *result,
                       uint8_t **at) {
    const bool has = result->block_bytes > 0;
    host_tables(job->e, job->slot).moves[index] = (xci_cuda_move){
        job->slot->output.at + (has ? result->block_offset : 0), *at, result->block_bytes};
    *at += xci_round_up(result->block_bytes, BLOCK_ALIGNMENT);
}

/* The record of a range that the device has encoded in the gap codec, `beside` the old weights or
 * not: chunks that have a block are those that have one in LZ4. */
static void take_payload(const xci_device_encoder *e, const encode_slot *slot,
                         const xci_put_range *range, bool beside, xci_record *record) {
    const uint8_t *payload = beside ? slot->beside_payload.at : slot->payload.at;
    const xci_device_gap_tables host = xci_device_gap_host(beside ? &slot->beside : &slot->gap);
    const xci_cuda_gap_group *group = &host.groups[range - &e->ranges[slot->ranges.first]];
    const uint64_t first = first_of(e, range) - slot->first;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_cuda_result *result = &host.results[first + record->blocks[i].chunk];
        record->blocks[i].codec = result->block_codec;
        record->blocks[i].bytes = result->block_bytes;
    }
    record->payload = payload + group->offset;
    record->raw_bytes = record->stored_bytes = group->bytes;
    record->params_bytes = group->params_bytes;
    record->encoded = true;
}

/* What a range of the piece came to. */
static void collect(const book_job *job, const xci_put_range *range, xci_encode_worker *worker,
                    xci_piece *piece, bool *behind_out) {
    const xorcast_bundle *bundle = job->e->pending->bundle;
    const slot_tables on = host_tables(job->e, job->slot);
    uint8_t *at = job->kept;
    xci_record *record = &piece->record;
    xci_chunk chunk;
    bool moved = true;
    memset(piece, 0, sizeof *piece);
    record->group = range->group;
    record->blocks = worker->blocks;
    const uint64_t base = first_of(job->e, range) - job->slot->first;
    for (uint64_t c = range->first; c < range->end; c++) {
        const uint64_t index = base + (c - range->first);
        const xci_cuda_result *result = &on.results[index];
        if (c == range->first)
            xci_bundle_chunk(bundle, c, NULL, &chunk);
        else
            xci_bundle_next_chunk(bundle, NULL, &chunk);
        xci_piece_cover(piece, chunk.segments, chunk.segment_count, chunk.element_bytes);
        if (result->block_bytes > 0 && record->block_count == 0) {
            record->payload = job->slot->payload.at + result->block_offset;
            at = job->kept != NULL ? kept_at(job, range, result->block_offset) : NULL;
        }
        if (job->kept != NULL)
            list_block(job, index, result, &at);
        if (result->block_bytes == 0)
            continue;
        record->blocks[record->block_count++] =
            (xci_block){(uint32_t)(c - bundle->group_first[range->group]), result->block_codec,
                        chunk.element_bytes, result->block_bytes, chunk.bytes};
        record->raw_bytes += result->block_bytes;
        moved = moved && result->moved == 1;
        piece->counts.bits_changed += result->bits_changed;
        piece->counts.bytes_changed += result->bytes_changed;
        piece->counts.elements_changed += result->elements_changed;
        piece->counts.chunks_changed++;
        xci_digest_merge(&piece->change, &result->change);
    }
    if (job->slot->gap.here && record->block_count > 0)
        take_payload(job->e, job->slot, range, false, record);
    *behind_out = !moved;
}

/* Tells subscribers of the process where a whole group's blocks stay. */
static void note_place(const book_job *job, const xci_put_range *range, const uint8_t *payload) {
    if (job->kept != NULL && is_whole(job->e, range))
        job->e->side->groups[range->group] =
            kept_at(job, range, (uint64_t)(payload - job->slot->payload.at));
}

static xorcast_status book_range(const book_job *job, uint64_t index, uint32_t worker_index) {
    xci_device_encoder *e = job->e;
    const xci_put_range *range = &e->ranges[job->slot->ranges.first + index];
    bool behind;
    xci_piece piece;
    collect(job, range, &e->pending->workers[worker_index], &piece, &behind);
    TRY(xci_pending_book(e->pending, range, worker_index, &piece, 0));
    e->notes[index] = (range_note){true, behind};
    if (piece.record.block_count > 0) {
        note_place(job, range, piece.record.payload);
        if (!xci_device_shadow_on_device(e->shadow))
            xci_shadow_move(e->pending->shadow, worker_index, &piece.record);
    }
    return xci_pending_seen(e->pending, range, worker_index);
}

static xorcast_status book_item(void *user, uint64_t index, uint32_t worker_index) {
    const book_job *job = user;
    if (index >= job->part_count)
        return book_range(job, index - job->part_count, worker_index);
    xci_parts_hash(&job->e->pending->parts[XCI_FORM_PLAIN], index);
    return XORCAST_OK;
}

/* ---- Blocks that stay on the device ---- */

/* What was booked of a piece goes to its place, beside what is encoded meanwhile. */
static xorcast_status keep_blocks(xci_device_encoder *e, const encode_slot *slot) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    const slot_tables to = device_tables(e, slot), from = host_tables(e, slot);
    const uint64_t count = end_of(e, &e->ranges[slot->ranges.end - 1]) - slot->first;
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, to.moves, from.moves,
                                 count * sizeof(xci_cuda_move), e->keep));
    XCI_DEVICE(context, "align blocks",
               device->ops->copy_many(device->handle, to.moves, count, e->keep));
    return xci_device_result(
        context, device->ops->event_record(device->handle, slot->kept, e->keep), "mark a stream");
}

/* ---- The pieces of a put ---- */

static uint8_t *place_to_keep(const xci_device_encoder *e, const encode_slot *slot) {
    if (e->side == NULL || slot->used == 0)
        return NULL;
    return xci_device_side_take(e->side, e->share, slot->used + (slot->count + 1) * BLOCK_ROOM);
}

static xorcast_status book_ranges(xci_device_encoder *e, const encode_slot *slot, uint8_t *kept) {
    xci_parts *parts = &e->pending->parts[XCI_FORM_PLAIN];
    const uint64_t range_count = slot->ranges.end - slot->ranges.first;
    /* A part takes a millisecond: too long for a small piece, which is near the end. */
    const bool hashes = slot->count >= e->most_chunks / 2;
    book_job job = {e, slot, kept, hashes ? parts->count - parts->hashed : 0};
    memset(e->notes, 0, range_count * sizeof *e->notes);
    xci_pending_open_records(e->pending, e->ranges[slot->ranges.first].group,
                             whole_groups(e, slot) && without_gap(e, slot));
    const xorcast_status status =
        xci_pool_run(e->context->shared->pool, job.part_count + range_count, book_item, &job);
    e->pending->open_records = false;
    if (status == XORCAST_OK)
        parts->hashed += job.part_count;
    return status;
}

/* Where the host writes beside the old weights, chunks that were before their change are read from
 * the shadow: it must have moved by all pieces before this one, those of other devices too. */
static xorcast_status begin_lists(xci_device_encoder *e, const encode_slot *slot) {
    e->booking = slot;
    if (encoding_of(e)->old_weights == 0 || slot->gap.here)
        return XORCAST_OK;
    for (uint32_t s = 0; s < e->pending->bundle->share_count; s++) {
        const xci_device_encoder *one = e->siblings[s];
        const xci_device *device = one->context->shared->device;
        XCI_DEVICE(one->context, "move the shadow",
                   device->ops->event_wait(device->handle, one->settled));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_encoder_list(xci_device_encoder *e, uint32_t worker,
                                       const xci_record *record, bool joined,
                                       xci_record *listed_out, const uint8_t *const **old_out) {
    uint64_t first = 0, count = joined ? 0 : UINT64_MAX; /* that have not moved */
    if (xci_device_shadow_on_device(e->shadow)) {        /* a piece moves as a whole */
        first = e->booking != NULL ? e->booking->first : 0;
        count = e->booking != NULL ? e->booking->count : 0;
    }
    *old_out = NULL;
    *listed_out = *record;
    if (e->lists == NULL || record->encoded)
        return XORCAST_OK;
    TRY(xci_device_lists_make(&e->lists[worker], e->context, record, listed_out));
    if (encoding_of(e)->old_weights == 0)
        return XORCAST_OK;
    return xci_device_lists_old(&e->lists[worker], e->context, e->pending->bundle, e->shadow,
                                listed_out, e->share, first, count, old_out);
}

/* The range of a group that is in a piece. */
static const xci_put_range *range_of(const xci_device_encoder *e, const encode_slot *slot,
                                     uint64_t group) {
    uint64_t first = slot->ranges.first, end = slot->ranges.end;
    while (end - first > 1) {
        const uint64_t middle = first + (end - first) / 2;
        if (e->ranges[middle].group <= group)
            first = middle;
        else
            end = middle;
    }
    return &e->ranges[first];
}

xorcast_status xci_device_encoder_beside(xci_device_encoder *e, uint32_t worker,
                                         const xci_record *plain, xci_record *beside_out) {
    const encode_slot *slot = e->booking;
    xci_device_lists *lists = &e->lists[worker];
    TRY(xci_grow(e->context, &lists->blocks, &lists->blocks_capacity,
                 plain->block_count * sizeof(xci_block)));
    memcpy(lists->blocks, plain->blocks, plain->block_count * sizeof *plain->blocks);
    *beside_out = *plain;
    beside_out->blocks = lists->blocks;
    take_payload(e, slot, range_of(e, slot, plain->group), true, beside_out);
    return XORCAST_OK;
}

/* The records of a piece, and the shadow and the blocks that stay by what was booked of it. */
static xorcast_status book_piece(xci_device_encoder *e, encode_slot *slot) {
    uint8_t *kept = place_to_keep(e, slot);
    TRY(begin_lists(e, slot));
    const xorcast_status status = book_ranges(e, slot, kept);
    e->booking = NULL;
    if (xci_device_shadow_on_device(e->shadow))
        TRY(settle(e, slot, slot->ranges.first, slot->ranges.end, e->notes));
    slot->moved = false;
    TRY(status);
    return kept != NULL ? keep_blocks(e, slot) : XORCAST_OK;
}

/* Books the oldest piece that was received, then takes its records to their parts; the slot is free
 * afterwards. */
static xorcast_status book(xci_device_encoder *e) {
    encode_slot *slot = &e->slots[e->booked++ % SLOTS];
    TRY(wait_for(e, slot->drained, "copy blocks"));
    if (slot->ranges.first < slot->ranges.end)
        TRY(book_piece(e, slot));
    slot->moved = false;
    TRY(receive_ready(e));
    TRY(xci_pending_plan(e->pending));
    for (uint32_t form = 0; form <= encoding_of(e)->old_weights; form++)
        TRY(xci_parts_copy(&e->pending->parts[form]));
    return XORCAST_OK;
}

bool xci_device_encoder_busy(const xci_device_encoder *e) {
    return e->span_count > 0 || e->booked < e->launched;
}

xorcast_status xci_device_encoder_launch(xci_device_encoder *e) {
    while (e->span_count > 0 && e->launched < e->booked + SLOTS)
        TRY(launch(e));
    return receive_ready(e);
}

/* One piece is booked while the next one's blocks are copied and those after it are encoded. */
xorcast_status xci_device_encoder_book(xci_device_encoder *e) {
    if (e->received == e->booked)
        TRY(receive(e));
    TRY(receive_ready(e));
    return book(e);
}

/* The put is over: nothing is read any more, and the shadow has moved. */
static xorcast_status come_to_rest(const xci_device_encoder *e) {
    const xci_device *device = e->context->shared->device;
    const int computed = device->ops->stream_wait(device->handle, e->compute);
    const int sized = device->ops->stream_wait(device->handle, e->sizes);
    const int drained = device->ops->stream_wait(device->handle, e->drain);
    const int kept = device->ops->stream_wait(device->handle, e->keep);
    if (computed != 0 || sized != 0)
        xci_device_shadow_lose(e->shadow);
    XCI_DEVICE(e->context, "encode weights", computed);
    XCI_DEVICE(e->context, "copy results", sized);
    XCI_DEVICE(e->context, "copy blocks", drained);
    return xci_device_result(e->context, kept, "align blocks");
}

/* The put failed and all is at rest: pieces that were encoded and not booked go back. */
static xorcast_status take_back(xci_device_encoder *e) {
    const xci_device *device = e->context->shared->device;
    for (unsigned i = 0; i < SLOTS; i++) {
        encode_slot *slot = &e->slots[i];
        if (!slot->moved)
            continue;
        xorcast_status status = xci_device_result(
            e->context,
            device->ops->copy_now(device->handle, slot->pinned.at, slot->tables.at,
                                  offsets_for(e->most_chunks).moves),
            "copy results");
        if (status == XORCAST_OK)
            status = settle(e, slot, slot->ranges.first, slot->ranges.end, NULL);
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
    push_span(e, (range_span){first, end});
    return begin_pieces(e, ready, all);
}
