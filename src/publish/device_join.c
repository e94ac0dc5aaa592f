/* Joined chunks: see device_join.h. */
#include "publish/device_join.h"

#include "base/bytes.h"

#define ROOM_BYTES (UINT64_C(16) << 20)

/* A device lends each other home a room: all together as much as to one. */
static uint64_t chunks_for(const xorcast_bundle *bundle) {
    const uint64_t others = xci_max(bundle->share_count, 2) - 1;
    const uint64_t chunks = (ROOM_BYTES / others) >> bundle->chunk_log2;
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
    xci_device_release(context, &join->tables);
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

/* ---- Tables: addresses of chunks, then blocks ---- */

static uint64_t addresses_bytes(const xci_device_join *join) {
    return xci_round_up(join->most_chunks * sizeof(uint8_t *), 64);
}

static uint8_t **addresses_in(const xci_device_memory *table) {
    return (uint8_t **)(void *)table->at;
}

static xci_cuda_block *blocks_in(const xci_device_join *join, const xci_device_memory *tables) {
    return (xci_cuda_block *)(void *)(tables->at + addresses_bytes(join));
}

/* Of what a share lends: addresses, then a copy for each stretch of chunks. */
static uint64_t far_pinned_bytes(const xci_device_join *join) {
    return addresses_bytes(join) + join->most_chunks * sizeof(xci_cuda_move);
}

static xci_cuda_move *moves_in(const xci_device_join *join, const xci_device_memory *pinned) {
    return (xci_cuda_move *)(void *)(pinned->at + addresses_bytes(join));
}

static uint64_t room_bytes(const xci_device_join *join) {
    return join->most_chunks << join->bundle->chunk_log2;
}

/* Pinned memory is of the same size whenever it is there. */
static xorcast_status reserve_pinned(xorcast_context *context, xci_device_memory *memory,
                                     uint64_t bytes) {
    return memory->at != NULL ? XORCAST_OK : xci_pinned_allocate(context, bytes, memory);
}

xorcast_status xci_device_join_reserve(xci_device_join *join) {
    xorcast_context *context = join->home->context;
    const uint64_t tables = addresses_bytes(join) + join->most_chunks * sizeof(xci_cuda_block);
    TRY(xci_device_reserve(context, &join->bounce, room_bytes(join)));
    TRY(xci_device_reserve(context, &join->tables, tables));
    return reserve_pinned(context, &join->pinned, tables);
}

static xorcast_status reserve_far(xci_device_join *join, xci_join_far *far,
                                  xorcast_context *context) {
    const xci_device *device = context->shared->device;
    TRY(xci_device_reserve(join->home->context, &join->staging, room_bytes(join) + 64));
    TRY(xci_device_reserve(context, &far->room, room_bytes(join)));
    TRY(xci_device_reserve(context, &far->table, addresses_bytes(join)));
    TRY(reserve_pinned(context, &far->pinned, far_pinned_bytes(join)));
    if (far->event == NULL)
        XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &far->event));
    return XORCAST_OK;
}

uint8_t *xci_device_join_place(const xci_device_join *join, uint64_t base, uint64_t chunk) {
    return join->bounce.at + ((chunk - base) << join->bundle->chunk_log2);
}

bool xci_device_join_has(const xci_device_join *join, const uint8_t *address) {
    return join->bounce.at != NULL &&
           (uintptr_t)address - (uintptr_t)join->bounce.at < join->bounce.bytes;
}

/* ---- Joining ---- */

typedef struct join_run {
    xci_device_join *join;
    uint64_t first, count, index; /* index: of `first` from the base on */
    void *stream;                 /* of the home */
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
    TRY(send_addresses(run, join->home, join->bounce.at, &join->pinned, &join->tables,
                       run->stream));
    if (packed == NULL)
        return gather(run, join->home, &join->tables, run->stream);
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

/* Lists the chunks in the staging buffer as raw blocks of the home's grid. */
static xorcast_status list_blocks(const join_run *run) {
    const xci_device_join *join = run->join;
    const xorcast_bundle *bundle = join->bundle;
    const xci_device *device = join->home->context->shared->device;
    xci_cuda_block *blocks = blocks_in(join, &join->pinned) + run->index;
    for (uint64_t i = 0; i < run->count; i++)
        blocks[i] = (xci_cuda_block){join->staging.at + ((run->index + i) << bundle->chunk_log2),
                                     xci_bundle_chunk_bytes(bundle, run->first + i),
                                     XORCAST_CODEC_RAW, run->first + i};
    return xci_device_result(join->home->context,
                             device->ops->copy(device->handle,
                                               blocks_in(join, &join->tables) + run->index, blocks,
                                               run->count * sizeof *blocks, run->stream),
                             "copy a table");
}

static xorcast_status join_blocks(const join_run *run) {
    const xci_device_join *join = run->join;
    const xci_device *device = join->home->context->shared->device;
    /* As a table of all chunks, of which only these are looked up. */
    const uintptr_t direct =
        (uintptr_t)(addresses_in(&join->tables) + run->index) - run->first * sizeof(uint8_t *);
    const xci_cuda_block_call call = {.grid = join->home->map->grid,
                                      .places = {.direct = (uint8_t *const *)direct},
                                      .blocks = blocks_in(join, &join->tables) + run->index,
                                      .count = run->count};
    return xci_device_result(join->home->context,
                             device->ops->apply(device->handle, &call, run->stream),
                             "join weights");
}

/* Brings what another share has of the chunks to the staging buffer. */
static xorcast_status fetch(const join_run *run, const xorcast_bundle *share, xci_join_far *far,
                            const xci_join_source *source) {
    const xci_device_join *join = run->join;
    const xci_device *device = share->context->shared->device;
    const xci_device *home = join->home->context->shared->device;
    const uint32_t log2 = join->bundle->chunk_log2;
    xci_cuda_move *move = moves_in(join, &far->pinned) + run->index;
    *move = (xci_cuda_move){far->room.at + (run->index << log2),
                            join->staging.at + (run->index << log2), run->count << log2};
    if (source->packed != NULL) {
        move->from = packed_at(run, source->packed);
    } else {
        TRY(send_addresses(run, share, far->room.at, &far->pinned, &far->table, source->stream));
        TRY(gather(run, share, &far->table, source->stream));
    }
    XCI_DEVICE(share->context, "mark a stream",
               device->ops->event_record(device->handle, far->event, source->stream));
    XCI_DEVICE(join->home->context, "order two streams",
               home->ops->stream_after(home->handle, run->stream, far->event));
    return xci_device_result(
        join->home->context,
        home->ops->copy_peer_many(home->handle, device->handle, move, 1, run->stream),
        "copy weights from another device");
}

xorcast_status xci_device_join_run(xci_device_join *join, uint64_t base, uint64_t first,
                                   uint64_t count, const xci_join_source *sources) {
    const join_run run = {join, first, count, first - base, sources[join->home_index].stream};
    bool listed = false;
    TRY(gather_home(&run, sources[join->home_index].packed));
    for (uint32_t s = 0; s < join->bundle->share_count; s++) {
        const xorcast_bundle *share = join->bundle->shares[s];
        if (share == join->home || !holds_any(&run, share))
            continue;
        TRY(reserve_far(join, &join->far[s], share->context));
        if (!listed)
            TRY(list_blocks(&run));
        listed = true;
        TRY(fetch(&run, share, &join->far[s], &sources[s]));
        TRY(join_blocks(&run));
    }
    return XORCAST_OK;
}
