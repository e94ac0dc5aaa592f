/* What became of the chunks of a delta: read from its records. */
#include "delta/group_reader.h"
#include "frame/delta_reader.h"

static void count_gap(const xci_group_reader *group, const xci_record *record,
                      xorcast_delta_choices *choices) {
    for (uint32_t i = 0; i < record->block_count; i++) {
        if (record->blocks[i].codec != XORCAST_CODEC_GAP)
            continue;
        const xci_gap_shape *shape = &group->gap->shapes[group->gap->places[i].shape];
        choices->gap_dense += shape->dense;
        choices->gap_old_weights += shape->knows_old;
    }
}

static xorcast_status count_record(xci_group_reader *group, const xci_record *record,
                                   xorcast_delta_choices *choices) {
    const uint8_t *payload;
    TRY(xci_group_read(group, XCI_NOWHERE, record, &payload));
    for (uint32_t i = 0; i < record->block_count; i++) {
        choices->chunks[record->blocks[i].codec]++;
        choices->encoded[record->blocks[i].codec] += record->blocks[i].bytes;
    }
    choices->params_bytes += record->params_bytes;
    choices->second_pass_groups += record->second_pass;
    choices->second_pass_bytes += record->raw_bytes - record->stored_bytes;
    if (record->params_bytes != 0)
        count_gap(group, record, choices);
    return XORCAST_OK;
}

static xorcast_status count_parts(xci_delta_reader *reader, xci_part_records *records,
                                  xci_group_reader *group, xorcast_delta_choices *choices) {
    uint64_t last_group = UINT64_MAX;
    while (reader->next_part < reader->manifest.info.part_count) {
        TRY(xci_delta_reader_records(reader, last_group, records));
        for (uint64_t i = 0; i < records->count; i++)
            TRY(xci_source_blame(reader->source,
                                 count_record(group, &records->records[i], choices)));
        last_group = records->records[records->count - 1].group;
    }
    return XORCAST_OK;
}

xorcast_status xorcast_delta_explain(xorcast_context *context, const xorcast_source *source,
                                     xorcast_delta_choices *choices_out) {
    xci_delta_reader reader;
    xci_part_records records = {0};
    xci_group_reader group;
    xorcast_delta_choices choices = {{0}, {0}, 0, 0, 0, 0, 0};
    TRY(xci_delta_reader_open(context, source, &reader));
    xci_group_reader_open(&group, context);
    const xorcast_status status = count_parts(&reader, &records, &group, &choices);
    xci_group_reader_close(&group);
    xci_part_records_free(context, &records);
    xci_delta_reader_close(&reader);
    TRY(status);
    *choices_out = choices;
    return XORCAST_OK;
}
