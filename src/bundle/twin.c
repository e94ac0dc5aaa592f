/* Twins: bundles of the same layout over other memory, for a publisher's shadow and for the tensors
 * that are handed to it. They borrow names and grid, so that a bundle of 200,000 tensors is not
 * built three times. */
#include <string.h>

#include "base/bytes.h"
#include "bundle/bundle.h"

#define PLACE_ALIGNMENT 64u /* of each tensor: vector loads do not cross cache lines */

static void set_regions(xorcast_bundle *twin) {
    for (uint64_t t = 0; t < twin->tensor_count; t++) {
        xci_tensor *tensor = &twin->tensors[t];
        tensor->simple = tensor->counted = true;
        if (tensor->bytes == 0)
            continue;
        twin->regions[t] = (xci_region){.row_count = tensor->bytes / tensor->row_bytes,
                                        .column_bytes = tensor->row_bytes,
                                        .pitch_bytes = tensor->row_bytes};
        tensor->regions = &twin->regions[t];
        tensor->region_count = 1;
    }
}

xorcast_status xci_bundle_twin(xorcast_bundle *bundle, xorcast_bundle **twin_out) {
    xorcast_context *context = bundle->context;
    void *memory, *tensors = NULL, *regions = NULL;
    TRY(xci_allocate(context, sizeof(xorcast_bundle), &memory));
    xorcast_status status =
        xci_allocate_array(context, bundle->tensor_count, sizeof(xci_tensor), &tensors);
    if (status == XORCAST_OK)
        status = xci_allocate_array(context, bundle->tensor_count, sizeof(xci_region), &regions);
    if (status < 0) {
        xci_release(context, tensors);
        xci_release(context, memory);
        return status;
    }
    xorcast_bundle *twin = memory;
    *twin = *bundle;
    twin->twin = bundle;
    twin->tensors = tensors;
    twin->regions = regions;
    twin->complete = true;
    twin->on_device = false;
    twin->map = NULL;
    twin->shares = NULL;
    twin->share_count = 0;
    if (bundle->tensor_count > 0)
        memcpy(twin->tensors, bundle->tensors, bundle->tensor_count * sizeof(xci_tensor));
    set_regions(twin);
    *twin_out = twin;
    return XORCAST_OK;
}

static void place_packed(xorcast_bundle *twin, uint8_t *memory) {
    twin->packed_data = memory;
    for (uint64_t i = 0; i < twin->packed_count; i++) {
        const uint64_t t = twin->packed[i];
        const uint64_t chunk = twin->tensors[t].first_chunk - twin->whole_chunk_count;
        twin->regions[t].data =
            memory + (chunk << twin->chunk_log2) + twin->segments[i].offset;
    }
}

uint64_t xci_twin_bytes(const xorcast_bundle *twin, bool only_small) {
    uint64_t bytes = xci_packed_chunk_count(twin) << twin->chunk_log2;
    for (uint64_t w = 0; w < twin->whole_count && !only_small; w++)
        bytes += xci_round_up(twin->tensors[twin->whole[w]].bytes, PLACE_ALIGNMENT);
    return bytes;
}

void xci_twin_place(xorcast_bundle *twin, bool only_small, uint8_t *memory) {
    for (uint64_t w = 0; w < twin->whole_count && !only_small; w++) {
        const uint64_t t = twin->whole[w];
        twin->regions[t].data = memory;
        memory += xci_round_up(twin->tensors[t].bytes, PLACE_ALIGNMENT);
    }
    place_packed(twin, memory);
}

xorcast_status xci_twin_allocate(xorcast_bundle *twin, bool only_small, void **memory_out) {
    TRY(xci_allocate_zeroed(twin->context, xci_twin_bytes(twin, only_small), memory_out));
    xci_twin_place(twin, only_small, *memory_out);
    return XORCAST_OK;
}
