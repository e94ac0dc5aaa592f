/* What the device has encoded, to the host: sizes, then blocks. */
#ifndef XCI_DEVICE_RECEIVE_H
#define XCI_DEVICE_RECEIVE_H

#include "publish/device_encode_state.h"

/* Waits for the next piece's sizes and has its blocks copied to the host: on a stream where no
 * sizes of pieces behind it are waited for. */
xorcast_status xci_device_receive(xci_device_encoder *e);
/* Receives all pieces whose sizes are here. */
xorcast_status xci_device_receive_ready(xci_device_encoder *e);
/* Waits for the device, which all threads do then. */
xorcast_status xci_device_wait(const xci_device_encoder *e, void *event, const char *what);

#endif
