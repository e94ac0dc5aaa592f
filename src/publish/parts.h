/* From the written groups of a version to its parts, in order: as soon as all groups before are
 * whole their records get places, then they are copied there and the parts are hashed, side by side
 * and beside the encoding of what follows.
 *
 * There are two ways through a loop of the pool. Its workers call xci_parts_follow after each
 * group: what is whole gets its place, and each call copies a few groups that have one, so that
 * records are copied while they are in the cache and few buffers do for them all. Or, between
 * loops, xci_parts_plan gives places to all groups that are whole so far.
 *
 * Owns the parts until the version is dropped or the next one begins; their memory is used again
 * once nobody holds them. */
#ifndef XCI_PARTS_H
#define XCI_PARTS_H

#include "backend/device_side.h"
#include "frame/delta_writer.h"
#include "publish/shadow.h"

/* Of a part in memory: of the record that closes it too. */
#define XCI_PART_ROOM (XCI_PART_BYTES + (UINT64_C(256) << 10))

typedef struct xci_planned_part {
    uint64_t payload_bytes;
    uint64_t end;     /* the first group behind it */
    uint64_t to_copy; /* of its groups; of an open part, 0 less those that are copied */
    bool hashed;
    xci_part part;
    xci_blob *blob;
} xci_planned_part;

typedef struct xci_parts {
    xci_shadow *shadow;
    xci_form form;
    xci_buffers *buffers;  /* that records wait in; not owned */
    xci_device_side *side; /* what parts are given beside their bytes, or NULL; not owned */
    xci_planned_part *planned;
    uint64_t count, capacity_bytes;
    uint64_t hashed;       /* of these */
    xci_planned_part open; /* takes groups until it is large enough */
    uint64_t open_room;    /* of its blob */
    uint8_t **places;      /* where each group's record goes; NULL: it has none */
    uint64_t next_group;   /* the first that has no place yet */
    uint64_t copied;       /* groups before it are at their places, or a worker copies them */
    uint64_t copying;      /* the part that worker's group is of */
    uint64_t likely_bytes; /* of the first part, by the version before */
    /* of a loop whose workers follow */
    pthread_mutex_t lock;
    uint8_t *whole; /* for each group, whether it is */
    uint64_t runs;  /* that are being copied */
} xci_parts;

xorcast_status xci_parts_open(xci_parts *parts, xci_shadow *shadow, xci_form form,
                              xci_buffers *buffers);
void xci_parts_close(xci_parts *parts);
/* The next version begins. */
void xci_parts_reset(xci_parts *parts);

/* A group is whole, and written: any worker, in any order. Copies some that have places. A loop's
 * workers do this for all of its groups, or none. */
xorcast_status xci_parts_follow(xci_parts *parts, uint64_t group);
/* Copies those that have places until there are none: for workers that have nothing else to do. */
void xci_parts_catch_up(xci_parts *parts);

/* Groups up to `end` are whole: they get places. Between loops. */
xorcast_status xci_parts_plan(xci_parts *parts, uint64_t end);
/* Copies all groups that have places. Between loops. */
xorcast_status xci_parts_copy(xci_parts *parts);
/* Hashes part `hashed` + `index`, whose groups are copied; any thread. */
void xci_parts_hash(xci_parts *parts, uint64_t index);
/* All groups are planned: does what is left and hands every part to the writer in order. */
xorcast_status xci_parts_write(xci_parts *parts, xci_delta_writer *writer);

#endif
