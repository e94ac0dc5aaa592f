/* The manifest of a delta: which version leads to which, what layout, what changed, and the parts
 * that hold it, each by its hash. Written last; nothing counts before it. docs/format.md,
 * "Manifest", is the law. */
#ifndef XCI_MANIFEST_H
#define XCI_MANIFEST_H

#include "base/bytes.h"
#include "base/context.h"
#include "base/hash.h"
#include "frame/record.h"

#define XCI_FORMAT_VERSION 1u
#define XCI_HEAD_BYTES 16u
#define XCI_FOOT_BYTES 32u
#define XCI_MANIFEST_MAX                                                                           \
    (UINT64_C(1) << 30) /* 445 GB in 4 MiB groups need 2.5 MB; files with headers more */
#define XCI_PART_BYTES (UINT64_C(4) << 20)         /* a part is closed once it has this many */
#define XCI_PART_MAX                                                                               \
    (UINT64_C(192) << 20) /* and cannot be larger: one record of the largest group */
#define XCI_GROUPS_MAX (UINT64_C(1) << 32)

typedef struct xci_part {
    uint64_t bytes, group_count;
    xci_hash hash;
} xci_part;

typedef struct xci_manifest {
    xorcast_delta_info info; /* delta_bytes and entropy_bound_bytes are not stored */
    xorcast_encoding encoding;
    uint64_t layout_group_count, layout_chunk_count;
    xci_part *parts;         /* info.part_count of them */
    /* structure of checkpoint files, or NULL; points into the bytes it was read from */
    const uint8_t *attachment;
    uint64_t attachment_bytes;
} xci_manifest;

/* The 16 bytes that every delta begins with. */
void xci_head_write(uint8_t out[XCI_HEAD_BYTES]);
xorcast_status xci_head_read(xorcast_context *context, const uint8_t bytes[XCI_HEAD_BYTES]);

/* Manifest and foot, in a new block of memory: the caller's to release. */
xorcast_status xci_manifest_write(xorcast_context *context, const xci_manifest *manifest,
                                  uint8_t **bytes_out, uint64_t *count_out);
/* The foot alone: how many bytes the manifest before it has. */
xorcast_status xci_foot_read(xorcast_context *context, const uint8_t bytes[XCI_FOOT_BYTES],
                             uint64_t *manifest_bytes_out);
/* Manifest and foot as written above. `parts` of the result is allocated; free with
 * xci_manifest_free. */
xorcast_status xci_manifest_read(xorcast_context *context, const uint8_t *bytes, uint64_t count,
                                 xci_manifest *manifest_out);
void xci_manifest_free(xorcast_context *context, xci_manifest *manifest);

/* Limits that records of this delta obey. */
xci_record_limits xci_manifest_limits(const xci_manifest *manifest);

#endif
