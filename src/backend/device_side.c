/* Device sides: see device_side.h. */
#include "backend/device_side.h"

#include <string.h>

/* ---- Lifetime ---- */

static void free_memory(xci_device_side *side) {
    xci_device_arena_close(&side->arena);
    xci_release(side->context, side->groups);
    side->groups = NULL;
}

/* Gives up a reference, with the lock, which is released. */
static void drop_reference(xci_device_side *side) {
    const bool last = --side->references == 0;
    pthread_mutex_unlock(&side->lock);
    if (!last)
        return;
    xorcast_context *context = side->context;
    pthread_mutex_destroy(&side->lock);
    xci_release(context, side);
    xorcast_context_destroy(context);
}

static void drop_side(xci_blob_side *base) {
    xci_device_side *side = (xci_device_side *)(void *)base;
    pthread_mutex_lock(&side->lock);
    drop_reference(side);
}

void xci_device_side_close(xci_device_side *side) {
    if (side == NULL)
        return;
    pthread_mutex_lock(&side->lock);
    side->retired = true;
    if (side->readers == 0)
        free_memory(side);
    drop_reference(side);
}

/* What the version before used and nobody reads. */
static void inherit(xci_device_side *side, xci_device_side *before) {
    pthread_mutex_lock(&before->lock);
    before->retired = true;
    if (before->readers == 0) {
        side->arena = before->arena;
        side->arena.context = side->context;
        side->groups = before->groups;
        before->arena = (xci_device_arena){0};
        before->groups = NULL;
        xci_device_arena_reset(&side->arena);
    }
    drop_reference(before);
}

static xorcast_status open_parts(xci_device_side *side, uint64_t group_count,
                                 xci_device_side *before) {
    void *memory;
    if (before != NULL)
        inherit(side, before);
    if (side->groups == NULL) {
        xci_device_arena_open(&side->arena, side->context);
        TRY(xci_allocate_array(side->context, group_count, sizeof *side->groups, &memory));
        side->groups = memory;
    }
    if (group_count > 0)
        memset(side->groups, 0, group_count * sizeof *side->groups);
    return XORCAST_OK;
}

xorcast_status xci_device_side_open(xorcast_context *context, uint64_t group_count,
                                    uint64_t limit_bytes, xci_device_side *before,
                                    xci_device_side **side_out) {
    xorcast_context *own;
    void *memory;
    xorcast_status status = xci_context_fork(context, &own);
    if (status == XORCAST_OK) {
        status = xci_allocate_zeroed(context, sizeof(xci_device_side), &memory);
        if (status < 0)
            xorcast_context_destroy(own);
    }
    if (status < 0) {
        xci_device_side_close(before);
        return status;
    }
    xci_device_side *side = memory;
    side->side.drop = drop_side;
    side->context = own;
    side->limit_bytes = limit_bytes;
    side->references = 1;
    pthread_mutex_init(&side->lock, NULL);
    status = open_parts(side, group_count, before);
    if (status < 0) {
        xci_error_copy(context, own);
        xci_device_side_close(side);
        return status;
    }
    *side_out = side;
    return XORCAST_OK;
}

/* ---- Memory ---- */

uint8_t *xci_device_side_take(xci_device_side *side, uint64_t bytes) {
    uint8_t *at = NULL;
    if (bytes > side->limit_bytes - side->taken_bytes ||
        xci_device_arena_take(&side->arena, bytes, &at) < 0)
        return NULL;
    side->taken_bytes += bytes;
    return at;
}

const uint8_t *xci_device_side_end(const xci_device_side *side, const uint8_t *address) {
    for (uint64_t i = 0; i < side->arena.segment_count; i++) {
        const xci_device_memory *segment = &side->arena.segments[i];
        if ((uintptr_t)address - (uintptr_t)segment->at < segment->bytes)
            return segment->at + segment->bytes;
    }
    return NULL;
}

xci_blob_side *xci_device_side_refer(xci_device_side *side) {
    pthread_mutex_lock(&side->lock);
    side->references++;
    pthread_mutex_unlock(&side->lock);
    return &side->side;
}

bool xci_device_side_enter(xci_device_side *side) {
    pthread_mutex_lock(&side->lock);
    const bool there = !side->retired;
    side->readers += there;
    side->references += there;
    pthread_mutex_unlock(&side->lock);
    return there;
}

void xci_device_side_leave(xci_device_side *side) {
    pthread_mutex_lock(&side->lock);
    if (--side->readers == 0 && side->retired)
        free_memory(side);
    drop_reference(side);
}
