/* Windows: see window.h. */
#include "bundle/window.h"

xorcast_status xci_window_open(xci_window *window, const xorcast_bundle *bundle, uint64_t bytes) {
    xorcast_context *context = bundle->context;
    void *memory;
    *window = (xci_window){.context = context};
    if (bundle->on_device) {
        TRY(xci_pinned_allocate(context, bytes, &window->pinned));
        window->bytes = window->pinned.at;
        return XORCAST_OK;
    }
    TRY(xci_allocate(context, bytes, &memory));
    window->bytes = memory;
    return XORCAST_OK;
}

void xci_window_close(xci_window *window) {
    if (window->context == NULL)
        return;
    if (window->pinned.at != NULL)
        xci_pinned_release(window->context, &window->pinned);
    else
        xci_release(window->context, window->bytes);
    *window = (xci_window){0};
}
