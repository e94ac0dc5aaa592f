/* From a record back to the encoded chunks of its group: the second pass undone. One reader for
 * each worker. */
#ifndef XCI_GROUP_READER_H
#define XCI_GROUP_READER_H

#include "codec/gap_group.h"
#include "codec/second_pass.h"
#include "frame/record.h"

typedef struct xci_group_reader {
    xorcast_context *context;
    xci_zstd_decoder *zstd;
    uint8_t *raw;
    uint64_t raw_capacity;
    xci_gap_group *gap; /* of the record read last, if it has gap blocks */
} xci_group_reader;

void xci_group_reader_open(xci_group_reader *reader, xorcast_context *context);
void xci_group_reader_close(xci_group_reader *reader);

/* Makes everything that reading a record of `raw_bytes` needs, so that reading allocates
 * nothing. */
xorcast_status xci_group_reader_reserve(xci_group_reader *reader, uint64_t raw_bytes);

/* The blocks of `record`, one behind the other as record->blocks lists them, and the parameters of
 * gap blocks: record->raw_bytes. Valid until the next call, or as long as the record's payload.
 * `place` is for messages. Sets `chunk_bytes` of gap blocks. */
xorcast_status xci_group_read(xci_group_reader *reader, xci_place place, const xci_record *record,
                              const uint8_t **payload_out);

/* Decodes block `index` of the record read last, at `bytes`, into the `chunk_bytes` of its
 * chunk's mask; as xci_codec_decode. `old`: the chunk before the change; NULL: it is not known,
 * and a block that needs it is refused with UNSUPPORTED. Any number of threads at a time. */
xorcast_status xci_block_decode(const xci_group_reader *reader, xci_place place,
                                const xci_record *record, uint32_t index, const uint8_t *bytes,
                                const uint8_t *old, uint8_t *mask_out, uint32_t chunk_bytes);

#endif
