/* Buffers: see buffers.h. */
#include "base/buffers.h"

#include "base/bytes.h"

#define SEARCH 8u /* buffers that are looked at before another one is made */

struct xci_buffer {
    struct xci_buffer *next, *next_free;
    uint64_t capacity;
    bool taken; /* since all were recalled */
    _Alignas(16) uint8_t bytes[];
};

void xci_buffers_open(xci_buffers *buffers, xorcast_context *context) {
    *buffers = (xci_buffers){.context = context};
    pthread_mutex_init(&buffers->lock, NULL);
}

void xci_buffers_close(xci_buffers *buffers) {
    if (buffers->context == NULL)
        return;
    for (xci_buffer *b = buffers->all, *next; b != NULL; b = next) {
        next = b->next;
        xci_release(buffers->context, b);
    }
    pthread_mutex_destroy(&buffers->lock);
    *buffers = (xci_buffers){0};
}

/* The first of the newest with room, or NULL. With the lock. */
static xci_buffer *find_free(xci_buffers *buffers, uint64_t bytes) {
    xci_buffer **place = &buffers->free;
    for (unsigned i = 0; i < SEARCH && *place != NULL; i++, place = &(*place)->next_free) {
        xci_buffer *found = *place;
        if (found->capacity < bytes)
            continue;
        *place = found->next_free;
        return found;
    }
    return NULL;
}

/* A quarter more than is asked for, so that it serves others of about the size. */
static xorcast_status make(xci_buffers *buffers, uint64_t bytes, xci_buffer **buffer_out) {
    const uint64_t capacity = bytes + bytes / 4;
    void *memory;
    TRY(xci_allocate(buffers->context, sizeof(xci_buffer) + capacity, &memory));
    xci_buffer *made = memory;
    made->capacity = capacity;
    pthread_mutex_lock(&buffers->lock);
    made->next = buffers->all;
    buffers->all = made;
    pthread_mutex_unlock(&buffers->lock);
    *buffer_out = made;
    return XORCAST_OK;
}

xorcast_status xci_buffers_take(xci_buffers *buffers, uint64_t bytes, uint8_t **bytes_out) {
    pthread_mutex_lock(&buffers->lock);
    xci_buffer *buffer = find_free(buffers, bytes);
    pthread_mutex_unlock(&buffers->lock);
    if (buffer == NULL)
        TRY(make(buffers, bytes, &buffer));
    buffer->taken = true;
    *bytes_out = buffer->bytes;
    return XORCAST_OK;
}

void xci_buffers_give(xci_buffers *buffers, uint8_t *bytes) {
    xci_buffer *buffer = (xci_buffer *)(void *)(bytes - offsetof(xci_buffer, bytes));
    pthread_mutex_lock(&buffers->lock);
    buffer->next_free = buffers->free;
    buffers->free = buffer;
    pthread_mutex_unlock(&buffers->lock);
}

void xci_buffers_recall(xci_buffers *buffers) {
    xci_buffer **place = &buffers->all;
    buffers->free = NULL;
    while (*place != NULL) {
        xci_buffer *buffer = *place;
        if (!buffer->taken) {
            *place = buffer->next;
            xci_release(buffers->context, buffer);
            continue;
        }
        buffer->taken = false;
        buffer->next_free = buffers->free;
        buffers->free = buffer;
        place = &buffer->next;
    }
}
