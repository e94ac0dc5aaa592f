/* A slot of a device's encoder: one piece of a put, from its launch until it is booked. Device and
 * host each have tables of its chunks; results and sizes stand first and go to the host together.
 * What is to be settled is listed on the host only.
 *
 * Owns memory and events. */
#ifndef XCI_DEVICE_SLOT_H
#define XCI_DEVICE_SLOT_H

#include "publish/device_gap.h"

/* Ranges of the put, by their numbers. */
typedef struct xci_range_span {
    uint64_t first, end;
} xci_range_span;

typedef struct xci_encode_slot {
    uint64_t most_chunks;             /* that the tables have room for */
    xci_device_memory output;         /* blocks */
    xci_device_memory tables, pinned; /* results, sizes, moves, blocks */
    xci_device_memory payload;        /* blocks on the host */
    void *encoded, *drained, *kept;   /* events */
    xci_range_span ranges;      /* to book; fewer than were encoded if not all blocks fitted */
    uint64_t first, count;      /* chunks that were encoded, by their local numbers */
    uint64_t used;              /* bytes of the blocks to book */
    uint64_t settled;           /* blocks that were listed to be applied */
    bool moved;                 /* the shadow by them, and not all of it is booked */
    bool has_gap;               /* the device writes its groups itself: gap, not tables */
    uint32_t lane;              /* the stream it is encoded on */
    xci_device_gap gap, beside; /* beside: the old weights, if that form is wanted too */
    xci_device_memory beside_output, beside_payload; /* payload on the host */
} xci_encode_slot;

/* What the slots of an encoder have room for. */
typedef struct xci_slot_room {
    uint64_t most_chunks, capacity; /* chunks of a piece, and bytes of its blocks */
    uint64_t gap_groups;            /* of a piece that the device writes itself; 0: there is none */
    uint64_t beside_capacity;       /* bytes of these beside the old weights, or 0 */
} xci_slot_room;

xorcast_status xci_slot_open(xci_encode_slot *slot, xorcast_context *context,
                             const xci_slot_room *room);
/* Zeroed, or opened in part, is allowed. */
void xci_slot_close(xci_encode_slot *slot, xorcast_context *context);

typedef struct xci_slot_tables {
    xci_cuda_result *results;
    uint64_t *used;
    xci_cuda_move *moves; /* of blocks, to where they stay */
    xci_cuda_move *settling;
    xci_cuda_block *blocks;
} xci_slot_tables;

xci_slot_tables xci_slot_host(const xci_encode_slot *slot);
/* Of each chunk, on the host, whoever writes the groups; and whether a chunk has a block. */
const xci_cuda_result *xci_slot_results(const xci_encode_slot *slot);
static inline bool xci_slot_has_block(const xci_encode_slot *slot, const xci_cuda_result *result) {
    return slot->has_gap ? result->bytes_changed > 0 : result->block_bytes > 0;
}
/* Without `settling` and `blocks`. */
xci_slot_tables xci_slot_device(const xci_encode_slot *slot);
/* What goes to the host of the tables, from their beginning. */
uint64_t xci_slot_results_bytes(const xci_encode_slot *slot);

#endif
