/* The shadow and the records: encode moves the shadow by what has a block. Where a chunk has moved
 * and is not booked, or is booked and has not moved, its block is applied: an XOR does either. */
#ifndef XCI_DEVICE_SETTLE_H
#define XCI_DEVICE_SETTLE_H

#include "publish/device_encode_state.h"

/* Settles ranges [first, end) of a piece whose results are here, before what is encoded from now
 * on; no `notes`: none is booked. The shadow is lost if it fails. */
xorcast_status xci_device_settle(xci_device_encoder *e, xci_encode_slot *slot, uint64_t first,
                                 uint64_t end, const xci_range_note *notes);
/* The same of a piece whose groups the device has written, which is on the host with its payloads:
 * those that are not booked go back, as when a version is dropped. Waits for that. */
xorcast_status xci_device_take_back(xci_device_encoder *e, const xci_encode_slot *slot,
                                    const xci_range_note *notes);
/* Of scratch, where pieces have the encoder's sizes. */
uint64_t xci_settle_bytes(const xci_device_encoder *e);

#endif
