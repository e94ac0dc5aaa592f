/* The shadow: see shadow.h. A group is guarded by one of STRIPES locks, so that a keyframe is read
 * between two moves of a group and never in the middle of one. */
#include "publish/shadow.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/pool.h"
#include "publish/device_shadow.h"

#define STRIPES 512u /* groups that may be worked on, or wait to be copied, at a time */
#define DIGEST_ENTRY_BYTES 24u
#define SETTLE_RUN UINT64_C(512) /* groups that one worker settles at a time */

typedef struct group_state {
    uint64_t step; /* the version that changed it last */
    xorcast_digest digest;
    xci_ahead ahead;
} group_state;

struct xci_shadow {
    xorcast_context *context;
    xorcast_bundle *bundle; /* the twin */
    void *memory;
    xci_device_shadow *device; /* in place of `memory`, of weights in device memory */
    group_state *groups;
    uint64_t group_count;
    atomic_uint_fast64_t step; /* every group is at least this version */
    xorcast_digest digest;
    xci_apply_worker *workers;
    pthread_mutex_t stripes[STRIPES];
    /* Answers read; a device, which moves many groups at once, writes. Taken before any stripe and
     * before the pool, whose work takes stripes. */
    pthread_rwlock_t moving;
};

static pthread_mutex_t *stripe_of(xci_shadow *shadow, uint64_t group) {
    return &shadow->stripes[group % STRIPES];
}

void xci_shadow_close(xci_shadow *shadow) {
    if (shadow == NULL)
        return;
    xorcast_context *context = shadow->context;
    xci_apply_workers_close(context, shadow->workers);
    xci_device_shadow_close(shadow->device);
    xorcast_bundle_destroy(shadow->bundle);
    xci_release(context, shadow->memory);
    for (uint64_t g = 0; shadow->groups != NULL && g < shadow->group_count; g++)
        xci_ahead_drop(&shadow->groups[g].ahead, context);
    xci_release(context, shadow->groups);
    for (uint32_t i = 0; i < STRIPES; i++)
        pthread_mutex_destroy(&shadow->stripes[i]);
    pthread_rwlock_destroy(&shadow->moving);
    xci_release(context, shadow);
}

/* ---- Copying the first version ---- */

typedef struct copy_job {
    xci_shadow *shadow;
    xorcast_bundle *from;
} copy_job;

static xorcast_status copy_group(void *user, uint64_t group, uint32_t worker) {
    copy_job *job = user;
    xci_shadow *shadow = job->shadow;
    xci_apply_worker *scratch = &shadow->workers[worker];
    for (uint64_t c = job->from->group_first[group]; c < job->from->group_first[group + 1]; c++) {
        xci_chunk chunk;
        const uint8_t *bytes;
        xorcast_digest digest;
        xci_bundle_chunk(job->from, c, NULL, &chunk);
        TRY(xci_chunk_read(job->from, &chunk, scratch->weights, &bytes));
        xci_chunk_write(shadow->bundle, &chunk, bytes);
        TRY(xci_chunk_digest(shadow->bundle, c, scratch->weights, NULL, &digest));
        xci_digest_merge(&shadow->groups[group].digest, &digest);
    }
    return XORCAST_OK;
}

static xorcast_status fill_from_host(xci_shadow *shadow, xorcast_bundle *bundle) {
    copy_job job = {shadow, bundle};
    TRY(xci_twin_allocate(shadow->bundle, false, &shadow->memory));
    return xci_pool_run(shadow->context->shared->pool, shadow->group_count, copy_group, &job);
}

static xorcast_status fill_from_device(xci_shadow *shadow, xorcast_bundle *bundle, bool in_host) {
    void *memory;
    TRY(xci_allocate_array(shadow->context, shadow->group_count, sizeof(xorcast_digest *),
                           &memory));
    xorcast_digest **digests = memory;
    for (uint64_t g = 0; g < shadow->group_count; g++)
        digests[g] = &shadow->groups[g].digest;
    const xorcast_status status =
        xci_device_shadow_open(shadow->bundle, bundle, in_host, digests, &shadow->device);
    xci_release(shadow->context, memory);
    return status;
}

static xorcast_status fill(xci_shadow *shadow, xorcast_bundle *bundle, uint64_t step,
                           bool in_host) {
    const uint64_t group_count = bundle->layout.group_count;
    void *memory;
    TRY(xci_bundle_twin(bundle, &shadow->bundle));
    TRY(xci_allocate_array(shadow->context, group_count, sizeof(group_state), &memory));
    shadow->groups = memory;
    shadow->group_count = group_count;
    TRY(xci_apply_workers_open(shadow->bundle, &shadow->workers));
    for (uint32_t i = 0; i < xci_context_threads(shadow->context); i++) {
        shadow->workers[i].own_blocks = true;
        TRY(xci_group_reader_reserve(&shadow->workers[i].reader, bundle->group_size_max));
    }
    TRY(bundle->on_device ? fill_from_device(shadow, bundle, in_host)
                          : fill_from_host(shadow, bundle));
    atomic_store(&shadow->step, step);
    for (uint64_t g = 0; g < group_count; g++)
        xci_digest_merge(&shadow->digest, &shadow->groups[g].digest);
    return XORCAST_OK;
}

xorcast_status xci_shadow_open(xorcast_bundle *bundle, uint64_t step, bool in_host,
                               xci_shadow **shadow_out) {
    void *memory;
    TRY(xci_allocate_zeroed(bundle->context, sizeof(xci_shadow), &memory));
    xci_shadow *shadow = memory;
    shadow->context = bundle->context;
    for (uint32_t i = 0; i < STRIPES; i++)
        pthread_mutex_init(&shadow->stripes[i], NULL);
    pthread_rwlock_init(&shadow->moving, NULL);
    const xorcast_status status = fill(shadow, bundle, step, in_host);
    if (status < 0) {
        xci_shadow_close(shadow);
        return status;
    }
    *shadow_out = shadow;
    return XORCAST_OK;
}

xorcast_bundle *xci_shadow_bundle(xci_shadow *shadow) { return shadow->bundle; }
xorcast_digest xci_shadow_digest(const xci_shadow *shadow) { return shadow->digest; }
const uint8_t *xci_shadow_tensor(const xci_shadow *shadow, uint64_t t) {
    return shadow->bundle->regions[t].data;
}

xci_device_shadow *xci_shadow_device(xci_shadow *shadow) { return shadow->device; }
xorcast_status xci_shadow_check(xci_shadow *shadow, xorcast_context *context) {
    return shadow->device == NULL ? XORCAST_OK
                                  : xci_device_shadow_check(shadow->device, context);
}

/* ---- Moving ---- */

void xci_shadow_lock(xci_shadow *shadow, uint64_t group) {
    pthread_mutex_lock(stripe_of(shadow, group));
}
void xci_shadow_unlock(xci_shadow *shadow, uint64_t group) {
    pthread_mutex_unlock(stripe_of(shadow, group));
}
void xci_shadow_lock_all(xci_shadow *shadow) { pthread_rwlock_wrlock(&shadow->moving); }
void xci_shadow_unlock_all(xci_shadow *shadow) { pthread_rwlock_unlock(&shadow->moving); }
xci_ahead *xci_shadow_ahead(xci_shadow *shadow, uint64_t group) {
    return &shadow->groups[group].ahead;
}

/* Our own blocks, with all memory reserved. */
static void must_go_back(xci_shadow *shadow, xorcast_status status) {
    if (status < 0)
        xci_log(shadow->context, XORCAST_LOG_ERROR,
                "the shadow did not go back to what is published: %s; a defect, please report it",
                xorcast_status_name(status));
}

void xci_shadow_undo(xci_shadow *shadow, uint32_t worker, const xci_record *record) {
    must_go_back(shadow, xci_group_apply(&shadow->workers[worker], shadow->bundle, record, NULL));
}

void xci_shadow_move(xci_shadow *shadow, uint32_t worker, const xci_record *record) {
    const xorcast_status status =
        xci_group_apply(&shadow->workers[worker], shadow->bundle, record, NULL);
    if (status < 0)
        xci_log(shadow->context, XORCAST_LOG_ERROR,
                "the shadow did not take its own blocks: %s; a defect, please report it",
                xorcast_status_name(status));
}

typedef struct settle_job {
    xci_shadow *shadow;
    uint64_t step;
} settle_job;

static xorcast_status settle_run(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    const settle_job *job = user;
    xci_shadow *shadow = job->shadow;
    const uint64_t end = xci_min((index + 1) * SETTLE_RUN, shadow->group_count);
    for (uint64_t g = index * SETTLE_RUN; g < end; g++) {
        group_state *state = &shadow->groups[g];
        xci_shadow_lock(shadow, g);
        if (state->ahead.record.block_count > 0) {
            state->step = job->step;
            xci_digest_merge(&state->digest, &state->ahead.change);
        }
        xci_ahead_drop(&state->ahead, shadow->context);
        xci_shadow_unlock(shadow, g);
    }
    return XORCAST_OK;
}

void xci_shadow_settle(xci_shadow *shadow, const xorcast_version *target) {
    settle_job job = {shadow, target->step};
    (void)xci_pool_run(shadow->context->shared->pool,
                       xci_divide_up(shadow->group_count, SETTLE_RUN), settle_run, &job);
    shadow->digest = target->digest;
    atomic_store(&shadow->step, target->step);
}

static xorcast_status take_group_back(void *user, uint64_t group, uint32_t worker) {
    xci_shadow *shadow = user;
    xci_ahead *ahead = xci_shadow_ahead(shadow, group);
    xci_shadow_lock(shadow, group);
    const xorcast_status status =
        xci_ahead_take_back(ahead, &shadow->workers[worker], shadow->bundle, group, NULL);
    xci_ahead_drop(ahead, shadow->context);
    xci_shadow_unlock(shadow, group);
    return status;
}

/* The blocks go to the device one group after the other; they are small. */
static void take_device_back(xci_shadow *shadow) {
    xorcast_status status = XORCAST_OK;
    xci_shadow_lock_all(shadow);
    for (uint64_t g = 0; g < shadow->group_count; g++) {
        xci_ahead *ahead = xci_shadow_ahead(shadow, g);
        if (status == XORCAST_OK)
            status = xci_device_shadow_undo(shadow->device, ahead, g);
        xci_ahead_drop(ahead, shadow->context);
    }
    const xorcast_status ended = xci_device_shadow_undone(shadow->device);
    if (status < 0 || ended < 0)
        xci_device_shadow_lose(shadow->device);
    xci_shadow_unlock_all(shadow);
}

void xci_shadow_take_back(xci_shadow *shadow) {
    if (shadow->bundle->on_device) {
        take_device_back(shadow);
        return;
    }
    must_go_back(shadow, xci_pool_run(shadow->context->shared->pool, shadow->group_count,
                                      take_group_back, shadow));
}

/* ---- Answers ---- */

static uint64_t step_of(xci_shadow *shadow, uint64_t group) {
    return xci_max(shadow->groups[group].step, atomic_load(&shadow->step));
}

static xorcast_status copy_published(xci_shadow *shadow, xorcast_context *context, uint64_t group,
                                     uint8_t *out) {
    const xorcast_bundle *bundle = shadow->bundle;
    const xci_ahead *ahead = xci_shadow_ahead(shadow, group);
    uint8_t *at = out;
    for (uint64_t c = bundle->group_first[group]; c < bundle->group_first[group + 1]; c++) {
        xci_chunk chunk;
        xci_bundle_chunk_places(bundle, c, &chunk);
        if (bundle->on_device)
            TRY(xci_device_shadow_read(shadow->device, context, c, chunk.bytes, at));
        else
            memcpy(at, xci_chunk_direct(bundle, &chunk), chunk.bytes);
        at += chunk.bytes;
    }
    if (ahead->record.block_count == 0 && ahead->pieces == NULL)
        return XORCAST_OK;
    /* The workers of the pool are busy with the version that is ahead. */
    xci_apply_worker worker;
    xorcast_status status = xci_apply_worker_open(&worker, shadow->bundle);
    if (status == XORCAST_OK) {
        worker.own_blocks = true;
        status = xci_ahead_take_back(ahead, &worker, shadow->bundle, group, out);
        xci_apply_worker_close(&worker, shadow->context);
    }
    if (status < 0)
        xci_error_copy(context, shadow->context);
    return status;
}

xorcast_status xci_shadow_group(xci_shadow *shadow, xorcast_context *context, uint64_t group,
                                xci_blob **blob_out) {
    if (group >= shadow->group_count)
        FAIL(context, XORCAST_NOT_FOUND, "there is no group %llu", (unsigned long long)group);
    xci_blob *blob;
    TRY(xci_blob_create(context, 8 + xci_bundle_group_size(shadow->bundle, group), &blob));
    pthread_rwlock_rdlock(&shadow->moving);
    xci_shadow_lock(shadow, group);
    xci_store64(blob->bytes, step_of(shadow, group));
    const xorcast_status status = copy_published(shadow, context, group, blob->bytes + 8);
    xci_shadow_unlock(shadow, group);
    pthread_rwlock_unlock(&shadow->moving);
    if (status < 0) {
        xci_blob_drop(blob);
        return status;
    }
    *blob_out = blob;
    return XORCAST_OK;
}

xorcast_status xci_shadow_digests(xci_shadow *shadow, xorcast_context *context, uint64_t first,
                                  uint64_t count, xci_blob **blob_out) {
    if (first > shadow->group_count || count > shadow->group_count - first)
        FAIL(context, XORCAST_NOT_FOUND, "there are no groups %llu to %llu",
             (unsigned long long)first, (unsigned long long)(first + count));
    TRY(xci_blob_create(context, count * DIGEST_ENTRY_BYTES, blob_out));
    uint8_t *at = (*blob_out)->bytes;
    for (uint64_t g = first; g < first + count; g++) {
        pthread_mutex_lock(stripe_of(shadow, g));
        xci_store64(at, step_of(shadow, g));
        xci_store64(at + 8, shadow->groups[g].digest.lane[0]);
        xci_store64(at + 16, shadow->groups[g].digest.lane[1]);
        pthread_mutex_unlock(stripe_of(shadow, g));
        at += DIGEST_ENTRY_BYTES;
    }
    return XORCAST_OK;
}
