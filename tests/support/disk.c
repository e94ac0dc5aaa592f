/* Files for tests: see disk.h. */
#include "support/disk.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void need(bool good, const char *what, const char *path) {
    if (good)
        return;
    fprintf(stderr, "test setup: cannot %s %s\n", what, path);
    abort();
}

const char *test_folder(void) {
    static char path[4096];
    const char *base = getenv("TMPDIR");
    if (base == NULL) /* hundreds of fsync calls take minutes on a disk */
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof path, "%s/xorcast-test-XXXXXX", base);
    need(mkdtemp(path) != NULL, "make", path);
    return path;
}

const char *test_path(const char *folder, const char *name) {
    static char paths[16][4096];
    static unsigned next;
    char *path = paths[next++ % 16];
    need(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0], "name",
         name);
    return path;
}

/* ---- Trees ---- */

typedef struct names {
    char *at[256];
    size_t count;
} names;

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path, bool hidden, names *found) {
    DIR *folder = opendir(path);
    found->count = 0;
    need(folder != NULL, "list", path);
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (!hidden && e->d_name[0] == '.'))
            continue;
        need(found->count < 256, "list so many files in", path);
        found->at[found->count++] = strdup(e->d_name);
    }
    closedir(folder);
    qsort(found->at, found->count, sizeof *found->at, by_bytes);
}

static void forget(names *found) {
    for (size_t i = 0; i < found->count; i++)
        free(found->at[i]);
}

static bool is_folder(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static bool is_there(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0;
}

void test_tree_remove(const char *path) {
    char inside[4096];
    if (is_folder(path)) {
        names found;
        list(path, true, &found);
        for (size_t i = 0; i < found.count; i++) {
            need(snprintf(inside, sizeof inside, "%s/%s", path, found.at[i]) > 0, "name", path);
            test_tree_remove(inside);
        }
        forget(&found);
        need(rmdir(path) == 0, "remove", path);
    } else if (is_there(path)) {
        need(unlink(path) == 0, "remove", path);
    }
}

void test_tree_copy(const char *from, const char *to) {
    char source[4096], target[4096];
    if (!is_folder(from)) {
        size_t count;
        uint8_t *bytes = test_file_get(from, &count);
        test_file_put(to, bytes, count);
        free(bytes);
        return;
    }
    names found;
    list(from, true, &found);
    test_make_folder(to);
    for (size_t i = 0; i < found.count; i++) {
        snprintf(source, sizeof source, "%s/%s", from, found.at[i]);
        snprintf(target, sizeof target, "%s/%s", to, found.at[i]);
        test_tree_copy(source, target);
    }
    forget(&found);
}

static bool file_equal(const char *a, const char *b) {
    size_t count_a, count_b;
    uint8_t *bytes_a = test_file_get(a, &count_a), *bytes_b = test_file_get(b, &count_b);
    const bool equal = count_a == count_b && memcmp(bytes_a, bytes_b, count_a) == 0;
    free(bytes_a);
    free(bytes_b);
    return equal;
}

static bool compare(const char *a, const char *b, bool hidden, bool tell) {
    char path_a[4096], path_b[4096];
    bool equal = is_there(a) && is_there(b) && is_folder(a) == is_folder(b);
    if (equal && is_folder(a)) {
        names in_a, in_b;
        list(a, hidden, &in_a);
        list(b, hidden, &in_b);
        equal = in_a.count == in_b.count;
        for (size_t i = 0; i < in_a.count && equal; i++) {
            snprintf(path_a, sizeof path_a, "%s/%s", a, in_a.at[i]);
            snprintf(path_b, sizeof path_b, "%s/%s", b, in_a.at[i]);
            equal = compare(path_a, path_b, hidden, tell);
        }
        forget(&in_a);
        forget(&in_b);
    } else if (equal) {
        equal = file_equal(a, b);
    }
    if (!equal && tell)
        fprintf(stderr, "%s and %s differ\n", a, b);
    return equal;
}

bool test_tree_equal(const char *a, const char *b) {
    return compare(a, b, true, true);
}
bool test_tree_matches(const char *a, const char *b) {
    return compare(a, b, false, false);
}

/* ---- Files ---- */

void test_make_folder(const char *path) {
    need(mkdir(path, 0777) == 0, "make", path);
}

void test_file_put(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    need(file != NULL, "create", path);
    need(fwrite(bytes, 1, count, file) == count, "write", path);
    need(fclose(file) == 0, "write", path);
}

void test_text_put(const char *path, const char *text) {
    test_file_put(path, text, strlen(text));
}

uint8_t *test_file_get(const char *path, size_t *count_out) {
    FILE *file = fopen(path, "rb");
    need(file != NULL, "open", path);
    need(fseek(file, 0, SEEK_END) == 0, "seek in", path);
    const long size = ftell(file);
    need(size >= 0, "measure", path);
    rewind(file);
    uint8_t *bytes = malloc((size_t)size + 1);
    need(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size, "read", path);
    fclose(file);
    *count_out = (size_t)size;
    return bytes;
}

/* ---- Safetensors ---- */

static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void fill(uint8_t *out, const test_tensor *tensor) {
    uint64_t seed = 7;
    for (const char *c = tensor->name; *c != 0; c++)
        seed = seed * 31 + (uint64_t)*c;
    uint64_t state = seed;
    for (uint64_t i = 0; i < tensor->bytes; i++)
        out[i] = (uint8_t)next_random(&state);
    for (uint64_t v = 1; v <= tensor->version; v++) {
        state = seed ^ (v << 32);
        for (uint64_t n = tensor->bytes > 0 ? tensor->bytes / 500 + 1 : 0; n > 0; n--) {
            const uint64_t at = next_random(&state) % tensor->bytes;
            out[at] = (uint8_t)(out[at] ^ (1 + next_random(&state) % 255));
        }
    }
}

void test_safetensors(const char *path, const char *metadata, const test_tensor *tensors,
                      size_t count, unsigned pad) {
    char *text = NULL;
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    FILE *header = open_memstream(&text, &header_bytes);
    need(header != NULL, "write a header for", path);
    fprintf(header, "{");
    if (metadata != NULL)
        fprintf(header, "\"__metadata__\":%s", metadata);
    for (size_t i = 0; i < count; i++) {
        fprintf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                i > 0 || metadata != NULL ? "," : "", tensors[i].name, tensors[i].dtype,
                tensors[i].shape, (unsigned long long)data_bytes,
                (unsigned long long)(data_bytes + tensors[i].bytes));
        data_bytes += tensors[i].bytes;
    }
    fprintf(header, "}%*s", (int)pad, "");
    need(fclose(header) == 0, "write a header for", path);
    uint8_t *bytes = malloc(8 + header_bytes + data_bytes);
    need(bytes != NULL, "have memory for", path);
    const uint64_t prefix = header_bytes;
    memcpy(bytes, &prefix, 8);
    memcpy(bytes + 8, text, header_bytes);
    uint8_t *at = bytes + 8 + header_bytes;
    for (size_t i = 0; i < count; at += tensors[i].bytes, i++)
        fill(at, &tensors[i]);
    test_file_put(path, bytes, 8 + header_bytes + data_bytes);
    free(bytes);
    free(text);
}
