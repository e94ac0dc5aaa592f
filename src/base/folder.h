/* What io.h does not do: directories, facts about files, modes and locks. The same rules: every
 * call does the whole job or fails with the file's name and errno, and tests can make the n-th
 * one fail. */
#ifndef XCI_FOLDER_H
#define XCI_FOLDER_H

#include "base/arena.h"
#include "base/context.h"

typedef enum xci_file_kind {
    XCI_FILE_ABSENT,
    XCI_FILE_REGULAR,
    XCI_FILE_DIRECTORY,
    XCI_FILE_OTHER
} xci_file_kind;

typedef struct xci_file_facts {
    xci_file_kind kind;
    uint32_t mode; /* permission bits */
    uint64_t bytes, device, inode;
    int64_t modified_ns; /* since 1970 */
} xci_file_facts;

/* Follows symbolic links, unless `of_link`. A path that does not exist is OK and ABSENT. */
xorcast_status xci_io_facts(xorcast_context *context, const char *path, bool of_link,
                            xci_file_facts *facts_out);
xorcast_status xci_io_facts_of(xorcast_context *context, int fd, const char *path,
                               xci_file_facts *facts_out);

/* Names in a directory without . and .., sorted by bytes, in the arena. */
xorcast_status xci_io_list(xorcast_context *context, const char *path, xci_arena *arena,
                           const char ***names_out, uint64_t *count_out);

xorcast_status xci_io_make_folder(xorcast_context *context, const char *path);   /* exists: OK */
xorcast_status xci_io_remove_folder(xorcast_context *context, const char *path); /* absent: OK */
/* A descriptor to lock or sync. Never through a symbolic link if `no_link`. */
xorcast_status xci_io_open_folder(xorcast_context *context, const char *path, bool no_link,
                                  int *fd_out);
xorcast_status xci_io_sync_folder(xorcast_context *context, const char *path);

xorcast_status xci_io_set_mode(xorcast_context *context, int fd, const char *path, uint32_t mode);
xorcast_status xci_io_set_size(xorcast_context *context, int fd, const char *path, uint64_t bytes);
/* What an ordinary user may still write on the file system that holds `path`. */
xorcast_status xci_io_free_bytes(xorcast_context *context, const char *path, uint64_t *bytes_out);

/* Advisory lock of an open file or directory, shared or exclusive, until the descriptor is
 * closed or unlocked; a process that dies leaves none. BUSY if others hold it at the deadline;
 * MISSING on file systems without locks: there, callers are not told of each other. */
typedef enum xci_lock { XCI_LOCK_HELD, XCI_LOCK_BUSY, XCI_LOCK_MISSING } xci_lock;
xorcast_status xci_io_lock(xorcast_context *context, int fd, const char *path, bool exclusive,
                           uint64_t deadline_ns, xci_lock *lock_out);

#endif
