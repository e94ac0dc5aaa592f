/* Chunks that do not lie in one piece at their home (bundle/shares.h), for a publisher: gathered
 * into a bounce buffer there. Bytes that other devices have are gathered by these, copied from
 * device to device, and joined by XOR: where a device has no bytes it gathers zeros.
 *
 * Owns the buffers, which are made when they are needed first and hold 16 MiB (less
 * where there are more than two devices), or a group. */
#ifndef XCI_DEVICE_JOIN_H
#define XCI_DEVICE_JOIN_H

#include "bundle/device_map.h"
#include "bundle/shares.h"

/* What another share lends: zeroed, if nothing. */
typedef struct xci_join_far {
    xci_device_memory room, pinned, table; /* gathered chunks, and their addresses */
    void *event;
} xci_join_far;

typedef struct xci_device_join {
    xorcast_bundle *bundle;
    xorcast_bundle *home; /* the share */
    uint32_t home_index;
    uint64_t most_chunks;              /* from a base on */
    xci_device_memory bounce, staging; /* of the home's device */
    xci_device_memory pinned, tables;  /* addresses in the bounce buffer, blocks in the staging */
    xci_join_far *far;                 /* for each share */
} xci_device_join;

/* Where a share has the bytes of its tensors: `packed` is its packed chunks, one behind the other
 * and zero where others have tensors, or NULL; the rest is read where it lies. They are there when
 * `stream` comes to what is put on it next. */
typedef struct xci_join_source {
    void *stream;
    const uint8_t *packed;
} xci_join_source;

xorcast_status xci_device_join_open(xci_device_join *join, xorcast_bundle *bundle, uint32_t home);
void xci_device_join_close(xci_device_join *join);

/* Makes sure of the buffers. */
xorcast_status xci_device_join_reserve(xci_device_join *join);
/* Where the bounce buffer has a chunk, one of the `most_chunks` that begin with chunk `base`. */
uint8_t *xci_device_join_place(const xci_device_join *join, uint64_t base, uint64_t chunk);
bool xci_device_join_has(const xci_device_join *join, const uint8_t *address);
/* Brings chunks [first, first + count) there, on the stream of the home's source. Chunks of one
 * base do not come twice before that stream has been waited for, and nothing works on another
 * base's. `sources`: one for each share. */
xorcast_status xci_device_join_run(xci_device_join *join, uint64_t base, uint64_t first,
                                   uint64_t count, const xci_join_source *sources);

#endif
