/* The shadow: the trainer's copy of what is published, whole, in memory of its own. Each group
 * moves on while a version is put together, when its bytes are in the cache anyway, and remembers
 * by which blocks (ahead.h). Whoever asks is answered with the published bytes: group by group
 * (keyframes, digests), and each answer says which step the group is of. A version that is dropped
 * is taken back.
 *
 * Owns the copy, the digest of each group and what it is ahead. Does not own the layout: it is a
 * twin of the publisher's bundle. */
#ifndef XCI_SHADOW_H
#define XCI_SHADOW_H

#include "base/blob.h"
#include "bundle/bundle.h"
#include "publish/ahead.h"

typedef struct xci_shadow xci_shadow;

/* Copies the bundle's present bytes and digests them: they are the version `step`. */
xorcast_status xci_shadow_open(xorcast_bundle *bundle, uint64_t step, xci_shadow **shadow_out);
void xci_shadow_close(xci_shadow *shadow); /* NULL is allowed */

xorcast_bundle *xci_shadow_bundle(xci_shadow *shadow);
xorcast_digest xci_shadow_digest(const xci_shadow *shadow);
/* Bytes of tensor `t`. */
const uint8_t *xci_shadow_tensor(const xci_shadow *shadow, uint64_t t);

/* A group's lock, under which it is moved and its `ahead` is touched. */
void xci_shadow_lock(xci_shadow *shadow, uint64_t group);
void xci_shadow_unlock(xci_shadow *shadow, uint64_t group);
xci_ahead *xci_shadow_ahead(xci_shadow *shadow, uint64_t group);
/* Blocks that have just moved a locked group are taken back: the pool's worker `worker` could not
 * keep them. */
void xci_shadow_undo(xci_shadow *shadow, uint32_t worker, const xci_record *record);

/* All groups are what is published now, as `target`. */
void xci_shadow_settle(xci_shadow *shadow, const xorcast_version *target);
/* All groups are what was published before. */
void xci_shadow_take_back(xci_shadow *shadow);

/* Answers for subscribers; any thread. Group: step (8 bytes), then the bytes of its chunks.
 * Digests of `count` groups from `first`: step and digest (24 bytes) each. */
xorcast_status xci_shadow_group(xci_shadow *shadow, xorcast_context *context, uint64_t group,
                                xci_blob **blob_out);
xorcast_status xci_shadow_digests(xci_shadow *shadow, xorcast_context *context, uint64_t first,
                                  uint64_t count, xci_blob **blob_out);

#endif
