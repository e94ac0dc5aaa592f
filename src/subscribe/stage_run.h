/* A run of blocks of one record, on its way to the list that commit applies: checked against the
 * old words, made device-ready where it is not, and kept. What one worker does at a time; many do
 * it side by side. Never changes weights.
 *
 * Owns a worker's memory: the ready blocks lie there, or in a part that the stage holds. */
#ifndef XCI_STAGE_RUN_H
#define XCI_STAGE_RUN_H

#include "base/arena.h"
#include "bundle/bundle.h"
#include "delta/group_reader.h"

/* One chunk, ready to be applied. Of weights in device memory: `block` lies there too, `weights` is
 * NULL and `bytes` 0. */
typedef struct xci_ready {
    uint64_t chunk;
    const uint8_t *block;
    uint8_t *weights; /* where the chunk lies in one piece, or NULL */
    uint32_t block_bytes, block_codec, bytes;
    xorcast_digest change;
} xci_ready;

typedef struct xci_stage_worker {
    xorcast_bundle *bundle;
    xci_group_reader reader;
    uint8_t *gather, *scratch, *form; /* a chunk each: live bytes, decoding, another form */
    uint8_t *made;                    /* the other forms of a run, one behind the other */
    uint64_t made_bytes, made_capacity;
    uint32_t *lists;         /* room for those of a run, which are made as its blocks are checked */
    uint64_t lists_capacity; /* bytes */
    xci_arena *arena; /* ready blocks of the delta that is staged */
    xci_segment *segments;
    /* of the run that is worked on, one for each of its blocks */
    xci_chunk *chunks;
    xci_block_job *jobs;
    uint32_t *indices;       /* of the blocks in their record */
    bool beside_old_weights; /* blocks may be decoded beside them */
    bool keeps_lists;        /* in place of the blocks that they were made of */
} xci_stage_worker;

/* One for each of the pool's threads. `workers_out` is set in any case: close them. */
xorcast_status xci_stage_workers_open(xorcast_bundle *bundle, xci_stage_worker **workers_out);
void xci_stage_workers_close(xorcast_context *context, xci_stage_worker *workers);
/* Drops the ready blocks. */
void xci_stage_workers_reset(xorcast_context *context, xci_stage_worker *workers);

typedef struct xci_stage_run {
    const xci_record *record;
    uint32_t first_block, block_count;
    uint64_t offset, bytes; /* among the record's blocks */
    xci_ready *ready;       /* room for `block_count` of them */
    /* results */
    uint32_t ready_count;
    bool in_part; /* some ready blocks lie in the record's part */
    uint64_t ready_bytes;
    xorcast_counts counts;
    xorcast_digest change;
} xci_stage_run;

/* The record's first run, if nothing but the record is set, or the one behind it: all blocks of a
 * record that can only be decoded as a whole, else some. False: there is none. */
bool xci_stage_run_next(xci_stage_run *run);

/* Works on a run. `held`: the record's bytes stay as long as what is staged. DATA_CORRUPT names the
 * first block that is damaged; of the record's checksum it knows nothing. */
xorcast_status xci_stage_run_work(xci_stage_worker *worker, bool held, xci_stage_run *run);

#endif
