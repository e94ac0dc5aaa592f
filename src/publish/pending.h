/* The version that is being put together: which tensors have come, what their groups encoded to.
 * A group whose chunks have all been seen becomes a record at once; the rest waits in pieces.
 * Both are kept by the shadow, which moves along (ahead.h). Records become parts from the first
 * group on, as far as all are whole.
 *
 * Does not own weights: tensors are read during put and never again, except small ones, which
 * share chunks and are copied until their chunk is whole. */
#ifndef XCI_PENDING_H
#define XCI_PENDING_H

#include "publish/encode.h"
#include "publish/parts.h"
#include "publish/shadow.h"

typedef struct xci_device_encoders xci_device_encoders;

/* What one of the pool's workers found and did in the open version; no two on a cache line. */
typedef struct xci_put_sums {
    _Alignas(64) xorcast_counts counts;
    xorcast_digest change;     /* new terms minus old terms */
    uint64_t encoded_bytes[2]; /* of each form */
    uint64_t encode_ns, frame_ns, bound_ns;
} xci_put_sums;

typedef struct xci_pending {
    xorcast_bundle *bundle;   /* the publisher's, for tensors read from their own memory */
    xci_shadow *shadow;
    xorcast_bundle *incoming; /* a twin: where each tensor's new bytes are, during put */
    uint8_t *small;           /* copies of small tensors */
    xci_device_encoders *device; /* in place of `incoming` and `small`, of weights on a device */
    uint32_t *small_left;     /* for each packed chunk, tensors that have not come yet */
    uint8_t *seen;            /* for each tensor */
    uint64_t seen_count;
    uint64_t *chunks_left; /* of each group; the shadow's lock guards it */
    xci_encode_worker *workers;
    xci_buffers records;      /* that have no place in a part yet */
    xci_put_sums *sums;       /* of each worker */
    xci_parts parts[2];       /* of each form */
    bool open_records;        /* groups that are booked get places before their payload goes */
    struct xci_bound *bound;  /* or NULL */
    uint64_t put_ns;          /* of put, by the clock */
} xci_pending;

/* Of weights on a device: `stream` is where the caller works, and `one_process` says that
 * subscribers may take blocks where the device has them. */
xorcast_status xci_pending_open(xci_pending *pending, xorcast_bundle *bundle, xci_shadow *shadow,
                                const xorcast_encoding *encoding, bool measure_bound, void *stream,
                                bool one_process);
void xci_pending_close(xci_pending *pending);

/* The next version begins; the shadow is not ahead. */
xorcast_status xci_pending_begin(xci_pending *pending);
/* As xorcast_publisher_put; `keep`: the tensors are unchanged and not read. BAD_ARGUMENT leaves
 * the version as it was, other failures leave it unusable. */
xorcast_status xci_pending_put(xci_pending *pending, uint64_t count, const uint64_t *indices,
                               const void *const *data, bool keep);
/* Chunks [first, end) of one group that one put completes. */
typedef struct xci_put_range { uint64_t group, first, end; } xci_put_range;
/* What a range came to is booked: its record is kept, or nothing is. With the group locked. */
xorcast_status xci_pending_book(xci_pending *pending, const xci_put_range *range,
                                uint32_t worker_index, const xci_piece *piece, uint64_t encode_ns);
/* All of a range has been seen; a group that is whole is written. Likewise. */
xorcast_status xci_pending_seen(xci_pending *pending, const xci_put_range *range,
                                uint32_t worker_index);
/* What all workers found and did. */
void xci_pending_sums(const xci_pending *pending, xci_put_sums *sums_out);
/* Gives places in parts to the groups that are whole and follow those that have places. Between
 * loops of the pool. */
xorcast_status xci_pending_plan(xci_pending *pending);
/* Whether what is booked of whole groups from `group` on, without a gap, needs no copy before
 * xci_pending_plan gives it a place: sets `open_records`. */
void xci_pending_open_records(xci_pending *pending, uint64_t group, bool whole, bool encoded);
/* BAD_STATE that names a tensor which has not come, or OK. */
xorcast_status xci_pending_check(xci_pending *pending);

#endif
