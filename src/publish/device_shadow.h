/* The shadow of weights in device memory: beside them, each chunk at its home (bundle/shares.h), or
 * in pinned host memory when the devices have no room for it. Gives the shadow (shadow.h) its
 * memory, its first bytes and their digests, and takes back what it is ahead. Owns that memory. */
#ifndef XCI_DEVICE_SHADOW_H
#define XCI_DEVICE_SHADOW_H

#include "bundle/device_map.h"
#include "publish/ahead.h"

typedef struct xci_device_shadow xci_device_shadow;

/* Gives every tensor of `twin` its place and copies the bytes of `bundle`, whose twin it is.
 * `group_digests`: one for each group. */
xorcast_status xci_device_shadow_open(xorcast_bundle *twin, xorcast_bundle *bundle, bool in_host,
                                      xorcast_digest *const *group_digests,
                                      xci_device_shadow **shadow_out);
void xci_device_shadow_close(xci_device_shadow *shadow); /* NULL is allowed; before the twin goes */

bool xci_device_shadow_on_device(const xci_device_shadow *shadow);
/* Where the bytes of the chunks at home in a share of the bundle are, for that share's device. */
const xci_device_map *xci_device_shadow_map(const xci_device_shadow *shadow, uint32_t share);
/* The same of these chunks only, by their local numbers. */
const xci_device_map *xci_device_shadow_home(const xci_device_shadow *shadow, uint32_t share);
/* A chunk's bytes as they are now; any thread, with the group locked. */
xorcast_status xci_device_shadow_read(xci_device_shadow *shadow, xorcast_context *context,
                                      uint64_t chunk, uint32_t bytes, uint8_t *out);

/* Undoes blocks of one group, in the plain form, on the device; and all of a group. */
xorcast_status xci_device_shadow_undo_record(xci_device_shadow *shadow, const xci_record *record);
xorcast_status xci_device_shadow_undo(xci_device_shadow *shadow, const xci_ahead *ahead,
                                      uint64_t group);
/* Until all that was undone is. */
xorcast_status xci_device_shadow_undone(xci_device_shadow *shadow);

/* The device failed while the shadow moved: nobody knows what it is now. */
void xci_device_shadow_lose(xci_device_shadow *shadow);
/* DEVICE_FAILED once it is lost. */
xorcast_status xci_device_shadow_check(xci_device_shadow *shadow, xorcast_context *context);

#endif
