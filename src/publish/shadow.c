/* The shadow: see shadow.h. A group is guarded by one of STRIPES locks, so that a keyframe is read
 * between two groups of a moving shadow and never in the middle of one. */
#include "publish/shadow.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/pool.h"
#include "frame/delta_reader.h"

#define STRIPES 64u
#define DIGEST_ENTRY_BYTES 24u

typedef struct group_state {
    uint64_t step; /* the version that changed it last */
    xorcast_digest digest;
} group_state;

struct xci_shadow {
    xorcast_context *context;
    xorcast_bundle *bundle; /* the twin */
    void *memory;
    group_state *groups;
    atomic_uint_fast64_t step; /* every group is at least this version */
    xorcast_digest digest;
    xci_apply_worker *workers;
    pthread_mutex_t stripes[STRIPES];
};

static pthread_mutex_t *stripe_of(xci_shadow *shadow, uint64_t group) {
    return &shadow->stripes[group % STRIPES];
}

void xci_shadow_close(xci_shadow *shadow) {
    if (shadow == NULL)
        return;
    xorcast_context *context = shadow->context;
    xci_apply_workers_close(context, shadow->workers);
    xorcast_bundle_destroy(shadow->bundle);
    xci_release(context, shadow->memory);
    xci_release(context, shadow->groups);
    for (uint32_t i = 0; i < STRIPES; i++)
        pthread_mutex_destroy(&shadow->stripes[i]);
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

static xorcast_status fill(xci_shadow *shadow, xorcast_bundle *bundle, uint64_t step) {
    const uint64_t group_count = bundle->layout.group_count;
    void *memory;
    TRY(xci_bundle_twin(bundle, &shadow->bundle));
    TRY(xci_twin_allocate(shadow->bundle, false, &shadow->memory));
    TRY(xci_allocate_array(shadow->context, group_count, sizeof(group_state), &memory));
    shadow->groups = memory;
    TRY(xci_apply_workers_open(shadow->bundle, &shadow->workers));
    for (uint32_t i = 0; i < xci_context_threads(shadow->context); i++) {
        shadow->workers[i].own_blocks = true;
        TRY(xci_group_reader_reserve(&shadow->workers[i].reader, bundle->group_size_max));
    }
    copy_job job = {shadow, bundle};
    TRY(xci_pool_run(shadow->context->shared->pool, group_count, copy_group, &job));
    atomic_store(&shadow->step, step);
    for (uint64_t g = 0; g < group_count; g++)
        xci_digest_merge(&shadow->digest, &shadow->groups[g].digest);
    return XORCAST_OK;
}

xorcast_status xci_shadow_open(xorcast_bundle *bundle, uint64_t step, xci_shadow **shadow_out) {
    void *memory;
    TRY(xci_allocate_zeroed(bundle->context, sizeof(xci_shadow), &memory));
    xci_shadow *shadow = memory;
    shadow->context = bundle->context;
    for (uint32_t i = 0; i < STRIPES; i++)
        pthread_mutex_init(&shadow->stripes[i], NULL);
    const xorcast_status status = fill(shadow, bundle, step);
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

/* ---- Moving ---- */

struct xci_shadow_move {
    xci_shadow *shadow;
    xci_part_records *parts;
    uint64_t part_count, part; /* `part`: the one being applied */
    xorcast_digest *changes;
    xorcast_version target;
};

void xci_shadow_forget(xci_shadow *shadow, xci_shadow_move *move) {
    if (move == NULL)
        return;
    for (uint64_t i = 0; i < move->part_count && move->parts != NULL; i++)
        xci_part_records_free(shadow->context, &move->parts[i]);
    xci_release(shadow->context, move->parts);
    xci_release(shadow->context, move->changes);
    xci_release(shadow->context, move);
}

static xorcast_status prepare(xci_shadow *shadow, const xci_manifest *manifest,
                              xci_blob *const *parts, xci_shadow_move *move) {
    xorcast_context *context = shadow->context;
    void *memory;
    TRY(xci_allocate_array(context, shadow->bundle->layout.group_count, sizeof(xorcast_digest),
                           &memory));
    move->changes = memory;
    TRY(xci_allocate_array(context, move->part_count, sizeof(xci_part_records), &memory));
    move->parts = memory;
    for (uint64_t i = 0; i < move->part_count; i++)
        TRY(xci_part_parse(context, manifest, i, parts[i]->bytes, parts[i]->size, UINT64_MAX,
                           &move->parts[i]));
    return XORCAST_OK;
}

xorcast_status xci_shadow_prepare(xci_shadow *shadow, const xci_manifest *manifest,
                                  xci_blob *const *parts, uint64_t part_count,
                                  xci_shadow_move **move_out) {
    void *memory;
    TRY(xci_allocate_zeroed(shadow->context, sizeof(xci_shadow_move), &memory));
    xci_shadow_move *move = memory;
    move->shadow = shadow;
    move->part_count = part_count;
    move->target = manifest->info.target;
    const xorcast_status status = prepare(shadow, manifest, parts, move);
    if (status < 0) {
        xci_shadow_forget(shadow, move);
        return status;
    }
    *move_out = move;
    return XORCAST_OK;
}

void xci_shadow_change(xci_shadow_move *move, uint64_t group, const xorcast_digest *change) {
    move->changes[group] = *change;
}

static xorcast_status move_group(void *user, uint64_t index, uint32_t worker) {
    xci_shadow_move *move = user;
    xci_shadow *shadow = move->shadow;
    const xci_record *record = &move->parts[move->part].records[index];
    group_state *state = &shadow->groups[record->group];
    pthread_mutex_lock(stripe_of(shadow, record->group));
    const xorcast_status status =
        xci_group_apply(&shadow->workers[worker], shadow->bundle, record, NULL);
    state->step = move->target.step;
    xci_digest_merge(&state->digest, &move->changes[record->group]);
    pthread_mutex_unlock(stripe_of(shadow, record->group));
    return status;
}

void xci_shadow_apply(xci_shadow *shadow, xci_shadow_move *move) {
    xorcast_status status = XORCAST_OK;
    for (move->part = 0; move->part < move->part_count && status == XORCAST_OK; move->part++)
        status = xci_pool_run(shadow->context->shared->pool, move->parts[move->part].count,
                              move_group, move);
    if (status < 0)
        xci_log(shadow->context, XORCAST_LOG_ERROR,
                "the shadow did not take its own delta: %s; a defect, please report it",
                xorcast_status_name(status));
    shadow->digest = move->target.digest;
    atomic_store(&shadow->step, move->target.step);
    xci_shadow_forget(shadow, move);
}

/* ---- Answers ---- */

static uint64_t step_of(xci_shadow *shadow, uint64_t group) {
    return xci_max(shadow->groups[group].step, atomic_load(&shadow->step));
}

xorcast_status xci_shadow_group(xci_shadow *shadow, xorcast_context *context, uint64_t group,
                                xci_blob **blob_out) {
    if (group >= shadow->bundle->layout.group_count)
        FAIL(context, XORCAST_NOT_FOUND, "there is no group %llu", (unsigned long long)group);
    const uint64_t bytes = xci_bundle_group_size(shadow->bundle, group);
    xci_blob *blob;
    TRY(xci_blob_create(context, 8 + bytes, &blob));
    uint8_t *at = blob->bytes + 8;
    xorcast_status status = XORCAST_OK;
    pthread_mutex_lock(stripe_of(shadow, group));
    xci_store64(blob->bytes, step_of(shadow, group));
    for (uint64_t c = shadow->bundle->group_first[group];
         c < shadow->bundle->group_first[group + 1] && status == XORCAST_OK; c++) {
        xci_chunk chunk;
        const uint8_t *from;
        xci_bundle_chunk(shadow->bundle, c, NULL, &chunk);
        status = xci_chunk_read(shadow->bundle, &chunk, at, &from);
        if (status == XORCAST_OK && from != at)
            memcpy(at, from, chunk.bytes);
        at += chunk.bytes;
    }
    pthread_mutex_unlock(stripe_of(shadow, group));
    if (status < 0) {
        xci_blob_drop(blob);
        return status;
    }
    *blob_out = blob;
    return XORCAST_OK;
}

xorcast_status xci_shadow_digests(xci_shadow *shadow, xorcast_context *context, uint64_t first,
                                  uint64_t count, xci_blob **blob_out) {
    const uint64_t group_count = shadow->bundle->layout.group_count;
    if (first > group_count || count > group_count - first)
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
