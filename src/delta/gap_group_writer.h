/* A group's changed chunks in the gap codec: from what the backend lists to blocks and
 * parameters. One for each group writer. */
#ifndef XCI_GAP_GROUP_WRITER_H
#define XCI_GAP_GROUP_WRITER_H

#include "codec/gap_encoder.h"
#include "frame/record.h"

typedef struct xci_gap_group_writer xci_gap_group_writer;

/* What a chunk becomes if its gap block would have `limit` bytes or more. */
typedef struct xci_gap_rival {
    const uint8_t *block;
    uint32_t codec, bytes, limit;
} xci_gap_rival;

xorcast_status xci_gap_group_writer_open(xorcast_context *context,
                                         xci_gap_group_writer **writer_out);
void xci_gap_group_writer_close(xorcast_context *context, xci_gap_group_writer *writer);

/* `listed` has blocks that are lists of words or raw, each with its chunk's bytes, and their
 * payload. In the result they are gap blocks, or their rivals where gap is not below its limit;
 * its blocks and payload are the writer's until the next call. `old`: the bytes of each block's
 * chunk before the change, for the form that needs them; NULL: the plain form. `rivals`: one for
 * each block; NULL: raw, where gap is not smaller. */
xorcast_status xci_gap_group_write(xorcast_context *context, xci_gap_group_writer *writer,
                                   const xci_record *listed, const uint8_t *const *old,
                                   const xci_gap_rival *rivals, xci_record *record_out);

#endif
