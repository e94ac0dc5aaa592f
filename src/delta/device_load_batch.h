/* A slot's batch, once its records are in pinned memory: entries and payload get their places on
 * the device, are sent there, and are checked or applied. What the device says of them is taken by
 * device_load_take.c. */
#ifndef XCI_DEVICE_LOAD_BATCH_H
#define XCI_DEVICE_LOAD_BATCH_H

#include "delta/device_load.h"

/* Sends the batch, if there is anything in it, and puts what is to be done with it on the slot's
 * stream: check, or apply in mode APPLY_OWN. */
xorcast_status xci_load_launch(xci_device_loader *loader, xci_load_slot *slot);

/* The steps, for whoever has a batch that is half way: */

/* Where the device will have the payload. */
xorcast_status xci_load_place_payload(xci_device_loader *loader, xci_load_slot *slot);
/* Where the device has the entries: in the list of what is kept, if there is room. */
xorcast_status xci_load_place_table(xci_device_loader *loader, xci_load_slot *slot);
xorcast_status xci_load_send_table(xci_device_loader *loader, const xci_load_slot *slot,
                                   void *stream);
/* Of entries and payload that the device has. */
xorcast_status xci_load_start_apply(xci_device_loader *loader, const xci_load_slot *slot);

#endif
