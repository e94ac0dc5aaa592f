/* Full reads of weights in device memory: the digest of every chunk, in slices. While the host
 * takes one slice the device reads the next, so that it never waits. One scanner for one thread. */
#ifndef XCI_DEVICE_SCAN_H
#define XCI_DEVICE_SCAN_H

#include "bundle/device_map.h"
#include "base/clock.h"

#define XCI_SCAN_LANES 2u

/* A slice on its way. */
typedef struct xci_scan_lane {
    void *stream;
    xci_device_memory digests, pinned;
} xci_scan_lane;

typedef struct xci_device_scanner {
    xorcast_context *context;
    void *event;
    uint64_t slice_most;   /* chunks */
    uint64_t begun, taken; /* slices of a scan; lanes go round */
    xci_scan_lane lanes[XCI_SCAN_LANES];
} xci_device_scanner;

/* Gets digests of chunks [first, first + count), which stay until it returns. */
typedef xorcast_status (*xci_scan_take)(void *user, uint64_t first, uint64_t count,
                                        const xorcast_digest *digests);

/* For maps of up to `chunk_count` chunks: what is more only makes slices shorter. */
xorcast_status xci_device_scanner_open(xci_device_scanner *scanner, xorcast_context *context,
                                       uint64_t chunk_count);
void xci_device_scanner_close(xci_device_scanner *scanner);

/* Gives the digests of chunks [first, first + count) of a map to `take`, slice by slice in order,
 * after what is on the default stream now. No slice is begun behind the deadline, but the first;
 * IN_PROGRESS: not all were. What `take` returns instead of OK ends the scan. */
xorcast_status xci_device_scan(xci_device_scanner *scanner, const xci_device_map *map,
                               uint64_t first, uint64_t count, uint64_t deadline_ns,
                               xci_scan_take take, void *user);

/* ---- Slice by slice, for who has several scanners (device_scans.h) ---- */

/* Chunks of a slice. */
uint64_t xci_device_scan_slice(const xci_device_scanner *scanner, const xci_device_map *map);
/* A scan begins, after what is on the default stream now. */
xorcast_status xci_device_scan_start(xci_device_scanner *scanner);
/* Whether another slice can be begun before one is taken. */
bool xci_device_scan_free(const xci_device_scanner *scanner);
xorcast_status xci_device_scan_begin(xci_device_scanner *scanner, const xci_device_map *map,
                                     uint64_t first, uint64_t count);
/* Waits for the slice that was begun first; its digests stay until the next one is begun. */
xorcast_status xci_device_scan_end(xci_device_scanner *scanner, const xorcast_digest **digests_out);
/* A scan failed: nothing of it writes what the next one reads. */
void xci_device_scan_drop(xci_device_scanner *scanner);

#endif
