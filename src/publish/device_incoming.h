/* Where the new bytes of each chunk are, in memory of one device, during put: in the tensors that
 * are handed over, or, of small tensors, in copies, because they share chunks and are the caller's
 * again before their chunk is whole. The host knows the addresses, the device has them as a
 * table. One for each share of the bundle (bundle/shares.h).
 *
 * Owns the copies and the tables. One thread. */
#ifndef XCI_DEVICE_INCOMING_H
#define XCI_DEVICE_INCOMING_H

#include "bundle/device_map.h"
#include "bundle/shares.h"
#include "publish/device_shadow.h"

/* Moves that are to be made; NULL: none yet. */
typedef struct xci_move_list {
    xci_cuda_move *moves;
    uint64_t count, capacity;
} xci_move_list;

typedef struct xci_device_incoming {
    xorcast_context *context;
    xorcast_bundle *bundle, *share;
    uint32_t index; /* of the share */
    const xci_device_shadow *shadow;
    xci_device_memory small; /* copies: packed chunks, one behind the other; zero where nothing
                                 of the share is */
    xci_device_memory small_table; /* their addresses, for the device */
    uint32_t *offsets;        /* of each small tensor in its chunk */
    xci_device_memory pinned; /* the table on the host */
    xci_device_memory table;  /* and on the device */
    /* `pinned`, of chunks that are at home here, by their local numbers. NULL: scattered, gathered
     * before it is encoded */
    uint8_t **at;
    const void **from; /* of each large tensor, what `at` says of it; NULL: its own memory */
    bool scattered;    /* some of `at` may be NULL, or are joined */
    bool own;          /* `at` says where the bundle\'s own memory is, of all large tensors */
    uint8_t *const *device_at;
    xci_move_list moves; /* pieces of small tensors that this put brings, to `small` */
    /* Packed chunks of a shadow on another device, for kept tensors, and how they get here: in
     * pinned memory. None before they are wanted. */
    xci_device_memory kept, kept_move;
    bool fetches_kept;
    xci_device_memory device_moves;
} xci_device_incoming;

xorcast_status xci_device_incoming_open(xci_device_incoming *incoming, xorcast_bundle *bundle,
                                        uint32_t index, const xci_device_shadow *shadow);
void xci_device_incoming_close(xci_device_incoming *incoming);

/* A tensor of which the share has some or all comes: from `data`, or from the bundle's own memory
 * if that is NULL, or, `kept`, from the shadow. Of small ones that all come from the bundle's own
 * memory, gather needs no word. */
xorcast_status xci_device_incoming_take(xci_device_incoming *incoming, uint64_t tensor,
                                        const void *data, bool kept);
/* Every tensor comes, from the bundle's own memory. */
xorcast_status xci_device_incoming_take_all(xci_device_incoming *incoming);
/* Puts the copies of the small tensors that were taken on `stream`; `all`: of all there are, from
 * the bundle's own memory. */
xorcast_status xci_device_incoming_gather(xci_device_incoming *incoming, bool all, void *stream);
/* Where a packed chunk is copied; NULL: it is not packed. */
uint8_t *xci_device_incoming_small(const xci_device_incoming *incoming, uint64_t chunk);

#endif
