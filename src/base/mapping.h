/* A file mapped for reading and writing, shared with whoever maps it next: what is stored in it
 * survives this process. */
#ifndef XCI_MAPPING_H
#define XCI_MAPPING_H

#include "base/context.h"

typedef struct xci_mapping {
    uint8_t *bytes;
    uint64_t size;
    int fd;
} xci_mapping;

/* Opens or creates (empty). `size` is what the file has; nothing is mapped when that is 0. The
 * file is locked against other processes until closed: BAD_STATE when another one has it. */
xorcast_status xci_mapping_open(xorcast_context *context, const char *path, xci_mapping *mapping);
/* Makes the file at least `size` bytes, on disk too, so that a store never meets a full disk,
 * and maps it anew. */
xorcast_status xci_mapping_grow(xorcast_context *context, const char *path, xci_mapping *mapping,
                                uint64_t size);
void xci_mapping_close(xci_mapping *mapping);

#endif
