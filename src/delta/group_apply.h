/* XORs the chunks of one group into a bundle, straight from the encoded blocks, without asking
 * what is there now: for a publisher's shadow, whose bytes are known, and for a keyframe, which
 * is verified as a whole at its end. Samplers' live weights go through stage and commit instead.
 */
#ifndef XCI_GROUP_APPLY_H
#define XCI_GROUP_APPLY_H

#include "bundle/bundle.h"
#include "delta/group_reader.h"

/* Scratch of one worker. */
typedef struct xci_apply_worker {
    xci_group_reader reader;
    uint8_t *mask, *weights; /* a chunk each */
    xci_segment *segments;
    bool own_blocks; /* set by the owner: blocks were made here and are not checked again */
} xci_apply_worker;

xorcast_status xci_apply_worker_open(xci_apply_worker *worker, xorcast_bundle *bundle);
void xci_apply_worker_close(xci_apply_worker *worker, xorcast_context *context);
/* one a thread */
xorcast_status xci_apply_workers_open(xorcast_bundle *bundle, xci_apply_worker **workers_out);
void xci_apply_workers_close(xorcast_context *context, xci_apply_worker *workers);

/* `chunk_digests`, one for each chunk of the bundle, are renewed for changed chunks; NULL: not
 * kept. Blocks are checked unless the worker says that they are our own; a failure leaves the
 * group's chunks partly changed. */
xorcast_status xci_group_apply(xci_apply_worker *worker, xorcast_bundle *bundle,
                               const xci_record *record, xorcast_digest *chunk_digests);

/* The same to a copy of the group's chunks, one behind the other. */
xorcast_status xci_group_apply_copy(xci_apply_worker *worker, xorcast_bundle *bundle,
                                    const xci_record *record, uint8_t *copy);

/* Sum of the terms of the words that the bundle counts in a chunk. `weights` and `segments`:
 * scratch as above. */
xorcast_status xci_chunk_digest(xorcast_bundle *bundle, uint64_t chunk, uint8_t *weights,
                                xci_segment *segments, xorcast_digest *digest_out);

#endif
