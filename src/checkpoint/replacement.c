/* Replacements: see replacement.h. */
#include "checkpoint/replacement.h"

#include <string.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/io.h"
#include "base/progress.h"
#include "checkpoint/paths.h"
#include "checkpoint/recovery.h"

#define OWNER_WRITES 0600u
#define CLAIM_TIMEOUT_MS 2000u /* a reader that discards leftovers holds the claim for a moment */

typedef struct staged {
    const char *name, *path;
    xci_file *file;
    uint32_t mode; /* 0: as it was created */
} staged;

typedef struct name_list {
    const char **names;
    uint64_t count, capacity; /* capacity in bytes */
} name_list;

struct xci_replacement {
    xorcast_context *context;
    xci_arena *arena;
    const char *path, *stage;
    bool directory;
    bool made; /* the directory is ours to remove again */
    int claim;
    xci_open_files *open_files;
    staged *files;
    uint64_t file_count, file_capacity;
    name_list removals;
};

/* ---- Beginning ---- */

static xorcast_status check_place(xci_replacement *r) {
    xci_file_facts facts;
    TRY(xci_io_facts(r->context, r->path, false, &facts));
    if (facts.kind == XCI_FILE_ABSENT && r->directory) {
        TRY(xci_io_make_folder(r->context, r->path));
        r->made = true;
        return XORCAST_OK;
    }
    const xci_file_kind wanted = r->directory ? XCI_FILE_DIRECTORY : XCI_FILE_REGULAR;
    if (facts.kind != XCI_FILE_ABSENT && facts.kind != wanted)
        FAIL(r->context, XORCAST_BAD_ARGUMENT,
             "%s is not a %s; the checkpoint would be one: choose another place", r->path,
             r->directory ? "directory" : "regular file");
    return XORCAST_OK;
}

static xorcast_status try_claim(xci_replacement *r, uint64_t deadline) {
    TRY(check_place(r));
    TRY(xci_checkpoint_recover(r->context, r->path));
    return xci_stage_claim(r->context, r->path, r->directory, r->stage, false, deadline, &r->claim);
}

static xorcast_status claim(xci_replacement *r) {
    const uint64_t deadline = xci_deadline(CLAIM_TIMEOUT_MS);
    do {
        xorcast_status status = try_claim(r, deadline);
        if (status == XORCAST_NOT_FOUND) /* who made the directory gave up and removed it */
            status = try_claim(r, deadline);
        TRY(status);
        if (r->claim >= 0)
            return XORCAST_OK;
    } while (xci_now_ns() < deadline);
    FAIL(r->context, XORCAST_TIMED_OUT,
         "another process is replacing %s now; wait until it has ended, then try again", r->path);
}

static xorcast_status begin(xci_replacement *r, const char *path) {
    TRY(xci_arena_create(r->context, &r->arena));
    TRY(xci_open_files_create(r->context, &r->open_files));
    TRY(xci_path_trim(r->arena, path, &r->path));
    TRY(xci_stage_path(r->context, r->arena, r->path, r->directory, &r->stage));
    return claim(r);
}

xorcast_status xci_replacement_begin(xorcast_context *context, const char *path, bool directory,
                                     xci_replacement **replacement_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_replacement), &memory));
    xci_replacement *r = memory;
    r->context = context;
    r->directory = directory;
    r->claim = -1;
    const xorcast_status status = begin(r, path);
    if (status < 0) {
        xci_replacement_abort(r);
        return status;
    }
    *replacement_out = r;
    return XORCAST_OK;
}

/* ---- Staging ---- */

xorcast_status xci_replacement_check_space(xci_replacement *r, uint64_t bytes) {
    uint64_t there;
    TRY(xci_io_free_bytes(r->context, r->stage, &there));
    if (there < bytes)
        FAIL(r->context, XORCAST_IO_FAILED,
             "%llu bytes are needed beside %s until the old files go, and %llu are free; make room",
             (unsigned long long)bytes, r->path, (unsigned long long)there);
    return XORCAST_OK;
}

/* Changes `*mode` to that of the file that stands at the place of `name`, if there is one. */
static xorcast_status replaced_mode(xci_replacement *r, const char *name, uint32_t *mode) {
    const char *place = r->path;
    xci_file_facts facts;
    if (r->directory)
        TRY(xci_path_join(r->arena, r->path, name, &place));
    TRY(xci_io_facts(r->context, place, false, &facts));
    if (facts.kind == XCI_FILE_REGULAR)
        *mode = facts.mode;
    return XORCAST_OK;
}

xorcast_status xci_replacement_create(xci_replacement *r, const char *name, uint32_t mode,
                                      uint64_t bytes, xci_file **file_out) {
    staged made = {.mode = mode};
    void *kept;
    if (!r->directory)
        name = "file";
    TRY(xci_arena_copy(r->arena, name, strlen(name) + 1, &kept));
    made.name = kept;
    TRY(xci_path_join(r->arena, r->stage, name, &made.path));
    TRY(xci_grow(r->context, &r->files, &r->file_capacity, (r->file_count + 1) * sizeof(staged)));
    TRY(xci_file_create(r->open_files, made.path, &made.file));
    TRY(replaced_mode(r, name, &made.mode));
    r->files[r->file_count++] = made;
    if (made.mode != 0) /* may be read-only: not before it is written */
        TRY(xci_file_set_mode(r->context, made.file, made.mode | OWNER_WRITES));
    TRY(xci_file_set_size(r->context, made.file, bytes));
    *file_out = made.file;
    return XORCAST_OK;
}

xorcast_status xci_replacement_remove(xci_replacement *r, const char *name) {
    void *kept;
    TRY(xci_arena_copy(r->arena, name, strlen(name) + 1, &kept));
    TRY(xci_grow(r->context, &r->removals.names, &r->removals.capacity,
                 (r->removals.count + 1) * sizeof(char *)));
    r->removals.names[r->removals.count++] = kept;
    return XORCAST_OK;
}

/* ---- Ending ---- */

static void close_files(xci_replacement *r) {
    xci_open_files_destroy(r->open_files);
    r->open_files = NULL;
    r->file_count = 0;
}

static void release(xci_replacement *r) {
    xorcast_context *context = r->context;
    close_files(r);
    xci_io_close(r->claim);
    xci_release(context, r->files);
    xci_release(context, r->removals.names);
    xci_arena_destroy(r->arena);
    xci_release(context, r);
}

/* Removes stage and made directory as far as that works; what stays is discarded by the next
 * call. */
static void discard(xci_replacement *r) {
    close_files(r);
    if (r->claim >= 0 && xci_stage_drop(r->context, r->stage, r->claim) < 0)
        xci_log(r->context, XORCAST_LOG_WARNING,
                "%s could not be removed; the next xorcast command on the checkpoint does it",
                r->stage);
    r->claim = -1;
    if (r->made)
        (void)xci_io_remove_folder(r->context,
                                   r->path); /* fails if it is not empty: then it stays */
}

void xci_replacement_abort(xci_replacement *r) {
    if (r == NULL)
        return;
    xorcast_error cause;
    xorcast_last_error(r->context, &cause);
    discard(r);
    pthread_mutex_lock(&r->context->lock);
    r->context->error = cause;
    pthread_mutex_unlock(&r->context->lock);
    release(r);
}

static xorcast_status sync_files(xci_replacement *r) {
    for (uint64_t i = 0; i < r->file_count; i++) {
        const staged *made = &r->files[i];
        if (made->mode != 0)
            TRY(xci_file_set_mode(r->context, made->file, made->mode));
        TRY(xci_file_sync(r->context, made->file));
        TRY(xci_progress_ask(r->context));
    }
    return XORCAST_OK;
}

static xorcast_status switch_file(xci_replacement *r) {
    TRY(xci_io_rename(r->context, r->files[0].path, r->path));
    if (xci_io_sync_parent(r->context, r->path) < 0)
        FAIL(r->context, XORCAST_IO_FAILED,
             "%s is the new version, but the system could not confirm that it would survive a "
             "power failure",
             r->path);
    return XORCAST_OK;
}

/* `*decided_out`: the record stands, so nothing staged may be discarded. */
static xorcast_status switch_folder(xci_replacement *r, bool *decided_out) {
    void *memory;
    TRY(xci_arena_take(r->arena, r->file_count * sizeof(char *), &memory));
    const xci_commit_record record = {memory, r->removals.names, r->file_count, r->removals.count};
    for (uint64_t i = 0; i < r->file_count; i++)
        record.renames[i] = r->files[i].name;
    xci_gate gate;
    TRY(xci_gate_enter_alone(r->context, r->path, &gate));
    xorcast_status status = xci_record_commit(r->context, r->path, r->stage, &record);
    *decided_out = status == XORCAST_OK;
    if (*decided_out)
        status = xci_record_finish(r->context, r->path);
    xci_gate_leave(&gate);
    if (status == XORCAST_OK && r->made)
        status = xci_io_sync_parent(r->context, r->path);
    return status;
}

xorcast_status xci_replacement_finish(xci_replacement *r) {
    bool decided = false;
    xorcast_status status = sync_files(r);
    if (status == XORCAST_OK)
        status = r->directory ? switch_folder(r, &decided) : switch_file(r);
    if (status < 0 && !decided) {
        xci_replacement_abort(r);
        return status;
    }
    r->made = false;
    if (status == XORCAST_OK)
        discard(r);
    release(r);
    return status;
}
