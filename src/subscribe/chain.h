/* The deltas that lead from one version to a later one: found by walking back from the newest
 * through the bases that the manifests name, because steps need not be consecutive. Owns manifests
 * and parts until closed. */
#ifndef XCI_CHAIN_H
#define XCI_CHAIN_H

#include "subscribe/feed.h"

typedef struct xci_chain_link {
    xci_manifest manifest;
    xci_blob *manifest_blob;
    xci_blob **parts; /* NULL until fetched */
    uint64_t part_count;
    xci_form form;
} xci_chain_link;

typedef struct xci_chain {
    xorcast_context *context;
    xci_chain_link *links; /* oldest first */
    uint64_t count, capacity, delta_bytes;
} xci_chain;

/* Fetches the manifests from just after `from` up to `to`. VERSION_GONE: one is not in the log,
 * they are too many, or together the deltas are larger than `bound_bytes`; BASE_MISMATCH: no
 * version starts at `from`. */
xorcast_status xci_chain_open(xci_chain *chain, xci_feed *feed, uint64_t from, uint64_t to,
                              uint64_t bound_bytes, uint64_t deadline_ns);
/* Takes the only link's form for receivers that hold the old weights in place of the plain one.
 * The publisher must offer it. */
xorcast_status xci_chain_take_beside(xci_chain *chain, xci_feed *feed, uint64_t deadline_ns);
void xci_chain_close(xci_chain *chain);

/* The parts of link `index`, each handed to `take`, or kept in the link if `take` is NULL. */
xorcast_status xci_chain_fetch(xci_chain *chain, xci_feed *feed, uint64_t index,
                               uint64_t deadline_ns,
                               xorcast_status (*take)(void *user, uint64_t part, xci_blob *blob),
                               void *user);
/* A link whose parts are kept, as a delta. */
xorcast_source xci_chain_source(xci_chain_link *link);

#endif
