/* Device sides: see device_side.h. */
#include "backend/device_side.h"

#include <string.h>

/* ---- Lifetime ---- */

static void free_memory(xci_device_side *side) {
    for (uint32_t i = 0; i < side->share_count; i++)
        xci_device_arena_close(&side->shares[i].arena);
    if (side->groups != NULL)
        xci_release(side->shares[0].context, side->groups);
    side->groups = NULL;
}

/* With its memory freed. The last context may be what keeps the account. */
static void free_side(xci_device_side *side) {
    xorcast_context *last = side->shares[0].context;
    for (uint32_t i = 1; i < side->share_count; i++)
        xorcast_context_destroy(side->shares[i].context);
    xci_release(last, side);
    xorcast_context_destroy(last);
}

/* Gives up a reference, with the lock, which is released. */
static void drop_reference(xci_device_side *side) {
    const bool last = --side->references == 0;
    pthread_mutex_unlock(&side->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&side->lock);
    free_side(side);
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
        for (uint32_t i = 0; i < side->share_count; i++) {
            xci_side_share *share = &side->shares[i];
            share->arena = before->shares[i].arena;
            share->arena.context = share->context;
            before->shares[i].arena = (xci_device_arena){0};
            xci_device_arena_reset(&share->arena);
        }
        side->groups = before->groups;
        before->groups = NULL;
    }
    drop_reference(before);
}

static xorcast_status open_parts(xci_device_side *side, uint64_t group_count,
                                 xci_device_side *before) {
    void *memory;
    if (before != NULL)
        inherit(side, before);
    if (side->groups == NULL) {
        for (uint32_t i = 0; i < side->share_count; i++)
            xci_device_arena_open(&side->shares[i].arena, side->shares[i].context);
        TRY(xci_allocate_array(side->shares[0].context, group_count, sizeof *side->groups,
                               &memory));
        side->groups = memory;
    }
    if (group_count > 0)
        memset(side->groups, 0, group_count * sizeof *side->groups);
    return XORCAST_OK;
}

/* An object with contexts of its own, and nothing else. */
static xorcast_status make_side(xorcast_context *const *contexts, uint32_t count,
                                xci_device_side **side_out) {
    void *memory;
    TRY(xci_allocate_zeroed(contexts[0], sizeof(xci_device_side) + count * sizeof(xci_side_share),
                            &memory));
    xci_device_side *side = memory;
    for (uint32_t i = 0; i < count; i++) {
        const xorcast_status status = xci_context_fork(contexts[i], &side->shares[i].context);
        if (status < 0) {
            while (i-- > 0)
                xorcast_context_destroy(side->shares[i].context);
            xci_release(contexts[0], side);
            return status;
        }
        side->share_count++;
    }
    *side_out = side;
    return XORCAST_OK;
}

xorcast_status xci_device_side_open(xorcast_context *const *contexts, uint32_t count,
                                    uint64_t group_count, uint64_t limit_bytes,
                                    xci_device_side *before, xci_device_side **side_out) {
    xci_device_side *side;
    xorcast_status status = make_side(contexts, count, &side);
    if (status < 0) {
        xci_device_side_close(before);
        return status;
    }
    side->side.drop = drop_side;
    side->limit_bytes = limit_bytes;
    side->references = 1;
    pthread_mutex_init(&side->lock, NULL);
    status = open_parts(side, group_count, before);
    if (status < 0) {
        xci_error_copy(contexts[0], side->shares[0].context);
        xci_device_side_close(side);
        return status;
    }
    *side_out = side;
    return XORCAST_OK;
}

/* ---- Memory ---- */

uint8_t *xci_device_side_take(xci_device_side *side, uint32_t share, uint64_t bytes) {
    uint8_t *at = NULL;
    if (bytes > side->limit_bytes - side->taken_bytes ||
        xci_device_arena_take(&side->shares[share].arena, bytes, &at) < 0)
        return NULL;
    side->taken_bytes += bytes;
    return at;
}

static const uint8_t *end_in(const xci_device_arena *arena, const uint8_t *address) {
    for (uint64_t i = 0; i < arena->segment_count; i++) {
        const xci_device_memory *segment = &arena->segments[i];
        if ((uintptr_t)address - (uintptr_t)segment->at < segment->bytes)
            return segment->at + segment->bytes;
    }
    return NULL;
}

const uint8_t *xci_device_side_end(const xci_device_side *side, const uint8_t *address,
                                   const xci_device **device_out) {
    const uint8_t *end = NULL;
    for (uint32_t i = 0; i < side->share_count && end == NULL; i++) {
        end = end_in(&side->shares[i].arena, address);
        *device_out = side->shares[i].context->shared->device;
    }
    return end;
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
