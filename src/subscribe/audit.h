/* Audit: a full scan of live weights in slices, compared with the digests that their chunks should
 * have. Remembers how far it came. Weights in device memory are scanned by
 * delta/device_scans.h. */
#ifndef XCI_AUDIT_H
#define XCI_AUDIT_H

#include "delta/device_scans.h"
#include "subscribe/chunk_digests.h"

typedef struct xci_audit {
    const xci_chunk_digests *expected;
    uint64_t next;          /* chunk, or position of the scans */
    xci_device_scans scans; /* of weights in device memory */
} xci_audit;

xorcast_status xci_audit_open(xci_audit *audit, const xci_chunk_digests *expected);
void xci_audit_close(xci_audit *audit);

/* From the next chunk on. IN_PROGRESS: the deadline came first. WEIGHTS_WRONG names a chunk that is
 * not what version `step` should be. After OK and WEIGHTS_WRONG the next call begins anew. */
xorcast_status xci_audit_run(xci_audit *audit, uint64_t step, uint64_t deadline_ns);

#endif
