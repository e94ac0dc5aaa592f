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

static xorcast_status open_parts(xci_device_incoming *incoming) {
    xorcast_context *context = incoming->context;
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_device *device = context->shared->device;
    const uint64_t table_bytes = bundle->layout.chunk_count * sizeof(uint8_t *);
    const uint64_t small_bytes = packed_chunk_count(bundle) << bundle->chunk_log2;
    void *memory;
    TRY(list_offsets(incoming));
    TRY(xci_allocate_array(context, bundle->tensor_count, sizeof(void *), &memory));
    incoming->from = memory;
    TRY(xci_pinned_allocate(context, table_bytes, &incoming->pinned));
    TRY(xci_device_allocate(context, table_bytes, &incoming->table));
    TRY(xci_device_allocate(context, small_bytes, &incoming->small));
    incoming->at = (uint8_t **)(void *)incoming->pinned.at;
    incoming->device_at = (uint8_t *const *)(const void *)incoming->table.at;
    for (uint64_t c = 0; c < bundle->layout.chunk_count; c++)
        incoming->at[c] =
            c < bundle->whole_chunk_count
                ? NULL
                : incoming->small.at + ((c - bundle->whole_chunk_count) << bundle->chunk_log2);
    XCI_DEVICE(
        context, "copy a table",
        device->ops->copy_now(device->handle, incoming->table.at, incoming->at, table_bytes));
    /* The padding between tensors is zero in a delta's eyes, and nobody else writes it. */
    if (small_bytes > 0) {
        XCI_DEVICE(context, "clear memory",
                   device->ops->fill(device->handle, incoming->small.at, 0, small_bytes, NULL));
        XCI_DEVICE(context, "clear memory", device->ops->stream_wait(device->handle, NULL));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_incoming_open(xci_device_incoming *incoming, xorcast_bundle *bundle) {
    *incoming = (xci_device_incoming){.context = bundle->context, .bundle = bundle};
    return open_parts(incoming);
}

void xci_device_incoming_close(xci_device_incoming *incoming) {
    if (incoming->context == NULL)
        return;
    xci_device_release(incoming->context, &incoming->small);
    xci_device_release(incoming->context, &incoming->table);
    xci_device_release(incoming->context, &incoming->device_moves);
    xci_pinned_release(incoming->context, &incoming->pinned);
    xci_release(incoming->context, incoming->moves);
    xci_release(incoming->context, incoming->offsets);
    xci_release(incoming->context, incoming->from);
    *incoming = (xci_device_incoming){0};
}

xorcast_status xci_device_incoming_check(xci_device_incoming *incoming, uint64_t count,
                                         const uint64_t *indices, const void *const *data) {
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_device *device = incoming->context->shared->device;
    xci_device_stretch known = {0};
    for (uint64_t i = 0; i < count && data != NULL; i++) {
        const uint64_t t = indices != NULL ? indices[i] : i;
        bool owns = true;
        if (t >= bundle->tensor_count || bundle->tensors[t].bytes == 0 || data[i] == NULL)
            continue;
        TRY(xci_device_owns(incoming->context, &known, data[i], &owns));
        const xci_place place = {t, XORCAST_NO_INDEX, 0};
        if (!owns)
            FAIL_AT(incoming->context, XORCAST_BAD_ARGUMENT, place,
                    "the new bytes of tensor %s do not lie in memory of device %d, where the "
                    "bundle's tensors do",
                    bundle->tensors[t].name, device->ordinal);
    }
    return XORCAST_OK;
}

/* ---- Taking ---- */

typedef struct listing {
    xci_device_incoming *incoming;
    uint8_t *to; /* the tensor's place in `small` */
    xorcast_status status;
} listing;

static xorcast_status list_move(xci_device_incoming *incoming, uint8_t *to, const void *from,
                                uint64_t bytes) {
    void *memory = incoming->moves;
    const xorcast_status status = xci_reserve(incoming->context, &memory, &incoming->moves_capacity,
                                              (incoming->move_count + 1) * sizeof(xci_cuda_move));
    incoming->moves = memory;
    TRY(status);
    incoming->moves[incoming->move_count++] = (xci_cuda_move){from, to, bytes};
    return XORCAST_OK;
}

static void list_span(void *user, const xci_span *span) {
    listing *l = user;
    if (l->status == XORCAST_OK && !span->region->replica)
        l->status = list_move(l->incoming, l->to + span->offset, span->region->data + span->at,
                              span->bytes);
}

static xorcast_status take_small(xci_device_incoming *incoming, uint64_t t, const void *data) {
    const xci_tensor *tensor = &incoming->bundle->tensors[t];
    listing l = {incoming, incoming->at[tensor->first_chunk] + incoming->offsets[t],
                 XORCAST_OK};
    if (data != NULL)
        return list_move(incoming, l.to, data, tensor->bytes);
    xci_spans(tensor, 0, tensor->bytes, list_span, &l);
    return l.status;
}

xorcast_status xci_device_incoming_take(xci_device_incoming *incoming, uint64_t t,
                                        const void *data) {
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_tensor *tensor = &bundle->tensors[t];
    if (tensor->bytes == 0)
        return XORCAST_OK;
    if (tensor->bytes < XCI_SMALL_BYTES)
        return take_small(incoming, t, data);
    const uint64_t count = xci_divide_up(tensor->bytes, bundle->layout.chunk_bytes);
    uint8_t *from = (uint8_t *)(uintptr_t)data;
    if (data == NULL && tensor->simple)
        from = tensor->regions[0].data;
    incoming->own = incoming->own && data == NULL;
    if (from == incoming->from[t] && from != NULL)
        return XORCAST_OK;
    for (uint64_t i = 0; i < count; i++)
        incoming->at[tensor->first_chunk + i] =
            from == NULL ? NULL : from + (i << bundle->chunk_log2);
    incoming->from[t] = from;
    incoming->scattered |= from == NULL;
    return XORCAST_OK;
}

xorcast_status xci_device_incoming_take_all(xci_device_incoming *incoming) {
    const xorcast_bundle *bundle = incoming->bundle;
    for (uint64_t t = 0; t < bundle->tensor_count && !incoming->own; t++)
        if (bundle->tensors[t].bytes >= XCI_SMALL_BYTES)
            TRY(xci_device_incoming_take(incoming, t, NULL));
    incoming->own = true;
    return XORCAST_OK;
}

/* ---- Copying small tensors ---- */

static xorcast_status gather_all(xci_device_incoming *incoming, void *stream) {
    const xorcast_bundle *bundle = incoming->bundle;
    const xci_device *device = incoming->context->shared->device;
    const xci_cuda_copy_call call = {bundle->map->grid, bundle->map->places,
                                     bundle->whole_chunk_count, packed_chunk_count(bundle),
                                     incoming->device_at + bundle->whole_chunk_count};
    return xci_device_result(incoming->context, device->ops->gather(device->handle, &call, stream),
                             "gather small tensors");
}

static xorcast_status copy_listed(xci_device_incoming *incoming, uint64_t count, void *stream) {
    xorcast_context *context = incoming->context;
    const xci_device *device = context->shared->device;
    const uint64_t bytes = count * sizeof(xci_cuda_move);
    TRY(xci_device_reserve(context, &incoming->device_moves, bytes));
    XCI_DEVICE(
        context, "copy a table",
        device->ops->copy_now(device->handle, incoming->device_moves.at, incoming->moves, bytes));
    return xci_device_result(
        context,
        device->ops->copy_many(device->handle,
                               (const xci_cuda_move *)(const void *)incoming->device_moves.at,
                               count, stream),
        "copy small tensors");
}

xorcast_status xci_device_incoming_gather(xci_device_incoming *incoming, bool all, void *stream) {
    const uint64_t count = incoming->move_count;
    incoming->move_count = 0;
    if (all)
        return packed_chunk_count(incoming->bundle) > 0 ? gather_all(incoming, stream)
                                                        : XORCAST_OK;
    return count > 0 ? copy_listed(incoming, count, stream) : XORCAST_OK;
}
