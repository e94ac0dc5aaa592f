/* Group reader: see group_reader.h. */
#include "delta/group_reader.h"

#include <string.h>

#include "codec/codec.h"

void xci_group_reader_open(xci_group_reader *reader, xorcast_context *context) {
    *reader = (xci_group_reader){.context = context};
}

void xci_group_reader_close(xci_group_reader *reader) {
    if (reader->context == NULL)
        return;
    xci_zstd_decoder_destroy(reader->context, reader->zstd);
    xci_release(reader->context, reader->raw);
    xci_release(reader->context, reader->gap);
    *reader = (xci_group_reader){0};
}

static xorcast_status need_decoder(xci_group_reader *reader) {
    return reader->zstd != NULL ? XORCAST_OK
                                : xci_zstd_decoder_create(reader->context, &reader->zstd);
}

static xorcast_status need_gap(xci_group_reader *reader) {
    void *memory;
    if (reader->gap != NULL)
        return XORCAST_OK;
    TRY(xci_allocate(reader->context, sizeof *reader->gap, &memory));
    reader->gap = memory;
    return XORCAST_OK;
}

static xorcast_status reserve_raw(xci_group_reader *reader, uint64_t raw_bytes) {
    TRY(need_decoder(reader));
    return xci_grow(reader->context, &reader->raw, &reader->raw_capacity, raw_bytes);
}

xorcast_status xci_group_reader_reserve(xci_group_reader *reader, uint64_t raw_bytes) {
    TRY(need_gap(reader));
    return reserve_raw(reader, raw_bytes);
}

/* The parameters lie behind the blocks. */
static xorcast_status read_params(xci_group_reader *reader, xci_place place,
                                  const xci_record *record, const uint8_t *payload) {
    if (record->params_bytes == 0)
        return XORCAST_OK;
    TRY(need_gap(reader));
    xci_gap_group *gap = reader->gap;
    for (uint32_t i = 0; i < record->block_count; i++)
        gap->is_gap[i] = record->blocks[i].codec == XORCAST_CODEC_GAP;
    if (!xci_gap_group_read(gap, payload + record->raw_bytes - record->params_bytes,
                            record->params_bytes, record->block_count))
        FAIL_AT(reader->context, XORCAST_DATA_CORRUPT, place,
                "the parameters of group %llu are damaged; fetch the delta again",
                (unsigned long long)record->group);
    for (uint32_t i = 0; i < record->block_count; i++)
        record->blocks[i].chunk_bytes = gap->places[i].chunk_bytes;
    return XORCAST_OK;
}

xorcast_status xci_group_read(xci_group_reader *reader, xci_place place, const xci_record *record,
                              const uint8_t **payload_out) {
    *payload_out = record->payload;
    if (record->second_pass) {
        TRY(reserve_raw(reader, record->raw_bytes));
        TRY(xci_zstd_decode(reader->context, place, reader->zstd, record->payload,
                            record->stored_bytes, reader->raw, record->raw_bytes));
        *payload_out = reader->raw;
    }
    return read_params(reader, place, record, *payload_out);
}

xorcast_status xci_block_decode(const xci_group_reader *reader, xci_place place,
                                const xci_record *record, uint32_t index, const uint8_t *bytes,
                                const uint8_t *old, uint8_t *mask_out, uint32_t chunk_bytes) {
    const xci_block *block = &record->blocks[index];
    if (block->codec != XORCAST_CODEC_GAP)
        return xci_codec_decode(reader->context, place, block->codec, bytes, block->bytes, mask_out,
                                chunk_bytes);
    const bool fits = reader->gap->places[index].chunk_bytes == chunk_bytes;
    if (fits && old == NULL && xci_gap_knows_old(reader->gap, index))
        FAIL_AT(reader->context, XORCAST_UNSUPPORTED, place,
                "a chunk is encoded for receivers that hold the weights before it; fetch the plain "
                "form of the delta");
    if (!fits || !xci_gap_decode(reader->gap, index, bytes, block->bytes, old, mask_out))
        FAIL_AT(reader->context, XORCAST_DATA_CORRUPT, place,
                "An encoded chunk (gap, %u bytes) does not decode to %u bytes; fetch the delta "
                "again.",
                block->bytes, chunk_bytes);
    return XORCAST_OK;
}
