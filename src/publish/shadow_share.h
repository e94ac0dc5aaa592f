/* What of a shadow lies on one of several devices: the chunks whose home that share of the bundle
 * is. As a bundle of its own, whose tensors are rows of one byte, so that a box can be any run of
 * chunks. Owns its memory and tables. */
#ifndef XCI_SHADOW_SHARE_H
#define XCI_SHADOW_SHARE_H

#include "bundle/device_map.h"
#include "bundle/shares.h"

typedef struct xci_shadow_share {
    xorcast_context *context;
    xorcast_bundle *part;     /* the shadow's twin, if it has but one share or lies on the host */
    bool own_part;            /* or else one of its own */
    xci_device_memory memory; /* of the chunks; none on the host */
    xci_device_map *map;      /* where the chunks are, for this device */
    xci_device_map *home;     /* the same of those at home here only, one behind the other */
} xci_shadow_share;

/* Gives the chunks at home in share `index` of `bundle` their places; `twin` is the shadow's, and
 * has places already if it lies `in_host`. */
xorcast_status xci_shadow_share_open(xci_shadow_share *share, xorcast_bundle *bundle,
                                     xorcast_bundle *twin, uint32_t index, bool in_host);
void xci_shadow_share_close(xci_shadow_share *share); /* zeroed is allowed */

#endif
