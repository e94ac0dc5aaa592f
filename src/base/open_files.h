/* Files that are read or written in pieces, more of them than a process may have open: a table
 * opens what is needed, and closes what was used longest ago when XCI_OPEN_FILES_MAX are open, or
 * an eighth of what the process may have. A file that is opened again must still be the one that
 * it was: IO_FAILED says that it was replaced. What was written is on disk before a file is closed.
 *
 * A table owns its files and descriptors; paths are the caller's and must outlive it. Any thread,
 * but a table is destroyed by one. */
#ifndef XCI_OPEN_FILES_H
#define XCI_OPEN_FILES_H

#include "base/folder.h"

#define XCI_OPEN_FILES_MAX 128u

typedef struct xci_open_files xci_open_files;
typedef struct xci_file xci_file;

xorcast_status xci_open_files_create(xorcast_context *context, xci_open_files **table_out);
void xci_open_files_destroy(xci_open_files *table); /* NULL is allowed */

/* For reading: a regular file. As xci_io_open_read. */
xorcast_status xci_file_open(xci_open_files *table, const char *path, xci_file **file_out,
                             xci_file_facts *facts_out);
/* Creates or truncates, for writing. */
xorcast_status xci_file_create(xci_open_files *table, const char *path, xci_file **file_out);

/* As those of io.h and folder.h. `context` gets the failure. */
xorcast_status xci_file_read_at(xorcast_context *context, xci_file *file, uint64_t offset,
                                void *buffer, uint64_t count);
xorcast_status xci_file_write_at(xorcast_context *context, xci_file *file, uint64_t offset,
                                 const void *bytes, uint64_t count);
xorcast_status xci_file_set_mode(xorcast_context *context, xci_file *file, uint32_t mode);
xorcast_status xci_file_set_size(xorcast_context *context, xci_file *file, uint64_t bytes);
xorcast_status xci_file_sync(xorcast_context *context, xci_file *file);

#endif
