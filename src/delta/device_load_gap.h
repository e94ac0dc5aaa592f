/* Gap blocks of a batch in mode KEEP, which the device decodes itself: it checks them beside the
 * other blocks and says how large their device-ready forms are; then these are made where there is
 * room for them. Blocks of packed chunks, whose padding must be looked at, are the host's. */
#ifndef XCI_DEVICE_LOAD_GAP_H
#define XCI_DEVICE_LOAD_GAP_H

#include "delta/device_load.h"

/* Whether the device decodes this record's gap blocks. */
bool xci_load_gap_here(const xci_device_loader *loader, const xci_record *record);

/* Room for a batch of so many blocks. Before records are placed; nothing works on the slot. */
xorcast_status xci_load_gap_reserve(xci_device_loader *loader, xci_load_slot *slot,
                                    uint64_t blocks);
void xci_load_gap_release(xorcast_context *context, xci_load_slot *slot);

/* A record's, while it is placed by a thread of the pool: its blocks, and its parameters. */
typedef struct xci_load_gap_list {
    const xci_load_item *item;
    uint32_t count, ordinal; /* listed; met */
} xci_load_gap_list;
/* `at`: where the block will be on the device. */
void xci_load_gap_add(xci_load_slot *slot, xci_load_gap_list *list, const uint8_t *at,
                      uint32_t bytes, uint64_t chunk);
void xci_load_gap_close(xci_load_slot *slot, const xci_load_gap_list *list, const uint8_t *params,
                        uint32_t params_bytes, uint8_t tables);

/* Puts the batch's check on the stream, if there is anything to check. */
xorcast_status xci_load_gap_start(xci_device_loader *loader, xci_load_slot *slot);
/* After the slot's event: makes the forms, waits for them, and lists them in the slot's tables in
 * place of what was there, with their results. */
xorcast_status xci_load_gap_finish(xci_device_loader *loader, xci_load_slot *slot,
                                   xci_cuda_block *table, xci_cuda_result *results);

#endif
