/* Commit records: see commit_record.h. */
#include "checkpoint/commit_record.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/paths.h"

static const char magic[8] = {'X', 'O', 'R', 'C', 'O', 'M', 'M', 'T'};

static xorcast_status put_names(xci_buffer *buffer, const char **names, uint64_t count) {
    TRY(xci_buffer_put_varint(buffer, count));
    for (uint64_t i = 0; i < count; i++) {
        TRY(xci_buffer_put_varint(buffer, strlen(names[i])));
        TRY(xci_buffer_put_text(buffer, names[i]));
    }
    return XORCAST_OK;
}

xorcast_status xci_commit_record_put(xci_buffer *buffer, const xci_commit_record *record) {
    TRY(xci_buffer_put(buffer, magic, sizeof magic));
    TRY(put_names(buffer, record->renames, record->rename_count));
    TRY(put_names(buffer, record->removals, record->removal_count));
    const xci_hash hash = xci_hash_of(buffer->bytes, buffer->size);
    return xci_buffer_put(buffer, hash.bytes, sizeof hash.bytes);
}

static xorcast_status read_names(xci_arena *arena, xci_reader *reader, const char ***names_out,
                                 uint64_t *count_out) {
    void *memory;
    const uint64_t count = xci_read_varint(reader);
    if (count > xci_reader_left(reader) / 2) /* a name takes two bytes or more */
        reader->bad = true;
    if (reader->bad)
        return XORCAST_OK;
    TRY(xci_arena_take(arena, count * sizeof(char *), &memory));
    *names_out = memory;
    *count_out = count;
    for (uint64_t i = 0; i < count && !reader->bad; i++) {
        xci_name_kind kind;
        const uint64_t length = xci_read_varint(reader);
        const uint8_t *bytes = xci_read_bytes(reader, length);
        TRY(xci_name_keep(arena, bytes, length, &kind, &(*names_out)[i]));
        if (kind == XCI_NAME_OTHER)
            reader->bad = true;
    }
    return XORCAST_OK;
}

xorcast_status xci_commit_record_parse(xci_arena *arena, xorcast_context *context, const char *path,
                                       const uint8_t *bytes, uint64_t count,
                                       xci_commit_record *record_out) {
    xci_commit_record record = {NULL, NULL, 0, 0};
    bool good = count >= sizeof magic + sizeof(xci_hash) && memcmp(bytes, magic, sizeof magic) == 0;
    if (good) {
        const uint8_t *end = bytes + count - sizeof(xci_hash);
        const xci_hash hash = xci_hash_of(bytes, (uint64_t)(end - bytes));
        xci_reader reader = {bytes + sizeof magic, end, memcmp(hash.bytes, end, sizeof hash) != 0};
        TRY(read_names(arena, &reader, &record.renames, &record.rename_count));
        TRY(read_names(arena, &reader, &record.removals, &record.removal_count));
        good = !reader.bad && reader.at == reader.end;
    }
    if (!good)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "%s, the record of an interrupted replacement, is damaged: the files beside it may be "
             "partly new. Fetch the checkpoint again, then remove the record",
             path);
    *record_out = record;
    return XORCAST_OK;
}
