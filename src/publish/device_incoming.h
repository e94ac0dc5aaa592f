/* Where the new bytes of each chunk are, in device memory, during put: in the tensors that are
 * handed over, or, of small tensors, in copies, because they share chunks and are the caller's
 * again before their chunk is whole. The host knows the addresses, the device has them as a
 * table.
 *
 * Owns the copies and the tables. One thread. */
#ifndef XCI_DEVICE_INCOMING_H
#define XCI_DEVICE_INCOMING_H

#include "bundle/device_map.h"

typedef struct xci_device_incoming {
    xorcast_context *context;
    xorcast_bundle *bundle;
    xci_device_memory small;  /* copies: packed chunks, one behind the other */
    uint32_t *offsets;        /* of each small tensor in its chunk */
    xci_device_memory pinned; /* the table on the host */
    xci_device_memory table;  /* and on the device */
    uint8_t **at;             /* `pinned`; NULL: scattered, gathered before it is encoded */
    const void **from;        /* of each large tensor, what `at` says of it */
    bool scattered;           /* some of `at` may be NULL */
    bool own;                 /* `at` says where the bundle's own memory is, of all large tensors */
    uint8_t *const *device_at;
    xci_cuda_move *moves;      /* pieces of small tensors that this put brings, to `small` */
    uint64_t move_count, moves_capacity;
    xci_device_memory device_moves;
} xci_device_incoming;

xorcast_status xci_device_incoming_open(xci_device_incoming *incoming, xorcast_bundle *bundle);
void xci_device_incoming_close(xci_device_incoming *incoming);

/* BAD_ARGUMENT unless every address is memory of the device. */
xorcast_status xci_device_incoming_check(xci_device_incoming *incoming, uint64_t count,
                                         const uint64_t *indices, const void *const *data);
/* A tensor comes: from `data`, or from the bundle's own memory if that is NULL. Of small ones that
 * all come from there, gather needs no word. */
xorcast_status xci_device_incoming_take(xci_device_incoming *incoming, uint64_t tensor,
                                        const void *data);
/* Every tensor comes, from the bundle's own memory. */
xorcast_status xci_device_incoming_take_all(xci_device_incoming *incoming);
/* Puts the copies of the small tensors that were taken on `stream`; `all`: of all there are, from
 * the bundle's own memory. */
xorcast_status xci_device_incoming_gather(xci_device_incoming *incoming, bool all, void *stream);

#endif
