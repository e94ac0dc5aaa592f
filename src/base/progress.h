/* How far a long call is, for the context's progress call. Whoever knows the whole of the work
 * begins and ends it; steps that nobody began count for nothing. Steps are taken by any worker of
 * the pool, and told by worker 0, the thread that called. */
#ifndef XCI_PROGRESS_H
#define XCI_PROGRESS_H

#include "base/context.h"

void xci_progress_begin(xorcast_context *context, uint64_t total_bytes);
void xci_progress_step(xorcast_context *context, uint32_t worker, uint64_t bytes);
void xci_progress_end(xorcast_context *context); /* tells once more; not begun is allowed */

#endif
