/* What a put completes: see put_ranges.h. */
#include "publish/put_ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define LAST_PIECES 4u /* that the last ranges of a put are cut into */

static int by_first(const void *a, const void *b) {
    const xci_put_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

xorcast_status xci_put_ranges_open(xci_put_ranges *ranges, const xorcast_bundle *bundle,
                                   xci_put_range *wide, uint64_t wide_count) {
    qsort(wide, wide_count, sizeof *wide, by_first);
    uint64_t joined = 0, pieces = 0;
    for (uint64_t i = 0; i < wide_count; i++) {
        if (joined > 0 && wide[joined - 1].end == wide[i].first)
            wide[joined - 1].end = wide[i].end;
        else
            wide[joined++] = wide[i];
    }
    for (uint64_t i = 0; i < joined; i++)
        pieces += xci_bundle_group_of(bundle, wide[i].end - 1) -
                  xci_bundle_group_of(bundle, wide[i].first) + 1;
    void *memory;
    TRY(xci_allocate_array(bundle->context, pieces, sizeof(xci_put_range), &memory));
    ranges->list = memory;
    for (uint64_t i = 0; i < joined; i++) {
        uint64_t group = xci_bundle_group_of(bundle, wide[i].first);
        for (uint64_t at = wide[i].first; at < wide[i].end; group++) {
            const uint64_t end = xci_min(wide[i].end, bundle->group_first[group + 1]);
            ranges->list[ranges->count++] = (xci_put_range){group, at, end};
            at = end;
        }
    }
    return XORCAST_OK;
}

xorcast_status xci_put_ranges_open_all(xci_put_ranges *ranges, const xorcast_bundle *bundle) {
    const uint64_t *first = bundle->group_first;
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->layout.group_count, sizeof(xci_put_range),
                           &memory));
    *ranges = (xci_put_ranges){memory, bundle->layout.group_count};
    for (uint64_t g = 0; g < ranges->count; g++)
        ranges->list[g] = (xci_put_range){g, first[g], first[g + 1]};
    return XORCAST_OK;
}

void xci_put_ranges_close(xci_put_ranges *ranges, xorcast_context *context) {
    xci_release(context, ranges->list);
    *ranges = (xci_put_ranges){0};
}

/* First pieces come first: two of a group, which it locks, are worked on one after the other. */
xorcast_status xci_put_ranges_cut_last(xci_put_ranges *ranges, xorcast_context *context,
                                       uint32_t threads) {
    const uint64_t kept = ranges->count - threads;
    void *memory;
    TRY(xci_allocate_array(context, kept + LAST_PIECES * threads, sizeof(xci_put_range), &memory));
    xci_put_range *list = memory;
    uint64_t count = kept;
    memcpy(list, ranges->list, kept * sizeof *list);
    for (uint64_t p = 0; p < LAST_PIECES; p++)
        for (uint64_t r = kept; r < ranges->count; r++) {
            const xci_put_range *range = &ranges->list[r];
            const uint64_t chunks = range->end - range->first;
            const xci_put_range piece = {range->group, range->first + chunks * p / LAST_PIECES,
                                         range->first + chunks * (p + 1) / LAST_PIECES};
            if (piece.first < piece.end)
                list[count++] = piece;
        }
    xci_release(context, ranges->list);
    *ranges = (xci_put_ranges){list, count};
    return XORCAST_OK;
}
