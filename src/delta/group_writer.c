/* Group writer: see group_writer.h. */
#include "delta/group_writer.h"

#include <string.h>

#include "codec/codec.h"

#define SECOND_PASS_MIN 64u /* fewer bytes than a zstd frame saves on are left alone */

xorcast_status xci_encoding_check(xorcast_context *context, const xorcast_encoding *wanted,
                                  xorcast_encoding *encoding_out) {
    if (wanted->struct_size != sizeof *wanted)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "the encoding is not initialised; use XORCAST_ENCODING_INIT");
    xorcast_encoding encoding = *wanted;
    if (encoding.codec == 0)
        encoding.codec = XORCAST_CODEC_LZ4;
    if (encoding.zstd_level == 0)
        encoding.zstd_level = 1;
    if (xci_codec_name(encoding.codec) == NULL)
        FAIL(context, XORCAST_BAD_ARGUMENT, "there is no codec %u", encoding.codec);
    if (encoding.old_weights > 1 ||
        (encoding.old_weights == 1 && encoding.codec < XORCAST_CODEC_GAP))
        FAIL(context, XORCAST_BAD_ARGUMENT, "old_weights is 0, or 1 with the codecs gap and auto");
    if (encoding.receiver > XORCAST_RECEIVER_ENGINE ||
        (encoding.codec != XORCAST_CODEC_AUTO &&
         (encoding.receiver != 0 || encoding.link_bytes_per_second != 0)))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "receiver and link_bytes_per_second are for the codec auto; a receiver is an "
             "xorcast_receiver");
    if (encoding.second_pass > 1 || encoding.zstd_level < 1 ||
        encoding.zstd_level > XCI_ZSTD_MAX_LEVEL)
        FAIL(context, XORCAST_BAD_ARGUMENT, "second_pass is 0 or 1, zstd_level 1 to %d",
             XCI_ZSTD_MAX_LEVEL);
    *encoding_out = encoding;
    return XORCAST_OK;
}

xorcast_status xci_group_writer_open(xci_group_writer *writer, xorcast_context *context,
                                     const xorcast_encoding *encoding) {
    *writer = (xci_group_writer){.context = context, .encoding = *encoding};
    TRY(xci_arena_create(context, &writer->arena));
    if (encoding->codec == XORCAST_CODEC_GAP)
        TRY(xci_gap_group_writer_open(context, &writer->gap));
    const xci_prices prices = xci_prices_of(encoding);
    if (encoding->codec == XORCAST_CODEC_AUTO)
        TRY(xci_auto_group_writer_open(context, &prices, &writer->choice));
    if (encoding->second_pass == 0)
        return xci_zstd_encoder_create(context, encoding->zstd_level, &writer->zstd);
    return XORCAST_OK;
}

void xci_group_writer_close(xci_group_writer *writer) {
    if (writer->context == NULL)
        return;
    xci_zstd_encoder_destroy(writer->context, writer->zstd);
    xci_gap_group_writer_close(writer->context, writer->gap);
    xci_auto_group_writer_close(writer->context, writer->choice);
    xci_arena_destroy(writer->arena);
    xci_release(writer->context, writer->second);
    *writer = (xci_group_writer){0};
}

void xci_group_writer_reset(xci_group_writer *writer) {
    xci_arena_reset(writer->arena);
}

uint32_t xci_group_writer_codec(const xci_group_writer *writer) {
    return writer->choice != NULL ? XORCAST_CODEC_GAP : writer->encoding.codec;
}

static xorcast_status run_second_pass(xci_group_writer *writer, xci_record *record) {
    TRY(xci_grow(writer->context, &writer->second, &writer->second_capacity, record->raw_bytes));
    uint64_t smaller;
    TRY(xci_zstd_encode(writer->context, writer->zstd, record->payload, record->raw_bytes,
                        writer->second, &smaller));
    if (smaller == 0)
        return XORCAST_OK;
    record->second_pass = true;
    record->payload = writer->second;
    record->stored_bytes = smaller;
    return XORCAST_OK;
}

/* `plain`: what is listed for the plain form. */
static xorcast_status encode_group(xci_group_writer *writer, const xci_record *listed,
                                   const xci_record *plain, const uint8_t *const *old,
                                   xci_record *record) {
    if (writer->choice != NULL && listed->encoded)
        return xci_auto_group_pack(writer->context, writer->choice, writer->zstd, listed, plain,
                                   record);
    if (writer->choice != NULL)
        return xci_auto_group_write(writer->context, writer->choice, writer->zstd, listed, old,
                                    record);
    *record = *listed;
    if (writer->gap != NULL && !listed->encoded)
        TRY(xci_gap_group_write(writer->context, writer->gap, listed, old, NULL, record));
    record->stored_bytes = record->raw_bytes;
    if (writer->zstd != NULL && record->raw_bytes >= SECOND_PASS_MIN)
        TRY(run_second_pass(writer, record));
    return XORCAST_OK;
}

/* Beside the old weights, from what `beside` lists and `old`, where that is shorter: it is not for
 * every kind of change. */
static xorcast_status encode_shorter(xci_group_writer *writer, const xci_record *listed,
                                     const xci_record *beside, const uint8_t *const *old,
                                     xci_record *record) {
    TRY(encode_group(writer, listed, listed, NULL, record));
    const uint64_t plain_bytes = record->stored_bytes;
    TRY(encode_group(writer, beside, listed, old, record));
    return record->stored_bytes < plain_bytes ? XORCAST_OK
                                              : encode_group(writer, listed, listed, NULL, record);
}

static xorcast_status take_room(xci_group_writer *writer, uint64_t count, uint8_t **bytes_out) {
    void *memory;
    if (writer->buffers != NULL)
        return xci_buffers_take(writer->buffers, count, bytes_out);
    TRY(xci_arena_take(writer->arena, count, &memory));
    *bytes_out = memory;
    return XORCAST_OK;
}

static xorcast_status keep_written(xci_group_writer *writer, const xci_record *record,
                                   xci_written *written_out) {
    uint8_t *bytes;
    const uint64_t head_bound = xci_record_head_bound(record->block_count);
    TRY(take_room(writer, head_bound + record->stored_bytes, &bytes));
    const uint64_t head_bytes = xci_record_write_head(record, bytes);
    memcpy(bytes + head_bytes, record->payload, record->stored_bytes);
    *written_out = (xci_written){bytes, head_bytes + record->stored_bytes, record->stored_bytes,
                                 record->raw_bytes, false};
    return XORCAST_OK;
}

xorcast_status xci_group_write(xci_group_writer *writer, const xci_record *listed,
                               const uint8_t *const *old, xci_record *record_out,
                               xci_written *written_out) {
    xci_record record;
    if (old != NULL)
        TRY(encode_shorter(writer, listed, listed, old, &record));
    else
        TRY(encode_group(writer, listed, listed, NULL, &record));
    TRY(keep_written(writer, &record, written_out));
    *record_out = record;
    return XORCAST_OK;
}

xorcast_status xci_group_write_shorter(xci_group_writer *writer, const xci_record *plain,
                                       const xci_record *beside, xci_record *record_out,
                                       xci_written *written_out) {
    xci_record record;
    TRY(encode_shorter(writer, plain, beside, NULL, &record));
    TRY(keep_written(writer, &record, written_out));
    *record_out = record;
    return XORCAST_OK;
}

bool xci_group_writer_is_plain(const xci_group_writer *writer, bool encoded) {
    return writer->zstd == NULL && (encoded || (writer->gap == NULL && writer->choice == NULL));
}

xorcast_status xci_group_write_open(xci_group_writer *writer, const xci_record *listed,
                                    xci_record *record_out, xci_written *written_out) {
    void *memory;
    TRY(xci_arena_take(writer->arena, xci_record_head_bound(listed->block_count), &memory));
    *record_out = *listed;
    record_out->stored_bytes = listed->raw_bytes;
    const uint64_t head_bytes = xci_record_write_open(record_out, memory);
    *written_out = (xci_written){memory, head_bytes + listed->raw_bytes, listed->raw_bytes,
                                 listed->raw_bytes, true};
    return XORCAST_OK;
}
