/* Diff and encode: ranges of chunks of two bundles to encoded blocks, groups to records, bundles
 * to a delta. Decides what is worked on and where bytes come from; the fused kernel runs in the
 * backend, and the mask is never stored. */
#ifndef XCI_ENCODE_H
#define XCI_ENCODE_H

#include "bundle/bundle.h"
#include "delta/group_writer.h"
#include "frame/delta_writer.h"

/* Scratch of one worker. Grows to what the bundle's largest group needs and stays. */
typedef struct xci_encode_worker {
    xci_group_writer writer;
    xci_chunk *chunks;
    xci_encode_job *jobs;
    xci_block *blocks;
    uint8_t *blocks_at;     /* one behind the other; room for all at their worst */
    uint8_t *gather[2];     /* old and new bytes that do not lie in one piece in host memory */
    uint64_t gather_capacity[2];
    const uint8_t **old;    /* what xci_encode_old lists, and room for it */
    uint8_t *before;
    uint64_t before_capacity;
} xci_encode_worker;

xorcast_status xci_encode_worker_open(xci_encode_worker *worker, xorcast_bundle *bundle,
                                      const xorcast_encoding *encoding);
void xci_encode_worker_close(xci_encode_worker *worker, xorcast_context *context);
/* One for each thread of the context's pool. */
xorcast_status xci_encode_workers_open(xorcast_bundle *bundle, const xorcast_encoding *encoding,
                                       xci_encode_worker **workers_out);
void xci_encode_workers_close(xorcast_context *context, xci_encode_worker *workers);

/* What a range of chunks of one group came to. */
typedef struct xci_piece {
    /* group, blocks, raw payload: in the worker's memory until its next call */
    xci_record record;
    xorcast_counts counts;
    xorcast_digest change;  /* new terms minus old terms */
    xorcast_digest old;     /* all terms of old, if asked for */
} xci_piece;

/* Counts the words of a chunk as covered; padding between small tensors is no weight. */
void xci_piece_cover(xci_piece *piece, const xci_segment *segments, uint32_t segment_count,
                     uint32_t element_bytes);

/* What else becomes of the old side. */
typedef enum xci_old_side {
    XCI_OLD_DIGEST, /* all its terms are summed up */
    XCI_OLD_MOVE    /* becomes new, chunk by chunk; old_bundle lies in one piece in host memory */
} xci_old_side;

/* Encodes chunks [first, end) of `group`. Both bundles have the same grid and are complete. After
 * a failure nothing has moved. */
xorcast_status xci_encode_range(xci_encode_worker *worker, xorcast_bundle *old_bundle,
                                xorcast_bundle *new_bundle, uint64_t group, uint64_t first,
                                uint64_t end, xci_old_side old_side, xci_piece *piece_out);

/* The bytes before the change of each chunk of a group's record, as its range was encoded; valid
 * until the worker's next call. Either of the range encoded last, which was the whole group and
 * kept its old side: `moved` is NULL. Or of a bundle whose chunks lie in one piece and have
 * become new: they are taken back in memory of the worker. */
xorcast_status xci_encode_old(xci_encode_worker *worker, const xorcast_bundle *moved,
                              const xci_record *record, const uint8_t *const **old_out);

/* Who the base is when it is not `old_bundle` itself: a checkpoint of another layout that
 * old_bundle was aligned from. */
typedef struct xci_identity {
    uint8_t fingerprint[16];
    xorcast_digest digest;
} xci_identity;

/* xorcast_delta_encode with what checkpoints add: another identity of the base (or NULL), an
 * attachment (or NULL). */
xorcast_status xci_delta_encode(xorcast_bundle *old_bundle, xorcast_bundle *new_bundle,
                                const xorcast_delta_options *options, const xci_identity *identity,
                                const uint8_t *attachment, uint64_t attachment_bytes,
                                const xorcast_sink *sink, xorcast_delta_info *info_out);

#endif
