/* Staging: see stage.h. The work of some parts at a time is spread over the pool: runs of blocks,
 * and each part's hash, beside its first run, so that what one reads is in the cache for the other.
 */
#include "subscribe/stage.h"

#include <string.h>

#include "base/bytes.h"
#include "base/counts.h"
#include "base/digest.h"
#include "base/pool.h"
#include "subscribe/device_stage.h"

/* ---- Opening and closing ---- */

xorcast_status xci_stage_open(xci_stage *stage, xorcast_bundle *bundle) {
    memset(stage, 0, sizeof *stage);
    stage->bundle = bundle;
    const uint32_t threads = xci_context_threads(bundle->context);
    stage->parts_at_a_time =
        bundle->on_device || threads > XCI_STAGE_PARTS ? XCI_STAGE_PARTS : threads;
    const xorcast_status status = bundle->on_device
                                      ? xci_device_stage_open(stage)
                                      : xci_stage_workers_open(bundle, &stage->workers);
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
    xci_stage_workers_close(context, stage->workers);
    xci_release(context, stage->tasks);
    xci_release(context, stage->ready);
    xci_release(context, stage->held);
    xci_keep(context, &stage->keeps, 0);
    for (unsigned i = 0; i < XCI_STAGE_PARTS; i++)
        xci_part_records_free(context, &stage->parts[i]);
    xci_release(context, stage->records);
    memset(stage, 0, sizeof *stage);
}

void xci_stage_reset(xci_stage *stage) {
    xci_device_stage_reset(stage);
    xci_stage_workers_reset(stage->bundle->context, stage->workers);
    while (stage->held_count > 0)
        xci_blob_keep_end(stage->held[--stage->held_count], stage->bundle->context);
    stage->ready_count = stage->ready_bytes = 0;
    stage->payload_bytes = stage->encoded_bytes = 0;
    memset(&stage->counts, 0, sizeof stage->counts);
    memset(&stage->change, 0, sizeof stage->change);
    stage->finished = false;
}

/* ---- A delta ---- */

static bool same_digest(const xorcast_digest *a, const xorcast_digest *b) {
    return a->lane[0] == b->lane[0] && a->lane[1] == b->lane[1];
}

static void begin_worker(const xci_stage *stage, xci_stage_worker *worker) {
    worker->beside_old_weights = stage->info.needs_old_weights != 0;
    worker->keeps_lists = !stage->for_journal;
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
    for (uint32_t i = 0; stage->workers != NULL && i < xci_context_threads(context); i++)
        begin_worker(stage, &stage->workers[i]);
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
    bool listed[XCI_STAGE_PARTS];
} parts_job;

/* A part's hash, or a run. */
typedef struct xci_stage_task {
    uint64_t part;
    xci_stage_run run; /* without a record: the hash */
} xci_stage_task;

/* ---- Which records ---- */

static xorcast_status list_part(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    parts_job *job = user;
    xci_stage *stage = job->stage;
    xci_part_records *records = &stage->parts[index];
    const xci_part_bytes *part = &job->parts[index];
    const xorcast_status status =
        xci_part_list(stage->bundle->context, job->manifest, job->first + index, part->bytes,
                      part->count, UINT64_MAX, records);
    job->listed[index] = status == XORCAST_OK;
    return status < 0 ? name_group(stage, status, records->failed_group) : XORCAST_OK;
}

/* Of parts that were listed side by side, each for itself. */
static xorcast_status check_order(parts_job *job) {
    xci_stage *stage = job->stage;
    uint64_t last = stage->last_group;
    for (uint64_t p = 0; p < job->count; p++) {
        const xci_part_records *part = &stage->parts[p];
        const xorcast_status status = xci_part_follows(stage->bundle->context, part, last);
        if (status < 0) {
            job->count = p;
            return name_group(stage, status, part->records[0].group);
        }
        last = part->count > 0 ? part->records[part->count - 1].group : last;
    }
    return XORCAST_OK;
}

/* Lists the records of all parts, or of those before the first that cannot be, which is the
 * failure: `count` of them are left. */
static xorcast_status list_parts(parts_job *job) {
    const xorcast_status status =
        xci_pool_run(job->stage->bundle->context->shared->pool, job->count, list_part, job);
    uint64_t good = 0;
    while (good < job->count && job->listed[good])
        good++;
    job->count = good;
    TRY(check_order(job));
    return status;
}

/* The records of all parts in one list. */
static xorcast_status join_parts(xci_stage *stage, uint64_t part_count) {
    uint64_t count = 0;
    for (uint64_t p = 0; p < part_count; p++)
        count += stage->parts[p].count;
    TRY(xci_grow(stage->bundle->context, &stage->records, &stage->records_capacity,
                 count * sizeof(xci_record)));
    stage->record_count = 0;
    for (uint64_t p = 0; p < part_count; p++) {
        const xci_part_records *part = &stage->parts[p];
        if (part->count > 0)
            memcpy(stage->records + stage->record_count, part->records,
                   part->count * sizeof(xci_record));
        stage->record_count += part->count;
    }
    return XORCAST_OK;
}

/* ---- Hashes ---- */

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

/* ---- Weights in device memory ---- */

static xorcast_status load_records(parts_job *job) {
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

/* ---- Weights in host memory ---- */

static xorcast_status add_task(xci_stage *stage, uint64_t part, const xci_stage_run *run) {
    TRY(xci_grow(stage->bundle->context, &stage->tasks, &stage->tasks_capacity,
                 (stage->task_count + 1) * sizeof(xci_stage_task)));
    stage->tasks[stage->task_count++] = (xci_stage_task){part, *run};
    return XORCAST_OK;
}

/* Part after part; and room in the list of ready blocks for each run's, behind those of the runs
 * before. */
static xorcast_status plan_tasks(parts_job *job) {
    static const xci_stage_run hash;
    xci_stage *stage = job->stage;
    const xci_record *record = stage->records;
    uint64_t blocks = 0;
    stage->task_count = 0;
    for (uint64_t p = 0; p < job->count; p++) {
        TRY(add_task(stage, p, &hash));
        for (uint64_t i = 0; i < stage->parts[p].count; i++, record++)
            for (xci_stage_run run = {.record = record}; xci_stage_run_next(&run);) {
                TRY(add_task(stage, p, &run));
                blocks += run.block_count;
            }
    }
    TRY(xci_grow(stage->bundle->context, &stage->ready, &stage->ready_capacity,
                 (stage->ready_count + blocks) * sizeof(xci_ready)));
    blocks = stage->ready_count;
    for (uint64_t i = 0; i < stage->task_count; i++) {
        xci_stage_run *run = &stage->tasks[i].run;
        run->ready = run->record != NULL ? stage->ready + blocks : NULL;
        blocks += run->block_count;
    }
    return XORCAST_OK;
}

static xorcast_status work_task(void *user, uint64_t index, uint32_t worker) {
    parts_job *job = user;
    xci_stage *stage = job->stage;
    xci_stage_task *task = &stage->tasks[index];
    if (task->run.record == NULL)
        return check_part(job, task->part);
    if (task->run.first_block == 0)
        TRY(check_record(job, task->run.record));
    return xci_stage_run_work(&stage->workers[worker], job->held, &task->run);
}

/* Holds the parts that ready blocks stay in. */
static xorcast_status hold_parts(const parts_job *job) {
    xci_stage *stage = job->stage;
    xorcast_context *context = stage->bundle->context;
    bool in_part[XCI_STAGE_PARTS] = {false};
    for (uint64_t i = 0; i < stage->task_count; i++)
        in_part[stage->tasks[i].part] |= stage->tasks[i].run.in_part;
    TRY(xci_grow(context, &stage->held, &stage->held_capacity,
                 (stage->held_count + job->count) * sizeof(xci_blob *)));
    for (uint64_t p = 0; p < job->count; p++) {
        if (!in_part[p])
            continue;
        TRY(xci_blob_keep(job->parts[p].blob, context));
        stage->held[stage->held_count++] = job->parts[p].blob;
    }
    return XORCAST_OK;
}

/* Takes over a run's blocks; what was not needed of its room is closed up. */
static void take_run(xci_stage *stage, const xci_stage_run *run) {
    if (run->ready_count > 0 && run->ready != stage->ready + stage->ready_count)
        memmove(stage->ready + stage->ready_count, run->ready,
                run->ready_count * sizeof *run->ready);
    stage->ready_count += run->ready_count;
    stage->ready_bytes += run->ready_bytes;
    xci_counts_add(&stage->counts, &run->counts);
    xci_digest_merge(&stage->change, &run->change);
}

static xorcast_status work_records(parts_job *job) {
    xci_stage *stage = job->stage;
    TRY(plan_tasks(job));
    TRY(xci_pool_run(stage->bundle->context->shared->pool, stage->task_count, work_task, job));
    TRY(hold_parts(job));
    for (uint64_t i = 0; i < stage->task_count; i++)
        take_run(stage, &stage->tasks[i].run);
    return XORCAST_OK;
}

/* ---- Some parts ---- */

static xorcast_status stage_listed(parts_job *job) {
    xci_stage *stage = job->stage;
    TRY(join_parts(stage, job->count));
    TRY(stage->device != NULL ? load_records(job) : work_records(job));
    for (uint64_t i = 0; i < stage->record_count; i++) {
        const xci_record *record = &stage->records[i];
        stage->last_group = record->group;
        stage->payload_bytes += record->stored_bytes;
        stage->encoded_bytes += record->raw_bytes;
    }
    return XORCAST_OK;
}

xorcast_status xci_stage_parts(xci_stage *stage, const xci_manifest *manifest, uint64_t first,
                               uint64_t count, const xci_part_bytes *parts) {
    parts_job job = {
        .stage = stage, .manifest = manifest, .first = first, .count = count, .parts = parts};
    /* Boxes take little of a part: what they take is copied. */
    job.held = count > 0 && parts[0].blob != NULL && stage->bundle->complete;
    const xorcast_status listed = list_parts(&job);
    xorcast_error error;
    xorcast_last_error(stage->bundle->context, &error);
    TRY(stage_listed(&job)); /* damage before a part that cannot be listed comes first, */
    if (listed < 0 && stage->device != NULL)
        TRY(xci_device_stage_wait(stage)); /* also what a device has yet to say */
    return listed < 0 ? xci_fail_from(stage->bundle->context, listed, &error, "%s", error.text)
                      : XORCAST_OK;
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
        xci_keep(context, &stage->keeps, xci_kept_total(info->delta_bytes));
    stage->finished = true;
    return XORCAST_OK;
}

static xorcast_status stage_reader(xci_stage *stage, xci_delta_reader *reader,
                                   const xorcast_digest *base) {
    TRY(xci_stage_begin(stage, &reader->manifest, base));
    const uint64_t part_count = reader->manifest.info.part_count;
    /* What is read has one place; what is in memory already can be staged many at a time. */
    const uint64_t most = reader->source->bytes != NULL ? stage->parts_at_a_time : 1;
    while (reader->next_part < part_count) {
        xci_part_bytes parts[XCI_STAGE_PARTS] = {{0}};
        const uint64_t first = reader->next_part, count = xci_min(most, part_count - first);
        for (uint64_t i = 0; i < count; i++)
            TRY(xci_delta_reader_part(reader, &parts[i].bytes, &parts[i].count));
        TRY(xci_stage_parts(stage, &reader->manifest, first, count, parts));
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
