/* Groups in the gap codec: see gap_group_writer.h. */
#include "delta/gap_group_writer.h"

#include <string.h>

#include "codec/codec.h"
#include "codec/words_block.h"

struct xci_gap_group_writer {
    xci_gap_encoder encoder;
    xci_gap_input *inputs;
    uint8_t *kept; /* for each input: its block is of the gap codec */
    uint8_t *scratch;
    uint8_t *payload;
    xci_block *blocks;
    uint64_t inputs_capacity, kept_capacity, scratch_capacity, payload_capacity, blocks_capacity;
};

xorcast_status xci_gap_group_writer_open(xorcast_context *context,
                                         xci_gap_group_writer **writer_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_gap_group_writer), &memory));
    *writer_out = memory;
    return XORCAST_OK;
}

void xci_gap_group_writer_close(xorcast_context *context, xci_gap_group_writer *writer) {
    if (writer == NULL)
        return;
    xci_release(context, writer->inputs);
    xci_release(context, writer->kept);
    xci_release(context, writer->scratch);
    xci_release(context, writer->payload);
    xci_release(context, writer->blocks);
    xci_release(context, writer);
}

/* Room for everything that the record can become. */
static xorcast_status reserve(xorcast_context *context, xci_gap_group_writer *writer,
                              const xci_record *record) {
    const uint64_t count = record->block_count;
    uint64_t bytes = 0, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += record->blocks[i].chunk_bytes;
        most = xci_max(most, record->blocks[i].chunk_bytes);
    }
    TRY(xci_grow(context, &writer->inputs, &writer->inputs_capacity,
                 count * sizeof(xci_gap_input)));
    TRY(xci_grow(context, &writer->kept, &writer->kept_capacity, count));
    TRY(xci_grow(context, &writer->scratch, &writer->scratch_capacity, XCI_GAP_SCRATCH(most)));
    TRY(xci_grow(context, &writer->payload, &writer->payload_capacity,
                 bytes + XCI_GAP_SLACK + XCI_GAP_PARAMS_BYTES(count)));
    return xci_grow(context, &writer->blocks, &writer->blocks_capacity, count * sizeof(xci_block));
}

static void list_inputs(xci_gap_group_writer *writer, const xci_record *record,
                        const uint8_t *const *old) {
    const uint8_t *at = record->payload;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        writer->inputs[i] = (xci_gap_input){.block = at,
                                            .block_bytes = block->bytes,
                                            .raw = block->codec == XORCAST_CODEC_RAW,
                                            .bytes = block->chunk_bytes,
                                            .element_bytes = block->element_bytes,
                                            .old = old != NULL ? old[i] : NULL};
        at += block->bytes;
    }
}

static uint32_t write_raw(const xci_gap_input *input, uint8_t *out) {
    if (input->raw)
        memcpy(out, input->block, input->bytes);
    else
        (void)xci_words_decode(input->block, input->block_bytes, out, input->bytes);
    return input->bytes;
}

static uint32_t write_rival(const xci_gap_input *input, const xci_gap_rival *rival, uint8_t *out) {
    if (rival == NULL)
        return write_raw(input, out);
    memcpy(out, rival->block, rival->bytes);
    return rival->bytes;
}

/* All blocks; returns their bytes. */
static uint64_t write_blocks(xci_gap_group_writer *writer, xci_record *record,
                             const xci_gap_rival *rivals, bool no_gap) {
    uint8_t *at = writer->payload;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_gap_input *input = &writer->inputs[i];
        xci_block *block = &record->blocks[i];
        const xci_gap_rival *rival = rivals != NULL ? &rivals[i] : NULL;
        const uint32_t limit = rival != NULL ? rival->limit : input->bytes;
        uint32_t bytes = XCI_GAP_TOO_LONG;
        if (!no_gap)
            bytes = xci_gap_write_block(&writer->encoder, input, writer->scratch, at, limit);
        writer->kept[i] = bytes != XCI_GAP_TOO_LONG;
        block->codec = rival != NULL ? rival->codec : XORCAST_CODEC_RAW;
        if (writer->kept[i])
            block->codec = XORCAST_CODEC_GAP;
        else
            bytes = write_rival(input, rival, at);
        block->bytes = bytes;
        at += block->bytes;
    }
    return (uint64_t)(at - writer->payload);
}

static uint64_t size_without_gap(const xci_record *record, const xci_gap_rival *rivals) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < record->block_count; i++)
        bytes += rivals != NULL ? rivals[i].bytes : record->blocks[i].chunk_bytes;
    return bytes;
}

xorcast_status xci_gap_group_write(xorcast_context *context, xci_gap_group_writer *writer,
                                   const xci_record *listed, const uint8_t *const *old,
                                   const xci_gap_rival *rivals, xci_record *record_out) {
    TRY(reserve(context, writer, listed));
    list_inputs(writer, listed, old);
    xci_gap_plan(&writer->encoder, writer->inputs, listed->block_count);
    *record_out = *listed;
    xci_record *record = record_out;
    record->blocks = writer->blocks;
    memcpy(record->blocks, listed->blocks, listed->block_count * sizeof(xci_block));
    uint64_t bytes = write_blocks(writer, record, rivals, false);
    record->params_bytes = 0;
    if (memchr(writer->kept, 1, record->block_count) != NULL)
        record->params_bytes = xci_gap_write_params(&writer->encoder, writer->inputs, writer->kept,
                                                    record->block_count, writer->payload + bytes);
    if (record->params_bytes != 0 &&
        bytes + record->params_bytes >= size_without_gap(record, rivals)) { /* few small chunks */
        record->params_bytes = 0;
        bytes = write_blocks(writer, record, rivals, true);
    }
    record->payload = writer->payload;
    record->raw_bytes = bytes + record->params_bytes;
    return XORCAST_OK;
}
