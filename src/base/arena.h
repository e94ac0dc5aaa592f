/* Many small allocations freed together: names and shapes of a bundle. */
#ifndef XCI_ARENA_H
#define XCI_ARENA_H

#include "base/context.h"

typedef struct xci_arena xci_arena;

xorcast_status xci_arena_create(xorcast_context *context, xci_arena **arena_out);
void xci_arena_destroy(xci_arena *arena); /* NULL is allowed */
/* 8-byte aligned, uninitialised. */
xorcast_status xci_arena_take(xci_arena *arena, uint64_t bytes, void **memory_out);
xorcast_status xci_arena_copy(xci_arena *arena, const void *bytes, uint64_t count, void **copy_out);

#endif
