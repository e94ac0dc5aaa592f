/* Writing a bundle as a checkpoint: one safetensors file, or shards with an index. Streams
 * through one window, so that memory does not grow with the weights; appears at once, through a
 * replacement. Does not know where the bundle's bytes come from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/folder.h"
#include "bundle/window.h"
#include "checkpoint/index.h"
#include "checkpoint/paths.h"
#include "checkpoint/replacement.h"

#define WINDOW_BYTES (UINT64_C(8) << 20)
#define SHARDS_MAX 99999u /* five digits, as other tools name them */

typedef struct plan {
    xorcast_bundle *bundle;
    xci_arena *arena;
    xci_replacement *replacement;
    xci_entry *entries; /* in the bundle's order; `shard` is set */
    uint64_t *order;    /* indices in the order in which the bytes are written: shard by shard */
    const char **names; /* of the shards */
    uint32_t shard_count;
    xci_window window;
} plan;

static xorcast_status list_tensors(plan *p) {
    void *memory;
    TRY(xci_arena_take(p->arena, p->bundle->tensor_count * sizeof(xci_entry), &memory));
    p->entries = memory;
    for (uint64_t t = 0; t < p->bundle->tensor_count; t++) {
        const xci_tensor *tensor = &p->bundle->tensors[t];
        p->entries[t] = (xci_entry){tensor->name, tensor->dtype, tensor->shape, tensor->rank, 0, 0,
                                    tensor->bytes};
    }
    return XORCAST_OK;
}

/* Fills shards in the order of names. A tensor larger than a shard has one for itself. */
static xorcast_status divide(plan *p, uint64_t shard_bytes) {
    uint64_t fill = 0;
    p->shard_count = 1;
    for (uint64_t t = 0; t < p->bundle->tensor_count; t++) {
        xci_entry *entry = &p->entries[t];
        if (shard_bytes != 0 && fill != 0 &&
            entry->bytes > shard_bytes - xci_min(fill, shard_bytes)) {
            p->shard_count++;
            fill = 0;
        }
        if (p->shard_count > SHARDS_MAX)
            FAIL(p->bundle->context, XORCAST_BAD_ARGUMENT,
                 "shards of %llu bytes would be more than %u; make them larger",
                 (unsigned long long)shard_bytes, SHARDS_MAX);
        entry->shard = p->shard_count - 1;
        fill += entry->bytes;
    }
    return XORCAST_OK;
}

static xorcast_status name_shards(plan *p, bool directory) {
    void *memory;
    char name[64];
    TRY(xci_arena_take(p->arena, p->shard_count * sizeof(char *), &memory));
    p->names = memory;
    for (uint32_t s = 0; s < p->shard_count; s++) {
        snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", s + 1, p->shard_count);
        TRY(xci_arena_copy(p->arena, directory ? name : "", directory ? strlen(name) + 1 : 1,
                           &memory));
        p->names[s] = memory;
    }
    return XORCAST_OK;
}

/* Wide elements first, as the reference writes: every tensor is aligned to its element then. */
static int by_width(const void *a, const void *b, void *user) {
    const plan *p = user;
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    const uint32_t width_x = p->bundle->tensors[x].element_bytes;
    const uint32_t width_y = p->bundle->tensors[y].element_bytes;
    if (p->entries[x].shard != p->entries[y].shard)
        return p->entries[x].shard < p->entries[y].shard ? -1 : 1;
    if (width_x != width_y)
        return width_x > width_y ? -1 : 1;
    return x < y ? -1 : x > y;
}

static xorcast_status arrange(plan *p) {
    void *memory;
    TRY(xci_arena_take(p->arena, p->bundle->tensor_count * sizeof(uint64_t), &memory));
    p->order = memory;
    for (uint64_t i = 0; i < p->bundle->tensor_count; i++)
        p->order[i] = i;
    if (p->bundle->tensor_count > 1)
        qsort_r(p->order, p->bundle->tensor_count, sizeof *p->order, by_width, p);
    return XORCAST_OK;
}

/* ---- Writing ---- */

static xorcast_status write_tensor(plan *p, uint64_t tensor, xci_file *file, uint64_t offset) {
    const uint64_t bytes = p->bundle->tensors[tensor].bytes;
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t count = xci_min(WINDOW_BYTES, bytes - done);
        TRY(xci_tensor_read(p->bundle, tensor, done, count, p->window.bytes));
        TRY(xci_file_write_at(p->bundle->context, file, offset + done, p->window.bytes, count));
        done += count;
    }
    return XORCAST_OK;
}

/* `first` and `end` are the shard's tensors in the order of writing. */
static xorcast_status write_shard(plan *p, uint32_t shard, const uint64_t *first,
                                  const uint64_t *end, xci_buffer *header) {
    const uint64_t count = (uint64_t)(end - first);
    void *memory;
    xci_file *file;
    TRY(xci_arena_take(p->arena, count * sizeof(xci_entry), &memory));
    xci_entry *entries = memory;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; i++) {
        entries[i] = p->entries[first[i]];
        bytes += entries[i].bytes;
    }
    header->size = 0;
    TRY(xci_safetensors_put_header(header, entries, count));
    TRY(xci_replacement_create(p->replacement, p->names[shard], 0, header->size + bytes, &file));
    TRY(xci_file_write_at(p->bundle->context, file, 0, header->bytes, header->size));
    for (uint64_t i = 0; i < count; i++)
        TRY(write_tensor(p, first[i], file, entries[i].offset));
    return XORCAST_OK;
}

static xorcast_status write_shards(plan *p) {
    xci_buffer header = {.context = p->bundle->context};
    const uint64_t *at = p->order, *end = at + p->bundle->tensor_count;
    xorcast_status status = XORCAST_OK;
    for (uint32_t s = 0; s < p->shard_count && status == XORCAST_OK; s++) {
        const uint64_t *first = at;
        while (at < end && p->entries[*at].shard == s)
            at++;
        status = write_shard(p, s, first, at, &header);
    }
    xci_buffer_free(&header);
    return status;
}

static xorcast_status write_index(plan *p) {
    xci_buffer index = {.context = p->bundle->context};
    xci_file *file;
    xorcast_status status = xci_index_put(&index, p->entries, p->bundle->tensor_count, p->names);
    if (status == XORCAST_OK)
        status = xci_replacement_create(p->replacement, XCI_INDEX_NAME, 0, index.size, &file);
    if (status == XORCAST_OK)
        status = xci_file_write_at(index.context, file, 0, index.bytes, index.size);
    xci_buffer_free(&index);
    return status;
}

/* Shards that were there before and are not written again go away: they would be part of the
 * checkpoint. */
static xorcast_status remove_others(plan *p, const char *path) {
    const char **names;
    uint64_t count;
    TRY(xci_io_list(p->bundle->context, path, p->arena, &names, &count));
    for (uint64_t i = 0; i < count; i++) {
        bool written = xci_name_kind_of(names[i]) != XCI_NAME_SHARD;
        for (uint32_t s = 0; s < p->shard_count && !written; s++)
            written = strcmp(names[i], p->names[s]) == 0;
        if (!written)
            TRY(xci_replacement_remove(p->replacement, names[i]));
    }
    return XORCAST_OK;
}

static xorcast_status write_files(plan *p, const char *path, uint64_t shard_bytes) {
    TRY(xci_window_open(&p->window, p->bundle, WINDOW_BYTES));
    TRY(list_tensors(p));
    TRY(divide(p, shard_bytes));
    TRY(name_shards(p, shard_bytes != 0));
    TRY(arrange(p));
    TRY(write_shards(p));
    if (shard_bytes == 0)
        return XORCAST_OK;
    TRY(write_index(p));
    return remove_others(p, path);
}

xorcast_status xorcast_checkpoint_write(xorcast_bundle *bundle, const char *path,
                                        uint64_t shard_bytes) {
    xorcast_context *context = bundle->context;
    plan p = {.bundle = bundle};
    TRY(xci_bundle_need_sealed(bundle));
    if (path == NULL || *path == 0)
        FAIL(context, XORCAST_BAD_ARGUMENT, "the path of the checkpoint is missing");
    if (!bundle->complete)
        FAIL(context, XORCAST_UNSUPPORTED,
             "a checkpoint holds whole tensors; this bundle has boxes that leave holes");
    TRY(xci_arena_create(context, &p.arena));
    xorcast_status status = xci_replacement_begin(context, path, shard_bytes != 0, &p.replacement);
    if (status == XORCAST_OK) {
        status = write_files(&p, path, shard_bytes);
        if (status == XORCAST_OK)
            status = xci_replacement_finish(p.replacement);
        else
            xci_replacement_abort(p.replacement);
    }
    xci_window_close(&p.window);
    xci_arena_destroy(p.arena);
    return status;
}
