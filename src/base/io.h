/* The only place that touches files. Each call does the whole job or fails with a status that
 * names the file and errno; short reads are DATA_TRUNCATED. Tests make the n-th call fail with
 * xci_io_fail_after. */
#ifndef XCI_IO_H
#define XCI_IO_H

#include "base/context.h"

xorcast_status xci_io_open_read(xorcast_context *context, const char *path, int *fd_out,
                                uint64_t *size_out);
/* Nothing may stand there, a link neither. */
xorcast_status xci_io_create(xorcast_context *context, const char *path, int *fd_out);
/* A file that is there, for reading and writing; never through a symbolic link. */
xorcast_status xci_io_open_again(xorcast_context *context, const char *path, int *fd_out);
xorcast_status xci_io_read_at(xorcast_context *context, int fd, const char *path, uint64_t offset,
                              void *buffer, uint64_t count);
xorcast_status xci_io_write_at(xorcast_context *context, int fd, const char *path, uint64_t offset,
                               const void *bytes, uint64_t count);
xorcast_status xci_io_sync(xorcast_context *context, int fd, const char *path);
/* fsync of the directory that holds `path`, so that a rename survives. */
xorcast_status xci_io_sync_parent(xorcast_context *context, const char *path);
xorcast_status xci_io_rename(xorcast_context *context, const char *from, const char *to);
xorcast_status xci_io_remove(xorcast_context *context, const char *path); /* absent is OK */
void xci_io_close(int fd); /* negative is allowed */

/* Test hook: the n-th call from now (0: the next) and, if `persistent`, all after it fail with
 * EIO. A negative n switches it off. */
void xci_io_fail_after(int64_t n, bool persistent);

/* For the other files of this module: does the hook say that this call fails (errno is set), and a
 * record of errno as "cannot VERB PATH": NOT_FOUND if there is no such file, NO_PERMISSION, else
 * IO_FAILED. */
bool xci_io_injected(void);
xorcast_status xci_io_fail(xorcast_context *context, const char *verb, const char *path);

#endif
