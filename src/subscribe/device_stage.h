/* Staging for weights in device memory: blocks go there as they are, the device checks them against
 * the old words, and the host only books the results. Each share of the bundle (bundle/shares.h)
 * takes the blocks of what it holds. stage.h says what stage does; this is its other half. */
#ifndef XCI_DEVICE_STAGE_H
#define XCI_DEVICE_STAGE_H

#include "bundle/shares.h"
#include "delta/device_load.h"
#include "subscribe/stage.h"

/* What one of the pool's workers found in the delta that is staged, on a device; no two on a cache
 * line. */
typedef struct xci_stage_sums {
    _Alignas(64) xorcast_counts counts;
    xorcast_digest change;
    uint64_t ready_bytes;
} xci_stage_sums;

/* What is staged for one share. */
typedef struct xci_stage_share {
    struct xci_device_stage *of;
    xorcast_bundle *bundle; /* the share */
    uint32_t index;
    uint64_t held_bytes; /* of the bundle's, in all boxes */
    xci_device_loader loader;
    xci_ready *ready; /* blocks that passed, in the order in which they did */
    uint64_t ready_count, ready_capacity;
    xci_record *records; /* of those that are staged now, the share's; only of several shares */
    uint64_t record_count, records_capacity;
} xci_stage_share;

typedef struct xci_device_stage {
    xci_stage *stage;
    xci_stage_share *shares;
    uint32_t share_count;
    xci_stage_sums *sums;
    /* Of several shares: bits of those that hold anything of each group. */
    uint64_t *group_shares;
} xci_device_stage;

xorcast_status xci_device_stage_open(xci_stage *stage);
void xci_device_stage_close(xci_stage *stage);
/* Drops what is staged. */
void xci_device_stage_reset(xci_stage *stage);
/* After what is queued on the default streams of the devices. */
xorcast_status xci_device_stage_begin(xci_stage *stage);
/* The records of the stage's present parts, and where another device has their blocks, or NULL.
 * Work goes on behind the call. */
xorcast_status xci_device_stage_records(xci_stage *stage, xci_device_side *side);
/* Whether a record's blocks came from there. */
bool xci_device_stage_elsewhere(const xci_stage *stage, const xci_record *record);
/* Until everything so far is checked. */
xorcast_status xci_device_stage_wait(xci_stage *stage);
/* All parts are in: until everything is checked and listed. */
xorcast_status xci_device_stage_finish(xci_stage *stage);
/* Who decoded what is staged, and why; of several shares, in all, and why in the first. */
void xci_device_stage_decoding(const xci_stage *stage, xorcast_decoding *decoding_out);

#endif
