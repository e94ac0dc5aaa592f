/* The safetensors format: 8 bytes with the length of a JSON header, the header, and the tensors'
 * bytes.
 *
 *     0        8                 8 + n                              end of file
 *     | n      | {"name": {...}} | bytes of tensors, without gap    |
 *
 * The parser takes foreign headers and accepts only those whose tensors tile the rest of the
 * file exactly. Does not read files, and does not know that several of them may form a
 * checkpoint. */
#ifndef XCI_SAFETENSORS_H
#define XCI_SAFETENSORS_H

#include "base/arena.h"
#include "checkpoint/buffer.h"

#define XCI_HEADER_MAX UINT64_C(100000000) /* the limit of the reference implementation */
#define XCI_HEADER_PREFIX 8u

/* A tensor in a file. Strings and shape lie in the arena that the parser was given. */
typedef struct xci_entry {
    const char *name, *dtype;
    const uint64_t *shape;
    uint32_t rank;
    uint32_t shard;         /* whose header names it */
    uint64_t offset, bytes; /* in the file */
} xci_entry;

/* Tensors of one or more headers. Zeroed before use; freed with xci_entries_free. */
typedef struct xci_entries {
    xorcast_context *context;
    xci_entry *at;
    uint64_t count, capacity; /* capacity in bytes */
} xci_entries;

void xci_entries_free(xci_entries *entries);
xorcast_status xci_entries_add(xci_entries *entries, const xci_entry *entry);
/* Orders by name; DATA_CORRUPT if a name comes twice, within one shard or in two. */
xorcast_status xci_entries_sort(xci_entries *entries);
/* NULL if there is none. Sorted entries only. */
const xci_entry *xci_entries_find(const xci_entries *entries, const char *name);

/* The length of the header from the first 8 bytes of a file: DATA_TRUNCATED or DATA_LIMIT if it
 * does not fit the file or the limit. */
xorcast_status xci_safetensors_length(xorcast_context *context, const char *path,
                                      const uint8_t prefix[XCI_HEADER_PREFIX], uint64_t file_bytes,
                                      uint64_t *header_bytes_out);

/* Appends the tensors of one header, in the order of their bytes, and says in `data_bytes_out`
 * how much data follows it. `header` is the JSON alone. `path` is for messages. DATA_CORRUPT,
 * DATA_LIMIT. */
xorcast_status xci_safetensors_parse(xci_entries *entries, xci_arena *arena, const char *path,
                                     uint32_t shard, const uint8_t *header, uint64_t header_bytes,
                                     uint64_t *data_bytes_out);

/* Appends prefix and header for these tensors, whose bytes follow each other in this order, and
 * sets their offsets. Padded with spaces, so that the data begins at a multiple of 8. */
xorcast_status xci_safetensors_put_header(xci_buffer *buffer, xci_entry *entries, uint64_t count);

#endif
