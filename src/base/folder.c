/* Directories, facts, modes and locks: see folder.h. */
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/io.h"

#define LOCK_POLL_US 5000 /* flock(2) cannot wait with a deadline */

static void facts_from(const struct stat *about, xci_file_facts *facts_out) {
    *facts_out = (xci_file_facts){S_ISREG(about->st_mode)   ? XCI_FILE_REGULAR
                                  : S_ISDIR(about->st_mode) ? XCI_FILE_DIRECTORY
                                                            : XCI_FILE_OTHER,
                                  about->st_mode & 07777,
                                  (uint64_t)about->st_size,
                                  (uint64_t)about->st_dev,
                                  (uint64_t)about->st_ino,
                                  about->st_mtim.tv_sec * 1000000000 + about->st_mtim.tv_nsec};
}

xorcast_status xci_io_facts(xorcast_context *context, const char *path, bool of_link,
                            xci_file_facts *facts_out) {
    struct stat about;
    const int flags = of_link ? AT_SYMLINK_NOFOLLOW : 0;
    if (xci_io_injected() || fstatat(AT_FDCWD, path, &about, flags) != 0) {
        if (errno != ENOENT)
            return xci_io_fail(context, "stat", path);
        *facts_out = (xci_file_facts){.kind = XCI_FILE_ABSENT};
        return XORCAST_OK;
    }
    facts_from(&about, facts_out);
    return XORCAST_OK;
}

xorcast_status xci_io_facts_of(xorcast_context *context, int fd, const char *path,
                               xci_file_facts *facts_out) {
    struct stat about;
    if (xci_io_injected() || fstat(fd, &about) != 0)
        return xci_io_fail(context, "stat", path);
    facts_from(&about, facts_out);
    return XORCAST_OK;
}

/* ---- Directories ---- */

typedef struct name_list {
    const char **names;
    uint64_t count, capacity; /* capacity in bytes */
} name_list;

static xorcast_status list_add(xorcast_context *context, xci_arena *arena, name_list *list,
                               const char *name) {
    void *copy;
    TRY(xci_arena_copy(arena, name, strlen(name) + 1, &copy));
    TRY(xci_grow(context, &list->names, &list->capacity, (list->count + 1) * sizeof(char *)));
    list->names[list->count++] = copy;
    return XORCAST_OK;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static xorcast_status read_names(xorcast_context *context, const char *path, DIR *folder,
                                 xci_arena *arena, name_list *list) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = xci_io_injected() ? NULL : readdir(folder);
        if (entry == NULL && errno != 0)
            return xci_io_fail(context, "list", path);
        if (entry == NULL)
            return XORCAST_OK;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            TRY(list_add(context, arena, list, entry->d_name));
    }
}

xorcast_status xci_io_list(xorcast_context *context, const char *path, xci_arena *arena,
                           const char ***names_out, uint64_t *count_out) {
    DIR *folder = xci_io_injected() ? NULL : opendir(path);
    if (folder == NULL)
        return xci_io_fail(context, "list", path);
    name_list list = {NULL, 0, 0};
    void *names = NULL;
    xorcast_status status = read_names(context, path, folder, arena, &list);
    closedir(folder);
    if (status == XORCAST_OK && list.count > 0) {
        qsort(list.names, list.count, sizeof *list.names, by_bytes);
        status = xci_arena_copy(arena, list.names, list.count * sizeof *list.names, &names);
    }
    xci_release(context, list.names);
    TRY(status);
    *names_out = names;
    *count_out = list.count;
    return XORCAST_OK;
}

xorcast_status xci_io_make_folder(xorcast_context *context, const char *path) {
    if (xci_io_injected() || (mkdir(path, 0777) != 0 && errno != EEXIST))
        return xci_io_fail(context, "make directory", path);
    return XORCAST_OK;
}

xorcast_status xci_io_remove_folder(xorcast_context *context, const char *path) {
    if (xci_io_injected() || (rmdir(path) != 0 && errno != ENOENT))
        return xci_io_fail(context, "remove directory", path);
    return XORCAST_OK;
}

xorcast_status xci_io_open_folder(xorcast_context *context, const char *path, bool no_link,
                                  int *fd_out) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (no_link ? O_NOFOLLOW : 0);
    const int fd = xci_io_injected() ? -1 : open(path, flags);
    if (fd < 0)
        return xci_io_fail(context, "open directory", path);
    *fd_out = fd;
    return XORCAST_OK;
}

xorcast_status xci_io_sync_folder(xorcast_context *context, const char *path) {
    int fd;
    TRY(xci_io_open_folder(context, path, false, &fd));
    const xorcast_status status = xci_io_sync(context, fd, path);
    xci_io_close(fd);
    return status;
}

/* ---- Modes, sizes, space ---- */

xorcast_status xci_io_set_mode(xorcast_context *context, int fd, const char *path, uint32_t mode) {
    if (xci_io_injected() || fchmod(fd, (mode_t)mode) != 0)
        return xci_io_fail(context, "set the mode of", path);
    return XORCAST_OK;
}

xorcast_status xci_io_set_size(xorcast_context *context, int fd, const char *path, uint64_t bytes) {
    if (bytes > INT64_MAX)
        FAIL(context, XORCAST_DATA_LIMIT, "%s would have more than 2^63 bytes", path);
    if (xci_io_injected() || ftruncate(fd, (off_t)bytes) != 0)
        return xci_io_fail(context, "set the size of", path);
    return XORCAST_OK;
}

xorcast_status xci_io_free_bytes(xorcast_context *context, const char *path, uint64_t *bytes_out) {
    struct statvfs about;
    if (xci_io_injected() || statvfs(path, &about) != 0)
        return xci_io_fail(context, "ask for the free space of", path);
    if (!xci_multiply(about.f_bavail, about.f_frsize, bytes_out))
        *bytes_out = UINT64_MAX;
    return XORCAST_OK;
}

/* ---- Locks ---- */

static bool locks_missing(int error) {
    return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EBADF ||
           error == EINVAL;
}

xorcast_status xci_io_lock(xorcast_context *context, int fd, const char *path, bool exclusive,
                           uint64_t deadline_ns, xci_lock *lock_out) {
    for (;;) {
        if (!xci_io_injected() && flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
            *lock_out = XCI_LOCK_HELD;
            return XORCAST_OK;
        }
        if (locks_missing(errno)) {
            xci_log(context, XORCAST_LOG_WARNING,
                    "%s cannot be locked (%s); nothing else may change it now", path,
                    strerror(errno));
            *lock_out = XCI_LOCK_MISSING;
            return XORCAST_OK;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            return xci_io_fail(context, "lock", path);
        if (xci_now_ns() >= deadline_ns) {
            *lock_out = XCI_LOCK_BUSY;
            return XORCAST_OK;
        }
        usleep(LOCK_POLL_US);
    }
}
