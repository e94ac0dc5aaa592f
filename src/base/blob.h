/* Bytes with a reference count: what links move and logs keep. Immutable once shared. */
#ifndef XCI_BLOB_H
#define XCI_BLOB_H

#include "base/context.h"

/* What those in the same process may have beside a blob's bytes; backend/device_side.h is the one
 * kind there is. */
typedef struct xci_blob_side {
    void (*drop)(struct xci_blob_side *side); /* a reference */
} xci_blob_side;

typedef struct xci_blob {
    uint8_t *bytes;
    uint64_t size;
    xci_blob_side *side;      /* or NULL; the blob has a reference */
    xorcast_context *context; /* its own, over the allocator it came from */
    atomic_uint references;
    atomic_uint keepers; /* of other contexts: xci_blob_keep */
    atomic_bool let_go;  /* by its owner */
} xci_blob;

/* One reference, the caller's. Bytes are uninitialised. */
xorcast_status xci_blob_create(xorcast_context *context, uint64_t size, xci_blob **blob_out);
xorcast_status xci_blob_copy(xorcast_context *context, const void *bytes, uint64_t size,
                             xci_blob **blob_out);
/* Takes over `bytes`, which xci_allocate or xci_grow made, if it succeeds. */
xorcast_status xci_blob_adopt(xorcast_context *context, void *bytes, uint64_t size,
                              xci_blob **blob_out);
xci_blob *xci_blob_hold(xci_blob *blob);
void xci_blob_drop(xci_blob *blob); /* NULL is allowed */

/* A reference of somebody who keeps the blob longer than its owner may want to: the bytes count
 * against the limit of `keeper` too, and once the owner has let go, against the owner's no more.
 * Ended by xci_blob_keep_end with the same context. */
xorcast_status xci_blob_keep(xci_blob *blob, xorcast_context *keeper);
void xci_blob_keep_end(xci_blob *blob, xorcast_context *keeper);
/* Drops the owner's reference. */
void xci_blob_let_go(xci_blob *blob);

#endif
