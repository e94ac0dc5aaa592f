/* Device memory that belongs to the caller: xorcast_device_allocate, _release, _copy. Keeps no
 * account of it. */
#include "backend/device.h"

xorcast_status xorcast_device_allocate(xorcast_context *context, uint64_t bytes,
                                       void **memory_out) {
    void *memory;
    TRY(xci_device_open(context));
    const xci_device *device = context->shared->device;
    if (bytes == 0)
        FAIL(context, XORCAST_BAD_ARGUMENT, "no bytes of device memory were asked for");
    XCI_DEVICE(context, "give memory", device->ops->allocate(device->handle, bytes, &memory));
    *memory_out = memory;
    return XORCAST_OK;
}

void xorcast_device_release(xorcast_context *context, void *memory) {
    const xci_device *device = context->shared->device;
    if (memory == NULL)
        return;
    const int error = device->ops->release(device->handle, memory);
    if (error != 0)
        xci_log(context, XORCAST_LOG_WARNING, "the device did not give back what it held: %s",
                device->ops->error_text(error));
}

xorcast_status xorcast_device_copy(xorcast_context *context, void *to, const void *from,
                                   uint64_t bytes) {
    TRY(xci_device_open(context));
    const xci_device *device = context->shared->device;
    if (bytes == 0)
        return XORCAST_OK;
    return xci_device_result(context, device->ops->copy_now(device->handle, to, from, bytes),
                             "copy bytes");
}
