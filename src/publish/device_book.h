/* Pieces that were received become records of the version, side by side in the pool; then the
 * shadow follows, and blocks go to where they stay for subscribers of the process. */
#ifndef XCI_DEVICE_BOOK_H
#define XCI_DEVICE_BOOK_H

#include "publish/device_encode_state.h"

/* Books the oldest piece that was received, then takes its records to their parts; the slot is free
 * afterwards. */
xorcast_status xci_device_book(xci_device_encoder *e);

#endif
