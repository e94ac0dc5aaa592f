/* What the gap codec and `auto` need of blocks that a device has encoded: lists of changed words,
 * and the chunks before the change. One for each worker. */
#ifndef XCI_DEVICE_LISTS_H
#define XCI_DEVICE_LISTS_H

#include "bundle/bundle.h"
#include "frame/record.h"
#include "publish/device_shadow.h"

typedef struct xci_device_lists {
    uint8_t *mask, *payload, *old_bytes;
    xci_block *blocks;
    const uint8_t **old;
    uint64_t mask_capacity, payload_capacity, old_bytes_capacity, blocks_capacity, old_capacity;
} xci_device_lists;

void xci_device_lists_close(xorcast_context *context, xci_device_lists *lists);

/* The record's blocks, LZ4 or raw, as lists of words or raw; valid until the next call. */
xorcast_status xci_device_lists_make(xci_device_lists *lists, xorcast_context *context,
                                     const xci_record *record, xci_record *listed_out);

/* Chunks at home in a share, by their local numbers. */
typedef struct xci_local_span {
    uint64_t first, count;
} xci_local_span;

/* The bytes before the change of each chunk that is listed, of a group of `bundle`. Those that
 * `unmoved` has of their share are in the shadow as they were; others have become new, and nothing
 * works on them. */
xorcast_status xci_device_lists_old(xci_device_lists *lists, xorcast_context *context,
                                    const xorcast_bundle *bundle, xci_device_shadow *shadow,
                                    const xci_record *listed, const xci_local_span *unmoved,
                                    const uint8_t *const **old_out);

#endif
