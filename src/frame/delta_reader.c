/* Delta reader: see delta_reader.h. */
#include "frame/delta_reader.h"

#include <string.h>

#define NAME_BYTES 300 /* of a source, that messages have room for */

static bool begins_with_name(const char *text, const char *name) {
    const size_t bytes = strnlen(name, NAME_BYTES);
    return strncmp(text, name, bytes) == 0 && text[bytes] == ':';
}

xorcast_status xci_source_blame(const xorcast_source *source, xorcast_status status) {
    const xci_failure *failure = xci_thread_failure();
    const bool about_bytes = status == XORCAST_IO_FAILED ||
                             (status <= XORCAST_DATA_TRUNCATED && status >= XORCAST_DATA_LIMIT);
    if (!about_bytes || source->name == NULL || failure->context == NULL ||
        failure->error.status != status || begins_with_name(failure->error.text, source->name))
        return status;
    return xci_fail_from(failure->context, status, &failure->error, "%.*s: %s", NAME_BYTES,
                         source->name, failure->error.text);
}

static xorcast_status read_source(xorcast_context *context, const xorcast_source *source,
                                  uint64_t offset, void *out, uint64_t count) {
    if (source->bytes != NULL) {
        memcpy(out, (const uint8_t *)source->bytes + offset, count);
        return XORCAST_OK;
    }
    const int error = source->read(source->user, offset, out, count);
    const xci_place place = {XORCAST_NO_INDEX, XORCAST_NO_INDEX, error};
    if (error != 0)
        FAIL_AT(context, XORCAST_IO_FAILED, place, "the delta could not be read at byte %llu: %s",
                (unsigned long long)offset, strerror(error));
    return XORCAST_OK;
}

static xorcast_status read_manifest(xci_delta_reader *reader) {
    xorcast_context *context = reader->context;
    const uint64_t size = reader->source->size;
    uint8_t head[XCI_HEAD_BYTES], foot[XCI_FOOT_BYTES];
    uint64_t manifest_bytes;
    if (size < XCI_HEAD_BYTES + XCI_FOOT_BYTES)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "%llu bytes are too few for a delta; the file was cut or is something else",
             (unsigned long long)size);
    TRY(read_source(context, reader->source, 0, head, sizeof head));
    TRY(xci_head_read(context, head));
    TRY(read_source(context, reader->source, size - sizeof foot, foot, sizeof foot));
    TRY(xci_foot_read(context, foot, &manifest_bytes));
    if (manifest_bytes > size - XCI_HEAD_BYTES - XCI_FOOT_BYTES)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "the delta has %llu bytes, fewer than its manifest; it was cut short",
             (unsigned long long)size);
    void *memory;
    const uint64_t count = manifest_bytes + XCI_FOOT_BYTES;
    TRY(xci_allocate(context, count, &memory));
    reader->manifest_bytes = memory;
    TRY(read_source(context, reader->source, size - count, memory, count));
    TRY(xci_manifest_read(context, memory, count, &reader->manifest));
    if (reader->manifest.info.delta_bytes != size)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "the delta has %llu bytes, its manifest says %llu; fetch it again",
             (unsigned long long)size, (unsigned long long)reader->manifest.info.delta_bytes);
    return XORCAST_OK;
}

xorcast_status xci_delta_reader_open(xorcast_context *context, const xorcast_source *source,
                                     xci_delta_reader *reader) {
    *reader =
        (xci_delta_reader){.context = context, .source = source, .next_offset = XCI_HEAD_BYTES};
    if (source == NULL || (source->bytes == NULL && source->read == NULL))
        FAIL(context, XORCAST_BAD_ARGUMENT, "the source has neither bytes nor a read call");
    const xorcast_status status = xci_source_blame(source, read_manifest(reader));
    if (status < 0)
        xci_delta_reader_close(reader);
    return status;
}

void xci_delta_reader_close(xci_delta_reader *reader) {
    xci_manifest_free(reader->context, &reader->manifest);
    xci_release(reader->context, reader->manifest_bytes);
    xci_release(reader->context, reader->part_bytes);
    reader->manifest_bytes = reader->part_bytes = NULL;
    reader->part_capacity = 0;
}

static xorcast_status has_size(xorcast_context *context, const xci_manifest *manifest,
                               uint64_t index, uint64_t count) {
    const xci_part *part = &manifest->parts[index];
    if (count != part->bytes)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "part %llu of the delta has %llu bytes, the manifest says %llu; fetch it again",
             (unsigned long long)index, (unsigned long long)count, (unsigned long long)part->bytes);
    return XORCAST_OK;
}

xorcast_status xci_part_compare(xorcast_context *context, const xci_manifest *manifest,
                                uint64_t index, uint64_t count, const xci_hash *hash) {
    TRY(has_size(context, manifest, index, count));
    if (memcmp(hash->bytes, manifest->parts[index].hash.bytes, sizeof hash->bytes) != 0)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "part %llu of the delta is not the one its manifest names; fetch it again",
             (unsigned long long)index);
    return XORCAST_OK;
}

xorcast_status xci_part_check(xorcast_context *context, const xci_manifest *manifest,
                              uint64_t index, const uint8_t *bytes, uint64_t count) {
    TRY(has_size(context, manifest, index, count));
    const xci_hash hash = xci_hash_of(bytes, count);
    return xci_part_compare(context, manifest, index, count, &hash);
}

xorcast_status xci_delta_reader_part(xci_delta_reader *reader, const uint8_t **bytes_out,
                                     uint64_t *count_out) {
    const uint64_t count = reader->manifest.parts[reader->next_part].bytes;
    const uint8_t *bytes;
    if (reader->source->bytes != NULL) {
        bytes = (const uint8_t *)reader->source->bytes + reader->next_offset;
    } else {
        TRY(xci_grow(reader->context, &reader->part_bytes, &reader->part_capacity, count));
        bytes = reader->part_bytes;
        TRY(xci_source_blame(reader->source,
                             read_source(reader->context, reader->source, reader->next_offset,
                                         reader->part_bytes, count)));
    }
    reader->next_part++;
    reader->next_offset += count;
    *bytes_out = bytes;
    *count_out = count;
    return XORCAST_OK;
}

void xci_part_records_free(xorcast_context *context, xci_part_records *records) {
    xci_release(context, records->records);
    xci_record_space_free(context, &records->space);
    *records = (xci_part_records){0};
}

static xorcast_status comes_after(xorcast_context *context, uint64_t group, uint64_t after) {
    if (after != UINT64_MAX && group <= after)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "group %llu comes after group %llu in the delta, or twice; fetch it again",
             (unsigned long long)group, (unsigned long long)after);
    return XORCAST_OK;
}

xorcast_status xci_part_follows(xorcast_context *context, const xci_part_records *records,
                                uint64_t after) {
    return records->count > 0 ? comes_after(context, records->records[0].group, after) : XORCAST_OK;
}

xorcast_status xci_part_list(xorcast_context *context, const xci_manifest *manifest, uint64_t index,
                             const uint8_t *bytes, uint64_t count, uint64_t after,
                             xci_part_records *records) {
    const xci_record_limits limits = xci_manifest_limits(manifest);
    const uint64_t expected = manifest->parts[index].group_count;
    xci_reader reader = {bytes, bytes + count, false};
    records->count = 0;
    records->space.used = 0;
    while (reader.at != reader.end) {
        TRY(xci_grow(context, &records->records, &records->capacity_bytes,
                     (records->count + 1) * sizeof(xci_record)));
        xci_record *record = &records->records[records->count];
        const uint8_t *head = reader.at;
        const xorcast_status read =
            xci_record_read(context, &reader, &limits, &records->space, record);
        if (read < 0) {
            xci_reader again = {head, bytes + count, false};
            records->failed_group = xci_read_varint(&again);
            return read;
        }
        records->failed_group = record->group;
        TRY(comes_after(context, record->group, after));
        after = record->group;
        records->count++;
    }
    if (records->count != expected)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "part %llu holds %llu groups, the manifest says %llu; fetch the delta again",
             (unsigned long long)index, (unsigned long long)records->count,
             (unsigned long long)expected);
    xci_block *block = records->space.blocks;
    for (uint64_t i = 0; i < records->count; i++) {
        records->records[i].blocks = block;
        block += records->records[i].block_count;
    }
    return XORCAST_OK;
}

xorcast_status xci_part_parse(xorcast_context *context, const xci_manifest *manifest,
                              uint64_t index, const uint8_t *bytes, uint64_t count, uint64_t after,
                              xci_part_records *records) {
    TRY(xci_part_list(context, manifest, index, bytes, count, after, records));
    for (uint64_t i = 0; i < records->count; i++) {
        records->failed_group = records->records[i].group;
        TRY(xci_record_check(context, XCI_NOWHERE, &records->records[i]));
    }
    return XORCAST_OK;
}

static xorcast_status read_records(xci_delta_reader *reader, uint64_t after,
                                   xci_part_records *records) {
    const uint64_t index = reader->next_part;
    const uint8_t *bytes;
    uint64_t count;
    TRY(xci_delta_reader_part(reader, &bytes, &count));
    TRY(xci_part_check(reader->context, &reader->manifest, index, bytes, count));
    return xci_part_parse(reader->context, &reader->manifest, index, bytes, count, after, records);
}

xorcast_status xci_delta_reader_records(xci_delta_reader *reader, uint64_t after,
                                        xci_part_records *records) {
    return xci_source_blame(reader->source, read_records(reader, after, records));
}
