/* Group reader: see group_reader.h. */
#include "delta/group_reader.h"

#include <string.h>

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

static xorcast_status need_decoder(xci_group_reader *reader) {
    return reader->zstd != NULL ? XORCAST_OK
                                : xci_zstd_decoder_create(reader->context, &reader->zstd);
}

xorcast_status xci_group_reader_reserve(xci_group_reader *reader, uint64_t raw_bytes) {
    TRY(need_decoder(reader));
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
    TRY(xci_group_read_into(reader, place, record, reader->raw));
    *payload_out = reader->raw;
    return XORCAST_OK;
}

xorcast_status xci_group_read_into(xci_group_reader *reader, xci_place place,
                                   const xci_record *record, uint8_t *out) {
    if (!record->second_pass) {
        memcpy(out, record->payload, record->raw_bytes);
        return XORCAST_OK;
    }
    TRY(need_decoder(reader));
    return xci_zstd_decode(reader->context, place, reader->zstd, record->payload,
                           record->stored_bytes, out, record->raw_bytes);
}
