/* Chunks that do not lie in one piece at their home (bundle/shares.h), for a publisher: gathered
 * into a bounce buffer there. Bytes that other devices have are gathered by these, copied from
 * device to device, and joined by XOR: where a device has no bytes it gathers zeros.
 *
 * Owns the buffers, which are made when they are needed first. Two lots of chunks take turns in
 * them, each of 32 MiB (less where there are more than two devices), or a group: one is brought
 * while the other one is encoded. */
#ifndef XCI_DEVICE_JOIN_H
#define XCI_DEVICE_JOIN_H

#include "bundle/device_map.h"
#include "bundle/shares.h"

#define XCI_JOIN_TURNS 2u

/* What another share lends: zeroed, if nothing. */
typedef struct xci_join_far {
    xci_device_memory room, table; /* gathered chunks, and their addresses */
    xci_device_memory pinned;      /* these; then moves to the home's staging, and from there on */
    void *event;
} xci_join_far;

/* Chunks from a base on, and whose turn they have. */
typedef struct xci_join_lot {
    uint32_t turn;
    uint64_t base;
} xci_join_lot;

typedef struct xci_device_join {
    xorcast_bundle *bundle;
    xorcast_bundle *home; /* the share */
    uint32_t home_index;
    uint64_t most_chunks;              /* of a lot */
    xci_device_memory bounce, staging; /* of the home's device; staging: of one lot */
    xci_device_memory pinned, table;   /* addresses in the bounce buffer */
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
/* Test hook: what is opened from now on has lots of so many bytes (but never less than a group);
 * 0: as ever. */
void xci_device_join_limit(uint64_t bytes);

/* Makes sure of the buffers. */
xorcast_status xci_device_join_reserve(xci_device_join *join);
/* Where the bounce buffer has a chunk, one of the `most_chunks` of a lot. */
uint8_t *xci_device_join_place(const xci_device_join *join, const xci_join_lot *lot,
                               uint64_t chunk);
/* Whether an address is there, in any turn, or in one. */
bool xci_device_join_has(const xci_device_join *join, const uint8_t *address);
bool xci_device_join_has_in(const xci_device_join *join, uint32_t turn, const uint8_t *address);
/* Brings chunks [first, first + count) of a lot there, on the stream of the home's source. A chunk
 * comes once in a lot, and all that was put on that stream for the lot of the same turn before it
 * is done. `sources`: one for each share. */
xorcast_status xci_device_join_run(xci_device_join *join, const xci_join_lot *lot, uint64_t first,
                                   uint64_t count, const xci_join_source *sources);

#endif
