/* The shadow: the trainer's copy of what is published, whole, in memory of its own. Moves only when
 * a version has been published. Group by group it can be read (keyframes, digests) while it moves;
 * each answer says which step the group is of.
 *
 * Owns the copy and the digest of each group. Does not own the layout: it is a twin of the
 * publisher's bundle. */
#ifndef XCI_SHADOW_H
#define XCI_SHADOW_H

#include "base/blob.h"
#include "bundle/bundle.h"
#include "delta/group_apply.h"
#include "frame/manifest.h"

typedef struct xci_shadow xci_shadow;

/* Copies the bundle's present bytes and digests them: they are the version `step`. */
xorcast_status xci_shadow_open(xorcast_bundle *bundle, uint64_t step, xci_shadow **shadow_out);
void xci_shadow_close(xci_shadow *shadow); /* NULL is allowed */

xorcast_bundle *xci_shadow_bundle(xci_shadow *shadow);
xorcast_digest xci_shadow_digest(const xci_shadow *shadow);
/* Bytes of tensor `t`. */
const uint8_t *xci_shadow_tensor(const xci_shadow *shadow, uint64_t t);

/* A published version on its way into the shadow. Prepare parses its parts and reserves all memory,
 * so that apply cannot fail; then each group's change of digest is given, then the move is applied,
 * or forgotten. */
typedef struct xci_shadow_move xci_shadow_move;
xorcast_status xci_shadow_prepare(xci_shadow *shadow, const xci_manifest *manifest,
                                  xci_blob *const *parts, uint64_t part_count,
                                  xci_shadow_move **move_out);
void xci_shadow_change(xci_shadow_move *move, uint64_t group, const xorcast_digest *change);
void xci_shadow_apply(xci_shadow *shadow, xci_shadow_move *move); /* and frees it */
void xci_shadow_forget(xci_shadow *shadow, xci_shadow_move *move);

/* Answers for subscribers; any thread. Group: step (8 bytes), then the bytes of its chunks. Digests
 * of `count` groups from `first`: step and digest (24 bytes) each. */
xorcast_status xci_shadow_group(xci_shadow *shadow, xorcast_context *context, uint64_t group,
                                xci_blob **blob_out);
xorcast_status xci_shadow_digests(xci_shadow *shadow, xorcast_context *context, uint64_t first,
                                  uint64_t count, xci_blob **blob_out);

#endif
