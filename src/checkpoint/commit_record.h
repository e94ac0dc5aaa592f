/* The record that makes the replacement of a directory's files atomic: which staged files go to
 * which place and which files go away. It appears by a rename, after every staged file is on
 * disk: from then on the replacement will happen, and whoever finds the record finishes it.
 *
 *     "XORCOMMT" | varint count, names to rename | varint count, names to remove | XXH3-128
 *
 * Each name is a varint length and bytes. Owns the format alone; recovery.h acts on it. */
#ifndef XCI_COMMIT_RECORD_H
#define XCI_COMMIT_RECORD_H

#include "base/arena.h"
#include "checkpoint/buffer.h"

#define XCI_COMMIT_RECORD_MAX (UINT64_C(16) << 20)

typedef struct xci_commit_record {
    const char **renames, **removals;
    uint64_t rename_count, removal_count;
} xci_commit_record;

xorcast_status xci_commit_record_put(xci_buffer *buffer, const xci_commit_record *record);
/* Foreign bytes: names are checked as file names of a checkpoint. DATA_CORRUPT with `path`. */
xorcast_status xci_commit_record_parse(xci_arena *arena, xorcast_context *context, const char *path,
                                       const uint8_t *bytes, uint64_t count,
                                       xci_commit_record *record_out);

#endif
