/* The digest of every chunk of a subscriber's weights, as it should be, and their sum: so that an
 * audit can check a slice by itself, and a version is known without reading the weights again. */
#ifndef XCI_CHUNK_DIGESTS_H
#define XCI_CHUNK_DIGESTS_H

#include "subscribe/stage.h"

typedef struct xci_chunk_digests {
    xorcast_bundle *bundle;
    xorcast_digest *chunks;
    xorcast_digest sum;
} xci_chunk_digests;

xorcast_status xci_chunk_digests_open(xci_chunk_digests *digests, xorcast_bundle *bundle);
void xci_chunk_digests_close(xci_chunk_digests *digests);

/* Of the weights as they are now. */
xorcast_status xci_chunk_digests_scan(xci_chunk_digests *digests);
/* Adds what staged chunks change, or takes it back. */
void xci_chunk_digests_move(xci_chunk_digests *digests, const xci_stage *stage, bool forward);
/* After `chunks` were changed. */
void xci_chunk_digests_sum(xci_chunk_digests *digests);

#endif
