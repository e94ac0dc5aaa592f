/* What files a checkpoint consists of, and which tensors lie where: read from a path, or told by
 * a delta.
 *
 * A file is one shard without a name. In a directory, NAME.safetensors are the shards, with
 * which model.safetensors.index.json must agree if it is there; NAME.tmp, hidden files and
 * directories are not part of the checkpoint; all other files are side files: configuration,
 * tokenizer, the index.
 *
 * Owns names, tables and the files' descriptors. Does not own the bytes of tensors. */
#ifndef XCI_LISTING_H
#define XCI_LISTING_H

#include "base/hash.h"
#include "base/open_files.h"
#include "checkpoint/safetensors.h"

#define XCI_SIDE_FILE_MAX (UINT64_C(64) << 20) /* tokenizers reach 35 MB, indexes 20 MB */
#define XCI_INDEX_NAME "model.safetensors.index.json"

typedef struct xci_shard {
    const char *name, *path; /* name is "" in a checkpoint that is one file */
    xci_file *file;          /* NULL: not on disk */
    uint32_t mode;
    uint64_t file_bytes, header_bytes; /* the header without its 8 bytes of length */
    xci_hash header_hash;
    const uint8_t *header; /* told by a delta: the bytes of the header; else NULL */
} xci_shard;

typedef struct xci_side {
    const char *name, *path;
    xci_file *file; /* NULL: not on disk */
    uint32_t mode;
    uint64_t bytes;
    const uint8_t *content; /* told by a delta: the bytes; else NULL */
} xci_side;

typedef struct xci_listing {
    xorcast_context *context;
    xci_arena *arena;
    xci_open_files *files; /* of shards and sides; NULL for what a delta tells */
    bool directory;
    xci_shard *shards; /* by name */
    uint64_t shard_count;
    xci_side *sides; /* by name */
    uint64_t side_count;
    xci_entries entries; /* by tensor name: the order of the bundle */
} xci_listing;

xorcast_status xci_listing_create(xorcast_context *context, xci_listing *listing);
void xci_listing_free(xci_listing *listing);

/* Opens the files of the checkpoint at `path`, within the gate: an interrupted replacement is
 * finished or discarded first. `listing` is zeroed or created. */
xorcast_status xci_listing_open(xorcast_context *context, const char *path, xci_listing *listing);

/* NULL if there is none. */
const xci_shard *xci_listing_shard(const xci_listing *listing, const char *name);
const xci_side *xci_listing_side(const xci_listing *listing, const char *name);

/* Header and side file from disk into the arena of another listing or a buffer of the caller's. */
xorcast_status xci_shard_read_header(xorcast_context *context, const xci_shard *shard,
                                     uint8_t *out);
xorcast_status xci_side_read(xorcast_context *context, const xci_side *side, uint8_t *out);
/* UNSUPPORTED that names the file, if it is too large to travel in a delta. */
xorcast_status xci_side_check(xorcast_context *context, const xci_side *side);

/* Have both the same names, dtypes and shapes? */
bool xci_listing_same_tensors(const xci_listing *a, const xci_listing *b);

/* A bundle over the listing's tensors, sealed, with the options given. Their bytes are read from
 * the listing's files; or, if `source` is given, from the tensors of the same name, dtype and
 * shape of `source`, and are zero where it has none. `absent_out` (or NULL) gets the number of
 * those. */
xorcast_status xci_listing_bundle(const xci_listing *listing, const xci_listing *source,
                                  const xorcast_bundle_options *options,
                                  xorcast_bundle **bundle_out, uint64_t *absent_out);

#endif
