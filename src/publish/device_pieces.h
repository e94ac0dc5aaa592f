/* Which ranges of a put make the next piece of a device: they follow each other there. */
#ifndef XCI_DEVICE_PIECES_H
#define XCI_DEVICE_PIECES_H

#include "publish/device_encode_state.h"

/* Ranges that are still to be encoded, before all others. */
void xci_pieces_push(xci_device_encoder *e, xci_range_span span);
/* Takes the next piece; there is one. */
xci_range_span xci_pieces_next(xci_device_encoder *e);

/* Chunks have local numbers: a device has its own alone, one behind the other. Those of a range
 * follow each other. */
static inline uint64_t xci_range_first(const xci_device_encoder *e, const xci_put_range *range) {
    return xci_local(e->pending->bundle, range->first);
}

static inline uint64_t xci_range_end(const xci_device_encoder *e, const xci_put_range *range) {
    return xci_range_first(e, range) + (range->end - range->first);
}

/* Whether it is a whole group. */
bool xci_range_whole(const xci_device_encoder *e, const xci_put_range *range);

/* Where the host says that a chunk's new bytes are, on the device. */
uint8_t **xci_chunk_place(const xci_device_encoder *e, uint64_t chunk);
/* Not in one piece here. */
bool xci_chunk_scattered(const xci_device_encoder *e, uint64_t chunk);
bool xci_range_scattered(const xci_device_encoder *e, const xci_put_range *range);

/* Whether all ranges of a piece are whole groups. */
bool xci_slot_whole(const xci_device_encoder *e, const xci_encode_slot *slot);
/* Whether no group of another device is between them. */
bool xci_slot_gapless(const xci_device_encoder *e, const xci_encode_slot *slot);
/* The range of a group that is in a piece. */
const xci_put_range *xci_slot_range(const xci_device_encoder *e, const xci_encode_slot *slot,
                                    uint64_t group);

#endif
