/* A delta applied to a checkpoint on disk. Everything is verified before anything becomes
 * visible: the base by a full scan before the first byte is written, the target by the digest of
 * all that was written. Owns where the target's files go; how their bytes are made is
 * checkpoint_update.c's, how they appear at once the replacement's. */
#include <string.h>

#include "base/bytes.h"
#include "base/folder.h"
#include "checkpoint/recovery.h"
#include "checkpoint/replacement.h"
#include "subscribe/checkpoint_update.h"

typedef struct application {
    xorcast_context *context;
    xci_update update;
    const char *path, *out_path;
    bool in_place;
    xci_replacement *replacement;
    xci_file **outputs; /* for each shard */
    bool there;         /* the target stood where it goes; nothing was written */
} application;

static xorcast_status write_piece(void *user, uint64_t tensor, uint64_t offset,
                                  const uint8_t *bytes, uint64_t count) {
    const application *a = user;
    const xci_entry *entry = &a->update.files.target.entries.at[tensor];
    return xci_file_write_at(a->context, a->outputs[entry->shard], entry->offset + offset, bytes,
                             count);
}

/* ---- Files ---- */

/* Full disks are better found before the work than after. */
static xorcast_status check_space(const application *a) {
    const xci_listing *target = &a->update.files.target;
    uint64_t needed = 0;
    bool countable = true;
    for (uint64_t i = 0; i < target->shard_count; i++)
        countable = countable && xci_add(needed, target->shards[i].file_bytes, &needed);
    for (uint64_t i = 0; i < target->side_count; i++)
        countable = countable && xci_add(needed, target->sides[i].bytes, &needed);
    return xci_replacement_check_space(a->replacement, countable ? needed : UINT64_MAX);
}

static xorcast_status stage_shard(application *a, uint64_t index) {
    const xci_shard *shard = &a->update.files.target.shards[index];
    xci_file **out = &a->outputs[index];
    uint8_t prefix[XCI_HEADER_PREFIX];
    TRY(xci_replacement_create(a->replacement, shard->name, shard->mode, shard->file_bytes, out));
    xci_store64(prefix, shard->header_bytes);
    TRY(xci_file_write_at(a->context, *out, 0, prefix, sizeof prefix));
    return xci_file_write_at(a->context, *out, sizeof prefix, shard->header, shard->header_bytes);
}

static xorcast_status copy_side(application *a, const xci_side *from, xci_file *to) {
    void *content;
    TRY(xci_allocate(a->context, from->bytes, &content));
    xorcast_status status = xci_side_read(a->context, from, content);
    if (status == XORCAST_OK)
        status = xci_file_write_at(a->context, to, 0, content, from->bytes);
    xci_release(a->context, content);
    return status;
}

/* A side file that stays as it is need not be written again, unless the target stands elsewhere. */
static xorcast_status stage_side(application *a, const xci_side *side) {
    const xci_side *same = xci_listing_side(&a->update.base->listing, side->name);
    xci_file *file;
    if (side->content == NULL && same != NULL && a->in_place)
        return XORCAST_OK;
    TRY(xci_replacement_create(a->replacement, side->name, side->mode, side->bytes, &file));
    if (side->content != NULL || same == NULL)
        return xci_file_write_at(a->context, file, 0, side->content,
                                 side->content != NULL ? side->bytes : 0);
    return copy_side(a, same, file);
}

static xorcast_status list_removals(application *a) {
    const xci_listing *base = &a->update.base->listing;
    for (uint64_t i = 0; i < base->shard_count; i++)
        if (xci_listing_shard(&a->update.files.target, base->shards[i].name) == NULL)
            TRY(xci_replacement_remove(a->replacement, base->shards[i].name));
    for (uint64_t i = 0; i < a->update.files.removed_count; i++)
        if (xci_listing_side(base, a->update.files.removed[i]) != NULL)
            TRY(xci_replacement_remove(a->replacement, a->update.files.removed[i]));
    return XORCAST_OK;
}

static xorcast_status stage_files(application *a) {
    void *memory;
    TRY(xci_allocate_array(a->context, a->update.files.target.shard_count, sizeof(xci_file *),
                           &memory));
    a->outputs = memory;
    for (uint64_t i = 0; i < a->update.files.target.shard_count; i++)
        TRY(stage_shard(a, i));
    for (uint64_t i = 0; i < a->update.files.target.side_count; i++)
        TRY(stage_side(a, &a->update.files.target.sides[i]));
    return a->in_place && a->update.files.target.directory ? list_removals(a) : XORCAST_OK;
}

/* ---- What is there already ---- */

static xorcast_status side_bytes(const application *a, const xci_side *side, void **bytes_out) {
    TRY(xci_allocate(a->context, side->bytes, bytes_out));
    const xorcast_status status = xci_side_read(a->context, side, *bytes_out);
    if (status < 0)
        xci_release(a->context, *bytes_out);
    return status;
}

/* Has `there` the side file as the target has it? */
static xorcast_status same_side(const application *a, const xci_side *wanted,
                                const xci_listing *there, bool *same_out) {
    const xci_side *found = xci_listing_side(there, wanted->name),
                   *base = xci_listing_side(&a->update.base->listing, wanted->name);
    const void *content = wanted->content;
    void *kept = NULL, *bytes;
    *same_out = found != NULL && found->bytes == wanted->bytes;
    if (!*same_out || wanted->bytes == 0)
        return XORCAST_OK;
    if (content == NULL) {
        TRY(side_bytes(a, base, &kept));
        content = kept;
    }
    const xorcast_status status = side_bytes(a, found, &bytes);
    if (status == XORCAST_OK) {
        *same_out = memcmp(bytes, content, wanted->bytes) == 0;
        xci_release(a->context, bytes);
    }
    xci_release(a->context, kept);
    return status;
}

static xorcast_status same_files(const application *a, const xci_listing *there, bool *same_out) {
    const xci_listing *target = &a->update.files.target;
    *same_out = there->directory == target->directory &&
                there->shard_count == target->shard_count &&
                there->side_count == target->side_count;
    for (uint64_t i = 0; i < target->shard_count && *same_out; i++) {
        const xci_hash hash = xci_hash_of(target->shards[i].header, target->shards[i].header_bytes);
        const xci_shard *found = xci_listing_shard(there, target->shards[i].name);
        *same_out = found != NULL && memcmp(&found->header_hash, &hash, sizeof hash) == 0;
    }
    for (uint64_t i = 0; i < target->side_count && *same_out; i++)
        TRY(same_side(a, &target->sides[i], there, same_out));
    return XORCAST_OK;
}

/* Does this failure to open a checkpoint say that none is there, or none that is whole? */
static bool is_none(xorcast_status status) {
    return status == XORCAST_NOT_FOUND || status == XORCAST_BAD_ARGUMENT ||
           (status <= XORCAST_DATA_TRUNCATED && status >= XORCAST_DATA_LIMIT);
}

/* An apply that is repeated may have got as far as the other place before. */
static xorcast_status find_out(application *a) {
    xorcast_checkpoint *out;
    const xorcast_status opened = xci_update_checkpoint(&a->update, a->out_path, &out);
    if (is_none(opened))
        return XORCAST_OK;
    TRY(opened);
    bool same;
    xorcast_status status = same_files(a, &out->listing, &same);
    if (status == XORCAST_OK && same)
        status = xci_update_is_target(&a->update, out, &same);
    xorcast_checkpoint_close(out);
    a->there = status == XORCAST_OK && same;
    return status;
}

/* ---- The two calls ---- */

static xorcast_status find_place(application *a) {
    xci_file_facts base, out;
    TRY(xci_io_facts(a->context, a->path, false, &base));
    if (base.kind == XCI_FILE_ABSENT)
        FAIL(a->context, XORCAST_NOT_FOUND, "there is no checkpoint at %s", a->path);
    a->in_place = a->out_path == NULL || strcmp(a->path, a->out_path) == 0;
    if (!a->in_place && base.kind == XCI_FILE_DIRECTORY) {
        TRY(xci_io_facts(a->context, a->out_path, false, &out));
        a->in_place = base.device == out.device && base.inode == out.inode;
    }
    /* The claim comes before the base is read: another apply must not change it in between. */
    return a->in_place ? xci_replacement_begin(a->context, a->path, base.kind == XCI_FILE_DIRECTORY,
                                               &a->replacement)
                       : XORCAST_OK;
}

static xorcast_status fail_used(const application *a) {
    FAIL(a->context, XORCAST_BAD_ARGUMENT,
         "%s is not empty; choose another place for the new checkpoint, or empty it", a->out_path);
}

/* A checkpoint elsewhere is made anew: files of another one must not mix into it. Before anything
 * is made there. */
static xorcast_status check_out(const application *a) {
    xci_file_facts facts;
    bool used;
    TRY(xci_io_facts(a->context, a->out_path, false, &facts));
    if (facts.kind != XCI_FILE_DIRECTORY || !a->update.files.target.directory)
        return XORCAST_OK;
    TRY(xci_checkpoint_recover(a->context, a->out_path));
    TRY(xci_stage_beside(a->context, a->out_path, &used));
    return used ? fail_used(a) : XORCAST_OK;
}

/* Until the place was claimed, another apply may have filled it: with the same, if this one is the
 * other's repetition. */
static xorcast_status check_claimed(application *a) {
    bool used;
    TRY(xci_stage_beside(a->context, a->out_path, &used));
    if (!used)
        return XORCAST_OK;
    TRY(find_out(a));
    return a->there ? XORCAST_OK : fail_used(a);
}

static xorcast_status prepare_place(application *a) {
    const bool directory = a->update.files.target.directory,
               was_directory = a->update.base->listing.directory;
    if (a->in_place && directory != was_directory)
        FAIL(a->context, XORCAST_BAD_ARGUMENT,
             "the delta leads to a %s and %s is a %s; write the new checkpoint to another place",
             directory ? "directory" : "single file", a->path,
             was_directory ? "directory" : "single file");
    if (a->in_place)
        return XORCAST_OK;
    TRY(check_out(a));
    TRY(xci_replacement_begin(a->context, a->out_path, directory, &a->replacement));
    return directory ? check_claimed(a) : XORCAST_OK;
}

static xorcast_status apply(application *a, const xorcast_source *source) {
    TRY(find_place(a));
    TRY(xci_update_open(&a->update, a->path, source));
    a->there = a->in_place && a->update.is_target;
    if (a->there)
        return XORCAST_OK;
    TRY(xci_update_match(&a->update));
    if (!a->in_place)
        TRY(find_out(a));
    if (a->there)
        return XORCAST_OK;
    TRY(prepare_place(a));
    if (a->there)
        return XORCAST_OK;
    TRY(check_space(a));
    TRY(stage_files(a));
    a->update.write = write_piece;
    a->update.user = a;
    TRY(xci_update_run(&a->update));
    xci_replacement *replacement = a->replacement;
    a->replacement = NULL; /* finish frees it */
    return xci_replacement_finish(replacement);
}

xorcast_status xorcast_checkpoint_apply(xorcast_context *context, const char *path,
                                        const xorcast_source *source, const char *out_path,
                                        xorcast_delta_info *info_out) {
    application a = {
        .context = context, .update = {.context = context}, .path = path, .out_path = out_path};
    if (path == NULL || *path == 0 || (out_path != NULL && *out_path == 0))
        FAIL(context, XORCAST_BAD_ARGUMENT, "the path of a checkpoint is missing");
    const xorcast_status status = apply(&a, source);
    if (status == XORCAST_OK && info_out != NULL) {
        *info_out = a.update.delta.manifest.info;
        info_out->already = a.there              ? XORCAST_ALREADY_THERE
                            : a.update.is_target ? XORCAST_ALREADY_COPIED
                                                 : XORCAST_ALREADY_NOT;
    }
    xci_replacement_abort(a.replacement);
    xci_release(context, a.outputs);
    xci_update_close(&a.update);
    return status;
}

static xorcast_status check(xci_update *update, const char *path, const xorcast_source *source) {
    xorcast_delta_choices choices;
    TRY(xci_update_open(update, path, source));
    if (update->is_target) /* the delta may be damaged all the same */
        return xorcast_delta_explain(update->context, source, &choices);
    TRY(xci_update_match(update));
    return xci_update_run(update);
}

xorcast_status xorcast_checkpoint_check(xorcast_context *context, const char *path,
                                        const xorcast_source *source,
                                        xorcast_delta_info *info_out) {
    xci_update update = {.context = context};
    const xorcast_status status = check(&update, path, source);
    if (status == XORCAST_OK && info_out != NULL) {
        *info_out = update.delta.manifest.info;
        info_out->already = update.is_target ? XORCAST_ALREADY_THERE : XORCAST_ALREADY_NOT;
    }
    xci_update_close(&update);
    return status;
}
