/* From the written groups of a version to its parts, in order: as soon as all groups before are
 * whole their records get places, then they are copied there and the parts are hashed, side by side
 * and beside the encoding of what follows.
 *
 * Owns the parts until the version is dropped or the next one begins; their memory is used again
 * once nobody holds them. Planning is for one thread, the rest for the pool. */
#ifndef XCI_PARTS_H
#define XCI_PARTS_H

#include "backend/device_side.h"
#include "frame/delta_writer.h"
#include "publish/shadow.h"

typedef struct xci_planned_part {
    uint64_t payload_bytes;
    xci_part part;
    xci_blob *blob;
} xci_planned_part;

typedef struct xci_parts {
    xci_shadow *shadow;
    xci_form form;
    xci_device_side *side; /* what parts are given beside their bytes, or NULL; not owned */
    xci_planned_part *planned;
    uint64_t count, capacity_bytes;
    uint64_t hashed;       /* of these */
    xci_planned_part open; /* takes groups until it is large enough */
    uint64_t open_first;   /* the first group that it may have */
    uint64_t open_room;    /* of its blob */
    uint8_t **places;      /* where each group's record goes; NULL: it has none */
    uint64_t next_group;   /* the first that has no place yet */
    uint64_t copied;       /* groups before it are at their places */
} xci_parts;

xorcast_status xci_parts_open(xci_parts *parts, xci_shadow *shadow, xci_form form);
void xci_parts_close(xci_parts *parts);
/* The next version begins. */
void xci_parts_reset(xci_parts *parts);

/* Groups up to `end` are whole: they get places. All groups that had one before are copied. */
xorcast_status xci_parts_plan(xci_parts *parts, uint64_t end);
/* Copies all groups that have places. */
xorcast_status xci_parts_copy(xci_parts *parts);
/* Hashes part `hashed` + `index`, whose groups are copied; any thread. */
void xci_parts_hash(xci_parts *parts, uint64_t index);
/* All groups are planned: does what is left and hands every part to the writer in order. */
xorcast_status xci_parts_write(xci_parts *parts, xci_delta_writer *writer);

#endif
