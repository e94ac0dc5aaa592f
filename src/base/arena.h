/* Allocations freed together: names and shapes of a bundle, blocks of a version. Memory that was
 * in use before a reset is used again after it: taken from the system anew for each version, it
 * costs more than what is done with it. */
#ifndef XCI_ARENA_H
#define XCI_ARENA_H

#include "base/context.h"

typedef struct xci_arena xci_arena;

xorcast_status xci_arena_create(xorcast_context *context, xci_arena **arena_out);
void xci_arena_destroy(xci_arena *arena); /* NULL is allowed */
/* Everything taken is gone. Keeps what memory it was in, and frees what had lain idle since the
 * reset before. */
void xci_arena_reset(xci_arena *arena);
/* 8-byte aligned, uninitialised. */
xorcast_status xci_arena_take(xci_arena *arena, uint64_t bytes, void **memory_out);
xorcast_status xci_arena_copy(xci_arena *arena, const void *bytes, uint64_t count, void **copy_out);

#endif
