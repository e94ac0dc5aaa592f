/* Pieces to the device: encode, and results to the host behind it. */
#ifndef XCI_DEVICE_LAUNCH_H
#define XCI_DEVICE_LAUNCH_H

#include "publish/device_encode_state.h"

/* The next piece; there is one, and a slot for it. */
xorcast_status xci_device_launch(xci_device_encoder *e);
/* The host's table marks again which chunks are scattered, of those that have the turn. The device
 * has read it. */
void xci_device_unplace(xci_device_encoder *e, uint32_t turn);

#endif
