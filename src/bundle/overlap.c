/* Refuses memory that two boxes share: an XOR through both would undo itself there. Boxes of one
 * pitch may interleave, as the parts of a fused matrix do. */
#include <stdlib.h>

#include "bundle/seal.h"

typedef struct extent {
    uintptr_t begin, end;
    const xci_region *region;
    uint64_t tensor;
} extent;

static int by_begin(const void *a, const void *b) {
    const extent *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static bool disjoint(const extent *a, const extent *b) {
    if (b->begin >= a->end)
        return true;
    /* `a` begins first, so a single row of it is where `b` begins. A single row of `b` has no
     * pitch of its own. */
    const uint64_t pitch = a->region->pitch_bytes;
    if (a->region->row_count == 1 || (b->region->row_count > 1 && pitch != b->region->pitch_bytes))
        return false;
    const uint64_t shift = (b->begin - a->begin) % pitch;
    return shift >= a->region->column_bytes && shift + b->region->column_bytes <= pitch;
}

static xorcast_status sweep(xorcast_bundle *bundle, extent *list, uint64_t count) {
    qsort(list, count, sizeof *list, by_begin);
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t j = i + 1; j < count && list[j].begin < list[i].end; j++)
            if (!disjoint(&list[i], &list[j]))
                FAIL(bundle->context, XORCAST_BAD_ARGUMENT,
                     "tensors %s and %s overlap in memory; only exactly equal memory may be shared",
                     bundle->tensors[list[i].tensor].name, bundle->tensors[list[j].tensor].name);
    return XORCAST_OK;
}

xorcast_status xci_seal_overlaps(xorcast_bundle *bundle) {
    uint64_t count = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        count += bundle->tensors[t].region_count;
    void *memory;
    TRY(xci_allocate_array(bundle->context, count, sizeof(extent), &memory));
    extent *list = memory;
    uint64_t used = 0;
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        for (uint32_t i = 0; i < bundle->tensors[t].region_count; i++) {
            const xci_region *region = &bundle->tensors[t].regions[i];
            if (region->kind > XCI_KIND_DEVICE)
                continue;
            const uintptr_t begin = (uintptr_t)region->data;
            list[used++] = (extent){
                begin, begin + (region->row_count - 1) * region->pitch_bytes + region->column_bytes,
                region, t};
        }
    const xorcast_status status = used > 1 ? sweep(bundle, list, used) : XORCAST_OK;
    xci_release(bundle->context, memory);
    return status;
}
