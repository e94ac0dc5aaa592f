/* File access: see io.h. */
#include "base/io.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_STEP (UINT64_C(1) << 30) /* Linux moves at most 2 GiB a call */

static atomic_int_fast64_t fail_countdown = -1;
static atomic_bool fail_persistently;

void xci_io_fail_after(int64_t n, bool persistent) {
    atomic_store(&fail_persistently, persistent);
    atomic_store(&fail_countdown, n);
}

bool xci_io_injected(void) {
    if (atomic_load(&fail_countdown) < 0)
        return false;
    if (atomic_fetch_sub(&fail_countdown, 1) > 0)
        return false;
    if (atomic_load(&fail_persistently))
        atomic_store(&fail_countdown, 0);
    errno = EIO;
    return true;
}

xorcast_status xci_io_fail(xorcast_context *context, const char *verb, const char *path) {
    const int error = errno;
    const xci_place place = {XORCAST_NO_INDEX, XORCAST_NO_INDEX, error};
    if (error == EACCES || error == EPERM || error == EROFS)
        FAIL_AT(context, XORCAST_NO_PERMISSION, place,
                "cannot %s %s: %s; let this user, or choose another place", verb, path,
                strerror(error));
    const bool absent =
        error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
    const xorcast_status status = absent ? XORCAST_NOT_FOUND : XORCAST_IO_FAILED;
    FAIL_AT(context, status, place, "cannot %s %s: %s", verb, path, strerror(error));
}

xorcast_status xci_io_open_read(xorcast_context *context, const char *path, int *fd_out,
                                uint64_t *size_out) {
    /* no wait for a pipe */
    const int fd = xci_io_injected() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return xci_io_fail(context, "open", path);
    struct stat about;
    if (xci_io_injected() || fstat(fd, &about) != 0) {
        const xorcast_status status = xci_io_fail(context, "stat", path);
        close(fd);
        return status;
    }
    if (!S_ISREG(about.st_mode)) {
        close(fd);
        FAIL(context, XORCAST_BAD_ARGUMENT, "%s is not a regular file", path);
    }
    *fd_out = fd;
    *size_out = (uint64_t)about.st_size;
    return XORCAST_OK;
}

static xorcast_status open_write(xorcast_context *context, const char *verb, const char *path,
                                 int flags, int *fd_out) {
    const int fd = xci_io_injected() ? -1 : open(path, O_RDWR | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        return xci_io_fail(context, verb, path);
    *fd_out = fd;
    return XORCAST_OK;
}

xorcast_status xci_io_create(xorcast_context *context, const char *path, int *fd_out) {
    return open_write(context, "create", path, O_CREAT | O_EXCL, fd_out);
}

xorcast_status xci_io_open_again(xorcast_context *context, const char *path, int *fd_out) {
    return open_write(context, "open again", path, O_NOFOLLOW, fd_out);
}

xorcast_status xci_io_read_at(xorcast_context *context, int fd, const char *path, uint64_t offset,
                              void *buffer, uint64_t count) {
    uint8_t *at = buffer;
    while (count > 0) {
        const ssize_t got =
            xci_io_injected() ? -1 : pread(fd, at, xci_min(count, MAX_STEP), (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return xci_io_fail(context, "read", path);
        if (got == 0)
            FAIL(context, XORCAST_DATA_TRUNCATED,
                 "%s ends at byte %llu, before what it should hold; it was cut or changed "
                 "while in use",
                 path, (unsigned long long)offset);
        at += got;
        offset += (uint64_t)got;
        count -= (uint64_t)got;
    }
    return XORCAST_OK;
}

xorcast_status xci_io_write_at(xorcast_context *context, int fd, const char *path, uint64_t offset,
                               const void *bytes, uint64_t count) {
    const uint8_t *at = bytes;
    while (count > 0) {
        const ssize_t put =
            xci_io_injected() ? -1 : pwrite(fd, at, xci_min(count, MAX_STEP), (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return xci_io_fail(context, "write", path);
        at += put;
        offset += (uint64_t)put;
        count -= (uint64_t)put;
    }
    return XORCAST_OK;
}

xorcast_status xci_io_sync(xorcast_context *context, int fd, const char *path) {
    if (xci_io_injected() || fsync(fd) != 0)
        return xci_io_fail(context, "sync", path);
    return XORCAST_OK;
}

xorcast_status xci_io_sync_parent(xorcast_context *context, const char *path) {
    char parent[4096];
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof parent)
        FAIL(context, XORCAST_BAD_ARGUMENT, "the path %.64s... is too long", path);
    memcpy(parent, length > 0 ? path : ".", length > 0 ? length : 1);
    parent[length > 0 ? length : 1] = 0;
    const int fd = xci_io_injected() ? -1 : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return xci_io_fail(context, "open", parent);
    /* Some file systems cannot sync a directory and say EINVAL: there is nothing more to do
     * there. */
    xorcast_status status = XORCAST_OK;
    if (xci_io_injected() || (fsync(fd) != 0 && errno != EINVAL))
        status = xci_io_fail(context, "sync", parent);
    close(fd);
    return status;
}

xorcast_status xci_io_rename(xorcast_context *context, const char *from, const char *to) {
    if (xci_io_injected() || rename(from, to) != 0)
        return xci_io_fail(context, "rename to", to);
    return XORCAST_OK;
}

xorcast_status xci_io_remove(xorcast_context *context, const char *path) {
    if (xci_io_injected() || (unlink(path) != 0 && errno != ENOENT))
        return xci_io_fail(context, "remove", path);
    return XORCAST_OK;
}

void xci_io_close(int fd) {
    if (fd >= 0)
        close(fd);
}
