/* New bytes on a device: see device_incoming.h. */
#include "publish/device_incoming.h"

#include "base/bytes.h"
#include "bundle/spans.h"

static uint64_t packed_chunk_count(const xorcast_bundle *bundle) {
    return bundle->layout.chunk_count - bundle->whole_chunk_count;
}

static xorcast_status list_offsets(xci_device_incoming *incoming) {
    const xorcast_bundle *bundle = incoming->bundle;
    void *memory;
    TRY(xci_allocate_array(incoming->context, bundle->tensor_count, sizeof(uint32_t), &memory));
    incoming->offsets = memory;
    for (uint64_t i = 0; i < bundle->packed_count; i++)
        incoming->offsets[bundle->packed[i]] = bundle->segments[i].offset;
    return XORCAST_OK;
}

uint8_t *xci_device_incoming_small(const xci_device_incoming *incoming, uint64_t chunk) {
    const xorcast_bundle *bundle = incoming->bundle;
    return chunk < bundle->whole_chunk_count
               ? NULL
               : incoming->small.at + ((chunk - bundle->whole_chunk_count) << bundle->chunk_log2);
}

/* Where a chunk is at home here in the bundle's own memory, or NULL. */
static uint8_t *own_place(const xci_device_incoming *incoming, uint64_t chunk) {
    return xci_joined(incoming->bundle, chunk) ? NULL : incoming->share->map->direct[chunk];
}

static void list_own(xci_device_incoming *incoming) {
    const xorcast_bundle *bundle = incoming->bundle;
    uint64_t local = 0;
    for (uint64_t c = 0; c < bundle->layout.chunk_count; c++) {
        if (xci_home(bundle, c) != incoming->index)
            continue;
        uint8_t **at = &incoming->at[local++];
        *at = c < bundle->whole_chunk_count ? own_place(incoming, c)
                                            : xci_device_incoming_small(incoming, c);
        incoming->scattered = incoming->scattered || *at == NULL || xci_joined(bundle, c);
    }
}

static xorcast_status open_small(xci_device_incoming *incoming) {
    xorcast_context *context = incoming->context;
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_device *device = context->shared->device;
    const uint64_t count = packed_chunk_count(bundle), bytes = count << bundle->chunk_log2;
    void *memory;
    if (count == 0)
        return XORCAST_OK;
    TRY(xci_device_allocate(context, bytes, &incoming->small));
    TRY(xci_device_allocate(context, count * sizeof(uint8_t *), &incoming->small_table));
    TRY(xci_allocate_array(context, count, sizeof(uint8_t *), &memory));
    uint8_t **table = memory;
    for (uint64_t i = 0; i < count; i++)
        table[i] = xci_device_incoming_small(incoming, bundle->whole_chunk_count + i);
    const int copied = device->ops->copy_now(device->handle, incoming->small_table.at, table,
                                             count * sizeof(uint8_t *));
    xci_release(context, memory);
    XCI_DEVICE(context, "copy a table", copied);
    /* The padding between tensors is zero in a delta's eyes, and nobody else writes it. */
    XCI_DEVICE(context, "clear memory",
               device->ops->fill(device->handle, incoming->small.at, 0, bytes, NULL));
    return xci_device_result(context, device->ops->stream_wait(device->handle, NULL),
                             "clear memory");
}

static xorcast_status open_parts(xci_device_incoming *incoming) {
    xorcast_context *context = incoming->context;
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_device *device = context->shared->device;
    const uint64_t table_bytes = xci_home_count(bundle, incoming->index) * sizeof(uint8_t *);
    void *memory;
    TRY(list_offsets(incoming));
    TRY(xci_allocate_array(context, bundle->tensor_count, sizeof(void *), &memory));
    incoming->from = memory;
    TRY(xci_pinned_allocate(context, table_bytes, &incoming->pinned));
    TRY(xci_device_allocate(context, table_bytes, &incoming->table));
    incoming->at = (uint8_t **)(void *)incoming->pinned.at;
    incoming->device_at = (uint8_t *const *)(const void *)incoming->table.at;
    TRY(open_small(incoming));
    list_own(incoming);
    if (table_bytes > 0)
        XCI_DEVICE(
            context, "copy a table",
            device->ops->copy_now(device->handle, incoming->table.at, incoming->at, table_bytes));
    return XORCAST_OK;
}

xorcast_status xci_device_incoming_open(xci_device_incoming *incoming, xorcast_bundle *bundle,
                                        uint32_t index, const xci_device_shadow *shadow) {
    xorcast_bundle *share = bundle->shares[index];
    *incoming = (xci_device_incoming){.context = share->context,
                                      .bundle = bundle,
                                      .share = share,
                                      .index = index,
                                      .own = true,
                                      .shadow = shadow};
    return open_parts(incoming);
}

void xci_device_incoming_close(xci_device_incoming *incoming) {
    if (incoming->context == NULL)
        return;
    xci_device_release(incoming->context, &incoming->small);
    xci_device_release(incoming->context, &incoming->small_table);
    xci_device_release(incoming->context, &incoming->table);
    xci_device_release(incoming->context, &incoming->device_moves);
    xci_pinned_release(incoming->context, &incoming->pinned);
    xci_device_release(incoming->context, &incoming->kept);
    xci_pinned_release(incoming->context, &incoming->kept_move);
    xci_release(incoming->context, incoming->moves.moves);
    xci_release(incoming->context, incoming->offsets);
    xci_release(incoming->context, incoming->from);
    *incoming = (xci_device_incoming){0};
}

/* ---- Taking ---- */

static xorcast_status list_move(xci_device_incoming *incoming, uint8_t *to, const void *from,
                                uint64_t bytes) {
    xci_move_list *list = &incoming->moves;
    TRY(xci_grow(incoming->context, &list->moves, &list->capacity,
                 (list->count + 1) * sizeof *list->moves));
    list->moves[list->count++] = (xci_cuda_move){from, to, bytes};
    return XORCAST_OK;
}

/* Where this device reads packed chunks of the shadow: at home, or in a copy that gather makes. */
static xorcast_status find_kept(xci_device_incoming *incoming, const uint8_t **kept_out) {
    const xorcast_bundle *bundle = incoming->bundle;
    const uint64_t bytes = packed_chunk_count(bundle) << bundle->chunk_log2;
    uint8_t *home = xci_device_shadow_map(incoming->shadow, 0)->direct[bundle->whole_chunk_count];
    *kept_out = home;
    if (incoming->index == 0 || !xci_device_shadow_on_device(incoming->shadow))
        return XORCAST_OK;
    TRY(xci_device_reserve(incoming->context, &incoming->kept, bytes));
    if (incoming->kept_move.at == NULL)
        TRY(xci_pinned_allocate(incoming->context, sizeof(xci_cuda_move), &incoming->kept_move));
    *(xci_cuda_move *)(void *)incoming->kept_move.at =
        (xci_cuda_move){home, incoming->kept.at, bytes};
    incoming->fetches_kept = true;
    *kept_out = incoming->kept.at;
    return XORCAST_OK;
}

typedef struct listing {
    xci_device_incoming *incoming;
    uint8_t *to;         /* the tensor's place in `small` */
    const uint8_t *kept; /* and in the shadow; NULL: from where its boxes lie */
    xorcast_status status;
} listing;

static void list_span(void *user, const xci_span *span) {
    listing *l = user;
    if (l->status < 0 || span->region->replica)
        return;
    const uint8_t *from = l->kept != NULL ? l->kept + span->offset : span->region->data + span->at;
    l->status = list_move(l->incoming, l->to + span->offset, from, span->bytes);
}

static xorcast_status take_small(xci_device_incoming *incoming, uint64_t t, const void *data,
                                 bool kept) {
    const xci_tensor *tensor = &incoming->share->tensors[t];
    const uint64_t chunk = tensor->first_chunk;
    listing l = {.incoming = incoming,
                 .to = xci_device_incoming_small(incoming, chunk) + incoming->offsets[t]};
    if (kept) {
        TRY(find_kept(incoming, &l.kept));
        l.kept += l.to - incoming->small.at;
    }
    if (data != NULL)
        return list_move(incoming, l.to, data, tensor->bytes);
    xci_spans(tensor, 0, tensor->bytes, list_span, &l);
    return l.status;
}

xorcast_status xci_device_incoming_take(xci_device_incoming *incoming, uint64_t t, const void *data,
                                        bool kept) {
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_tensor *tensor = &bundle->tensors[t];
    if (tensor->bytes == 0)
        return XORCAST_OK;
    if (tensor->bytes < XCI_SMALL_BYTES)
        return take_small(incoming, t, data, kept);
    const uint64_t count = xci_divide_up(tensor->bytes, bundle->layout.chunk_bytes);
    uint8_t *from = (uint8_t *)(uintptr_t)data;
    if (tensor->simple && from == tensor->regions[0].data)
        from = NULL;
    incoming->own = incoming->own && from == NULL;
    if (from == incoming->from[t])
        return XORCAST_OK;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t c = tensor->first_chunk + i;
        if (xci_home(bundle, c) == incoming->index)
            incoming->at[xci_local(bundle, c)] =
                from != NULL ? from + (i << bundle->chunk_log2) : own_place(incoming, c);
    }
    incoming->from[t] = from;
    return XORCAST_OK;
}

xorcast_status xci_device_incoming_take_all(xci_device_incoming *incoming) {
    const xorcast_bundle *bundle = incoming->bundle;
    for (uint64_t t = 0; t < bundle->tensor_count && !incoming->own; t++)
        if (bundle->tensors[t].bytes >= XCI_SMALL_BYTES)
            TRY(xci_device_incoming_take(incoming, t, NULL, false));
    incoming->own = true;
    return XORCAST_OK;
}

/* ---- Copying small tensors ---- */

static xorcast_status gather_all(xci_device_incoming *incoming, void *stream) {
    const xorcast_bundle *share = incoming->share;
    const xci_device *device = incoming->context->shared->device;
    const xci_cuda_copy_call call = {share->map->grid, share->map->places, share->whole_chunk_count,
                                     packed_chunk_count(share),
                                     (uint8_t *const *)(const void *)incoming->small_table.at};
    return xci_device_result(incoming->context, device->ops->gather(device->handle, &call, stream),
                             "gather small tensors");
}

static xorcast_status fetch_kept(xci_device_incoming *incoming, void *stream) {
    const xci_device *device = incoming->context->shared->device;
    const xci_device *home = incoming->bundle->shares[0]->context->shared->device;
    const xci_cuda_move *move = (const xci_cuda_move *)(const void *)incoming->kept_move.at;
    return xci_device_result(
        incoming->context,
        device->ops->copy_peer_many(device->handle, home->handle, move, 1, stream),
        "copy small tensors");
}

static xorcast_status copy_listed(xci_device_incoming *incoming, uint64_t count, void *stream) {
    xorcast_context *context = incoming->context;
    const xci_device *device = context->shared->device;
    const uint64_t bytes = count * sizeof(xci_cuda_move);
    TRY(xci_device_reserve(context, &incoming->device_moves, bytes));
    XCI_DEVICE(context, "copy a table",
               device->ops->copy_now(device->handle, incoming->device_moves.at,
                                     incoming->moves.moves, bytes));
    return xci_device_result(
        context,
        device->ops->copy_many(device->handle,
                               (const xci_cuda_move *)(const void *)incoming->device_moves.at,
                               count, stream),
        "copy small tensors");
}

xorcast_status xci_device_incoming_gather(xci_device_incoming *incoming, bool all, void *stream) {
    const uint64_t count = incoming->moves.count;
    const bool kept = incoming->fetches_kept;
    incoming->moves.count = 0;
    incoming->fetches_kept = false;
    if (all)
        return packed_chunk_count(incoming->bundle) > 0 ? gather_all(incoming, stream)
                                                        : XORCAST_OK;
    if (kept)
        TRY(fetch_kept(incoming, stream));
    return count > 0 ? copy_listed(incoming, count, stream) : XORCAST_OK;
}
