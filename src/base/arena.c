/* Arenas: see arena.h. Slabs in a list, the newest first. */
#include "base/arena.h"

#include <string.h>

#include "base/bytes.h"

#define SLAB_BYTES_MIN (UINT64_C(16) << 10)
#define SLAB_BYTES_MAX (UINT64_C(8) << 20) /* large enough for huge pages */

typedef struct slab {
    struct slab *next;
    uint64_t used, capacity;
} slab;

struct xci_arena {
    xorcast_context *context;
    slab *newest;
    slab *spare;         /* empty, from before the reset */
    uint64_t held_bytes; /* in all slabs */
};

xorcast_status xci_arena_create(xorcast_context *context, xci_arena **arena_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_arena), &memory));
    *arena_out = memory;
    (*arena_out)->context = context;
    return XORCAST_OK;
}

static void free_slabs(xci_arena *arena, slab *first) {
    for (slab *s = first, *next; s != NULL; s = next) {
        next = s->next;
        arena->held_bytes -= s->capacity;
        xci_release(arena->context, s);
    }
}

void xci_arena_destroy(xci_arena *arena) {
    if (arena == NULL)
        return;
    free_slabs(arena, arena->newest);
    free_slabs(arena, arena->spare);
    xci_release(arena->context, arena);
}

void xci_arena_reset(xci_arena *arena) {
    free_slabs(arena, arena->spare);
    arena->spare = arena->newest;
    arena->newest = NULL;
}

/* A spare slab with room, or NULL. */
static slab *reuse(xci_arena *arena, uint64_t bytes) {
    for (slab **link = &arena->spare; *link != NULL; link = &(*link)->next) {
        slab *s = *link;
        if (s->capacity < bytes)
            continue;
        *link = s->next;
        return s;
    }
    return NULL;
}

static xorcast_status add_slab(xci_arena *arena, uint64_t bytes) {
    slab *s = reuse(arena, bytes);
    if (s == NULL) {
        const uint64_t doubled =
            xci_min(xci_max(arena->held_bytes, SLAB_BYTES_MIN), SLAB_BYTES_MAX);
        const uint64_t capacity = xci_max(bytes, doubled);
        void *memory;
        TRY(xci_allocate(arena->context, sizeof(slab) + capacity, &memory));
        arena->held_bytes += capacity;
        s = memory;
        s->capacity = capacity;
    }
    s->used = 0;
    s->next = arena->newest;
    arena->newest = s;
    return XORCAST_OK;
}

xorcast_status xci_arena_take(xci_arena *arena, uint64_t bytes, void **memory_out) {
    bytes = xci_round_up(bytes, 8);
    if (arena->newest == NULL || arena->newest->capacity - arena->newest->used < bytes)
        TRY(add_slab(arena, bytes));
    slab *s = arena->newest;
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
