/* The context's device: see device.h. Opens it, keeps the account of its memory, and turns numbers
 * of the table into statuses. */
#include "backend/device.h"

#include <stdlib.h>

/* ---- Opening ---- */

static xorcast_status not_opened(xorcast_context *context, const xci_device_ops *ops,
                                 int32_t ordinal, int error) {
    const xorcast_status status =
        ops->error_is_memory(error) ? XORCAST_NO_DEVICE_MEMORY : XORCAST_DEVICE_FAILED;
    (void)xci_fail_device(context, status, error, "device %d of %s could not be opened: %s",
                          ordinal, ops->name, ops->error_text(error));
    return status;
}

static xorcast_status check_ordinal(xorcast_context *context, const xci_device_ops *ops,
                                    int32_t ordinal) {
    uint32_t count;
    const int error = ops->count(&count);
    if (error != 0 && context->shared->account->device != NULL) /* there are some */
        return not_opened(context, ops, ordinal, error);
    if (error != 0)
        FAIL(context, XORCAST_UNSUPPORTED,
             "the backend %s finds no GPU, or no driver for it (%s); to use a GPU, install its "
             "driver",
             ops->name, ops->error_text(error));
    if ((uint32_t)ordinal >= count)
        FAIL(context, XORCAST_UNSUPPORTED, "the backend %s has %u devices, none with number %d",
             ops->name, count, ordinal);
    return XORCAST_OK;
}

xorcast_status xci_device_open(xorcast_context *context) {
    xci_shared *shared = context->shared;
    const xci_device_ops *ops;
    const int32_t ordinal = shared->options.device;
    if (shared->device != NULL)
        return XORCAST_OK;
    if (shared->device_backend == NULL)
        FAIL(context, XORCAST_UNSUPPORTED,
             "the cpu backend has host memory only; make the context with backend NULL or cuda");
    TRY(xci_plugin_find(context, shared->device_backend, &ops));
    TRY(check_ordinal(context, ops, ordinal));
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_device), &memory));
    xci_device *device = memory;
    *device = (xci_device){.ops = ops, .ordinal = ordinal};
    int error = ops->open(ordinal, &device->handle);
    if (error == 0 && (error = ops->describe(device->handle, &device->about)) != 0)
        ops->close(device->handle);
    if (error != 0) {
        xci_release(context, device);
        return not_opened(context, ops, ordinal, error);
    }
    shared->device = device;
    shared->device_backend = ops->name;
    return XORCAST_OK;
}

void xci_device_close(xorcast_context *context) {
    xci_device *device = context->shared->device;
    if (device == NULL)
        return;
    device->ops->close(device->handle);
    context->shared->device = NULL;
    xci_release(context, device);
}

xorcast_status xci_device_result(xorcast_context *context, int result, const char *what) {
    if (result == 0)
        return XORCAST_OK;
    const xci_device_ops *ops = context->shared->device->ops;
    const bool memory = ops->error_is_memory(result);
    const xorcast_status status = memory ? XORCAST_NO_DEVICE_MEMORY : XORCAST_DEVICE_FAILED;
    (void)xci_fail_device(context, status, result, "the device could not %s: %s (%s %d)%s", what,
                          ops->error_text(result), ops->name, result,
                          memory ? "; free some of its memory and try again"
                                 : "; what it holds is lost if this happens again");
    return status;
}

/* ---- Memory ---- */

static bool count_device(xci_shared *shared, uint64_t bytes) {
    const uint64_t limit = shared->options.device_limit_bytes;
    const uint64_t now = atomic_fetch_add(&shared->device_now_bytes, bytes) + bytes;
    if (limit != 0 && now > limit) {
        atomic_fetch_sub(&shared->device_now_bytes, bytes);
        return false;
    }
    uint_fast64_t seen = atomic_load(&shared->device_high_water_bytes);
    while (now > seen &&
           !atomic_compare_exchange_weak(&shared->device_high_water_bytes, &seen, now))
        continue;
    return true;
}

typedef int (*allocator)(void *device, uint64_t bytes, void **memory_out);

static xorcast_status allocate(xorcast_context *context, allocator from, uint64_t bytes,
                               xci_device_memory *memory_out) {
    xci_shared *shared = context->shared;
    void *memory;
    *memory_out = (xci_device_memory){NULL, 0};
    if (bytes == 0)
        return XORCAST_OK;
    if (!count_device(shared->account, bytes))
        FAIL(context, XORCAST_NO_DEVICE_MEMORY,
             "%llu bytes more would pass the device limit of %llu; raise device_limit_bytes",
             (unsigned long long)bytes, (unsigned long long)shared->options.device_limit_bytes);
    const xorcast_status status =
        xci_device_result(context, from(shared->device->handle, bytes, &memory), "give memory");
    if (status < 0) {
        atomic_fetch_sub(&shared->account->device_now_bytes, bytes);
        return status;
    }
    *memory_out = (xci_device_memory){memory, bytes};
    return XORCAST_OK;
}

xorcast_status xci_device_allocate(xorcast_context *context, uint64_t bytes,
                                   xci_device_memory *memory_out) {
    return allocate(context, context->shared->device->ops->allocate, bytes, memory_out);
}

xorcast_status xci_engine_allocate(xorcast_context *context, uint64_t bytes,
                                   xci_device_memory *memory_out) {
    return allocate(context, context->shared->device->ops->allocate_engine, bytes, memory_out);
}

/* Nobody can do anything about what does not go back: it is said and forgotten. */
static void note_loss(xorcast_context *context, int error) {
    if (error != 0)
        xci_log(context, XORCAST_LOG_WARNING, "the device did not give back what it held: %s",
                context->shared->device->ops->error_text(error));
}

void xci_device_release(xorcast_context *context, xci_device_memory *memory) {
    xci_shared *shared = context->shared;
    if (memory->at == NULL)
        return;
    note_loss(context, shared->device->ops->release(shared->device->handle, memory->at));
    atomic_fetch_sub(&shared->account->device_now_bytes, memory->bytes);
    *memory = (xci_device_memory){NULL, 0};
}

xorcast_status xci_device_reserve(xorcast_context *context, xci_device_memory *memory,
                                  uint64_t bytes) {
    if (bytes <= memory->bytes)
        return XORCAST_OK;
    xci_device_release(context, memory);
    return xci_device_allocate(context, bytes, memory);
}

xorcast_status xci_pinned_allocate(xorcast_context *context, uint64_t bytes,
                                   xci_device_memory *memory_out) {
    const xci_device *device = context->shared->device;
    void *memory;
    *memory_out = (xci_device_memory){NULL, 0};
    if (bytes == 0)
        return XORCAST_OK;
    TRY(xci_account(context, bytes));
    const int error = device->ops->allocate_pinned(device->handle, bytes, &memory);
    if (error != 0) {
        xci_unaccount(context, bytes);
        if (device->ops->error_is_memory(error))
            FAIL(context, XORCAST_NO_HOST_MEMORY,
                 "the system has no %llu bytes of pinned memory left; free some and try again",
                 (unsigned long long)bytes);
        return xci_device_result(context, error, "give pinned memory");
    }
    *memory_out = (xci_device_memory){memory, bytes};
    return XORCAST_OK;
}

void xci_pinned_release(xorcast_context *context, xci_device_memory *memory) {
    const xci_device *device = context->shared->device;
    if (memory->at == NULL)
        return;
    note_loss(context, device->ops->release_pinned(device->handle, memory->at));
    xci_unaccount(context, memory->bytes);
    *memory = (xci_device_memory){NULL, 0};
}

xorcast_status xci_device_owner(xorcast_context *context, xci_device_stretch *known,
                                const void *address, int32_t *ordinal_out) {
    const xci_device *device = context->shared->device;
    const uintptr_t at = (uintptr_t)address;
    xci_device_stretch found = {.begin = at};
    if (at < known->begin || at - known->begin >= known->bytes) {
        XCI_DEVICE(context, "look up an address",
                   device->ops->owner(device->handle, address, &found.ordinal, &found.bytes));
        *known = found;
    }
    *ordinal_out = known->bytes > 0 ? known->ordinal : XCI_NO_DEVICE;
    return XORCAST_OK;
}

/* ---- Streams and events ---- */

void xci_stream_close(xorcast_context *context, void **stream) {
    const xci_device *device = context->shared->device;
    if (*stream != NULL) { /* what it works on may be released next */
        note_loss(context, device->ops->stream_wait(device->handle, *stream));
        note_loss(context, device->ops->stream_close(device->handle, *stream));
    }
    *stream = NULL;
}

void xci_event_close(xorcast_context *context, void **event) {
    const xci_device *device = context->shared->device;
    if (*event != NULL)
        note_loss(context, device->ops->event_close(device->handle, *event));
    *event = NULL;
}

xorcast_status xci_stream_need_free(xorcast_context *context, void *stream) {
    const xci_device *device = context->shared->device;
    bool captured = false;
    XCI_DEVICE(context, "look at a stream",
               device->ops->stream_captured(device->handle, stream, &captured));
    if (captured)
        FAIL(context, XORCAST_BAD_STATE,
             "the %s is being captured into a graph, or is ordered with one that is: end the "
             "capture, or take a stream that is not blocking",
             stream == NULL ? "default stream" : "stream");
    return XORCAST_OK;
}

xorcast_status xci_stream_follow(xorcast_context *context, void *stream, void *other, void *event) {
    const xci_device *device = context->shared->device;
    TRY(xci_stream_need_free(context, other));
    XCI_DEVICE(context, "mark a stream", device->ops->event_record(device->handle, event, other));
    XCI_DEVICE(context, "order two streams",
               device->ops->stream_after(device->handle, stream, event));
    return XORCAST_OK;
}
