/* One group of a fold: the blocks that several deltas have of it become one record. The group's
 * chunks are spread over the pool. Used by fold.c alone. */
#ifndef XCI_FOLD_GROUP_H
#define XCI_FOLD_GROUP_H

#include "backend/backend.h"
#include "delta/group_reader.h"
#include "delta/group_writer.h"
#include "frame/delta_reader.h"
#include "frame/delta_writer.h"

/* One of the deltas, and where we are in it. */
typedef struct xci_fold_input {
    xci_delta_reader reader;
    xci_part_records records;
    xci_group_reader group;
    uint64_t next, last_group; /* record in the present part; the group before it */
} xci_fold_input;

typedef struct xci_fold {
    xorcast_context *context;
    xci_fold_input *inputs;
    uint64_t input_count;
    bool told;                             /* to the context's progress call */
    uint64_t chunk_bytes, group_bytes_max; /* of all inputs */
    xci_group_writer writer;
    uint64_t group;         /* the present one, which the inputs that have it have next */
    xorcast_counts counts;  /* of all groups so far */
    uint64_t encoded_bytes; /* likewise */

    /* Of the present group. */
    struct xci_fold_entry *entries; /* by chunk, then by input */
    uint64_t entry_count, entries_capacity;
    uint64_t
        *firsts; /* for each chunk that is in any input, its first entry; one more at the end */
    uint64_t chunk_count, firsts_capacity;
    xci_encode_job *results;
    uint64_t results_capacity;
    uint8_t *slots; /* room for each result's block */
    uint64_t slots_capacity;
    xci_block *blocks;
    uint64_t blocks_capacity;
    uint8_t *masks;    /* scratch of each worker */
    xci_segment whole; /* a segment of any chunk: the backend sums a digest, no one reads it */
} xci_fold;

/* Scratch for groups of inputs that are open. */
xorcast_status xci_fold_groups_open(xci_fold *fold);
void xci_fold_groups_close(xci_fold *fold);
/* Writes the present group, unless nothing of it is changed. */
xorcast_status xci_fold_group(xci_fold *fold, xci_delta_writer *out);

#endif
