/* Names and paths: see paths.h. */
#include "checkpoint/paths.h"

#include <string.h>

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

xci_name_kind xci_name_kind_of(const char *name) {
    const size_t length = strlen(name);
    if (length == 0 || length > XCI_FILE_NAME_MAX || name[0] == '.' || strchr(name, '/') != NULL ||
        ends_with(name, ".tmp"))
        return XCI_NAME_OTHER;
    return ends_with(name, ".safetensors") ? XCI_NAME_SHARD : XCI_NAME_SIDE;
}

static xorcast_status keep(xci_arena *arena, const void *bytes, uint64_t count, char **text_out) {
    void *memory;
    TRY(xci_arena_take(arena, count + 1, &memory));
    if (count > 0)
        memcpy(memory, bytes, count);
    *text_out = memory;
    (*text_out)[count] = 0;
    return XORCAST_OK;
}

xorcast_status xci_name_keep(xci_arena *arena, const uint8_t *bytes, uint64_t count,
                             xci_name_kind *kind_out, const char **name_out) {
    char *name;
    *kind_out = XCI_NAME_OTHER;
    *name_out = NULL;
    if (bytes == NULL || count == 0 || count > XCI_FILE_NAME_MAX || memchr(bytes, 0, count) != NULL)
        return XORCAST_OK;
    TRY(keep(arena, bytes, count, &name));
    *kind_out = xci_name_kind_of(name);
    *name_out = *kind_out == XCI_NAME_OTHER ? NULL : name;
    return XORCAST_OK;
}

xorcast_status xci_path_join(xci_arena *arena, const char *folder, const char *name,
                             const char **path_out) {
    const size_t folder_length = strlen(folder), name_length = strlen(name);
    const size_t slash = folder_length > 0 && folder[folder_length - 1] == '/' ? 0 : 1;
    void *memory;
    TRY(xci_arena_take(arena, folder_length + slash + name_length + 1, &memory));
    char *path = memory;
    memcpy(path, folder, folder_length);
    path[folder_length] = '/';
    memcpy(path + folder_length + slash, name, name_length + 1);
    *path_out = path;
    return XORCAST_OK;
}

xorcast_status xci_path_trim(xci_arena *arena, const char *path, const char **path_out) {
    char *copy;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    TRY(keep(arena, path, length, &copy));
    *path_out = copy;
    return XORCAST_OK;
}

xorcast_status xci_path_split(xci_arena *arena, const char *path, const char **folder_out,
                              const char **name_out) {
    const char *slash = strrchr(path, '/');
    char *folder;
    *name_out = slash == NULL ? path : slash + 1;
    if (slash == NULL) {
        *folder_out = ".";
        return XORCAST_OK;
    }
    TRY(keep(arena, path, slash == path ? 1 : (uint64_t)(slash - path), &folder));
    *folder_out = folder;
    return XORCAST_OK;
}
