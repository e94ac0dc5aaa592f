/* Shares: see shares.h. */
#include "bundle/shares.h"

#include <string.h>

#include "bundle/device_map.h"
#include "bundle/spans.h"

/* ---- Which devices ---- */

typedef struct device_list {
    int32_t numbers[XCI_SHARES_MAX]; /* ascending */
    uint32_t count;
} device_list;

static uint32_t index_of(const device_list *list, int32_t number) {
    uint32_t index = 0;
    while (index < list->count && list->numbers[index] < number)
        index++;
    return index;
}

static xorcast_status list_device(xorcast_context *context, device_list *list, int32_t number) {
    const uint32_t index = index_of(list, number);
    if (index < list->count && list->numbers[index] == number)
        return XORCAST_OK;
    if (list->count == XCI_SHARES_MAX)
        FAIL(context, XORCAST_UNSUPPORTED, "the tensors of a bundle lie on at most %u devices",
             XCI_SHARES_MAX);
    memmove(&list->numbers[index + 1], &list->numbers[index],
            (list->count - index) * sizeof *list->numbers);
    list->numbers[index] = number;
    list->count++;
    return XORCAST_OK;
}

static xorcast_status list_devices(const xorcast_bundle *bundle, device_list *list) {
    list->count = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        for (uint32_t i = 0; i < bundle->tensors[t].region_count; i++)
            TRY(list_device(bundle->context, list, bundle->tensors[t].regions[i].device));
    return XORCAST_OK;
}

/* ---- One share ---- */

static uint64_t count_regions(const xorcast_bundle *bundle, int32_t number) {
    uint64_t count = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        for (uint32_t i = 0; i < bundle->tensors[t].region_count; i++)
            count += bundle->tensors[t].regions[i].device == number;
    return count;
}

/* Gives a share's tensor those of its regions that lie on the device; returns what follows them. */
static xci_region *take_regions(xci_tensor *tensor, int32_t number, xci_region *to) {
    const xci_region *from = tensor->regions;
    const uint32_t count = tensor->region_count;
    uint64_t counted = 0;
    tensor->regions = to;
    tensor->region_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (from[i].device != number)
            continue;
        to[tensor->region_count++] = from[i];
        counted += from[i].replica ? 0 : from[i].row_count * from[i].column_bytes;
    }
    tensor->counted = counted == tensor->bytes;
    tensor->simple = tensor->simple && tensor->counted;
    return to + tensor->region_count;
}

static xorcast_status fill_share(xorcast_bundle *share, int32_t number) {
    const xorcast_bundle *bundle = share->twin;
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->tensor_count, sizeof(xci_tensor), &memory));
    share->tensors = memory;
    TRY(xci_allocate_array(bundle->context, count_regions(bundle, number), sizeof(xci_region),
                           &memory));
    share->regions = memory;
    xci_region *next = share->regions;
    share->complete = true;
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        share->tensors[t] = bundle->tensors[t];
        next = take_regions(&share->tensors[t], number, next);
        share->complete = share->complete && share->tensors[t].counted;
    }
    if (number != bundle->context->shared->device->ordinal)
        TRY(xci_context_beside(bundle->context, number, &share->context));
    return xci_device_map_open(share, share, &share->map);
}

static void close_share(xorcast_bundle *share) {
    xorcast_context *context = share->twin->context;
    xci_device_map_close(share->map);
    if (share->context != context)
        xorcast_context_destroy(share->context);
    xci_release(context, share->tensors);
    xci_release(context, share->regions);
    xci_release(context, share);
}

static xorcast_status open_share(xorcast_bundle *bundle, int32_t number) {
    void *memory;
    TRY(xci_allocate(bundle->context, sizeof(xorcast_bundle), &memory));
    xorcast_bundle *share = memory;
    *share = *bundle;
    share->twin = bundle;
    share->tensors = NULL;
    share->shares = NULL;
    share->homes = NULL;
    bundle->shares[bundle->share_count++] = share;
    return fill_share(share, number);
}

/* ---- Homes ---- */

#define STRETCH_GROUPS UINT64_C(8) /* pieces of a put are about as long */

typedef struct finding {
    const device_list *devices;
    uint64_t counting; /* bits of the shares that have bytes which count, */
    uint64_t holding;  /* and that have any */
} finding;

static void find_span(void *user, const xci_span *span) {
    finding *f = user;
    const uint32_t index = index_of(f->devices, span->region->device);
    f->holding |= UINT64_C(1) << index;
    if (!span->region->replica)
        f->counting |= UINT64_C(1) << index;
}

/* The share that has all bytes which count, or one of those that have some, which take turns: all
 * devices have as much to encode, and as much of the shadow. */
static uint32_t choose_home(uint64_t counting, uint64_t group) {
    if (counting == 0)
        return 0;
    for (uint64_t skip = group / STRETCH_GROUPS % (uint32_t)__builtin_popcountll(counting);
         skip > 0; skip--)
        counting &= counting - 1;
    return (uint32_t)__builtin_ctzll(counting);
}

static uint8_t home_of(const xorcast_bundle *bundle, const xci_chunk *chunk, uint64_t group,
                       const device_list *devices) {
    finding f = {.devices = devices};
    if (!chunk->packed)
        xci_spans(&bundle->tensors[chunk->tensor], chunk->offset, chunk->bytes, find_span, &f);
    for (uint32_t i = 0; i < chunk->tensor_count; i++)
        xci_spans(&bundle->tensors[chunk->tensors[i]], 0, chunk->places[i].bytes, find_span, &f);
    const uint32_t home = chunk->packed ? 0 : choose_home(f.counting, group);
    const bool joined = (f.counting & ~(UINT64_C(1) << home)) != 0;
    const bool shared = (f.holding & (f.holding - 1)) != 0;
    return (uint8_t)(home << 2 | (uint32_t)shared << 1 | joined);
}

static xorcast_status find_homes(xorcast_bundle *bundle, const device_list *devices) {
    const uint64_t chunk_count = bundle->layout.chunk_count;
    void *memory;
    xci_chunk chunk;
    TRY(xci_allocate_array(bundle->context, chunk_count, 1, &memory));
    bundle->homes = memory;
    TRY(xci_allocate_array(bundle->context, chunk_count, sizeof *bundle->locals, &memory));
    bundle->locals = memory;
    TRY(xci_allocate_array(bundle->context, devices->count, sizeof *bundle->home_counts, &memory));
    bundle->home_counts = memory;
    for (uint64_t c = 0, group = 0; c < chunk_count; c++) {
        while (bundle->group_first[group + 1] <= c)
            group++;
        xci_bundle_chunk_places(bundle, c, &chunk);
        bundle->homes[c] = home_of(bundle, &chunk, group, devices);
        bundle->locals[c] = bundle->home_counts[xci_home(bundle, c)]++;
    }
    return XORCAST_OK;
}

uint64_t xci_shares_of_chunk(const xorcast_bundle *bundle, uint64_t chunk) {
    uint64_t bits = 0;
    if (bundle->complete && !xci_joined(bundle, chunk) && !xci_shared_chunk(bundle, chunk))
        return UINT64_C(1) << xci_home(bundle, chunk);
    for (uint32_t s = 0; s < bundle->share_count; s++)
        bits |= (uint64_t)xci_bundle_holds(bundle->shares[s], chunk) << s;
    return bits;
}

uint32_t xci_share_of(const xorcast_bundle *bundle, uint64_t tensor, bool *several_out) {
    uint32_t found = 0, count = 0;
    for (uint32_t s = bundle->share_count; s-- > 0;)
        if (bundle->shares[s]->tensors[tensor].region_count > 0) {
            found = s;
            count++;
        }
    *several_out = count > 1;
    return found;
}

/* ---- All of them ---- */

static xorcast_status open_shares(xorcast_bundle *bundle, const device_list *devices) {
    void *memory;
    TRY(xci_allocate_array(bundle->context, devices->count, sizeof(xorcast_bundle *), &memory));
    bundle->shares = memory;
    if (devices->count == 1 && devices->numbers[0] == bundle->context->shared->device->ordinal) {
        bundle->shares[bundle->share_count++] = bundle;
        return xci_device_map_open(bundle, bundle, &bundle->map);
    }
    for (uint32_t i = 0; i < devices->count; i++)
        TRY(open_share(bundle, devices->numbers[i]));
    return devices->count > 1 ? find_homes(bundle, devices) : XORCAST_OK;
}

xorcast_status xci_shares_open(xorcast_bundle *bundle) {
    device_list devices;
    TRY(list_devices(bundle, &devices));
    return open_shares(bundle, &devices);
}

void xci_shares_close(xorcast_bundle *bundle) {
    for (uint32_t i = 0; i < bundle->share_count; i++)
        if (bundle->shares[i] != bundle)
            close_share(bundle->shares[i]);
    xci_device_map_close(bundle->map);
    xci_release(bundle->context, bundle->shares);
    xci_release(bundle->context, bundle->homes);
    xci_release(bundle->context, bundle->locals);
    xci_release(bundle->context, bundle->home_counts);
    bundle->map = NULL;
    bundle->shares = NULL;
    bundle->homes = NULL;
    bundle->locals = bundle->home_counts = NULL;
    bundle->share_count = 0;
}
