/* Device scans: see device_scan.h. */
#include "delta/device_scan.h"

#include <string.h>

#include "base/bytes.h"

static xorcast_status open_parts(xci_device_scanner *scanner) {
    xorcast_context *context = scanner->context;
    const xci_device *device = context->shared->device;
    const uint64_t bytes = XCI_SCAN_SLICE * sizeof(xorcast_digest);
    XCI_DEVICE(context, "make a stream",
               device->ops->stream_open(device->handle, &scanner->stream));
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &scanner->event));
    TRY(xci_device_allocate(context, bytes, &scanner->digests));
    return xci_pinned_allocate(context, bytes, &scanner->pinned);
}

xorcast_status xci_device_scanner_open(xci_device_scanner *scanner, xorcast_context *context) {
    *scanner = (xci_device_scanner){.context = context};
    const xorcast_status status = open_parts(scanner);
    if (status < 0)
        xci_device_scanner_close(scanner);
    return status;
}

void xci_device_scanner_close(xci_device_scanner *scanner) {
    xorcast_context *context = scanner->context;
    if (context == NULL)
        return;
    xci_stream_close(context, &scanner->stream);
    xci_event_close(context, &scanner->event);
    xci_device_release(context, &scanner->digests);
    xci_pinned_release(context, &scanner->pinned);
    *scanner = (xci_device_scanner){0};
}

static xorcast_status scan_slice(xci_device_scanner *scanner, const xci_device_map *map,
                                 uint64_t first, uint64_t count, xorcast_digest *out) {
    xorcast_context *context = scanner->context;
    const xci_device *device = context->shared->device;
    const uint64_t bytes = count * sizeof(xorcast_digest);
    const xci_cuda_digest_call call = {map->grid, map->places, first, count,
                                       (xorcast_digest *)(void *)scanner->digests.at};
    XCI_DEVICE(context, "digest weights",
               device->ops->digest(device->handle, &call, scanner->stream));
    XCI_DEVICE(context, "copy digests",
               device->ops->copy(device->handle, scanner->pinned.at, scanner->digests.at, bytes,
                                 scanner->stream));
    XCI_DEVICE(context, "digest weights",
               device->ops->stream_wait(device->handle, scanner->stream));
    memcpy(out, scanner->pinned.at, bytes);
    return XORCAST_OK;
}

xorcast_status xci_device_scan(xci_device_scanner *scanner, const xci_device_map *map,
                               uint64_t first, uint64_t count, xorcast_digest *digests_out) {
    TRY(xci_stream_follow(scanner->context, scanner->stream, NULL, scanner->event));
    for (uint64_t done = 0; done < count; done += XCI_SCAN_SLICE)
        TRY(scan_slice(scanner, map, first + done, xci_min(XCI_SCAN_SLICE, count - done),
                       digests_out + done));
    return XORCAST_OK;
}
