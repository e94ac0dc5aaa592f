/* A put into the open version: tensors are taken, what they complete is encoded range by range, and
 * the shadow moves along. See pending.h. */
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/pool.h"
#include "publish/device_encoders.h"
#include "publish/pending.h"

typedef struct put_job {
    xci_pending *pending;
    xci_put_ranges ranges;
    bool keep;
} put_job;

/* ---- Ranges ---- */

static void count_kept(xci_pending *pending, const xci_put_range *range, xci_piece *piece) {
    for (uint64_t c = range->first; c < range->end; c++) {
        const uint64_t bytes = xci_bundle_chunk_bytes(pending->bundle, c);
        const xci_tensor *tensor =
            &pending->bundle->tensors[xci_bundle_tensor_of(pending->bundle, c)];
        piece->counts.bytes_covered += bytes;
        piece->counts.elements_covered += xci_divide_up(bytes, tensor->element_bytes);
    }
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
    const xci_put_range *range = &job->ranges.list[index];
    xci_piece piece;
    xorcast_status status = XORCAST_OK;
    memset(&piece, 0, sizeof piece);
    xci_shadow_lock(pending->shadow, range->group);
    /* A packed chunk may hold tensors that were put before: it is always encoded. */
    if (job->keep && range->first < pending->bundle->whole_chunk_count) {
        count_kept(pending, range, &piece);
        xci_pending_add(pending, worker_index, &piece, 0);
    } else {
        status = encode_changes(pending, range, worker_index, &piece);
    }
    if (status == XORCAST_OK)
        status = xci_pending_seen(pending, range, worker_index);
    const bool whole = status == XORCAST_OK && pending->chunks_left[range->group] == 0;
    xci_shadow_unlock(pending->shadow, range->group);
    for (uint32_t form = 0; form < xci_pending_forms(pending) && whole && pending->device == NULL;
         form++)
        TRY(xci_parts_follow(&pending->parts[form], range->group));
    return status;
}

/* Ranges; and behind them, for workers that find none left, what follows them. */
static xorcast_status put_item(void *user, uint64_t index, uint32_t worker_index) {
    put_job *job = user;
    xci_pending *pending = job->pending;
    if (index < job->ranges.count)
        return encode_range(job, index, worker_index);
    for (uint32_t form = 0; form < xci_pending_forms(pending); form++)
        xci_parts_catch_up(&pending->parts[form]);
    return XORCAST_OK;
}

/* ---- Tensors ---- */

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
static xorcast_status take_on_device(xci_pending *pending, uint64_t t, const void *data, bool keep,
                                     bool all) {
    const bool small = pending->bundle->tensors[t].bytes < XCI_SMALL_BYTES;
    if (small ? all : keep)
        return XORCAST_OK;
    return xci_device_encoders_take(pending->device, t, data, keep);
}

/* ---- All of a put ---- */

static xorcast_status put_in_host(put_job *job) {
    xorcast_context *context = job->pending->bundle->context;
    const uint32_t threads = xci_context_threads(context);
    const bool large = job->ranges.count > 2 * threads; /* else it is not worth the trouble */
    if (large && threads > 1)
        TRY(xci_put_ranges_cut_last(&job->ranges, context, threads));
    return xci_pool_run(context->shared->pool, job->ranges.count + (large ? threads : 0), put_item,
                        job);
}

/* Ranges of whole chunks, which stand first, are only counted if their tensors are kept. */
static xorcast_status put_on_device(put_job *job, bool all) {
    const xorcast_bundle *bundle = job->pending->bundle;
    uint64_t counted = 0;
    while (job->keep && counted < job->ranges.count &&
           job->ranges.list[counted].first < bundle->whole_chunk_count)
        counted++;
    TRY(xci_pool_run(bundle->context->shared->pool, counted, encode_range, job));
    return xci_device_encoders_run(job->pending->device, job->ranges.list, counted,
                                   job->ranges.count, all);
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
        TRY(xci_put_ranges_open(&job->ranges, bundle, wide, wide_count));
    return pending->device == NULL ? put_in_host(job) : put_on_device(job, all);
}

/* Every tensor, of a version that has none yet, from the bundle's own memory on a device: nothing
 * is to be done for each of them. */
static xorcast_status put_whole(xci_pending *pending, put_job *job) {
    const xorcast_bundle *bundle = pending->bundle;
    const uint64_t packed = xci_packed_chunk_count(bundle);
    TRY(xci_device_encoders_take_all(pending->device));
    TRY(xci_put_ranges_open_all(&job->ranges, bundle));
    if (bundle->tensor_count > 0)
        memset(pending->seen, 1, bundle->tensor_count);
    if (packed > 0)
        memset(pending->small_left, 0, packed * sizeof(uint32_t));
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
    put_job job = {pending, {0}, keep};
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
    xci_put_ranges_close(&job.ranges, context);
    pending->put_ns += xci_now_ns() - begun;
    return status;
}
