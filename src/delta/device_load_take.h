/* What the device said of a batch: good blocks go to the taker, as prepare has left them; the host
 * makes device-ready what the device did not take, and has it checked again; gap blocks become
 * forms. */
#ifndef XCI_DEVICE_LOAD_TAKE_H
#define XCI_DEVICE_LOAD_TAKE_H

#include "delta/device_load.h"

/* Waits for the slot's batch and takes it; afterwards nothing works on the slot. */
xorcast_status xci_load_complete(xci_device_loader *loader, xci_load_slot *slot);

#endif
