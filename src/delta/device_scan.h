/* Full reads of weights in device memory: the digest of every chunk, in slices. One scanner for one
 * thread. */
#ifndef XCI_DEVICE_SCAN_H
#define XCI_DEVICE_SCAN_H

#include "bundle/device_map.h"

#define XCI_SCAN_SLICE 65536u /* chunks a launch: 1 MiB of digests, some milliseconds of reading */

typedef struct xci_device_scanner {
    xorcast_context *context;
    void *stream, *event;
    xci_device_memory digests, pinned; /* of a slice */
} xci_device_scanner;

xorcast_status xci_device_scanner_open(xci_device_scanner *scanner, xorcast_context *context);
void xci_device_scanner_close(xci_device_scanner *scanner);

/* Digests of chunks [first, first + count) of a map, after what is on the default stream now. */
xorcast_status xci_device_scan(xci_device_scanner *scanner, const xci_device_map *map,
                               uint64_t first, uint64_t count, xorcast_digest *digests_out);

#endif
