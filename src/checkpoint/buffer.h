/* Bytes that grow at the end: headers, indexes, records and file tables while they are written.
 * Freed by xci_buffer_free, also after a failure. */
#ifndef XCI_BUFFER_H
#define XCI_BUFFER_H

#include "base/context.h"

typedef struct xci_buffer {
    xorcast_context *context;
    uint8_t *bytes;
    uint64_t size, capacity;
} xci_buffer;

xorcast_status xci_buffer_put(xci_buffer *buffer, const void *bytes, uint64_t count);
xorcast_status xci_buffer_put8(xci_buffer *buffer, uint8_t value);
xorcast_status xci_buffer_put_varint(xci_buffer *buffer, uint64_t value);
xorcast_status xci_buffer_put_text(xci_buffer *buffer, const char *text); /* without its zero */
xorcast_status xci_buffer_put_decimal(xci_buffer *buffer, uint64_t value);
/* Room for `count` more bytes, which count as written: the caller fills them. */
xorcast_status xci_buffer_take(xci_buffer *buffer, uint64_t count, uint8_t **place_out);
void xci_buffer_free(xci_buffer *buffer);

#endif
