/* Audits: see audit.h. In host memory the pool takes chunks. */
#include "subscribe/audit.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/pool.h"
#include "delta/group_apply.h"

xorcast_status xci_audit_open(xci_audit *audit, const xci_chunk_digests *expected) {
    *audit = (xci_audit){.expected = expected};
    return expected->bundle->on_device
               ? xci_device_scans_open(&audit->scans, expected->bundle, UINT64_MAX)
               : XORCAST_OK;
}

void xci_audit_close(xci_audit *audit) {
    xci_device_scans_close(&audit->scans);
}

typedef struct audit_job {
    xci_audit *audit;
    uint64_t step;
    xci_apply_worker *workers; /* of weights in host memory */
} audit_job;

static xorcast_status compare_chunk(const audit_job *job, uint64_t chunk,
                                    const xorcast_digest *digest) {
    xorcast_bundle *bundle = job->audit->expected->bundle;
    const xorcast_digest *expected = &job->audit->expected->chunks[chunk];
    char words[300];
    if (digest->lane[0] == expected->lane[0] && digest->lane[1] == expected->lane[1])
        return XORCAST_OK;
    const xci_place place = {xci_bundle_tensor_of(bundle, chunk), chunk, 0};
    FAIL_AT(bundle->context, XORCAST_WEIGHTS_WRONG, place,
            "%s is not what version %lld should be; call "
            "xorcast_subscriber_keyframe to repair it",
            xci_chunk_words(bundle, chunk, words, sizeof words), (long long)job->step);
}

/* ---- In host memory ---- */

static xorcast_status audit_chunk(void *user, uint64_t index, uint32_t worker) {
    const audit_job *job = user;
    const uint64_t chunk = job->audit->next + index;
    xci_apply_worker *scratch = &job->workers[worker];
    xorcast_digest digest;
    TRY(xci_chunk_digest(job->audit->expected->bundle, chunk, scratch->weights, scratch->segments,
                         &digest));
    return compare_chunk(job, chunk, &digest);
}

/* The clock is looked at between slices: some milliseconds of reading. */
static xorcast_status audit_slices(audit_job *job, uint64_t deadline_ns) {
    const xorcast_bundle *bundle = job->audit->expected->bundle;
    const uint64_t chunk_count = bundle->layout.chunk_count;
    const uint64_t slice = 16 * (uint64_t)xci_context_threads(bundle->context);
    uint64_t *next = &job->audit->next;
    while (*next < chunk_count) {
        const uint64_t count = xci_min(slice, chunk_count - *next);
        TRY(xci_pool_run(bundle->context->shared->pool, count, audit_chunk, job));
        *next += count;
        if (*next < chunk_count && xci_now_ns() >= deadline_ns)
            return XORCAST_IN_PROGRESS;
    }
    return XORCAST_OK;
}

static xorcast_status audit_host(audit_job *job, uint64_t deadline_ns) {
    xorcast_bundle *bundle = job->audit->expected->bundle;
    xorcast_status status = xci_apply_workers_open(bundle, &job->workers);
    if (status == XORCAST_OK)
        status = audit_slices(job, deadline_ns);
    xci_apply_workers_close(bundle->context, job->workers);
    return status;
}

/* ---- On a device ---- */

static xorcast_status take_slice(void *user, uint64_t first, uint64_t count,
                                 const xorcast_digest *digests) {
    const audit_job *job = user;
    for (uint64_t i = 0; i < count; i++)
        TRY(compare_chunk(job, first + i, &digests[i]));
    return XORCAST_OK;
}

xorcast_status xci_audit_run(xci_audit *audit, uint64_t step, uint64_t deadline_ns) {
    audit_job job = {.audit = audit, .step = step};
    const xorcast_status status =
        audit->expected->bundle->on_device
            ? xci_device_scans_run(&audit->scans, &audit->next, deadline_ns, take_slice, &job)
            : audit_host(&job, deadline_ns);
    if (status == XORCAST_OK || status == XORCAST_WEIGHTS_WRONG)
        audit->next = 0;
    return status;
}
