/* Host memory that the bytes of a bundle's tensors are read into: pinned where they come from a
 * device, which copies to such memory at the full rate. Owned by whoever opens it. */
#ifndef XCI_WINDOW_H
#define XCI_WINDOW_H

#include "backend/device.h"
#include "bundle/bundle.h"

typedef struct xci_window {
    xorcast_context *context;
    uint8_t *bytes;
    xci_device_memory pinned; /* if it is that */
} xci_window;

xorcast_status xci_window_open(xci_window *window, const xorcast_bundle *bundle, uint64_t bytes);
void xci_window_close(xci_window *window); /* zeroed: nothing to do */

#endif
