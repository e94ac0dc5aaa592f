/* Brings the blocks of records into device memory, ready for its kernels, and has them checked or
 * applied there:
 *
 *     record -> second pass undone, blocks aligned, in pinned memory   (pool, a group at a time)
 *            -> device memory -> check -> results -> take              (a stream of its own)
 *
 * Two slots take turns, so that the host decodes one batch while the device works on the other.
 * A block that the check does not take may be of another codec: the host makes it device-ready, and
 * the device checks it again. Used by stage (check, blocks are kept), by keyframes (check and
 * apply) and by a publisher's shadow (apply what was made here). One thread at a time. */
#ifndef XCI_DEVICE_LOAD_H
#define XCI_DEVICE_LOAD_H

#include "backend/device_arena.h"
#include "bundle/device_map.h"
#include "delta/device_engine.h"
#include "delta/group_reader.h"

#define XCI_LOAD_RECORDS 256u /* records that the pool loads at a time */

typedef enum xci_load_mode {
    XCI_LOAD_KEEP,       /* check and prepare; blocks stay in the arena */
    XCI_LOAD_APPLY,      /* check, then apply */
    XCI_LOAD_APPLY_OWN   /* apply: blocks were made here and are not checked */
} xci_load_mode;

/* Blocks that passed, as the device has them, and what check said of each. Not called in mode
 * APPLY_OWN. */
typedef xorcast_status (*xci_load_take)(void *user, const xci_cuda_block *blocks,
                                        const xci_cuda_result *results, uint64_t count);

/* What the pool does beside loading records: `check` each before it is read, and `also` once. */
typedef struct xci_load_beside {
    xorcast_status (*check)(void *user, const xci_record *record);
    xorcast_status (*also)(void *user);
    void *user;
} xci_load_beside;

typedef struct xci_load_item {
    const xci_record *record;
    uint64_t at;    /* of its blocks in the slot's payload */
    uint64_t first; /* of its blocks in the slot's table */
} xci_load_item;

typedef struct xci_load_slot {
    xci_device_memory pinned, device;
    uint64_t payload_room, block_room; /* what both were made for */
    uint64_t listed, payload_bytes;    /* of the batch so far: blocks, skipped ones too */
    uint64_t count;                    /* blocks that are on the device */
    uint8_t *payload_at;               /* there */
    xci_engine_batch engine;           /* mode KEEP */
    void *event;
    bool open, busy;                   /* being filled; being worked on */
    uint64_t item_count;               /* records that are loaded now */
    xci_load_item items[XCI_LOAD_RECORDS];
} xci_load_slot;

typedef struct xci_load_worker {
    xci_group_reader reader;
    uint8_t *scratch, *ready, *old; /* for making blocks ready, and the weights that some need */
} xci_load_worker;

typedef struct xci_device_loader {
    xorcast_context *context;
    xorcast_bundle *bundle;
    const xci_device_map *map;
    xci_load_mode mode;
    bool beside_old_weights; /* set by the owner: blocks may need the weights to be decoded */
    xci_load_take take;
    void *user;
    xci_load_worker *workers;
    xci_device_arena arena;   /* mode KEEP, as the next */
    xci_device_engine engine; /* or the kernels: who decodes */
    void *stream, *event;
    xci_load_slot slots[3]; /* the third is for blocks that are made device-ready here */
    xci_cuda_block *rejected; /* of the slot that is completed */
    uint64_t rejected_capacity;
    unsigned turn;
} xci_device_loader;

/* `bundle` gives the grid, `map` says where its bytes are. */
xorcast_status xci_device_loader_open(xci_device_loader *loader, xorcast_bundle *bundle,
                                      const xci_device_map *map, xci_load_mode mode,
                                      xci_load_take take, void *user);
void xci_device_loader_close(xci_device_loader *loader);

/* Adds records; their bytes are the caller's again afterwards. Work goes on behind the call, or
 * begins with the next one: batches do not end where calls do. `beside`: or NULL. */
xorcast_status xci_device_load(xci_device_loader *loader, const xci_record *records,
                               uint64_t count, const xci_load_beside *beside);
/* Until all of it is done. */
xorcast_status xci_device_load_end(xci_device_loader *loader);
/* After a failure, or to begin anew: waits, and drops what was loaded. */
void xci_device_load_drop(xci_device_loader *loader);

#endif
