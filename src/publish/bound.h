/* The order-0 entropy bound of a delta: what an ideal coder that knows only how many places
 * changed in each tensor, and how often each XOR value occurs there, would need. Places are bytes;
 * in elements of 4 or 8 bytes each byte plane is counted by itself, and where two numbers share a
 * byte (U8, F4) places are nibbles. A yardstick for ratios; nothing is decoded from it. */
#ifndef XCI_BOUND_H
#define XCI_BOUND_H

#include "bundle/bundle.h"
#include "frame/record.h"

typedef struct xci_bound xci_bound;

xorcast_status xci_bound_open(xorcast_bundle *bundle, xci_bound **bound_out);
void xci_bound_close(xorcast_context *context, xci_bound *bound); /* NULL is allowed */
void xci_bound_reset(xci_bound *bound, const xorcast_bundle *bundle);
/* Counts the changed bytes of a group. `record` has its raw payload. Any thread. */
xorcast_status xci_bound_add(xci_bound *bound, xorcast_bundle *bundle, const xci_record *record);
double xci_bound_bytes(const xci_bound *bound, const xorcast_bundle *bundle);

#endif
