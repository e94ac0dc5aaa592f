/* Brings the blocks of records into device memory, ready for its kernels, and has them checked or
 * applied there:
 *
 *     record -> second pass undone, blocks aligned, in pinned memory   (pool, a group at a time)
 *            -> device memory                                          (one stream)
 *            -> check -> results -> take                               (another; take on the pool)
 *
 * Slots take turns, so that the host decodes one batch while the device copies another and works on
 * a third. A block that the check does not take may be of another codec: the host makes it
 * device-ready, and the device checks it again. Used by stage (check, blocks are kept), by
 * keyframes (check and apply) and by a publisher's shadow (apply what was made here). One thread at
 * a time. */
#ifndef XCI_DEVICE_LOAD_H
#define XCI_DEVICE_LOAD_H

#include "backend/device_side.h"
#include "bundle/device_map.h"
#include "delta/device_engine.h"
#include "delta/group_reader.h"

#define XCI_LOAD_RECORDS 2048u /* records that the pool loads at a time, at most */
#define XCI_LOAD_SLOTS 4u
#define XCI_LOAD_RUN UINT64_C(1024) /* blocks whose results one worker books at a time */

typedef enum xci_load_mode {
    XCI_LOAD_KEEP,  /* check and prepare; blocks stay in the arena, listed one behind the other */
    XCI_LOAD_APPLY, /* check, then apply */
    XCI_LOAD_APPLY_OWN /* apply: blocks were made here and are not checked */
} xci_load_mode;

/* Who takes what passed; not asked in mode APPLY_OWN. `expect`: so many blocks come next. `take`:
 * some of them, from the `first` on since the delta began, as the device has them, and what check
 * said of each; on the pool, several at once. */
typedef struct xci_load_taker {
    xorcast_status (*expect)(void *user, uint64_t count);
    void (*take)(void *user, uint64_t first, const xci_cuda_block *blocks,
                 const xci_cuda_result *results, uint64_t count, uint32_t worker);
    void *user;
} xci_load_taker;

typedef struct xci_load_item {
    const xci_record *record;
    xci_cuda_move *move;    /* of its blocks from another device; NULL: they come from here */
    const xci_device *from; /* then that device */
    uint64_t at;            /* of its blocks among those that come the same way */
    uint64_t first;         /* of its blocks in the slot's table */
} xci_load_item;

/* Gap blocks of a batch (device_load_gap.h). */
typedef struct xci_load_gap {
    xci_device_memory pinned, device;
    uint64_t block_room;
    atomic_uint_fast64_t record_count;
    atomic_uint_fast32_t most_tables, most_params; /* of a record */
} xci_load_gap;

typedef struct xci_load_slot {
    xci_device_memory pinned, device;
    xci_device_memory own;             /* mode KEEP: a table that is no part of the list */
    uint64_t payload_room, block_room; /* what pinned and device were made for */
    uint64_t listed;                   /* of the batch so far: blocks, skipped ones too */
    uint64_t pinned_bytes;             /* of its payload: first what comes from pinned memory, */
    uint64_t copied_bytes;             /* then what comes from another device, */
    uint64_t move_count;               /* in so many pieces */
    uint64_t payload_most;             /* what there is memory for */
    uint64_t count;                    /* blocks that are on the device */
    uint8_t *payload_at; /* there; of a loose batch that is loaded, in pinned memory */
    xci_engine_batch engine;           /* mode KEEP */
    xci_cuda_block *table_at;          /* there */
    atomic_uint_fast64_t skipped;      /* of those listed */
    void *stream;                      /* where its work is put: its own, or the loader's */
    void *copied, *event;              /* payload and table are there; all is done */
    bool busy;                         /* being worked on */
    uint64_t item_count;               /* records that are loaded now */
    xci_load_item items[XCI_LOAD_RECORDS];
    bool loose; /* blocks of the batch take less than their rooms */
    xci_load_gap gap;
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
    xci_load_taker taker;
    xci_load_worker *workers;
    xci_device_arena arena;   /* mode KEEP */
    uint64_t expected_blocks; /* likewise, before the first record, and */
    uint64_t expected_bytes;  /* theirs, as they come; 0: nothing is expected any more */
    xci_device_engine engine; /* likewise: or the kernels, who decodes */
    /* Likewise: entries of all blocks that passed, in the order in which they were taken, for
     * whoever applies them. */
    xci_device_memory list;
    uint64_t listed;
    bool list_whole;       /* or else some had to go elsewhere */
    uint64_t taken;        /* blocks, since the delta began */
    xci_device_side *side; /* that is being read, or NULL */
    void *copies, *stream, *event;
    xci_load_slot slots[XCI_LOAD_SLOTS + 1]; /* the last: blocks that are made device-ready here */
    xci_cuda_block *rejected;                /* of the slot that is completed */
    uint64_t rejected_capacity;
    unsigned turn;
} xci_device_loader;

/* `bundle` gives the grid, `map` says where its bytes are. */
xorcast_status xci_device_loader_open(xci_device_loader *loader, xorcast_bundle *bundle,
                                      const xci_device_map *map, xci_load_mode mode,
                                      const xci_load_taker *taker);
void xci_device_loader_close(xci_device_loader *loader);

/* Mode KEEP: makes room for about so many blocks of so many bytes, and what follows comes after
 * what is on the default stream now. Before the first record of a delta. */
xorcast_status xci_device_load_begin(xci_device_loader *loader, uint64_t block_count,
                                     uint64_t bytes);
/* Adds records; their bytes are the caller's again afterwards. Work goes on behind the call.
 * `side`: NULL, or where another device has blocks of the records: they are copied from there, and
 * read until the end. */
xorcast_status xci_device_load(xci_device_loader *loader, const xci_record *records, uint64_t count,
                               xci_device_side *side);
/* Whether the blocks of a record that was added come from the other side, so that nobody has looked
 * at those that the record has beside it. */
bool xci_device_load_elsewhere(const xci_device_loader *loader, const xci_record *record);
/* Until all of it is done. */
xorcast_status xci_device_load_end(xci_device_loader *loader);
/* After a failure, or to begin anew: waits, and drops what was loaded. */
void xci_device_load_drop(xci_device_loader *loader);

#endif
