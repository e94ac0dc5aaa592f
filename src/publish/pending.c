/* The open version: see pending.h. */
#include "publish/pending.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/counts.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/pool.h"
#include "publish/bound.h"
#include "publish/device_encoders.h"

#define LAST_PIECES 4u /* that the last groups of a put are cut into */

/* ---- Opening and closing ---- */

static uint32_t form_count(const xci_pending *pending) {
    return 1 + pending->workers[0].writer.encoding.old_weights;
}

static uint64_t packed_chunk_count(const xorcast_bundle *bundle) {
    return bundle->layout.chunk_count - bundle->whole_chunk_count;
}

static xorcast_status open_parts(xci_pending *pending, const xorcast_encoding *encoding,
                                 bool measure_bound, void *stream, bool one_process) {
    xorcast_bundle *bundle = pending->bundle;
    xorcast_context *context = bundle->context;
    void *memory;
    if (!bundle->on_device) {
        TRY(xci_bundle_twin(bundle, &pending->incoming));
        TRY(xci_twin_allocate(pending->incoming, true, &memory));
        pending->small = memory;
    }
    TRY(xci_allocate_array(context, packed_chunk_count(bundle), sizeof(uint32_t), &memory));
    pending->small_left = memory;
    TRY(xci_allocate_array(context, bundle->tensor_count, 1, &memory));
    pending->seen = memory;
    TRY(xci_allocate_array(context, bundle->layout.group_count, sizeof(uint64_t), &memory));
    pending->chunks_left = memory;
    TRY(xci_allocate_array(context, xci_context_threads(context), sizeof(xci_put_sums), &memory));
    pending->sums = memory;
    TRY(xci_encode_workers_open(bundle, encoding, &pending->workers));
    for (uint32_t i = 0; i < xci_context_threads(context); i++)
        pending->workers[i].writer.buffers = &pending->records;
    for (uint32_t form = 0; form <= encoding->old_weights; form++)
        TRY(xci_parts_open(&pending->parts[form], pending->shadow, form, &pending->records));
    if (measure_bound)
        TRY(xci_bound_open(bundle, &pending->bound));
    return bundle->on_device
               ? xci_device_encoders_open(pending, stream, one_process, &pending->device)
               : XORCAST_OK;
}

xorcast_status xci_pending_open(xci_pending *pending, xorcast_bundle *bundle, xci_shadow *shadow,
                                const xorcast_encoding *encoding, bool measure_bound, void *stream,
                                bool one_process) {
    memset(pending, 0, sizeof *pending);
    pending->bundle = bundle;
    pending->shadow = shadow;
    xci_buffers_open(&pending->records, bundle->context);
    const xorcast_status status = open_parts(pending, encoding, measure_bound, stream, one_process);
    if (status < 0)
        xci_pending_close(pending);
    return status;
}

void xci_pending_close(xci_pending *pending) {
    if (pending->bundle == NULL)
        return;
    xorcast_context *context = pending->bundle->context;
    xci_device_encoders_close(pending->device);
    xorcast_bundle_destroy(pending->incoming);
    xci_bound_close(context, pending->bound);
    xci_encode_workers_close(context, pending->workers);
    for (uint32_t form = 0; form < 2; form++)
        xci_parts_close(&pending->parts[form]);
    xci_buffers_close(&pending->records);
    xci_release(context, pending->small);
    xci_release(context, pending->small_left);
    xci_release(context, pending->seen);
    xci_release(context, pending->chunks_left);
    xci_release(context, pending->sums);
    memset(pending, 0, sizeof *pending);
}

xorcast_status xci_pending_begin(xci_pending *pending) {
    const xorcast_bundle *bundle = pending->bundle;
    for (uint64_t g = 0; g < bundle->layout.group_count; g++)
        pending->chunks_left[g] = bundle->group_first[g + 1] - bundle->group_first[g];
    for (uint64_t p = 0; p < packed_chunk_count(bundle); p++)
        pending->small_left[p] = (uint32_t)(bundle->packed_first[p + 1] - bundle->packed_first[p]);
    if (bundle->tensor_count > 0)
        memset(pending->seen, 0, bundle->tensor_count);
    for (uint32_t i = 0; i < xci_context_threads(bundle->context); i++)
        xci_group_writer_reset(&pending->workers[i].writer);
    for (uint32_t form = 0; form < 2; form++)
        xci_parts_reset(&pending->parts[form]);
    xci_buffers_recall(&pending->records);
    memset(pending->sums, 0, xci_context_threads(bundle->context) * sizeof *pending->sums);
    pending->seen_count = pending->put_ns = 0;
    pending->open_records = false;
    if (pending->bound != NULL)
        xci_bound_reset(pending->bound, pending->bundle);
    return pending->device != NULL ? xci_device_encoders_begin(pending->device) : XORCAST_OK;
}

xorcast_status xci_pending_check(xci_pending *pending) {
    const xorcast_bundle *bundle = pending->bundle;
    for (uint64_t t = 0; t < bundle->tensor_count && pending->seen_count < bundle->tensor_count;
         t++) {
        const xci_place place = {t, XORCAST_NO_INDEX, 0};
        if (!pending->seen[t])
            FAIL_AT(bundle->context, XORCAST_BAD_STATE, place,
                    "tensor %s was neither put nor kept in this version; do one, then "
                    "finish",
                    bundle->tensors[t].name);
    }
    return XORCAST_OK;
}

/* ---- Groups: all under the group's lock ---- */

/* Writes a record in each form that is wanted; the plain one last: what it lists is kept. */
static xorcast_status write_forms(xci_pending *pending, uint32_t worker_index,
                                  const xci_record *booked, bool joined, xci_record *record_out,
                                  xci_written written[2]) {
    xci_encode_worker *worker = &pending->workers[worker_index];
    const uint8_t *const *old = NULL;
    const xci_record *listed = booked;
    xci_record of_device;
    if (pending->device != NULL) {
        TRY(xci_device_encoders_list(pending->device, worker_index, booked, joined, &of_device,
                                     &old));
        listed = &of_device;
    }
    if (worker->writer.encoding.old_weights == 1 && listed->encoded) {
        xci_record beside;
        TRY(xci_device_encoders_beside(pending->device, worker_index, listed, &beside));
        TRY(xci_group_write_shorter(&worker->writer, listed, &beside, record_out,
                                    &written[XCI_FORM_BESIDE]));
    } else if (worker->writer.encoding.old_weights == 1) {
        if (pending->device == NULL)
            TRY(xci_encode_old(worker, xci_shadow_bundle(pending->shadow), listed, &old));
        TRY(xci_group_write(&worker->writer, listed, old, record_out, &written[XCI_FORM_BESIDE]));
    }
    return pending->open_records
               ? xci_group_write_open(&worker->writer, listed, record_out, &written[XCI_FORM_PLAIN])
               : xci_group_write(&worker->writer, listed, NULL, record_out,
                                 &written[XCI_FORM_PLAIN]);
}

/* The record of a group whose chunks have all been seen: to its written forms, which the shadow
 * keeps. `joined`: of pieces that were booked before. */
static xorcast_status write_group(xci_pending *pending, uint32_t worker_index, xci_ahead *ahead,
                                  const xci_record *listed, bool joined) {
    xorcast_context *context = pending->bundle->context;
    xci_encode_worker *worker = &pending->workers[worker_index];
    xci_put_sums *sums = &pending->sums[worker_index];
    const uint64_t begun = xci_now_ns();
    if (pending->bound != NULL)
        TRY(xci_bound_add(pending->bound, pending->bundle, listed));
    const uint64_t measured = xci_now_ns();
    xci_record record;
    xci_written written[2] = {{0}, {0}};
    xorcast_status status = write_forms(pending, worker_index, listed, joined, &record, written);
    if (status == XORCAST_OK)
        status = xci_ahead_whole(ahead, context, worker->writer.arena, &record, written);
    for (uint32_t form = 0; form < 2; form++)
        sums->encoded_bytes[form] += written[form].raw_bytes;
    sums->bound_ns += measured - begun;
    sums->frame_ns += xci_now_ns() - measured;
    return status;
}

static xorcast_status write_joined(xci_pending *pending, uint32_t worker_index, uint64_t group) {
    xci_ahead *ahead = xci_shadow_ahead(pending->shadow, group);
    xci_record record;
    void *memory;
    if (ahead->pieces == NULL)
        return XORCAST_OK;
    TRY(xci_ahead_join(ahead, pending->bundle->context, group, &record, &memory));
    const xorcast_status status = write_group(pending, worker_index, ahead, &record, true);
    xci_release(pending->bundle->context, memory);
    return status;
}

/* ---- Putting ---- */

typedef struct put_job {
    xci_pending *pending;
    xci_put_range *ranges;
    uint64_t range_count;
    bool keep;
} put_job;

static void count_kept(xci_pending *pending, const xci_put_range *range, xci_piece *piece) {
    for (uint64_t c = range->first; c < range->end; c++) {
        const uint64_t bytes = xci_bundle_chunk_bytes(pending->bundle, c);
        const xci_tensor *tensor =
            &pending->bundle->tensors[xci_bundle_tensor_of(pending->bundle, c)];
        piece->counts.bytes_covered += bytes;
        piece->counts.elements_covered += xci_divide_up(bytes, tensor->element_bytes);
    }
}

static void add_sums(xci_put_sums *sums, const xci_piece *piece, uint64_t encode_ns) {
    xci_counts_add(&sums->counts, &piece->counts);
    xci_digest_merge(&sums->change, &piece->change);
    sums->encode_ns += encode_ns;
}

void xci_pending_sums(const xci_pending *pending, xci_put_sums *sums_out) {
    memset(sums_out, 0, sizeof *sums_out);
    for (uint32_t i = 0; i < xci_context_threads(pending->bundle->context); i++) {
        const xci_put_sums *one = &pending->sums[i];
        xci_counts_add(&sums_out->counts, &one->counts);
        xci_digest_merge(&sums_out->change, &one->change);
        for (uint32_t form = 0; form < 2; form++)
            sums_out->encoded_bytes[form] += one->encoded_bytes[form];
        sums_out->encode_ns += one->encode_ns;
        sums_out->frame_ns += one->frame_ns;
        sums_out->bound_ns += one->bound_ns;
    }
}

xorcast_status xci_pending_book(xci_pending *pending, const xci_put_range *range,
                                uint32_t worker_index, const xci_piece *piece, uint64_t encode_ns) {
    xci_ahead *ahead = xci_shadow_ahead(pending->shadow, range->group);
    const uint64_t *first = &pending->bundle->group_first[range->group];
    const bool whole = range->first == first[0] && range->end == first[1];
    if (piece->record.block_count > 0)
        TRY(whole ? write_group(pending, worker_index, ahead, &piece->record, false)
                  : xci_ahead_add(ahead, pending->bundle->context, &piece->record));
    xci_digest_merge(&ahead->change, &piece->change);
    add_sums(&pending->sums[worker_index], piece, encode_ns);
    return XORCAST_OK;
}

xorcast_status xci_pending_seen(xci_pending *pending, const xci_put_range *range,
                                uint32_t worker_index) {
    pending->chunks_left[range->group] -= range->end - range->first;
    if (pending->chunks_left[range->group] > 0)
        return XORCAST_OK;
    return write_joined(pending, worker_index, range->group);
}

void xci_pending_open_records(xci_pending *pending, uint64_t group, bool whole, bool encoded) {
    pending->open_records = whole && pending->parts[XCI_FORM_PLAIN].next_group == group &&
                            xci_group_writer_is_plain(&pending->workers[0].writer, encoded);
}

xorcast_status xci_pending_plan(xci_pending *pending) {
    const uint64_t group_count = pending->bundle->layout.group_count;
    uint64_t whole = pending->parts[XCI_FORM_PLAIN].next_group;
    while (whole < group_count && pending->chunks_left[whole] == 0)
        whole++;
    for (uint32_t form = 0; form < form_count(pending); form++)
        TRY(xci_parts_plan(&pending->parts[form], whole));
    return XORCAST_OK;
}

/* Encodes a range, moves the shadow and keeps the blocks; or none of it. */
static xorcast_status encode_changes(xci_pending *pending, const xci_put_range *range,
                                     uint32_t worker_index, xci_piece *piece) {
    const uint64_t begun = xci_now_ns();
    TRY(xci_encode_range(&pending->workers[worker_index], xci_shadow_bundle(pending->shadow),
                         pending->incoming, range->group, range->first, range->end, XCI_OLD_MOVE,
                         piece));
    const xorcast_status status =
        xci_pending_book(pending, range, worker_index, piece, xci_now_ns() - begun);
    if (status < 0)
        xci_shadow_undo(pending->shadow, worker_index, &piece->record);
    return status;
}

static xorcast_status encode_range(void *user, uint64_t index, uint32_t worker_index) {
    put_job *job = user;
    xci_pending *pending = job->pending;
    const xci_put_range *range = &job->ranges[index];
    xci_piece piece;
    xorcast_status status = XORCAST_OK;
    memset(&piece, 0, sizeof piece);
    xci_shadow_lock(pending->shadow, range->group);
    /* A packed chunk may hold tensors that were put before: it is always encoded. */
    if (job->keep && range->first < pending->bundle->whole_chunk_count) {
        count_kept(pending, range, &piece);
        add_sums(&pending->sums[worker_index], &piece, 0);
    } else {
        status = encode_changes(pending, range, worker_index, &piece);
    }
    if (status == XORCAST_OK)
        status = xci_pending_seen(pending, range, worker_index);
    const bool whole = status == XORCAST_OK && pending->chunks_left[range->group] == 0;
    xci_shadow_unlock(pending->shadow, range->group);
    for (uint32_t form = 0; form < form_count(pending) && whole && pending->device == NULL; form++)
        TRY(xci_parts_follow(&pending->parts[form], range->group));
    return status;
}

/* Ranges; and behind them, for workers that find none left, what follows them. */
static xorcast_status put_item(void *user, uint64_t index, uint32_t worker_index) {
    put_job *job = user;
    xci_pending *pending = job->pending;
    if (index < job->range_count)
        return encode_range(job, index, worker_index);
    for (uint32_t form = 0; form < form_count(pending); form++)
        xci_parts_catch_up(&pending->parts[form]);
    return XORCAST_OK;
}

/* Where the new bytes of tensor t are during this put. Small tensors are copied: their chunk may
 * be encoded later. */
static xorcast_status take_tensor(xci_pending *pending, uint64_t t, const void *data, bool keep) {
    xorcast_bundle *incoming = pending->incoming;
    xci_tensor *tensor = &incoming->tensors[t];
    const xci_tensor *own = &pending->bundle->tensors[t];
    const bool small = tensor->bytes < XCI_SMALL_BYTES;
    if (tensor->bytes == 0)
        return XORCAST_OK;
    if (small && keep)
        memcpy(incoming->regions[t].data, xci_shadow_tensor(pending->shadow, t), tensor->bytes);
    else if (small && data != NULL)
        memcpy(incoming->regions[t].data, data, tensor->bytes);
    else if (small)
        return xci_tensor_read(pending->bundle, t, 0, tensor->bytes, incoming->regions[t].data);
    if (small || keep)
        return XORCAST_OK;
    tensor->regions = data != NULL ? &incoming->regions[t] : own->regions;
    tensor->region_count = data != NULL ? 1 : own->region_count;
    tensor->simple = data != NULL || own->simple;
    if (data != NULL)
        incoming->regions[t].data = (uint8_t *)(uintptr_t)data;
    return XORCAST_OK;
}

/* Likewise of a put on a device. `all`: small tensors are gathered without a list. */
static xorcast_status take_on_device(xci_pending *pending, uint64_t t, const void *data,
                                     bool keep, bool all) {
    const bool small = pending->bundle->tensors[t].bytes < XCI_SMALL_BYTES;
    if (small ? all : keep)
        return XORCAST_OK;
    return xci_device_encoders_take(pending->device, t, data, keep);
}

static int by_first(const void *a, const void *b) {
    const xci_put_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Joins neighbouring ranges and cuts them at the ends of groups. */
static xorcast_status cut_ranges(put_job *job, xci_put_range *wide, uint64_t wide_count) {
    const xorcast_bundle *bundle = job->pending->bundle;
    qsort(wide, wide_count, sizeof *wide, by_first);
    uint64_t joined = 0, pieces = 0;
    for (uint64_t i = 0; i < wide_count; i++) {
        if (joined > 0 && wide[joined - 1].end == wide[i].first)
            wide[joined - 1].end = wide[i].end;
        else
            wide[joined++] = wide[i];
    }
    for (uint64_t i = 0; i < joined; i++)
        pieces += xci_bundle_group_of(bundle, wide[i].end - 1) -
                  xci_bundle_group_of(bundle, wide[i].first) + 1;
    void *memory;
    TRY(xci_allocate_array(bundle->context, pieces, sizeof(xci_put_range), &memory));
    job->ranges = memory;
    for (uint64_t i = 0; i < joined; i++) {
        uint64_t group = xci_bundle_group_of(bundle, wide[i].first);
        for (uint64_t at = wide[i].first; at < wide[i].end; group++) {
            const uint64_t end = xci_min(wide[i].end, bundle->group_first[group + 1]);
            job->ranges[job->range_count++] = (xci_put_range){group, at, end};
            at = end;
        }
    }
    return XORCAST_OK;
}

/* Cuts the last ranges, one for each thread, so that the threads end together. First pieces come
 * first: two of a group, which it locks, are worked on one after the other. */
static xorcast_status cut_last(put_job *job, uint32_t threads) {
    const uint64_t kept = job->range_count - threads;
    void *memory;
    TRY(xci_allocate_array(job->pending->bundle->context, kept + LAST_PIECES * threads,
                           sizeof(xci_put_range), &memory));
    xci_put_range *ranges = memory;
    uint64_t count = kept;
    memcpy(ranges, job->ranges, kept * sizeof *ranges);
    for (uint64_t p = 0; p < LAST_PIECES; p++)
        for (uint64_t r = kept; r < job->range_count; r++) {
            const xci_put_range *range = &job->ranges[r];
            const uint64_t chunks = range->end - range->first;
            const xci_put_range piece = {range->group, range->first + chunks * p / LAST_PIECES,
                                         range->first + chunks * (p + 1) / LAST_PIECES};
            if (piece.first < piece.end)
                ranges[count++] = piece;
        }
    xci_release(job->pending->bundle->context, job->ranges);
    job->ranges = ranges;
    job->range_count = count;
    return XORCAST_OK;
}

static xorcast_status put_in_host(put_job *job) {
    xorcast_context *context = job->pending->bundle->context;
    const uint32_t threads = xci_context_threads(context);
    const bool large = job->range_count > 2 * threads; /* else it is not worth the trouble */
    if (large && threads > 1)
        TRY(cut_last(job, threads));
    return xci_pool_run(context->shared->pool, job->range_count + (large ? threads : 0), put_item,
                        job);
}

/* Ranges of whole chunks, which stand first, are only counted if their tensors are kept. */
static xorcast_status put_on_device(put_job *job, bool all) {
    const xorcast_bundle *bundle = job->pending->bundle;
    uint64_t counted = 0;
    while (job->keep && counted < job->range_count &&
           job->ranges[counted].first < bundle->whole_chunk_count)
        counted++;
    TRY(xci_pool_run(bundle->context->shared->pool, counted, encode_range, job));
    return xci_device_encoders_run(job->pending->device, job->ranges, counted, job->range_count,
                                   all);
}

static xorcast_status put_tensors(xci_pending *pending, put_job *job, uint64_t count,
                                  const uint64_t *indices, const void *const *data,
                                  xci_put_range *wide) {
    const xorcast_bundle *bundle = pending->bundle;
    const bool all = data == NULL && count == bundle->tensor_count && !job->keep;
    uint64_t wide_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t t = indices != NULL ? indices[i] : i;
        const xci_tensor *tensor = &bundle->tensors[t];
        const void *from = data != NULL ? data[i] : NULL;
        TRY(pending->device != NULL ? take_on_device(pending, t, from, job->keep, all)
                                    : take_tensor(pending, t, from, job->keep));
        uint64_t end = tensor->first_chunk + 1;
        if (tensor->bytes >= XCI_SMALL_BYTES)
            end = tensor->first_chunk +
                  xci_divide_up(tensor->bytes, UINT64_C(1) << bundle->chunk_log2);
        else if (tensor->bytes == 0 ||
                 --pending->small_left[tensor->first_chunk - bundle->whole_chunk_count] > 0)
            continue;
        if (wide_count > 0 && wide[wide_count - 1].end == tensor->first_chunk)
            wide[wide_count - 1].end = end; /* tensors in order, the usual case: little to sort */
        else
            wide[wide_count++] = (xci_put_range){0, tensor->first_chunk, end};
    }
    if (wide_count > 0)
        TRY(cut_ranges(job, wide, wide_count));
    return pending->device == NULL ? put_in_host(job) : put_on_device(job, all);
}

/* Every tensor, of a version that has none yet, from the bundle's own memory on a device: nothing
 * is to be done for each of them. */
static xorcast_status put_whole(xci_pending *pending, put_job *job) {
    const xorcast_bundle *bundle = pending->bundle;
    void *memory;
    TRY(xci_device_encoders_take_all(pending->device));
    TRY(xci_allocate_array(bundle->context, bundle->layout.group_count, sizeof(xci_put_range),
                           &memory));
    job->ranges = memory;
    job->range_count = bundle->layout.group_count;
    for (uint64_t g = 0; g < job->range_count; g++)
        job->ranges[g] = (xci_put_range){g, bundle->group_first[g], bundle->group_first[g + 1]};
    if (bundle->tensor_count > 0)
        memset(pending->seen, 1, bundle->tensor_count);
    if (packed_chunk_count(bundle) > 0)
        memset(pending->small_left, 0, packed_chunk_count(bundle) * sizeof(uint32_t));
    pending->seen_count = bundle->tensor_count;
    return put_on_device(job, true);
}

static bool is_whole(const xci_pending *pending, uint64_t count, const uint64_t *indices,
                     const void *const *data, bool keep) {
    return pending->device != NULL && pending->seen_count == 0 && !keep && indices == NULL &&
           data == NULL && count == pending->bundle->tensor_count;
}

/* Marks the tensors as seen, or none of them. */
static xorcast_status mark_seen(xci_pending *pending, uint64_t count, const uint64_t *indices) {
    const xorcast_bundle *bundle = pending->bundle;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t t = indices != NULL ? indices[i] : i;
        if (t < bundle->tensor_count && !pending->seen[t]) {
            pending->seen[t] = 1;
            continue;
        }
        for (uint64_t j = 0; j < i; j++)
            pending->seen[indices != NULL ? indices[j] : j] = 0;
        const xci_place place = {t, XORCAST_NO_INDEX, 0};
        if (t >= bundle->tensor_count)
            FAIL_AT(bundle->context, XORCAST_BAD_ARGUMENT, place,
                    "there is no tensor %llu; the bundle has %llu", (unsigned long long)t,
                    (unsigned long long)bundle->tensor_count);
        FAIL_AT(bundle->context, XORCAST_BAD_ARGUMENT, place,
                "tensor %s comes twice in this version", bundle->tensors[t].name);
    }
    pending->seen_count += count;
    return XORCAST_OK;
}

xorcast_status xci_pending_put(xci_pending *pending, uint64_t count, const uint64_t *indices,
                               const void *const *data, bool keep) {
    put_job job = {pending, NULL, 0, keep};
    xorcast_context *context = pending->bundle->context;
    void *wide;
    if (count > pending->bundle->tensor_count)
        FAIL(context, XORCAST_BAD_ARGUMENT, "%llu tensors are put where the bundle has %llu",
             (unsigned long long)count, (unsigned long long)pending->bundle->tensor_count);
    const uint64_t begun = xci_now_ns();
    xorcast_status status;
    if (is_whole(pending, count, indices, data, keep)) {
        status = put_whole(pending, &job);
    } else {
        if (pending->device != NULL)
            TRY(xci_device_encoders_check(pending->device, count, indices, data));
        TRY(xci_allocate_array(context, count, sizeof(xci_put_range), &wide));
        status = mark_seen(pending, count, indices);
        if (status == XORCAST_OK)
            status = put_tensors(pending, &job, count, indices, data, wide);
        xci_release(context, wide);
    }
    xci_release(context, job.ranges);
    pending->put_ns += xci_now_ns() - begun;
    return status;
}
