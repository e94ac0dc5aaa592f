/* Shares of a shadow: see shadow_share.h. */
#include "publish/shadow_share.h"

#include <string.h>

#include "base/bytes.h"

#define RUN_ALIGNMENT 64u /* of each run: vector loads do not cross cache lines */

/* ---- A part: what is at home in one of several shares ---- */

typedef struct chunk_run {
    uint64_t first, end;
} chunk_run;

/* The next run of chunks before `end` that are at home in share `index`, from *at on; *at goes
 * behind it. False: there is none. */
static bool next_run(const xorcast_bundle *bundle, uint32_t index, uint64_t *at, uint64_t end,
                     chunk_run *run_out) {
    while (*at < end && xci_home(bundle, *at) != index)
        (*at)++;
    run_out->first = *at;
    while (*at < end && xci_home(bundle, *at) == index)
        (*at)++;
    run_out->end = *at;
    return run_out->first < run_out->end;
}

static uint64_t chunk_end(const xorcast_bundle *bundle, const xci_tensor *tensor) {
    return tensor->first_chunk + xci_divide_up(tensor->bytes, UINT64_C(1) << bundle->chunk_log2);
}

static uint64_t count_runs(const xorcast_bundle *bundle, uint32_t index) {
    uint64_t count = index == 0 ? bundle->packed_count : 0;
    chunk_run run;
    for (uint64_t w = 0; w < bundle->whole_count; w++) {
        const xci_tensor *tensor = &bundle->tensors[bundle->whole[w]];
        uint64_t at = tensor->first_chunk;
        while (next_run(bundle, index, &at, chunk_end(bundle, tensor), &run))
            count++;
    }
    return count;
}

static xci_region run_region(uint64_t from, uint64_t bytes, uint8_t *at) {
    return (xci_region){.row = from,
                        .row_count = bytes,
                        .column_bytes = 1,
                        .pitch_bytes = 1,
                        .kind = XCI_KIND_DEVICE,
                        .data = at};
}

/* Gives the runs of a tensor their places from `at` on, or only counts their bytes (`regions`
 * NULL). Returns where they end. */
static uint64_t place_runs(const xorcast_bundle *bundle, uint32_t index, xci_tensor *tensor,
                           uint64_t at, uint8_t *memory, xci_region *regions) {
    uint64_t chunk = tensor->first_chunk;
    chunk_run run;
    while (next_run(bundle, index, &chunk, chunk_end(bundle, tensor), &run)) {
        const uint64_t from = (run.first - tensor->first_chunk) << bundle->chunk_log2;
        const uint64_t bytes =
            xci_min(tensor->bytes - from, (run.end - run.first) << bundle->chunk_log2);
        if (regions != NULL)
            regions[tensor->region_count++] = run_region(from, bytes, memory + at);
        at += xci_round_up(bytes, RUN_ALIGNMENT);
    }
    return at;
}

static uint64_t place_whole(xorcast_bundle *part, uint32_t index, uint8_t *memory,
                            xci_region **next) {
    uint64_t at = 0;
    for (uint64_t w = 0; w < part->whole_count; w++) {
        xci_tensor *tensor = &part->tensors[part->whole[w]];
        at = place_runs(part->twin, index, tensor, at, memory, next != NULL ? *next : NULL);
        if (next == NULL || tensor->region_count == 0)
            continue;
        tensor->regions = *next;
        *next += tensor->region_count;
        tensor->counted =
            tensor->region_count == 1 && tensor->regions[0].row_count == tensor->bytes;
    }
    return at;
}

/* The first share has all packed chunks. */
static void place_packed(xorcast_bundle *part, uint8_t *memory, xci_region *next) {
    part->packed_data = memory;
    for (uint64_t i = 0; i < part->packed_count; i++) {
        xci_tensor *tensor = &part->tensors[part->packed[i]];
        const uint64_t chunk = tensor->first_chunk - part->whole_chunk_count;
        *next = run_region(0, tensor->bytes,
                           memory + (chunk << part->chunk_log2) + part->segments[i].offset);
        tensor->regions = next++;
        tensor->region_count = 1;
        tensor->counted = true;
    }
}

static xorcast_status fill_part(xci_shadow_share *share, uint32_t index) {
    xorcast_bundle *part = share->part;
    const xorcast_bundle *bundle = part->twin;
    void *memory;
    TRY(xci_allocate_array(share->context, bundle->tensor_count, sizeof(xci_tensor), &memory));
    part->tensors = memory;
    TRY(xci_allocate_array(share->context, count_runs(bundle, index), sizeof(xci_region), &memory));
    part->regions = memory;
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        xci_tensor *tensor = &part->tensors[t];
        *tensor = bundle->tensors[t];
        tensor->row_bytes = 1;
        tensor->regions = NULL;
        tensor->region_count = 0;
        tensor->simple = tensor->counted = tensor->bytes == 0;
    }
    const uint64_t whole_bytes = place_whole(part, index, NULL, NULL);
    const uint64_t packed_bytes =
        index == 0 ? (bundle->layout.chunk_count - bundle->whole_chunk_count) << bundle->chunk_log2
                   : 0;
    TRY(xci_device_allocate(share->context, whole_bytes + packed_bytes, &share->memory));
    xci_region *next = part->regions;
    (void)place_whole(part, index, share->memory.at, &next);
    if (packed_bytes > 0)
        place_packed(part, share->memory.at + whole_bytes, next);
    return xci_device_map_open(part, part, &share->map);
}

static xorcast_status open_part(xci_shadow_share *share, xorcast_bundle *bundle, uint32_t index) {
    void *memory;
    TRY(xci_allocate(share->context, sizeof(xorcast_bundle), &memory));
    share->part = memory;
    share->own_part = true;
    *share->part = *bundle;
    share->part->twin = bundle;
    share->part->context = share->context;
    share->part->tensors = NULL;
    share->part->regions = NULL;
    share->part->shares = NULL;
    share->part->homes = NULL;
    share->part->map = NULL;
    share->part->complete = false;
    return fill_part(share, index);
}

/* ---- A share ---- */

static xorcast_status place_twin(xci_shadow_share *share, xorcast_bundle *bundle,
                                 xorcast_bundle *twin) {
    TRY(xci_device_allocate(share->context, xci_twin_bytes(twin, false), &share->memory));
    xci_twin_place(twin, false, share->memory.at);
    for (uint64_t t = 0; t < twin->tensor_count; t++)
        twin->regions[t].kind = XCI_KIND_DEVICE;
    return xci_device_map_open(twin, bundle->shares[0], &share->map);
}

/* The twin as the share's device sees it. */
static xorcast_status map_twin(xci_shadow_share *share, const xorcast_bundle *twin,
                               const xorcast_bundle *bundle, uint32_t index) {
    xorcast_bundle view = *twin;
    view.context = share->context;
    TRY(xci_device_map_open(&view, &view, &share->map));
    return xci_device_map_open_home(&view, bundle, index, &share->home);
}

xorcast_status xci_shadow_share_open(xci_shadow_share *share, xorcast_bundle *bundle,
                                     xorcast_bundle *twin, uint32_t index, bool in_host) {
    const bool several = bundle->share_count > 1;
    *share = (xci_shadow_share){.context = bundle->shares[index]->context};
    if (several && !in_host) {
        TRY(open_part(share, bundle, index));
        return xci_device_map_open_home(share->part, bundle, index, &share->home);
    }
    share->part = twin;
    if (several)
        return map_twin(share, twin, bundle, index);
    twin->context = share->context;
    TRY(in_host ? xci_device_map_open(twin, bundle->shares[0], &share->map)
                : place_twin(share, bundle, twin));
    share->home = share->map;
    return XORCAST_OK;
}

void xci_shadow_share_close(xci_shadow_share *share) {
    xorcast_context *context = share->context;
    if (context == NULL)
        return;
    if (share->home != share->map)
        xci_device_map_close(share->home);
    xci_device_map_close(share->map);
    xci_device_release(context, &share->memory);
    if (share->own_part) {
        xci_release(context, share->part->tensors);
        xci_release(context, share->part->regions);
        xci_release(context, share->part);
    }
    *share = (xci_shadow_share){0};
}
