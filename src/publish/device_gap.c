/* Groups that a device encodes in the gap codec: see device_gap.h. */
#include "publish/device_gap.h"

#include <string.h>

#include "base/bytes.h"

/* Where the tables lie, on both sides. */
static uint64_t groups_at(const xci_device_gap *gap) {
    return xci_round_up(gap->most_chunks * sizeof(xci_cuda_result), 64);
}
static uint64_t used_at(const xci_device_gap *gap) {
    return groups_at(gap) + xci_round_up(gap->most_groups * sizeof(xci_cuda_gap_group), 64);
}
static uint64_t first_at(const xci_device_gap *gap) {
    return used_at(gap) + 64;
}
static uint64_t tables_bytes(const xci_device_gap *gap) {
    return first_at(gap) + (gap->most_groups + 1) * sizeof(uint64_t);
}

static xci_device_gap_tables tables_in(const xci_device_gap *gap, uint8_t *at) {
    return (xci_device_gap_tables){
        (xci_cuda_result *)(void *)at, (xci_cuda_gap_group *)(void *)(at + groups_at(gap)),
        (uint64_t *)(void *)(at + used_at(gap)), (uint64_t *)(void *)(at + first_at(gap))};
}

xci_device_gap_tables xci_device_gap_host(const xci_device_gap *gap) {
    return tables_in(gap, gap->pinned.at);
}

xorcast_status xci_device_gap_open(xci_device_gap *gap, xorcast_context *context,
                                   uint64_t most_chunks, uint64_t most_groups, uint64_t capacity) {
    gap->most_chunks = most_chunks;
    gap->most_groups = most_groups;
    gap->capacity = capacity;
    TRY(xci_device_allocate(context, capacity + 64, &gap->output));
    TRY(xci_device_allocate(context, tables_bytes(gap), &gap->tables));
    return xci_pinned_allocate(context, tables_bytes(gap), &gap->pinned);
}

void xci_device_gap_close(xci_device_gap *gap, xorcast_context *context) {
    xci_device_release(context, &gap->output);
    xci_device_release(context, &gap->tables);
    xci_pinned_release(context, &gap->pinned);
}

xorcast_status xci_device_gap_start(xci_device_gap *gap, xorcast_context *context,
                                    const xci_cuda_encode_call *call, const uint64_t *group_first,
                                    uint64_t group_count, void *stream) {
    const xci_device *device = context->shared->device;
    const xci_device_gap_tables on = tables_in(gap, gap->tables.at),
                                host = xci_device_gap_host(gap);
    const xci_cuda_gap_encode_call encode = {.grid = call->grid,
                                             .old_at = call->old_at,
                                             .new_at = call->new_at,
                                             .group_first = on.group_first,
                                             .first = call->first,
                                             .count = call->count,
                                             .group_count = group_count,
                                             .blocks = gap->output.at,
                                             .capacity = gap->capacity,
                                             .results = on.results,
                                             .groups = on.groups,
                                             .used_bytes = on.used,
                                             .scratch = call->scratch,
                                             .scratch_bytes = call->scratch_bytes};
    memcpy(host.group_first, group_first, (group_count + 1) * sizeof *group_first);
    XCI_DEVICE(context, "copy a table",
               device->ops->copy(device->handle, on.group_first, host.group_first,
                                 (group_count + 1) * sizeof *group_first, stream));
    XCI_DEVICE(context, "encode weights", device->ops->gap_encode(device->handle, &encode, stream));
    return XORCAST_OK;
}

xorcast_status xci_device_gap_fetch(const xci_device_gap *gap, xorcast_context *context,
                                    void *stream) {
    const xci_device *device = context->shared->device;
    return xci_device_result(
        context,
        device->ops->copy(device->handle, gap->pinned.at, gap->tables.at, first_at(gap), stream),
        "copy results");
}
