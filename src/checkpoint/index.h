/* model.safetensors.index.json: which tensor lies in which shard. It must say what the shards
 * themselves say; a checkpoint without it is complete too. */
#ifndef XCI_INDEX_H
#define XCI_INDEX_H

#include "checkpoint/listing.h"

/* Compares the index, if the listing has one, with the shards. NOT_FOUND that names a shard that
 * is missing; DATA_CORRUPT for anything else that does not agree. */
xorcast_status xci_index_check(xci_listing *listing);

/* Appends the index of these entries, whose shards have these names. */
xorcast_status xci_index_put(xci_buffer *buffer, const xci_entry *entries, uint64_t count,
                             const char *const *shard_names);

#endif
