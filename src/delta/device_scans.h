/* Full reads of a bundle's weights on all its devices, side by side: the digest of every chunk, in
 * slices. Each device scans what it has of a slice, and a chunk's digest is the sum. Slices come in
 * an order in which neighbours are far from each other, so that all devices have work whether
 * tensors take turns on them or each has a run of them. One thread. */
#ifndef XCI_DEVICE_SCANS_H
#define XCI_DEVICE_SCANS_H

#include "bundle/shares.h"
#include "delta/device_scan.h"

typedef struct xci_device_scans {
    xorcast_bundle *bundle;
    xci_device_scanner *scanners; /* one for each share */
    uint32_t count;
    uint64_t slice;       /* chunks of one */
    uint64_t *shares;     /* of each slice, bits of those that hold some of it */
    xorcast_digest *sums; /* of a slice; of several shares only */
} xci_device_scans;

/* Slices have `slice_most` chunks at most, and no more than a scanner has room for. */
xorcast_status xci_device_scans_open(xci_device_scans *scans, xorcast_bundle *bundle,
                                     uint64_t slice_most);
void xci_device_scans_close(xci_device_scans *scans);
/* Gives `take` the digests of all chunks from `*position` on, which is 0 at first and moves by what
 * was taken, after what is on the default streams now. No slice is begun behind the deadline, but
 * the first; IN_PROGRESS: not all were. What `take` returns instead of OK ends the scan. */
xorcast_status xci_device_scans_run(xci_device_scans *scans, uint64_t *position,
                                    uint64_t deadline_ns, xci_scan_take take, void *user);

#endif
