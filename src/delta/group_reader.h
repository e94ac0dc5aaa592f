/* From a record back to the encoded chunks of its group: the second pass undone. One reader for
 * each worker. */
#ifndef XCI_GROUP_READER_H
#define XCI_GROUP_READER_H

#include "codec/second_pass.h"
#include "frame/record.h"

typedef struct xci_group_reader {
    xorcast_context *context;
    xci_zstd_decoder *zstd;
    uint8_t *raw;
    uint64_t raw_capacity;
} xci_group_reader;

void xci_group_reader_open(xci_group_reader *reader, xorcast_context *context);
void xci_group_reader_close(xci_group_reader *reader);

/* Makes everything that reading a record of `raw_bytes` needs, so that reading allocates
 * nothing. */
xorcast_status xci_group_reader_reserve(xci_group_reader *reader, uint64_t raw_bytes);

/* The blocks of `record`, one behind the other as record->blocks lists them: record->raw_bytes.
 * Valid until the next call, or as long as the record's payload. `place` is for messages. */
xorcast_status xci_group_read(xci_group_reader *reader, xci_place place, const xci_record *record,
                              const uint8_t **payload_out);

/* The same into the caller's memory: record->raw_bytes at `out`. */
xorcast_status xci_group_read_into(xci_group_reader *reader, xci_place place,
                                   const xci_record *record, uint8_t *out);

#endif
