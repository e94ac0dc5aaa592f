/* What a delta says of the target's files: headers and side files, whole only where they differ
 * from the base's. Tensors are not in here: each target tensor starts from the base's tensor of
 * the same name, dtype and shape, or from zeros, and the delta's mask does the rest.
 *
 *     varint raw_bytes | u8 1: zstd, 0: as it is | payload, which is
 *
 *       u8 kind              0 one file, 1 directory
 *       varint shard_count   for each: [name] how; 0: XXH3-128 of the base's; 1: varint n, header
 *       varint side_count    for each: name, how, varint n; 0: XXH3-128 of the base's; 1: n bytes
 *       varint removed_count for each: name of a side file of the base that the target has not
 *       varint whole_count   tensors that start from zeros
 *
 * A name is a varint length and bytes; names of each list ascend; a checkpoint of one file has
 * no name. Owns the format, and the target's listing once decoded. docs/format.md, "Files", is
 * the law. */
#ifndef XCI_FILES_H
#define XCI_FILES_H

#include "checkpoint/listing.h"

/* Before compression; bounds what a foreign delta may ask for. */
#define XCI_FILES_MAX (UINT64_C(256) << 20)

typedef struct xci_files {
    xorcast_context *context;
    uint8_t *raw;       /* decompressed, what the listing points into; or NULL */
    xci_listing target; /* complete only after resolve */
    xci_hash *side_hashes;
    const char **removed;
    uint64_t removed_count, whole_count;
} xci_files;

/* Appends the attachment of a delta from `base` to `target`. `whole_count` as xci_listing_bundle
 * gave it. */
xorcast_status xci_files_encode(const xci_listing *base, const xci_listing *target,
                                uint64_t whole_count, xci_buffer *out);

/* Reads foreign bytes, which must outlive `files`. DATA_CORRUPT, DATA_LIMIT; nothing is left
 * then. */
xorcast_status xci_files_decode(xorcast_context *context, const uint8_t *bytes, uint64_t count,
                                xci_files *files);
/* Takes from `base` what the target shares with it, and reads the target's headers.
 * BASE_MISMATCH that names a file of the base that is not as the delta expects. */
xorcast_status xci_files_resolve(xci_files *files, const xci_listing *base);
void xci_files_free(xci_files *files);

/* One attachment from those of two consecutive deltas, the older first: what the newer one
 * shares with its base comes from where the older one has it. Allocates the result. */
xorcast_status xci_files_fold(xorcast_context *context, const uint8_t *older, uint64_t older_bytes,
                              const uint8_t *newer, uint64_t newer_bytes, uint8_t **folded_out,
                              uint64_t *folded_bytes_out);
/* The envelope of an attachment: compresses `raw` if that helps. */
xorcast_status xci_files_compress(xci_buffer *out, const xci_buffer *raw);

#endif
