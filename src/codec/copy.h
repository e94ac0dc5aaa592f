/* The copy that LZ4 and Snappy share: repeats bytes that were written before, which may overlap
 * what is being written. Bounds are the caller's. */
#ifndef XCI_COPY_H
#define XCI_COPY_H

#include <stdint.h>
#include <string.h>

/* out[i] = out[i - offset] for i = 0 .. length - 1, in this order; offset is at least 1. The
 * part that can be copied at once doubles with every round. */
static inline void xci_copy_back(uint8_t *out, uint32_t offset, uint32_t length) {
    const uint8_t *from = out - offset;
    while (length > 0) {
        const uint32_t ready = (uint32_t)(out - from);
        const uint32_t count = length < ready ? length : ready;
        memcpy(out, from, count);
        out += count;
        length -= count;
    }
}

#endif
