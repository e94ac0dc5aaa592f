/* Shadows of device weights: see device_shadow.h. */
#include "publish/device_shadow.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "delta/device_load.h"
#include "delta/device_scan.h"

struct xci_device_shadow {
    xorcast_context *context;
    xorcast_bundle *twin;
    bool in_host;
    xci_device_memory memory; /* of the weights */
    xci_device_map *map;      /* the twin's, if it lies on the device */
    xci_device_loader loader; /* likewise: takes back */
    atomic_bool lost;
};

static xorcast_status place(xci_device_shadow *shadow, const xorcast_bundle *bundle) {
    xorcast_context *context = shadow->context;
    const uint64_t bytes = xci_twin_bytes(shadow->twin, false);
    TRY(shadow->in_host ? xci_pinned_allocate(context, bytes, &shadow->memory)
                        : xci_device_allocate(context, bytes, &shadow->memory));
    xci_twin_place(shadow->twin, false, shadow->memory.at);
    TRY(xci_device_map_open(shadow->twin, bundle, &shadow->map));
    if (shadow->in_host)
        return XORCAST_OK;
    for (uint64_t t = 0; t < shadow->twin->tensor_count; t++)
        shadow->twin->regions[t].kind = XCI_KIND_DEVICE;
    shadow->twin->on_device = true;
    return xci_device_loader_open(&shadow->loader, shadow->twin, shadow->map, XCI_LOAD_APPLY_OWN,
                                  NULL);
}

/* Each chunk from its place in the bundle to its place in the shadow. */
static xorcast_status copy_all(xci_device_shadow *shadow, const xorcast_bundle *bundle) {
    xorcast_context *context = shadow->context;
    const xci_device *device = context->shared->device;
    const xci_cuda_copy_call call = {bundle->map->grid, bundle->map->places, 0,
                                     bundle->layout.chunk_count, shadow->map->places.direct};
    XCI_DEVICE(context, "copy weights", device->ops->gather(device->handle, &call, NULL));
    XCI_DEVICE(context, "copy weights", device->ops->stream_wait(device->handle, NULL));
    return XORCAST_OK;
}

static xorcast_status digest_slices(xci_device_shadow *shadow, xci_device_scanner *scanner,
                                    xorcast_digest *slice, xorcast_digest *const *group_digests) {
    const xorcast_bundle *twin = shadow->twin;
    const uint64_t chunk_count = twin->layout.chunk_count;
    uint64_t group = 0;
    for (uint64_t first = 0; first < chunk_count; first += XCI_SCAN_SLICE) {
        const uint64_t count = xci_min(XCI_SCAN_SLICE, chunk_count - first);
        TRY(xci_device_scan(scanner, shadow->map, first, count, slice));
        for (uint64_t i = 0; i < count; i++) {
            while (twin->group_first[group + 1] <= first + i)
                group++;
            xci_digest_merge(group_digests[group], &slice[i]);
        }
    }
    return XORCAST_OK;
}

static xorcast_status digest_all(xci_device_shadow *shadow, xorcast_digest *const *group_digests) {
    xorcast_context *context = shadow->context;
    xci_device_scanner scanner;
    void *memory;
    TRY(xci_allocate_array(context, xci_min(XCI_SCAN_SLICE, shadow->twin->layout.chunk_count),
                           sizeof(xorcast_digest), &memory));
    xorcast_status status = xci_device_scanner_open(&scanner, context);
    if (status == XORCAST_OK)
        status = digest_slices(shadow, &scanner, memory, group_digests);
    xci_device_scanner_close(&scanner);
    xci_release(context, memory);
    return status;
}

xorcast_status xci_device_shadow_open(xorcast_bundle *twin, xorcast_bundle *bundle, bool in_host,
                                      xorcast_digest *const *group_digests,
                                      xci_device_shadow **shadow_out) {
    void *memory;
    TRY(xci_allocate_zeroed(twin->context, sizeof(xci_device_shadow), &memory));
    xci_device_shadow *shadow = memory;
    shadow->context = twin->context;
    shadow->twin = twin;
    shadow->in_host = in_host;
    atomic_init(&shadow->lost, false);
    xorcast_status status = place(shadow, bundle);
    if (status == XORCAST_OK)
        status = copy_all(shadow, bundle);
    if (status == XORCAST_OK)
        status = digest_all(shadow, group_digests);
    if (status < 0) {
        xci_device_shadow_close(shadow);
        return status;
    }
    *shadow_out = shadow;
    return XORCAST_OK;
}

void xci_device_shadow_close(xci_device_shadow *shadow) {
    if (shadow == NULL)
        return;
    xci_device_loader_close(&shadow->loader);
    xci_device_map_close(shadow->map);
    if (shadow->in_host)
        xci_pinned_release(shadow->context, &shadow->memory);
    else
        xci_device_release(shadow->context, &shadow->memory);
    xci_release(shadow->context, shadow);
}

bool xci_device_shadow_on_device(const xci_device_shadow *shadow) {
    return !shadow->in_host;
}

const xci_device_map *xci_device_shadow_map(const xci_device_shadow *shadow) {
    return shadow->map;
}

xorcast_status xci_device_shadow_read(xci_device_shadow *shadow, xorcast_context *context,
                                      uint64_t chunk, uint32_t bytes, uint8_t *out) {
    const xci_device *device = context->shared->device;
    TRY(xci_device_shadow_check(shadow, context));
    return xci_device_result(
        context, device->ops->copy_now(device->handle, out, shadow->map->direct[chunk], bytes),
        "copy a group to the host");
}

/* ---- Back ---- */

xorcast_status xci_device_shadow_undo(xci_device_shadow *shadow, const xci_ahead *ahead,
                                      uint64_t group) {
    if (ahead->record.block_count > 0)
        TRY(xci_device_load(&shadow->loader, &ahead->record, 1, NULL));
    for (const xci_ahead_piece *piece = ahead->pieces; piece != NULL; piece = piece->next) {
        const xci_record record = xci_ahead_record(piece, group);
        TRY(xci_device_load(&shadow->loader, &record, 1, NULL));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_shadow_undone(xci_device_shadow *shadow) {
    const xorcast_status status = xci_device_load_end(&shadow->loader);
    if (status < 0)
        xci_device_load_drop(&shadow->loader);
    return status;
}

void xci_device_shadow_lose(xci_device_shadow *shadow) {
    atomic_store(&shadow->lost, true);
}

xorcast_status xci_device_shadow_check(xci_device_shadow *shadow, xorcast_context *context) {
    if (atomic_load(&shadow->lost))
        FAIL(context, XORCAST_DEVICE_FAILED,
             "the device failed while this publisher's shadow moved; open another publisher");
    return XORCAST_OK;
}
