/* A subscriber's conversation with its publisher: connects, connects again, asks for objects by
 * name, in a pipeline. Knows names and versions, no tensors. */
#ifndef XCI_FEED_H
#define XCI_FEED_H

#include "frame/about.h"
#include "frame/manifest.h"
#include "ship/link.h"

typedef struct xci_feed {
    xorcast_context *context;
    const xci_link *link;
    xci_peer *peer; /* NULL: not connected */
    char *url;
    bool insecure;
    xci_about about;
    uint64_t received_bytes, waited_ns;
} xci_feed;

/* Connects and reads "about". */
xorcast_status xci_feed_open(xci_feed *feed, xorcast_context *context, const char *url,
                             bool insecure, uint64_t deadline_ns);
void xci_feed_close(xci_feed *feed);

/* After a failure that broke the link: the next call connects anew. A publisher of another run or
 * layout is RUN_MISMATCH or LAYOUT_MISMATCH. */
xorcast_status xci_feed_connect(xci_feed *feed, uint64_t deadline_ns);

/* One object. VERSION_GONE, NOT_FOUND leave the link usable. */
xorcast_status xci_feed_get(xci_feed *feed, const char *name, uint64_t limit_bytes,
                            uint64_t deadline_ns, xci_blob **blob_out);

/* Many objects, in order: `name` writes the name of object i, `take` gets its bytes (the feed drops
 * the blob; who wants it longer holds it). */
typedef struct xci_series {
    uint64_t count;
    void (*name)(void *user, uint64_t index, char name[XCI_OBJECT_NAME_BYTES]);
    uint64_t (*limit)(void *user, uint64_t index);
    xorcast_status (*take)(void *user, uint64_t index, xci_blob *blob);
    void *user;
} xci_series;
xorcast_status xci_feed_get_series(xci_feed *feed, const xci_series *series, uint64_t deadline_ns);

xorcast_status xci_feed_newest(xci_feed *feed, uint64_t after, uint64_t deadline_ns,
                               uint64_t *step_out);
void xci_feed_acknowledge(xci_feed *feed, uint64_t step, uint64_t deadline_ns);

/* The manifest of a version; the blob holds what the manifest points into. Free both. */
xorcast_status xci_feed_manifest(xci_feed *feed, uint64_t step, xci_form form, uint64_t deadline_ns,
                                 xci_manifest *manifest_out, xci_blob **blob_out);
/* The step that the publisher knows under a digest, or NOT_FOUND. */
xorcast_status xci_feed_whois(xci_feed *feed, const xorcast_digest *digest, uint64_t deadline_ns,
                              uint64_t *step_out);

#endif
