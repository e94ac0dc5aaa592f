/* Scans on several devices: see device_scans.h. */
#include "delta/device_scans.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"

/* ---- Opening and closing ---- */

static uint64_t slice_count(const xci_device_scans *scans) {
    return xci_divide_up(scans->bundle->layout.chunk_count, scans->slice);
}

static uint64_t slice_end(const xci_device_scans *scans, uint64_t index) {
    return xci_min((index + 1) * scans->slice, scans->bundle->layout.chunk_count);
}

static xorcast_status list_shares(xci_device_scans *scans) {
    const xorcast_bundle *bundle = scans->bundle;
    const uint64_t all = UINT64_MAX >> (64 - bundle->share_count);
    void *memory;
    TRY(xci_allocate_array(bundle->context, slice_count(scans), sizeof *scans->shares, &memory));
    scans->shares = memory;
    for (uint64_t i = 0; i < slice_count(scans); i++) {
        scans->shares[i] = bundle->share_count == 1;
        for (uint64_t c = i * scans->slice; c < slice_end(scans, i) && scans->shares[i] != all; c++)
            scans->shares[i] |= xci_shares_of_chunk(bundle, c);
    }
    return XORCAST_OK;
}

static xorcast_status open_parts(xci_device_scans *scans, uint64_t slice_most) {
    const xorcast_bundle *bundle = scans->bundle;
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->share_count, sizeof(xci_device_scanner),
                           &memory));
    scans->scanners = memory;
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        TRY(xci_device_scanner_open(&scans->scanners[s], bundle->shares[s]->context,
                                    bundle->layout.chunk_count));
        scans->count++;
    }
    scans->slice =
        xci_min(slice_most, xci_device_scan_slice(&scans->scanners[0], bundle->shares[0]->map));
    TRY(list_shares(scans));
    if (scans->count == 1)
        return XORCAST_OK;
    TRY(xci_allocate_array(bundle->context, scans->slice, sizeof(xorcast_digest), &memory));
    scans->sums = memory;
    return XORCAST_OK;
}

xorcast_status xci_device_scans_open(xci_device_scans *scans, xorcast_bundle *bundle,
                                     uint64_t slice_most) {
    *scans = (xci_device_scans){.bundle = bundle};
    const xorcast_status status = open_parts(scans, slice_most);
    if (status < 0)
        xci_device_scans_close(scans);
    return status;
}

void xci_device_scans_close(xci_device_scans *scans) {
    if (scans->bundle == NULL)
        return;
    xorcast_context *context = scans->bundle->context;
    for (uint32_t s = 0; s < scans->count; s++)
        xci_device_scanner_close(&scans->scanners[s]);
    xci_release(context, scans->scanners);
    xci_release(context, scans->shares);
    xci_release(context, scans->sums);
    *scans = (xci_device_scans){0};
}

/* ---- Slices in their order ---- */

/* Runs of slices, one for each share, take turns; some end before the others. */
static uint64_t run_length(const xci_device_scans *scans) {
    return xci_divide_up(slice_count(scans), scans->count);
}

static bool slice_at(const xci_device_scans *scans, uint64_t position, uint64_t *index_out) {
    *index_out = position % scans->count * run_length(scans) + position / scans->count;
    return *index_out < slice_count(scans);
}

static bool may_begin(const xci_device_scans *scans, uint64_t index) {
    for (uint32_t s = 0; s < scans->count; s++)
        if ((scans->shares[index] >> s & 1) != 0 && !xci_device_scan_free(&scans->scanners[s]))
            return false;
    return true;
}

static xorcast_status begin_slice(xci_device_scans *scans, uint64_t index) {
    const uint64_t first = index * scans->slice, count = slice_end(scans, index) - first;
    for (uint32_t s = 0; s < scans->count; s++)
        if ((scans->shares[index] >> s & 1) != 0)
            TRY(xci_device_scan_begin(&scans->scanners[s], scans->bundle->shares[s]->map, first,
                                      count));
    return XORCAST_OK;
}

static xorcast_status take_slice(xci_device_scans *scans, uint64_t index, xci_scan_take take,
                                 void *user) {
    const uint64_t first = index * scans->slice, count = slice_end(scans, index) - first;
    const xorcast_digest *digests;
    if (scans->count == 1) {
        TRY(xci_device_scan_end(&scans->scanners[0], &digests));
        return take(user, first, count, digests);
    }
    memset(scans->sums, 0, count * sizeof *scans->sums);
    for (uint32_t s = 0; s < scans->count; s++) {
        if ((scans->shares[index] >> s & 1) == 0)
            continue;
        TRY(xci_device_scan_end(&scans->scanners[s], &digests));
        for (uint64_t i = 0; i < count; i++)
            xci_digest_merge(&scans->sums[i], &digests[i]);
    }
    return take(user, first, count, scans->sums);
}

static xorcast_status run_slices(xci_device_scans *scans, uint64_t *position, uint64_t deadline_ns,
                                 xci_scan_take take, void *user) {
    const uint64_t end = scans->count * run_length(scans);
    uint64_t begun = *position, index;
    bool any = false;
    for (uint32_t s = 0; s < scans->count; s++)
        TRY(xci_device_scan_start(&scans->scanners[s]));
    for (; *position < end; ++*position) {
        for (; begun < end; begun++) {
            const bool there = slice_at(scans, begun, &index);
            if (there && (!may_begin(scans, index) || (any && xci_now_ns() >= deadline_ns)))
                break;
            if (there)
                TRY(begin_slice(scans, index));
            any = any || there;
        }
        if (begun == *position)
            return XORCAST_IN_PROGRESS;
        if (slice_at(scans, *position, &index))
            TRY(take_slice(scans, index, take, user));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_scans_run(xci_device_scans *scans, uint64_t *position,
                                    uint64_t deadline_ns, xci_scan_take take, void *user) {
    const xorcast_status status = run_slices(scans, position, deadline_ns, take, user);
    for (uint32_t s = 0; s < scans->count && status < 0; s++)
        xci_device_scan_drop(&scans->scanners[s]);
    return status;
}
