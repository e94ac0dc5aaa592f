/* Fold: several consecutive deltas to one, without weights. XOR of masks, chunk by chunk; a chunk
 * that was changed and changed back is left out. Here the inputs are opened, led through their
 * groups in step, and described in one manifest; what is done with a group is fold_group.c's. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/progress.h"
#include "checkpoint/files.h"
#include "delta/fold.h"
#include "delta/fold_group.h"

/* ---- The chain ---- */

/* What a delta is called in messages. */
typedef struct fold_label {
    char text[304];
} fold_label;

static fold_label label(const xci_fold *fold, uint64_t at) {
    const char *name = fold->inputs[at].reader.source->name;
    fold_label out;
    if (name != NULL)
        snprintf(out.text, sizeof out.text, "%s", name);
    else
        snprintf(out.text, sizeof out.text, "delta %llu", (unsigned long long)at);
    return out;
}

static xorcast_status check_link(const xci_fold *fold, uint64_t at) {
    const xorcast_delta_info *a = &fold->inputs[at - 1].reader.manifest.info,
                             *b = &fold->inputs[at].reader.manifest.info;
    if (strcmp(a->target.run, b->base.run) != 0)
        FAIL(fold->context, XORCAST_RUN_MISMATCH,
             "%s is of run '%s', the one before of run '%s'; fold deltas of one run",
             label(fold, at).text, b->base.run, a->target.run);
    if (a->target.step != b->base.step)
        FAIL(fold->context, XORCAST_VERSION_ORDER,
             "%s starts from step %lld where the one before leads to %lld; give them in order, "
             "oldest first",
             label(fold, at).text, (long long)b->base.step, (long long)a->target.step);
    if (memcmp(&a->target.digest, &b->base.digest, sizeof(xorcast_digest)) != 0)
        FAIL(fold->context, XORCAST_VERSION_ORDER,
             "%s starts from other bytes than the one before leads to; give deltas that follow "
             "each other, oldest first",
             label(fold, at).text);
    if (memcmp(a->target_fingerprint, b->base_fingerprint, sizeof a->target_fingerprint) != 0 ||
        a->chunk_bytes != b->chunk_bytes || a->group_bytes != b->group_bytes ||
        fold->inputs[at - 1].reader.manifest.layout_group_count !=
            fold->inputs[at].reader.manifest.layout_group_count)
        FAIL(fold->context, XORCAST_LAYOUT_MISMATCH,
             "%s is of another layout than the one before; fold deltas of the same tensors",
             label(fold, at).text);
    if (memcmp(b->base_fingerprint, b->target_fingerprint, sizeof b->base_fingerprint) != 0)
        FAIL(fold->context, XORCAST_UNSUPPORTED,
             "%s changes the layout; apply the deltas up to it, then fold the rest",
             label(fold, at).text);
    return XORCAST_OK;
}

static xorcast_status open_inputs(xci_fold *fold, const xorcast_source *sources) {
    void *memory;
    TRY(xci_allocate_array(fold->context, fold->input_count, sizeof(xci_fold_input), &memory));
    fold->inputs = memory;
    for (uint64_t i = 0; i < fold->input_count; i++) {
        xci_fold_input *input = &fold->inputs[i];
        input->last_group = UINT64_MAX;
        xci_group_reader_open(&input->group, fold->context);
        TRY(xci_delta_reader_open(fold->context, &sources[i], &input->reader));
        if (input->reader.manifest.info.needs_old_weights)
            FAIL(
                fold->context, XORCAST_UNSUPPORTED,
                "%s can be decoded only beside the weights that it starts from; fold plain deltas, "
                "or apply this one",
                label(fold, i).text);
        if (i > 0)
            TRY(check_link(fold, i));
    }
    return XORCAST_OK;
}

static void close_fold(xci_fold *fold) {
    for (uint64_t i = 0; i < fold->input_count && fold->inputs != NULL; i++) {
        xci_fold_input *input = &fold->inputs[i];
        if (input->reader.context != NULL)
            xci_delta_reader_close(&input->reader);
        xci_part_records_free(fold->context, &input->records);
        xci_group_reader_close(&input->group);
    }
    xci_release(fold->context, fold->inputs);
    xci_fold_groups_close(fold);
    xci_group_writer_close(&fold->writer);
}

/* ---- All groups ---- */

/* Makes sure that the input's next record is at hand, if there is one. */
static xorcast_status advance(xci_fold_input *input) {
    xci_delta_reader *reader = &input->reader;
    while (input->next == input->records.count &&
           reader->next_part < reader->manifest.info.part_count) {
        TRY(xci_delta_reader_records(reader, input->last_group, &input->records));
        input->next = 0;
    }
    return XORCAST_OK;
}

/* The smallest group that any input has next; false at the end. */
static xorcast_status next_group(xci_fold *fold, bool *found_out) {
    *found_out = false;
    for (uint64_t i = 0; i < fold->input_count; i++) {
        xci_fold_input *input = &fold->inputs[i];
        TRY(advance(input));
        if (input->next == input->records.count)
            continue;
        const uint64_t group = input->records.records[input->next].group;
        fold->group = *found_out ? xci_min(fold->group, group) : group;
        *found_out = true;
    }
    return XORCAST_OK;
}

static void pass_group(xci_fold *fold) {
    for (uint64_t i = 0; i < fold->input_count; i++) {
        xci_fold_input *input = &fold->inputs[i];
        if (input->next < input->records.count &&
            input->records.records[input->next].group == fold->group) {
            input->last_group = fold->group;
            input->next++;
        }
    }
}

static xorcast_status fold_groups(xci_fold *fold, xci_delta_writer *out) {
    const uint64_t group_bytes = fold->inputs[0].reader.manifest.info.group_bytes;
    uint64_t passed = 0;
    TRY(xci_fold_groups_open(fold));
    for (;;) {
        bool found;
        TRY(next_group(fold, &found));
        if (!found)
            return XORCAST_OK;
        TRY(xci_fold_group(fold, out));
        pass_group(fold);
        TRY(xci_progress_step(fold->context, 0, (fold->group + 1 - passed) * group_bytes));
        passed = fold->group + 1;
    }
}

/* ---- The manifest ---- */

static void fill_manifest(const xci_fold *fold, const xorcast_delta_options *options,
                          xci_manifest *manifest) {
    const xci_manifest *first = &fold->inputs[0].reader.manifest;
    const xci_manifest *last = &fold->inputs[fold->input_count - 1].reader.manifest;
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
    manifest->info.counts = fold->counts;
    manifest->info.counts.bytes_covered = bytes_covered;
    manifest->info.counts.elements_covered = elements_covered;
    manifest->info.chunk_encoded_bytes = fold->encoded_bytes;
    manifest->layout_group_count = last->layout_group_count;
    manifest->layout_chunk_count = last->layout_chunk_count;
}

/* What the files of the last target are, seen from the first base. */
static xorcast_status fold_attachments(xci_fold *fold, xci_manifest *manifest, uint8_t **owned) {
    *owned = NULL;
    for (uint64_t i = 0; i < fold->input_count; i++) {
        const xci_manifest *input = &fold->inputs[i].reader.manifest;
        if (i > 0 && input->info.has_files != fold->inputs[0].reader.manifest.info.has_files)
            FAIL(fold->context, XORCAST_UNSUPPORTED,
                 "of %s and the first delta only one is of checkpoint files; fold deltas of one "
                 "kind",
                 label(fold, i).text);
        if (!input->info.has_files)
            continue;
        if (i == 0) {
            manifest->attachment = input->attachment;
            manifest->attachment_bytes = input->attachment_bytes;
            continue;
        }
        uint8_t *folded;
        uint64_t folded_bytes;
        TRY(xci_files_fold(fold->context, manifest->attachment, manifest->attachment_bytes,
                           input->attachment, input->attachment_bytes, &folded, &folded_bytes));
        xci_release(fold->context, *owned);
        *owned = folded;
        manifest->attachment = folded;
        manifest->attachment_bytes = folded_bytes;
    }
    return XORCAST_OK;
}

/* ---- The whole ---- */

static xorcast_status fold_to(xci_fold *fold, const xorcast_source *sources,
                              const xorcast_delta_options *options, const xorcast_sink *sink,
                              xci_sink_writer *out, xci_manifest *manifest) {
    TRY(xci_encoding_check(fold->context, &options->encoding, &manifest->encoding));
    TRY(open_inputs(fold, sources));
    const xci_manifest *first = &fold->inputs[0].reader.manifest;
    fold->chunk_bytes = first->info.chunk_bytes;
    fold->group_bytes_max = xci_manifest_limits(first).raw_bytes;
    TRY(xci_group_writer_open(&fold->writer, fold->context, &manifest->encoding));
    TRY(xci_sink_writer_begin(out, fold->context, sink));
    if (fold->told)
        xci_progress_begin(fold->context, first->layout_group_count * first->info.group_bytes);
    const xorcast_status folded = fold_groups(fold, &out->writer);
    if (fold->told)
        xci_progress_end(fold->context);
    TRY(folded);
    fill_manifest(fold, options, manifest);
    uint8_t *owned;
    xorcast_status status = fold_attachments(fold, manifest, &owned);
    if (status == XORCAST_OK)
        status = xci_sink_writer_finish(out, manifest);
    xci_release(fold->context, owned);
    return status;
}

static xorcast_status fold_deltas(xorcast_context *context, const xorcast_source *sources,
                                  uint64_t count, const xorcast_delta_options *options,
                                  const xorcast_sink *sink, bool told,
                                  xorcast_delta_info *info_out) {
    static const xorcast_delta_options defaults = XORCAST_DELTA_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    if (count == 0 || sources == NULL || options->struct_size != sizeof *options ||
        (options->run != NULL && strlen(options->run) >= XORCAST_RUN_BYTES))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "fold takes at least one delta, initialised options and a run's name of at most %d "
             "bytes",
             XORCAST_RUN_BYTES - 1);
    xci_fold fold = {.context = context, .input_count = count, .told = told};
    xci_sink_writer out = {0};
    xci_manifest manifest = {0};
    const xorcast_status status = fold_to(&fold, sources, options, sink, &out, &manifest);
    if (out.writer.context != NULL)
        xci_delta_writer_end(&out.writer);
    close_fold(&fold);
    TRY(status);
    manifest.info.entropy_bound_bytes = 0;
    if (info_out != NULL)
        *info_out = manifest.info;
    return XORCAST_OK;
}

xorcast_status xorcast_delta_fold(xorcast_context *context, const xorcast_source *sources,
                                  uint64_t count, const xorcast_delta_options *options,
                                  const xorcast_sink *sink, xorcast_delta_info *info_out) {
    return fold_deltas(context, sources, count, options, sink, true, info_out);
}

xorcast_status xci_delta_fold_within(xorcast_context *context, const xorcast_source *sources,
                                     uint64_t count, const xorcast_delta_options *options,
                                     const xorcast_sink *sink) {
    return fold_deltas(context, sources, count, options, sink, false, NULL);
}
