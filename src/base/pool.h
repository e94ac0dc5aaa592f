/* A pool of threads that runs one parallel loop at a time. The calling thread works too, so a pool
 * of one thread has no threads of its own. */
#ifndef XCI_POOL_H
#define XCI_POOL_H

#include "base/context.h"

typedef struct xci_pool xci_pool;

xorcast_status xci_pool_create(xorcast_context *context, uint32_t threads, xci_pool **pool_out);
void xci_pool_destroy(xorcast_context *context, xci_pool *pool);

/* `index` counts the items, `worker` (0 .. threads - 1) tells who runs it, for scratch. A negative
 * status stops the loop: items not begun are skipped. */
typedef xorcast_status (*xci_pool_work)(void *user, uint64_t index, uint32_t worker);

/* Runs work for index 0 .. count - 1, taken in order, and returns when all are done: OK, or the
 * failure of the lowest index that failed, which is then the context's record too. Loops of several
 * threads on one pool take turns. Must not be called from within work. */
xorcast_status xci_pool_run(xci_pool *pool, uint64_t count, xci_pool_work work, void *user);

#endif
