/* Device arenas: see device_arena.h. */
#include "backend/device_arena.h"

#include "base/bytes.h"

/* Steps double up to this, so that no more than this is taken beyond what is used; where it is
 * known how much will be, what is beyond it is little. */
#define STEP_MIN (UINT64_C(1) << 20)
#define STEP_MAX (UINT64_C(32) << 20)
#define STEP_BEYOND (UINT64_C(64) << 10)
#define MORE_MAX (UINT64_C(512) << 10)

void xci_device_arena_open(xci_device_arena *arena, xorcast_context *context) {
    *arena = (xci_device_arena){.context = context, .step_most = STEP_MAX};
}

void xci_device_arena_close(xci_device_arena *arena) {
    if (arena->context == NULL)
        return;
    for (uint64_t i = 0; i < arena->segment_count; i++)
        xci_device_release(arena->context, &arena->segments[i]);
    xci_release(arena->context, arena->segments);
    *arena = (xci_device_arena){0};
}

/* Keeps the first `kept` segments. */
static void release_from(xci_device_arena *arena, uint64_t kept) {
    while (arena->segment_count > kept) {
        xci_device_memory *last = &arena->segments[--arena->segment_count];
        arena->total_bytes -= last->bytes;
        xci_device_release(arena->context, last);
    }
}

static xorcast_status allocate(const xci_device_arena *arena, uint64_t bytes,
                               xci_device_memory *segment) {
    return arena->for_engine ? xci_engine_allocate(arena->context, bytes, segment)
                             : xci_device_allocate(arena->context, bytes, segment);
}

static xorcast_status add_segment(xci_device_arena *arena, uint64_t bytes) {
    const uint64_t step = xci_min(xci_max(arena->total_bytes, STEP_MIN), arena->step_most);
    const uint64_t likely = arena->likely - xci_min(arena->likely, arena->total_bytes);
    TRY(xci_grow(arena->context, &arena->segments, &arena->capacity_bytes,
                 (arena->segment_count + 1) * sizeof(xci_device_memory)));
    xci_device_memory *segment = &arena->segments[arena->segment_count];
    const uint64_t size = xci_max(bytes, likely > 0 ? likely : step);
    xorcast_status taken = allocate(arena, size, segment);
    /* No byte more, if need be: what is likely is only what somebody says, or was so before. */
    if (taken < 0 && size > bytes)
        taken = allocate(arena, bytes, segment);
    TRY(taken);
    arena->total_bytes += segment->bytes;
    arena->segment_count++;
    return XORCAST_OK;
}

void xci_device_arena_expect(xci_device_arena *arena, uint64_t bytes) {
    const uint64_t most = xci_max(bytes, arena->last_taken);
    /* What is too small would stay beside what comes in one piece. */
    if (arena->total_bytes < most)
        release_from(arena, 0);
    /* The next version finds room too. */
    arena->likely = most + xci_min(most / 512, MORE_MAX);
    arena->step_most = STEP_BEYOND;
}

uint64_t xci_device_arena_room(const xci_device_arena *arena) {
    return arena->open < arena->segment_count ? arena->segments[arena->open].bytes - arena->used
                                              : 0;
}

xorcast_status xci_device_arena_take(xci_device_arena *arena, uint64_t bytes, uint8_t **at_out) {
    const uint64_t whole = xci_round_up(bytes, 256);
    while (arena->open < arena->segment_count &&
           arena->segments[arena->open].bytes - arena->used < whole) {
        const bool last = arena->open + 1 == arena->segment_count;
        if (last && arena->used == 0) /* kept, and too small */
            release_from(arena, arena->open);
        else
            arena->open++;
        arena->used = 0;
    }
    if (arena->open == arena->segment_count)
        TRY(add_segment(arena, whole));
    *at_out = arena->segments[arena->open].at + arena->used;
    arena->used += whole;
    arena->taken += whole;
    return XORCAST_OK;
}

void xci_device_arena_reset(xci_device_arena *arena) {
    const bool fits =
        arena->segment_count == 1 && arena->total_bytes <= xci_max(2 * arena->taken, STEP_MIN);
    release_from(arena, fits && arena->taken > 0 ? 1 : 0);
    arena->last_taken = arena->taken;
    arena->likely = arena->taken + arena->taken / 64; /* versions are about as large as the last */
    arena->open = arena->used = arena->taken = 0;
}
