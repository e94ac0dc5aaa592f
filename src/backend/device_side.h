/* The blocks of a version where a publisher's devices have them, beside the parts that hold the
 * same blocks on the host: subscribers in the same process copy them from device to device. Parts
 * refer to it (base/blob.h); it is retired when the next version begins, and its memory goes to
 * that version or, if a subscriber still reads it, away once that one has left.
 *
 * Only says where groups are: which chunks they have, and their sizes, is said by the records. The
 * blocks of a group follow each other, each at a multiple of 16 bytes. */
#ifndef XCI_DEVICE_SIDE_H
#define XCI_DEVICE_SIDE_H

#include "backend/device_arena.h"
#include "base/blob.h"

/* What lies on one of the devices. */
typedef struct xci_side_share {
    xorcast_context *context; /* the side's own, which keeps the device open */
    xci_device_arena arena;
} xci_side_share;

typedef struct xci_device_side {
    xci_blob_side side;     /* first: what blobs see */
    uint64_t limit_bytes;   /* of what is taken, on all devices */
    const uint8_t **groups; /* where the blocks of each group are; NULL: only in the part */
    uint64_t taken_bytes;
    pthread_mutex_t lock; /* guards what follows */
    uint64_t references;  /* the publisher's, the parts', the readers' */
    uint64_t readers;
    bool retired;
    uint32_t share_count;
    xci_side_share shares[]; /* one for each device */
} xci_device_side;

/* A side for the next version, which takes the memory of `before` (retired here; or NULL).
 * `contexts`: of the devices, as many and the same for every version. */
xorcast_status xci_device_side_open(xorcast_context *const *contexts, uint32_t count,
                                    uint64_t group_count, uint64_t limit_bytes,
                                    xci_device_side *before, xci_device_side **side_out);
/* Retired; readers go on. NULL is allowed. */
void xci_device_side_close(xci_device_side *side);
/* The publisher's: room for blocks on a device, or NULL beyond the limit or without memory. */
uint8_t *xci_device_side_take(xci_device_side *side, uint32_t share, uint64_t bytes);

/* On which device an address lies, and where the allocation ends: no copy goes beyond. NULL: in
 * none. */
const uint8_t *xci_device_side_end(const xci_device_side *side, const uint8_t *address,
                                   const xci_device **device_out);

/* A reference for a blob. */
xci_blob_side *xci_device_side_refer(xci_device_side *side);
/* Begins to read; false: it is retired. */
bool xci_device_side_enter(xci_device_side *side);
void xci_device_side_leave(xci_device_side *side);

#endif
