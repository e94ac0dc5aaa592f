/* The bounded log of a publisher: the last versions, each with the names of its objects on the
 * link, and which digest belongs to which step. The newest is always kept; the oldest go when the
 * bound is passed.
 *
 * The bound is on memory: the bytes of the objects and 1 KiB for each of them.
 *
 * Owns names and digests; the link owns the bytes. Any thread. */
#ifndef XCI_VERSION_LOG_H
#define XCI_VERSION_LOG_H

#include "frame/manifest.h"
#include "ship/link.h"

typedef struct xci_version_log xci_version_log;

/* `first`: the version that the publisher opened with; it has no objects. */
xorcast_status xci_version_log_open(xorcast_context *context, const xci_link *link,
                                    uint64_t bound_bytes, const xorcast_version *first,
                                    xci_version_log **log_out);
/* The host whose objects go when versions go. Once, before the first add. */
void xci_version_log_attach(xci_version_log *log, xci_host *host);
void xci_version_log_close(xci_version_log *log); /* NULL is allowed */

/* The version's objects are on the link, and those of its form for receivers that hold the old
 * weights if `beside` is not NULL: remembers it and drops the oldest beyond the bound. */
xorcast_status xci_version_log_add(xci_version_log *log, const xorcast_delta_info *info,
                                   const xorcast_delta_info *beside);
/* The step whose bytes have this digest and from which the log leads to the newest, or
 * NOT_FOUND. */
xorcast_status xci_version_log_find(xci_version_log *log, xorcast_context *context,
                                    const xorcast_digest *digest, uint64_t *step_out);
void xci_version_log_stats(xci_version_log *log, uint64_t *bytes_out, uint64_t *versions_out,
                           uint64_t *oldest_step_out);

#endif
