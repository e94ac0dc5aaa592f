/* Two bundles to one delta, in order, in pieces: batches of groups are encoded by the pool and
 * written by the caller. */
#include <string.h>

#include "base/bytes.h"
#include "base/counts.h"
#include "base/digest.h"
#include "base/pool.h"
#include "base/progress.h"
#include "publish/bound.h"
#include "publish/encode.h"

#define BATCH_GROUPS_PER_THREAD                                                                    \
    2u /* enough that no thread waits for the slowest group; each may hold a dense group */

typedef struct group_result {
    xci_written written; /* bytes NULL: nothing changed */
    xci_piece piece;     /* its counts and digests; the record is gone */
} group_result;

typedef struct delta_job {
    xorcast_bundle *old_bundle, *new_bundle;
    const xorcast_delta_options *options;
    xci_encode_worker *workers;
    xci_bound *bound; /* or NULL */
    group_result *results;
    uint64_t batch_first, batch_count;
    /* sums */
    xorcast_counts counts;
    xorcast_digest old_digest, change;
    uint64_t encoded_bytes;
} delta_job;

static xorcast_status encode_group(void *user, uint64_t index, uint32_t worker_index) {
    delta_job *job = user;
    xci_encode_worker *worker = &job->workers[worker_index];
    const uint64_t group = job->batch_first + index;
    const uint64_t *first = &job->old_bundle->group_first[group];
    group_result *result = &job->results[index];
    TRY(xci_encode_range(worker, job->old_bundle, job->new_bundle, group, first[0], first[1],
                         XCI_OLD_DIGEST, &result->piece));
    TRY(xci_progress_step(job->old_bundle->context, worker_index,
                          result->piece.counts.bytes_covered));
    if (result->piece.record.block_count == 0)
        return XORCAST_OK;
    if (job->bound != NULL)
        TRY(xci_bound_add(job->bound, job->old_bundle, &result->piece.record));
    const uint8_t *const *old = NULL;
    if (job->options->encoding.old_weights == 1)
        TRY(xci_encode_old(worker, NULL, &result->piece.record, &old));
    xci_record made;
    return xci_group_write(&worker->writer, &result->piece.record, old, &made, &result->written);
}

static xorcast_status write_batch(delta_job *job, xci_delta_writer *writer) {
    for (uint64_t i = 0; i < job->batch_count; i++) {
        group_result *result = &job->results[i];
        xci_counts_add(&job->counts, &result->piece.counts);
        xci_digest_merge(&job->old_digest, &result->piece.old);
        xci_digest_merge(&job->change, &result->piece.change);
        if (result->written.bytes == NULL)
            continue;
        job->encoded_bytes += result->written.raw_bytes;
        TRY(xci_delta_writer_add(writer, result->written.bytes, result->written.count,
                                 result->written.payload_bytes));
    }
    return XORCAST_OK;
}

static void drop_batch(delta_job *job) {
    for (uint32_t i = 0; i < xci_context_threads(job->old_bundle->context); i++)
        xci_group_writer_reset(&job->workers[i].writer);
}

static xorcast_status encode_groups(delta_job *job, xci_delta_writer *writer) {
    xorcast_context *context = job->old_bundle->context;
    const uint64_t group_count = job->old_bundle->layout.group_count;
    const uint64_t batch = xci_context_threads(context) * BATCH_GROUPS_PER_THREAD;
    void *memory;
    TRY(xci_allocate_array(context, batch, sizeof(group_result), &memory));
    job->results = memory;
    xci_progress_begin(context, job->old_bundle->layout.total_bytes);
    xorcast_status status = XORCAST_OK;
    for (job->batch_first = 0; job->batch_first < group_count && status == XORCAST_OK;
         job->batch_first += batch) {
        job->batch_count = xci_min(batch, group_count - job->batch_first);
        memset(job->results, 0, batch * sizeof(group_result));
        status = xci_pool_run(context->shared->pool, job->batch_count, encode_group, job);
        if (status == XORCAST_OK)
            status = write_batch(job, writer);
        drop_batch(job);
    }
    xci_progress_end(context);
    xci_release(context, memory);
    return status;
}

static void fill_info(const delta_job *job, const xci_identity *identity,
                      xorcast_delta_info *info) {
    const xorcast_layout *layout = &job->old_bundle->layout;
    if (job->options->run != NULL)
        strncpy(info->base.run, job->options->run, XORCAST_RUN_BYTES - 1);
    memcpy(info->target.run, info->base.run, XORCAST_RUN_BYTES);
    info->base.step = job->options->base_step;
    info->target.step = job->options->target_step;
    info->base.digest = info->target.digest = job->old_digest;
    xci_digest_merge(&info->target.digest, &job->change);
    memcpy(info->base_fingerprint, layout->fingerprint, sizeof layout->fingerprint);
    memcpy(info->target_fingerprint, layout->fingerprint, sizeof layout->fingerprint);
    if (identity != NULL) {
        info->base.digest = identity->digest;
        memcpy(info->base_fingerprint, identity->fingerprint, sizeof identity->fingerprint);
    }
    info->needs_old_weights = job->options->encoding.old_weights;
    info->counts = job->counts;
    info->chunk_bytes = layout->chunk_bytes;
    info->group_bytes = layout->group_bytes;
    info->chunk_encoded_bytes = job->encoded_bytes;
}

static xorcast_status encode_to(delta_job *job, xci_sink_writer *writer, const xorcast_sink *sink,
                                xci_manifest *manifest, const xci_identity *identity) {
    TRY(xci_sink_writer_begin(writer, job->old_bundle->context, sink));
    TRY(encode_groups(job, &writer->writer));
    fill_info(job, identity, &manifest->info);
    return xci_sink_writer_finish(writer, manifest);
}

static xorcast_status check_request(xorcast_bundle *old_bundle, xorcast_bundle *new_bundle,
                                    const xorcast_delta_options *options) {
    xorcast_context *context = old_bundle->context;
    TRY(xci_bundle_need_sealed(old_bundle));
    if (options->struct_size != sizeof *options)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "delta options are not initialised; use XORCAST_DELTA_OPTIONS_INIT");
    if (options->run != NULL && strlen(options->run) >= XORCAST_RUN_BYTES)
        FAIL(context, XORCAST_BAD_ARGUMENT, "a run's name has at most %d bytes",
             XORCAST_RUN_BYTES - 1);
    if (options->base_step != XORCAST_NO_STEP && options->target_step != XORCAST_NO_STEP &&
        options->target_step <= options->base_step)
        FAIL(context, XORCAST_VERSION_ORDER, "the target step %llu does not follow the base step "
             "%llu; steps only grow", (unsigned long long)options->target_step,
             (unsigned long long)options->base_step);
    if (!new_bundle->sealed)
        FAIL(context, XORCAST_BAD_STATE,
             "the new bundle is not sealed; call xorcast_bundle_seal first");
    TRY(xci_bundle_same_layout(old_bundle, new_bundle));
    if (!old_bundle->complete || !new_bundle->complete)
        FAIL(context, XORCAST_UNSUPPORTED,
             "a delta is made of whole tensors; these bundles have boxes that leave holes");
    return XORCAST_OK;
}

xorcast_status xci_delta_encode(xorcast_bundle *old_bundle, xorcast_bundle *new_bundle,
                                const xorcast_delta_options *options, const xci_identity *identity,
                                const uint8_t *attachment, uint64_t attachment_bytes,
                                const xorcast_sink *sink, xorcast_delta_info *info_out) {
    static const xorcast_delta_options defaults = XORCAST_DELTA_OPTIONS_INIT;
    xorcast_context *context = old_bundle->context;
    if (options == NULL)
        options = &defaults;
    TRY(check_request(old_bundle, new_bundle, options));
    delta_job job = {.old_bundle = old_bundle, .new_bundle = new_bundle, .options = options};
    xci_manifest manifest = {.layout_group_count = old_bundle->layout.group_count,
                             .layout_chunk_count = old_bundle->layout.chunk_count,
                             .attachment = attachment,
                             .attachment_bytes = attachment_bytes};
    manifest.info.has_files = attachment != NULL;
    TRY(xci_encoding_check(context, &options->encoding, &manifest.encoding));
    manifest.info.asked = manifest.encoding;
    TRY(xci_encode_workers_open(old_bundle, &manifest.encoding, &job.workers));
    xci_sink_writer writer = {0};
    xorcast_status status =
        options->measure_bound ? xci_bound_open(old_bundle, &job.bound) : XORCAST_OK;
    if (status == XORCAST_OK)
        status = encode_to(&job, &writer, sink, &manifest, identity);
    if (writer.writer.context != NULL)
        xci_delta_writer_end(&writer.writer);
    if (status == XORCAST_OK && job.bound != NULL)
        manifest.info.entropy_bound_bytes = xci_bound_bytes(job.bound, old_bundle);
    xci_bound_close(context, job.bound);
    xci_encode_workers_close(context, job.workers);
    TRY(status);
    if (info_out != NULL)
        *info_out = manifest.info;
    return XORCAST_OK;
}

xorcast_status xorcast_delta_encode(xorcast_bundle *old_bundle, xorcast_bundle *new_bundle,
                                    const xorcast_delta_options *options, const xorcast_sink *sink,
                                    xorcast_delta_info *info_out) {
    return xci_delta_encode(old_bundle, new_bundle, options, NULL, NULL, 0, sink, info_out);
}
