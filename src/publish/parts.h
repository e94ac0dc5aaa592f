/* From the written groups of a version to its parts, in order: planned as soon as all groups before
 * are whole, then filled and hashed side by side, beside the encoding of what follows.
 *
 * Owns the parts until the version is dropped or the next one begins; their memory is used again
 * once nobody holds them. Planning is for one thread, filling for the pool. */
#ifndef XCI_PARTS_H
#define XCI_PARTS_H

#include "backend/device_side.h"
#include "frame/delta_writer.h"
#include "publish/shadow.h"

/* Groups [first, end) of the layout, those among them that changed. */
typedef struct xci_planned_part {
    uint64_t first, end, payload_bytes;
    xci_part part;
    xci_blob *blob; /* NULL: not filled yet */
} xci_planned_part;

typedef struct xci_parts {
    xci_shadow *shadow;
    xci_form form;
    xci_shelf *shelf;
    xci_device_side *side; /* what parts are given beside their bytes, or NULL; not owned */
    xci_planned_part *planned;
    uint64_t count, capacity_bytes;
    uint64_t filled;       /* of these */
    xci_planned_part open; /* takes groups until it is large enough */
    uint64_t next_group;   /* the first that is not in a part yet */
} xci_parts;

xorcast_status xci_parts_open(xci_parts *parts, xci_shadow *shadow, xci_form form);
void xci_parts_close(xci_parts *parts);
/* The next version begins. */
void xci_parts_reset(xci_parts *parts);

/* Groups up to `end` are whole. */
xorcast_status xci_parts_plan(xci_parts *parts, uint64_t end);
/* Fills the planned part `filled` + `index`; any thread. */
xorcast_status xci_parts_fill(xci_parts *parts, uint64_t index);
/* All groups are planned: fills what is left and hands every part to the writer in order. */
xorcast_status xci_parts_write(xci_parts *parts, xci_delta_writer *writer);

#endif
