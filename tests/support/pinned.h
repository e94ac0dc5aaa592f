/* Bytes that must stay what they are for ever: buffers and their hash, FNV-1a of 64 bits. */
#ifndef TEST_PINNED_H
#define TEST_PINNED_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t fnv(const uint8_t *bytes, uint64_t count) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (uint64_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* Zeros, one more than asked for; to be freed. Ends the program where there is no memory. */
static inline uint8_t *bytes_of(uint64_t count) {
    uint8_t *bytes = calloc(count + 1, 1);
    if (bytes == NULL)
        abort();
    return bytes;
}

#endif
