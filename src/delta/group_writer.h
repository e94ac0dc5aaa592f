/* From the encoded chunks of a group to its record: second pass where it helps, head, checksum.
 * One writer for each worker. */
#ifndef XCI_GROUP_WRITER_H
#define XCI_GROUP_WRITER_H

#include "base/arena.h"
#include "base/buffers.h"
#include "codec/second_pass.h"
#include "delta/auto_group_writer.h"
#include "delta/gap_group_writer.h"
#include "frame/record.h"

typedef struct xci_group_writer {
    xorcast_context *context;
    xorcast_encoding encoding; /* with defaults filled in */
    xci_zstd_encoder *zstd;
    uint8_t *second;           /* the payload after the second pass */
    uint64_t second_capacity;
    xci_arena *arena;              /* holds what was written since the last reset, but for */
    xci_buffers *buffers;          /* the records, if there are any; not owned */
    xci_gap_group_writer *gap;     /* where the codec is gap */
    xci_auto_group_writer *choice; /* where it is auto */
} xci_group_writer;

/* Checks the caller's settings and fills in defaults. BAD_ARGUMENT. */
xorcast_status xci_encoding_check(xorcast_context *context, const xorcast_encoding *wanted,
                                  xorcast_encoding *encoding_out);

/* The codec that the backend is to encode a writer's chunks in. */
uint32_t xci_group_writer_codec(const xci_group_writer *writer);

xorcast_status xci_group_writer_open(xci_group_writer *writer, xorcast_context *context,
                                     const xorcast_encoding *encoding);
void xci_group_writer_close(xci_group_writer *writer);
/* All that was written is gone. */
void xci_group_writer_reset(xci_group_writer *writer);

typedef struct xci_written {
    /* head and payload; the writer's until it is reset, or one of its buffers */
    uint8_t *bytes;
    uint64_t count, payload_bytes;
    uint64_t raw_bytes; /* of the payload before the second pass */
    /* `bytes` is an open head alone; the payload is where the record says until both are copied */
    bool open;
} xci_written;

/* `listed` has group, blocks, raw_bytes and the payload as the backend made it; `record_out` is
 * what is written, its blocks and payload the writer's or those of `listed` until the next call.
 * `old`: the bytes of each block's chunk before the change; the record then needs them too. NULL:
 * the plain form. */
xorcast_status xci_group_write(xci_group_writer *writer, const xci_record *listed,
                               const uint8_t *const *old, xci_record *record_out,
                               xci_written *written_out);

/* The same of a group that is encoded in both forms: writes the one beside the old weights, or the
 * plain one where that is not longer. */
xorcast_status xci_group_write_shorter(xci_group_writer *writer, const xci_record *plain,
                                       const xci_record *beside, xci_record *record_out,
                                       xci_written *written_out);

/* Whether what is listed is written as it is; `encoded`: it is (record.h). */
bool xci_group_writer_is_plain(const xci_group_writer *writer, bool encoded);
/* Of such a writer: only the head, open. The payload stays the caller's. */
xorcast_status xci_group_write_open(xci_group_writer *writer, const xci_record *listed,
                                    xci_record *record_out, xci_written *written_out);

#endif
