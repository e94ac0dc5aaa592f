/* Filling device memory: see device_fill.h. */
#include "bundle/device_fill.h"

#include "base/bytes.h"

#define WINDOWS 2u
#define MOVES 8192u
#define MOVE_BYTES (UINT64_C(16) << 10) /* of one warp: a window keeps hundreds of them busy */
#define TABLE_BYTES (MOVES * sizeof(xci_cuda_move))

/* Bytes, and behind them the table of where they go; the same on both sides. */
typedef struct window {
    void *stream;
    xci_device_memory pinned, device;
    uint64_t used, move_count;
} window;

typedef struct worker {
    window windows[WINDOWS];
    uint32_t current;
} worker;

struct xci_device_fill {
    xorcast_context *context;
    uint32_t worker_count;
    worker *workers;
};

static xorcast_status open_window(xci_device_fill *fill, window *w, void *event) {
    xorcast_context *context = fill->context;
    const xci_device *device = context->shared->device;
    XCI_DEVICE(context, "make a stream", device->ops->stream_open(device->handle, &w->stream));
    TRY(xci_pinned_allocate(context, XCI_FILL_WINDOW + TABLE_BYTES, &w->pinned));
    TRY(xci_device_allocate(context, XCI_FILL_WINDOW + TABLE_BYTES, &w->device));
    return xci_stream_follow(context, w->stream, NULL, event);
}

static xorcast_status open_workers(xci_device_fill *fill, uint32_t workers) {
    xorcast_context *context = fill->context;
    const xci_device *device = context->shared->device;
    void *memory, *event;
    TRY(xci_allocate_array(context, workers, sizeof(worker), &memory));
    fill->workers = memory;
    fill->worker_count = workers;
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &event));
    xorcast_status status = XORCAST_OK;
    for (uint32_t i = 0; i < workers * WINDOWS && status == XORCAST_OK; i++)
        status = open_window(fill, &fill->workers[i / WINDOWS].windows[i % WINDOWS], event);
    xci_event_close(context, &event);
    return status;
}

xorcast_status xci_device_fill_open(xorcast_context *context, uint32_t workers,
                                    xci_device_fill **fill_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_device_fill), &memory));
    xci_device_fill *fill = memory;
    fill->context = context;
    const xorcast_status status = open_workers(fill, workers);
    if (status < 0) {
        xci_device_fill_close(fill);
        return status;
    }
    *fill_out = fill;
    return XORCAST_OK;
}

void xci_device_fill_close(xci_device_fill *fill) {
    if (fill == NULL)
        return;
    for (uint32_t i = 0; i < fill->worker_count * WINDOWS; i++) {
        window *w = &fill->workers[i / WINDOWS].windows[i % WINDOWS];
        xci_stream_close(fill->context, &w->stream);
        xci_device_release(fill->context, &w->device);
        xci_pinned_release(fill->context, &w->pinned);
    }
    xci_release(fill->context, fill->workers);
    xci_release(fill->context, fill);
}

static xci_cuda_move *table_of(const xci_device_memory *memory) {
    return (xci_cuda_move *)(void *)(memory->at + XCI_FILL_WINDOW);
}

/* Puts what a window holds on its way; the window is free again when its stream has been waited
 * for. */
static xorcast_status send(xci_device_fill *fill, window *w) {
    xorcast_context *context = fill->context;
    const xci_device *device = context->shared->device;
    const uint64_t used = w->used, count = w->move_count;
    w->used = w->move_count = 0;
    if (count == 0)
        return XORCAST_OK;
    XCI_DEVICE(context, "copy weights to the device",
               device->ops->copy(device->handle, w->device.at, w->pinned.at, used, w->stream));
    XCI_DEVICE(context, "copy weights to the device",
               device->ops->copy(device->handle, table_of(&w->device), table_of(&w->pinned),
                                 count * sizeof(xci_cuda_move), w->stream));
    XCI_DEVICE(context, "copy weights to the device",
               device->ops->copy_many(device->handle, table_of(&w->device), count, w->stream));
    return XORCAST_OK;
}

static xorcast_status wait_for(xci_device_fill *fill, const window *w) {
    const xci_device *device = fill->context->shared->device;
    return xci_device_result(fill->context, device->ops->stream_wait(device->handle, w->stream),
                             "copy weights to the device");
}

static void list_moves(window *w, uint8_t *to, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += MOVE_BYTES)
        table_of(&w->pinned)[w->move_count++] =
            (xci_cuda_move){w->device.at + w->used + at, to + at, xci_min(MOVE_BYTES, bytes - at)};
}

xorcast_status xci_device_fill_room(xci_device_fill *fill, uint32_t index, uint8_t *to,
                                    uint64_t bytes, uint8_t **room_out) {
    worker *own = &fill->workers[index];
    window *w = &own->windows[own->current];
    const uint64_t moves = xci_divide_up(bytes, MOVE_BYTES);
    if (bytes > XCI_FILL_WINDOW - w->used || moves > MOVES - w->move_count) {
        TRY(send(fill, w));
        own->current = (own->current + 1) % WINDOWS;
        w = &own->windows[own->current];
        TRY(wait_for(fill, w));
    }
    *room_out = w->pinned.at + w->used;
    list_moves(w, to, bytes);
    w->used = xci_min(xci_round_up(w->used + bytes, 16), XCI_FILL_WINDOW);
    return XORCAST_OK;
}

xorcast_status xci_device_fill_finish(xci_device_fill *fill) {
    for (uint32_t i = 0; i < fill->worker_count * WINDOWS; i++)
        TRY(send(fill, &fill->workers[i / WINDOWS].windows[i % WINDOWS]));
    for (uint32_t i = 0; i < fill->worker_count * WINDOWS; i++)
        TRY(wait_for(fill, &fill->workers[i / WINDOWS].windows[i % WINDOWS]));
    return XORCAST_OK;
}
