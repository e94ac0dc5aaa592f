/* Names and paths of a checkpoint's files. A name is one component: deltas and records carry
 * names only, so that none of them can reach outside the checkpoint's directory. */
#ifndef XCI_PATHS_H
#define XCI_PATHS_H

#include "base/arena.h"

#define XCI_FILE_NAME_MAX 255u

typedef enum xci_name_kind {
    XCI_NAME_OTHER, /* not a file of a checkpoint: hidden, temporary, or no name at all */
    XCI_NAME_SHARD, /* ends in .safetensors */
    XCI_NAME_SIDE   /* any other: configuration, tokenizer, index */
} xci_name_kind;

xci_name_kind xci_name_kind_of(const char *name);

/* A kept name from foreign bytes: XCI_NAME_OTHER, and no name, if it is none that a checkpoint
 * may have. */
xorcast_status xci_name_keep(xci_arena *arena, const uint8_t *bytes, uint64_t count,
                             xci_name_kind *kind_out, const char **name_out);

xorcast_status xci_path_join(xci_arena *arena, const char *folder, const char *name,
                             const char **path_out);
/* Without slashes at the end. */
xorcast_status xci_path_trim(xci_arena *arena, const char *path, const char **path_out);
/* Folder ("." if there is none) and last component. */
xorcast_status xci_path_split(xci_arena *arena, const char *path, const char **folder_out,
                              const char **name_out);

#endif
