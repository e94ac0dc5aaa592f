/* The steps of sealing, in the order bundle.c takes them. Private to the folder. */
#ifndef XCI_SEAL_H
#define XCI_SEAL_H

#include "bundle/bundle.h"

/* Adds an alias; both strings lie in the arena. */
xorcast_status xci_bundle_list_alias(xorcast_bundle *bundle, const char *name, const char *target);

/* Sorts by name, refuses duplicates, resolves aliases, refuses overlapping memory (names.c,
 * overlap.c). */
xorcast_status xci_seal_names(xorcast_bundle *bundle);
xorcast_status xci_seal_overlaps(xorcast_bundle *bundle);
/* By name, once sorted; NULL: there is none (names.c). */
const xci_tensor *xci_tensor_named(const xorcast_bundle *bundle, const char *name);
const xci_alias *xci_alias_named(const xorcast_bundle *bundle, const char *name);
/* Chunks, packing and groups (grid.c). */
xorcast_status xci_seal_grid(xorcast_bundle *bundle);
/* Fingerprint (layout.c). */
xorcast_status xci_seal_fingerprint(xorcast_bundle *bundle);
/* What working with the bundle takes at most (costs.c). */
void xci_seal_costs(xorcast_bundle *bundle);
/* And on its device, once it is mapped there. */
void xci_seal_device_costs(xorcast_bundle *bundle);

#endif
