/* Full reads: the digest of every chunk of a bundle, and of the whole. */
#ifndef XCI_SCAN_H
#define XCI_SCAN_H

#include "bundle/bundle.h"

/* Fills `chunk_digests` (one for each chunk; NULL: not wanted) and sums them up. */
xorcast_status xci_bundle_scan(xorcast_bundle *bundle, xorcast_digest *chunk_digests,
                               xorcast_digest *sum_out);

#endif
