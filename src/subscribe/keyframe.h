/* Keyframe: makes weights the newest version whatever they are, while publication goes on.
 * Overwrites in bounded pieces, without a second copy on either side; groups whose digest is right
 * already are not fetched. */
#ifndef XCI_KEYFRAME_H
#define XCI_KEYFRAME_H

#include "bundle/bundle.h"
#include "subscribe/feed.h"

/* `chunk_digests`: of the weights as they are, kept up to date. On success the weights are
 * `version_out`, verified; otherwise they are no version. `fetched_out` counts the bytes of groups
 * and deltas, also after a failure: 0 says that nothing was overwritten. */
xorcast_status xci_keyframe(xorcast_bundle *bundle, xci_feed *feed, xorcast_digest *chunk_digests,
                            uint64_t deadline_ns, xorcast_version *version_out,
                            uint64_t *fetched_out);

#endif
