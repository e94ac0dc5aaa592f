/* Staging: see stage.h. Records of some parts at a time are spread over the pool; a record is one
 * group. */
#include "subscribe/stage.h"

#include <string.h>

#include "backend/transcode.h"
#include "base/bytes.h"
#include "base/counts.h"
#include "base/digest.h"
#include "base/pool.h"
#include "subscribe/device_stage.h"

/* ---- Opening and closing ---- */

static xorcast_status open_worker(xci_stage_worker *worker, xorcast_bundle *bundle) {
    xorcast_context *context = bundle->context;
    const uint64_t chunk_bytes = UINT64_C(1) << bundle->chunk_log2;
    void *memory;
    xci_group_reader_open(&worker->reader, context);
    TRY(xci_allocate(context, chunk_bytes, &memory));
    worker->gather = memory;
    TRY(xci_allocate(context, XCI_TRANSCODE_SCRATCH(chunk_bytes), &memory));
    worker->scratch = memory;
    TRY(xci_allocate(context, chunk_bytes + XCI_BLOCK_SLACK, &memory));
    worker->ready = memory;
    TRY(xci_allocate_array(context, xci_bundle_segment_space(bundle), sizeof(xci_segment),
                           &memory));
    worker->segments = memory;
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(xci_chunk), &memory));
    worker->chunks = memory;
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(xci_block_job), &memory));
    worker->jobs = memory;
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(xci_ready), &memory));
    worker->list = memory;
    TRY(xci_arena_create(context, &worker->arena));
    TRY(xci_allocate_array(context, bundle->group_chunks_max, sizeof(uint32_t), &memory));
    worker->indices = memory;
    return XORCAST_OK;
}

static void close_workers(xci_stage *stage) {
    xorcast_context *context = stage->bundle->context;
    for (uint32_t i = 0; stage->workers != NULL && i < xci_context_threads(context); i++) {
        xci_stage_worker *worker = &stage->workers[i];
        void *const parts[] = {worker->gather, worker->scratch,  worker->ready,
                               worker->made,   worker->segments, worker->chunks,
                               worker->jobs,   worker->indices,  worker->list};
        xci_group_reader_close(&worker->reader);
        xci_arena_destroy(worker->arena);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            xci_release(context, parts[p]);
    }
    xci_release(context, stage->workers);
}

static xorcast_status open_workers(xci_stage *stage) {
    xorcast_context *context = stage->bundle->context;
    const uint32_t threads = xci_context_threads(context);
    void *memory;
    TRY(xci_allocate_array(context, threads, sizeof(xci_stage_worker), &memory));
    stage->workers = memory;
    for (uint32_t i = 0; i < threads; i++)
        TRY(open_worker(&stage->workers[i], stage->bundle));
    return XORCAST_OK;
}

xorcast_status xci_stage_open(xci_stage *stage, xorcast_bundle *bundle) {
    memset(stage, 0, sizeof *stage);
    stage->bundle = bundle;
    stage->parts_at_a_time = bundle->on_device ? XCI_STAGE_PARTS : 1;
    const xorcast_status status =
        bundle->on_device ? xci_device_stage_open(stage) : open_workers(stage);
    if (status < 0)
        xci_stage_close(stage);
    return status;
}

void xci_stage_close(xci_stage *stage) {
    if (stage->bundle == NULL)
        return;
    xorcast_context *context = stage->bundle->context;
    xci_stage_reset(stage);
    xci_device_stage_close(stage);
    close_workers(stage);
    xci_release(context, stage->groups);
    xci_release(context, stage->ready);
    xci_release(context, stage->held);
    xci_keep(context, 0);
    for (unsigned i = 0; i < XCI_STAGE_PARTS; i++)
        xci_part_records_free(context, &stage->parts[i]);
    xci_release(context, stage->records);
    memset(stage, 0, sizeof *stage);
}

void xci_stage_reset(xci_stage *stage) {
    xci_device_stage_reset(stage);
    for (uint32_t i = 0; stage->workers != NULL && i < xci_context_threads(stage->bundle->context);
         i++)
        if (stage->workers[i].arena != NULL)
            xci_arena_reset(stage->workers[i].arena);
    while (stage->held_count > 0)
        xci_blob_keep_end(stage->held[--stage->held_count], stage->bundle->context);
    stage->ready_count = stage->ready_bytes = 0;
    stage->payload_bytes = stage->encoded_bytes = 0;
    memset(&stage->counts, 0, sizeof stage->counts);
    memset(&stage->change, 0, sizeof stage->change);
    stage->finished = false;
}

/* ---- One chunk ---- */

static xorcast_status bad_chunk(xorcast_bundle *bundle, const xci_chunk *chunk, const char *what) {
    char words[300];
    const xci_place place = {chunk->tensor, chunk->index, 0};
    FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place, "%s: %s; fetch the delta again",
            xci_chunk_words(bundle, chunk->index, words, sizeof words), what);
}

/* A mask must not touch the padding between the tensors of a packed chunk: nothing there could
 * take it. */
static bool padding_untouched(xci_stage_worker *worker, xorcast_bundle *bundle,
                              const xci_chunk *chunk, const xci_block_job *block) {
    memset(worker->gather, 0, chunk->bytes);
    xci_block_job job = *block;
    job.weights = worker->gather;
    bundle->context->shared->backend->apply(&job, 1);
    uint32_t at = 0;
    for (uint32_t i = 0; i <= chunk->tensor_count; i++) {
        const uint32_t end = i < chunk->tensor_count ? chunk->places[i].offset : chunk->bytes;
        for (; at < end; at++)
            if (worker->gather[at] != 0)
                return false;
        if (i < chunk->tensor_count)
            at = chunk->places[i].offset + chunk->places[i].bytes;
    }
    return true;
}

/* Makes another form of a block device-ready, in the worker's memory. */
static xorcast_status transcode(xci_stage_worker *worker, xorcast_bundle *bundle,
                                const xci_chunk *chunk, const xci_record *record, uint32_t index,
                                xci_block_job *job) {
    const xci_place place = {chunk->tensor, chunk->index, 0};
    /* only a whole chunk is what its blocks were made beside */
    const uint8_t *old = bundle->complete ? job->weights : NULL;
    const xorcast_status status = xci_block_decode(&worker->reader, place, record, index,
                                                   job->block, old, worker->scratch, chunk->bytes);
    if (status == XORCAST_DATA_CORRUPT)
        return bad_chunk(bundle, chunk, "its block does not decode to the chunk's size");
    TRY(status);
    xci_mask_to_ready(bundle->context->shared->backend, chunk->bytes, worker->scratch,
                      worker->ready, &job->block_bytes, &job->block_codec);
    job->block = worker->ready;
    return XORCAST_OK;
}

/* ---- One group ---- */

static xci_block_job job_of(const xci_chunk *chunk, const xci_block *block, const uint8_t *bytes) {
    return (xci_block_job){.block = bytes,
                           .block_bytes = block->bytes,
                           .block_codec = block->codec,
                           .bytes = chunk->bytes,
                           .segments = chunk->segments,
                           .segment_count = chunk->segment_count,
                           .element_bytes = chunk->element_bytes};
}

static void count_changes(const xci_block_job *job, xorcast_counts *counts) {
    counts->bits_changed += job->bits_changed;
    counts->bytes_changed += job->bytes_changed;
    counts->elements_changed += job->elements_changed;
    counts->chunks_changed += job->bytes_changed > 0; /* a foreign block may be all zeros */
}

static xorcast_status keep_made(xci_stage_worker *worker, xorcast_context *context,
                                const xci_block_job *job) {
    void *memory = worker->made;
    const xorcast_status status = xci_reserve(context, &memory, &worker->made_capacity,
                                              worker->made_bytes + job->block_bytes);
    worker->made = memory;
    TRY(status);
    memcpy(worker->made + worker->made_bytes, job->block, job->block_bytes);
    worker->made_bytes += job->block_bytes;
    return XORCAST_OK;
}

/* A block that was checked once: as it is, or made another form and checked again. */
static xorcast_status keep_block(xci_stage_worker *worker, xorcast_bundle *bundle,
                                 const xci_chunk *chunk, const xci_record *record, uint32_t index,
                                 xci_block_job *job, xci_staged_group *group) {
    const bool foreign = job->status < 0;
    if (foreign) {
        TRY(transcode(worker, bundle, chunk, record, index, job));
        if (job->block_bytes == 0)
            return XORCAST_OK;
        bundle->context->shared->backend->check(job, 1);
    }
    if (job->status < 0)
        return bad_chunk(bundle, chunk, "its block is damaged");
    if (chunk->packed && !padding_untouched(worker, bundle, chunk, job))
        return bad_chunk(bundle, chunk, "it changes bytes between tensors");
    if (foreign)
        TRY(keep_made(worker, bundle->context, job));
    worker->list[group->ready_count++] =
        (xci_ready){.chunk = chunk->index,
                    .block = foreign ? NULL : job->block, /* NULL: the next in worker->made */
                    .weights = xci_chunk_direct(bundle, chunk),
                    .block_bytes = job->block_bytes,
                    .block_codec = job->block_codec,
                    .bytes = chunk->bytes,
                    .change = job->change};
    group->ready_bytes += job->block_bytes;
    count_changes(job, &group->counts);
    xci_digest_merge(&group->change, &job->change);
    return XORCAST_OK;
}

static xorcast_status check_listed(xci_stage_worker *worker, xorcast_bundle *bundle,
                                   const xci_record *record, uint64_t count,
                                   xci_staged_group *group) {
    bundle->context->shared->backend->check(worker->jobs, count);
    for (uint64_t i = 0; i < count; i++)
        TRY(keep_block(worker, bundle, &worker->chunks[i], record, worker->indices[i],
                       &worker->jobs[i], group));
    return XORCAST_OK;
}

/* Scattered weights are gathered, one chunk at a time. */
static xorcast_status check_alone(xci_stage_worker *worker, xorcast_bundle *bundle,
                                  const xci_chunk *chunk, const xci_record *record,
                                  uint32_t index, xci_block_job *job, xci_staged_group *group) {
    const uint8_t *old;
    TRY(xci_chunk_read(bundle, chunk, worker->gather, &old));
    job->weights = (uint8_t *)(uintptr_t)old; /* only read by check */
    bundle->context->shared->backend->check(job, 1);
    return keep_block(worker, bundle, chunk, record, index, job, group);
}

/* Blocks of chunks whose weights lie in one piece are checked many at a time. */
static xorcast_status check_blocks(xci_stage_worker *worker, xorcast_bundle *bundle,
                                   const xci_record *record, const uint8_t *bytes,
                                   xci_staged_group *group) {
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    const xci_place place = {xci_bundle_tensor_of(bundle, first), first, 0};
    uint64_t listed = 0;
    for (uint32_t i = 0; i < record->block_count; bytes += record->blocks[i++].bytes) {
        const xci_block *block = &record->blocks[i];
        xci_chunk *chunk = &worker->chunks[listed];
        xci_block_job *job = &worker->jobs[listed];
        if (first + block->chunk >= end)
            FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place,
                    "group %llu has no chunk %u; fetch the delta again",
                    (unsigned long long)record->group, block->chunk);
        if (!xci_bundle_holds(bundle, first + block->chunk))
            continue;
        xci_bundle_chunk(bundle, first + block->chunk, worker->segments, chunk);
        if (block->element_bytes != chunk->element_bytes)
            return bad_chunk(bundle, chunk, "its elements have another width");
        *job = job_of(chunk, block, bytes);
        worker->indices[listed] = i;
        job->weights = bundle->complete ? xci_chunk_direct(bundle, chunk) : NULL;
        if (job->weights != NULL) {
            listed++;
            continue;
        }
        TRY(check_listed(worker, bundle, record, listed, group));
        TRY(check_alone(worker, bundle, chunk, record, i, job, group));
        listed = 0;
    }
    return check_listed(worker, bundle, record, listed, group);
}

/* Moves the ready blocks, which are in the cache now, to where they stay until they are applied. */
static xorcast_status copy_ready(xci_stage_worker *worker, const xci_staged_group *group) {
    void *memory;
    TRY(xci_arena_take(worker->arena, group->ready_bytes, &memory));
    uint8_t *at = memory;
    const uint8_t *made = worker->made;
    for (uint64_t i = 0; i < group->ready_count; i++) {
        xci_ready *ready = &worker->list[i];
        const uint8_t *from = ready->block;
        if (from == NULL) {
            from = made;
            made += ready->block_bytes;
        }
        memcpy(at, from, ready->block_bytes);
        ready->block = at;
        at += ready->block_bytes;
    }
    return XORCAST_OK;
}

/* The group's ready blocks and their list. Blocks that lie in a part which is held stay there, if
 * all of the group do. */
static xorcast_status keep_ready(xci_stage_worker *worker, bool held, xci_staged_group *group) {
    void *list;
    group->in_part = held && worker->made_bytes == 0;
    if (!group->in_part)
        TRY(copy_ready(worker, group));
    TRY(xci_arena_copy(worker->arena, worker->list, group->ready_count * sizeof(xci_ready), &list));
    group->ready = list;
    return XORCAST_OK;
}

static xorcast_status stage_group(xci_stage *stage, xci_stage_worker *worker,
                                  const xci_record *record, bool held, xci_staged_group *group) {
    const uint64_t first = stage->bundle->group_first[record->group];
    const xci_place place = {xci_bundle_tensor_of(stage->bundle, first), first, 0};
    const uint8_t *bytes;
    TRY(xci_group_read(&worker->reader, place, record, &bytes));
    worker->made_bytes = 0;
    TRY(check_blocks(worker, stage->bundle, record, bytes, group));
    /* a second pass was undone in the worker's memory */
    held = held && !record->second_pass;
    return group->ready_count > 0 ? keep_ready(worker, held, group) : XORCAST_OK;
}

/* ---- A delta ---- */

static bool same_digest(const xorcast_digest *a, const xorcast_digest *b) {
    return a->lane[0] == b->lane[0] && a->lane[1] == b->lane[1];
}

xorcast_status xci_stage_begin(xci_stage *stage, const xci_manifest *manifest,
                               const xorcast_digest *base) {
    const xorcast_bundle *bundle = stage->bundle;
    const xorcast_delta_info *info = &manifest->info;
    xorcast_context *context = bundle->context;
    xci_stage_reset(stage);
    if (memcmp(info->base_fingerprint, bundle->layout.fingerprint, sizeof info->base_fingerprint) !=
            0 ||
        memcmp(info->target_fingerprint, bundle->layout.fingerprint,
               sizeof info->target_fingerprint) != 0)
        FAIL(context, XORCAST_LAYOUT_MISMATCH,
             "the delta is of another layout than these weights: names, dtypes, shapes, chunk or "
             "group size differ");
    if (manifest->layout_group_count != bundle->layout.group_count ||
        manifest->layout_chunk_count != bundle->layout.chunk_count ||
        info->chunk_bytes != bundle->layout.chunk_bytes ||
        info->group_bytes != bundle->layout.group_bytes)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "the delta says that the layout has %llu groups of %llu chunks; it has %llu of %llu, "
             "or "
             "their sizes differ; fetch the delta again",
             (unsigned long long)manifest->layout_group_count,
             (unsigned long long)manifest->layout_chunk_count,
             (unsigned long long)bundle->layout.group_count,
             (unsigned long long)bundle->layout.chunk_count);
    if (info->needs_old_weights && (!bundle->complete || bundle->share_count > 1))
        FAIL(context, XORCAST_UNSUPPORTED,
             "this form of the delta is for receivers that hold all weights of step %lld in one "
             "place, and this bundle has boxes that leave holes, or lies on several devices; take "
             "the plain form",
             (long long)info->base.step);
    if (bundle->complete && same_digest(&info->target.digest, base) &&
        !same_digest(&info->base.digest, base))
        FAIL(context, XORCAST_BASE_MISMATCH,
             "these weights are what the delta leads to already: step %lld, digest %016llx...; "
             "there "
             "is nothing to apply",
             (long long)info->target.step, (unsigned long long)base->lane[0]);
    if (bundle->complete && !same_digest(&info->base.digest, base))
        FAIL(context, XORCAST_BASE_MISMATCH,
             "the delta starts from step %lld with digest %016llx..., these weights have "
             "%016llx...; "
             "take the delta that starts here, or a keyframe",
             (long long)info->base.step, (unsigned long long)info->base.digest.lane[0],
             (unsigned long long)base->lane[0]);
    stage->info = *info;
    stage->last_group = UINT64_MAX;
    return stage->device != NULL ? xci_device_stage_begin(stage) : XORCAST_OK;
}

/* Says which tensors a damaged record belongs to. */
static xorcast_status name_group(xci_stage *stage, xorcast_status status, uint64_t group) {
    char words[300];
    xorcast_context *context = stage->bundle->context;
    if (status != XORCAST_DATA_CORRUPT || group >= stage->bundle->layout.group_count)
        return status;
    const uint64_t chunk = stage->bundle->group_first[group];
    const xci_place place = {xci_bundle_tensor_of(stage->bundle, chunk), chunk, 0};
    const xorcast_error error = xci_thread_failure()->error; /* not another group's */
    FAIL_AT(context, status, place, "from %s on: %.180s",
            xci_chunk_words(stage->bundle, chunk, words, sizeof words), error.text);
}

typedef struct parts_job {
    xci_stage *stage;
    const xci_manifest *manifest;
    uint64_t first, count; /* parts */
    const xci_part_bytes *parts;
    bool held; /* the bytes stay as long as what is staged */
} parts_job;

static xorcast_status list_part(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    const parts_job *job = user;
    xci_stage *stage = job->stage;
    xci_part_records *records = &stage->parts[index];
    const xci_part_bytes *part = &job->parts[index];
    const xorcast_status status =
        xci_part_list(stage->bundle->context, job->manifest, job->first + index, part->bytes,
                      part->count, UINT64_MAX, records);
    return status < 0 ? name_group(stage, status, records->failed_group) : XORCAST_OK;
}

static xorcast_status check_record(const parts_job *job, const xci_record *record) {
    const xorcast_status status =
        xci_record_check(job->stage->bundle->context, XCI_NOWHERE, record);
    return status < 0 ? name_group(job->stage, status, record->group) : XORCAST_OK;
}

/* A part's hash: nothing counts before all of them are good. Of a damaged part, which record it is
 * says more. */
static xorcast_status check_part(const parts_job *job, uint64_t index) {
    const xci_part_records *records = &job->stage->parts[index];
    const xorcast_status status =
        xci_part_check(job->stage->bundle->context, job->manifest, job->first + index,
                       job->parts[index].bytes, job->parts[index].count);
    if (status != XORCAST_DATA_CORRUPT)
        return status;
    const xci_failure failure = *xci_thread_failure();
    for (uint64_t i = 0; i < records->count; i++)
        TRY(check_record(job, &records->records[i]));
    xci_record_again(&failure);
    return status;
}

static xorcast_status stage_item(void *user, uint64_t index, uint32_t worker) {
    parts_job *job = user;
    xci_stage *stage = job->stage;
    if (index < job->count)
        return check_part(job, index);
    index -= job->count;
    const xci_record *record = &stage->records[index];
    TRY(check_record(job, record));
    return stage_group(stage, &stage->workers[worker], record, job->held, &stage->groups[index]);
}

/* A part and its records in one go through memory. */
static xorcast_status check_all(const parts_job *job, uint64_t index, xci_hash_state *state) {
    const xci_part_bytes *part = &job->parts[index];
    const xci_part_records *records = &job->stage->parts[index];
    const uint8_t *at = part->bytes;
    for (uint64_t i = 0; i < records->count; i++) {
        const xci_record *record = &records->records[i];
        const uint8_t *end = record->payload + record->stored_bytes;
        TRY(check_record(job, record));
        xci_hash_more(state, at, (uint64_t)(end - at));
        at = end;
    }
    const xci_hash hash = xci_hash_now(state);
    return xci_part_compare(job->stage->bundle->context, job->manifest, job->first + index,
                            part->count, &hash);
}

/* Of a part whose blocks another device has, the records that it did not have. What came from there
 * is proved by the digest, and so is what was read of its records; the bytes beside these were not
 * looked at. */
static xorcast_status check_rest(const parts_job *job, uint64_t index, bool *any_elsewhere_out) {
    const xci_part_records *records = &job->stage->parts[index];
    *any_elsewhere_out = false;
    for (uint64_t i = 0; i < records->count && !*any_elsewhere_out; i++)
        *any_elsewhere_out = xci_device_stage_elsewhere(job->stage, &records->records[i]);
    for (uint64_t i = 0; i < records->count && *any_elsewhere_out; i++)
        if (!xci_device_stage_elsewhere(job->stage, &records->records[i]))
            TRY(check_record(job, &records->records[i]));
    return XORCAST_OK;
}

/* What a device is told to load is hashed while it works. */
static xorcast_status check_item(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    parts_job *job = user;
    bool any_elsewhere;
    TRY(check_rest(job, index, &any_elsewhere));
    if (any_elsewhere)
        return XORCAST_OK;
    xci_hash_state *state = xci_hash_begin();
    if (state == NULL)
        FAIL(job->stage->bundle->context, XORCAST_NO_HOST_MEMORY,
             "no memory to hash a part; free some and try again");
    const xorcast_status status = check_all(job, index, state);
    xci_hash_free(state);
    return status;
}

static xorcast_status load_items(parts_job *job) {
    xci_stage *stage = job->stage;
    xorcast_context *context = stage->bundle->context;
    const xci_blob *blob = job->parts[0].blob;
    xci_blob_side *side = blob != NULL ? blob->side : NULL;
    const xorcast_status loaded = xci_device_stage_records(stage, (xci_device_side *)(void *)side);
    xorcast_error error;
    xorcast_last_error(context, &error);
    if (loaded < 0 && loaded != XORCAST_DATA_CORRUPT)
        return loaded;
    /* Of damaged bytes, where they are says more than what could not be made of them. */
    TRY(xci_pool_run(context->shared->pool, job->count, check_item, job));
    return loaded < 0 ? xci_fail_from(context, loaded, &error, "%s", error.text) : XORCAST_OK;
}

static xorcast_status stage_items(parts_job *job) {
    xci_stage *stage = job->stage;
    if (stage->device != NULL)
        return load_items(job);
    return xci_pool_run(stage->bundle->context->shared->pool, job->count + stage->record_count,
                        stage_item, job);
}

/* Takes over a group's blocks, behind those of the groups before. */
static xorcast_status take_group(xci_stage *stage, const xci_staged_group *group) {
    xorcast_context *context = stage->bundle->context;
    void *memory = stage->ready;
    const xorcast_status status =
        xci_reserve(context, &memory, &stage->ready_capacity,
                    (stage->ready_count + group->ready_count) * sizeof(xci_ready));
    stage->ready = memory;
    TRY(status);
    if (group->ready_count > 0)
        memcpy(stage->ready + stage->ready_count, group->ready,
               group->ready_count * sizeof(xci_ready));
    stage->ready_count += group->ready_count;
    stage->ready_bytes += group->ready_bytes;
    xci_counts_add(&stage->counts, &group->counts);
    xci_digest_merge(&stage->change, &group->change);
    return XORCAST_OK;
}

/* All parts are listed: their records in one list, and room for what these come to. */
static xorcast_status join_parts(xci_stage *stage, uint64_t part_count) {
    xorcast_context *context = stage->bundle->context;
    uint64_t last = stage->last_group, count = 0;
    for (uint64_t p = 0; p < part_count; p++) {
        const xci_part_records *part = &stage->parts[p];
        const xorcast_status status = xci_part_follows(context, part, last);
        if (status < 0)
            return name_group(stage, status, part->records[0].group);
        last = part->count > 0 ? part->records[part->count - 1].group : last;
        count += part->count;
    }
    void *memory = stage->records;
    xorcast_status status =
        xci_reserve(context, &memory, &stage->records_capacity, count * sizeof(xci_record));
    stage->records = memory;
    TRY(status);
    memory = stage->groups;
    status =
        xci_reserve(context, &memory, &stage->groups_capacity, count * sizeof(xci_staged_group));
    stage->groups = memory;
    TRY(status);
    memory = stage->held;
    status = xci_reserve(context, &memory, &stage->held_capacity,
                         (stage->held_count + part_count) * sizeof(xci_blob *));
    stage->held = memory;
    TRY(status);
    stage->record_count = 0;
    for (uint64_t p = 0; p < part_count; p++) {
        const xci_part_records *part = &stage->parts[p];
        if (part->count > 0)
            memcpy(stage->records + stage->record_count, part->records,
                   part->count * sizeof(xci_record));
        stage->record_count += part->count;
    }
    if (count > 0)
        memset(stage->groups, 0, count * sizeof(xci_staged_group));
    return XORCAST_OK;
}

/* Holds the parts that blocks of their groups stay in; there is room in the list. */
static xorcast_status hold_parts(const parts_job *job) {
    xci_stage *stage = job->stage;
    const xci_staged_group *group = stage->groups;
    for (uint64_t p = 0; p < job->count; p++) {
        bool in_part = false;
        for (uint64_t i = 0; i < stage->parts[p].count; i++, group++)
            in_part = in_part || group->in_part;
        if (!in_part)
            continue;
        TRY(xci_blob_keep(job->parts[p].blob, stage->bundle->context));
        stage->held[stage->held_count++] = job->parts[p].blob;
    }
    return XORCAST_OK;
}

xorcast_status xci_stage_parts(xci_stage *stage, const xci_manifest *manifest, uint64_t first,
                               uint64_t count, const xci_part_bytes *parts) {
    /* Boxes take little of a part: what they take is copied. */
    const bool held = count > 0 && parts[0].blob != NULL && stage->bundle->complete;
    parts_job job = {stage, manifest, first, count, parts, held};
    TRY(xci_pool_run(stage->bundle->context->shared->pool, count, list_part, &job));
    TRY(join_parts(stage, count));
    TRY(stage_items(&job));
    TRY(hold_parts(&job));
    for (uint64_t i = 0; i < stage->record_count; i++) {
        const xci_record *record = &stage->records[i];
        TRY(take_group(stage, &stage->groups[i]));
        stage->last_group = record->group;
        stage->payload_bytes += record->stored_bytes;
        stage->encoded_bytes += record->raw_bytes;
    }
    return XORCAST_OK;
}

/* Whether the manifest counts what was found; only a bundle that counts every byte can tell. */
static bool counts_agree(const xci_stage *stage, const xorcast_delta_info *info) {
    const xorcast_counts *found = &stage->counts, *said = &info->counts;
    return found->bits_changed == said->bits_changed &&
           found->bytes_changed == said->bytes_changed &&
           found->elements_changed == said->elements_changed &&
           found->chunks_changed == said->chunks_changed &&
           stage->bundle->layout.total_bytes == said->bytes_covered;
}

xorcast_status xci_stage_finish(xci_stage *stage, const xci_manifest *manifest) {
    const xorcast_bundle *bundle = stage->bundle;
    const xorcast_delta_info *info = &manifest->info;
    xorcast_context *context = bundle->context;
    if (stage->device != NULL)
        TRY(xci_device_stage_finish(stage));
    stage->counts.bytes_covered = bundle->layout.covered_bytes;
    stage->counts.elements_covered = info->counts.elements_covered;
    if (stage->payload_bytes != info->payload_bytes ||
        stage->encoded_bytes != info->chunk_encoded_bytes)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "the delta holds %llu bytes of chunks, its manifest says %llu; fetch it again",
             (unsigned long long)stage->payload_bytes, (unsigned long long)info->payload_bytes);
    if (bundle->complete) {
        if (!counts_agree(stage, info))
            FAIL(context, XORCAST_DATA_CORRUPT,
                 "the delta changes %llu bytes in %llu chunks, its manifest says %llu in %llu, or "
                 "counts "
                 "bits or elements otherwise; fetch it again",
                 (unsigned long long)stage->counts.bytes_changed,
                 (unsigned long long)stage->counts.chunks_changed,
                 (unsigned long long)info->counts.bytes_changed,
                 (unsigned long long)info->counts.chunks_changed);
        if (stage->change.lane[0] != info->target.digest.lane[0] - info->base.digest.lane[0] ||
            stage->change.lane[1] != info->target.digest.lane[1] - info->base.digest.lane[1])
            FAIL(context, XORCAST_BASE_MISMATCH,
                 "the weights at changed positions are not those of step %lld; audit them, or take "
                 "a "
                 "keyframe",
                 (long long)info->base.step);
    }
    /* Parts that are held, or were, become those of the next version. */
    if (stage->held_count > 0 || stage->device != NULL)
        xci_keep(context, xci_kept_total(info->delta_bytes));
    stage->finished = true;
    return XORCAST_OK;
}

static xorcast_status stage_reader(xci_stage *stage, xci_delta_reader *reader,
                                   const xorcast_digest *base) {
    TRY(xci_stage_begin(stage, &reader->manifest, base));
    while (reader->next_part < reader->manifest.info.part_count) {
        const uint8_t *bytes;
        uint64_t count;
        const uint64_t index = reader->next_part;
        TRY(xci_delta_reader_part(reader, &bytes, &count));
        const xci_part_bytes part = {bytes, count, NULL};
        TRY(xci_stage_parts(stage, &reader->manifest, index, 1, &part));
    }
    return xci_stage_finish(stage, &reader->manifest);
}

xorcast_status xci_stage_source(xci_stage *stage, const xorcast_source *source,
                                const xorcast_digest *base) {
    xci_delta_reader reader;
    TRY(xci_delta_reader_open(stage->bundle->context, source, &reader));
    const xorcast_status status = stage_reader(stage, &reader, base);
    xci_delta_reader_close(&reader);
    if (status < 0)
        xci_stage_reset(stage);
    return status;
}
