/* The change of a checkpoint that a delta describes: base and delta opened and matched, then
 * every chunk of the target made from the base's, in order of groups, in bounded memory. Does
 * not own where the target goes: a call takes its bytes, and a check has none. */
#ifndef XCI_CHECKPOINT_UPDATE_H
#define XCI_CHECKPOINT_UPDATE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "frame/delta_reader.h"

typedef struct xci_update_worker xci_update_worker;

typedef struct xci_update {
    xorcast_context *context;
    xci_delta_reader delta;
    xorcast_checkpoint *base;
    xci_buffer own_files;    /* for a delta without files: the base's own list */
    xci_files files;         /* of the target */
    bool has_files;          /* `files` is to be freed */
    bool is_target;          /* what was given for the base is what the delta leads to */
    xorcast_bundle *aligned; /* base as the target has it; NULL if the layouts are equal */
    xorcast_bundle *source;  /* the one of the two that chunks are read from */
    /* Takes bytes of a target tensor (index in files.target.entries); from any thread. NULL:
     * nothing is written. */
    xorcast_status (*write)(void *user, uint64_t tensor, uint64_t offset, const uint8_t *bytes,
                            uint64_t count);
    void *user;
    xci_update_worker *workers;
    uint64_t first_group;            /* of those worked on now */
    const xci_part_records *records; /* of these, the ones that change */
} xci_update;

/* Opens delta and base and proves that the base is the one, or the target already (`is_target`):
 * LAYOUT_MISMATCH, BASE_MISMATCH, DATA_CORRUPT. The update is zeroed but for `context`; close it
 * also after a failure. */
xorcast_status xci_update_open(xci_update *update, const char *path, const xorcast_source *source);
/* Then: matches the delta's list of files and its grid with the base; a target that is there
 * already is its own base, and nothing changes. LAYOUT_MISMATCH, BASE_MISMATCH, DATA_CORRUPT. */
xorcast_status xci_update_match(xci_update *update);
/* Makes the whole target and proves that it is the one the delta names. */
xorcast_status xci_update_run(xci_update *update);
/* After open: opens any other checkpoint with the delta's grid; says whether its weights are the
 * delta's target, by layout and a scan of all bytes. */
xorcast_status xci_update_checkpoint(const xci_update *update, const char *path,
                                     xorcast_checkpoint **checkpoint_out);
xorcast_status xci_update_is_target(const xci_update *update, xorcast_checkpoint *checkpoint,
                                    bool *is_out);
void xci_update_close(xci_update *update);

#endif
