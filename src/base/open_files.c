/* Tables of files: see open_files.h. */
#include "base/open_files.h"

#include <sys/resource.h>

#include "base/io.h"

struct xci_file {
    xci_open_files *table;
    const char *path;
    bool written;
    xci_file_facts facts; /* when it was opened first; ABSENT before */
    int fd;               /* -1: it is closed now */
    uint32_t users;       /* that need it open */
    uint64_t used;        /* by the table's clock, when it was last */
};

struct xci_open_files {
    xorcast_context *context;
    pthread_mutex_t lock; /* guards all below, and what files say of themselves */
    pthread_cond_t idle;  /* a file has no users any more */
    xci_arena *arena;
    xci_file *open[XCI_OPEN_FILES_MAX];
    uint32_t open_count, most; /* that may be open */
    uint64_t clock;
};

/* Of what the process may have open, a part: it has other files too, and other tables. */
static uint32_t most_open(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 8 >= XCI_OPEN_FILES_MAX)
        return XCI_OPEN_FILES_MAX;
    return limit.rlim_cur < 8 ? 1 : (uint32_t)(limit.rlim_cur / 8);
}

xorcast_status xci_open_files_create(xorcast_context *context, xci_open_files **table_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_open_files), &memory));
    xci_open_files *table = memory;
    table->context = context;
    table->most = most_open();
    xorcast_status status = xci_arena_create(context, &table->arena);
    if (status < 0) {
        xci_release(context, table);
        return status;
    }
    if (pthread_mutex_init(&table->lock, NULL) == 0) {
        if (pthread_cond_init(&table->idle, NULL) == 0) {
            *table_out = table;
            return XORCAST_OK;
        }
        pthread_mutex_destroy(&table->lock);
    }
    xci_arena_destroy(table->arena);
    xci_release(context, table);
    FAIL(context, XORCAST_NO_HOST_MEMORY, "the system gives no lock; free some memory");
}

void xci_open_files_destroy(xci_open_files *table) {
    if (table == NULL)
        return;
    for (uint32_t i = 0; i < table->open_count; i++)
        xci_io_close(table->open[i]->fd);
    pthread_cond_destroy(&table->idle);
    pthread_mutex_destroy(&table->lock);
    xci_arena_destroy(table->arena);
    xci_release(table->context, table);
}

/* ---- Opening and closing, with the lock held ---- */

static xci_file *longest_idle(const xci_open_files *table) {
    xci_file *found = NULL;
    for (uint32_t i = 0; i < table->open_count; i++) {
        xci_file *file = table->open[i];
        if (file->users == 0 && (found == NULL || file->used < found->used))
            found = file;
    }
    return found;
}

static xorcast_status close_file(xorcast_context *context, xci_file *file) {
    xci_open_files *table = file->table;
    uint32_t at = 0;
    while (table->open[at] != file)
        at++;
    table->open[at] = table->open[--table->open_count];
    const xorcast_status status =
        file->written ? xci_io_sync(context, file->fd, file->path) : XORCAST_OK;
    xci_io_close(file->fd);
    file->fd = -1;
    return status;
}

static xorcast_status open_path(xorcast_context *context, xci_file *file) {
    uint64_t bytes;
    if (!file->written)
        return xci_io_open_read(context, file->path, &file->fd, &bytes);
    return file->facts.kind == XCI_FILE_ABSENT ? xci_io_create(context, file->path, &file->fd)
                                               : xci_io_open_again(context, file->path, &file->fd);
}

/* Written files grow; those that are read stay as they are. */
static bool same_file(const xci_file *file, const xci_file_facts *now) {
    const xci_file_facts *was = &file->facts;
    return was->device == now->device && was->inode == now->inode &&
           (file->written || (was->bytes == now->bytes && was->modified_ns == now->modified_ns));
}

static xorcast_status check_file(xorcast_context *context, xci_file *file) {
    xci_file_facts now;
    TRY(xci_io_facts_of(context, file->fd, file->path, &now));
    if (file->facts.kind == XCI_FILE_ABSENT)
        file->facts = now;
    else if (!same_file(file, &now))
        FAIL(context, XORCAST_IO_FAILED, "%s was replaced while it was in use; begin again",
             file->path);
    return XORCAST_OK;
}

static xorcast_status open_now(xorcast_context *context, xci_file *file) {
    TRY(open_path(context, file));
    const xorcast_status status = check_file(context, file);
    if (status < 0) {
        xci_io_close(file->fd);
        file->fd = -1;
        return status;
    }
    file->table->open[file->table->open_count++] = file;
    return XORCAST_OK;
}

static xorcast_status open_file(xorcast_context *context, xci_file *file) {
    xci_open_files *table = file->table;
    while (file->fd < 0) { /* another thread may open it while this one waits */
        if (table->open_count < table->most)
            return open_now(context, file);
        xci_file *oldest = longest_idle(table);
        if (oldest != NULL)
            TRY(close_file(context, oldest));
        else
            pthread_cond_wait(&table->idle, &table->lock);
    }
    return XORCAST_OK;
}

/* ---- Use ---- */

static xorcast_status use(xorcast_context *context, xci_file *file) {
    xci_open_files *table = file->table;
    pthread_mutex_lock(&table->lock);
    const xorcast_status status = file->fd < 0 ? open_file(context, file) : XORCAST_OK;
    if (status == XORCAST_OK) {
        file->users++;
        file->used = ++table->clock;
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

/* Passes the status on. */
static xorcast_status used(xci_file *file, xorcast_status status) {
    xci_open_files *table = file->table;
    pthread_mutex_lock(&table->lock);
    if (--file->users == 0)
        pthread_cond_broadcast(&table->idle);
    pthread_mutex_unlock(&table->lock);
    return status;
}

static xorcast_status add_file(xci_open_files *table, const char *path, bool written,
                               xci_file **file_out) {
    void *memory;
    TRY(xci_arena_take(table->arena, sizeof(xci_file), &memory));
    xci_file *file = memory;
    *file = (xci_file){.table = table, .path = path, .written = written, .fd = -1};
    TRY(use(table->context, file));
    *file_out = file;
    return used(file, XORCAST_OK);
}

xorcast_status xci_file_open(xci_open_files *table, const char *path, xci_file **file_out,
                             xci_file_facts *facts_out) {
    xci_file *file;
    TRY(add_file(table, path, false, &file));
    *facts_out = file->facts;
    *file_out = file;
    return XORCAST_OK;
}

xorcast_status xci_file_create(xci_open_files *table, const char *path, xci_file **file_out) {
    return add_file(table, path, true, file_out);
}

xorcast_status xci_file_read_at(xorcast_context *context, xci_file *file, uint64_t offset,
                                void *buffer, uint64_t count) {
    TRY(use(context, file));
    return used(file, xci_io_read_at(context, file->fd, file->path, offset, buffer, count));
}

xorcast_status xci_file_write_at(xorcast_context *context, xci_file *file, uint64_t offset,
                                 const void *bytes, uint64_t count) {
    TRY(use(context, file));
    return used(file, xci_io_write_at(context, file->fd, file->path, offset, bytes, count));
}

xorcast_status xci_file_set_mode(xorcast_context *context, xci_file *file, uint32_t mode) {
    TRY(use(context, file));
    return used(file, xci_io_set_mode(context, file->fd, file->path, mode));
}

xorcast_status xci_file_set_size(xorcast_context *context, xci_file *file, uint64_t bytes) {
    TRY(use(context, file));
    return used(file, xci_io_set_size(context, file->fd, file->path, bytes));
}

xorcast_status xci_file_sync(xorcast_context *context, xci_file *file) {
    TRY(use(context, file));
    return used(file, xci_io_sync(context, file->fd, file->path));
}
