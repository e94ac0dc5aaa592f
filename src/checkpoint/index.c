/* Indexes of sharded checkpoints: see index.h. */
#include "checkpoint/index.h"

#include "base/bytes.h"
#include "checkpoint/json.h"
#include "checkpoint/paths.h"

typedef struct checker {
    xci_listing *listing;
    xci_json json;
    uint8_t *seen; /* for each entry: the index names it */
    uint64_t count;
    const xci_shard *shard; /* named last: neighbours share it */
} checker;

static xorcast_status find_shard(checker *c, xci_text name, xci_arena *scratch) {
    const char *kept;
    if (c->shard != NULL && xci_text_is(name, c->shard->name))
        return XORCAST_OK;
    TRY(xci_text_keep(scratch, name, &kept));
    c->shard = xci_listing_shard(c->listing, kept);
    if (c->shard == NULL && xci_name_kind_of(kept) != XCI_NAME_SHARD)
        return xci_json_fail(&c->json, "a value of weight_map is no name of a shard");
    if (c->shard == NULL)
        FAIL(c->listing->context, XORCAST_NOT_FOUND,
             "%s names the shard %s, which is not there; fetch it", c->json.path, kept);
    return XORCAST_OK;
}

static xorcast_status check_tensor(checker *c, xci_text name, xci_text shard, xci_arena *scratch) {
    const char *kept;
    xorcast_context *context = c->listing->context;
    TRY(find_shard(c, shard, scratch));
    TRY(xci_text_keep(scratch, name, &kept));
    const xci_entry *entry = xci_entries_find(&c->listing->entries, kept);
    if (entry == NULL)
        FAIL(context, XORCAST_DATA_CORRUPT, "%s names tensor %.200s, which no shard holds",
             c->json.path, kept);
    if (&c->listing->shards[entry->shard] != c->shard)
        FAIL(context, XORCAST_DATA_CORRUPT, "%s says that tensor %.200s is in %s, but it is in %s",
             c->json.path, kept, c->shard->name, c->listing->shards[entry->shard].name);
    const uint64_t place = (uint64_t)(entry - c->listing->entries.at);
    if (c->seen[place] != 0)
        FAIL(context, XORCAST_DATA_CORRUPT, "%s names tensor %.200s twice", c->json.path, kept);
    c->seen[place] = 1;
    c->count++;
    return XORCAST_OK;
}

static xorcast_status check_map(checker *c) {
    bool first = true, more;
    xci_text name, shard;
    TRY(xci_json_open(&c->json, '{'));
    for (;;) {
        TRY(xci_json_next_key(&c->json, &first, &more, &name));
        if (!more)
            return XORCAST_OK;
        TRY(xci_json_string(&c->json, &shard));
        TRY(check_tensor(c, name, shard, c->json.arena));
    }
}

static xorcast_status check_all(checker *c) {
    bool first = true, more, mapped = false;
    xci_text key;
    TRY(xci_json_open(&c->json, '{'));
    for (;;) {
        TRY(xci_json_next_key(&c->json, &first, &more, &key));
        if (!more)
            break;
        if (!xci_text_is(key, "weight_map")) {
            TRY(xci_json_skip(&c->json));
            continue;
        }
        if (mapped)
            return xci_json_fail(&c->json, "weight_map stands twice");
        mapped = true;
        TRY(check_map(c));
    }
    TRY(xci_json_end(&c->json));
    if (!mapped)
        return xci_json_fail(&c->json, "weight_map is missing");
    if (c->count != c->listing->entries.count)
        for (uint64_t i = 0;; i++)
            if (c->seen[i] == 0)
                FAIL(c->listing->context, XORCAST_DATA_CORRUPT,
                     "%s does not name tensor %.200s of %s; the files are of different versions",
                     c->json.path, c->listing->entries.at[i].name,
                     c->listing->shards[c->listing->entries.at[i].shard].name);
    return XORCAST_OK;
}

/* With the index's bytes, a mark for each entry, and an arena of its own that goes when the
 * check is done. */
static xorcast_status check_with(xci_listing *listing, const xci_side *index, uint8_t *bytes,
                                 uint8_t *seen) {
    xci_arena *scratch;
    TRY(xci_side_read(listing->context, index, bytes));
    TRY(xci_arena_create(listing->context, &scratch));
    checker c = {.listing = listing,
                 .seen = seen,
                 .json =
                     xci_json_over(listing->context, scratch, index->path, bytes, index->bytes)};
    const xorcast_status status = check_all(&c);
    xci_arena_destroy(scratch);
    return status;
}

xorcast_status xci_index_check(xci_listing *listing) {
    const xci_side *index = xci_listing_side(listing, XCI_INDEX_NAME);
    void *bytes, *seen = NULL;
    if (index == NULL)
        return XORCAST_OK;
    TRY(xci_side_check(listing->context, index));
    TRY(xci_allocate(listing->context, index->bytes, &bytes));
    xorcast_status status = xci_allocate_array(listing->context, listing->entries.count, 1, &seen);
    if (status == XORCAST_OK)
        status = check_with(listing, index, bytes, seen);
    xci_release(listing->context, seen);
    xci_release(listing->context, bytes);
    return status;
}

xorcast_status xci_index_put(xci_buffer *buffer, const xci_entry *entries, uint64_t count,
                             const char *const *shard_names) {
    uint64_t total = 0;
    for (uint64_t i = 0; i < count; i++)
        total += entries[i].bytes;
    TRY(xci_buffer_put_text(buffer, "{\n  \"metadata\": {\n    \"total_size\": "));
    TRY(xci_buffer_put_decimal(buffer, total));
    TRY(xci_buffer_put_text(buffer, "\n  },\n  \"weight_map\": {"));
    for (uint64_t i = 0; i < count; i++) {
        TRY(xci_buffer_put_text(buffer, i > 0 ? ",\n    " : "\n    "));
        TRY(xci_json_put_string(buffer, entries[i].name));
        TRY(xci_buffer_put_text(buffer, ": "));
        TRY(xci_json_put_string(buffer, shard_names[entries[i].shard]));
    }
    return xci_buffer_put_text(buffer, "\n  }\n}\n");
}
