/* Device memory that is taken piece by piece and given back all at once: the blocks of a version.
 * Grows in steps; what the last version needed is kept in one piece. Owns the memory. One
 * thread. */
#ifndef XCI_DEVICE_ARENA_H
#define XCI_DEVICE_ARENA_H

#include "backend/device.h"

typedef struct xci_device_arena {
    xorcast_context *context;
    xci_device_memory *segments;
    uint64_t segment_count, capacity_bytes; /* of the list */
    uint64_t open, used;                    /* segment that is being filled, and how far */
    uint64_t taken;                         /* bytes since the reset */
    uint64_t likely;                        /* as many may be taken */
    uint64_t total_bytes;
    uint64_t last_taken; /* before the reset */
    uint64_t step_most;  /* beyond what is likely */
    bool for_engine; /* set by the owner: of memory for the Decompression Engine */
} xci_device_arena;

void xci_device_arena_open(xci_device_arena *arena, xorcast_context *context);
void xci_device_arena_close(xci_device_arena *arena);
/* About so many bytes will be taken: they get memory at once, and what is beyond them no more than
 * it needs. Before the first is taken. */
void xci_device_arena_expect(xci_device_arena *arena, uint64_t bytes);
/* What can be taken without memory being added. */
uint64_t xci_device_arena_room(const xci_device_arena *arena);
/* 256-byte aligned. */
xorcast_status xci_device_arena_take(xci_device_arena *arena, uint64_t bytes, uint8_t **at_out);
/* Everything is free again; memory that was not used, or lies in pieces, is released. Nothing may
 * work on it. */
void xci_device_arena_reset(xci_device_arena *arena);

#endif
