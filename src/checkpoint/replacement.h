/* Writing a checkpoint atomically: new files are staged, then all of them appear at once.
 *
 *     begin -> { create, write } -> remove ... -> finish, or abort
 *
 * Owns the staged files. Does not know what is in them. How a crash at any
 * point ends is recovery.h's. */
#ifndef XCI_REPLACEMENT_H
#define XCI_REPLACEMENT_H

#include "base/open_files.h"

typedef struct xci_replacement xci_replacement;

/* Recovers `path` and claims it. A directory is made if it does not exist. TIMED_OUT if another
 * process is replacing it; BAD_ARGUMENT if a file stands where a directory should, or the
 * reverse. */
xorcast_status xci_replacement_begin(xorcast_context *context, const char *path, bool directory,
                                     xci_replacement **replacement_out);

/* IO_FAILED if the file system has no room for so many bytes more. */
xorcast_status xci_replacement_check_space(xci_replacement *replacement, uint64_t bytes);

/* Stages a file of this size, with the permissions of the file that it will replace; if there is
 * none, with `mode`; if that is 0, with the process's default ones. `name` is a file of the
 * directory; of a checkpoint that is one file, it is not looked at. The file stays the
 * replacement's. */
xorcast_status xci_replacement_create(xci_replacement *replacement, const char *name, uint32_t mode,
                                      uint64_t bytes, xci_file **file_out);
/* Finish will remove this file. Directories only. */
xorcast_status xci_replacement_remove(xci_replacement *replacement, const char *name);

/* Makes everything staged durable, then visible, at once. Frees the replacement, whatever
 * happens. On WEIGHTS_MIXED the directory is half way and the next xorcast call on it finishes;
 * on other failures it is unchanged. */
xorcast_status xci_replacement_finish(xci_replacement *replacement);
/* Discards what was staged and frees. NULL is allowed. Keeps the record of the failure that led
 * here. */
void xci_replacement_abort(xci_replacement *replacement);

#endif
