/* Listings: reading a path, and bundles over what was found. See listing.h. */
#include "checkpoint/listing.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "bundle/bundle.h"
#include "checkpoint/index.h"
#include "checkpoint/paths.h"
#include "checkpoint/recovery.h"

xorcast_status xci_listing_create(xorcast_context *context, xci_listing *listing) {
    *listing = (xci_listing){.context = context, .entries = {.context = context}};
    return xci_arena_create(context, &listing->arena);
}

void xci_listing_free(xci_listing *listing) {
    xci_open_files_destroy(listing->files);
    listing->files = NULL;
    listing->shard_count = listing->side_count = 0;
    xci_entries_free(&listing->entries);
    xci_arena_destroy(listing->arena);
    listing->arena = NULL;
}

static int shard_by_name(const void *name, const void *shard) {
    return strcmp(name, ((const xci_shard *)shard)->name);
}

static int side_by_name(const void *name, const void *side) {
    return strcmp(name, ((const xci_side *)side)->name);
}

const xci_shard *xci_listing_shard(const xci_listing *listing, const char *name) {
    return listing->shard_count == 0 ? NULL
                                     : bsearch(name, listing->shards, listing->shard_count,
                                               sizeof *listing->shards, shard_by_name);
}

const xci_side *xci_listing_side(const xci_listing *listing, const char *name) {
    return listing->side_count == 0 ? NULL
                                    : bsearch(name, listing->sides, listing->side_count,
                                              sizeof *listing->sides, side_by_name);
}

/* ---- Files ---- */

xorcast_status xci_shard_read_header(xorcast_context *context, const xci_shard *shard,
                                     uint8_t *out) {
    return xci_file_read_at(context, shard->file, XCI_HEADER_PREFIX, out, shard->header_bytes);
}

xorcast_status xci_side_read(xorcast_context *context, const xci_side *side, uint8_t *out) {
    return xci_file_read_at(context, side->file, 0, out, side->bytes);
}

xorcast_status xci_side_check(xorcast_context *context, const xci_side *side) {
    if (side->bytes > XCI_SIDE_FILE_MAX)
        FAIL(context, XORCAST_UNSUPPORTED,
             "%s has %llu bytes; files beside the weights travel whole and may have at most %llu: "
             "move it out of the checkpoint",
             side->path, (unsigned long long)side->bytes, (unsigned long long)XCI_SIDE_FILE_MAX);
    return XORCAST_OK;
}

static xorcast_status parse_shard(xci_listing *listing, xci_shard *shard, uint32_t index,
                                  const uint8_t *header) {
    uint64_t data_bytes;
    shard->header_hash = xci_hash_of(header, shard->header_bytes);
    TRY(xci_safetensors_parse(&listing->entries, listing->arena, shard->path, index, header,
                              shard->header_bytes, &data_bytes));
    const uint64_t there = shard->file_bytes - XCI_HEADER_PREFIX - shard->header_bytes;
    if (data_bytes > there)
        FAIL(listing->context, XORCAST_DATA_TRUNCATED,
             "%s holds %llu bytes of tensors, its header says %llu; fetch it again", shard->path,
             (unsigned long long)there, (unsigned long long)data_bytes);
    if (data_bytes < there)
        FAIL(listing->context, XORCAST_DATA_CORRUPT,
             "%s has %llu bytes behind its last tensor; it is damaged or was made by something "
             "else",
             shard->path, (unsigned long long)(there - data_bytes));
    return XORCAST_OK;
}

static xorcast_status read_shard(xci_listing *listing, xci_shard *shard, uint32_t index) {
    xorcast_context *context = listing->context;
    uint8_t prefix[XCI_HEADER_PREFIX];
    void *header;
    if (shard->file_bytes < sizeof prefix)
        FAIL(context, XORCAST_DATA_TRUNCATED,
             "%s has %llu bytes, too few for a safetensors file; fetch it again", shard->path,
             (unsigned long long)shard->file_bytes);
    TRY(xci_file_read_at(context, shard->file, 0, prefix, sizeof prefix));
    TRY(xci_safetensors_length(context, shard->path, prefix, shard->file_bytes,
                               &shard->header_bytes));
    TRY(xci_allocate(context, shard->header_bytes, &header));
    xorcast_status status = xci_shard_read_header(context, shard, header);
    if (status == XORCAST_OK)
        status = parse_shard(listing, shard, index, header);
    xci_release(context, header);
    return status;
}

static xorcast_status add_shard(xci_listing *listing, const char *name, const char *path) {
    xci_shard *shard = &listing->shards[listing->shard_count];
    xci_file_facts facts;
    *shard = (xci_shard){.name = name, .path = path};
    TRY(xci_file_open(listing->files, path, &shard->file, &facts));
    listing->shard_count++;
    shard->mode = facts.mode;
    shard->file_bytes = facts.bytes;
    return read_shard(listing, shard, (uint32_t)(listing->shard_count - 1));
}

static xorcast_status add_side(xci_listing *listing, const char *name, const char *path) {
    xci_side *side = &listing->sides[listing->side_count];
    xci_file_facts facts;
    *side = (xci_side){.name = name, .path = path};
    TRY(xci_file_open(listing->files, path, &side->file, &facts));
    listing->side_count++;
    side->mode = facts.mode;
    side->bytes = facts.bytes;
    return XORCAST_OK;
}

/* ---- Paths ---- */

static xorcast_status add_name(xci_listing *listing, const char *folder, const char *name) {
    const xci_name_kind kind = xci_name_kind_of(name);
    const char *path;
    xci_file_facts facts, link;
    if (kind == XCI_NAME_OTHER)
        return XORCAST_OK;
    TRY(xci_path_join(listing->arena, folder, name, &path));
    TRY(xci_io_facts(listing->context, path, false, &facts));
    if (facts.kind == XCI_FILE_ABSENT) {
        TRY(xci_io_facts(listing->context, path, true, &link));
        FAIL(listing->context, XORCAST_NOT_FOUND,
             link.kind == XCI_FILE_ABSENT ? "%s went away while the checkpoint was opened"
                                          : "%s is a link to a file that does not exist; "
                                            "fetch the checkpoint again",
             path);
    }
    if (facts.kind != XCI_FILE_REGULAR)
        return XORCAST_OK;
    return kind == XCI_NAME_SHARD ? add_shard(listing, name, path) : add_side(listing, name, path);
}

/* Room for every name that may be a file. */
static xorcast_status make_room(xci_listing *listing, uint64_t count) {
    void *memory;
    TRY(xci_arena_take(listing->arena, (count + 1) * sizeof(xci_shard), &memory));
    listing->shards = memory;
    TRY(xci_arena_take(listing->arena, (count + 1) * sizeof(xci_side), &memory));
    listing->sides = memory;
    return XORCAST_OK;
}

static xorcast_status open_folder(xci_listing *listing, const char *folder) {
    const char **names;
    uint64_t count;
    TRY(xci_io_list(listing->context, folder, listing->arena, &names, &count));
    TRY(make_room(listing, count));
    for (uint64_t i = 0; i < count; i++)
        TRY(add_name(listing, folder, names[i]));
    TRY(xci_entries_sort(&listing->entries));
    TRY(xci_index_check(listing));
    if (listing->shard_count == 0)
        FAIL(listing->context, XORCAST_NOT_FOUND,
             "%s holds no .safetensors file; is it the checkpoint's directory?", folder);
    return XORCAST_OK;
}

static xorcast_status open_path(xci_listing *listing, const char *path) {
    const char *trimmed;
    xci_file_facts facts;
    TRY(xci_open_files_create(listing->context, &listing->files));
    TRY(xci_path_trim(listing->arena, path, &trimmed));
    TRY(xci_io_facts(listing->context, trimmed, false, &facts));
    if (facts.kind == XCI_FILE_ABSENT)
        FAIL(listing->context, XORCAST_NOT_FOUND, "there is no checkpoint at %s", trimmed);
    listing->directory = facts.kind == XCI_FILE_DIRECTORY;
    if (listing->directory)
        return open_folder(listing, trimmed);
    TRY(make_room(listing, 1));
    TRY(add_shard(listing, "", trimmed));
    return xci_entries_sort(&listing->entries);
}

xorcast_status xci_listing_open(xorcast_context *context, const char *path, xci_listing *listing) {
    xci_gate gate;
    if (path == NULL || *path == 0)
        FAIL(context, XORCAST_BAD_ARGUMENT, "the path of a checkpoint is missing");
    TRY(xci_gate_enter(context, path, &gate));
    xorcast_status status = xci_listing_create(context, listing);
    if (status == XORCAST_OK) {
        status = open_path(listing, path);
        if (status < 0)
            xci_listing_free(listing);
    }
    xci_gate_leave(&gate);
    return status;
}

/* ---- Bundles ---- */

static bool same_tensor(const xci_entry *a, const xci_entry *b) {
    return strcmp(a->dtype, b->dtype) == 0 && a->rank == b->rank && a->bytes == b->bytes &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

bool xci_listing_same_tensors(const xci_listing *a, const xci_listing *b) {
    if (a->entries.count != b->entries.count)
        return false;
    for (uint64_t i = 0; i < a->entries.count; i++)
        if (strcmp(a->entries.at[i].name, b->entries.at[i].name) != 0 ||
            !same_tensor(&a->entries.at[i], &b->entries.at[i]))
            return false;
    return true;
}

static xorcast_status add_entry(xorcast_bundle *bundle, const xci_entry *entry,
                                const xci_listing *files, const xci_entry *place) {
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = entry->name;
    tensor.dtype = entry->dtype;
    tensor.shape = entry->shape;
    tensor.rank = entry->rank;
    tensor.bytes = entry->bytes;
    if (place == NULL)
        return xci_bundle_add_file(bundle, &tensor, NULL, 0);
    const xci_shard *shard = &files->shards[place->shard];
    return xci_bundle_add_file(bundle, &tensor, shard->file, place->offset);
}

static xorcast_status add_entries(const xci_listing *listing, const xci_listing *source,
                                  xorcast_bundle *bundle, uint64_t *absent) {
    for (uint64_t i = 0; i < listing->entries.count; i++) {
        const xci_entry *entry = &listing->entries.at[i], *place = entry;
        if (source != NULL) {
            place = xci_entries_find(&source->entries, entry->name);
            if (place == NULL || !same_tensor(place, entry)) {
                place = NULL;
                ++*absent;
            }
        }
        TRY(add_entry(bundle, entry, source != NULL ? source : listing, place));
    }
    return XORCAST_OK;
}

xorcast_status xci_listing_bundle(const xci_listing *listing, const xci_listing *source,
                                  const xorcast_bundle_options *options,
                                  xorcast_bundle **bundle_out, uint64_t *absent_out) {
    xorcast_bundle *bundle;
    xorcast_layout layout;
    uint64_t absent = 0;
    TRY(xorcast_bundle_create(listing->context, options, &bundle));
    xorcast_status status = add_entries(listing, source, bundle, &absent);
    if (status == XORCAST_OK)
        status = xorcast_bundle_seal(bundle, &layout);
    if (status < 0) {
        xorcast_bundle_destroy(bundle);
        return status;
    }
    *bundle_out = bundle;
    if (absent_out != NULL)
        *absent_out = absent;
    return XORCAST_OK;
}
