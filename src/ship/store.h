/* The objects that a host offers: a table from name to blob, safe to use from several threads. Owns
 * one reference to each blob that is in it. Does not make objects and knows no peers. */
#ifndef XCI_STORE_H
#define XCI_STORE_H

#include "base/blob.h"
#include "base/context.h"

typedef struct xci_store xci_store;

/* The store's own memory is taken from `context`, which must outlive it. */
xorcast_status xci_store_create(xorcast_context *context, xci_store **store_out);
void xci_store_destroy(xci_store *store); /* NULL is allowed; drops what is left */

/* Takes a reference of its own. A name that exists gets the new blob. BAD_ARGUMENT for what is no
 * name; after a failure the table is as it was. */
xorcast_status xci_store_put(xci_store *store, const char *name, xci_blob *blob);
void xci_store_drop(xci_store *store, const char *name); /* absent is fine */

/* The blob with one more reference, the caller's; NULL if there is none. */
xci_blob *xci_store_find(xci_store *store, const char *name);

uint64_t xci_store_count(xci_store *store);

#endif
