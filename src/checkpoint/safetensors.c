/* Headers of safetensors files: see safetensors.h. What the parser refuses is listed in
 * docs/format.md, "Checkpoints". */
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "bundle/bundle.h"
#include "checkpoint/json.h"

/* ---- Entries ---- */

void xci_entries_free(xci_entries *entries) {
    if (entries->at != NULL)
        xci_release(entries->context, entries->at);
    entries->at = NULL;
    entries->count = entries->capacity = 0;
}

xorcast_status xci_entries_add(xci_entries *entries, const xci_entry *entry) {
    if (entries->count >= XCI_TENSORS_MAX)
        FAIL(entries->context, XORCAST_DATA_LIMIT, "a checkpoint has more than %llu tensors",
             (unsigned long long)XCI_TENSORS_MAX);
    TRY(xci_grow(entries->context, &entries->at, &entries->capacity,
                 (entries->count + 1) * sizeof *entry));
    entries->at[entries->count++] = *entry;
    return XORCAST_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const xci_entry *)a)->name, ((const xci_entry *)b)->name);
}

static int by_offset(const void *a, const void *b) {
    const xci_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Most headers are in order already, and qsort would copy the whole table to find out. */
static void sort(xci_entry *entries, uint64_t count, int (*compare)(const void *, const void *)) {
    for (uint64_t i = 1; i < count; i++) {
        if (compare(&entries[i - 1], &entries[i]) > 0) {
            qsort(entries, count, sizeof *entries, compare);
            return;
        }
    }
}

xorcast_status xci_entries_sort(xci_entries *entries) {
    sort(entries->at, entries->count, by_name);
    for (uint64_t i = 1; i < entries->count; i++) {
        const xci_entry *a = &entries->at[i - 1], *b = &entries->at[i];
        if (strcmp(a->name, b->name) == 0)
            FAIL(entries->context, XORCAST_DATA_CORRUPT,
                 "tensor %.200s stands twice in the checkpoint, in %s; each name may come once",
                 a->name, a->shard == b->shard ? "one file" : "two files");
    }
    return XORCAST_OK;
}

const xci_entry *xci_entries_find(const xci_entries *entries, const char *name) {
    const xci_entry key = {.name = name};
    return entries->count == 0 ? NULL
                               : bsearch(&key, entries->at, entries->count, sizeof key, by_name);
}

/* ---- Data types ---- */

/* Width of an element in bits by the name of its type; 0: not known, and then the offsets
 * decide. */
static uint32_t dtype_bits(xci_text dtype) {
    static const struct {
        const char *name;
        uint32_t bits;
    } known[] = {{"BF16", 16},       {"F32", 32},       {"F16", 16},    {"U8", 8},   {"I8", 8},
                 {"F8_E4M3", 8},     {"F8_E5M2", 8},    {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6},
                 {"F6_E3M2", 6},     {"I64", 64},       {"I32", 32},    {"I16", 16}, {"U64", 64},
                 {"U32", 32},        {"U16", 16},       {"F64", 64},    {"BOOL", 8}, {"C64", 64},
                 {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (xci_text_is(dtype, known[i].name))
            return known[i].bits;
    return 0;
}

/* ---- One tensor ---- */

typedef struct parser {
    xci_json json;
    xci_entries *entries;
    const char *dtype; /* kept last: neighbours share it */
    uint32_t shard;
} parser;

typedef struct fields {
    bool has_dtype, has_shape, has_offsets;
    xci_text dtype;
    uint64_t shape[XCI_RANK_MAX];
    uint32_t rank;
    uint64_t begin, end;
} fields;

static xorcast_status read_shape(xci_json *json, fields *f) {
    bool first = true, more;
    TRY(xci_json_open(json, '['));
    for (;;) {
        TRY(xci_json_next_item(json, &first, &more));
        if (!more)
            return XORCAST_OK;
        if (f->rank == XCI_RANK_MAX)
            return xci_json_fail(json, "a tensor has more than 16 dimensions");
        TRY(xci_json_number(json, &f->shape[f->rank]));
        f->rank++;
    }
}

static xorcast_status read_offsets(xci_json *json, fields *f) {
    bool first = true, more;
    uint64_t *const places[] = {&f->begin, &f->end};
    TRY(xci_json_open(json, '['));
    for (unsigned i = 0; i < 2; i++) {
        TRY(xci_json_next_item(json, &first, &more));
        if (!more)
            return xci_json_fail(json, "data_offsets are not two numbers");
        TRY(xci_json_number(json, places[i]));
    }
    TRY(xci_json_next_item(json, &first, &more));
    if (more || f->begin > f->end || f->end > INT64_MAX)
        return xci_json_fail(json, "data_offsets are not two numbers, begin before end");
    return XORCAST_OK;
}

/* Unknown keys are passed over, as the reference does: the header travels whole anyway. */
static xorcast_status read_field(xci_json *json, xci_text key, fields *f) {
    bool *seen = xci_text_is(key, "dtype")          ? &f->has_dtype
                 : xci_text_is(key, "shape")        ? &f->has_shape
                 : xci_text_is(key, "data_offsets") ? &f->has_offsets
                                                    : NULL;
    if (seen == NULL)
        return xci_json_skip(json);
    if (*seen)
        return xci_json_fail(json, "a field of a tensor stands twice");
    *seen = true;
    return seen == &f->has_dtype   ? xci_json_string(json, &f->dtype)
           : seen == &f->has_shape ? read_shape(json, f)
                                   : read_offsets(json, f);
}

/* Shape, type and offsets must tell the same size. */
static xorcast_status check_size(xci_json *json, const fields *f) {
    uint64_t elements = 1, bits;
    bool empty = false;
    for (uint32_t i = 0; i < f->rank; i++)
        empty = empty || f->shape[i] == 0;
    for (uint32_t i = 0; i < f->rank && !empty; i++)
        if (!xci_multiply(elements, f->shape[i], &elements))
            return xci_json_fail(json, "a shape has more than 2^64 elements");
    const uint64_t bytes = f->end - f->begin;
    if (empty != (bytes == 0))
        return xci_json_fail(json, "a tensor's shape and its bytes disagree about it being empty");
    const uint32_t width = dtype_bits(f->dtype);
    if (width == 0 || empty)
        return XORCAST_OK;
    if (!xci_multiply(elements, width, &bits) || bits % 8 != 0 || bits / 8 != bytes)
        return xci_json_fail(json, "a tensor's shape and dtype do not give its number of bytes");
    return XORCAST_OK;
}

static xorcast_status keep_dtype(parser *p, xci_text dtype) {
    if (p->dtype != NULL && xci_text_is(dtype, p->dtype))
        return XORCAST_OK;
    if (dtype.bytes == 0 || dtype.bytes > XCI_DTYPE_MAX)
        return xci_json_fail(&p->json, "a dtype must have 1 to 15 bytes");
    return xci_text_keep(p->json.arena, dtype, &p->dtype);
}

static xorcast_status read_tensor(parser *p, xci_text name) {
    xci_json *json = &p->json;
    fields f = {.has_dtype = false};
    bool first = true, more;
    void *shape;
    xci_text key;
    if (name.bytes == 0 || name.bytes > XCI_NAME_MAX)
        return xci_json_fail(json, "a tensor's name must have 1 to 1023 bytes");
    TRY(xci_json_open(json, '{'));
    for (;;) {
        TRY(xci_json_next_key(json, &first, &more, &key));
        if (!more)
            break;
        TRY(read_field(json, key, &f));
    }
    if (!f.has_dtype || !f.has_shape || !f.has_offsets)
        return xci_json_fail(json, "a tensor lacks dtype, shape or data_offsets");
    TRY(check_size(json, &f));
    TRY(keep_dtype(p, f.dtype));
    xci_entry entry = {.dtype = p->dtype,
                       .rank = f.rank,
                       .shard = p->shard,
                       .offset = f.begin,
                       .bytes = f.end - f.begin};
    TRY(xci_text_keep(json->arena, name, &entry.name));
    TRY(xci_arena_copy(json->arena, f.shape, f.rank * sizeof *f.shape, &shape));
    entry.shape = shape;
    return xci_entries_add(p->entries, &entry);
}

static xorcast_status read_metadata(xci_json *json) {
    bool first = true, more;
    xci_text key, value;
    TRY(xci_json_open(json, '{'));
    for (;;) {
        TRY(xci_json_next_key(json, &first, &more, &key));
        if (!more)
            return XORCAST_OK;
        TRY(xci_json_string(json, &value));
    }
}

static xorcast_status read_header(parser *p) {
    bool first = true, more, metadata = false;
    xci_text key;
    TRY(xci_json_open(&p->json, '{'));
    for (;;) {
        TRY(xci_json_next_key(&p->json, &first, &more, &key));
        if (!more)
            break;
        if (!xci_text_is(key, "__metadata__")) {
            TRY(read_tensor(p, key));
            continue;
        }
        if (metadata)
            return xci_json_fail(&p->json, "__metadata__ stands twice");
        metadata = true;
        TRY(read_metadata(&p->json));
    }
    return xci_json_end(&p->json);
}

/* ---- The header as a whole ---- */

xorcast_status xci_safetensors_length(xorcast_context *context, const char *path,
                                      const uint8_t prefix[XCI_HEADER_PREFIX], uint64_t file_bytes,
                                      uint64_t *header_bytes_out) {
    const uint64_t header_bytes = xci_load64(prefix);
    if (header_bytes > XCI_HEADER_MAX)
        FAIL(context, XORCAST_DATA_LIMIT,
             "%s is no safetensors file: it would have a header of %llu bytes, more than the "
             "format's limit of %llu",
             path, (unsigned long long)header_bytes, (unsigned long long)XCI_HEADER_MAX);
    if (file_bytes < XCI_HEADER_PREFIX || header_bytes > file_bytes - XCI_HEADER_PREFIX)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "%s: its header would have %llu bytes, but the file has only %llu; fetch it again",
             path, (unsigned long long)header_bytes, (unsigned long long)file_bytes);
    *header_bytes_out = header_bytes;
    return XORCAST_OK;
}

static xorcast_status check_tiles(xorcast_context *context, const char *path, xci_entry *entries,
                                  uint64_t count, uint64_t data_offset, uint64_t *data_bytes_out) {
    uint64_t end = 0;
    sort(entries, count, by_offset);
    for (uint64_t i = 0; i < count; i++) {
        if (entries[i].offset != end)
            FAIL(context, XORCAST_DATA_CORRUPT,
                 "%s: tensor %.200s begins at byte %llu of the data, where %llu bytes are taken; "
                 "tensors must follow each other without %s",
                 path, entries[i].name, (unsigned long long)entries[i].offset,
                 (unsigned long long)end, entries[i].offset > end ? "holes" : "overlap");
        end += entries[i].bytes;
        entries[i].offset += data_offset;
    }
    *data_bytes_out = end;
    return XORCAST_OK;
}

xorcast_status xci_safetensors_parse(xci_entries *entries, xci_arena *arena, const char *path,
                                     uint32_t shard, const uint8_t *header, uint64_t header_bytes,
                                     uint64_t *data_bytes_out) {
    const uint64_t before = entries->count;
    parser p = {.json = xci_json_over(entries->context, arena, path, header, header_bytes),
                .entries = entries,
                .shard = shard};
    if (header_bytes == 0 || header[0] != '{')
        FAIL(entries->context, XORCAST_DATA_CORRUPT,
             "%s is no safetensors file: its header does not begin with {", path);
    TRY(read_header(&p));
    const uint64_t count = entries->count - before;
    return check_tiles(entries->context, path, count > 0 ? entries->at + before : NULL, count,
                       XCI_HEADER_PREFIX + header_bytes, data_bytes_out);
}

/* ---- Writing ---- */

static xorcast_status put_tensor(xci_buffer *buffer, const xci_entry *entry, uint64_t begin) {
    TRY(xci_buffer_put_text(buffer, ","));
    TRY(xci_json_put_string(buffer, entry->name));
    TRY(xci_buffer_put_text(buffer, ":{\"dtype\":"));
    TRY(xci_json_put_string(buffer, entry->dtype));
    TRY(xci_buffer_put_text(buffer, ",\"shape\":["));
    for (uint32_t i = 0; i < entry->rank; i++) {
        TRY(xci_buffer_put_text(buffer, i > 0 ? "," : ""));
        TRY(xci_buffer_put_decimal(buffer, entry->shape[i]));
    }
    TRY(xci_buffer_put_text(buffer, "],\"data_offsets\":["));
    TRY(xci_buffer_put_decimal(buffer, begin));
    TRY(xci_buffer_put_text(buffer, ","));
    TRY(xci_buffer_put_decimal(buffer, begin + entry->bytes));
    return xci_buffer_put_text(buffer, "]}");
}

xorcast_status xci_safetensors_put_header(xci_buffer *buffer, xci_entry *entries, uint64_t count) {
    const uint64_t start = buffer->size;
    uint8_t *prefix;
    uint64_t data = 0;
    TRY(xci_buffer_take(buffer, XCI_HEADER_PREFIX, &prefix));
    /* Loaders of PyTorch models refuse files that do not say so. */
    TRY(xci_buffer_put_text(buffer, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (uint64_t i = 0; i < count; i++) {
        TRY(put_tensor(buffer, &entries[i], data));
        entries[i].offset = data;
        data += entries[i].bytes;
    }
    TRY(xci_buffer_put_text(buffer, "}"));
    while ((buffer->size - start) % 8 != 0)
        TRY(xci_buffer_put8(buffer, ' '));
    const uint64_t whole = buffer->size - start;
    if (whole - XCI_HEADER_PREFIX > XCI_HEADER_MAX)
        FAIL(buffer->context, XORCAST_UNSUPPORTED,
             "%llu tensors need a header beyond the format's limit; write smaller shards",
             (unsigned long long)count);
    xci_store64(buffer->bytes + start, whole - XCI_HEADER_PREFIX);
    for (uint64_t i = 0; i < count; i++)
        entries[i].offset += whole;
    return XORCAST_OK;
}
