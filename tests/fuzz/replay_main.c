/* Runs a fuzz target without libFuzzer, so that ordinary builds and any compiler replay its corpus:
 * every file of the folders given, then deterministic mutations of each file until a count or a
 * time is reached. In: folders or files. Out: the number of inputs; a fault ends the process, and
 * the input at fault can be made again because mutations depend on nothing but the file and their
 * number.
 *
 * Owns the inputs, each in a block of exactly its size so that sanitizers see a read beyond the
 * end. Does not own any judgement: the target itself checks what must hold. */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

enum {
    MUTATIONS_PER_FILE = 4000,
    /* a corpus of many files gets fewer mutations each, never more time */
    SECONDS_IN_ALL = 20,
    FILE_BYTES_MOST = 16 << 20,
    GROWTH_BYTES = 64,           /* room for inserted bytes */
    FILES_MOST = 4096
};

typedef struct corpus {
    char *paths[FILES_MOST];
    size_t count;
} corpus;

static uint64_t runs;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "replay: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

/* A block of exactly `size` bytes: one byte read beyond it is a fault that the address sanitizer
 * sees. */
static void run_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size);
    if (size && !copy)
        return;
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

/* One small change of the kind that parsers get wrong: flipped bits, extreme bytes and words,
 * removed, repeated or inserted pieces. Returns the new size. */
static size_t mutate_once(uint8_t *data, size_t size, uint64_t *state) {
    static const uint64_t extremes[] = {
        0,         1,          0x7f,        0x80,        0xff,      0x7fff,
        0xffff,    0x7fffffff, 0x80000000u, 0xffffffffu, INT64_MAX, (uint64_t)INT64_MAX + 1,
        UINT64_MAX};
    const uint64_t r = random_next(state);
    const size_t at = size ? (size_t)(random_next(state) % size) : 0;
    if (size == 0) {
        data[0] = (uint8_t)r;
        return 1;
    }
    switch (r % 6) {
    case 0:
        data[at] ^= (uint8_t)(1u << (r >> 8) % 8);
        return size;
    case 1:
        data[at] = (uint8_t)(r >> 8);
        return size;
    case 2: {
        const uint64_t value = extremes[(r >> 8) % (sizeof extremes / sizeof extremes[0])];
        const size_t width = (size_t)1 << (r >> 16) % 4;
        memcpy(data + at, &value, width < size - at ? width : size - at);
        return size;
    }
    case 3:
        return at;
    case 4: {
        const size_t gone =
            1 + (size_t)(r >> 8) % 16 < size - at ? 1 + (size_t)(r >> 8) % 16 : size - at;
        memmove(data + at, data + at + gone, size - at - gone);
        return size - gone;
    }
    default: {
        const size_t more = 1 + (size_t)(r >> 8) % 8;
        memmove(data + at + more, data + at, size - at);
        return size + more;
    }
    }
}

static void run_mutations(const uint8_t *data, size_t size, uint64_t deadline_ns) {
    uint8_t *work = allocate(size + GROWTH_BYTES);
    for (uint64_t number = 0; number < MUTATIONS_PER_FILE && now_ns() < deadline_ns; number++) {
        uint64_t state = number;
        size_t length = size;
        memcpy(work, data, size);
        for (uint64_t left = 1 + number % 4; left > 0; left--)
            length = mutate_once(work, length, &state);
        run_copy(work, length);
    }
    free(work);
}

static uint8_t *read_file(const char *path, size_t *size_out) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    uint8_t *data = allocate(FILE_BYTES_MOST);
    const size_t size = fread(data, 1, FILE_BYTES_MOST, file);
    const bool whole = !ferror(file) && fgetc(file) == EOF;
    fclose(file);
    if (!whole) {
        free(data);
        return NULL;
    }
    *size_out = size;
    return data;
}

static void corpus_add(corpus *c, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0)
        return;
    if (S_ISREG(info.st_mode) && c->count < FILES_MOST) {
        c->paths[c->count++] = strdup(path);
        return;
    }
    DIR *folder = S_ISDIR(info.st_mode) ? opendir(path) : NULL;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
        char inside[4096];
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) < (int)sizeof inside)
            corpus_add(c, inside);
    }
    if (folder)
        closedir(folder);
}

int main(int argc, char **argv) {
    static corpus c;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++)
        corpus_add(&c, argv[i]);
    if (c.count == 0) {
        fprintf(stderr,
                "replay: no corpus file found; each reader has some in tests/fuzz/corpus\n");
        return 1;
    }
    const uint64_t begin_ns = now_ns(), share_ns = (uint64_t)SECONDS_IN_ALL * 1000000000u / c.count;
    run_copy(NULL, 0);
    for (size_t i = 0; i < c.count; i++) {
        size_t size = 0;
        uint8_t *data = c.paths[i] ? read_file(c.paths[i], &size) : NULL;
        if (!data) {
            fprintf(stderr, "replay: cannot read %s whole\n", c.paths[i] ? c.paths[i] : "a file");
            return 1;
        }
        run_copy(data, size);
        run_mutations(data, size, begin_ns + (i + 1) * share_ns);
        free(data);
        free(c.paths[i]);
    }
    printf("%zu files, %llu inputs\n", c.count, (unsigned long long)runs);
    return 0;
}
