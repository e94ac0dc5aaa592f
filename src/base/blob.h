/* Bytes with a reference count: what links move and logs keep. Immutable once shared.
 *
 * A shelf makes blobs whose memory comes back to it: taken from the system anew for each version,
 * memory costs more than filling it. */
#ifndef XCI_BLOB_H
#define XCI_BLOB_H

#include "base/context.h"

typedef struct xci_shelf xci_shelf;

/* What those in the same process may have beside a blob's bytes; backend/device_side.h is the one
 * kind there is. */
typedef struct xci_blob_side {
    void (*drop)(struct xci_blob_side *side); /* a reference */
} xci_blob_side;

typedef struct xci_blob {
    uint8_t *bytes;
    uint64_t size;
    xci_blob_side *side;      /* or NULL; the blob has a reference */
    xorcast_context *context; /* its own, over the allocator it came from; NULL: the shelf's */
    xci_shelf *shelf;         /* or NULL: where the blob goes when it is dropped */
    struct xci_blob *next;    /* there */
    uint64_t capacity;
    atomic_uint references;
} xci_blob;

/* One reference, the caller's. Bytes are uninitialised. */
xorcast_status xci_blob_create(xorcast_context *context, uint64_t size, xci_blob **blob_out);
xorcast_status xci_blob_copy(xorcast_context *context, const void *bytes, uint64_t size,
                             xci_blob **blob_out);
/* Takes over `bytes`, which xci_allocate or xci_reserve made, if it succeeds. */
xorcast_status xci_blob_adopt(xorcast_context *context, void *bytes, uint64_t size,
                              xci_blob **blob_out);
xci_blob *xci_blob_hold(xci_blob *blob);
void xci_blob_drop(xci_blob *blob); /* NULL is allowed */

/* Any thread. */
xorcast_status xci_shelf_open(xorcast_context *context, xci_shelf **shelf_out);
/* Blobs that others hold live on. NULL is allowed. */
void xci_shelf_close(xci_shelf *shelf);
/* As xci_blob_create; large blobs in memory that lies on the shelf if some of it fits. `context`:
 * one of the allocator that the shelf has. */
xorcast_status xci_shelf_blob(xci_shelf *shelf, xorcast_context *context, uint64_t size,
                              xci_blob **blob_out);
/* A version is over: frees what lay idle through all of it. */
void xci_shelf_turn(xci_shelf *shelf);

#endif
