/* Whole groups that the device itself writes, in the gap codec or `auto`, plain or beside the old
 * weights, and the shadow by what they list: tables of a piece in one of these forms. One or two
 * for each slot of the encoder. */
#ifndef XCI_DEVICE_GAP_H
#define XCI_DEVICE_GAP_H

#include "backend/device.h"
#include "frame/record.h"

/* Of a piece at most; where its payloads go on the device, which is not owned. */
typedef struct xci_gap_room {
    uint64_t chunks, groups, capacity;
    uint8_t *output;
} xci_gap_room;

typedef struct xci_device_gap {
    xci_gap_room room;
    xci_device_memory tables, pinned;
} xci_device_gap;

/* What the device says of a piece; on the host after it was received. */
typedef struct xci_device_gap_tables {
    xci_cuda_result *results;   /* of each chunk */
    xci_cuda_gap_group *groups; /* of each group */
    xci_cuda_gap_used *used;
    uint64_t *group_first;
} xci_device_gap_tables;

/* What is encoded: the chunks of `call`, which are those of whole groups. */
typedef struct xci_gap_piece {
    const xci_cuda_encode_call *call; /* chunks, addresses and scratch */
    const xorcast_encoding *encoding;
    const uint64_t *group_first; /* group_count + 1 */
    uint64_t group_count;
} xci_gap_piece;

xorcast_status xci_device_gap_open(xci_device_gap *gap, xorcast_context *context,
                                   const xci_gap_room *room);
void xci_device_gap_close(xci_device_gap *gap, xorcast_context *context);
xci_device_gap_tables xci_device_gap_host(const xci_device_gap *gap);

/* Encodes a piece after what is on `stream`. `plain`: NULL, or the piece was started there just
 * before; then it is encoded beside the old weights. */
xorcast_status xci_device_gap_start(xci_device_gap *gap, xorcast_context *context,
                                    const xci_device_gap *plain, const xci_gap_piece *piece,
                                    void *stream);
/* Then moves the shadow, in the groups that fitted, in both forms if there are two. */
xorcast_status xci_device_gap_move(const xci_device_gap *gap, xorcast_context *context,
                                   const xci_device_gap *beside, const xci_gap_piece *piece,
                                   void *stream);
/* Copies the tables to the host; and at once, with payloads. */
xorcast_status xci_device_gap_fetch(const xci_device_gap *gap, xorcast_context *context,
                                    void *stream);
xorcast_status xci_device_gap_fetch_now(const xci_device_gap *gap, xorcast_context *context,
                                        uint8_t *payload);

/* Of a piece that was received: whether a group of it was written, where the payloads of its first
 * `count` groups end, and the record of a group, of which block_count and the blocks' chunks are
 * known; `first` is the group's first chunk, counted from the piece's, `payload` where payloads
 * are on the host. */
bool xci_device_gap_holds(const xci_device_gap *gap, uint64_t group);
uint64_t xci_device_gap_end(const xci_device_gap *gap, uint64_t count);
void xci_device_gap_take(const xci_device_gap *gap, uint64_t group, uint64_t first,
                         const uint8_t *payload, xci_record *record);

#endif
