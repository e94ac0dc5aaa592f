/* Pieces to records: see device_book.h. */
#include "publish/device_book.h"

#include <string.h>

#include "base/bytes.h"
#include "base/counts.h"
#include "base/digest.h"
#include "base/pool.h"
#include "publish/device_encode_state.h"
#include "publish/device_pieces.h"
#include "publish/device_receive.h"
#include "publish/device_settle.h"

#define BLOCK_ROOM 32u /* of each chunk, beyond its block: what aligning blocks takes at most */

/* A piece of one device. */
typedef struct book_piece {
    xci_device_encoder *e;
    xci_encode_slot *slot;
    uint8_t *kept; /* where its blocks stay on the device; NULL: nowhere */
} book_piece;

/* One of each device at most, booked side by side. */
typedef struct book_job {
    xci_pending *pending;
    uint64_t part_count; /* items before those of ranges: parts that can be hashed */
    uint64_t range_count;
    uint32_t piece_count;
    book_piece pieces[XCI_SHARES_MAX];
} book_job;

/* Where a range's first block, `offset` bytes behind the piece's first, stays: blocks that follow
 * each other at multiples of the alignment end before the next range's place, whichever chunks have
 * one. */
static uint8_t *kept_at(const book_piece *piece, const xci_put_range *range, uint64_t offset) {
    return piece->kept + xci_round_up(offset, XCI_BLOCK_ALIGNMENT) +
           BLOCK_ROOM * (xci_range_first(piece->e, range) - piece->slot->first);
}

/* Lists the block of a piece's chunk `index` for the copy to where it stays; one that has none is
 * listed as nothing. */
static void list_block(const book_piece *piece, uint64_t index, const xci_cuda_result *result,
                       uint8_t **at) {
    const bool has = result->block_bytes > 0;
    xci_slot_host(piece->slot).moves[index] = (xci_cuda_move){
        piece->slot->output.at + (has ? result->block_offset : 0), *at, result->block_bytes};
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
static void collect(const book_piece *from, const xci_put_range *range, xci_encode_worker *worker,
                    xci_piece *piece, bool *behind_out) {
    const xorcast_bundle *bundle = from->e->pending->bundle;
    const xci_cuda_result *results = xci_slot_results(from->slot);
    uint8_t *at = from->kept;
    xci_record *record = &piece->record;
    xci_chunk chunk;
    bool moved = true;
    memset(piece, 0, sizeof *piece);
    record->group = range->group;
    record->blocks = worker->blocks;
    const uint64_t base = xci_range_first(from->e, range) - from->slot->first;
    for (uint64_t c = range->first; c < range->end; c++) {
        const uint64_t index = base + (c - range->first);
        const xci_cuda_result *result = &results[index];
        const bool has_block = xci_slot_has_block(from->slot, result);
        if (c == range->first)
            xci_bundle_chunk(bundle, c, NULL, &chunk);
        else
            xci_bundle_next_chunk(bundle, NULL, &chunk);
        xci_piece_cover(piece, chunk.segments, chunk.segment_count, chunk.element_bytes);
        if (has_block && record->block_count == 0) {
            record->payload = from->slot->payload.at + result->block_offset;
            at = from->kept != NULL ? kept_at(from, range, result->block_offset) : NULL;
        }
        if (from->kept != NULL)
            list_block(from, index, result, &at);
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
    if (from->slot->has_gap && record->block_count > 0)
        take_payload(from->e, from->slot, range, false, record);
    *behind_out = !moved;
}

/* Tells subscribers of the process where a whole group's blocks stay. */
static void note_place(const book_piece *piece, const xci_put_range *range,
                       const uint8_t *payload) {
    if (piece->kept != NULL && xci_range_whole(piece->e, range))
        piece->e->side->groups[range->group] =
            kept_at(piece, range, (uint64_t)(payload - piece->slot->payload.at));
}

static xorcast_status book_range(const book_piece *from, uint64_t index, uint32_t worker_index) {
    xci_device_encoder *e = from->e;
    const xci_put_range *range = &e->ranges[from->slot->ranges.first + index];
    bool behind;
    xci_piece piece;
    collect(from, range, &e->pending->workers[worker_index], &piece, &behind);
    TRY(xci_pending_book(e->pending, range, worker_index, &piece, 0));
    e->notes[index] = (xci_range_note){true, behind};
    if (piece.record.block_count > 0) {
        note_place(from, range, piece.record.payload);
        if (!xci_device_shadow_on_device(e->shadow))
            xci_shadow_move(e->pending->shadow, worker_index, &piece.record);
    }
    return xci_pending_seen(e->pending, range, worker_index);
}

/* Other devices may have ranges of the same group at hand. */
static xorcast_status book_locked(const book_piece *from, uint64_t index, uint32_t worker_index) {
    const xci_device_encoder *e = from->e;
    const xci_put_range *range = &e->ranges[from->slot->ranges.first + index];
    if (xci_range_whole(e, range))
        return book_range(from, index, worker_index);
    xci_shadow_lock(e->pending->shadow, range->group);
    const xorcast_status status = book_range(from, index, worker_index);
    xci_shadow_unlock(e->pending->shadow, range->group);
    return status;
}

static uint64_t range_count(const book_piece *piece) {
    return piece->slot->ranges.end - piece->slot->ranges.first;
}

static xorcast_status book_item(void *user, uint64_t index, uint32_t worker_index) {
    const book_job *job = user;
    const book_piece *piece = job->pieces;
    if (index < job->part_count) {
        xci_parts_hash(&job->pending->parts[XCI_FORM_PLAIN], index);
        return XORCAST_OK;
    }
    for (index -= job->part_count; index >= range_count(piece); piece++)
        index -= range_count(piece);
    return book_locked(piece, index, worker_index);
}

/* ---- Blocks that stay on the device ---- */

static uint8_t *place_to_keep(const xci_device_encoder *e, const xci_encode_slot *slot) {
    if (e->side == NULL || slot->used == 0)
        return NULL;
    return xci_device_side_take(e->side, e->share, slot->used + (slot->count + 1) * BLOCK_ROOM);
}

/* What was booked of a piece goes to its place, beside what is encoded meanwhile. */
static xorcast_status keep_blocks(const book_piece *piece) {
    const xci_device_encoder *e = piece->e;
    const xci_encode_slot *slot = piece->slot;
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

/* ---- Pieces ---- */

/* The first group that will have chunks left. */
static uint64_t whole_end(const book_job *job) {
    const xci_pending *pending = job->pending;
    const uint64_t group_count = pending->bundle->layout.group_count;
    uint64_t g = pending->parts[XCI_FORM_PLAIN].next_group, next[XCI_SHARES_MAX];
    for (uint32_t p = 0; p < job->piece_count; p++)
        next[p] = job->pieces[p].slot->ranges.first;
    for (; g < group_count; g++) {
        uint64_t left = pending->chunks_left[g];
        for (uint32_t p = 0; p < job->piece_count && left > 0; p++) {
            const xci_put_range *range = &job->pieces[p].e->ranges[next[p]];
            if (next[p] == job->pieces[p].slot->ranges.end || range->group != g)
                continue;
            left -= range->end - range->first;
            next[p]++;
        }
        if (left > 0)
            break;
    }
    return g;
}

/* Where the host writes beside the old weights, chunks that were before their change are read from
 * the shadow: it must have moved by all pieces before these. */
static xorcast_status await_shadow(const book_job *job) {
    const xci_device_encoder *first = job->pieces[0].e;
    bool reads = false;
    for (uint32_t p = 0; p < job->piece_count; p++)
        reads = reads || !job->pieces[p].slot->has_gap;
    if (!reads || xci_device_encoding(first)->old_weights == 0)
        return XORCAST_OK;
    for (uint32_t s = 0; s < job->pending->bundle->share_count; s++) {
        const xci_device_encoder *one = first->siblings[s];
        const xci_device *device = one->context->shared->device;
        XCI_DEVICE(one->context, "move the shadow",
                   device->ops->event_wait(device->handle, one->settled));
    }
    return XORCAST_OK;
}

static xorcast_status book_ranges(book_job *job) {
    xci_parts *parts = &job->pending->parts[XCI_FORM_PLAIN];
    bool hashes = false;
    for (uint32_t p = 0; p < job->piece_count; p++) {
        book_piece *piece = &job->pieces[p];
        piece->kept = place_to_keep(piece->e, piece->slot);
        piece->e->booking = piece->slot;
        memset(piece->e->notes, 0, range_count(piece) * sizeof *piece->e->notes);
        job->range_count += range_count(piece);
        /* A part takes a millisecond: too long for a small piece, which is near the end. */
        hashes = hashes || piece->slot->count >= piece->e->most_chunks / 2;
    }
    job->part_count = hashes ? parts->count - parts->hashed : 0;
    xci_pending_open_records(job->pending, whole_end(job));
    TRY(xci_pool_run(job->pending->bundle->context->shared->pool,
                     job->part_count + job->range_count, book_item, job));
    parts->hashed += job->part_count;
    return XORCAST_OK;
}

/* The shadow, and the blocks that stay, by what was booked of a piece; `booked`: all of it. */
static xorcast_status follow(const book_piece *piece, xorcast_status booked) {
    xci_device_encoder *e = piece->e;
    xci_encode_slot *slot = piece->slot;
    e->booking = NULL;
    if (slot->moved && slot->has_gap && booked < 0)
        TRY(xci_device_take_back(e, slot, e->notes));
    else if (xci_device_shadow_on_device(e->shadow) && !slot->has_gap)
        TRY(xci_device_settle(e, slot, slot->ranges.first, slot->ranges.end, e->notes));
    slot->moved = false;
    return booked == XORCAST_OK && piece->kept != NULL ? keep_blocks(piece) : XORCAST_OK;
}

/* Takes the oldest piece of each device, with its blocks on the host. */
static xorcast_status take_pieces(book_job *job, xci_device_encoder *const *encoders,
                                  uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        xci_device_encoder *e = encoders[i];
        xci_encode_slot *slot = &e->slots[e->booked % XCI_ENCODE_SLOTS];
        TRY(xci_device_wait(e, slot->drained, "copy blocks"));
        e->booked++;
        if (slot->ranges.first < slot->ranges.end)
            job->pieces[job->piece_count++] = (book_piece){e, slot, NULL};
        else
            slot->moved = false; /* nothing of it fitted, and it was settled then */
    }
    return XORCAST_OK;
}

static xorcast_status book_pieces(book_job *job) {
    if (job->piece_count == 0)
        return XORCAST_OK;
    TRY(await_shadow(job));
    xorcast_status status = book_ranges(job);
    for (uint32_t p = 0; p < job->piece_count; p++) {
        const xorcast_status followed = follow(&job->pieces[p], status);
        status = status < 0 ? status : followed;
    }
    return status;
}

xorcast_status xci_device_book(xci_pending *pending, xci_device_encoder *const *encoders,
                               uint32_t count) {
    book_job job = {.pending = pending};
    TRY(take_pieces(&job, encoders, count));
    TRY(book_pieces(&job));
    for (uint32_t i = 0; i < count; i++)
        TRY(xci_device_receive_ready(encoders[i]));
    TRY(xci_pending_plan(pending));
    for (uint32_t form = 0; form <= pending->workers[0].writer.encoding.old_weights; form++)
        TRY(xci_parts_copy(&pending->parts[form]));
    return XORCAST_OK;
}

/* ---- For groups that the host writes ---- */

xci_local_span xci_device_unmoved(const xci_device_encoder *e, bool joined) {
    if (!xci_device_shadow_on_device(e->shadow))
        return (xci_local_span){0, joined ? 0 : UINT64_MAX};
    return e->booking != NULL ? (xci_local_span){e->booking->first, e->booking->count}
                              : (xci_local_span){0, 0};
}

void xci_device_take_beside(const xci_device_encoder *e, xci_record *record) {
    take_payload(e, e->booking, xci_slot_range(e, e->booking, record->group), true, record);
}
