/* Mappings: see mapping.h. */
#include "base/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/io.h"

static xorcast_status map_file(xorcast_context *context, const char *path, xci_mapping *mapping,
                               uint64_t size) {
    void *bytes = xci_io_injected()
                      ? MAP_FAILED
                      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, mapping->fd, 0);
    if (bytes == MAP_FAILED)
        return xci_io_fail(context, "map", path);
    if (mapping->bytes != NULL)
        munmap(mapping->bytes, mapping->size);
    mapping->bytes = bytes;
    mapping->size = size;
    return XORCAST_OK;
}

static xorcast_status open_file(xorcast_context *context, const char *path, xci_mapping *mapping) {
    struct stat about;
    xci_lock lock;
    mapping->fd = xci_io_injected() ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (mapping->fd < 0)
        return xci_io_fail(context, "open", path);
    TRY(xci_io_lock(context, mapping->fd, path, true, 0, &lock));
    if (lock == XCI_LOCK_BUSY)
        FAIL(context, XORCAST_BAD_STATE,
             "%s is in use by another process; each sampler needs a journal of its own", path);
    if (xci_io_injected() || fstat(mapping->fd, &about) != 0)
        return xci_io_fail(context, "stat", path);
    return about.st_size > 0 ? map_file(context, path, mapping, (uint64_t)about.st_size)
                             : XORCAST_OK;
}

xorcast_status xci_mapping_open(xorcast_context *context, const char *path, xci_mapping *mapping) {
    *mapping = (xci_mapping){NULL, 0, -1};
    const xorcast_status status = open_file(context, path, mapping);
    if (status < 0)
        xci_mapping_close(mapping);
    return status;
}

xorcast_status xci_mapping_grow(xorcast_context *context, const char *path, xci_mapping *mapping,
                                uint64_t size) {
    if (size <= mapping->size)
        return XORCAST_OK;
    const int error = xci_io_injected() ? EIO : posix_fallocate(mapping->fd, 0, (off_t)size);
    if (error != 0) {
        errno = error;
        return xci_io_fail(context, "make room in", path);
    }
    return map_file(context, path, mapping, size);
}

void xci_mapping_close(xci_mapping *mapping) {
    if (mapping->bytes != NULL)
        munmap(mapping->bytes, mapping->size);
    if (mapping->fd >= 0)
        close(mapping->fd);
    *mapping = (xci_mapping){NULL, 0, -1};
}
