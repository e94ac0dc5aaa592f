/* Checkpoints on disk: opened, written, loaded; deltas between all kinds of them, applied
 * elsewhere and in place, by several numbers of threads, always to the same files; what is
 * refused, and that nothing changes then; every input or output operation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "checkpoint/recovery.h"
#include "support/disk.h"
#include "support/model.h"

static xorcast_context *context;
static char folder[4096];

static int setup(void **state) {
    (void)state;
    context = test_context(2);
    strcpy(folder, test_folder());
    return 0;
}

static int teardown(void **state) {
    (void)state;
    xorcast_context_destroy(context);
    test_tree_remove(folder);
    return 0;
}

static void must(xorcast_status status) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    if (status != XORCAST_OK)
        fprintf(stderr, "%s: %s\n", xorcast_status_name(status), error.text);
    assert_int_equal(status, XORCAST_OK);
}

static void fails(xorcast_status status, xorcast_status wanted, const char *word) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    if (status != wanted || strstr(error.text, word) == NULL)
        fprintf(stderr, "%s instead of %s, without '%s': %s\n", xorcast_status_name(status),
                xorcast_status_name(wanted), word, error.text);
    assert_int_equal(status, wanted);
    assert_non_null(strstr(error.text, word));
}

static uint64_t allocated(void) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

/* ---- Pairs of checkpoints ---- */

/* Builds version 0 (old) or 1 (new) of a checkpoint at `path`. */
typedef void (*build)(const char *path, unsigned version);

#define SOME_TENSORS(v)                                                                            \
    {"b.weight", "BF16", "[300,211]", 126600, (v)}, {"a.scale", "F32", "[7]", 28, (v)},            \
        {"c.zero_d", "F64", "[]", 8, (v)}, {"d.empty", "F16", "[0,4]", 0, 0},                      \
        {"e.odd", "U8", "[4097]", 4097, (v)}, {"f.tiny", "U8", "[3]", 3, (v)}, {                   \
        "g.fp4", "F4", "[2,65538]", 65538, (v)                                                     \
    }

static void build_file(const char *path, unsigned version) {
    const test_tensor tensors[] = {SOME_TENSORS(version)};
    test_safetensors(path, "{\"format\":\"pt\"}", tensors, 7, 5);
}

static void build_same(const char *path, unsigned version) {
    (void)version;
    build_file(path, 0);
}

static void build_metadata(const char *path, unsigned version) {
    const test_tensor tensors[] = {SOME_TENSORS(0)};
    test_safetensors(path, version ? "{\"step\":\"18\"}" : "{\"step\":\"17\"}", tensors, 7,
                     version);
}

static void build_reordered(const char *path, unsigned version) {
    const test_tensor first[] = {SOME_TENSORS(0)};
    test_tensor second[] = {SOME_TENSORS(1)};
    for (size_t i = 0; i < 3; i++) {
        const test_tensor swap = second[i];
        second[i] = second[6 - i];
        second[6 - i] = swap;
    }
    test_safetensors(path, NULL, version ? second : first, 7, 0);
}

static void build_changed_layout(const char *path, unsigned version) {
    const test_tensor first[] = {
        {"kept", "BF16", "[70000]", 140000, 0}, {"gone", "F32", "[2000]", 8000, 0},
        {"old_name", "U8", "[5000]", 5000, 0},  {"resized", "F32", "[10,10]", 400, 0},
        {"retyped", "F16", "[64]", 128, 0},     {"reshaped", "F16", "[8,8]", 128, 0}};
    const test_tensor second[] = {
        {"new_name", "U8", "[5000]", 5000, 0},  {"resized", "F32", "[10,11]", 440, 0},
        {"retyped", "BF16", "[64]", 128, 0},    {"reshaped", "F16", "[64]", 128, 0},
        {"kept", "BF16", "[70000]", 140000, 1}, {"added", "I64", "[3]", 24, 0}};
    test_safetensors(path, NULL, version ? second : first, 6, version);
}

static void build_no_tensors(const char *path, unsigned version) {
    const test_tensor tensors[] = {SOME_TENSORS(0)};
    test_safetensors(path, NULL, tensors, version ? 7 : 0, 0);
}

static void build_nothing(const char *path, unsigned version) {
    test_safetensors(path, version ? "{\"a\":\"b\"}" : NULL, NULL, 0, version);
}

static void put_index(const char *path, const char *map) {
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":7},\"weight_map\":{%s}}", map);
    test_text_put(test_path(path, "model.safetensors.index.json"), text);
}

static void put_shards(const char *path, const char *const *names, unsigned count,
                       unsigned version) {
    const test_tensor tensors[] = {SOME_TENSORS(version)};
    char map[800] = "";
    test_make_folder(path);
    for (unsigned s = 0, from = 0; s < count; s++) {
        const unsigned end = s + 1 == count ? 7 : from + 7 / count;
        test_safetensors(test_path(path, names[s]), NULL, tensors + from, end - from, s);
        for (; from < end; from++)
            sprintf(map + strlen(map), "%s\"%s\":\"%s\"", from ? "," : "", tensors[from].name,
                    names[s]);
    }
    put_index(path, map);
}

static const char *const one[] = {"model.safetensors"};
static const char *const three[] = {"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"};
static const char *const renamed[] = {"m-1.safetensors", "n-2.safetensors", "n-3.safetensors"};

static void build_folder(const char *path, unsigned version) {
    put_shards(path, three, 3, version);
    test_text_put(test_path(path, "config.json"), version ? "{\"a\":2}" : "{\"a\":1}");
    test_text_put(test_path(path, "same.txt"), "the same");
    test_text_put(test_path(path, "empty"), "");
    test_text_put(test_path(path, version ? "added.txt" : "removed.txt"), "here");
}

static void build_resharded(const char *path, unsigned version) {
    put_shards(path, version ? three : one, version ? 3 : 1, version);
}

static void build_merged(const char *path, unsigned version) {
    put_shards(path, version ? one : three, version ? 1 : 3, version);
}

static void build_renamed(const char *path, unsigned version) {
    put_shards(path, version ? renamed : three, 3, version);
}

static void build_many_small(const char *path, unsigned version) {
    enum { COUNT = 3000 };
    static test_tensor tensors[COUNT];
    static char names[COUNT][24], shapes[COUNT][24];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "t.%u", i * 7919 % COUNT);
        snprintf(shapes[i], sizeof shapes[i], "[%u]", i % 97);
        tensors[i] =
            (test_tensor){names[i], i % 2 ? "U8" : "BF16", shapes[i], i % 97 * (i % 2 ? 1 : 2),
                          i % 97 > 0 && i % 5 == 0 ? version : 0};
    }
    test_safetensors(path, NULL, tensors, COUNT, 0);
}

static const struct {
    const char *name;
    build make;
} pairs[] = {
    {"file", build_file},
    {"same", build_same},
    {"metadata", build_metadata},
    {"reordered", build_reordered},
    {"layout", build_changed_layout},
    {"no tensors", build_no_tensors},
    {"nothing", build_nothing},
    {"folder", build_folder},
    {"resharded", build_resharded},
    {"merged", build_merged},
    {"renamed", build_renamed},
    {"many small", build_many_small},
};
#define PAIR_COUNT (sizeof pairs / sizeof *pairs)

/* Builds old and new in the test's folder and returns their delta. */
static test_bytes make_delta(build make, xorcast_delta_info *info) {
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    test_tree_remove(test_path(folder, "old"));
    test_tree_remove(test_path(folder, "new"));
    make(test_path(folder, "old"), 0);
    make(test_path(folder, "new"), 1);
    must(xorcast_checkpoint_diff(context, test_path(folder, "old"), test_path(folder, "new"), NULL,
                                 &sink, info));
    assert_int_equal(info->delta_bytes, delta.count);
    assert_int_equal(info->has_files, 1);
    return delta;
}

static void copy_old(const char *name) {
    test_tree_remove(test_path(folder, name));
    test_tree_copy(test_path(folder, "old"), test_path(folder, name));
}

static void apply_everywhere(xorcast_context *with, const test_bytes *delta) {
    const xorcast_source source = test_source(delta);
    xorcast_delta_info info;
    copy_old("live");
    test_tree_remove(test_path(folder, "out"));
    must(xorcast_checkpoint_check(with, test_path(folder, "live"), &source, &info));
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "old")));
    must(xorcast_checkpoint_apply(with, test_path(folder, "live"), &source,
                                  test_path(folder, "out"), &info));
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "old")));
    assert_true(test_tree_equal(test_path(folder, "out"), test_path(folder, "new")));
    must(xorcast_checkpoint_apply(with, test_path(folder, "live"), &source, NULL, &info));
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "new")));
    assert_int_equal(info.delta_bytes, delta->count);
}

static void test_pairs(void **state) {
    (void)state;
    static const uint32_t threads[] = {1, 2, 7};
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        xorcast_delta_info info;
        test_bytes delta = make_delta(pairs[i].make, &info);
        print_message("%s: %llu bytes\n", pairs[i].name, (unsigned long long)delta.count);
        for (size_t t = 0; t < 3; t++) {
            xorcast_context *with = test_context(threads[t]);
            apply_everywhere(with, &delta);
            xorcast_context_destroy(with);
        }
        test_bytes_free(&delta);
    }
}

/* A delta that is applied again finds its target, which stays as it is, here and elsewhere. */
static void test_again(void **state) {
    (void)state;
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        xorcast_delta_info info;
        test_bytes delta = make_delta(pairs[i].make, &info);
        const xorcast_source source = test_source(&delta);
        const bool changes =
            memcmp(&info.base.digest, &info.target.digest, sizeof info.base.digest) != 0 ||
            memcmp(info.base_fingerprint, info.target_fingerprint, 16) != 0;
        test_tree_remove(test_path(folder, "live"));
        test_tree_copy(test_path(folder, "new"), test_path(folder, "live"));
        must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, &info));
        assert_int_equal(info.already, changes ? XORCAST_ALREADY_THERE : XORCAST_ALREADY_NOT);
        must(xorcast_checkpoint_check(context, test_path(folder, "live"), &source, &info));
        assert_int_equal(info.already, changes ? XORCAST_ALREADY_THERE : XORCAST_ALREADY_NOT);
        for (int round = 0; round < 2; round++) {
            test_tree_remove(test_path(folder, "out"));
            for (int time = 0; time < 2; time++) {
                must(xorcast_checkpoint_apply(context, test_path(folder, round ? "old" : "live"),
                                              &source, test_path(folder, "out"), &info));
                assert_true(test_tree_equal(test_path(folder, "out"), test_path(folder, "new")));
                assert_int_equal(info.already, time > 0            ? XORCAST_ALREADY_THERE
                                               : !round && changes ? XORCAST_ALREADY_COPIED
                                                                   : XORCAST_ALREADY_NOT);
            }
        }
        assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "new")));
        test_bytes_free(&delta);
    }
}

static void test_small_deltas(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_same, &info);
    assert_int_equal(info.counts.bytes_changed, 0);
    assert_true(delta.count < 512);
    test_bytes_free(&delta);
    delta = make_delta(build_metadata, &info);
    assert_int_equal(info.counts.bytes_changed, 0);
    assert_true(delta.count < 1024);
    test_bytes_free(&delta);
    delta = make_delta(build_resharded, &info);
    assert_true(delta.count < 8000); /* unchanged tensors are found in other shards */
    assert_memory_equal(info.base_fingerprint, info.target_fingerprint, 16);
    test_bytes_free(&delta);
    delta = make_delta(build_changed_layout, &info);
    assert_memory_not_equal(info.base_fingerprint, info.target_fingerprint, 16);
    test_bytes_free(&delta);
}

/* ---- What is refused ---- */

static void flip(const char *path, long at) {
    size_t count;
    uint8_t *bytes = test_file_get(path, &count);
    bytes[at < 0 ? (long)count + at : at] ^= 1;
    test_file_put(path, bytes, count);
    free(bytes);
}

static void test_other_bytes(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    const xorcast_source source = test_source(&delta);
    static const struct {
        const char *file;
        xorcast_status wanted;
    } cases[] = {
        {"m-1.safetensors", XORCAST_BASE_MISMATCH},
        {"m-3.safetensors", XORCAST_BASE_MISMATCH},
        {"same.txt", XORCAST_BASE_MISMATCH},
    };
    for (size_t i = 0; i < 3; i++) {
        copy_old("live");
        flip(test_path(test_path(folder, "live"), cases[i].file), -1);
        test_tree_remove(test_path(folder, "before"));
        test_tree_copy(test_path(folder, "live"), test_path(folder, "before"));
        assert_int_equal(
            xorcast_checkpoint_check(context, test_path(folder, "live"), &source, NULL),
            cases[i].wanted);
        assert_int_equal(
            xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL),
            cases[i].wanted);
        assert_int_equal(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                                  test_path(folder, "out2"), NULL),
                         cases[i].wanted);
        assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "before")));
        assert_int_not_equal(access(test_path(folder, "out2"), F_OK), 0);
    }
    copy_old("live"); /* what the new version replaces anyway may differ */
    flip(test_path(test_path(folder, "live"), "config.json"), -1);
    must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL));
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "new")));
    test_bytes_free(&delta);
}

static void test_places(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    const xorcast_source source = test_source(&delta);
    copy_old("live");
    fails(xorcast_checkpoint_apply(context, test_path(folder, "none"), &source, NULL, NULL),
          XORCAST_NOT_FOUND, "none");
    fails(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                   test_path(folder, "old"), NULL),
          XORCAST_BAD_ARGUMENT, "not empty");
    test_text_put(test_path(folder, "afile"), "x");
    fails(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                   test_path(folder, "afile"), NULL),
          XORCAST_BAD_ARGUMENT, "afile");
    fails(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                   test_path(folder, "no/where"), NULL),
          XORCAST_NOT_FOUND, "where");
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "old")));
    test_tree_remove(test_path(
        folder, "out")); /* an empty folder is fine, so is the base itself, with slashes */
    test_make_folder(test_path(folder, "out"));
    must(xorcast_checkpoint_apply(context, test_path(folder, "live/"), &source,
                                  test_path(folder, "out//"), NULL));
    assert_true(test_tree_equal(test_path(folder, "out"), test_path(folder, "new")));
    must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                  test_path(folder, "./live/"), NULL));
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "new")));
    test_bytes_free(&delta);
}

/* From one file to a folder and back: only to another place. */
static void test_file_to_folder(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes forward = {0}, backward = {0};
    const xorcast_sink sinks[] = {test_sink(&forward), test_sink(&backward)};
    test_tree_remove(test_path(folder, "old"));
    test_tree_remove(test_path(folder, "new"));
    build_file(test_path(folder, "old"), 0);
    build_folder(test_path(folder, "new"), 1);
    must(xorcast_checkpoint_diff(context, test_path(folder, "old"), test_path(folder, "new"), NULL,
                                 &sinks[0], &info));
    must(xorcast_checkpoint_diff(context, test_path(folder, "new"), test_path(folder, "old"), NULL,
                                 &sinks[1], &info));
    const xorcast_source there = test_source(&forward), back = test_source(&backward);
    fails(xorcast_checkpoint_apply(context, test_path(folder, "old"), &there, NULL, NULL),
          XORCAST_BAD_ARGUMENT, "another place");
    fails(xorcast_checkpoint_apply(context, test_path(folder, "new"), &back, NULL, NULL),
          XORCAST_BAD_ARGUMENT, "another place");
    test_tree_remove(test_path(folder, "out"));
    must(xorcast_checkpoint_apply(context, test_path(folder, "old"), &there,
                                  test_path(folder, "out"), NULL));
    assert_true(test_tree_equal(test_path(folder, "out"), test_path(folder, "new")));
    must(xorcast_checkpoint_apply(context, test_path(folder, "out"), &back,
                                  test_path(folder, "outfile"), NULL));
    assert_true(test_tree_equal(test_path(folder, "outfile"), test_path(folder, "old")));
    test_bytes_free(&forward);
    test_bytes_free(&backward);
}

/* A delta of bundles in memory knows no files: headers and side files stay. */
static void test_delta_without_files(void **state) {
    (void)state;
    xorcast_checkpoint *old, *new;
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    test_tree_remove(test_path(folder, "old"));
    test_tree_remove(test_path(folder, "new"));
    build_folder(test_path(folder, "old"), 0);
    put_shards(test_path(folder, "new"), three, 3, 1);
    must(xorcast_checkpoint_open(context, test_path(folder, "old"), NULL, &old));
    must(xorcast_checkpoint_open(context, test_path(folder, "new"), NULL, &new));
    must(xorcast_delta_encode(xorcast_checkpoint_bundle(old), xorcast_checkpoint_bundle(new), NULL,
                              &sink, NULL));
    xorcast_checkpoint_close(old);
    xorcast_checkpoint_close(new);
    const xorcast_source source = test_source(&delta);
    copy_old("live");
    must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL));
    for (unsigned i = 0; i < 3; i++)
        assert_true(test_tree_equal(test_path(test_path(folder, "live"), three[i]),
                                    test_path(test_path(folder, "new"), three[i])));
    assert_true(test_tree_equal(test_path(test_path(folder, "live"), "config.json"),
                                test_path(test_path(folder, "old"), "config.json")));
    test_bytes_free(&delta);
}

static void test_damaged_delta(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    copy_old("live");
    for (uint64_t at = 0; at < delta.count; at += 1 + delta.count / 300) {
        delta.bytes[at] ^= 0x20;
        const xorcast_source source = test_source(&delta);
        assert_true(
            xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL) < 0);
        delta.bytes[at] ^= 0x20;
        xorcast_source cut = test_source(&delta);
        cut.size = at;
        assert_true(xorcast_checkpoint_apply(context, test_path(folder, "live"), &cut, NULL, NULL) <
                    0);
    }
    assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "old")));
    test_bytes_free(&delta);
}

/* ---- Opening ---- */

static xorcast_status open_and_close(const char *path) {
    xorcast_checkpoint *checkpoint;
    const uint64_t before = allocated();
    const xorcast_status status = xorcast_checkpoint_open(context, path, NULL, &checkpoint);
    if (status == XORCAST_OK)
        xorcast_checkpoint_close(checkpoint);
    assert_int_equal(allocated(), before);
    return status;
}

static void test_folders(void **state) {
    (void)state;
    const char *path = strdup(test_path(folder, "shards"));
    build_folder(path, 0);
    must(open_and_close(path));
    put_index(path, "\"b.weight\":\"m-1.safetensors\"");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "does not name");
    put_index(path, "\"b.weight\":\"m-7.safetensors\"");
    fails(open_and_close(path), XORCAST_NOT_FOUND, "m-7");
    put_index(path, "\"b.weight\":\"m-2.safetensors\"");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "it is in m-1");
    put_index(path, "\"b.weight\":\"m-1.safetensors\",\"b.weight\":\"m-1.safetensors\"");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "twice");
    put_index(path, "\"x\":\"m-1.safetensors\"");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "no shard holds");
    put_index(path, "\"b.weight\":\"../m-1.safetensors\"");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "no name of a shard");
    test_text_put(test_path(path, "model.safetensors.index.json"), "{\"weight_map\":");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "an object is missing");
    test_text_put(test_path(path, "model.safetensors.index.json"), "{}");
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "weight_map is missing");
    test_tree_remove(test_path(path, "model.safetensors.index.json"));
    must(open_and_close(path)); /* no index is needed */
    test_tree_copy(test_path(path, "m-1.safetensors"), test_path(path, "z.safetensors"));
    fails(open_and_close(path), XORCAST_DATA_CORRUPT, "two files");
    test_tree_remove(test_path(path, "z.safetensors"));
    /* hidden and temporary files, folders and pipes are nobody's business */
    test_text_put(test_path(path, ".z.safetensors"), "rubbish");
    test_text_put(test_path(path, "z.safetensors.tmp"), "rubbish");
    test_make_folder(test_path(path, "y.safetensors"));
    assert_int_equal(mkfifo(test_path(path, "x.safetensors"), 0666), 0);
    must(open_and_close(path));
    fails(open_and_close(test_path(path, "x.safetensors")), XORCAST_BAD_ARGUMENT, "regular");
    assert_int_equal(symlink("nowhere", test_path(path, "w.safetensors")), 0);
    fails(open_and_close(path), XORCAST_NOT_FOUND, "w.safetensors");
    test_make_folder(test_path(folder, "hollow"));
    fails(open_and_close(test_path(folder, "hollow")), XORCAST_NOT_FOUND, "hollow");
    fails(open_and_close(test_path(folder, "absent")), XORCAST_NOT_FOUND, "absent");
    free((void *)(uintptr_t)path);
}

/* Model hubs keep files as links; a replacement must not write through them. */
static void test_links(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    const xorcast_source source = test_source(&delta);
    copy_old("blobs");
    char target[4096];
    test_tree_remove(test_path(folder, "live"));
    test_make_folder(test_path(folder, "live"));
    static const char *const files[] = {
        "m-1.safetensors", "m-2.safetensors", "m-3.safetensors", "config.json",
        "same.txt",        "empty",           "removed.txt",     "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(target, sizeof target, "../blobs/%s", files[i]);
        assert_int_equal(symlink(target, test_path(test_path(folder, "live"), files[i])), 0);
    }
    must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL));
    assert_true(test_tree_matches(test_path(folder, "blobs"), test_path(folder, "old")));
    struct stat about;
    assert_int_equal(lstat(test_path(test_path(folder, "live"), "m-1.safetensors"), &about), 0);
    assert_true(S_ISREG(about.st_mode));
    assert_int_equal(lstat(test_path(test_path(folder, "live"), "same.txt"), &about), 0);
    assert_true(S_ISLNK(about.st_mode)); /* untouched */
    size_t count;
    uint8_t *bytes = test_file_get(test_path(test_path(folder, "live"), "config.json"), &count);
    assert_memory_equal(bytes, "{\"a\":2}", count);
    free(bytes);
    test_bytes_free(&delta);
}

static void test_modes(void **state) {
    (void)state;
    xorcast_delta_info info;
    struct stat about;
    test_bytes delta = make_delta(build_file, &info);
    const xorcast_source source = test_source(&delta);
    copy_old("live");
    assert_int_equal(chmod(test_path(folder, "live"), 0640), 0);
    test_tree_remove(test_path(folder, "out"));
    must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                  test_path(folder, "out"), NULL));
    must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL));
    assert_int_equal(stat(test_path(folder, "live"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0640);
    assert_int_equal(stat(test_path(folder, "out"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0640);
    test_bytes_free(&delta);
}

static void test_large_side_file(void **state) {
    (void)state;
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    test_tree_remove(test_path(folder, "old"));
    test_tree_remove(test_path(folder, "new"));
    build_folder(test_path(folder, "old"), 0);
    build_folder(test_path(folder, "new"), 1);
    const int fd = open(test_path(folder, "new/huge.bin"), O_CREAT | O_WRONLY, 0666);
    assert_true(fd >= 0 && ftruncate(fd, (64 << 20) + 1) == 0);
    close(fd);
    fails(xorcast_checkpoint_diff(context, test_path(folder, "old"), test_path(folder, "new"), NULL,
                                  &sink, NULL),
          XORCAST_UNSUPPORTED, "huge.bin");
    test_bytes_free(&delta);
}

/* ---- Writing and loading ---- */

static void test_write_and_load(void **state) {
    (void)state;
    static const uint64_t shard_bytes[] = {0, 1, 100000, UINT64_C(1) << 40};
    model m, copy;
    model_create(&m, 11);
    model_create(&copy, 11);
    xorcast_bundle *bundle = model_bundle(context, &m, 0, 1),
                   *into = model_bundle(context, &copy, 0, 2);
    for (size_t i = 0; i < 4; i++) {
        xorcast_checkpoint *checkpoint;
        char name[32];
        snprintf(name, sizeof name, "written-%zu", i);
        model_step(&m, i, 2000);
        must(xorcast_checkpoint_write(bundle, test_path(folder, name), shard_bytes[i]));
        must(xorcast_checkpoint_write(bundle, test_path(folder, name),
                                      shard_bytes[i])); /* over itself */
        must(xorcast_checkpoint_open(context, test_path(folder, name), NULL, &checkpoint));
        must(xorcast_checkpoint_load(checkpoint, into));
        assert_true(model_equal(&m, &copy));
        xorcast_checkpoint_close(checkpoint);
    }
    /* fewer shards than before: the old ones must not stay */
    xorcast_checkpoint *checkpoint;
    must(xorcast_checkpoint_write(bundle, test_path(folder, "written-1"), 100000));
    must(xorcast_checkpoint_open(context, test_path(folder, "written-1"), NULL, &checkpoint));
    xorcast_checkpoint_close(checkpoint);
    fails(xorcast_checkpoint_write(bundle, test_path(folder, "written-0"), 100),
          XORCAST_BAD_ARGUMENT, "not a directory");
    fails(xorcast_checkpoint_write(bundle, test_path(folder, "written-1"), 0), XORCAST_BAD_ARGUMENT,
          "not a regular file");
    xorcast_bundle_destroy(bundle);
    xorcast_bundle_destroy(into);
    model_free(&m);
    model_free(&copy);
}

static xorcast_bundle *bundle_of(const char *name, const char *dtype, const uint64_t *shape,
                                 uint8_t *data, const xorcast_box *box, const char *alias) {
    xorcast_bundle *bundle;
    xorcast_layout layout;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    must(xorcast_bundle_create(context, NULL, &bundle));
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.bytes = shape[0] * shape[1] * 2;
    tensor.data = box == NULL ? data : NULL;
    tensor.boxes = box;
    tensor.box_count = box != NULL;
    must(xorcast_bundle_add(bundle, &tensor));
    if (alias != NULL) {
        xorcast_tensor tied = XORCAST_TENSOR_INIT;
        tied.name = alias;
        tied.alias_of = name;
        must(xorcast_bundle_add(bundle, &tied));
    }
    must(xorcast_bundle_seal(bundle, &layout));
    return bundle;
}

static void test_load_boxes_and_mismatches(void **state) {
    (void)state;
    enum { ROWS = 8, COLUMNS = 32 };
    static const uint64_t shape[] = {ROWS, COLUMNS}, other[] = {COLUMNS, ROWS};
    const test_tensor tensor = {"w", "BF16", "[8,32]", ROWS * COLUMNS * 2, 0};
    const char *path = strdup(test_path(folder, "boxes.safetensors"));
    test_safetensors(path, NULL, &tensor, 1, 3);
    size_t count;
    uint8_t *file = test_file_get(path, &count), whole[ROWS * COLUMNS * 2], part[3 * 40 + 8];
    const uint8_t *data = file + count - sizeof whole;
    xorcast_checkpoint *checkpoint;
    must(xorcast_checkpoint_open(context, path, NULL, &checkpoint));

    xorcast_bundle *bundle =
        bundle_of("tied", "BF16", shape, whole, NULL, "w"); /* under its other name */
    must(xorcast_checkpoint_load(checkpoint, bundle));
    assert_memory_equal(whole, data, sizeof whole);
    xorcast_bundle_destroy(bundle);

    const xorcast_box box = {2, 3, 16, 32, part, 40, 0};
    memset(part, 0xEE, sizeof part);
    bundle = bundle_of("w", "BF16", shape, NULL, &box, NULL);
    must(xorcast_checkpoint_load(checkpoint, bundle));
    for (unsigned r = 0; r < 3; r++) {
        assert_memory_equal(part + r * 40, data + (2 + r) * COLUMNS * 2 + 16, 32);
        for (unsigned i = 32; i < 40; i++)
            assert_int_equal(part[r * 40 + i], 0xEE);
    }
    xorcast_bundle_destroy(bundle);

    memset(whole, 0xEE, sizeof whole);
    bundle = bundle_of("x", "BF16", shape, whole, NULL, NULL);
    fails(xorcast_checkpoint_load(checkpoint, bundle), XORCAST_LAYOUT_MISMATCH, "no tensor x");
    xorcast_bundle_destroy(bundle);
    bundle = bundle_of("w", "F16", shape, whole, NULL, NULL);
    fails(xorcast_checkpoint_load(checkpoint, bundle), XORCAST_LAYOUT_MISMATCH, "tensor w");
    xorcast_bundle_destroy(bundle);
    bundle = bundle_of("w", "BF16", other, whole, NULL, NULL);
    fails(xorcast_checkpoint_load(checkpoint, bundle), XORCAST_LAYOUT_MISMATCH, "tensor w");
    for (unsigned i = 0; i < sizeof whole; i++)
        assert_int_equal(whole[i], 0xEE);
    xorcast_bundle_destroy(bundle);
    xorcast_checkpoint_close(checkpoint);
    free(file);
    free((void *)(uintptr_t)path);
}

/* ---- Others at work ---- */

static int lock_stage(const char *stage) {
    test_make_folder(stage);
    const int fd = open(stage, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    return fd;
}

static void test_two_at_once(void **state) {
    (void)state;
    static const struct {
        build make;
        const char *stage;
    } cases[] = {{build_file, ".live.xorcast-new"}, {build_folder, "live/.xorcast-new"}};
    for (size_t i = 0; i < 2; i++) {
        xorcast_delta_info info;
        test_bytes delta = make_delta(cases[i].make, &info);
        const xorcast_source source = test_source(&delta);
        copy_old("live");
        const int fd = lock_stage(test_path(folder, cases[i].stage));
        test_text_put(test_path(test_path(folder, cases[i].stage), "half"), "written by the other");
        must(open_and_close(
            test_path(folder, "live"))); /* readers are not disturbed, and disturb nobody */
        assert_int_equal(access(test_path(test_path(folder, cases[i].stage), "half"), F_OK), 0);
        fails(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL),
              XORCAST_TIMED_OUT, "another process");
        assert_int_equal(access(test_path(test_path(folder, cases[i].stage), "half"), F_OK), 0);
        close(fd);
        must(open_and_close(test_path(folder, "live"))); /* abandoned now: discarded */
        assert_int_not_equal(access(test_path(folder, cases[i].stage), F_OK), 0);
        must(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL));
        assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "new")));
        test_bytes_free(&delta);
    }
}

typedef struct second_apply {
    const xorcast_source *source;
    char old[4096], out[4096];
    xorcast_context *context;
    xorcast_status status;
    xorcast_delta_info info;
} second_apply;

static void *run_second(void *user) {
    second_apply *s = user;
    s->status = xorcast_checkpoint_apply(s->context, s->old, s->source, s->out, &s->info);
    return NULL;
}

enum { FILLS, FILLS_WITH_ANOTHER, GIVES_UP, ENDINGS };

static void fill_out(void) {
    test_tree_remove(test_path(folder, "full"));
    test_tree_copy(test_path(folder, "new"), test_path(folder, "full"));
    DIR *full = opendir(test_path(folder, "full"));
    assert_non_null(full);
    for (struct dirent *entry; (entry = readdir(full)) != NULL;)
        if (entry->d_type == DT_REG)
            assert_int_equal(rename(test_path(test_path(folder, "full"), entry->d_name),
                                    test_path(test_path(folder, "out"), entry->d_name)),
                             0);
    closedir(full);
}

static void end_first(int ending) {
    test_tree_remove(test_path(test_path(folder, "out"), ".xorcast-new"));
    if (ending == GIVES_UP)
        (void)rmdir(test_path(folder, "out")); /* the second may stage there already */
    if (ending == FILLS)
        fill_out();
    if (ending == FILLS_WITH_ANOTHER)
        test_text_put(test_path(test_path(folder, "out"), "another"), "x");
}

/* An apply to another place waits for the first one, which ends. */
static xorcast_status wait_for_first(second_apply *s, int ending) {
    pthread_t thread;
    test_tree_remove(test_path(folder, "out"));
    test_make_folder(test_path(folder, "out"));
    const int fd = lock_stage(test_path(test_path(folder, "out"), ".xorcast-new"));
    assert_int_equal(pthread_create(&thread, NULL, run_second, s), 0);
    usleep(100000);
    end_first(ending);
    close(fd);
    pthread_join(thread, NULL);
    return s->status;
}

static void test_two_elsewhere(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    const xorcast_source source = test_source(&delta);
    second_apply s = {.source = &source, .context = test_context(1)};
    strcpy(s.old, test_path(folder, "old"));
    strcpy(s.out, test_path(folder, "out"));
    for (int ending = 0; ending < ENDINGS; ending++) {
        while (wait_for_first(&s, ending) == XORCAST_TIMED_OUT) { /* a machine this slow */
        }
        assert_int_equal(s.status,
                         ending == FILLS_WITH_ANOTHER ? XORCAST_BAD_ARGUMENT : XORCAST_OK);
        if (s.status == XORCAST_OK) {
            assert_true(test_tree_equal(s.out, test_path(folder, "new")));
            assert_int_equal(s.info.already,
                             ending == FILLS ? XORCAST_ALREADY_THERE : XORCAST_ALREADY_NOT);
        } else {
            assert_int_equal(unlink(test_path(s.out, "another")), 0);
            assert_int_equal(rmdir(s.out), 0); /* nothing else was in it */
        }
    }
    xorcast_context_destroy(s.context);
    test_bytes_free(&delta);
}

/* What lies in the place of the stage may be anything. */
static void test_hostile_stage(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    const xorcast_source source = test_source(&delta);
    test_make_folder(test_path(folder, "precious"));
    test_text_put(test_path(folder, "precious/file"), "keep me");
    copy_old("live");
    assert_int_equal(symlink("../precious", test_path(folder, "live/.xorcast-new")), 0);
    must(open_and_close(test_path(folder, "live")));
    fails(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL),
          XORCAST_DATA_CORRUPT, "remove it");
    assert_int_equal(access(test_path(folder, "precious/file"), F_OK), 0);
    copy_old("live");
    test_text_put(test_path(folder, "live/.xorcast-commit"),
                  "XORCOMMT and rubbish that is long enough");
    fails(open_and_close(test_path(folder, "live")), XORCAST_DATA_CORRUPT, "record");
    fails(xorcast_checkpoint_apply(context, test_path(folder, "live"), &source, NULL, NULL),
          XORCAST_DATA_CORRUPT, "record");
    assert_true(test_tree_matches(test_path(folder, "live"), test_path(folder, "old")));
    test_bytes_free(&delta);
}

/* ---- Progress ---- */

typedef struct watch {
    pthread_t caller;
    uint64_t calls, done, total;
    uint64_t calls_to_go; /* the last of them calls the work off; 0: none does */
} watch;

/* From the thread that called, onwards, and never beyond the whole. */
static int look(void *user, uint64_t done_bytes, uint64_t total_bytes) {
    watch *w = user;
    assert_true(pthread_equal(pthread_self(), w->caller));
    assert_true(w->calls == 0 || w->total == total_bytes);
    assert_true(done_bytes >= w->done && done_bytes <= total_bytes);
    w->calls++;
    w->done = done_bytes;
    w->total = total_bytes;
    return w->calls_to_go > 0 && --w->calls_to_go == 0;
}

/* One call is over, and was told to the end. */
static void seen(watch *w, const char *what) {
    print_message("%s: %u calls, %u of %u bytes\n", what, (unsigned)w->calls, (unsigned)w->done,
                  (unsigned)w->total);
    assert_true(w->calls > 0 && w->done == w->total);
    *w = (watch){.caller = w->caller};
}

static void test_progress(void **state) {
    (void)state;
    watch w = {.caller = pthread_self()};
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *watched;
    xorcast_checkpoint *checkpoint;
    xorcast_digest digest;
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    options.threads = 3;
    options.progress = look;
    options.user = &w;
    model m;
    model_create(&m, 3);
    must(xorcast_context_create(&options, &watched));
    xorcast_bundle *bundle = model_bundle(watched, &m, 0, 1);
    test_tree_remove(test_path(folder, "old"));
    test_tree_remove(test_path(folder, "new"));
    test_tree_remove(test_path(folder, "out"));
    must(xorcast_checkpoint_write(bundle, test_path(folder, "old"), 0));
    model_step(&m, 5, 2000);
    must(xorcast_checkpoint_write(bundle, test_path(folder, "new"), 0));
    must(xorcast_bundle_digest(bundle, &digest));
    assert_int_equal(w.calls, 0); /* a scan by itself is no long call */
    must(xorcast_checkpoint_diff(watched, test_path(folder, "old"), test_path(folder, "new"), NULL,
                                 &sink, NULL));
    seen(&w, "diff");
    const xorcast_source source = test_source(&delta);
    must(xorcast_checkpoint_check(watched, test_path(folder, "old"), &source, NULL));
    seen(&w, "check");
    must(xorcast_checkpoint_apply(watched, test_path(folder, "old"), &source,
                                  test_path(folder, "out"), NULL));
    seen(&w, "apply");
    must(xorcast_checkpoint_open(watched, test_path(folder, "out"), NULL, &checkpoint));
    must(xorcast_checkpoint_load(checkpoint, bundle));
    seen(&w, "load");
    xorcast_checkpoint_close(checkpoint);
    test_bytes_free(&delta);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(watched);
    model_free(&m);
}

/* Called off at one call after another, until an apply has fewer of them; how many it had. */
static uint64_t call_off_each(xorcast_context *watched, watch *w, build make, bool elsewhere) {
    static const char *const stages[] = {"live/.xorcast-new", ".live.xorcast-new", "out",
                                         ".out.xorcast-new"};
    xorcast_delta_info info;
    test_bytes delta = make_delta(make, &info);
    const xorcast_source source = test_source(&delta);
    const char *out = elsewhere ? "out" : "live";
    for (uint64_t n = 1;; n++) {
        copy_old("live");
        test_tree_remove(test_path(folder, "out"));
        *w = (watch){.caller = w->caller, .calls_to_go = n};
        const xorcast_status status = xorcast_checkpoint_apply(
            watched, test_path(folder, "live"), &source, test_path(folder, out), NULL);
        const bool done = status == XORCAST_OK;
        if (!done)
            assert_int_equal(status, XORCAST_CANCELLED);
        assert_true(test_tree_equal(test_path(folder, "live"),
                                    test_path(folder, done && !elsewhere ? "new" : "old")));
        for (size_t i = 0; i < 4 && !done; i++)
            assert_int_not_equal(access(test_path(folder, stages[i]), F_OK), 0);
        if (done) {
            assert_true(test_tree_equal(test_path(folder, out), test_path(folder, "new")));
            test_bytes_free(&delta);
            return n - 1;
        }
    }
}

static void test_called_off(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        watch w = {.caller = pthread_self()};
        xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
        xorcast_context *watched;
        options.threads = 1 + i / 4;
        options.progress = look;
        options.user = &w;
        must(xorcast_context_create(&options, &watched));
        const uint64_t count = call_off_each(watched, &w, i & 1 ? build_file : build_folder, i & 2);
        print_message("called off at each of %u calls\n", (unsigned)count);
        /* while the base is read, the target made, and before it is it; the first two are told by
         * the thread that called, which may have no part in them if there is another */
        assert_true(count >= (options.threads == 1 ? 3 : 1));
        xorcast_context_destroy(watched);
    }
}

/* ---- Failures, one after the other ---- */

/* Lets call number n of the file system fail (and, if `dead`, all after it, as if the process
 * had died there). */
static void fail_each(build make, bool dead, bool elsewhere) {
    xorcast_delta_info info;
    test_bytes delta = make_delta(make, &info);
    const xorcast_source source = test_source(&delta);
    const char *result = elsewhere ? "out" : "live";
    const uint64_t before = allocated();
    unsigned olds = 0, news = 0, done = 0;
    for (int64_t n = 0; done < 40; n++) {
        copy_old("live");
        test_tree_remove(test_path(folder, "out"));
        xci_io_fail_after(n, dead);
        const xorcast_status status =
            xorcast_checkpoint_apply(context, test_path(folder, "live"), &source,
                                     elsewhere ? test_path(folder, "out") : NULL, NULL);
        xci_io_fail_after(-1, false);
        assert_int_equal(allocated(), before);
        done =
            status == XORCAST_OK ? done + 1 : 0; /* failures while cleaning up are not reported */
        if (status < 0 && status != XORCAST_WEIGHTS_MIXED && !elsewhere &&
            !test_tree_matches(test_path(folder, "live"), test_path(folder, "new")))
            assert_true(test_tree_matches(test_path(folder, "live"), test_path(folder, "old")));
        must(xci_checkpoint_recover(context, test_path(folder, "live")));
        if (elsewhere) {
            assert_true(test_tree_equal(test_path(folder, "live"), test_path(folder, "old")));
            must(xci_checkpoint_recover(context, test_path(folder, "out")));
        }
        const bool is_new = test_tree_matches(test_path(folder, result), test_path(folder, "new"));
        const bool is_old =
            elsewhere ? !is_new
                      : test_tree_matches(test_path(folder, result), test_path(folder, "old"));
        assert_true(is_new || (is_old && status < 0));
        if (!elsewhere)
            assert_true(test_tree_equal(test_path(folder, "live"),
                                        test_path(folder, is_new ? "new" : "old")));
        else if (is_new)
            must(open_and_close(test_path(folder, "out")));
        olds += is_old;
        news += is_new && status < 0;
    }
    print_message("%s, %s: old %u times, new in spite of a failure %u times\n",
                  dead ? "dead" : "one failure", elsewhere ? "elsewhere" : "in place", olds, news);
    assert_true(olds > 20);
    test_bytes_free(&delta);
}

static void test_io_failures(void **state) {
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        fail_each(build_file, i & 1, i & 2);
        fail_each(build_folder, i & 1, i & 2);
    }
    fail_each(build_renamed, true, false);
}

/* Memory that runs out at the n-th allocation: a status, nothing changed, nothing lost. */
static atomic_int allocations_left;
static void *allocate_some(void *user, size_t bytes) {
    (void)user;
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64)
                                                      : NULL;
}
static void release_some(void *user, void *memory) {
    (void)user;
    free(memory);
}

static void test_memory_failures(void **state) {
    (void)state;
    xorcast_delta_info info;
    test_bytes delta = make_delta(build_folder, &info);
    const xorcast_source source = test_source(&delta);
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    options.log_level = XORCAST_LOG_ERROR;
    options.allocate = allocate_some;
    options.release = release_some;
    for (int n = 0, done = 0; !done; n++) {
        xorcast_context *tight;
        copy_old("live");
        atomic_store(&allocations_left, 1000000);
        must(xorcast_context_create(&options, &tight));
        atomic_store(&allocations_left, n);
        const xorcast_status status =
            xorcast_checkpoint_apply(tight, test_path(folder, "live"), &source, NULL, NULL);
        atomic_store(&allocations_left, 1000000);
        done = status == XORCAST_OK;
        must(xci_checkpoint_recover(context, test_path(folder, "live")));
        const bool is_new = test_tree_matches(test_path(folder, "live"), test_path(folder, "new"));
        assert_true(status == XORCAST_OK ? is_new
                                         : is_new || test_tree_equal(test_path(folder, "live"),
                                                                     test_path(folder, "old")));
        xorcast_context_destroy(tight);
    }
    test_bytes_free(&delta);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_small_deltas),
        cmocka_unit_test(test_other_bytes),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_file_to_folder),
        cmocka_unit_test(test_delta_without_files),
        cmocka_unit_test(test_damaged_delta),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_large_side_file),
        cmocka_unit_test(test_write_and_load),
        cmocka_unit_test(test_load_boxes_and_mismatches),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_two_elsewhere),
        cmocka_unit_test(test_hostile_stage),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_called_off),
        cmocka_unit_test(test_io_failures),
        cmocka_unit_test(test_memory_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
