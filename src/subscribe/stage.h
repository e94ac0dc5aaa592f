/* Stage: all that a sampler does while it keeps generating. Takes the parts of a delta, some at a
 * time, checks every byte, undoes the second pass, makes each block device-ready, reads the old
 * words at changed positions and works out what commit will do to the digest. Never changes
 * weights.
 *
 * Owns the ready blocks until it is reset. Commit (commit.h) reads them. */
#ifndef XCI_STAGE_H
#define XCI_STAGE_H

#include "base/arena.h"
#include "base/blob.h"
#include "bundle/bundle.h"
#include "delta/group_reader.h"
#include "frame/delta_reader.h"

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
    xci_group_reader reader;
    uint8_t *gather, *scratch, *ready; /* a chunk each: live bytes, decoding, another form */
    uint8_t *made;                     /* the other forms of a group, one behind the other */
    uint64_t made_bytes, made_capacity;
    xci_arena *arena; /* ready blocks of the delta that is staged */
    xci_segment *segments;
    /* of the group that is worked on, one for each of its blocks */
    xci_chunk *chunks;
    xci_block_job *jobs;
    xci_ready *list;
    uint32_t *indices; /* of the blocks in their record */
} xci_stage_worker;

/* What a group of the parts that are being staged came to. */
typedef struct xci_staged_group {
    xci_ready *ready; /* in an arena, as are the blocks that they point to */
    uint64_t ready_count, ready_bytes;
    bool in_part; /* the blocks lie in the part instead */
    xorcast_counts counts;
    xorcast_digest change;
} xci_staged_group;

#define XCI_STAGE_PARTS 16u /* that are staged at a time, at most */

typedef struct xci_stage {
    xorcast_bundle *bundle;
    xci_stage_worker *workers;         /* of weights in host memory */
    struct xci_device_stage *device;   /* of weights in device memory */
    xorcast_delta_info info; /* of the delta that is staged */
    uint64_t last_group, payload_bytes, encoded_bytes; /* of the parts so far */
    uint32_t parts_at_a_time; /* of a device, whose batches are larger than a part, several */
    xci_part_records parts[XCI_STAGE_PARTS]; /* that are being staged */
    xci_record *records;                     /* of all of them */
    uint64_t record_count, records_capacity;
    xci_staged_group *groups; /* one for each record */
    uint64_t groups_capacity;
    xci_ready *ready; /* of weights in host memory: by chunk */
    uint64_t ready_count, ready_capacity, ready_bytes;
    xci_blob **held; /* parts that ready blocks lie in */
    uint64_t held_count, held_capacity;
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
