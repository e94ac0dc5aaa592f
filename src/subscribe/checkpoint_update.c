/* Making a target checkpoint from its base: see checkpoint_update.h. */
#include "subscribe/checkpoint_update.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/pool.h"
#include "base/progress.h"
#include "bundle/bundle.h"
#include "codec/codec.h"
#include "delta/group_reader.h"

struct xci_update_worker {
    xci_group_reader reader;
    uint8_t *bytes, *mask; /* one chunk each */
    xorcast_digest digest; /* of the target, over the groups that this worker made */
};

/* ---- Opening and matching ---- */

xorcast_status xci_update_checkpoint(const xci_update *u, const char *path,
                                     xorcast_checkpoint **checkpoint_out) {
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    options.chunk_bytes = u->delta.manifest.info.chunk_bytes;
    options.group_bytes = u->delta.manifest.info.group_bytes;
    return xorcast_checkpoint_open(u->context, path, &options, checkpoint_out);
}

static bool has_layout(const xorcast_checkpoint *checkpoint, const uint8_t fingerprint[16]) {
    return memcmp(checkpoint->bundle->layout.fingerprint, fingerprint, 16) == 0;
}

static bool same_digest(const xorcast_digest *a, const xorcast_digest *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

xorcast_status xci_update_is_target(const xci_update *u, xorcast_checkpoint *checkpoint,
                                    bool *is_out) {
    const xorcast_delta_info *info = &u->delta.manifest.info;
    xorcast_digest digest;
    *is_out = has_layout(checkpoint, info->target_fingerprint);
    if (*is_out) {
        TRY(xorcast_bundle_digest(checkpoint->bundle, &digest));
        *is_out = same_digest(&digest, &info->target.digest);
    }
    return XORCAST_OK;
}

/* The base, or the target already: then there is nothing that the delta could change. */
static xorcast_status find_version(xci_update *u, const char *path) {
    const xorcast_delta_info *info = &u->delta.manifest.info;
    const bool base_layout = has_layout(u->base, info->base_fingerprint),
               target_layout = has_layout(u->base, info->target_fingerprint);
    xorcast_digest digest;
    if (!base_layout && !target_layout)
        FAIL(u->context, XORCAST_LAYOUT_MISMATCH,
             "%s has other tensors, dtypes or shapes than the checkpoint that the delta starts "
             "from: apply it to that one",
             path);
    TRY(xorcast_bundle_digest(u->base->bundle, &digest));
    if (base_layout && same_digest(&digest, &info->base.digest))
        return XORCAST_OK;
    u->is_target = target_layout && same_digest(&digest, &info->target.digest);
    if (u->is_target)
        return XORCAST_OK;
    FAIL(u->context, XORCAST_BASE_MISMATCH,
         "the bytes of %s are neither the version that the delta starts from nor the one that it "
         "leads to; apply the deltas between them first, or fetch the checkpoint whole",
         path);
}

/* A target that is there already keeps the files that it has. */
static xorcast_status read_files(xci_update *u) {
    const uint8_t *bytes = u->delta.manifest.attachment;
    uint64_t count = u->delta.manifest.attachment_bytes;
    if (!u->delta.manifest.info.has_files || u->is_target) {
        u->own_files.context = u->context;
        TRY(xci_files_encode(&u->base->listing, &u->base->listing, 0, &u->own_files));
        bytes = u->own_files.bytes;
        count = u->own_files.size;
    }
    TRY(xci_source_blame(u->delta.source, xci_files_decode(u->context, bytes, count, &u->files)));
    u->has_files = true;
    return xci_files_resolve(&u->files, &u->base->listing);
}

static xorcast_status fail_delta(const xci_update *u, const char *text) {
    return xci_source_blame(u->delta.source,
                            xci_fail(u->context, XORCAST_DATA_CORRUPT, XCI_NOWHERE, "%s", text));
}

static xorcast_status fail_headers(const xci_update *u) {
    return fail_delta(u, "the headers in the delta do not describe the tensors that it changes; "
                         "fetch the delta again");
}

/* Headers alone may claim any size: the grid of more bytes than the delta's would fill memory. */
static xorcast_status check_size(const xci_update *u) {
    const xci_manifest *manifest = &u->delta.manifest;
    uint64_t bytes = 0, most;
    if (!xci_multiply(manifest->layout_chunk_count, manifest->info.chunk_bytes, &most))
        return fail_headers(u);
    for (uint64_t i = 0; i < u->files.target.entries.count; i++)
        if (!xci_add(bytes, u->files.target.entries.at[i].bytes, &bytes) || bytes > most)
            return fail_headers(u);
    return XORCAST_OK;
}

/* The bundle whose chunks the delta changes: the target's tensors, with what the base has of
 * them. */
static xorcast_status align(xci_update *u) {
    const xorcast_delta_info *info = &u->delta.manifest.info;
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    uint64_t whole_count = 0;
    options.chunk_bytes = info->chunk_bytes;
    options.group_bytes = info->group_bytes;
    u->source = u->base->bundle;
    TRY(check_size(u));
    if (!xci_listing_same_tensors(&u->files.target, &u->base->listing)) {
        TRY(xci_listing_bundle(&u->files.target, &u->base->listing, &options, &u->aligned,
                               &whole_count));
        u->source = u->aligned;
    }
    const xorcast_layout *layout = &u->source->layout;
    if (memcmp(layout->fingerprint, info->target_fingerprint, sizeof layout->fingerprint) != 0 ||
        layout->group_count != u->delta.manifest.layout_group_count ||
        layout->chunk_count != u->delta.manifest.layout_chunk_count ||
        whole_count != u->files.whole_count)
        return fail_headers(u);
    return XORCAST_OK;
}

xorcast_status xci_update_open(xci_update *u, const char *path, const xorcast_source *source) {
    TRY(xci_delta_reader_open(u->context, source, &u->delta));
    TRY(xci_update_checkpoint(u, path, &u->base));
    /* The base is read twice: to be verified, and for the target. */
    xci_progress_begin(u->context, u->base->bundle->layout.total_bytes +
                                       u->delta.manifest.info.counts.bytes_covered);
    return find_version(u, path);
}

xorcast_status xci_update_match(xci_update *u) {
    TRY(read_files(u));
    return align(u);
}

/* ---- Groups ---- */

static xorcast_status open_workers(xci_update *u) {
    const uint32_t threads = xci_context_threads(u->context);
    const uint64_t chunk_bytes = u->source->layout.chunk_bytes;
    void *memory;
    TRY(xci_allocate_array(u->context, threads, sizeof(xci_update_worker), &memory));
    u->workers = memory;
    for (uint32_t i = 0; i < threads; i++)
        xci_group_reader_open(&u->workers[i].reader, u->context);
    for (uint32_t i = 0; i < threads; i++) {
        TRY(xci_allocate(u->context, chunk_bytes, &memory));
        u->workers[i].bytes = memory;
        TRY(xci_allocate(u->context, chunk_bytes, &memory));
        u->workers[i].mask = memory;
    }
    return XORCAST_OK;
}

static void close_workers(xci_update *u) {
    for (uint32_t i = 0; u->workers != NULL && i < xci_context_threads(u->context); i++) {
        xci_group_reader_close(&u->workers[i].reader);
        xci_release(u->context, u->workers[i].bytes);
        xci_release(u->context, u->workers[i].mask);
    }
    xci_release(u->context, u->workers);
}

static const xci_record *find_record(const xci_part_records *records, uint64_t group) {
    uint64_t low = 0, high = records == NULL ? 0 : records->count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (records->records[middle].group < group)
            low = middle + 1;
        else
            high = middle;
    }
    const bool found =
        records != NULL && low < records->count && records->records[low].group == group;
    return found ? &records->records[low] : NULL;
}

static xorcast_status write_chunk(const xci_update *u, const xci_chunk *chunk,
                                  const uint8_t *bytes) {
    if (!chunk->packed)
        return u->write(u->user, chunk->tensor, chunk->offset, bytes, chunk->bytes);
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        TRY(u->write(u->user, chunk->tensors[i], 0, bytes + chunk->places[i].offset,
                     chunk->places[i].bytes));
    return XORCAST_OK;
}

static void add_digest(const xci_update *u, const xci_chunk *chunk, const uint8_t *bytes,
                       xci_update_worker *w) {
    xci_digest_job job = {bytes, chunk->segment_count, chunk->segments, {{0, 0}}};
    u->context->shared->backend->digest(&job, 1);
    xci_digest_merge(&w->digest, &job.digest);
}

/* One chunk from old to new, by block `index` of the record, which is NULL where nothing
 * changed. */
static xorcast_status make_chunk(const xci_update *u, const xci_chunk *chunk,
                                 const xci_record *record, uint32_t index, const uint8_t *encoded,
                                 xci_update_worker *w) {
    const uint8_t *old;
    TRY(xci_chunk_read(u->source, chunk, w->bytes, &old));
    if (record != NULL) {
        const xci_place place = {chunk->tensor, chunk->index, 0};
        TRY(xci_source_blame(u->delta.source,
                             xci_block_decode(&w->reader, place, record, index, encoded, old,
                                              w->mask, chunk->bytes)));
        xci_xor_into(w->mask, old, chunk->bytes);
        old = w->mask;
    }
    add_digest(u, chunk, old, w);
    return u->write == NULL ? XORCAST_OK : write_chunk(u, chunk, old);
}

static xorcast_status make_group(void *user, uint64_t index, uint32_t worker_index) {
    const xci_update *u = user;
    xci_update_worker *w = &u->workers[worker_index];
    const uint64_t group = u->first_group + index;
    const uint64_t first = u->source->group_first[group], end = u->source->group_first[group + 1];
    const xci_record *record = find_record(u->records, group);
    const uint8_t *payload = NULL;
    if (record != NULL) {
        const xci_place place = {XORCAST_NO_INDEX, first, 0};
        TRY(xci_source_blame(u->delta.source, xci_group_read(&w->reader, place, record, &payload)));
    }
    uint32_t next = 0;
    xci_chunk chunk;
    for (uint64_t c = first; c < end; c++) {
        const bool changed =
            record != NULL && next < record->block_count && record->blocks[next].chunk == c - first;
        if (c == first)
            xci_bundle_chunk(u->source, c, NULL, &chunk);
        else
            xci_bundle_next_chunk(u->source, NULL, &chunk);
        TRY(make_chunk(u, &chunk, changed ? record : NULL, next, payload, w));
        if (changed) {
            payload += record->blocks[next++].bytes;
        }
    }
    if (record != NULL && next < record->block_count)
        return fail_delta(u, "the delta has a chunk that the checkpoint has not; fetch it again");
    return xci_progress_step(u->context, worker_index, xci_bundle_group_size(u->source, group));
}

/* Works on groups up to `end`, of which `records` (or NULL) has those that change. */
static xorcast_status make_groups(xci_update *u, const xci_part_records *records, uint64_t end) {
    u->records = records;
    TRY(xci_pool_run(u->context->shared->pool, end - u->first_group, make_group, u));
    u->first_group = end;
    return XORCAST_OK;
}

static xorcast_status make_part(xci_update *u, xci_part_records *records) {
    const uint64_t after = u->first_group == 0 ? UINT64_MAX : u->first_group - 1;
    TRY(xci_delta_reader_records(&u->delta, after, records));
    return make_groups(u, records, records->records[records->count - 1].group + 1);
}

xorcast_status xci_update_run(xci_update *u) {
    xci_part_records records = {0};
    xorcast_status status = open_workers(u);
    const uint64_t parts = u->is_target ? 0 : u->delta.manifest.info.part_count;
    for (uint64_t i = 0; i < parts && status == XORCAST_OK; i++)
        status = make_part(u, &records);
    xci_part_records_free(u->context, &records);
    TRY(status);
    TRY(make_groups(u, NULL, u->source->layout.group_count));
    xorcast_digest digest = {{0, 0}};
    for (uint32_t i = 0; i < xci_context_threads(u->context); i++)
        xci_digest_merge(&digest, &u->workers[i].digest);
    if (memcmp(&digest, &u->delta.manifest.info.target.digest, sizeof digest) != 0)
        return fail_delta(u, "the delta does not lead to the version that it names; nothing was "
                             "changed: fetch it again");
    return XORCAST_OK;
}

void xci_update_close(xci_update *u) {
    xci_progress_end(u->context);
    close_workers(u);
    xorcast_bundle_destroy(u->aligned);
    if (u->has_files)
        xci_files_free(&u->files);
    if (u->own_files.context != NULL)
        xci_buffer_free(&u->own_files);
    xorcast_checkpoint_close(u->base);
    if (u->delta.context != NULL)
        xci_delta_reader_close(&u->delta);
}
