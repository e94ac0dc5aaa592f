/* Scans: see scan.h. The pool takes groups; each worker sums for itself. */
#include "delta/scan.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "base/pool.h"
#include "base/progress.h"
#include "delta/device_scans.h"
#include "delta/group_apply.h"

typedef struct scan_job {
    xorcast_bundle *bundle;
    xorcast_digest *chunk_digests;
    xci_apply_worker *workers;
    xorcast_digest *group_digests;
} scan_job;

static xorcast_status scan_group(void *user, uint64_t group, uint32_t worker) {
    scan_job *job = user;
    xci_apply_worker *scratch = &job->workers[worker];
    xorcast_digest sum = {{0, 0}};
    for (uint64_t c = job->bundle->group_first[group]; c < job->bundle->group_first[group + 1];
         c++) {
        xorcast_digest digest;
        TRY(xci_chunk_digest(job->bundle, c, scratch->weights, scratch->segments, &digest));
        xci_digest_merge(&sum, &digest);
        if (job->chunk_digests != NULL)
            job->chunk_digests[c] = digest;
    }
    job->group_digests[group] = sum;
    return xci_progress_step(job->bundle->context, worker,
                             xci_bundle_group_size(job->bundle, group));
}

typedef struct device_sums {
    xorcast_digest *chunk_digests; /* NULL: not wanted */
    xorcast_digest sum;
} device_sums;

static xorcast_status take_digests(void *user, uint64_t first, uint64_t count,
                                   const xorcast_digest *digests) {
    device_sums *sums = user;
    for (uint64_t i = 0; i < count; i++) {
        if (sums->chunk_digests != NULL)
            sums->chunk_digests[first + i] = digests[i];
        xci_digest_merge(&sums->sum, &digests[i]);
    }
    return XORCAST_OK;
}

static xorcast_status scan_device(xorcast_bundle *bundle, xorcast_digest *chunk_digests,
                                  xorcast_digest *sum_out) {
    device_sums sums = {chunk_digests, {{0, 0}}};
    xci_device_scans scans;
    uint64_t position = 0;
    TRY(xci_device_scans_open(&scans, bundle, UINT64_MAX));
    const xorcast_status status =
        xci_device_scans_run(&scans, &position, XCI_FOREVER, take_digests, &sums);
    xci_device_scans_close(&scans);
    *sum_out = sums.sum;
    return status;
}

static xorcast_status scan_host(xorcast_bundle *bundle, xorcast_digest *chunk_digests,
                                xorcast_digest *sum_out) {
    xorcast_context *context = bundle->context;
    const uint64_t group_count = bundle->layout.group_count;
    scan_job job = {bundle, chunk_digests, NULL, NULL};
    void *memory;
    TRY(xci_allocate_array(context, group_count, sizeof(xorcast_digest), &memory));
    job.group_digests = memory;
    xorcast_status status = xci_apply_workers_open(bundle, &job.workers);
    if (status == XORCAST_OK)
        status = xci_pool_run(context->shared->pool, group_count, scan_group, &job);
    xorcast_digest sum = {{0, 0}};
    for (uint64_t g = 0; g < group_count && status == XORCAST_OK; g++)
        xci_digest_merge(&sum, &job.group_digests[g]);
    xci_apply_workers_close(context, job.workers);
    xci_release(context, memory);
    TRY(status);
    *sum_out = sum;
    return XORCAST_OK;
}

xorcast_status xci_bundle_scan(xorcast_bundle *bundle, xorcast_digest *chunk_digests,
                               xorcast_digest *sum_out) {
    return bundle->on_device ? scan_device(bundle, chunk_digests, sum_out)
                             : scan_host(bundle, chunk_digests, sum_out);
}

xorcast_status xorcast_bundle_digest(xorcast_bundle *bundle, xorcast_digest *digest_out) {
    TRY(xci_bundle_need_sealed(bundle));
    return xci_bundle_scan(bundle, NULL, digest_out);
}
