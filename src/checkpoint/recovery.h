/* What keeps a checkpoint whole while it is replaced. New files are staged in a hidden
 * directory; a commit record decides; whoever comes next finishes or discards what an
 * interrupted process left.
 *
 *     checkpoint is a directory D       staged in D/.xorcast-new/, record D/.xorcast-commit
 *     checkpoint is a file P/name       staged in P/.name.xorcast-new/, no record but one rename
 *
 *     claim  exclusive lock of the staging directory, held by the one process that stages
 *     gate   lock of D: shared while files are opened, exclusive while they are switched
 *
 * A reader therefore opens all old files or all new ones, and never waits for staging. */
#ifndef XCI_RECOVERY_H
#define XCI_RECOVERY_H

#include "checkpoint/commit_record.h"

/* Where the new files of the checkpoint at `path` are staged. */
xorcast_status xci_stage_path(xorcast_context *context, xci_arena *arena, const char *path,
                              bool directory, const char **stage_out);
/* Takes the claim if it is free by the deadline: makes the staging directory if need be and
 * empties it of what an interrupted process left. `*claim_out` is -1 if another process holds
 * it, or if a record is pending; with `only_proven` also where there are no locks to tell. */
xorcast_status xci_stage_claim(xorcast_context *context, const char *path, bool directory,
                               const char *stage, bool only_proven, uint64_t deadline_ns,
                               int *claim_out);
/* Is there anything in `folder` beside the stage of a replacement of it? */
xorcast_status xci_stage_beside(xorcast_context *context, const char *folder, bool *some_out);
/* Empties and removes the directory and gives the claim back. */
xorcast_status xci_stage_drop(xorcast_context *context, const char *stage, int claim);

/* Writes the record through the stage. From OK on the replacement will be finished by somebody. */
xorcast_status xci_record_commit(xorcast_context *context, const char *folder, const char *stage,
                                 const xci_commit_record *record);
/* Carries the record in `folder` out, if there is one, and removes it. The gate must be held
 * exclusively. Fails with WEIGHTS_MIXED, and may be called again. */
xorcast_status xci_record_finish(xorcast_context *context, const char *folder);

typedef struct xci_gate {
    int fd; /* -1: nothing to hold */
} xci_gate;
/* Waits for a switch to end, finishes one that was interrupted, discards abandoned files, and
 * keeps others from switching until leave. Also for files and paths where nothing is. TIMED_OUT. */
xorcast_status xci_gate_enter(xorcast_context *context, const char *path, xci_gate *gate_out);
xorcast_status xci_gate_enter_alone(xorcast_context *context, const char *folder,
                                    xci_gate *gate_out);
void xci_gate_leave(xci_gate *gate);

/* Finishes or discards what an interrupted replacement of `path` left, and logs a warning that says
 * which. Every call that opens a checkpoint does it. */
xorcast_status xci_checkpoint_recover(xorcast_context *context, const char *path);

#endif
