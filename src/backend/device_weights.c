/* Device memory for whoever has weights and no toolkit of the device: the tool, tests, programs in
 * other languages. It is the caller's, and counts against no limit. */
#include "backend/device.h"

xorcast_status xorcast_device_allocate(xorcast_context *context, uint64_t bytes,
                                       void **memory_out) {
    void *memory = NULL;
    TRY(xci_device_open(context));
    const xci_device *device = context->shared->device;
    if (bytes > 0)
        XCI_DEVICE(context, "give memory", device->ops->allocate(device->handle, bytes, &memory));
    *memory_out = memory;
    return XORCAST_OK;
}

xorcast_status xorcast_device_release(xorcast_context *context, void *memory) {
    const xci_device *device = context->shared->device;
    if (memory == NULL)
        return XORCAST_OK;
    return xci_device_result(context, device->ops->release(device->handle, memory),
                             "take memory back");
}

xorcast_status xorcast_device_copy(xorcast_context *context, void *to, const void *from,
                                   uint64_t bytes) {
    TRY(xci_device_open(context));
    const xci_device *device = context->shared->device;
    if (bytes == 0)
        return XORCAST_OK;
    return xci_device_result(context, device->ops->copy_now(device->handle, to, from, bytes),
                             "copy");
}
