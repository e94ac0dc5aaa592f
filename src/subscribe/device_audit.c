/* Audits on devices: see device_audit.h. */
#include "subscribe/device_audit.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"

#define SLICE_CHUNKS UINT64_C(65536) /* that all shares scan before their sums are looked at */

static uint64_t slice_most(const xorcast_bundle *bundle) {
    return xci_min(SLICE_CHUNKS, bundle->layout.chunk_count);
}

static xorcast_status open_parts(xci_device_audit *audit) {
    const xorcast_bundle *bundle = audit->bundle;
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->share_count, sizeof(xci_device_scanner),
                           &memory));
    audit->scanners = memory;
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        TRY(xci_device_scanner_open(&audit->scanners[s], bundle->shares[s]->context,
                                    bundle->layout.chunk_count));
        audit->count++;
    }
    if (audit->count == 1)
        return XORCAST_OK;
    TRY(xci_allocate_array(bundle->context, slice_most(bundle), sizeof(xorcast_digest), &memory));
    audit->sums = memory;
    return XORCAST_OK;
}

xorcast_status xci_device_audit_open(xci_device_audit *audit, xorcast_bundle *bundle) {
    *audit = (xci_device_audit){.bundle = bundle};
    const xorcast_status status = open_parts(audit);
    if (status < 0)
        xci_device_audit_close(audit);
    return status;
}

void xci_device_audit_close(xci_device_audit *audit) {
    if (audit->bundle == NULL)
        return;
    for (uint32_t s = 0; s < audit->count; s++)
        xci_device_scanner_close(&audit->scanners[s]);
    xci_release(audit->bundle->context, audit->scanners);
    xci_release(audit->bundle->context, audit->sums);
    *audit = (xci_device_audit){0};
}

typedef struct slice_sums {
    xorcast_digest *sums;
    uint64_t first;
} slice_sums;

static xorcast_status add_digests(void *user, uint64_t first, uint64_t count,
                                  const xorcast_digest *digests) {
    const slice_sums *slice = user;
    for (uint64_t i = 0; i < count; i++)
        xci_digest_merge(&slice->sums[first - slice->first + i], &digests[i]);
    return XORCAST_OK;
}

static xorcast_status scan_slice(xci_device_audit *audit, uint64_t first, uint64_t count) {
    slice_sums slice = {audit->sums, first};
    memset(audit->sums, 0, count * sizeof *audit->sums);
    for (uint32_t s = 0; s < audit->count; s++)
        TRY(xci_device_scan(&audit->scanners[s], audit->bundle->shares[s]->map, first, count,
                            XCI_FOREVER, add_digests, &slice));
    return XORCAST_OK;
}

xorcast_status xci_device_audit_scan(xci_device_audit *audit, uint64_t first, uint64_t deadline_ns,
                                     xci_scan_take take, void *user) {
    const uint64_t chunk_count = audit->bundle->layout.chunk_count;
    if (audit->count == 1)
        return xci_device_scan(&audit->scanners[0], audit->bundle->shares[0]->map, first,
                               chunk_count - first, deadline_ns, take, user);
    for (uint64_t count; first < chunk_count; first += count) {
        count = xci_min(slice_most(audit->bundle), chunk_count - first);
        TRY(scan_slice(audit, first, count));
        TRY(take(user, first, count, audit->sums));
        if (first + count < chunk_count && xci_now_ns() >= deadline_ns)
            return XORCAST_IN_PROGRESS;
    }
    return XORCAST_OK;
}
