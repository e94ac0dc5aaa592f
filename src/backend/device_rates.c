/* What a device moves in a second: xorcast_device_measure. Times by the device's own events, the
 * best of several copies, because anything else that goes on can only make them slower. */
#include <string.h>

#include "backend/device.h"
#include "base/bytes.h"

#define MEMORY_BYTES (UINT64_C(256) << 20) /* more than a cache holds */
#define MEMORY_BYTES_MIN (UINT64_C(1) << 20)
#define FREE_SHARE 16u /* of what is free on the device, at most */
#define BUS_SHARE 4u   /* of that, for the bus, which is slower */
#define ROUNDS 5u

typedef struct probe {
    xorcast_context *context;
    xci_device_memory a, b, pinned;
    void *stream, *begun, *done;
    uint64_t memory_bytes, bus_bytes;
} probe;

/* Room for two copies on the device and one on the host; less if they do not give so much. */
static xorcast_status take_memory(probe *p) {
    const xci_device *device = p->context->shared->device;
    xci_device_about about;
    xorcast_status status;
    XCI_DEVICE(p->context, "say what it is", device->ops->describe(device->handle, &about));
    p->memory_bytes = MEMORY_BYTES;
    while (p->memory_bytes > xci_max(about.free_bytes / FREE_SHARE, MEMORY_BYTES_MIN))
        p->memory_bytes /= 4;
    for (;; p->memory_bytes /= 4) {
        p->bus_bytes = p->memory_bytes / BUS_SHARE;
        status = xci_device_allocate(p->context, p->memory_bytes, &p->a);
        if (status == XORCAST_OK)
            status = xci_device_allocate(p->context, p->memory_bytes, &p->b);
        if (status == XORCAST_OK)
            status = xci_pinned_allocate(p->context, p->bus_bytes, &p->pinned);
        const bool none = status == XORCAST_NO_DEVICE_MEMORY || status == XORCAST_NO_HOST_MEMORY;
        if (!none || p->memory_bytes / 4 < MEMORY_BYTES_MIN)
            return status;
        xci_device_release(p->context, &p->a);
        xci_device_release(p->context, &p->b);
    }
}

static xorcast_status open_probe(probe *p) {
    const xci_device *device = p->context->shared->device;
    XCI_DEVICE(p->context, "make a stream", device->ops->stream_open(device->handle, &p->stream));
    XCI_DEVICE(p->context, "make an event", device->ops->event_open(device->handle, &p->begun));
    XCI_DEVICE(p->context, "make an event", device->ops->event_open(device->handle, &p->done));
    TRY(take_memory(p));
    memset(p->pinned.at, 0x5A, p->bus_bytes); /* pages that nobody touched may not be there */
    return XORCAST_OK;
}

static void close_probe(probe *p) {
    xci_stream_close(p->context, &p->stream);
    xci_event_close(p->context, &p->begun);
    xci_event_close(p->context, &p->done);
    xci_device_release(p->context, &p->a);
    xci_device_release(p->context, &p->b);
    xci_pinned_release(p->context, &p->pinned);
}

/* Bytes a second of the fastest copy; the first one is not counted. */
static xorcast_status rate(const probe *p, uint8_t *to, const uint8_t *from, uint64_t bytes,
                           uint64_t *rate_out) {
    xorcast_context *context = p->context;
    const xci_device *device = context->shared->device;
    double best = 0;
    for (unsigned i = 0; i <= ROUNDS; i++) {
        double ms;
        XCI_DEVICE(context, "mark a stream",
                   device->ops->event_record(device->handle, p->begun, p->stream));
        XCI_DEVICE(context, "copy bytes",
                   device->ops->copy(device->handle, to, from, bytes, p->stream));
        XCI_DEVICE(context, "mark a stream",
                   device->ops->event_record(device->handle, p->done, p->stream));
        XCI_DEVICE(context, "copy bytes", device->ops->event_wait(device->handle, p->done));
        XCI_DEVICE(context, "measure a copy",
                   device->ops->event_elapsed(device->handle, p->begun, p->done, &ms));
        if (i > 0 && ms > 0 && (best == 0 || ms < best))
            best = ms;
    }
    *rate_out = best > 0 ? (uint64_t)((double)bytes / best * 1e3) : 0;
    return XORCAST_OK;
}

static xorcast_status measure(probe *p, xorcast_device_rates *rates) {
    TRY(open_probe(p));
    TRY(rate(p, p->a.at, p->pinned.at, p->bus_bytes, &rates->to_device));
    TRY(rate(p, p->pinned.at, p->a.at, p->bus_bytes, &rates->from_device));
    TRY(rate(p, p->b.at, p->a.at, p->memory_bytes, &rates->memory));
    rates->memory *= 2; /* each byte is read and written */
    return XORCAST_OK;
}

xorcast_status xorcast_device_measure(xorcast_context *context, xorcast_device_rates *rates_out) {
    probe p = {.context = context};
    xorcast_device_rates rates = {0};
    TRY(xci_device_open(context));
    const xorcast_status status = measure(&p, &rates);
    close_probe(&p);
    TRY(status);
    *rates_out = rates;
    return XORCAST_OK;
}
