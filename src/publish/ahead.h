/* What a group of the shadow is ahead of the published version: the blocks that moved it there
 * while its weights were in the cache. A mask is its own inverse, so the published bytes are had
 * by applying the blocks once more: to a copy, for a keyframe, or to the group, when the version
 * is dropped.
 *
 * Owns pieces; records lie in the arenas of those who wrote them, until the next version begins.
 * Has no lock: the shadow guards each group. */
#ifndef XCI_AHEAD_H
#define XCI_AHEAD_H

#include "base/arena.h"
#include "delta/group_apply.h"
#include "delta/group_writer.h"
#include "frame/about.h"

/* Blocks of a part of the group, waiting for the rest. */
typedef struct xci_ahead_piece {
    struct xci_ahead_piece *next;
    uint32_t first_chunk, block_count;
    uint64_t raw_bytes;
    xci_block blocks[]; /* and the payload behind them */
} xci_ahead_piece;

/* Zeroed: not ahead. Either pieces, or one record of the whole group. */
typedef struct xci_ahead {
    xci_ahead_piece *pieces;
    xci_record record; /* of the plain form; block_count 0: none */
    /* of the plain form and, if it is wanted, the one beside the old weights: in buffers, and then
     * in parts, which outlive what is ahead */
    xci_written written[2];
    xorcast_digest change; /* terms of the group now minus terms of what is published */
} xci_ahead;

/* A piece as a record of its group. */
xci_record xci_ahead_record(const xci_ahead_piece *piece, uint64_t group);
/* Adds a piece, whose record is copied. */
xorcast_status xci_ahead_add(xci_ahead *ahead, xorcast_context *context, const xci_record *record);
/* All pieces become one record, in the order of their chunks: in memory of its own, which is the
 * caller's to release once the group is written. */
xorcast_status xci_ahead_join(const xci_ahead *ahead, xorcast_context *context, uint64_t group,
                              xci_record *record_out, void **memory_out);
/* The group is whole and its record, of the plain form, is written, in `arena`: replaces the
 * pieces. */
xorcast_status xci_ahead_whole(xci_ahead *ahead, xorcast_context *context, xci_arena *arena,
                               const xci_record *record, const xci_written written[2]);
/* Copies the group's record of a form to where it will be shipped from. It is there alone from then
 * on; the buffer it was in is given back. */
void xci_ahead_copy(xci_ahead *ahead, xci_form form, uint8_t *to, xci_buffers *buffers);
/* What was copied lies at `to` now. */
void xci_ahead_moved(xci_ahead *ahead, xci_form form, uint8_t *to);
/* Undoes the blocks in the shadow's own group (`copy` NULL) or in a copy of its chunks, one behind
 * the other. Cannot fail on a worker whose reader was reserved. */
xorcast_status xci_ahead_take_back(const xci_ahead *ahead, xci_apply_worker *worker,
                                   xorcast_bundle *bundle, uint64_t group, uint8_t *copy);
/* Frees; zeroed again. */
void xci_ahead_drop(xci_ahead *ahead, xorcast_context *context);

#endif
