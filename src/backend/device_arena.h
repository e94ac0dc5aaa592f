/* Device memory that is taken piece by piece and given back all at once: the blocks of a version.
 * Grows in steps, keeps what the last version needed. Owns the memory. One thread. */
#ifndef XCI_DEVICE_ARENA_H
#define XCI_DEVICE_ARENA_H

#include "backend/device.h"

typedef struct xci_device_arena {
    xorcast_context *context;
    xci_device_memory *segments;
    uint64_t segment_count, capacity_bytes; /* of the list */
    uint64_t open, used;                    /* segment that is being filled, and how far */
    uint64_t total_bytes;
} xci_device_arena;

void xci_device_arena_open(xci_device_arena *arena, xorcast_context *context);
void xci_device_arena_close(xci_device_arena *arena);
/* 256-byte aligned. */
xorcast_status xci_device_arena_take(xci_device_arena *arena, uint64_t bytes, uint8_t **at_out);
/* Of what was taken last, at `at`, only so many bytes are needed. */
void xci_device_arena_trim(xci_device_arena *arena, const uint8_t *at, uint64_t bytes);
/* Everything is free again; segments that were not used are released. Nothing may work on them. */
void xci_device_arena_reset(xci_device_arena *arena);

#endif
