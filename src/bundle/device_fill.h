/* Brings bytes into device memory through windows of pinned memory: whoever has bytes asks for
 * room, writes them there, and they go to their place in the background, many small pieces by one
 * copy. Each worker has two windows, of which one is written while the other is on its way. */
#ifndef XCI_DEVICE_FILL_H
#define XCI_DEVICE_FILL_H

#include "backend/device.h"

#define XCI_FILL_WINDOW (UINT64_C(4) << 20) /* bytes that one call may ask room for */

typedef struct xci_device_fill xci_device_fill;

/* The context's device is open. Workers are numbered from 0 and are a thread each. Work begins
 * after what is on the default stream now. */
xorcast_status xci_device_fill_open(xorcast_context *context, uint32_t workers,
                                    xci_device_fill **fill_out);
/* Waits for what is on its way; what was not finished may be in place in part. NULL is allowed. */
void xci_device_fill_close(xci_device_fill *fill);

/* Room for 1 to XCI_FILL_WINDOW bytes that belong at `to`. They are written there until the same
 * worker's next call or finish. */
xorcast_status xci_device_fill_room(xci_device_fill *fill, uint32_t worker, uint8_t *to,
                                    uint64_t bytes, uint8_t **room_out);
/* Everything is in place when it returns. No worker is at work. */
xorcast_status xci_device_fill_finish(xci_device_fill *fill);

#endif
