/* The files that a delta tells of: see files.h. */
#include "checkpoint/files.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/second_pass.h"
#include "checkpoint/paths.h"

#define ZSTD_LEVEL 3 /* headers of 26 MB shrink to a seventh in a tenth of a second */
enum { HOW_AS_BASE = 0, HOW_WHOLE = 1 };
enum { KIND_FILE = 0, KIND_DIRECTORY = 1 };

/* ---- Writing ---- */

static xorcast_status put_name(xci_buffer *out, const char *name) {
    TRY(xci_buffer_put_varint(out, strlen(name)));
    return xci_buffer_put_text(out, name);
}

static xorcast_status put_shard(xci_buffer *out, const xci_listing *base, const xci_shard *shard,
                                bool named) {
    const xci_shard *same = xci_listing_shard(base, shard->name);
    uint8_t *place;
    if (named)
        TRY(put_name(out, shard->name));
    if (same != NULL && same->header_bytes == shard->header_bytes &&
        memcmp(&same->header_hash, &shard->header_hash, sizeof shard->header_hash) == 0) {
        TRY(xci_buffer_put8(out, HOW_AS_BASE));
        return xci_buffer_put(out, shard->header_hash.bytes, sizeof shard->header_hash.bytes);
    }
    TRY(xci_buffer_put8(out, HOW_WHOLE));
    TRY(xci_buffer_put_varint(out, shard->header_bytes));
    TRY(xci_buffer_take(out, shard->header_bytes, &place));
    return xci_shard_read_header(out->context, shard, place);
}

static xorcast_status hash_side(xorcast_context *context, const xci_side *side,
                                xci_hash *hash_out) {
    void *content;
    TRY(xci_allocate(context, side->bytes, &content));
    const xorcast_status status = xci_side_read(context, side, content);
    if (status == XORCAST_OK)
        *hash_out = xci_hash_of(content, side->bytes);
    xci_release(context, content);
    return status;
}

static xorcast_status put_side(xci_buffer *out, const xci_listing *base, const xci_side *side) {
    const xci_side *same = xci_listing_side(base, side->name);
    xci_hash hash, base_hash;
    uint8_t *place;
    TRY(xci_side_check(out->context, side));
    TRY(put_name(out, side->name));
    if (same != NULL && same->bytes == side->bytes) {
        TRY(hash_side(out->context, side, &hash));
        TRY(hash_side(out->context, same, &base_hash));
        if (memcmp(&hash, &base_hash, sizeof hash) == 0) {
            TRY(xci_buffer_put8(out, HOW_AS_BASE));
            TRY(xci_buffer_put_varint(out, side->bytes));
            return xci_buffer_put(out, hash.bytes, sizeof hash.bytes);
        }
    }
    TRY(xci_buffer_put8(out, HOW_WHOLE));
    TRY(xci_buffer_put_varint(out, side->bytes));
    TRY(xci_buffer_take(out, side->bytes, &place));
    return xci_side_read(out->context, side, place);
}

static xorcast_status put_removed(xci_buffer *out, const xci_listing *base,
                                  const xci_listing *target) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < base->side_count && target->directory; i++)
        count += xci_listing_side(target, base->sides[i].name) == NULL;
    TRY(xci_buffer_put_varint(out, count));
    for (uint64_t i = 0; i < base->side_count && target->directory; i++)
        if (xci_listing_side(target, base->sides[i].name) == NULL)
            TRY(put_name(out, base->sides[i].name));
    return XORCAST_OK;
}

static xorcast_status put_all(xci_buffer *out, const xci_listing *base, const xci_listing *target,
                              uint64_t whole_count) {
    TRY(xci_buffer_put8(out, target->directory ? KIND_DIRECTORY : KIND_FILE));
    TRY(xci_buffer_put_varint(out, target->shard_count));
    for (uint64_t i = 0; i < target->shard_count; i++)
        TRY(put_shard(out, base, &target->shards[i], target->directory));
    TRY(xci_buffer_put_varint(out, target->side_count));
    for (uint64_t i = 0; i < target->side_count; i++)
        TRY(put_side(out, base, &target->sides[i]));
    TRY(put_removed(out, base, target));
    TRY(xci_buffer_put_varint(out, whole_count));
    if (out->size > XCI_FILES_MAX)
        FAIL(out->context, XORCAST_UNSUPPORTED,
             "headers and files beside the weights changed by %llu bytes; a delta carries at most "
             "%llu of them: send the checkpoint whole",
             (unsigned long long)out->size, (unsigned long long)XCI_FILES_MAX);
    return XORCAST_OK;
}

/* zstd's encoder needs room for its whole input, and gives nothing where that does not shrink. */
xorcast_status xci_files_compress(xci_buffer *out, const xci_buffer *raw) {
    xorcast_context *context = out->context;
    xci_zstd_encoder *encoder;
    uint64_t packed_bytes = 0;
    void *packed;
    TRY(xci_buffer_put_varint(out, raw->size));
    TRY(xci_zstd_encoder_create(context, ZSTD_LEVEL, &encoder));
    xorcast_status status = xci_allocate(context, raw->size, &packed);
    if (status == XORCAST_OK) {
        status = xci_zstd_encode(context, encoder, raw->bytes, raw->size, packed, &packed_bytes);
        if (status == XORCAST_OK)
            status = xci_buffer_put8(out, packed_bytes > 0);
        if (status == XORCAST_OK && packed_bytes > 0)
            status = xci_buffer_put(out, packed, packed_bytes);
        else if (status == XORCAST_OK)
            status = xci_buffer_put(out, raw->bytes, raw->size);
        xci_release(context, packed);
    }
    xci_zstd_encoder_destroy(context, encoder);
    return status;
}

xorcast_status xci_files_encode(const xci_listing *base, const xci_listing *target,
                                uint64_t whole_count, xci_buffer *out) {
    xci_buffer raw = {.context = out->context};
    xorcast_status status = put_all(&raw, base, target, whole_count);
    if (status == XORCAST_OK)
        status = xci_files_compress(out, &raw);
    xci_buffer_free(&raw);
    return status;
}

/* ---- Reading ---- */

static xorcast_status fail_format(xci_files *files, const char *what) {
    FAIL(files->context, XORCAST_DATA_CORRUPT,
         "the delta's list of files %s; fetch the delta again", what);
}

/* The next name, of the kind wanted and after `before` in the order of bytes; NULL marks the
 * reader bad. */
static xorcast_status read_name(xci_files *files, xci_reader *reader, xci_name_kind wanted,
                                const char *before, const char **name_out) {
    xci_name_kind kind;
    const uint64_t length = xci_read_varint(reader);
    const uint8_t *bytes = xci_read_bytes(reader, length);
    TRY(xci_name_keep(files->target.arena, bytes, length, &kind, name_out));
    if (!reader->bad && kind != wanted)
        return fail_format(files, "has a name that no file of a checkpoint may have");
    if (!reader->bad && before != NULL && strcmp(before, *name_out) >= 0)
        return fail_format(files, "has names out of order or twice");
    return XORCAST_OK;
}

static xorcast_status take_table(xci_files *files, xci_reader *reader, uint64_t item_min,
                                 uint64_t item_bytes, uint64_t *count_out, void **table_out) {
    *count_out = xci_read_varint(reader);
    if (*count_out > xci_reader_left(reader) / item_min)
        reader->bad = true;
    if (reader->bad)
        *count_out = 0;
    TRY(xci_arena_take(files->target.arena, (*count_out + 1) * item_bytes, table_out));
    memset(*table_out, 0, (*count_out + 1) * item_bytes);
    return XORCAST_OK;
}

static void read_hash(xci_reader *reader, xci_hash *hash_out) {
    const uint8_t *bytes = xci_read_bytes(reader, sizeof hash_out->bytes);
    if (bytes != NULL)
        memcpy(hash_out->bytes, bytes, sizeof hash_out->bytes);
}

static xorcast_status read_shards(xci_files *files, xci_reader *reader) {
    xci_listing *target = &files->target;
    uint64_t count;
    void *table;
    TRY(take_table(files, reader, 2, sizeof(xci_shard), &count, &table));
    target->shards = table;
    for (uint64_t i = 0; i < count && !reader->bad; i++) {
        xci_shard *shard = &target->shards[i];
        shard->name = "";
        if (target->directory)
            TRY(read_name(files, reader, XCI_NAME_SHARD, i > 0 ? shard[-1].name : NULL,
                          &shard->name));
        const uint8_t how = xci_read8(reader);
        if (how == HOW_AS_BASE) {
            read_hash(reader, &shard->header_hash);
        } else {
            shard->header_bytes = xci_read_varint(reader);
            shard->header = xci_read_bytes(reader, shard->header_bytes);
            reader->bad = reader->bad || how != HOW_WHOLE || shard->header_bytes > XCI_HEADER_MAX;
        }
    }
    target->shard_count = count;
    return XORCAST_OK;
}

static xorcast_status read_sides(xci_files *files, xci_reader *reader) {
    xci_listing *target = &files->target;
    uint64_t count;
    void *table, *hashes;
    TRY(take_table(files, reader, 4, sizeof(xci_side), &count, &table));
    TRY(xci_arena_take(target->arena, (count + 1) * sizeof(xci_hash), &hashes));
    files->side_hashes = hashes;
    target->sides = table;
    for (uint64_t i = 0; i < count && !reader->bad; i++) {
        xci_side *side = &target->sides[i];
        TRY(read_name(files, reader, XCI_NAME_SIDE, i > 0 ? side[-1].name : NULL, &side->name));
        const uint8_t how = xci_read8(reader);
        side->bytes = xci_read_varint(reader);
        if (how == HOW_AS_BASE)
            read_hash(reader, &files->side_hashes[i]);
        else
            side->content = xci_read_bytes(reader, side->bytes);
        reader->bad = reader->bad || how > HOW_WHOLE || side->bytes > XCI_SIDE_FILE_MAX;
    }
    target->side_count = count;
    return XORCAST_OK;
}

static xorcast_status read_removed(xci_files *files, xci_reader *reader) {
    uint64_t count;
    void *table;
    TRY(take_table(files, reader, 2, sizeof(char *), &count, &table));
    files->removed = table;
    for (uint64_t i = 0; i < count && !reader->bad; i++) {
        const char **name = &files->removed[i];
        TRY(read_name(files, reader, XCI_NAME_SIDE, i > 0 ? name[-1] : NULL, name));
        if (!reader->bad && xci_listing_side(&files->target, *name) != NULL)
            return fail_format(files, "both has and removes a file");
    }
    files->removed_count = count;
    return XORCAST_OK;
}

static xorcast_status read_all(xci_files *files, xci_reader *reader) {
    const uint8_t kind = xci_read8(reader);
    reader->bad = reader->bad || kind > KIND_DIRECTORY;
    files->target.directory = kind == KIND_DIRECTORY;
    TRY(read_shards(files, reader));
    TRY(read_sides(files, reader));
    TRY(read_removed(files, reader));
    files->whole_count = xci_read_varint(reader);
    if (reader->bad || reader->at != reader->end)
        return fail_format(files,
                           "has a field that is out of range, or ends too early or too late");
    if (files->target.shard_count == 0)
        return fail_format(files, "names no file with tensors");
    if (!files->target.directory && (files->target.shard_count != 1 ||
                                     files->target.side_count != 0 || files->removed_count != 0))
        return fail_format(files, "says both that it is one file and that it is several");
    return XORCAST_OK;
}

static xorcast_status decompress(xci_files *files, xci_reader *reader, uint64_t raw_bytes) {
    xorcast_context *context = files->context;
    xci_zstd_decoder *decoder;
    const uint64_t count = xci_reader_left(reader);
    void *memory;
    TRY(xci_allocate(context, raw_bytes, &memory));
    files->raw = memory;
    TRY(xci_zstd_decoder_create(context, &decoder));
    const xorcast_status status =
        xci_zstd_decode(context, XCI_NOWHERE, decoder, reader->at, count, files->raw, raw_bytes);
    xci_zstd_decoder_destroy(context, decoder);
    TRY(status);
    *reader = (xci_reader){files->raw, files->raw + raw_bytes, false};
    return XORCAST_OK;
}

static xorcast_status decode(xci_files *files, xci_reader *reader) {
    const uint64_t raw_bytes = xci_read_varint(reader);
    const uint8_t packed = xci_read8(reader);
    if (reader->bad || packed > 1 || raw_bytes == 0 ||
        (packed == 0 && raw_bytes != xci_reader_left(reader)))
        return fail_format(files, "does not begin as it should");
    if (raw_bytes > XCI_FILES_MAX)
        FAIL(files->context, XORCAST_DATA_LIMIT,
             "the delta's list of files would have %llu bytes; %llu are the most",
             (unsigned long long)raw_bytes, (unsigned long long)XCI_FILES_MAX);
    if (packed == 1)
        TRY(decompress(files, reader, raw_bytes));
    return read_all(files, reader);
}

xorcast_status xci_files_decode(xorcast_context *context, const uint8_t *bytes, uint64_t count,
                                xci_files *files) {
    xci_reader reader = {bytes, bytes + count, false};
    *files = (xci_files){.context = context};
    xorcast_status status = xci_listing_create(context, &files->target);
    if (status == XORCAST_OK)
        status = decode(files, &reader);
    if (status < 0)
        xci_files_free(files);
    return status;
}

void xci_files_free(xci_files *files) {
    xci_listing_free(&files->target);
    xci_release(files->context, files->raw);
    files->raw = NULL;
}

/* ---- Together with the base ---- */

static const char *shown(const xci_shard *shard) {
    return *shard->name != 0 ? shard->name : "the checkpoint's file";
}

static xorcast_status header_of_base(xci_files *files, const xci_listing *base, xci_shard *shard,
                                     uint8_t **header_out) {
    const xci_shard *same = xci_listing_shard(base, shard->name);
    void *memory;
    if (same == NULL && base->directory != files->target.directory)
        FAIL(files->context, XORCAST_BASE_MISMATCH, "the delta starts from %s; name that, not %s",
             base->directory ? "a single file" : "a directory",
             base->directory ? "a directory" : "a file in it");
    if (same == NULL ||
        memcmp(&same->header_hash, &shard->header_hash, sizeof same->header_hash) != 0)
        FAIL(files->context, XORCAST_BASE_MISMATCH,
             "%s is missing or has another header than the version that the delta starts from",
             shown(shard));
    TRY(xci_arena_take(files->target.arena, same->header_bytes, &memory));
    *header_out = memory;
    TRY(xci_shard_read_header(files->context, same, memory));
    shard->header = memory;
    shard->header_bytes = same->header_bytes;
    shard->mode = same->mode;
    return XORCAST_OK;
}

static xorcast_status resolve_shard(xci_files *files, const xci_listing *base, uint32_t index) {
    xci_shard *shard = &files->target.shards[index];
    uint8_t *header;
    uint64_t data_bytes;
    if (shard->header == NULL)
        TRY(header_of_base(files, base, shard, &header));
    TRY(xci_safetensors_parse(&files->target.entries, files->target.arena, shown(shard), index,
                              shard->header, shard->header_bytes, &data_bytes));
    shard->file_bytes = XCI_HEADER_PREFIX + shard->header_bytes;
    if (!xci_add(shard->file_bytes, data_bytes, &shard->file_bytes) ||
        shard->file_bytes > INT64_MAX)
        FAIL(files->context, XORCAST_DATA_LIMIT, "%s would have more than 2^63 bytes",
             shown(shard));
    return XORCAST_OK;
}

static xorcast_status resolve_side(xci_files *files, const xci_listing *base, uint64_t index) {
    xci_side *side = &files->target.sides[index];
    const xci_side *same = xci_listing_side(base, side->name);
    xci_hash hash;
    if (same != NULL)
        side->mode = same->mode;
    if (side->content != NULL || side->bytes == 0)
        return XORCAST_OK;
    bool good = same != NULL && same->bytes == side->bytes;
    if (good) {
        TRY(hash_side(files->context, same, &hash));
        good = memcmp(&hash, &files->side_hashes[index], sizeof hash) == 0;
    }
    if (!good)
        FAIL(files->context, XORCAST_BASE_MISMATCH,
             "%s is missing or differs from the version that the delta starts from", side->name);
    return XORCAST_OK;
}

xorcast_status xci_files_resolve(xci_files *files, const xci_listing *base) {
    for (uint64_t i = 0; i < files->target.shard_count; i++)
        TRY(resolve_shard(files, base, (uint32_t)i));
    TRY(xci_entries_sort(&files->target.entries));
    for (uint64_t i = 0; i < files->target.side_count; i++)
        TRY(resolve_side(files, base, i));
    return XORCAST_OK;
}
