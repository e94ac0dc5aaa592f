/* Being ahead of the published version: see ahead.h. */
#include "publish/ahead.h"

#include <stdlib.h>
#include <string.h>

static void drop_pieces(xci_ahead *ahead, xorcast_context *context) {
    for (xci_ahead_piece *piece = ahead->pieces, *next; piece != NULL; piece = next) {
        next = piece->next;
        xci_release(context, piece);
    }
    ahead->pieces = NULL;
}

void xci_ahead_drop(xci_ahead *ahead, xorcast_context *context) {
    drop_pieces(ahead, context);
    *ahead = (xci_ahead){0};
}

/* ---- Pieces ---- */

xci_record xci_ahead_record(const xci_ahead_piece *piece, uint64_t group) {
    return (xci_record){.group = group,
                        .block_count = piece->block_count,
                        .blocks = (xci_block *)(uintptr_t)piece->blocks,
                        .raw_bytes = piece->raw_bytes,
                        .stored_bytes = piece->raw_bytes,
                        .payload = (const uint8_t *)(piece->blocks + piece->block_count)};
}

xorcast_status xci_ahead_add(xci_ahead *ahead, xorcast_context *context, const xci_record *record) {
    void *memory;
    const uint64_t blocks_bytes = record->block_count * sizeof(xci_block);
    TRY(xci_allocate(context, sizeof(xci_ahead_piece) + blocks_bytes + record->raw_bytes, &memory));
    xci_ahead_piece *piece = memory;
    *piece = (xci_ahead_piece){ahead->pieces, record->blocks[0].chunk, record->block_count,
                               record->raw_bytes};
    memcpy(piece->blocks, record->blocks, blocks_bytes);
    memcpy(piece->blocks + record->block_count, record->payload, record->raw_bytes);
    ahead->pieces = piece;
    return XORCAST_OK;
}

static int by_first_chunk(const void *a, const void *b) {
    const xci_ahead_piece *x = *(xci_ahead_piece *const *)a, *y = *(xci_ahead_piece *const *)b;
    return x->first_chunk < y->first_chunk ? -1 : x->first_chunk > y->first_chunk;
}

xorcast_status xci_ahead_join(const xci_ahead *ahead, xorcast_context *context, uint64_t group,
                              xci_record *record_out, void **memory_out) {
    uint64_t piece_count = 0, block_count = 0, raw_bytes = 0;
    for (const xci_ahead_piece *p = ahead->pieces; p != NULL; p = p->next) {
        piece_count++;
        block_count += p->block_count;
        raw_bytes += p->raw_bytes;
    }
    void *memory;
    TRY(xci_allocate(context,
                     piece_count * sizeof(void *) + block_count * sizeof(xci_block) + raw_bytes,
                     &memory));
    xci_ahead_piece **pieces = memory;
    uint64_t used = 0;
    for (xci_ahead_piece *p = ahead->pieces; p != NULL; p = p->next)
        pieces[used++] = p;
    qsort(pieces, piece_count, sizeof *pieces, by_first_chunk);
    xci_block *block = (xci_block *)(void *)(pieces + piece_count);
    uint8_t *payload = (uint8_t *)(block + block_count);
    *record_out = (xci_record){.group = group,
                               .block_count = (uint32_t)block_count,
                               .blocks = block,
                               .raw_bytes = raw_bytes,
                               .payload = payload};
    for (uint64_t i = 0; i < piece_count; i++) {
        const xci_record part = xci_ahead_record(pieces[i], group);
        memcpy(block, part.blocks, part.block_count * sizeof(xci_block));
        memcpy(payload, part.payload, part.raw_bytes);
        block += part.block_count;
        payload += part.raw_bytes;
    }
    *memory_out = memory;
    return XORCAST_OK;
}

/* ---- A whole group ---- */

xorcast_status xci_ahead_whole(xci_ahead *ahead, xorcast_context *context, xci_arena *arena,
                               const xci_record *record, const xci_written written[2]) {
    const xci_written *plain = &written[XCI_FORM_PLAIN];
    void *blocks;
    TRY(xci_arena_copy(arena, record->blocks, record->block_count * sizeof(xci_block), &blocks));
    drop_pieces(ahead, context);
    ahead->record = *record;
    ahead->record.blocks = blocks;
    if (!plain->open)
        ahead->record.payload = plain->bytes + (plain->count - plain->payload_bytes);
    memcpy(ahead->written, written, sizeof ahead->written);
    return XORCAST_OK;
}

void xci_ahead_moved(xci_ahead *ahead, xci_form form, uint8_t *to) {
    xci_written *written = &ahead->written[form];
    written->bytes = to;
    if (form == XCI_FORM_PLAIN)
        ahead->record.payload = to + (written->count - written->payload_bytes);
}

void xci_ahead_copy(xci_ahead *ahead, xci_form form, uint8_t *to, xci_buffers *buffers) {
    xci_written *written = &ahead->written[form];
    const uint64_t head_bytes = written->count - written->payload_bytes;
    if (written->open) {
        memcpy(to, written->bytes, head_bytes);
        memcpy(to + head_bytes, ahead->record.payload, written->payload_bytes);
        xci_record_close(to, head_bytes, to + head_bytes, written->payload_bytes);
        written->open = false;
    } else {
        memcpy(to, written->bytes, written->count);
        xci_buffers_give(buffers, written->bytes);
    }
    xci_ahead_moved(ahead, form, to);
}

/* ---- Back ---- */

static xorcast_status undo(xci_apply_worker *worker, xorcast_bundle *bundle,
                           const xci_record *record, uint8_t *copy) {
    return copy == NULL ? xci_group_apply(worker, bundle, record, NULL)
                        : xci_group_apply_copy(worker, bundle, record, copy);
}

xorcast_status xci_ahead_take_back(const xci_ahead *ahead, xci_apply_worker *worker,
                                   xorcast_bundle *bundle, uint64_t group, uint8_t *copy) {
    if (ahead->record.block_count > 0)
        TRY(undo(worker, bundle, &ahead->record, copy));
    for (const xci_ahead_piece *piece = ahead->pieces; piece != NULL; piece = piece->next) {
        const xci_record record = xci_ahead_record(piece, group);
        TRY(undo(worker, bundle, &record, copy));
    }
    return XORCAST_OK;
}
