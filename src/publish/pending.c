/* The open version: see pending.h. What a put does is pending_put.c's. */
#include "publish/pending.h"

#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/counts.h"
#include "base/digest.h"
#include "publish/bound.h"
#include "publish/device_encoders.h"

/* ---- Opening and closing ---- */

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
    TRY(xci_allocate_array(context, xci_packed_chunk_count(bundle), sizeof(uint32_t), &memory));
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
    for (uint64_t p = 0; p < xci_packed_chunk_count(bundle); p++)
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
    pending->open_end = 0;
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
    return !joined && listed->group < pending->open_end &&
                   xci_group_writer_is_plain(&worker->writer, listed->encoded)
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

/* ---- Booking ---- */

void xci_pending_add(xci_pending *pending, uint32_t worker_index, const xci_piece *piece,
                     uint64_t encode_ns) {
    xci_put_sums *sums = &pending->sums[worker_index];
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
    xci_pending_add(pending, worker_index, piece, encode_ns);
    return XORCAST_OK;
}

xorcast_status xci_pending_seen(xci_pending *pending, const xci_put_range *range,
                                uint32_t worker_index) {
    pending->chunks_left[range->group] -= range->end - range->first;
    if (pending->chunks_left[range->group] > 0)
        return XORCAST_OK;
    return write_joined(pending, worker_index, range->group);
}

void xci_pending_open_records(xci_pending *pending, uint64_t end) {
    pending->open_end = end;
}

xorcast_status xci_pending_plan(xci_pending *pending) {
    const uint64_t group_count = pending->bundle->layout.group_count;
    uint64_t whole = pending->parts[XCI_FORM_PLAIN].next_group;
    while (whole < group_count && pending->chunks_left[whole] == 0)
        whole++;
    for (uint32_t form = 0; form < xci_pending_forms(pending); form++)
        TRY(xci_parts_plan(&pending->parts[form], whole));
    return XORCAST_OK;
}
