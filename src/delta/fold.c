/* Fold: several consecutive deltas to one, without weights. XOR of masks, chunk by chunk; a chunk
 * that was changed and changed back is left out. One group at a time, its chunks spread over the
 * pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "base/progress.h"
#include "checkpoint/files.h"
#include "codec/codec.h"
#include "codec/lz4_block.h"
#include "delta/group_reader.h"
#include "delta/group_writer.h"
#include "frame/delta_reader.h"
#include "frame/delta_writer.h"

/* One of the deltas, and where we are in it. */
typedef struct fold_input {
    xci_delta_reader reader;
    xci_part_records records;
    xci_group_reader group;
    uint64_t next, last_group; /* record in the present part; the group before it */
} fold_input;

/* A block of the present group. */
typedef struct fold_entry {
    const xci_record *record;
    uint32_t index; /* of the block in the record */
    const xci_block *block;
    const uint8_t *bytes;
    uint64_t input;
    uint32_t chunk_bytes; /* as the block says itself; 0: it is damaged */
} fold_entry;

typedef struct fold_job {
    xorcast_context *context;
    fold_input *inputs;
    uint64_t input_count, group, chunk_bytes, group_bytes_max;
    fold_entry *entries; /* by chunk, then by input */
    uint64_t entry_count, entries_capacity;
    /* for each chunk that is in any input, its first entry; one more at the end */
    uint64_t *firsts;
    uint64_t chunk_count, firsts_capacity;
    xci_encode_job *results;
    uint64_t results_capacity;
    uint8_t *slots; /* room for each result's block */
    uint64_t slots_capacity;
    uint8_t *masks; /* scratch of each worker */
    xci_block *blocks;
    uint64_t blocks_capacity;
    xci_segment whole; /* a segment of any chunk: the backend sums a digest, no one reads it */
    xci_group_writer writer;
    xorcast_counts counts;
    uint64_t encoded_bytes;
} fold_job;

/* ---- One chunk ---- */

static uint64_t mask_space(const fold_job *job) {
    return 3 * job->chunk_bytes;
}

static uint64_t lz4_size(const uint8_t *block, uint32_t block_bytes, uint32_t most) {
    xci_lz4_walk walk = xci_lz4_begin(block, block_bytes, most);
    xci_lz4_sequence sequence;
    while (xci_lz4_next(&walk, &sequence)) /* stops behind the last sequence, or at damage */
        continue;
    return walk.produced;
}

/* Without a bundle only the block tells how large its chunk is. Decoding it to that size proves
 * it. */
static xorcast_status measure_entry(void *user, uint64_t index, uint32_t worker) {
    fold_job *job = user;
    fold_entry *entry = &job->entries[index];
    const xci_block *block = entry->block;
    xci_reader reader = {entry->bytes, entry->bytes + block->bytes, false};
    uint64_t size = block->bytes;
    (void)worker;
    if (block->codec == XORCAST_CODEC_LZ4)
        size = lz4_size(entry->bytes, block->bytes, (uint32_t)job->chunk_bytes);
    else if (block->codec == XORCAST_CODEC_SNAPPY)
        size = xci_read_varint(&reader);
    else if (block->codec == XORCAST_CODEC_GAP)
        size = block->chunk_bytes;
    entry->chunk_bytes = size <= job->chunk_bytes ? (uint32_t)size : 0;
    return XORCAST_OK;
}

static xorcast_status bad_block(const fold_job *job, const fold_entry *entry) {
    const xorcast_status status =
        xci_fail(job->context, XORCAST_DATA_CORRUPT, XCI_NOWHERE,
                 "group %llu, chunk %u of it: the block does not decode; fetch the delta again",
                 (unsigned long long)job->group, entry->block->chunk);
    return xci_source_blame(job->inputs[entry->input].reader.source, status);
}

static xorcast_status decode(const fold_job *job, const fold_entry *entry, uint8_t *mask) {
    const xorcast_status status =
        xci_block_decode(&job->inputs[entry->input].group, XCI_NOWHERE, entry->record, entry->index,
                         entry->bytes, NULL, mask, entry->chunk_bytes);
    return status == XORCAST_DATA_CORRUPT ? bad_block(job, entry) : status;
}

static void xor_into(uint8_t *sum, const uint8_t *more, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++)
        sum[i] ^= more[i];
}

static xorcast_status fold_chunk(void *user, uint64_t index, uint32_t worker) {
    fold_job *job = user;
    uint8_t *sum = job->masks + worker * mask_space(job);
    uint8_t *more = sum + job->chunk_bytes, *zeros = more + job->chunk_bytes;
    xci_encode_job *result = &job->results[index];
    const uint64_t first = job->firsts[index];
    TRY(decode(job, &job->entries[first], sum));
    for (uint64_t e = first + 1; e < job->firsts[index + 1]; e++) {
        TRY(decode(job, &job->entries[e], more));
        xor_into(sum, more, result->bytes);
    }
    result->old_bytes = zeros;
    result->new_bytes = sum;
    job->context->shared->backend->encode(result, 1);
    return XORCAST_OK;
}

/* ---- One group ---- */

static int by_chunk(const void *a, const void *b) {
    const fold_entry *x = a, *y = b;
    if (x->block->chunk != y->block->chunk)
        return x->block->chunk < y->block->chunk ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

/* Lists the blocks of the present group, of all inputs that have it. */
static xorcast_status list_entries(fold_job *job) {
    job->entry_count = 0;
    for (uint64_t i = 0; i < job->input_count; i++) {
        fold_input *input = &job->inputs[i];
        if (input->next == input->records.count ||
            input->records.records[input->next].group != job->group)
            continue;
        const xci_record *record = &input->records.records[input->next];
        const uint8_t *bytes;
        TRY(xci_source_blame(input->reader.source,
                             xci_group_read(&input->group, XCI_NOWHERE, record, &bytes)));
        TRY(xci_grow(job->context, &job->entries, &job->entries_capacity,
                     (job->entry_count + record->block_count) * sizeof(fold_entry)));
        for (uint32_t b = 0; b < record->block_count; b++) {
            job->entries[job->entry_count++] =
                (fold_entry){record, b, &record->blocks[b], bytes, i, 0};
            bytes += record->blocks[b].bytes;
        }
    }
    qsort(job->entries, job->entry_count, sizeof *job->entries, by_chunk);
    return XORCAST_OK;
}

/* The chunks that the entries belong to, and how large they are: every entry of one must say the
 * same. */
static xorcast_status list_chunks(fold_job *job, uint64_t *slots_bytes_out) {
    uint64_t bytes = 0;
    TRY(xci_grow(job->context, &job->firsts, &job->firsts_capacity,
                 (job->entry_count + 1) * sizeof(uint64_t)));
    job->chunk_count = 0;
    for (uint64_t e = 0; e < job->entry_count; e++) {
        const fold_entry *entry = &job->entries[e], *before = e > 0 ? entry - 1 : NULL;
        const bool first = before == NULL || entry->block->chunk != before->block->chunk;
        if (entry->chunk_bytes == 0)
            return bad_block(job, entry);
        if (!first && entry->chunk_bytes != before->chunk_bytes)
            FAIL(job->context, XORCAST_DATA_CORRUPT,
                 "group %llu, chunk %u of it has %u bytes in one delta and %u in another",
                 (unsigned long long)job->group, entry->block->chunk, before->chunk_bytes,
                 entry->chunk_bytes);
        if (first) {
            job->firsts[job->chunk_count++] = e;
            bytes += entry->chunk_bytes;
        }
    }
    job->firsts[job->chunk_count] = job->entry_count;
    if (bytes > job->group_bytes_max)
        FAIL(job->context, XORCAST_DATA_LIMIT,
             "the chunks of group %llu have %llu bytes where %llu are the most; refuse the delta",
             (unsigned long long)job->group, (unsigned long long)bytes,
             (unsigned long long)job->group_bytes_max);
    *slots_bytes_out = bytes + job->chunk_count * XCI_BLOCK_SLACK;
    return XORCAST_OK;
}

static xorcast_status make_jobs(fold_job *job) {
    uint64_t slots_bytes;
    TRY(list_chunks(job, &slots_bytes));
    TRY(xci_grow(job->context, &job->results, &job->results_capacity,
                 job->chunk_count * sizeof(xci_encode_job)));
    TRY(xci_grow(job->context, &job->blocks, &job->blocks_capacity,
                 job->chunk_count * sizeof(xci_block)));
    TRY(xci_grow(job->context, &job->slots, &job->slots_capacity, slots_bytes));
    uint8_t *slot = job->slots;
    for (uint64_t i = 0; i < job->chunk_count; i++) {
        const fold_entry *entry = &job->entries[job->firsts[i]];
        job->results[i] = (xci_encode_job){.bytes = entry->chunk_bytes,
                                           .element_bytes = entry->block->element_bytes,
                                           .codec = xci_group_writer_codec(&job->writer),
                                           .segments = &job->whole,
                                           .segment_count = 1,
                                           .block = slot};
        slot += entry->chunk_bytes + XCI_BLOCK_SLACK;
    }
    return XORCAST_OK;
}

static xorcast_status write_group(fold_job *job, xci_delta_writer *out) {
    xci_record record = {.group = job->group, .blocks = job->blocks, .payload = job->slots};
    for (uint64_t i = 0; i < job->chunk_count; i++) {
        const xci_encode_job *result = &job->results[i];
        if (result->block_bytes == 0)
            continue;
        memmove(job->slots + record.raw_bytes, result->block, result->block_bytes);
        record.raw_bytes += result->block_bytes;
        record.blocks[record.block_count++] =
            (xci_block){job->entries[job->firsts[i]].block->chunk, result->block_codec,
                        result->element_bytes, result->block_bytes, result->bytes};
        job->counts.bits_changed += result->bits_changed;
        job->counts.bytes_changed += result->bytes_changed;
        job->counts.elements_changed += result->elements_changed;
        job->counts.chunks_changed++;
    }
    if (record.block_count == 0)
        return XORCAST_OK;
    xci_record made;
    xci_written written;
    TRY(xci_group_write(&job->writer, &record, NULL, &made, &written));
    job->encoded_bytes += written.raw_bytes;
    const xorcast_status status =
        xci_delta_writer_add(out, written.bytes, written.count, written.payload_bytes);
    xci_group_writer_reset(&job->writer);
    return status;
}

/* ---- All groups ---- */

/* Makes sure that the input's next record is at hand, if there is one. */
static xorcast_status advance(fold_input *input) {
    xci_delta_reader *reader = &input->reader;
    while (input->next == input->records.count &&
           reader->next_part < reader->manifest.info.part_count) {
        TRY(xci_delta_reader_records(reader, input->last_group, &input->records));
        input->next = 0;
    }
    return XORCAST_OK;
}

/* The smallest group that any input has next; false at the end. */
static xorcast_status next_group(fold_job *job, bool *found_out) {
    *found_out = false;
    for (uint64_t i = 0; i < job->input_count; i++) {
        fold_input *input = &job->inputs[i];
        TRY(advance(input));
        if (input->next == input->records.count)
            continue;
        const uint64_t group = input->records.records[input->next].group;
        job->group = *found_out ? xci_min(job->group, group) : group;
        *found_out = true;
    }
    return XORCAST_OK;
}

static void pass_group(fold_job *job) {
    for (uint64_t i = 0; i < job->input_count; i++) {
        fold_input *input = &job->inputs[i];
        if (input->next < input->records.count &&
            input->records.records[input->next].group == job->group) {
            input->last_group = job->group;
            input->next++;
        }
    }
}

static xorcast_status fold_groups(fold_job *job, xci_delta_writer *out) {
    const uint64_t group_bytes = job->inputs[0].reader.manifest.info.group_bytes;
    uint64_t passed = 0;
    void *memory;
    TRY(xci_allocate_zeroed(job->context, xci_context_threads(job->context) * mask_space(job),
                            &memory));
    job->masks = memory;
    for (;;) {
        bool found;
        TRY(next_group(job, &found));
        if (!found)
            return XORCAST_OK;
        TRY(list_entries(job));
        TRY(xci_pool_run(job->context->shared->pool, job->entry_count, measure_entry, job));
        TRY(make_jobs(job));
        TRY(xci_pool_run(job->context->shared->pool, job->chunk_count, fold_chunk, job));
        TRY(write_group(job, out));
        pass_group(job);
        xci_progress_step(job->context, 0, (job->group + 1 - passed) * group_bytes);
        passed = job->group + 1;
    }
}

/* ---- The chain ---- */

/* What a delta is called in messages. */
typedef struct fold_label {
    char text[304];
} fold_label;

static fold_label label(const fold_job *job, uint64_t at) {
    const char *name = job->inputs[at].reader.source->name;
    fold_label out;
    if (name != NULL)
        snprintf(out.text, sizeof out.text, "%s", name);
    else
        snprintf(out.text, sizeof out.text, "delta %llu", (unsigned long long)at);
    return out;
}

static xorcast_status check_link(const fold_job *job, uint64_t at) {
    const xorcast_delta_info *a = &job->inputs[at - 1].reader.manifest.info,
                             *b = &job->inputs[at].reader.manifest.info;
    if (strcmp(a->target.run, b->base.run) != 0)
        FAIL(job->context, XORCAST_RUN_MISMATCH,
             "%s is of run '%s', the one before of run '%s'; fold deltas of one run",
             label(job, at).text, b->base.run, a->target.run);
    if (a->target.step != b->base.step)
        FAIL(job->context, XORCAST_VERSION_ORDER,
             "%s starts from step %lld where the one before leads to %lld; give them in order, "
             "oldest first",
             label(job, at).text, (long long)b->base.step, (long long)a->target.step);
    if (memcmp(&a->target.digest, &b->base.digest, sizeof(xorcast_digest)) != 0)
        FAIL(job->context, XORCAST_BASE_MISMATCH,
             "%s starts from other bytes than the one before leads to; give them in order, oldest "
             "first",
             label(job, at).text);
    if (memcmp(a->target_fingerprint, b->base_fingerprint, sizeof a->target_fingerprint) != 0 ||
        a->chunk_bytes != b->chunk_bytes || a->group_bytes != b->group_bytes ||
        job->inputs[at - 1].reader.manifest.layout_group_count !=
            job->inputs[at].reader.manifest.layout_group_count)
        FAIL(job->context, XORCAST_LAYOUT_MISMATCH, "%s is of another layout than the one before",
             label(job, at).text);
    if (memcmp(b->base_fingerprint, b->target_fingerprint, sizeof b->base_fingerprint) != 0)
        FAIL(job->context, XORCAST_UNSUPPORTED,
             "%s changes the layout; apply the deltas up to it, then fold the rest",
             label(job, at).text);
    return XORCAST_OK;
}

static xorcast_status open_inputs(fold_job *job, const xorcast_source *sources) {
    void *memory;
    TRY(xci_allocate_array(job->context, job->input_count, sizeof(fold_input), &memory));
    job->inputs = memory;
    for (uint64_t i = 0; i < job->input_count; i++) {
        fold_input *input = &job->inputs[i];
        input->last_group = UINT64_MAX;
        xci_group_reader_open(&input->group, job->context);
        TRY(xci_delta_reader_open(job->context, &sources[i], &input->reader));
        if (input->reader.manifest.info.needs_old_weights)
            FAIL(
                job->context, XORCAST_UNSUPPORTED,
                "%s can be decoded only beside the weights that it starts from; fold plain deltas, "
                "or apply this one",
                label(job, i).text);
        if (i > 0)
            TRY(check_link(job, i));
    }
    return XORCAST_OK;
}

static void close_job(fold_job *job) {
    for (uint64_t i = 0; i < job->input_count && job->inputs != NULL; i++) {
        fold_input *input = &job->inputs[i];
        if (input->reader.context != NULL)
            xci_delta_reader_close(&input->reader);
        xci_part_records_free(job->context, &input->records);
        xci_group_reader_close(&input->group);
    }
    void *const parts[] = {job->inputs, job->entries, job->firsts, job->results,
                           job->slots,  job->masks,   job->blocks};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        xci_release(job->context, parts[i]);
    xci_group_writer_close(&job->writer);
}

static void fill_manifest(const fold_job *job, const xorcast_delta_options *options,
                          xci_manifest *manifest) {
    const xci_manifest *first = &job->inputs[0].reader.manifest;
    const xci_manifest *last = &job->inputs[job->input_count - 1].reader.manifest;
    manifest->info = last->info;
    manifest->info.asked = manifest->encoding;
    manifest->info.base = first->info.base;
    memcpy(manifest->info.base_fingerprint, first->info.base_fingerprint,
           sizeof first->info.base_fingerprint);
    if (options->run != NULL) {
        memset(manifest->info.base.run, 0, XORCAST_RUN_BYTES);
        strncpy(manifest->info.base.run, options->run, XORCAST_RUN_BYTES - 1);
        memcpy(manifest->info.target.run, manifest->info.base.run, XORCAST_RUN_BYTES);
    }
    const uint64_t bytes_covered = last->info.counts.bytes_covered,
                   elements_covered = last->info.counts.elements_covered;
    manifest->info.offers_old_weights = 0; /* of the last version alone */
    manifest->info.counts = job->counts;
    manifest->info.counts.bytes_covered = bytes_covered;
    manifest->info.counts.elements_covered = elements_covered;
    manifest->info.chunk_encoded_bytes = job->encoded_bytes;
    manifest->layout_group_count = last->layout_group_count;
    manifest->layout_chunk_count = last->layout_chunk_count;
}

/* What the files of the last target are, seen from the first base. */
static xorcast_status fold_attachments(fold_job *job, xci_manifest *manifest, uint8_t **owned) {
    *owned = NULL;
    for (uint64_t i = 0; i < job->input_count; i++) {
        const xci_manifest *input = &job->inputs[i].reader.manifest;
        if (i > 0 && input->info.has_files != job->inputs[0].reader.manifest.info.has_files)
            FAIL(job->context, XORCAST_UNSUPPORTED,
                 "of %s and the first delta only one is of checkpoint files; fold deltas of one "
                 "kind",
                 label(job, i).text);
        if (!input->info.has_files)
            continue;
        if (i == 0) {
            manifest->attachment = input->attachment;
            manifest->attachment_bytes = input->attachment_bytes;
            continue;
        }
        uint8_t *folded;
        uint64_t folded_bytes;
        TRY(xci_files_fold(job->context, manifest->attachment, manifest->attachment_bytes,
                           input->attachment, input->attachment_bytes, &folded, &folded_bytes));
        xci_release(job->context, *owned);
        *owned = folded;
        manifest->attachment = folded;
        manifest->attachment_bytes = folded_bytes;
    }
    return XORCAST_OK;
}

static xorcast_status fold_to(fold_job *job, const xorcast_source *sources,
                              const xorcast_delta_options *options, const xorcast_sink *sink,
                              xci_sink_writer *out, xci_manifest *manifest) {
    TRY(xci_encoding_check(job->context, &options->encoding, &manifest->encoding));
    TRY(open_inputs(job, sources));
    job->chunk_bytes = job->inputs[0].reader.manifest.info.chunk_bytes;
    job->whole.bytes = (uint32_t)job->chunk_bytes;
    job->group_bytes_max = xci_manifest_limits(&job->inputs[0].reader.manifest).raw_bytes;
    TRY(xci_group_writer_open(&job->writer, job->context, &manifest->encoding));
    TRY(xci_sink_writer_begin(out, job->context, sink));
    xci_progress_begin(job->context, job->inputs[0].reader.manifest.layout_group_count *
                                         job->inputs[0].reader.manifest.info.group_bytes);
    const xorcast_status folded = fold_groups(job, &out->writer);
    xci_progress_end(job->context);
    TRY(folded);
    fill_manifest(job, options, manifest);
    uint8_t *owned;
    xorcast_status status = fold_attachments(job, manifest, &owned);
    if (status == XORCAST_OK)
        status = xci_sink_writer_finish(out, manifest);
    xci_release(job->context, owned);
    return status;
}

xorcast_status xorcast_delta_fold(xorcast_context *context, const xorcast_source *sources,
                                  uint64_t count, const xorcast_delta_options *options,
                                  const xorcast_sink *sink, xorcast_delta_info *info_out) {
    static const xorcast_delta_options defaults = XORCAST_DELTA_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    if (count == 0 || sources == NULL || options->struct_size != sizeof *options ||
        (options->run != NULL && strlen(options->run) >= XORCAST_RUN_BYTES))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "fold takes at least one delta, initialised options and a run's name of at most %d "
             "bytes",
             XORCAST_RUN_BYTES - 1);
    fold_job job = {.context = context, .input_count = count};
    xci_sink_writer out = {0};
    xci_manifest manifest = {0};
    const xorcast_status status = fold_to(&job, sources, options, sink, &out, &manifest);
    if (out.writer.context != NULL)
        xci_delta_writer_end(&out.writer);
    close_job(&job);
    TRY(status);
    manifest.info.entropy_bound_bytes = 0;
    if (info_out != NULL)
        *info_out = manifest.info;
    return XORCAST_OK;
}
