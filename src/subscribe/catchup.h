/* Catching up: from the version that the weights are to a later one. One delta is staged as it
 * arrives; several are folded to one first, so that there is one pause however far behind the
 * sampler was. */
#ifndef XCI_CATCHUP_H
#define XCI_CATCHUP_H

#include "subscribe/feed.h"
#include "subscribe/stage.h"

/* `deltas_out`: how many it took. A failure drops what was staged. */
xorcast_status xci_catchup(xci_stage *stage, xci_feed *feed, const xorcast_version *from,
                           uint64_t to_step, uint64_t bound_bytes, uint64_t deadline_ns,
                           uint64_t *deltas_out);

#endif
