/* Growing bytes: see buffer.h. Doubles through xci_grow, so that many small puts stay cheap. */
#include "checkpoint/buffer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

xorcast_status xci_buffer_take(xci_buffer *buffer, uint64_t count, uint8_t **place_out) {
    uint64_t wanted;
    if (!xci_add(buffer->size, count, &wanted))
        FAIL(buffer->context, XORCAST_NO_HOST_MEMORY, "a buffer of 2^64 bytes cannot be had");
    TRY(xci_grow(buffer->context, &buffer->bytes, &buffer->capacity, wanted));
    *place_out = buffer->bytes + buffer->size;
    buffer->size = wanted;
    return XORCAST_OK;
}

xorcast_status xci_buffer_put(xci_buffer *buffer, const void *bytes, uint64_t count) {
    uint8_t *place;
    if (count == 0)
        return XORCAST_OK;
    TRY(xci_buffer_take(buffer, count, &place));
    memcpy(place, bytes, count);
    return XORCAST_OK;
}

xorcast_status xci_buffer_put8(xci_buffer *buffer, uint8_t value) {
    return xci_buffer_put(buffer, &value, 1);
}

xorcast_status xci_buffer_put_varint(xci_buffer *buffer, uint64_t value) {
    uint8_t bytes[XCI_VARINT_BYTES];
    return xci_buffer_put(buffer, bytes, xci_varint_put(bytes, value));
}

xorcast_status xci_buffer_put_text(xci_buffer *buffer, const char *text) {
    return xci_buffer_put(buffer, text, strlen(text));
}

xorcast_status xci_buffer_put_decimal(xci_buffer *buffer, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return xci_buffer_put_text(buffer, text);
}

void xci_buffer_free(xci_buffer *buffer) {
    xci_release(buffer->context, buffer->bytes);
    buffer->bytes = NULL;
    buffer->size = buffer->capacity = 0;
}
