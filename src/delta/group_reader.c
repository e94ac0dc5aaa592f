/* Group reader: see group_reader.h. */
#include "delta/group_reader.h"

void xci_group_reader_open(xci_group_reader *reader, xorcast_context *context) {
    *reader = (xci_group_reader){.context = context};
}

void xci_group_reader_close(xci_group_reader *reader) {
    if (reader->context == NULL)
        return;
    xci_zstd_decoder_destroy(reader->context, reader->zstd);
    xci_release(reader->context, reader->raw);
    *reader = (xci_group_reader){0};
}

xorcast_status xci_group_reader_reserve(xci_group_reader *reader, uint64_t raw_bytes) {
    if (reader->zstd == NULL)
        TRY(xci_zstd_decoder_create(reader->context, &reader->zstd));
    void *memory = reader->raw;
    const xorcast_status status =
        xci_reserve(reader->context, &memory, &reader->raw_capacity, raw_bytes);
    reader->raw = memory;
    return status;
}

xorcast_status xci_group_read(xci_group_reader *reader, xci_place place, const xci_record *record,
                              const uint8_t **payload_out) {
    *payload_out = record->payload;
    if (!record->second_pass)
        return XORCAST_OK;
    TRY(xci_group_reader_reserve(reader, record->raw_bytes));
    TRY(xci_zstd_decode(reader->context, place, reader->zstd, record->payload, record->stored_bytes,
                        reader->raw, record->raw_bytes));
    *payload_out = reader->raw;
    return XORCAST_OK;
}
