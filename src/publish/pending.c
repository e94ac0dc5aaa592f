/* The open version: see pending.h. */
#include "publish/pending.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/pool.h"
#include "publish/bound.h"

/* Blocks of a part of a group, waiting for the rest. */
typedef struct xci_pending_piece {
    struct xci_pending_piece *next;
    uint32_t first_chunk, block_count;
    uint64_t raw_bytes;
    xci_block blocks[]; /* and the payload behind them */
} xci_pending_piece;

/* Chunks [first, end) of one group that one put completes. */
typedef struct put_range { uint64_t group, first, end; } put_range;

/* ---- Opening and closing ---- */

static uint64_t packed_chunk_count(const xorcast_bundle *bundle) {
    return bundle->layout.chunk_count - bundle->whole_chunk_count;
}

static xorcast_status open_parts(xci_pending *pending, const xorcast_encoding *encoding,
                                 bool measure_bound) {
    xorcast_bundle *bundle = pending->bundle;
    xorcast_context *context = bundle->context;
    void *memory;
    TRY(xci_bundle_twin(bundle, &pending->incoming));
    TRY(xci_twin_allocate(pending->incoming, true, &memory));
    pending->small = memory;
    TRY(xci_allocate_array(context, packed_chunk_count(bundle), sizeof(uint32_t), &memory));
    pending->small_left = memory;
    TRY(xci_allocate_array(context, bundle->tensor_count, 1, &memory));
    pending->seen = memory;
    TRY(xci_allocate_array(context, bundle->layout.group_count, sizeof(xci_pending_group),
                           &memory));
    pending->groups = memory;
    TRY(xci_encode_workers_open(bundle, encoding, &pending->workers));
    if (measure_bound)
        TRY(xci_bound_open(bundle, &pending->bound));
    xci_pending_reset(pending);
    return XORCAST_OK;
}

xorcast_status xci_pending_open(xci_pending *pending, xorcast_bundle *bundle, xci_shadow *shadow,
                                const xorcast_encoding *encoding, bool measure_bound) {
    memset(pending, 0, sizeof *pending);
    pending->bundle = bundle;
    pending->shadow = shadow;
    pthread_mutex_init(&pending->lock, NULL);
    const xorcast_status status = open_parts(pending, encoding, measure_bound);
    if (status < 0)
        xci_pending_close(pending);
    return status;
}

static void drop_pieces(xorcast_context *context, xci_pending_group *group) {
    for (xci_pending_piece *piece = group->pieces, *next; piece != NULL; piece = next) {
        next = piece->next;
        xci_release(context, piece);
    }
    group->pieces = NULL;
}

static void drop_groups(xci_pending *pending) {
    xorcast_context *context = pending->bundle->context;
    for (uint64_t g = 0; pending->groups != NULL && g < pending->bundle->layout.group_count; g++) {
        drop_pieces(context, &pending->groups[g]);
        xci_release(context, pending->groups[g].written.bytes);
        xci_release(context, pending->groups[g].beside.bytes);
        pending->groups[g].written.bytes = pending->groups[g].beside.bytes = NULL;
    }
}

void xci_pending_close(xci_pending *pending) {
    if (pending->bundle == NULL)
        return;
    xorcast_context *context = pending->bundle->context;
    drop_groups(pending);
    xorcast_bundle_destroy(pending->incoming);
    xci_bound_close(context, pending->bound);
    xci_encode_workers_close(context, pending->workers);
    xci_release(context, pending->small);
    xci_release(context, pending->small_left);
    xci_release(context, pending->seen);
    xci_release(context, pending->groups);
    pthread_mutex_destroy(&pending->lock);
    memset(pending, 0, sizeof *pending);
}

void xci_pending_reset(xci_pending *pending) {
    const xorcast_bundle *bundle = pending->bundle;
    drop_groups(pending);
    for (uint64_t g = 0; g < bundle->layout.group_count; g++)
        pending->groups[g] =
            (xci_pending_group){.chunks_left = bundle->group_first[g + 1] - bundle->group_first[g]};
    for (uint64_t p = 0; p < packed_chunk_count(bundle); p++)
        pending->small_left[p] = (uint32_t)(bundle->packed_first[p + 1] - bundle->packed_first[p]);
    if (bundle->tensor_count > 0)
        memset(pending->seen, 0, bundle->tensor_count);
    pending->seen_count = 0;
    memset(&pending->counts, 0, sizeof pending->counts);
    pending->encoded_bytes = pending->beside_encoded_bytes = 0;
    pending->put_ns = pending->encode_ns = pending->frame_ns = pending->bound_ns = 0;
    if (pending->bound != NULL)
        xci_bound_reset(pending->bound);
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

/* ---- Groups ---- */

static int by_first_chunk(const void *a, const void *b) {
    const xci_pending_piece *x = *(xci_pending_piece *const *)a,
                            *y = *(xci_pending_piece *const *)b;
    return x->first_chunk < y->first_chunk ? -1 : x->first_chunk > y->first_chunk;
}

/* One record of all pieces of a group, in the order of their chunks. */
static xorcast_status join_pieces(xci_pending *pending, uint64_t index, xci_record *record,
                                  void **memory_out) {
    xorcast_context *context = pending->bundle->context;
    xci_pending_group *group = &pending->groups[index];
    uint64_t piece_count = 0, block_count = 0, raw_bytes = 0;
    for (const xci_pending_piece *p = group->pieces; p != NULL; p = p->next) {
        piece_count++;
        block_count += p->block_count;
        raw_bytes += p->raw_bytes;
    }
    TRY(xci_allocate(context,
                     piece_count * sizeof(void *) + block_count * sizeof(xci_block) + raw_bytes,
                     memory_out));
    xci_pending_piece **pieces = *memory_out;
    uint64_t used = 0;
    for (xci_pending_piece *p = group->pieces; p != NULL; p = p->next)
        pieces[used++] = p;
    qsort(pieces, piece_count, sizeof *pieces, by_first_chunk);
    record->group = index;
    record->blocks = (xci_block *)(void *)(pieces + piece_count);
    record->raw_bytes = raw_bytes;
    uint8_t *payload = (uint8_t *)(record->blocks + block_count);
    record->payload = payload;
    for (uint64_t i = 0; i < piece_count; i++) {
        memcpy(record->blocks + record->block_count, pieces[i]->blocks,
               pieces[i]->block_count * sizeof(xci_block));
        memcpy(payload, pieces[i]->blocks + pieces[i]->block_count, pieces[i]->raw_bytes);
        record->block_count += pieces[i]->block_count;
        payload += pieces[i]->raw_bytes;
    }
    return XORCAST_OK;
}

/* All chunks of the group have been seen. `only`: its single piece, still in the worker's
 * memory, or NULL. */
static xorcast_status complete_group(xci_pending *pending, xci_encode_worker *worker,
                                     uint64_t index, xci_piece *only) {
    xci_pending_group *group = &pending->groups[index];
    xci_record joined = {0}, *record = &joined;
    void *memory = NULL;
    const uint64_t begun = xci_now_ns();
    if (only != NULL)
        record = &only->record;
    else if (group->pieces != NULL)
        TRY(join_pieces(pending, index, record, &memory));
    xorcast_status status = XORCAST_OK;
    if (record->block_count > 0 && pending->bound != NULL)
        status = xci_bound_add(pending->bound, pending->bundle, record);
    const uint64_t measured = xci_now_ns();
    if (status == XORCAST_OK && record->block_count > 0)
        status = xci_group_write(&worker->writer, record, NULL, &group->written);
    if (status == XORCAST_OK && record->block_count > 0 && worker->writer.encoding.old_weights)
        status = xci_group_write(&worker->writer, record,
                                 xci_encode_old(worker, xci_shadow_bundle(pending->shadow), record),
                                 &group->beside);
    drop_pieces(pending->bundle->context, group);
    xci_release(pending->bundle->context, memory);
    pthread_mutex_lock(&pending->lock);
    pending->encoded_bytes += group->written.raw_bytes;
    pending->beside_encoded_bytes += group->beside.raw_bytes;
    pending->bound_ns += measured - begun;
    pending->frame_ns += xci_now_ns() - measured;
    pthread_mutex_unlock(&pending->lock);
    return status;
}

static xorcast_status save_piece(xci_pending *pending, const xci_piece *piece,
                                 xci_pending_piece **saved_out) {
    const xci_record *record = &piece->record;
    void *memory;
    const uint64_t blocks_bytes = record->block_count * sizeof(xci_block);
    TRY(xci_allocate(pending->bundle->context,
                     sizeof(xci_pending_piece) + blocks_bytes + record->raw_bytes, &memory));
    xci_pending_piece *saved = memory;
    *saved =
        (xci_pending_piece){NULL, record->blocks[0].chunk, record->block_count, record->raw_bytes};
    memcpy(saved->blocks, record->blocks, blocks_bytes);
    memcpy(saved->blocks + record->block_count, record->payload, record->raw_bytes);
    *saved_out = saved;
    return XORCAST_OK;
}

/* Adds a range's result to its group; tells whether the group is complete now. */
static bool add_to_group(xci_pending *pending, const put_range *range, const xci_piece *piece,
                         xci_pending_piece *saved) {
    xci_pending_group *group = &pending->groups[range->group];
    pthread_mutex_lock(&pending->lock);
    if (saved != NULL) {
        saved->next = group->pieces;
        group->pieces = saved;
    }
    group->chunks_left -= range->end - range->first;
    const bool complete = group->chunks_left == 0;
    xci_digest_merge(&group->change, &piece->change);
    xci_counts_add(&pending->counts, &piece->counts);
    pthread_mutex_unlock(&pending->lock);
    return complete;
}

/* ---- Putting ---- */

typedef struct put_job {
    xci_pending *pending;
    put_range *ranges;
    uint64_t range_count;
    bool keep;
} put_job;

static void count_kept(xci_pending *pending, const put_range *range, xci_piece *piece) {
    for (uint64_t c = range->first; c < range->end; c++) {
        const uint64_t bytes = xci_bundle_chunk_bytes(pending->bundle, c);
        const xci_tensor *tensor =
            &pending->bundle->tensors[xci_bundle_tensor_of(pending->bundle, c)];
        piece->counts.bytes_covered += bytes;
        piece->counts.elements_covered += xci_divide_up(bytes, tensor->element_bytes);
    }
}

static xorcast_status encode_range(void *user, uint64_t index, uint32_t worker_index) {
    put_job *job = user;
    xci_pending *pending = job->pending;
    xci_encode_worker *worker = &pending->workers[worker_index];
    const put_range *range = &job->ranges[index];
    xci_piece piece;
    xci_pending_piece *saved = NULL;
    memset(&piece, 0, sizeof piece);
    const uint64_t begun = xci_now_ns();
    /* A packed chunk may hold tensors that were put before: it is always encoded. */
    if (job->keep && range->first < pending->bundle->whole_chunk_count)
        count_kept(pending, range, &piece);
    else
        TRY(xci_encode_range(worker, xci_shadow_bundle(pending->shadow), pending->incoming,
                             range->group, range->first, range->end, false, &piece));
    const uint64_t encode_ns = xci_now_ns() - begun;
    const uint64_t *first = &pending->bundle->group_first[range->group];
    const bool whole = range->first == first[0] && range->end == first[1];
    if (!whole && piece.record.block_count > 0)
        TRY(save_piece(pending, &piece, &saved));
    const bool complete = add_to_group(pending, range, &piece, saved);
    pthread_mutex_lock(&pending->lock);
    pending->encode_ns += encode_ns;
    pthread_mutex_unlock(&pending->lock);
    return complete ? complete_group(pending, worker, range->group, whole ? &piece : NULL)
                    : XORCAST_OK;
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

static int by_first(const void *a, const void *b) {
    const put_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Joins neighbouring ranges and cuts them at the ends of groups. */
static xorcast_status cut_ranges(put_job *job, put_range *wide, uint64_t wide_count) {
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
    TRY(xci_allocate_array(bundle->context, pieces, sizeof(put_range), &memory));
    job->ranges = memory;
    for (uint64_t i = 0; i < joined; i++) {
        uint64_t group = xci_bundle_group_of(bundle, wide[i].first);
        for (uint64_t at = wide[i].first; at < wide[i].end; group++) {
            const uint64_t end = xci_min(wide[i].end, bundle->group_first[group + 1]);
            job->ranges[job->range_count++] = (put_range){group, at, end};
            at = end;
        }
    }
    return XORCAST_OK;
}

static xorcast_status put_tensors(xci_pending *pending, put_job *job, uint64_t count,
                                  const uint64_t *indices, const void *const *data,
                                  put_range *wide) {
    const xorcast_bundle *bundle = pending->bundle;
    uint64_t wide_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t t = indices != NULL ? indices[i] : i;
        const xci_tensor *tensor = &bundle->tensors[t];
        TRY(take_tensor(pending, t, data != NULL ? data[i] : NULL, job->keep));
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
            wide[wide_count++] = (put_range){0, tensor->first_chunk, end};
    }
    if (wide_count == 0)
        return XORCAST_OK;
    TRY(cut_ranges(job, wide, wide_count));
    return xci_pool_run(bundle->context->shared->pool, job->range_count, encode_range, job);
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
    TRY(xci_allocate_array(context, count, sizeof(put_range), &wide));
    xorcast_status status = mark_seen(pending, count, indices);
    if (status == XORCAST_OK)
        status = put_tensors(pending, &job, count, indices, data, wide);
    xci_release(context, wide);
    xci_release(context, job.ranges);
    pending->put_ns += xci_now_ns() - begun;
    return status;
}
