/* Buffers that are taken and given back over and over, by any thread. The one given back last is
 * taken first: it is still in the cache, and what is written there may never have to go to memory.
 * Owns them all, those that are taken too. */
#ifndef XCI_BUFFERS_H
#define XCI_BUFFERS_H

#include <pthread.h>

#include "base/context.h"

typedef struct xci_buffer xci_buffer;

typedef struct xci_buffers {
    xorcast_context *context;
    pthread_mutex_t lock;
    xci_buffer *all, *free;
} xci_buffers;

void xci_buffers_open(xci_buffers *buffers, xorcast_context *context);
void xci_buffers_close(xci_buffers *buffers);
/* Uninitialised, at least 16-byte aligned. */
xorcast_status xci_buffers_take(xci_buffers *buffers, uint64_t bytes, uint8_t **bytes_out);
void xci_buffers_give(xci_buffers *buffers, uint8_t *bytes);
/* All are given back; frees those that were not taken since the call before. */
void xci_buffers_recall(xci_buffers *buffers);

#endif
