/* Writes a delta: collects group records into parts, hands each finished part on, and makes the
 * manifest at the end. One writer serves files (parts follow each other in a sink) and
 * publication (each part is an object of its own). */
#ifndef XCI_DELTA_WRITER_H
#define XCI_DELTA_WRITER_H

#include "base/blob.h"
#include "frame/manifest.h"

/* Takes one part; the blob stays the writer's. */
typedef xorcast_status (*xci_part_deliver)(void *user, uint64_t index, xci_blob *part);

typedef struct xci_delta_writer {
    xorcast_context *context;
    xci_part_deliver deliver;
    void *user;
    uint8_t *open_part; /* the part being filled */
    uint64_t open_bytes, open_capacity, open_groups, open_payload;
    uint64_t group_count, payload_bytes;
    xci_part *parts;
    uint64_t part_count, parts_capacity;
} xci_delta_writer;

void xci_delta_writer_begin(xci_delta_writer *writer, xorcast_context *context,
                            xci_part_deliver deliver, void *user);
/* Adds a whole record (head and payload). Groups come in ascending order. */
xorcast_status xci_delta_writer_add(xci_delta_writer *writer, const uint8_t *record,
                                    uint64_t record_bytes, uint64_t payload_bytes);
/* Adds a whole part, made elsewhere, between records that ended one. Its payload is that of all its
 * records. */
xorcast_status xci_delta_writer_add_part(xci_delta_writer *writer, xci_blob *blob,
                                         const xci_part *part, uint64_t payload_bytes);
/* Delivers the last part, fills in the manifest's parts and sizes, and makes manifest and foot. */
xorcast_status xci_delta_writer_finish(xci_delta_writer *writer, xci_manifest *manifest,
                                       xci_blob **manifest_out);
/* Frees; also after a failure. The manifest's parts point into the writer until then. */
void xci_delta_writer_end(xci_delta_writer *writer);

/* The writer over a sink: head, parts, manifest, in order. */
typedef struct xci_sink_writer {
    xci_delta_writer writer;
    const xorcast_sink *sink;
} xci_sink_writer;
xorcast_status xci_sink_writer_begin(xci_sink_writer *writer, xorcast_context *context,
                                     const xorcast_sink *sink);
xorcast_status xci_sink_writer_finish(xci_sink_writer *writer, xci_manifest *manifest);

#endif
