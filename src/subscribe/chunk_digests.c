/* Digests that are kept: see chunk_digests.h. */
#include "subscribe/chunk_digests.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/pool.h"
#include "delta/scan.h"
#include "subscribe/device_stage.h"

#define MOVE_RUN UINT64_C(8192) /* chunks whose digests one worker moves at a time */

xorcast_status xci_chunk_digests_open(xci_chunk_digests *digests, xorcast_bundle *bundle) {
    void *memory;
    *digests = (xci_chunk_digests){.bundle = bundle};
    TRY(xci_allocate_array(bundle->context, bundle->layout.chunk_count, sizeof(xorcast_digest),
                           &memory));
    digests->chunks = memory;
    return XORCAST_OK;
}

void xci_chunk_digests_close(xci_chunk_digests *digests) {
    if (digests->bundle != NULL)
        xci_release(digests->bundle->context, digests->chunks);
    *digests = (xci_chunk_digests){0};
}

xorcast_status xci_chunk_digests_scan(xci_chunk_digests *digests) {
    return xci_bundle_scan(digests->bundle, digests->chunks, &digests->sum);
}

void xci_chunk_digests_sum(xci_chunk_digests *digests) {
    memset(&digests->sum, 0, sizeof digests->sum);
    for (uint64_t c = 0; c < digests->bundle->layout.chunk_count; c++)
        xci_digest_merge(&digests->sum, &digests->chunks[c]);
}

/* ---- Moving ---- */

typedef struct move_job {
    xorcast_digest *chunks;
    const xci_ready *ready;
    uint64_t count;
    bool forward;
} move_job;

static void move_digest(xorcast_digest *digest, xorcast_digest change, bool forward) {
    for (unsigned lane = 0; lane < 2; lane++)
        digest->lane[lane] += forward ? change.lane[lane] : 0 - change.lane[lane];
}

static xorcast_status move_run(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    const move_job *job = user;
    const uint64_t end = xci_min((index + 1) * MOVE_RUN, job->count);
    for (uint64_t i = index * MOVE_RUN; i < end; i++)
        move_digest(&job->chunks[job->ready[i].chunk], job->ready[i].change, job->forward);
    return XORCAST_OK;
}

/* Each chunk is listed once. */
static void move_listed(xci_chunk_digests *digests, const xci_ready *ready, uint64_t count,
                        bool forward) {
    move_job job = {digests->chunks, ready, count, forward};
    (void)xci_pool_run(digests->bundle->context->shared->pool, xci_divide_up(count, MOVE_RUN),
                       move_run, &job);
}

void xci_chunk_digests_move(xci_chunk_digests *digests, const xci_stage *stage, bool forward) {
    move_listed(digests, stage->ready, stage->ready_count, forward);
    for (uint32_t s = 0; stage->device != NULL && s < stage->device->share_count; s++)
        move_listed(digests, stage->device->shares[s].ready, stage->device->shares[s].ready_count,
                    forward);
    move_digest(&digests->sum, stage->change, forward);
}
