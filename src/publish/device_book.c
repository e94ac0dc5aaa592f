/* Pieces to records: see device_book.h. */
#include "publish/device_book.h"

#include <string.h>

#include "base/bytes.h"
#include "base/counts.h"
#include "base/digest.h"
#include "base/pool.h"
#include "publish/device_pieces.h"
#include "publish/device_receive.h"
#include "publish/device_settle.h"

#define BLOCK_ROOM 32u /* of each chunk, beyond its block: what aligning blocks takes at most */

typedef struct book_job {
    xci_device_encoder *e;
    const xci_encode_slot *slot;
    uint8_t *kept;       /* where the piece's blocks stay on the device; NULL: nowhere */
    uint64_t part_count; /* items before those of ranges: parts that can be hashed */
} book_job;

/* Where a range's first block, `offset` bytes behind the piece's first, stays: blocks that follow
 * each other at multiples of the alignment end before the next range's place, whichever chunks have
 * one. */
static uint8_t *kept_at(const book_job *job, const xci_put_range *range, uint64_t offset) {
    return job->kept + xci_round_up(offset, XCI_BLOCK_ALIGNMENT) +
           BLOCK_ROOM * (xci_range_first(job->e, range) - job->slot->first);
}

/* Lists the block of a piece's chunk `index` for the copy to where it stays; one that has none is
 * listed as nothing. */
static void list_block(const book_job *job, uint64_t index, const xci_cuda_result *result,
                       uint8_t **at) {
    const bool has = result->block_bytes > 0;
    xci_slot_host(job->slot).moves[index] = (xci_cuda_move){
        job->slot->output.at + (has ? result->block_offset : 0), *at, result->block_bytes};
    *at += xci_round_up(result->block_bytes, XCI_BLOCK_ALIGNMENT);
}

/* The record of a range whose group the device has written, `beside` the old weights or not. */
static void take_payload(const xci_device_encoder *e, const xci_encode_slot *slot,
                         const xci_put_range *range, bool beside, xci_record *record) {
    const uint8_t *payload = beside ? slot->beside_payload.at : slot->payload.at;
    xci_device_gap_take(beside ? &slot->beside : &slot->gap,
                        (uint64_t)(range - &e->ranges[slot->ranges.first]),
                        xci_range_first(e, range) - slot->first, payload, record);
}

/* What a range of the piece came to. */
static void collect(const book_job *job, const xci_put_range *range, xci_encode_worker *worker,
                    xci_piece *piece, bool *behind_out) {
    const xorcast_bundle *bundle = job->e->pending->bundle;
    const xci_cuda_result *results = xci_slot_results(job->slot);
    uint8_t *at = job->kept;
    xci_record *record = &piece->record;
    xci_chunk chunk;
    bool moved = true;
    memset(piece, 0, sizeof *piece);
    record->group = range->group;
    record->blocks = worker->blocks;
    const uint64_t base = xci_range_first(job->e, range) - job->slot->first;
    for (uint64_t c = range->first; c < range->end; c++) {
        const uint64_t index = base + (c - range->first);
        const xci_cuda_result *result = &results[index];
        const bool has_block = xci_slot_has_block(job->slot, result);
        if (c == range->first)
            xci_bundle_chunk(bundle, c, NULL, &chunk);
        else
            xci_bundle_next_chunk(bundle, NULL, &chunk);
        xci_piece_cover(piece, chunk.segments, chunk.segment_count, chunk.element_bytes);
        if (has_block && record->block_count == 0) {
            record->payload = job->slot->payload.at + result->block_offset;
            at = job->kept != NULL ? kept_at(job, range, result->block_offset) : NULL;
        }
        if (job->kept != NULL)
            list_block(job, index, result, &at);
        if (!has_block)
            continue;
        record->blocks[record->block_count++] =
            (xci_block){(uint32_t)(c - bundle->group_first[range->group]), result->block_codec,
                        chunk.element_bytes, result->block_bytes, chunk.bytes};
        record->raw_bytes += result->block_bytes;
        moved = moved && result->moved == 1;
        piece->counts.bits_changed += result->bits_changed;
        piece->counts.bytes_changed += result->bytes_changed;
        piece->counts.elements_changed += result->elements_changed;
        piece->counts.chunks_changed++;
        xci_digest_merge(&piece->change, &result->change);
    }
    if (job->slot->has_gap && record->block_count > 0)
        take_payload(job->e, job->slot, range, false, record);
    *behind_out = !moved;
}

/* Tells subscribers of the process where a whole group's blocks stay. */
static void note_place(const book_job *job, const xci_put_range *range, const uint8_t *payload) {
    if (job->kept != NULL && xci_range_whole(job->e, range))
        job->e->side->groups[range->group] =
            kept_at(job, range, (uint64_t)(payload - job->slot->payload.at));
}

static xorcast_status book_range(const book_job *job, uint64_t index, uint32_t worker_index) {
    xci_device_encoder *e = job->e;
    const xci_put_range *range = &e->ranges[job->slot->ranges.first + index];
    bool behind;
    xci_piece piece;
    collect(job, range, &e->pending->workers[worker_index], &piece, &behind);
    TRY(xci_pending_book(e->pending, range, worker_index, &piece, 0));
    e->notes[index] = (xci_range_note){true, behind};
    if (piece.record.block_count > 0) {
        note_place(job, range, piece.record.payload);
        if (!xci_device_shadow_on_device(e->shadow))
            xci_shadow_move(e->pending->shadow, worker_index, &piece.record);
    }
    return xci_pending_seen(e->pending, range, worker_index);
}

static xorcast_status book_item(void *user, uint64_t index, uint32_t worker_index) {
    const book_job *job = user;
    if (index >= job->part_count)
        return book_range(job, index - job->part_count, worker_index);
    xci_parts_hash(&job->e->pending->parts[XCI_FORM_PLAIN], index);
    return XORCAST_OK;
}

/* ---- Blocks that stay on the device ---- */

/* What was booked of a piece goes to its place, beside what is encoded meanwhile. */
static xorcast_status keep_blocks(xci_device_encoder *e, const xci_encode_slot *slot) {
    xorcast_context *context = e->context;
    const xci_device *device = context->shared->device;
    const xci_slot_tables to = xci_slot_device(slot), from = xci_slot_host(slot);
    const uint64_t count = xci_range_end(e, &e->ranges[slot->ranges.end - 1]) - slot->first;
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, to.moves, from.moves,
                                 count * sizeof(xci_cuda_move), e->keep));
    XCI_DEVICE(context, "align blocks",
               device->ops->copy_many(device->handle, to.moves, count, e->keep));
    return xci_device_result(
        context, device->ops->event_record(device->handle, slot->kept, e->keep), "mark a stream");
}

/* ---- The pieces of a put ---- */

static uint8_t *place_to_keep(const xci_device_encoder *e, const xci_encode_slot *slot) {
    if (e->side == NULL || slot->used == 0)
        return NULL;
    return xci_device_side_take(e->side, e->share, slot->used + (slot->count + 1) * BLOCK_ROOM);
}

static xorcast_status book_ranges(xci_device_encoder *e, const xci_encode_slot *slot,
                                  uint8_t *kept) {
    xci_parts *parts = &e->pending->parts[XCI_FORM_PLAIN];
    const uint64_t range_count = slot->ranges.end - slot->ranges.first;
    /* A part takes a millisecond: too long for a small piece, which is near the end. */
    const bool hashes = slot->count >= e->most_chunks / 2;
    book_job job = {e, slot, kept, hashes ? parts->count - parts->hashed : 0};
    memset(e->notes, 0, range_count * sizeof *e->notes);
    xci_pending_open_records(e->pending, e->ranges[slot->ranges.first].group,
                             xci_slot_whole(e, slot) && xci_slot_gapless(e, slot), slot->has_gap);
    const xorcast_status status =
        xci_pool_run(e->context->shared->pool, job.part_count + range_count, book_item, &job);
    e->pending->open_records = false;
    if (status == XORCAST_OK)
        parts->hashed += job.part_count;
    return status;
}

/* Where the host writes beside the old weights, chunks that were before their change are read from
 * the shadow: it must have moved by all pieces before this one, those of other devices too. */
static xorcast_status begin_lists(xci_device_encoder *e, const xci_encode_slot *slot) {
    e->booking = slot;
    if (xci_device_encoding(e)->old_weights == 0 || slot->has_gap)
        return XORCAST_OK;
    for (uint32_t s = 0; s < e->pending->bundle->share_count; s++) {
        const xci_device_encoder *one = e->siblings[s];
        const xci_device *device = one->context->shared->device;
        XCI_DEVICE(one->context, "move the shadow",
                   device->ops->event_wait(device->handle, one->settled));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_encoder_list(xci_device_encoder *e, uint32_t worker,
                                       const xci_record *record, bool joined,
                                       xci_record *listed_out, const uint8_t *const **old_out) {
    uint64_t first = 0, count = joined ? 0 : UINT64_MAX; /* that have not moved */
    if (xci_device_shadow_on_device(e->shadow)) {        /* a piece moves as a whole */
        first = e->booking != NULL ? e->booking->first : 0;
        count = e->booking != NULL ? e->booking->count : 0;
    }
    *old_out = NULL;
    *listed_out = *record;
    if (e->lists == NULL || record->encoded)
        return XORCAST_OK;
    TRY(xci_device_lists_make(&e->lists[worker], e->context, record, listed_out));
    if (xci_device_encoding(e)->old_weights == 0)
        return XORCAST_OK;
    return xci_device_lists_old(&e->lists[worker], e->context, e->pending->bundle, e->shadow,
                                listed_out, e->share, first, count, old_out);
}

xorcast_status xci_device_encoder_beside(xci_device_encoder *e, uint32_t worker,
                                         const xci_record *plain, xci_record *beside_out) {
    const xci_encode_slot *slot = e->booking;
    xci_device_lists *lists = &e->lists[worker];
    TRY(xci_grow(e->context, &lists->blocks, &lists->blocks_capacity,
                 plain->block_count * sizeof(xci_block)));
    memcpy(lists->blocks, plain->blocks, plain->block_count * sizeof *plain->blocks);
    *beside_out = *plain;
    beside_out->blocks = lists->blocks;
    take_payload(e, slot, xci_slot_range(e, slot, plain->group), true, beside_out);
    return XORCAST_OK;
}

/* The records of a piece, and the shadow and the blocks that stay by what was booked of it. */
static xorcast_status book_piece(xci_device_encoder *e, xci_encode_slot *slot) {
    uint8_t *kept = place_to_keep(e, slot);
    TRY(begin_lists(e, slot));
    const xorcast_status status = book_ranges(e, slot, kept);
    e->booking = NULL;
    if (slot->moved && slot->has_gap && status < 0)
        TRY(xci_device_take_back(e, slot, e->notes));
    else if (xci_device_shadow_on_device(e->shadow) && !slot->has_gap)
        TRY(xci_device_settle(e, slot, slot->ranges.first, slot->ranges.end, e->notes));
    slot->moved = false;
    TRY(status);
    return kept != NULL ? keep_blocks(e, slot) : XORCAST_OK;
}

xorcast_status xci_device_book(xci_device_encoder *e) {
    xci_encode_slot *slot = &e->slots[e->booked++ % XCI_ENCODE_SLOTS];
    TRY(xci_device_wait(e, slot->drained, "copy blocks"));
    if (slot->ranges.first < slot->ranges.end)
        TRY(book_piece(e, slot));
    slot->moved = false;
    TRY(xci_device_receive_ready(e));
    TRY(xci_pending_plan(e->pending));
    for (uint32_t form = 0; form <= xci_device_encoding(e)->old_weights; form++)
        TRY(xci_parts_copy(&e->pending->parts[form]));
    return XORCAST_OK;
}
