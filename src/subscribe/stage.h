/* Stage: all that a sampler does while it keeps generating. Takes the parts of a delta, some at a
 * time, checks every byte, undoes the second pass, makes each block device-ready, reads the old
 * words at changed positions and works out what commit will do to the digest. Never changes
 * weights.
 *
 * Owns the ready blocks until it is reset. Commit (commit.h) reads them. */
#ifndef XCI_STAGE_H
#define XCI_STAGE_H

#include "base/blob.h"
#include "frame/delta_reader.h"
#include "subscribe/stage_run.h"

#define XCI_STAGE_PARTS 16u /* that are staged at a time, at most */

typedef struct xci_stage {
    xorcast_bundle *bundle;
    xci_stage_worker *workers;         /* of weights in host memory */
    struct xci_device_stage *device;   /* of weights in device memory */
    xorcast_delta_info info; /* of the delta that is staged */
    uint64_t last_group, payload_bytes, encoded_bytes; /* of the parts so far */
    /* So that all threads have work until the end of them, or a device its batch; no more than
     * one for each thread, whose records and parts are in its cache. */
    uint32_t parts_at_a_time;
    xci_part_records parts[XCI_STAGE_PARTS]; /* that are being staged */
    xci_record *records;                     /* of all of them */
    uint64_t record_count, records_capacity;
    struct xci_stage_task *tasks; /* to be done for these, of weights in host memory */
    uint64_t task_count, tasks_capacity;
    xci_ready *ready; /* of weights in host memory: by chunk */
    uint64_t ready_count, ready_capacity, ready_bytes;
    xci_blob **held; /* parts that ready blocks lie in */
    uint64_t held_count, held_capacity;
    uint64_t keeps; /* its share of memory that stays with the context */
    bool for_journal; /* ready blocks are raw or LZ4, none a list; set behind opening */
    xorcast_counts counts;
    xorcast_digest change;
    bool finished;
} xci_stage;

xorcast_status xci_stage_open(xci_stage *stage, xorcast_bundle *bundle);
void xci_stage_close(xci_stage *stage);
/* Drops what is staged. */
void xci_stage_reset(xci_stage *stage);

/* Begins a delta that leads from `base`, the digest of the weights; only bundles that count
 * every byte can compare it. */
xorcast_status xci_stage_begin(xci_stage *stage, const xci_manifest *manifest,
                               const xorcast_digest *base);
typedef struct xci_part_bytes {
    const uint8_t *bytes;
    uint64_t count;
    /* what they lie in; it is held until the stage is reset if blocks can stay there. NULL: the
     * bytes are the caller's again afterwards */
    xci_blob *blob;
} xci_part_bytes;
/* The next `count` parts in order, `first` and those behind it, at most XCI_STAGE_PARTS. */
xorcast_status xci_stage_parts(xci_stage *stage, const xci_manifest *manifest, uint64_t first,
                               uint64_t count, const xci_part_bytes *parts);
/* All parts are in: new terms minus old terms must be target minus base. BASE_MISMATCH
 * otherwise. */
xorcast_status xci_stage_finish(xci_stage *stage, const xci_manifest *manifest);
/* The three calls over a source. */
xorcast_status xci_stage_source(xci_stage *stage, const xorcast_source *source,
                                const xorcast_digest *base);

#endif
