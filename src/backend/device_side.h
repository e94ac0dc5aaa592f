/* The blocks of a version where a publisher's device has them, beside the parts that hold the same
 * blocks on the host: subscribers in the same process copy them from device to device. Parts refer
 * to it (base/blob.h); it is retired when the next version begins, and its memory goes to that
 * version or, if a subscriber still reads it, away once that one has left.
 *
 * Only says where groups are: which chunks they have, and their sizes, is said by the records. The
 * blocks of a group follow each other, each at a multiple of 16 bytes. */
#ifndef XCI_DEVICE_SIDE_H
#define XCI_DEVICE_SIDE_H

#include "backend/device_arena.h"
#include "base/blob.h"

typedef struct xci_device_side {
    xci_blob_side side;       /* first: what blobs see */
    xorcast_context *context; /* its own, which keeps the device open */
    uint64_t limit_bytes;     /* of what is taken */
    const uint8_t **groups;   /* where the blocks of each group are; NULL: only in the part */
    xci_device_arena arena;
    uint64_t taken_bytes;
    pthread_mutex_t lock; /* guards what follows */
    uint64_t references;  /* the publisher's, the parts', the readers' */
    uint64_t readers;
    bool retired;
} xci_device_side;

/* A side for the next version, which takes the memory of `before` (retired here; or NULL). */
xorcast_status xci_device_side_open(xorcast_context *context, uint64_t group_count,
                                    uint64_t limit_bytes, xci_device_side *before,
                                    xci_device_side **side_out);
/* Retired; readers go on. NULL is allowed. */
void xci_device_side_close(xci_device_side *side);
/* The publisher's: room for blocks, or NULL beyond the limit or without memory. */
uint8_t *xci_device_side_take(xci_device_side *side, uint64_t bytes);

/* Where the allocation ends that an address lies in: no copy goes beyond. NULL: in none. */
const uint8_t *xci_device_side_end(const xci_device_side *side, const uint8_t *address);

/* A reference for a blob. */
xci_blob_side *xci_device_side_refer(xci_device_side *side);
/* Begins to read; false: it is retired. */
bool xci_device_side_enter(xci_device_side *side);
void xci_device_side_leave(xci_device_side *side);

#endif
