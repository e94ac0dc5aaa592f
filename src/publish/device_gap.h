/* Whole groups in the gap codec by the device itself: what a piece needs beside its blocks in LZ4,
 * which the shadow still moves by. One for each slot of the encoder. */
#ifndef XCI_DEVICE_GAP_H
#define XCI_DEVICE_GAP_H

#include "backend/device.h"

typedef struct xci_device_gap {
    xci_device_memory output, tables, pinned;
    uint64_t most_chunks, most_groups, capacity;
    bool here;     /* the piece at hand is encoded so */
    uint64_t used; /* bytes of its payloads, once it is received */
} xci_device_gap;

/* What the device says of a piece; on the host after it was received. */
typedef struct xci_device_gap_tables {
    xci_cuda_result *results;   /* of each chunk */
    xci_cuda_gap_group *groups; /* of each group */
    uint64_t *used, *group_first;
} xci_device_gap_tables;

xorcast_status xci_device_gap_open(xci_device_gap *gap, xorcast_context *context,
                                   uint64_t most_chunks, uint64_t most_groups, uint64_t capacity);
void xci_device_gap_close(xci_device_gap *gap, xorcast_context *context);
xci_device_gap_tables xci_device_gap_host(const xci_device_gap *gap);

/* Encodes the chunks of `call`, which are those of `group_count` groups from `group_first` on,
 * after what is on `stream`. The call's chunks, addresses and scratch are the piece's. `plain`:
 * NULL, or the piece was started there just before; then it is encoded beside the old weights. */
xorcast_status xci_device_gap_start(xci_device_gap *gap, xorcast_context *context,
                                    const xci_device_gap *plain, const xci_cuda_encode_call *call,
                                    const uint64_t *group_first, uint64_t group_count,
                                    void *stream);
/* Copies the tables to the host. */
xorcast_status xci_device_gap_fetch(const xci_device_gap *gap, xorcast_context *context,
                                    void *stream);

#endif
