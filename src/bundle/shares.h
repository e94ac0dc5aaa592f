/* What a bundle has on each device that its tensors lie on: a share, which is a bundle of the same
 * layout and grid, in the order of the devices' numbers. Its tensors have only the regions that lie
 * there, so that whatever works on a bundle with boxes works on a share. A bundle that lies on its
 * context's device alone is its own and only share.
 *
 * Each chunk has a home: the share where a publisher encodes it and keeps its shadow. That is where
 * its bytes lie; if they lie on several, these take turns, a stretch of groups each; of packed
 * chunks, the first share. A chunk whose bytes lie on other devices too, or only there, is joined
 * at home. One that several shares hold, be it as a replica, is shared. */
#ifndef XCI_SHARES_H
#define XCI_SHARES_H

#include "bundle/bundle.h"

#define XCI_SHARES_MAX 64u

/* Of a bundle whose tensors lie on devices, and whose grid is known. */
xorcast_status xci_shares_open(xorcast_bundle *bundle);
void xci_shares_close(xorcast_bundle *bundle); /* if there are any */

/* Index of a chunk's home, and whether the chunk is joined there, or shared. */
static inline uint32_t xci_home(const xorcast_bundle *bundle, uint64_t chunk) {
    return bundle->homes == NULL ? 0 : bundle->homes[chunk] >> 2;
}
static inline bool xci_joined(const xorcast_bundle *bundle, uint64_t chunk) {
    return bundle->homes != NULL && (bundle->homes[chunk] & 1) != 0;
}
static inline bool xci_shared_chunk(const xorcast_bundle *bundle, uint64_t chunk) {
    return bundle->homes != NULL && (bundle->homes[chunk] & 2) != 0;
}
/* A chunk's number among those with the same home, and how many are at home in a share. */
static inline uint64_t xci_local(const xorcast_bundle *bundle, uint64_t chunk) {
    return bundle->locals == NULL ? chunk : bundle->locals[chunk];
}
static inline uint64_t xci_home_count(const xorcast_bundle *bundle, uint32_t share) {
    return bundle->home_counts == NULL ? bundle->layout.chunk_count : bundle->home_counts[share];
}
/* Bits of the shares that hold any byte of a chunk. */
uint64_t xci_shares_of_chunk(const xorcast_bundle *bundle, uint64_t chunk);
/* Index of the share that has all of a tensor, or of the first of several. */
uint32_t xci_share_of(const xorcast_bundle *bundle, uint64_t tensor, bool *several_out);

#endif
