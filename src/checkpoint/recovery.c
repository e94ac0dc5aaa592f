/* Staging, commit and recovery of a replacement: see recovery.h. */
#include "checkpoint/recovery.h"

#include <string.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/io.h"
#include "checkpoint/paths.h"

#define STAGE_NAME ".xorcast-new"
#define RECORD_NAME ".xorcast-commit"
#define RECORD_STAGED_NAME ".commit" /* no checkpoint file begins with a dot */
#define GATE_TIMEOUT_MS 30000u       /* a switch takes milliseconds; the rest is for slow disks */

/* ---- Staging ---- */

xorcast_status xci_stage_path(xorcast_context *context, xci_arena *arena, const char *path,
                              bool directory, const char **stage_out) {
    const char *folder, *name;
    char hidden[1 + XCI_FILE_NAME_MAX + sizeof STAGE_NAME] = ".";
    if (directory)
        return xci_path_join(arena, path, STAGE_NAME, stage_out);
    TRY(xci_path_split(arena, path, &folder, &name));
    if (strlen(name) + sizeof STAGE_NAME > XCI_FILE_NAME_MAX || *name == 0)
        FAIL(context, XORCAST_BAD_ARGUMENT, "%s: the file's name is missing or too long", path);
    strcat(strcat(hidden, name), STAGE_NAME);
    return xci_path_join(arena, folder, hidden, stage_out);
}

/* A stage of ours is never a link: through one, files of another directory would be taken. */
static xorcast_status check_stage(xorcast_context *context, const char *stage) {
    xci_file_facts facts;
    TRY(xci_io_facts(context, stage, true, &facts));
    if (facts.kind != XCI_FILE_ABSENT && facts.kind != XCI_FILE_DIRECTORY)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "%s stands where new files are put, and is no directory that xorcast made; remove it",
             stage);
    return XORCAST_OK;
}

static xorcast_status clear(xorcast_context *context, const char *stage, xci_arena *arena,
                            uint64_t *count_out) {
    const char **names, *path;
    TRY(xci_io_list(context, stage, arena, &names, count_out));
    for (uint64_t i = 0; i < *count_out; i++) {
        TRY(xci_path_join(arena, stage, names[i], &path));
        TRY(xci_io_remove(context, path));
    }
    return XORCAST_OK;
}

xorcast_status xci_stage_beside(xorcast_context *context, const char *folder, bool *some_out) {
    xci_arena *arena;
    const char **names;
    uint64_t count;
    TRY(xci_arena_create(context, &arena));
    const xorcast_status status = xci_io_list(context, folder, arena, &names, &count);
    if (status == XORCAST_OK)
        *some_out = count > 1 || (count == 1 && strcmp(names[0], STAGE_NAME) != 0);
    xci_arena_destroy(arena);
    return status;
}

static xorcast_status has_record(xorcast_context *context, xci_arena *arena, const char *folder,
                                 bool *has_out) {
    const char *path;
    xci_file_facts facts;
    TRY(xci_path_join(arena, folder, RECORD_NAME, &path));
    TRY(xci_io_facts(context, path, true, &facts));
    *has_out = facts.kind != XCI_FILE_ABSENT;
    return XORCAST_OK;
}

/* Is the locked directory still the one that stands there? Its last owner may have removed it. */
static xorcast_status is_current(xorcast_context *context, const char *stage, int claim,
                                 bool *current_out) {
    xci_file_facts here, held;
    TRY(xci_io_facts(context, stage, true, &here));
    TRY(xci_io_facts_of(context, claim, stage, &held));
    *current_out =
        here.kind == XCI_FILE_DIRECTORY && here.inode == held.inode && here.device == held.device;
    return XORCAST_OK;
}

/* Emptying is allowed to the holder of the claim, and only while no record refers to the files.
 * Nobody leaves files but who was interrupted. */
static xorcast_status take_over(xorcast_context *context, const char *path, bool directory,
                                const char *stage, int claim, bool *taken_out) {
    xci_arena *arena;
    bool current, record = false;
    uint64_t left = 0;
    TRY(xci_arena_create(context, &arena));
    xorcast_status status = is_current(context, stage, claim, &current);
    if (status == XORCAST_OK && current && directory)
        status = has_record(context, arena, path, &record);
    *taken_out = status == XORCAST_OK && current && !record;
    if (*taken_out)
        status = clear(context, stage, arena, &left);
    if (status == XORCAST_OK && left > 0)
        xci_log(context, XORCAST_LOG_WARNING,
                "an interrupted replacement of %s is discarded: it is the version that it was",
                path);
    xci_arena_destroy(arena);
    return status;
}

xorcast_status xci_stage_claim(xorcast_context *context, const char *path, bool directory,
                               const char *stage, bool only_proven, uint64_t deadline_ns,
                               int *claim_out) {
    int claim;
    xci_lock lock;
    bool taken = false;
    TRY(check_stage(context, stage));
    TRY(xci_io_make_folder(context, stage));
    *claim_out = -1;
    xorcast_status status = xci_io_open_folder(context, stage, true, &claim);
    if (status == XORCAST_NOT_FOUND) /* its owner removed it just now */
        return XORCAST_OK;
    TRY(status);
    status = xci_io_lock(context, claim, stage, true, deadline_ns, &lock);
    if (status == XORCAST_OK &&
        (lock == XCI_LOCK_HELD || (lock == XCI_LOCK_MISSING && !only_proven)))
        status = take_over(context, path, directory, stage, claim, &taken);
    if (status == XORCAST_OK && taken) {
        *claim_out = claim;
        return XORCAST_OK;
    }
    xci_io_close(claim);
    return status;
}

xorcast_status xci_stage_drop(xorcast_context *context, const char *stage, int claim) {
    xci_arena *arena;
    uint64_t count;
    xorcast_status status = xci_arena_create(context, &arena);
    if (status == XORCAST_OK) {
        status = clear(context, stage, arena, &count);
        xci_arena_destroy(arena);
    }
    if (status == XORCAST_OK)
        status = xci_io_remove_folder(context, stage);
    xci_io_close(claim);
    return status;
}

/* Removes what nobody owns any more. Failing costs disk space only, and a reader may lack the
 * right. */
static void discard(xorcast_context *context, xci_arena *arena, const char *path, bool directory) {
    const char *stage;
    xci_file_facts facts;
    int claim = -1;
    if (xci_stage_path(context, arena, path, directory, &stage) < 0 ||
        xci_io_facts(context, stage, true, &facts) < 0 || facts.kind != XCI_FILE_DIRECTORY)
        return;
    xorcast_status status = xci_stage_claim(context, path, directory, stage, true, 0, &claim);
    if (status == XORCAST_OK && claim >= 0)
        status = xci_stage_drop(context, stage, claim);
    if (status < 0)
        xci_log(context, XORCAST_LOG_WARNING,
                "%s is left from an interrupted replacement and could not be removed; it does no "
                "harm",
                stage);
}

/* ---- The record ---- */

static xorcast_status write_record(xorcast_context *context, const char *path,
                                   const xci_buffer *bytes) {
    int fd;
    TRY(xci_io_create(context, path, &fd));
    xorcast_status status = xci_io_write_at(context, fd, path, 0, bytes->bytes, bytes->size);
    if (status == XORCAST_OK)
        status = xci_io_sync(context, fd, path);
    xci_io_close(fd);
    return status;
}

static xorcast_status place_record(xorcast_context *context, xci_arena *arena, const char *folder,
                                   const char *stage, const xci_buffer *bytes) {
    const char *staged, *path;
    TRY(xci_path_join(arena, stage, RECORD_STAGED_NAME, &staged));
    TRY(xci_path_join(arena, folder, RECORD_NAME, &path));
    TRY(write_record(context, staged, bytes));
    TRY(xci_io_sync_folder(context, stage));
    return xci_io_rename(context, staged, path);
}

xorcast_status xci_record_commit(xorcast_context *context, const char *folder, const char *stage,
                                 const xci_commit_record *record) {
    xci_arena *arena;
    xci_buffer bytes = {.context = context};
    TRY(xci_arena_create(context, &arena));
    xorcast_status status = xci_commit_record_put(&bytes, record);
    if (status == XORCAST_OK)
        status = place_record(context, arena, folder, stage, &bytes);
    xci_buffer_free(&bytes);
    xci_arena_destroy(arena);
    return status;
}

static xorcast_status read_record(xorcast_context *context, xci_arena *arena, const char *path,
                                  xci_commit_record *record_out) {
    int fd;
    uint64_t size;
    void *memory;
    TRY(xci_io_open_read(context, path, &fd, &size));
    xorcast_status status = XORCAST_OK;
    if (size > XCI_COMMIT_RECORD_MAX)
        status = xci_fail(context, XORCAST_DATA_CORRUPT, XCI_NOWHERE,
                          "%s is too large for a commit record; it is not xorcast's", path);
    if (status == XORCAST_OK)
        status = xci_arena_take(arena, size, &memory);
    if (status == XORCAST_OK)
        status = xci_io_read_at(context, fd, path, 0, memory, size);
    xci_io_close(fd);
    TRY(status);
    return xci_commit_record_parse(arena, context, path, memory, size, record_out);
}

/* A file that is no longer staged was renamed before the interruption. */
static xorcast_status carry_out(xorcast_context *context, xci_arena *arena, const char *folder,
                                const xci_commit_record *record) {
    const char *stage, *from, *to;
    xci_file_facts facts;
    TRY(xci_stage_path(context, arena, folder, true, &stage));
    TRY(check_stage(context, stage));
    for (uint64_t i = 0; i < record->rename_count; i++) {
        TRY(xci_path_join(arena, stage, record->renames[i], &from));
        TRY(xci_path_join(arena, folder, record->renames[i], &to));
        TRY(xci_io_facts(context, from, true, &facts));
        if (facts.kind != XCI_FILE_ABSENT)
            TRY(xci_io_rename(context, from, to));
    }
    for (uint64_t i = 0; i < record->removal_count; i++) {
        TRY(xci_path_join(arena, folder, record->removals[i], &to));
        TRY(xci_io_remove(context, to));
    }
    return xci_io_sync_folder(context, folder);
}

static xorcast_status finish_record(xorcast_context *context, xci_arena *arena,
                                    const char *folder) {
    const char *path;
    bool has;
    xci_commit_record record;
    TRY(has_record(context, arena, folder, &has));
    if (!has)
        return XORCAST_OK;
    TRY(xci_path_join(arena, folder, RECORD_NAME, &path));
    TRY(read_record(context, arena, path, &record));
    TRY(xci_io_sync_folder(context, folder));
    TRY(carry_out(context, arena, folder, &record));
    TRY(xci_io_remove(context, path));
    return xci_io_sync_folder(context, folder);
}

xorcast_status xci_record_finish(xorcast_context *context, const char *folder) {
    xci_arena *arena;
    TRY(xci_arena_create(context, &arena));
    xorcast_status status = finish_record(context, arena, folder);
    xci_arena_destroy(arena);
    if (status < 0 && status != XORCAST_DATA_CORRUPT) {
        xorcast_error cause;
        xorcast_last_error(context, &cause);
        const xci_place place = {XORCAST_NO_INDEX, XORCAST_NO_INDEX, cause.os_error};
        status =
            xci_fail(context, XORCAST_WEIGHTS_MIXED, place,
                     "%s is half way to its new version (%.300s); everything needed is on disk: "
                     "any xorcast command on it finishes the change",
                     folder, cause.text);
    }
    return status;
}

/* ---- The gate ---- */

static xorcast_status enter(xorcast_context *context, const char *folder, bool alone,
                            xci_gate *gate_out) {
    xci_lock lock;
    TRY(xci_io_open_folder(context, folder, false, &gate_out->fd));
    xorcast_status status =
        xci_io_lock(context, gate_out->fd, folder, alone, xci_deadline(GATE_TIMEOUT_MS), &lock);
    if (status == XORCAST_OK && lock == XCI_LOCK_BUSY)
        status = xci_fail(context, XORCAST_TIMED_OUT, XCI_NOWHERE,
                          "another process has held %s locked for %u s; wait for it or end it",
                          folder, GATE_TIMEOUT_MS / 1000);
    if (status < 0)
        xci_gate_leave(gate_out);
    return status;
}

xorcast_status xci_gate_enter_alone(xorcast_context *context, const char *folder,
                                    xci_gate *gate_out) {
    return enter(context, folder, true, gate_out);
}

void xci_gate_leave(xci_gate *gate) {
    xci_io_close(gate->fd);
    gate->fd = -1;
}

/* Unless another process was faster. */
static xorcast_status finish_alone(xorcast_context *context, xci_arena *arena, const char *folder) {
    xci_gate gate;
    bool pending = false;
    TRY(enter(context, folder, true, &gate));
    xorcast_status status = has_record(context, arena, folder, &pending);
    if (status == XORCAST_OK && pending)
        status = xci_record_finish(context, folder);
    xci_gate_leave(&gate);
    if (status == XORCAST_OK && pending)
        xci_log(context, XORCAST_LOG_WARNING,
                "an interrupted replacement of %s is finished: it is the new version now", folder);
    return status;
}

static xorcast_status enter_folder(xorcast_context *context, xci_arena *arena, const char *folder,
                                   xci_gate *gate_out) {
    bool pending;
    for (;;) {
        TRY(enter(context, folder, false, gate_out));
        const xorcast_status status = has_record(context, arena, folder, &pending);
        if (status == XORCAST_OK && !pending)
            break;
        xci_gate_leave(gate_out);
        TRY(status);
        TRY(finish_alone(context, arena, folder));
    }
    discard(context, arena, folder, true);
    return XORCAST_OK;
}

static xorcast_status enter_any(xorcast_context *context, xci_arena *arena, const char *path,
                                xci_gate *gate_out) {
    xci_file_facts facts;
    const char *trimmed;
    TRY(xci_path_trim(arena, path, &trimmed));
    TRY(xci_io_facts(context, trimmed, false, &facts));
    if (facts.kind == XCI_FILE_DIRECTORY)
        return enter_folder(context, arena, trimmed, gate_out);
    discard(context, arena, trimmed, false);
    return XORCAST_OK;
}

xorcast_status xci_gate_enter(xorcast_context *context, const char *path, xci_gate *gate_out) {
    xci_arena *arena;
    gate_out->fd = -1;
    TRY(xci_arena_create(context, &arena));
    const xorcast_status status = enter_any(context, arena, path, gate_out);
    xci_arena_destroy(arena);
    return status;
}

xorcast_status xci_checkpoint_recover(xorcast_context *context, const char *path) {
    xci_gate gate;
    TRY(xci_gate_enter(context, path, &gate));
    xci_gate_leave(&gate);
    return XORCAST_OK;
}
