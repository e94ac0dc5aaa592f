/* Folding attachments: see files.h. Works on what the two deltas tell of files; no checkpoint is
 * at hand. */
#include <string.h>

#include "checkpoint/files.h"

enum { AS_BASE = 0, WHOLE = 1 };

static xorcast_status put_name(xci_buffer *out, const char *name) {
    TRY(xci_buffer_put_varint(out, strlen(name)));
    return xci_buffer_put_text(out, name);
}

static xorcast_status broken_chain(xorcast_context *context, const char *name) {
    FAIL(context, XORCAST_BASE_MISMATCH,
         "the newer delta takes file '%s' from its base, which the older one does not lead to",
         name);
}

static xorcast_status put_shard(xci_buffer *out, const xci_files *older, const xci_shard *shard,
                                bool named) {
    if (shard->header == NULL) {
        const xci_shard *from = xci_listing_shard(&older->target, shard->name);
        const xci_hash hash = shard->header_hash;
        if (from == NULL)
            return broken_chain(out->context, shard->name);
        const xci_hash theirs = from->header != NULL ? xci_hash_of(from->header, from->header_bytes)
                                                     : from->header_hash;
        if (memcmp(&hash, &theirs, sizeof hash) != 0)
            return broken_chain(out->context, shard->name);
        shard = from;
    }
    if (named)
        TRY(put_name(out, shard->name));
    TRY(xci_buffer_put8(out, shard->header != NULL ? WHOLE : AS_BASE));
    if (shard->header == NULL)
        return xci_buffer_put(out, shard->header_hash.bytes, sizeof shard->header_hash.bytes);
    TRY(xci_buffer_put_varint(out, shard->header_bytes));
    return xci_buffer_put(out, shard->header, shard->header_bytes);
}

static xorcast_status put_side(xci_buffer *out, const xci_files *older, const xci_files *newer,
                               uint64_t index) {
    const xci_side *side = &newer->target.sides[index];
    const xci_hash *hash = &newer->side_hashes[index];
    if (side->content == NULL) {
        const xci_side *from = xci_listing_side(&older->target, side->name);
        if (from == NULL || from->bytes != side->bytes)
            return broken_chain(out->context, side->name);
        const xci_hash *told = &older->side_hashes[from - older->target.sides];
        const xci_hash theirs =
            from->content != NULL ? xci_hash_of(from->content, from->bytes) : *told;
        if (memcmp(hash, &theirs, sizeof theirs) != 0)
            return broken_chain(out->context, side->name);
        side = from;
    }
    TRY(put_name(out, side->name));
    TRY(xci_buffer_put8(out, side->content != NULL ? WHOLE : AS_BASE));
    TRY(xci_buffer_put_varint(out, side->bytes));
    if (side->content != NULL)
        return xci_buffer_put(out, side->content, side->bytes);
    return xci_buffer_put(out, hash->bytes, sizeof hash->bytes);
}

/* The next name of two ascending lists, once if both have it; NULL at the end. */
static const char *next_removed(const xci_files *older, const xci_files *newer, uint64_t *i,
                                uint64_t *j) {
    const char *a = *i < older->removed_count ? older->removed[*i] : NULL;
    const char *b = *j < newer->removed_count ? newer->removed[*j] : NULL;
    const int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a, b);
    *i += a != NULL && order <= 0;
    *j += b != NULL && order >= 0;
    return order <= 0 ? a : b;
}

static xorcast_status put_removed(xci_buffer *out, const xci_files *older, const xci_files *newer) {
    uint64_t count = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        uint64_t i = 0, j = 0;
        for (const char *name; (name = next_removed(older, newer, &i, &j)) != NULL;) {
            if (xci_listing_side(&newer->target, name) != NULL)
                continue;
            count += pass == 0;
            if (pass == 1)
                TRY(put_name(out, name));
        }
        if (pass == 0)
            TRY(xci_buffer_put_varint(out, count));
    }
    return XORCAST_OK;
}

static xorcast_status put_all(xci_buffer *out, const xci_files *older, const xci_files *newer) {
    TRY(xci_buffer_put8(out, newer->target.directory));
    TRY(xci_buffer_put_varint(out, newer->target.shard_count));
    for (uint64_t i = 0; i < newer->target.shard_count; i++)
        TRY(put_shard(out, older, &newer->target.shards[i], newer->target.directory));
    TRY(xci_buffer_put_varint(out, newer->target.side_count));
    for (uint64_t i = 0; i < newer->target.side_count; i++)
        TRY(put_side(out, older, newer, i));
    TRY(put_removed(out, older, newer));
    return xci_buffer_put_varint(out, older->whole_count + newer->whole_count);
}

static xorcast_status fold(const xci_files *older, const xci_files *newer, xci_buffer *folded) {
    xci_buffer raw = {.context = folded->context};
    xorcast_status status = put_all(&raw, older, newer);
    if (status == XORCAST_OK)
        status = xci_files_compress(folded, &raw);
    xci_buffer_free(&raw);
    return status;
}

xorcast_status xci_files_fold(xorcast_context *context, const uint8_t *older, uint64_t older_bytes,
                              const uint8_t *newer, uint64_t newer_bytes, uint8_t **folded_out,
                              uint64_t *folded_bytes_out) {
    xci_files a, b;
    xci_buffer folded = {.context = context};
    TRY(xci_files_decode(context, older, older_bytes, &a));
    xorcast_status status = xci_files_decode(context, newer, newer_bytes, &b);
    if (status == XORCAST_OK) {
        status = fold(&a, &b, &folded);
        xci_files_free(&b);
    }
    xci_files_free(&a);
    if (status < 0) {
        xci_buffer_free(&folded);
        return status;
    }
    *folded_out = folded.bytes;
    *folded_bytes_out = folded.size;
    return XORCAST_OK;
}
