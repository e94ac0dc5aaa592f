/* How far a long call is, for the context's progress call, which may call it off. Whoever knows the
 * whole of the work begins and ends it; steps that nobody began count for nothing. Steps are taken
 * by any worker of the pool, and told by worker 0, the thread that called. */
#ifndef XCI_PROGRESS_H
#define XCI_PROGRESS_H

#include "base/context.h"

void xci_progress_begin(xorcast_context *context, uint64_t total_bytes);
/* CANCELLED, on all workers, once the work is called off. */
xorcast_status xci_progress_step(xorcast_context *context, uint32_t worker,
                                 uint64_t bytes) XORCAST_MUST_USE;
/* A step of no bytes by the thread that called, before what cannot be called off. */
xorcast_status xci_progress_ask(xorcast_context *context) XORCAST_MUST_USE;
void xci_progress_end(xorcast_context *context); /* tells once more; not begun is allowed */

#endif
