/* Blobs: see blob.h. */
#include "base/blob.h"

#include <string.h>

/* A blob has a context of its own over the allocator: objects that a link hands from one side to
 * the other inside a process often live longer than the side that made them. */
xorcast_status xci_blob_adopt(xorcast_context *context, void *bytes, uint64_t size,
                              xci_blob **blob_out) {
    xorcast_context *own;
    void *memory;
    TRY(xci_context_fork(context, &own));
    const xorcast_status status = xci_allocate(context, sizeof(xci_blob), &memory);
    if (status < 0) {
        xorcast_context_destroy(own);
        return status;
    }
    xci_blob *blob = memory;
    *blob = (xci_blob){.bytes = bytes, .size = size, .context = own};
    atomic_init(&blob->references, 1);
    *blob_out = blob;
    return XORCAST_OK;
}

xorcast_status xci_blob_create(xorcast_context *context, uint64_t size, xci_blob **blob_out) {
    void *bytes;
    /* An empty object too has an address, to which receivers may add. */
    TRY(xci_allocate(context, size > 0 ? xci_kept_size(size) : 1, &bytes));
    const xorcast_status status = xci_blob_adopt(context, bytes, size, blob_out);
    if (status < 0)
        xci_release(context, bytes);
    return status;
}

xorcast_status xci_blob_copy(xorcast_context *context, const void *bytes, uint64_t size,
                             xci_blob **blob_out) {
    xci_blob *blob;
    TRY(xci_blob_create(context, size, &blob));
    if (size > 0)
        memcpy(blob->bytes, bytes, size);
    *blob_out = blob;
    return XORCAST_OK;
}

xci_blob *xci_blob_hold(xci_blob *blob) {
    atomic_fetch_add(&blob->references, 1);
    return blob;
}

void xci_blob_drop(xci_blob *blob) {
    if (blob == NULL || atomic_fetch_sub(&blob->references, 1) != 1)
        return;
    xorcast_context *context = blob->context;
    if (blob->side != NULL)
        blob->side->drop(blob->side);
    xci_release(context, blob->bytes);
    xci_release(context, blob);
    xorcast_context_destroy(context);
}
