/* Device scans: see device_scan.h. */
#include "delta/device_scan.h"

#include "base/bytes.h"

/* Of a slice: half a millisecond of reading, and what its lane's memory holds. */
#define SLICE_BYTES (UINT64_C(2) << 30)
#define SLICE_CHUNKS 65536u

static xorcast_status open_lane(xci_device_scanner *scanner, xci_scan_lane *lane) {
    xorcast_context *context = scanner->context;
    const xci_device *device = context->shared->device;
    const uint64_t bytes = scanner->slice_most * sizeof(xorcast_digest);
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &lane->stream));
    TRY(xci_device_allocate(context, bytes, &lane->digests));
    return xci_pinned_allocate(context, bytes, &lane->pinned);
}

static xorcast_status open_parts(xci_device_scanner *scanner) {
    xorcast_context *context = scanner->context;
    const xci_device *device = context->shared->device;
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &scanner->event));
    for (uint32_t i = 0; i < XCI_SCAN_LANES; i++)
        TRY(open_lane(scanner, &scanner->lanes[i]));
    return XORCAST_OK;
}

xorcast_status xci_device_scanner_open(xci_device_scanner *scanner, xorcast_context *context,
                                       uint64_t chunk_count) {
    *scanner = (xci_device_scanner){.context = context,
                                    .slice_most = xci_min(SLICE_CHUNKS, xci_max(chunk_count, 1))};
    const xorcast_status status = open_parts(scanner);
    if (status < 0)
        xci_device_scanner_close(scanner);
    return status;
}

void xci_device_scanner_close(xci_device_scanner *scanner) {
    xorcast_context *context = scanner->context;
    if (context == NULL)
        return;
    for (uint32_t i = 0; i < XCI_SCAN_LANES; i++) {
        xci_stream_close(context, &scanner->lanes[i].stream);
        xci_device_release(context, &scanner->lanes[i].digests);
        xci_pinned_release(context, &scanner->lanes[i].pinned);
    }
    xci_event_close(context, &scanner->event);
    *scanner = (xci_device_scanner){0};
}

/* ---- Slices ---- */

uint64_t xci_device_scan_slice(const xci_device_scanner *scanner, const xci_device_map *map) {
    return xci_min(xci_max(SLICE_BYTES / map->grid.chunk_bytes, 1), scanner->slice_most);
}

xorcast_status xci_device_scan_start(xci_device_scanner *scanner) {
    scanner->begun = scanner->taken = 0;
    for (uint32_t i = 0; i < XCI_SCAN_LANES; i++)
        TRY(xci_stream_follow(scanner->context, scanner->lanes[i].stream, NULL, scanner->event));
    return XORCAST_OK;
}

bool xci_device_scan_free(const xci_device_scanner *scanner) {
    return scanner->begun < scanner->taken + XCI_SCAN_LANES;
}

xorcast_status xci_device_scan_begin(xci_device_scanner *scanner, const xci_device_map *map,
                                     uint64_t first, uint64_t count) {
    xorcast_context *context = scanner->context;
    xci_scan_lane *lane = &scanner->lanes[scanner->begun++ % XCI_SCAN_LANES];
    const xci_device *device = context->shared->device;
    const xci_cuda_digest_call call = {map->grid, map->places, first, count,
                                       (xorcast_digest *)(void *)lane->digests.at};
    XCI_DEVICE(context, "digest weights", device->ops->digest(device->handle, &call, lane->stream));
    return xci_device_result(context,
                             device->ops->copy(device->handle, lane->pinned.at, lane->digests.at,
                                               count * sizeof(xorcast_digest), lane->stream),
                             "copy digests");
}

xorcast_status xci_device_scan_end(xci_device_scanner *scanner,
                                   const xorcast_digest **digests_out) {
    const xci_scan_lane *lane = &scanner->lanes[scanner->taken++ % XCI_SCAN_LANES];
    const xci_device *device = scanner->context->shared->device;
    XCI_DEVICE(scanner->context, "digest weights",
               device->ops->stream_wait(device->handle, lane->stream));
    *digests_out = (const xorcast_digest *)(const void *)lane->pinned.at;
    return XORCAST_OK;
}

void xci_device_scan_drop(xci_device_scanner *scanner) {
    const xci_device *device = scanner->context->shared->device;
    for (uint32_t i = 0; i < XCI_SCAN_LANES; i++)
        (void)device->ops->stream_wait(device->handle, scanner->lanes[i].stream);
}

/* ---- One scanner ---- */

static xorcast_status scan_slices(xci_device_scanner *scanner, const xci_device_map *map,
                                  uint64_t first, uint64_t count, uint64_t deadline_ns,
                                  xci_scan_take take, void *user) {
    const uint64_t slice = xci_device_scan_slice(scanner, map);
    const uint64_t slices = xci_divide_up(count, slice);
    TRY(xci_device_scan_start(scanner));
    for (uint64_t taken = 0; taken < slices; taken++) {
        const xorcast_digest *digests;
        const uint64_t at = taken * slice;
        while (scanner->begun < slices && xci_device_scan_free(scanner) &&
               (scanner->begun == 0 || xci_now_ns() < deadline_ns)) {
            const uint64_t next = scanner->begun * slice;
            TRY(xci_device_scan_begin(scanner, map, first + next, xci_min(slice, count - next)));
        }
        if (scanner->begun == taken)
            return XORCAST_IN_PROGRESS;
        TRY(xci_device_scan_end(scanner, &digests));
        TRY(take(user, first + at, xci_min(slice, count - at), digests));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_scan(xci_device_scanner *scanner, const xci_device_map *map,
                               uint64_t first, uint64_t count, uint64_t deadline_ns,
                               xci_scan_take take, void *user) {
    const xorcast_status status = scan_slices(scanner, map, first, count, deadline_ns, take, user);
    if (status < 0)
        xci_device_scan_drop(scanner);
    return status;
}
