/* Hostile checkpoints and hostile lists of files in deltas: each attack is named for what it
 * tries. None may succeed, leave memory allocated, change the checkpoint, or touch anything
 * outside of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/commit_record.h"
#include "checkpoint/files.h"
#include "publish/encode.h"
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

static uint64_t allocated(void) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

/* ---- Files ---- */

static void open_bytes(const char *attack, const void *bytes, size_t count, xorcast_status wanted) {
    xorcast_checkpoint *checkpoint;
    const uint64_t before = allocated();
    test_file_put(test_path(folder, "hostile"), bytes, count);
    const xorcast_status status =
        xorcast_checkpoint_open(context, test_path(folder, "hostile"), NULL, &checkpoint);
    if (status == XORCAST_OK)
        xorcast_checkpoint_close(checkpoint);
    if (status != wanted)
        fprintf(stderr, "%s: %s instead of %s\n", attack, xorcast_status_name(status),
                xorcast_status_name(wanted));
    assert_int_equal(status, wanted);
    assert_int_equal(allocated(), before);
}

static void open_header(const char *attack, const char *header, uint64_t said_bytes,
                        size_t data_bytes, xorcast_status wanted) {
    const size_t length = strlen(header);
    uint8_t *file = calloc(1, 8 + length + data_bytes);
    const uint64_t prefix = said_bytes == 0 ? length : said_bytes;
    memcpy(file, &prefix, 8);
    memcpy(file + 8, header, length);
    open_bytes(attack, file, 8 + length + data_bytes, wanted);
    free(file);
}

#define ONE "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static void test_files(void **state) {
    (void)state;
    open_header("none", ONE, 0, 4, XORCAST_OK);
    open_bytes("no file at all", "", 0, XORCAST_DATA_TRUNCATED);
    open_bytes("seven bytes", "\2\0\0\0\0\0\0", 7, XORCAST_DATA_TRUNCATED);
    open_bytes("a header of no bytes", "\0\0\0\0\0\0\0\0", 8, XORCAST_DATA_CORRUPT);
    open_header("data cut off", ONE, 0, 3, XORCAST_DATA_TRUNCATED);
    open_header("data behind the last tensor", ONE, 0, 5, XORCAST_DATA_CORRUPT);
    open_header("a header longer than the file", ONE, 1000, 4, XORCAST_DATA_TRUNCATED);
    open_header("a header of 2^63 bytes", ONE, UINT64_C(1) << 63, 4, XORCAST_DATA_LIMIT);
    open_header("a header of 2^64 - 1 bytes", ONE, UINT64_MAX, 4, XORCAST_DATA_LIMIT);
    open_header("a header that is cut", ONE, strlen(ONE) - 1, 4, XORCAST_DATA_CORRUPT);
    open_header("a header that runs into the data", ONE, strlen(ONE) + 1, 4, XORCAST_DATA_CORRUPT);
    open_header("a pickle", "\x80\x02}q", 0, 0, XORCAST_DATA_CORRUPT);
    open_header("a tensor of 2^63 - 1 bytes",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,"
                "9223372036854775807]}}",
                0, 4, XORCAST_DATA_CORRUPT); /* more than 2^64 bits */
    open_header("a tensor of 2^60 bytes",
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[1152921504606846976],\"data_offsets\":[0,"
                "1152921504606846976]}}",
                0, 4, XORCAST_DATA_TRUNCATED);
    char name[2048];
    snprintf(name, sizeof name,
             "{\"%01024d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 1);
    open_header("a name of 1024 bytes", name, 0, 4, XORCAST_DATA_CORRUPT);
    snprintf(name, sizeof name,
             "{\"%01023d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 1);
    open_header("a name of 1023 bytes", name, 0, 4, XORCAST_OK);
}

static void test_every_cut(void **state) {
    (void)state;
    const test_tensor tensors[] = {{"a", "F32", "[3]", 12, 0}, {"b", "BF16", "[]", 2, 0}};
    size_t count;
    test_safetensors(test_path(folder, "whole"), "{\"k\":\"v\"}", tensors, 2, 3);
    uint8_t *bytes = test_file_get(test_path(folder, "whole"), &count);
    for (size_t n = 0; n < count; n++) {
        xorcast_checkpoint *checkpoint;
        test_file_put(test_path(folder, "cut"), bytes, n);
        assert_int_equal(
            xorcast_checkpoint_open(context, test_path(folder, "cut"), NULL, &checkpoint),
            XORCAST_DATA_TRUNCATED);
    }
    free(bytes);
}

/* ---- Lists of files in deltas ---- */

typedef struct list {
    xci_buffer raw;
} list;

static void put(list *l, const void *bytes, uint64_t count) {
    assert_int_equal(xci_buffer_put(&l->raw, bytes, count), XORCAST_OK);
}
static void put_number(list *l, uint64_t value) {
    assert_int_equal(xci_buffer_put_varint(&l->raw, value), XORCAST_OK);
}
static void put_name(list *l, const char *name, size_t length) {
    put_number(l, length);
    put(l, name, length);
}

#define HEADER "{\"w\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":[0,5000]}}"

static void put_shard(list *l, const char *name, size_t length, const char *header) {
    put_name(l, name, length);
    put(l, "\1", 1);
    put_name(l, header, strlen(header));
}
static void put_side(list *l, const char *name, size_t length) {
    put_name(l, name, length);
    put(l, "\1", 1);
    put_name(l, "evil", 4);
}

/* Applies a delta that is right in everything but its list of files. Also frees the list. */
static void apply_list(const char *attack, list *l, xorcast_status wanted) {
    xorcast_checkpoint *base;
    xci_buffer attachment = {.context = context};
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    assert_int_equal(xci_files_compress(&attachment, &l->raw), XORCAST_OK);
    assert_int_equal(xorcast_checkpoint_open(context, test_path(folder, "deep/live"), NULL, &base),
                     XORCAST_OK);
    assert_int_equal(xci_delta_encode(base->bundle, base->bundle, NULL, NULL, attachment.bytes,
                                      attachment.size, &sink, NULL),
                     XORCAST_OK);
    xorcast_checkpoint_close(base);
    xci_buffer_free(&attachment);
    xci_buffer_free(&l->raw);

    const xorcast_source source = test_source(&delta);
    const uint64_t before = allocated();
    for (unsigned i = 0; i < 3; i++) {
        const char *out = i == 2 ? test_path(folder, "deep/out") : NULL;
        const xorcast_status status =
            i == 0
                ? xorcast_checkpoint_check(context, test_path(folder, "deep/live"), &source, NULL)
                : xorcast_checkpoint_apply(context, test_path(folder, "deep/live"), &source, out,
                                           NULL);
        if (status != wanted)
            fprintf(stderr, "%s: %s instead of %s\n", attack, xorcast_status_name(status),
                    xorcast_status_name(wanted));
        assert_int_equal(status, wanted);
        assert_int_equal(allocated(), before);
        if (wanted != XORCAST_OK)
            assert_true(
                test_tree_equal(test_path(folder, "deep"), test_path(folder, "deep-before")));
    }
    test_bytes_free(&delta);
}

static list begin_list(uint64_t shards) {
    list l = {{.context = context}};
    put(&l, "\1", 1);
    put_number(&l, shards);
    return l;
}

static void end_list(list *l, uint64_t removed, uint64_t whole) {
    put_number(l, removed);
    put_number(l, whole);
}

static void prepare(void) {
    const test_tensor tensor = {"w", "U8", "[5000]", 5000, 0};
    test_tree_remove(test_path(folder, "deep"));
    test_tree_remove(test_path(folder, "deep-before"));
    test_make_folder(test_path(folder, "deep"));
    test_make_folder(test_path(folder, "deep/live"));
    test_safetensors(test_path(folder, "deep/live/m.safetensors"), NULL, &tensor, 1, 0);
    test_text_put(test_path(folder, "deep/live/config.json"), "{}");
    test_text_put(test_path(folder, "deep/victim"), "outside");
    test_text_put(test_path(folder, "deep/victim.safetensors"), "outside");
    test_tree_copy(test_path(folder, "deep"), test_path(folder, "deep-before"));
}

static void test_names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t length;
    } names[] = {
        {"../victim", 9},    {"..", 2},    {".", 1},    {"", 0},
        {"/etc/passwd", 11}, {"a/b", 3},   {"a\0b", 3}, {".xorcast-commit", 15},
        {".hidden", 7},      {"x.tmp", 5}, {"/", 1},    {"a/", 2},
        {"..//", 4},
    };
    char text[400];
    prepare();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        list l = begin_list(1);
        put_shard(&l, "m.safetensors", 13, HEADER);
        put_number(&l, 1);
        put_side(&l, names[i].name, names[i].length);
        end_list(&l, 0, 0);
        apply_list("a side file outside", &l, XORCAST_DATA_CORRUPT);

        l = begin_list(1);
        put_shard(&l, "m.safetensors", 13, HEADER);
        put_number(&l, 0);
        put_number(&l, 1);
        put_name(&l, names[i].name, names[i].length);
        put_number(&l, 0);
        apply_list("a removal outside", &l, XORCAST_DATA_CORRUPT);

        memset(text, 0, sizeof text);
        memcpy(text, names[i].name, names[i].length);
        strcat(text, ".safetensors");
        const bool plain = strchr(text, '/') == NULL && text[0] != '.';
        l = begin_list(1);
        put_shard(&l, plain ? "m.txt" : text, strlen(plain ? "m.txt" : text), HEADER);
        put_number(&l, 0);
        end_list(&l, 0, 0);
        apply_list("a shard outside", &l, XORCAST_DATA_CORRUPT);
    }
    memset(text, 'n', 256);
    list l = begin_list(1);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_number(&l, 1);
    put_side(&l, text, 256);
    end_list(&l, 0, 0);
    apply_list("a name of 256 bytes", &l, XORCAST_DATA_CORRUPT);
}

static void test_duplicates(void **state) {
    (void)state;
    prepare();
    list l = begin_list(2);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_shard(&l, "m.safetensors", 13, "{}");
    put_number(&l, 0);
    end_list(&l, 0, 0);
    apply_list("a shard twice", &l, XORCAST_DATA_CORRUPT);
    l = begin_list(2);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_shard(&l, "a.safetensors", 13, "{}");
    put_number(&l, 0);
    end_list(&l, 0, 0);
    apply_list("shards out of order", &l, XORCAST_DATA_CORRUPT);
    l = begin_list(2);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_shard(&l, "n.safetensors", 13, HEADER);
    put_number(&l, 0);
    end_list(&l, 0, 0);
    apply_list("a tensor in two shards", &l, XORCAST_DATA_CORRUPT);
    l = begin_list(1);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_number(&l, 2);
    put_side(&l, "x", 1);
    put_side(&l, "x", 1);
    end_list(&l, 0, 0);
    apply_list("a side file twice", &l, XORCAST_DATA_CORRUPT);
    l = begin_list(1);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_number(&l, 1);
    put_side(&l, "x", 1);
    put_number(&l, 1);
    put_name(&l, "x", 1);
    put_number(&l, 0);
    apply_list("a file both sent and removed", &l, XORCAST_DATA_CORRUPT);
}

static void test_other_tensors(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{}",
        "{\"w\":{\"dtype\":\"U8\",\"shape\":[5001],\"data_offsets\":[0,5001]}}",
        "{\"w\":{\"dtype\":\"I8\",\"shape\":[5000],\"data_offsets\":[0,5000]}}",
        "{\"v\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":[0,5000]}}",
        "{\"w\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":[8,5008]}}",
        "{\"w\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":[0,5000]}",
        ("{\"w\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":[0,5000]},\"x\":{\"dtype\":"
         "\"U8\",\"shape\":[1],\"data_offsets\":[5000,5001]}}"),
    };
    prepare();
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        list l = begin_list(1);
        put_shard(&l, "m.safetensors", 13, headers[i]);
        put_number(&l, 0);
        end_list(&l, 0, 0);
        apply_list(headers[i], &l, XORCAST_DATA_CORRUPT);
    }
    list l = begin_list(1);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_number(&l, 0);
    end_list(&l, 0, 1);
    apply_list("a tensor sent whole that is not", &l, XORCAST_DATA_CORRUPT);
    l = begin_list(1);
    put_name(&l, "m.safetensors", 13);
    put(&l, "\0aaaaaaaaaaaaaaaa", 17);
    put_number(&l, 0);
    end_list(&l, 0, 0);
    apply_list("a header that the base has not", &l, XORCAST_BASE_MISMATCH);
    l = begin_list(1);
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_number(&l, 1);
    put_name(&l, "config.json", 11);
    put(&l, "\0\2aaaaaaaaaaaaaaaa", 18);
    end_list(&l, 0, 0);
    apply_list("a side file that the base has not", &l, XORCAST_BASE_MISMATCH);
}

/* A tensor from zeros costs a delta nothing and a disk as much as it likes. */
static void test_disk_filler(void **state) {
    (void)state;
    list l = begin_list(1);
    prepare();
    put_shard(&l, "m.safetensors", 13,
              "{\"w\":{\"dtype\":\"U8\",\"shape\":[1152921504606846976],\"data_offsets\":[0,"
              "1152921504606846976]},"
              "\"x\":{\"dtype\":\"U8\",\"shape\":[1152921504606846976],"
              "\"data_offsets\":[1152921504606846976,2305843009213693952]}}");
    put_number(&l, 0);
    end_list(&l, 0, 2);
    apply_list("two tensors of 2^60 zeros", &l, XORCAST_DATA_CORRUPT);
}

static void decode(const char *attack, const void *bytes, size_t count, xorcast_status wanted) {
    xci_files files;
    const uint64_t before = allocated();
    uint8_t *copy = malloc(count > 0 ? count : 1); /* of exactly the size, for sanitizers */
    memcpy(copy, bytes, count);
    const xorcast_status status = xci_files_decode(context, copy, count, &files);
    if (status == XORCAST_OK)
        xci_files_free(&files);
    free(copy);
    if (status != wanted)
        fprintf(stderr, "%s: %s instead of %s\n", attack, xorcast_status_name(status),
                xorcast_status_name(wanted));
    assert_int_equal(status, wanted);
    assert_int_equal(allocated(), before);
}

static void test_lying_lengths(void **state) {
    (void)state;
    decode("nothing", "", 0, XORCAST_DATA_CORRUPT);
    decode("an empty list", "\0\0", 2, XORCAST_DATA_CORRUPT);
    decode("an unknown packing", "\1\2x", 3, XORCAST_DATA_CORRUPT);
    decode("a bomb of 2^62 bytes", "\x80\x80\x80\x80\x80\x80\x80\x80\x40\1x", 11,
           XORCAST_DATA_LIMIT);
    decode("a length that is too long for its bytes", "\x05\0\1\0", 4, XORCAST_DATA_CORRUPT);
    decode("a varint that does not end", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12,
           XORCAST_DATA_CORRUPT);
    decode("zstd that is none", "\x05\1\1\2\3\4\5", 7, XORCAST_DATA_CORRUPT);
    decode("2^63 shards", "\x0b\0\1\x80\x80\x80\x80\x80\x80\x80\x80\x80\1", 13,
           XORCAST_DATA_CORRUPT);
    list l = begin_list(1);
    xci_buffer attachment = {.context = context};
    put_shard(&l, "m.safetensors", 13, HEADER);
    put_number(&l, 1);
    put_side(&l, "config.json", 11);
    put_number(&l, 1);
    put_name(&l, "gone", 4);
    put_number(&l, 0);
    uint8_t plain[512];
    const unsigned head = xci_varint_put(plain, l.raw.size);
    plain[head] = 0;
    memcpy(plain + head + 1, l.raw.bytes, l.raw.size);
    decode("none", plain, head + 1 + l.raw.size, XORCAST_OK);
    for (uint64_t n = 0; n < l.raw.size; n++) { /* every cut, with a length that fits it */
        const unsigned h = xci_varint_put(plain, n);
        plain[h] = 0;
        memcpy(plain + h + 1, l.raw.bytes, n);
        decode("a cut", plain, h + 1 + n, XORCAST_DATA_CORRUPT);
    }
    assert_int_equal(xci_files_compress(&attachment, &l.raw), XORCAST_OK);
    decode("packed", attachment.bytes, attachment.size, XORCAST_OK);
    for (uint64_t n = 0; n < attachment.size; n++)
        decode("a packed cut", attachment.bytes, n, XORCAST_DATA_CORRUPT);
    xci_buffer_free(&attachment);
    xci_buffer_free(&l.raw);
}

/* ---- Records ---- */

static void test_record_names(void **state) {
    (void)state;
    static const char *const names[] = {"../victim", "/etc/passwd", "..",          ".",
                                        "",          "a/b",         ".xorcast-new"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (unsigned removal = 0; removal < 2; removal++) {
            const char *name = names[i];
            xorcast_checkpoint *checkpoint;
            xci_commit_record record = {&name, &name, !removal, removal};
            xci_buffer bytes = {.context = context};
            prepare();
            assert_int_equal(xci_commit_record_put(&bytes, &record), XORCAST_OK);
            test_file_put(test_path(folder, "deep/live/.xorcast-commit"), bytes.bytes, bytes.size);
            test_make_folder(test_path(folder, "deep/live/.xorcast-new"));
            test_file_put(test_path(folder, "deep-before/live/.xorcast-commit"), bytes.bytes,
                          bytes.size);
            test_make_folder(test_path(folder, "deep-before/live/.xorcast-new"));
            xci_buffer_free(&bytes);
            assert_int_equal(
                xorcast_checkpoint_open(context, test_path(folder, "deep/live"), NULL, &checkpoint),
                XORCAST_DATA_CORRUPT);
            assert_true(
                test_tree_equal(test_path(folder, "deep"), test_path(folder, "deep-before")));
        }
    }
}

/* A record whose stage is a link: what it renames would be taken out of another directory. */
static void test_record_beside_a_link(void **state) {
    (void)state;
    const char *name = "victim";
    xorcast_checkpoint *checkpoint;
    const xci_commit_record record = {&name, NULL, 1, 0};
    xci_buffer bytes = {.context = context};
    prepare();
    assert_int_equal(xci_commit_record_put(&bytes, &record), XORCAST_OK);
    test_file_put(test_path(folder, "deep/live/.xorcast-commit"), bytes.bytes, bytes.size);
    xci_buffer_free(&bytes);
    assert_int_equal(symlink("..", test_path(folder, "deep/live/.xorcast-new")), 0);
    assert_int_equal(
        xorcast_checkpoint_open(context, test_path(folder, "deep/live"), NULL, &checkpoint),
        XORCAST_DATA_CORRUPT);
    assert_int_equal(access(test_path(folder, "deep/victim"), F_OK), 0);
    assert_int_not_equal(access(test_path(folder, "deep/live/victim"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_other_tensors),
        cmocka_unit_test(test_disk_filler),
        cmocka_unit_test(test_lying_lengths),
        cmocka_unit_test(test_record_names),
        cmocka_unit_test(test_record_beside_a_link),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
