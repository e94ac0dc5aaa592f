/* A slot of the loader, and where its parts are:
 *
 *     pinned memory:  payload | table of blocks | results | any_bad | moves
 *     device memory:  table of blocks | payload
 *                     notes of check, if the payload is kept */
#ifndef XCI_DEVICE_LOAD_SLOT_H
#define XCI_DEVICE_LOAD_SLOT_H

#include "delta/device_load.h"

/* Events, a stream and memory for a usual batch; of the last slot no memory. What a failure leaves
 * is closed with the rest. */
xorcast_status xci_load_slot_open(xci_device_loader *loader, unsigned index);
/* Its stream is closed, and nothing works on it any more. */
void xci_load_slot_close(xci_device_loader *loader, xci_load_slot *slot);
/* Makes its memory large enough; nothing may work on it. */
xorcast_status xci_load_slot_reserve(xci_device_loader *loader, xci_load_slot *slot,
                                     uint64_t payload, uint64_t blocks);

/* Bytes of a usual batch. */
uint64_t xci_load_payload_room(const xorcast_bundle *bundle);

/* In pinned memory. */
static inline xci_cuda_block *xci_load_table(const xci_load_slot *slot) {
    return (xci_cuda_block *)(void *)(slot->pinned.at + slot->payload_room);
}
xci_cuda_result *xci_load_results(const xci_load_slot *slot);
xci_cuda_move *xci_load_moves(const xci_load_slot *slot);
/* Becomes 1 where the check finds a damaged block. */
uint32_t *xci_load_any_bad(const xci_load_slot *slot);

/* In device memory. */
uint8_t *xci_load_payload_on_device(const xci_load_slot *slot);

#endif
