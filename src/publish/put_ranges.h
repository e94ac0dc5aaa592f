/* Ranges of chunks: what one put completes, cut so that the pool has work. */
#ifndef XCI_PUT_RANGES_H
#define XCI_PUT_RANGES_H

#include "bundle/bundle.h"

/* Chunks [first, end) of one group. */
typedef struct xci_put_range {
    uint64_t group, first, end;
} xci_put_range;

typedef struct xci_put_ranges {
    xci_put_range *list;
    uint64_t count;
} xci_put_ranges;

/* Of `wide` ones, which no group bounds and which are sorted here: neighbours are joined, then cut
 * at the ends of groups. */
xorcast_status xci_put_ranges_open(xci_put_ranges *ranges, const xorcast_bundle *bundle,
                                   xci_put_range *wide, uint64_t wide_count);
/* One for each group of the bundle. */
xorcast_status xci_put_ranges_open_all(xci_put_ranges *ranges, const xorcast_bundle *bundle);
void xci_put_ranges_close(xci_put_ranges *ranges, xorcast_context *context);
/* Cuts the last of them, one for each thread, so that the threads end together. There must be as
 * many. */
xorcast_status xci_put_ranges_cut_last(xci_put_ranges *ranges, xorcast_context *context,
                                       uint32_t threads);

#endif
