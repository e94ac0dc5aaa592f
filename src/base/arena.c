/* Arenas: see arena.h. Slabs in a list, the newest first. */
#include "base/arena.h"

#include <string.h>

#include "base/bytes.h"

#define SLAB_BYTES (UINT64_C(256) << 10)

typedef struct slab {
    struct slab *next;
    uint64_t used, capacity;
} slab;

struct xci_arena {
    xorcast_context *context;
    slab *newest;
};

xorcast_status xci_arena_create(xorcast_context *context, xci_arena **arena_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_arena), &memory));
    *arena_out = memory;
    (*arena_out)->context = context;
    return XORCAST_OK;
}

void xci_arena_destroy(xci_arena *arena) {
    if (arena == NULL)
        return;
    for (slab *s = arena->newest, *next; s != NULL; s = next) {
        next = s->next;
        xci_release(arena->context, s);
    }
    xci_release(arena->context, arena);
}

xorcast_status xci_arena_take(xci_arena *arena, uint64_t bytes, void **memory_out) {
    bytes = xci_round_up(bytes, 8);
    slab *s = arena->newest;
    if (s == NULL || s->capacity - s->used < bytes) {
        const uint64_t capacity = xci_max(bytes, SLAB_BYTES);
        void *memory;
        TRY(xci_allocate(arena->context, sizeof(slab) + capacity, &memory));
        s = memory;
        *s = (slab){arena->newest, 0, capacity};
        arena->newest = s;
    }
    *memory_out = (uint8_t *)(s + 1) + s->used;
    s->used += bytes;
    return XORCAST_OK;
}

xorcast_status xci_arena_copy(xci_arena *arena, const void *bytes, uint64_t count,
                              void **copy_out) {
    TRY(xci_arena_take(arena, count, copy_out));
    if (count > 0)
        memcpy(*copy_out, bytes, count);
    return XORCAST_OK;
}
