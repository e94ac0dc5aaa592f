/* Digests of chunks as they are now, for an audit of weights in device memory. Where a bundle lies
 * on several devices, each scans what it has of a slice, and a chunk's digest is the sum. */
#ifndef XCI_DEVICE_AUDIT_H
#define XCI_DEVICE_AUDIT_H

#include "bundle/shares.h"
#include "delta/device_scan.h"

typedef struct xci_device_audit {
    xorcast_bundle *bundle;
    xci_device_scanner *scanners; /* one for each share */
    uint32_t count;
    xorcast_digest *sums; /* of a slice; of several shares only */
} xci_device_audit;

xorcast_status xci_device_audit_open(xci_device_audit *audit, xorcast_bundle *bundle);
void xci_device_audit_close(xci_device_audit *audit);
/* As xci_device_scan, of the bundle's chunks from `first` on. */
xorcast_status xci_device_audit_scan(xci_device_audit *audit, uint64_t first, uint64_t deadline_ns,
                                     xci_scan_take take, void *user);

#endif
