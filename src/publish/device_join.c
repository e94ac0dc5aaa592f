/* Joined chunks: see device_join.h. */
#include "publish/device_join.h"

#include "base/bytes.h"

#define LOT_BYTES (UINT64_C(32) << 20)
#define MOVE_LOG2 15u /* bytes that one thread block moves: all of them are under way at once */

static atomic_uint_fast64_t lot_limit = LOT_BYTES;

void xci_device_join_limit(uint64_t bytes) {
    atomic_store(&lot_limit, bytes != 0 ? bytes : LOT_BYTES);
}

/* A device lends each other home a room: all together as much as to one. */
static uint64_t chunks_for(const xorcast_bundle *bundle) {
    const uint64_t others = xci_max(bundle->share_count, 2) - 1;
    const uint64_t chunks = (atomic_load(&lot_limit) / others) >> bundle->chunk_log2;
    return xci_max(bundle->group_chunks_max, xci_min(chunks, bundle->layout.chunk_count));
}

xorcast_status xci_device_join_open(xci_device_join *join, xorcast_bundle *bundle, uint32_t home) {
    void *memory;
    *join = (xci_device_join){.bundle = bundle,
                              .home = bundle->shares[home],
                              .home_index = home,
                              .most_chunks = chunks_for(bundle)};
    TRY(xci_allocate_array(bundle->context, bundle->share_count, sizeof(xci_join_far), &memory));
    join->far = memory;
    return XORCAST_OK;
}

void xci_device_join_close(xci_device_join *join) {
    if (join->bundle == NULL)
        return;
    xorcast_context *context = join->home->context;
    xci_device_release(context, &join->bounce);
    xci_device_release(context, &join->staging);
    xci_device_release(context, &join->table);
    xci_pinned_release(context, &join->pinned);
    for (uint32_t s = 0; join->far != NULL && s < join->bundle->share_count; s++) {
        xci_join_far *far = &join->far[s];
        context = join->bundle->shares[s]->context;
        xci_device_release(context, &far->room);
        xci_device_release(context, &far->table);
        xci_pinned_release(context, &far->pinned);
        xci_event_close(context, &far->event);
    }
    xci_release(join->bundle->context, join->far);
    *join = (xci_device_join){0};
}

/* ---- Tables: addresses of chunks, then moves ---- */

static uint64_t addresses_bytes(const xci_device_join *join) {
    return xci_round_up(XCI_JOIN_TURNS * join->most_chunks * sizeof(uint8_t *), 64);
}

static uint8_t **addresses_in(const xci_device_memory *table) {
    return (uint8_t **)(void *)table->at;
}

/* Of a lot, or of as many chunks. */
static uint64_t lot_bytes(const xci_device_join *join) {
    return join->most_chunks << join->bundle->chunk_log2;
}

/* Chunks are moved whole, or in this many pieces. */
static uint32_t move_log2(const xci_device_join *join) {
    return join->bundle->chunk_log2 < MOVE_LOG2 ? join->bundle->chunk_log2 : MOVE_LOG2;
}

static uint64_t moves_of(const xci_device_join *join, uint64_t chunks) {
    return chunks << (join->bundle->chunk_log2 - move_log2(join));
}

static uint64_t turns_moves(const xci_device_join *join) {
    return moves_of(join, XCI_JOIN_TURNS * join->most_chunks);
}

static uint64_t far_pinned_bytes(const xci_device_join *join) {
    return addresses_bytes(join) + 2 * turns_moves(join) * sizeof(xci_cuda_move);
}

static xci_cuda_move *moves_in(const xci_device_join *join, const xci_device_memory *pinned) {
    return (xci_cuda_move *)(void *)(pinned->at + addresses_bytes(join));
}

/* Pinned memory is of the same size whenever it is there. */
static xorcast_status reserve_pinned(xorcast_context *context, xci_device_memory *memory,
                                     uint64_t bytes) {
    return memory->at != NULL ? XORCAST_OK : xci_pinned_allocate(context, bytes, memory);
}

xorcast_status xci_device_join_reserve(xci_device_join *join) {
    xorcast_context *context = join->home->context;
    TRY(xci_device_reserve(context, &join->bounce, XCI_JOIN_TURNS * lot_bytes(join)));
    TRY(xci_device_reserve(context, &join->table, addresses_bytes(join)));
    return reserve_pinned(context, &join->pinned, addresses_bytes(join));
}

static xorcast_status reserve_far(xci_device_join *join, xci_join_far *far,
                                  xorcast_context *context) {
    const xci_device *device = context->shared->device;
    TRY(xci_device_reserve(join->home->context, &join->staging, lot_bytes(join)));
    TRY(xci_device_reserve(context, &far->room, XCI_JOIN_TURNS * lot_bytes(join)));
    TRY(xci_device_reserve(context, &far->table, addresses_bytes(join)));
    TRY(reserve_pinned(context, &far->pinned, far_pinned_bytes(join)));
    if (far->event == NULL)
        XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &far->event));
    return XORCAST_OK;
}

uint8_t *xci_device_join_place(const xci_device_join *join, const xci_join_lot *lot,
                               uint64_t chunk) {
    return join->bounce.at + lot->turn * lot_bytes(join) +
           ((chunk - lot->base) << join->bundle->chunk_log2);
}

bool xci_device_join_has(const xci_device_join *join, const uint8_t *address) {
    return join->bounce.at != NULL &&
           (uintptr_t)address - (uintptr_t)join->bounce.at < join->bounce.bytes;
}

bool xci_device_join_has_in(const xci_device_join *join, uint32_t turn, const uint8_t *address) {
    return xci_device_join_has(join, address) &&
           (uint64_t)(address - join->bounce.at) / lot_bytes(join) == turn;
}

/* ---- Joining ---- */

typedef struct join_run {
    xci_device_join *join;
    uint64_t first, count;
    uint64_t inside, index; /* of `first`: in its lot, and in the buffers of all turns */
    void *stream;           /* of the home */
} join_run;

static const uint8_t *packed_at(const join_run *run, const uint8_t *packed) {
    const xorcast_bundle *bundle = run->join->bundle;
    return packed + ((run->first - bundle->whole_chunk_count) << bundle->chunk_log2);
}

/* Tells a share's device where chunks go that are gathered to `to`; returns its table. */
static xorcast_status send_addresses(const join_run *run, const xorcast_bundle *share, uint8_t *to,
                                     const xci_device_memory *pinned,
                                     const xci_device_memory *table, void *stream) {
    const xci_device *device = share->context->shared->device;
    uint8_t **addresses = addresses_in(pinned) + run->index;
    for (uint64_t i = 0; i < run->count; i++)
        addresses[i] = to + ((run->index + i) << share->chunk_log2);
    return xci_device_result(share->context,
                             device->ops->copy(device->handle, addresses_in(table) + run->index,
                                               addresses, run->count * sizeof(uint8_t *), stream),
                             "copy a table");
}

/* Gathers what a share has of the chunks to where its table says. */
static xorcast_status gather(const join_run *run, const xorcast_bundle *share,
                             const xci_device_memory *table, void *stream) {
    const xci_device *device = share->context->shared->device;
    const xci_cuda_copy_call call = {share->map->grid, share->map->places, run->first, run->count,
                                     addresses_in(table) + run->index};
    return xci_device_result(share->context, device->ops->gather(device->handle, &call, stream),
                             "gather weights");
}

/* The home's own bytes, and zeros where it has none. */
static xorcast_status gather_home(const join_run *run, const uint8_t *packed) {
    const xci_device_join *join = run->join;
    const xci_device *device = join->home->context->shared->device;
    const uint32_t log2 = join->bundle->chunk_log2;
    TRY(send_addresses(run, join->home, join->bounce.at, &join->pinned, &join->table, run->stream));
    if (packed == NULL)
        return gather(run, join->home, &join->table, run->stream);
    return xci_device_result(
        join->home->context,
        device->ops->copy(device->handle, join->bounce.at + (run->index << log2),
                          packed_at(run, packed), run->count << log2, run->stream),
        "gather weights");
}

static bool holds_any(const join_run *run, const xorcast_bundle *share) {
    for (uint64_t c = run->first; c < run->first + run->count; c++)
        if (xci_bundle_holds(share, c))
            return true;
    return false;
}

/* Moves of as many bytes as the run has; `moves`: of all turns. Returns the first. */
static const xci_cuda_move *list_moves(const join_run *run, xci_cuda_move *moves,
                                       const uint8_t *from, uint8_t *to) {
    const xci_device_join *join = run->join;
    const uint32_t log2 = move_log2(join);
    moves += moves_of(join, run->index);
    for (uint64_t i = 0; i < moves_of(join, run->count); i++)
        moves[i] = (xci_cuda_move){from + (i << log2), to + (i << log2), UINT64_C(1) << log2};
    return moves;
}

/* Gathers what another share has of the chunks; *at_out: where that lies, when `far->event` comes
 * on the home's stream. */
static xorcast_status gather_far(const join_run *run, const xorcast_bundle *share,
                                 const xci_join_far *far, const xci_join_source *source,
                                 const uint8_t **at_out) {
    const xci_device *device = share->context->shared->device;
    const xci_device *home = run->join->home->context->shared->device;
    if (source->packed != NULL) {
        *at_out = packed_at(run, source->packed);
    } else {
        TRY(send_addresses(run, share, far->room.at, &far->pinned, &far->table, source->stream));
        TRY(gather(run, share, &far->table, source->stream));
        *at_out = far->room.at + (run->index << share->chunk_log2);
    }
    XCI_DEVICE(share->context, "mark a stream",
               device->ops->event_record(device->handle, far->event, source->stream));
    return xci_device_result(run->join->home->context,
                             home->ops->stream_after(home->handle, run->stream, far->event),
                             "order two streams");
}

/* Adds what another share has of the chunks to those in the bounce buffer. */
static xorcast_status join_far(const join_run *run, const xorcast_bundle *share,
                               const xci_join_far *far, const xci_join_source *source) {
    const xci_device_join *join = run->join;
    const xci_device *device = share->context->shared->device;
    const xci_device *home = join->home->context->shared->device;
    const uint32_t log2 = join->bundle->chunk_log2;
    const uint64_t count = moves_of(join, run->count);
    uint8_t *const staged = join->staging.at + (run->inside << log2);
    xci_cuda_move *const moves = moves_in(join, &far->pinned);
    const uint8_t *at;
    TRY(gather_far(run, share, far, source, &at));
    XCI_DEVICE(join->home->context, "copy weights from another device",
               home->ops->copy_peer_many(home->handle, device->handle,
                                         list_moves(run, moves, at, staged), count, run->stream));
    return xci_device_result(
        join->home->context,
        home->ops->join_many(home->handle,
                             list_moves(run, moves + turns_moves(join), staged,
                                        join->bounce.at + (run->index << log2)),
                             count, run->stream),
        "join weights");
}

xorcast_status xci_device_join_run(xci_device_join *join, const xci_join_lot *lot, uint64_t first,
                                   uint64_t count, const xci_join_source *sources) {
    const uint64_t inside = first - lot->base;
    const join_run run = {join,
                          first,
                          count,
                          inside,
                          inside + lot->turn * join->most_chunks,
                          sources[join->home_index].stream};
    TRY(gather_home(&run, sources[join->home_index].packed));
    for (uint32_t s = 0; s < join->bundle->share_count; s++) {
        const xorcast_bundle *share = join->bundle->shares[s];
        if (share == join->home || !holds_any(&run, share))
            continue;
        TRY(reserve_far(join, &join->far[s], share->context));
        TRY(join_far(&run, share, &join->far[s], &sources[s]));
    }
    return XORCAST_OK;
}
