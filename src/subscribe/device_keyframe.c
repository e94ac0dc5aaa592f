/* Keyframes on a device: see device_keyframe.h. */
#include "subscribe/device_keyframe.h"

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"

static xorcast_status expect(void *user, uint64_t count) {
    (void)user;
    (void)count;
    return XORCAST_OK;
}

/* Every chunk once in a delta, and a batch is of one delta. */
static void take(void *user, uint64_t first, const xci_cuda_block *blocks,
                 const xci_cuda_result *results, uint64_t count, uint32_t worker) {
    (void)first;
    (void)worker;
    xci_device_keyframe *keyframe = user;
    for (uint64_t i = 0; i < count; i++)
        xci_digest_merge(&keyframe->chunk_digests[blocks[i].chunk], &results[i].change);
}

static xorcast_status add_digests(void *user, uint64_t first, uint64_t count,
                                  const xorcast_digest *digests) {
    const xci_device_keyframe *keyframe = user;
    for (uint64_t i = 0; i < count; i++)
        xci_digest_merge(&keyframe->chunk_digests[first + i], &digests[i]);
    return XORCAST_OK;
}

/* Chunks lie this far from each other: whole words can be copied. */
static uint64_t chunk_room(const xorcast_bundle *bundle, uint64_t chunk) {
    return xci_round_up(xci_bundle_chunk_bytes(bundle, chunk), 64);
}

static uint64_t addresses_bytes(const xorcast_bundle *bundle) {
    return xci_round_up(bundle->group_chunks_max * sizeof(uint8_t *), 64);
}

static xorcast_status open_parts(xci_device_keyframe *keyframe) {
    xorcast_context *context = keyframe->context;
    xorcast_bundle *bundle = keyframe->bundle;
    const xci_device *device = context->shared->device;
    const uint64_t bytes =
        addresses_bytes(bundle) + bundle->group_size_max + bundle->group_chunks_max * 64;
    TRY(xci_device_scanner_open(&keyframe->scanner, context, bundle->group_chunks_max));
    const xci_load_taker taker = {expect, take, keyframe};
    TRY(xci_device_loader_open(&keyframe->loader, bundle, bundle->map, XCI_LOAD_APPLY, &taker));
    XCI_DEVICE(context, "make a stream",
               device->ops->stream_open(device->handle, &keyframe->stream));
    TRY(xci_pinned_allocate(context, bytes, &keyframe->pinned));
    return xci_device_allocate(context, bytes, &keyframe->device);
}

xorcast_status xci_device_keyframe_open(xci_device_keyframe *keyframe, xorcast_bundle *bundle,
                                        xorcast_digest *chunk_digests) {
    memset(keyframe, 0, sizeof *keyframe);
    keyframe->context = bundle->context;
    keyframe->bundle = bundle;
    keyframe->chunk_digests = chunk_digests;
    const xorcast_status status = open_parts(keyframe);
    if (status < 0)
        xci_device_keyframe_close(keyframe);
    return status;
}

void xci_device_keyframe_close(xci_device_keyframe *keyframe) {
    xorcast_context *context = keyframe->context;
    if (context == NULL)
        return;
    xci_device_loader_close(&keyframe->loader);
    xci_device_scanner_close(&keyframe->scanner);
    xci_stream_close(context, &keyframe->stream);
    xci_pinned_release(context, &keyframe->pinned);
    xci_device_release(context, &keyframe->device);
    memset(keyframe, 0, sizeof *keyframe);
}

/* Lays the group out as the device gets it; returns its bytes. */
static uint64_t lay_out(xci_device_keyframe *keyframe, uint64_t group, const uint8_t *bytes) {
    const xorcast_bundle *bundle = keyframe->bundle;
    const uint64_t first = bundle->group_first[group], end = bundle->group_first[group + 1];
    uint8_t **addresses = (uint8_t **)(void *)keyframe->pinned.at;
    uint64_t at = addresses_bytes(bundle);
    for (uint64_t c = first; c < end; c++) {
        const uint64_t count = xci_bundle_chunk_bytes(bundle, c);
        addresses[c - first] = keyframe->device.at + at;
        memcpy(keyframe->pinned.at + at, bytes, count);
        bytes += count;
        at += chunk_room(bundle, c);
    }
    return at;
}

xorcast_status xci_device_keyframe_write(xci_device_keyframe *keyframe, uint64_t group,
                                         const uint8_t *bytes) {
    xorcast_context *context = keyframe->context;
    const xorcast_bundle *bundle = keyframe->bundle;
    const xci_device *device = context->shared->device;
    const uint64_t first = bundle->group_first[group];
    const uint64_t count = bundle->group_first[group + 1] - first;
    const uint64_t used = lay_out(keyframe, group, bytes);
    const xci_cuda_copy_call call = {bundle->map->grid, bundle->map->places, first, count,
                                     (uint8_t *const *)(const void *)keyframe->device.at};
    XCI_DEVICE(context, "copy a group",
               device->ops->copy(device->handle, keyframe->device.at, keyframe->pinned.at, used,
                                 keyframe->stream));
    XCI_DEVICE(context, "write a group",
               device->ops->scatter(device->handle, &call, keyframe->stream));
    XCI_DEVICE(context, "write a group",
               device->ops->stream_wait(device->handle, keyframe->stream));
    return xci_device_scan(&keyframe->scanner, bundle->map, first, count, XCI_FOREVER, add_digests,
                           keyframe);
}

xorcast_status xci_device_keyframe_apply(xci_device_keyframe *keyframe, const xci_record *records,
                                         uint64_t count) {
    xorcast_status status = xci_device_load(&keyframe->loader, records, count, NULL);
    if (status == XORCAST_OK)
        status = xci_device_load_end(&keyframe->loader);
    if (status < 0)
        xci_device_load_drop(&keyframe->loader);
    return status;
}
