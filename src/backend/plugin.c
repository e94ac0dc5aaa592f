/* Finds the table of a device backend: libxorcast_<name>.so, loaded at run time, so that one build
 * of the library serves machines with and without a GPU. Looks in the folders of
 * XORCAST_PLUGIN_PATH, beside the library, then where the system looks. A plug-in stays loaded
 * until the process ends: drivers do not like to be unloaded. Owns nothing else. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/device.h"

#define ENTRY "xorcast_device_plugin" /* const xci_device_ops *ENTRY(void) */
#define PATH_BYTES 4096u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const xci_device_ops *registered, *loaded;

void xci_plugin_register(const xci_device_ops *ops) {
    pthread_mutex_lock(&lock);
    registered = ops;
    pthread_mutex_unlock(&lock);
}

/* Letters and digits: the name becomes part of a file's name. */
static bool name_is_plain(const char *name) {
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
    return length > 0 && length <= 32 && name[length] == 0;
}

typedef struct search {
    char file[64];
    void *handle;
    char reason[512]; /* why the last library that is there could not be loaded */
} search;

static void try_path(search *s, const char *path) {
    if (s->handle != NULL)
        return;
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle == NULL)
        snprintf(s->reason, sizeof s->reason, "%s", dlerror());
}

static void try_folder(search *s, const char *folder, size_t length) {
    char path[PATH_BYTES];
    if (length == 0 || length + 2 + strlen(s->file) > sizeof path)
        return;
    snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, s->file);
    FILE *there = fopen(path, "rbe");
    if (there == NULL)
        return;
    fclose(there);
    try_path(s, path);
}

/* `file` has the library inside. A program that was found in PATH is known here by its name alone;
 * the system knows where it is. */
static void try_beside(search *s, const char *file) {
    char program[PATH_BYTES];
    const char *slash = strrchr(file, '/');
    if (slash == NULL) {
        const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        program[length > 0 ? length : 0] = 0;
        file = program;
        slash = strrchr(program, '/');
    }
    if (slash != NULL)
        try_folder(s, file, (size_t)(slash - file));
}

static void try_everywhere(search *s) {
    Dl_info self;
    const char *folders = secure_getenv("XORCAST_PLUGIN_PATH");
    while (folders != NULL && *folders != 0) {
        const size_t length = strcspn(folders, ":");
        try_folder(s, folders, length);
        folders += length + (folders[length] == ':');
    }
    if (dladdr((const void *)&registered, &self) != 0 && self.dli_fname != NULL)
        try_beside(s, self.dli_fname);
    try_path(s, s->file);
}

static xorcast_status check_table(xorcast_context *context, const xci_device_ops *ops,
                                  const char *name) {
    if (ops == NULL || ops->abi != XCI_DEVICE_ABI || ops->table_bytes != sizeof *ops ||
        strcmp(ops->name, name) != 0)
        FAIL(context, XORCAST_UNSUPPORTED,
             "libxorcast_%s.so is of another version of this library; install both from one build",
             name);
    return XORCAST_OK;
}

/* With the lock held. */
static xorcast_status load(xorcast_context *context, const char *name) {
    search s = {.handle = NULL};
    snprintf(s.file, sizeof s.file, "libxorcast_%s.so", name);
    try_everywhere(&s);
    if (s.handle == NULL)
        FAIL(context, XORCAST_UNSUPPORTED,
             "the backend %s is not installed (%.300s); to use a GPU, build the library where nvcc "
             "is, or set XORCAST_PLUGIN_PATH to the plug-in's folder",
             name, s.reason);
    const xci_device_ops *(*entry)(void);
    void *symbol = dlsym(s.handle, ENTRY);
    memcpy(&entry, &symbol, sizeof entry); /* C has no cast from one to the other */
    const xci_device_ops *ops = entry != NULL ? entry() : NULL;
    const xorcast_status status = check_table(context, ops, name);
    if (status < 0)
        dlclose(s.handle);
    else
        loaded = ops;
    return status;
}

xorcast_status xci_plugin_find(xorcast_context *context, const char *name,
                               const xci_device_ops **ops_out) {
    if (!name_is_plain(name))
        FAIL(context, XORCAST_UNSUPPORTED, "there is no backend %.64s; there are cpu and cuda",
             name);
    pthread_mutex_lock(&lock);
    const xci_device_ops *ops = registered;
    xorcast_status status = XORCAST_OK;
    if (ops == NULL || strcmp(ops->name, name) != 0) {
        if (loaded == NULL || strcmp(loaded->name, name) != 0)
            status = load(context, name);
        ops = loaded;
    }
    pthread_mutex_unlock(&lock);
    TRY(status);
    *ops_out = ops;
    return XORCAST_OK;
}
