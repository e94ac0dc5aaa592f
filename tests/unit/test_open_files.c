/* Tables of files: more files than may be open, from several threads, where a process may
 * have few, replaced while they are closed, and with every call of the system failing once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/open_files.h"
#include "base/pool.h"
#include "support/model.h"

enum { FILES = 2 * XCI_OPEN_FILES_MAX, PIECE = 100, THREADS = 4 };

static char folder[] = "/tmp/xorcast_open_files_XXXXXX";
static char paths[FILES][64];

static unsigned open_now(void) {
    unsigned count = 0;
    DIR *open = opendir("/proc/self/fd");
    assert_non_null(open);
    while (readdir(open) != NULL)
        count++;
    closedir(open);
    return count;
}

/* What stands at a place of a file. */
static void fill(uint64_t file, uint64_t piece, uint8_t bytes[PIECE]) {
    for (uint64_t i = 0; i < PIECE; i++)
        bytes[i] = (uint8_t)(7 * file + 31 * piece + i);
}

typedef struct job {
    xorcast_context *context;
    xci_file *files[FILES];
    unsigned most; /* descriptors that are allowed; 0: any number */
} job;

static xorcast_status write_piece(void *user, uint64_t index, uint32_t worker) {
    const job *j = user;
    uint8_t bytes[PIECE];
    (void)worker;
    fill(index % FILES, index / FILES, bytes);
    return xci_file_write_at(j->context, j->files[index % FILES], index / FILES * PIECE, bytes,
                             PIECE);
}

static xorcast_status read_piece(void *user, uint64_t index, uint32_t worker) {
    const job *j = user;
    const uint64_t file = index * 7919 % FILES, piece = index / FILES;
    uint8_t bytes[PIECE], expected[PIECE];
    (void)worker;
    TRY(xci_file_read_at(j->context, j->files[file], piece * PIECE, bytes, PIECE));
    fill(file, piece, expected);
    if (memcmp(bytes, expected, PIECE) != 0)
        FAIL(j->context, XORCAST_DATA_CORRUPT, "other bytes in file %llu",
             (unsigned long long)file);
    if (j->most != 0 && index % 97 == 0 && open_now() > j->most)
        FAIL(j->context, XORCAST_INTERNAL, "%u descriptors are open", open_now());
    return XORCAST_OK;
}

static void open_all(job *j, xci_open_files **table_out) {
    assert_int_equal(xci_open_files_create(j->context, table_out), XORCAST_OK);
    for (int i = 0; i < FILES; i++) {
        xci_file_facts facts;
        assert_int_equal(xci_file_open(*table_out, paths[i], &j->files[i], &facts), XORCAST_OK);
        assert_int_equal(facts.bytes, 2 * PIECE);
    }
}

/* Runs first: the files are there for the other tests. */
static void test_more_than_may_be_open(void **state) {
    (void)state;
    job j = {.context = test_context(THREADS)};
    xci_open_files *table;
    const unsigned before = open_now();
    assert_int_equal(xci_open_files_create(j.context, &table), XORCAST_OK);
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        assert_int_equal(xci_file_create(table, paths[i], &j.files[i]), XORCAST_OK);
    }
    assert_int_equal(open_now(), before + XCI_OPEN_FILES_MAX);
    xci_pool *pool = j.context->shared->pool;
    assert_int_equal(xci_pool_run(pool, 2 * FILES, write_piece, &j), XORCAST_OK);
    for (int i = 0; i < FILES; i++)
        assert_int_equal(xci_file_sync(j.context, j.files[i]), XORCAST_OK);
    assert_int_equal(open_now(), before + XCI_OPEN_FILES_MAX);
    xci_open_files_destroy(table);
    assert_int_equal(open_now(), before);

    open_all(&j, &table);
    j.most = before + XCI_OPEN_FILES_MAX + THREADS; /* each thread may count at a time */
    assert_int_equal(xci_pool_run(pool, 2 * FILES, read_piece, &j), XORCAST_OK);
    xci_open_files_destroy(table);
    assert_int_equal(open_now(), before);
    xorcast_context_destroy(j.context);
}

/* Where a process may have few, a table takes few: fewer than there are threads. */
static void test_few_descriptors(void **state) {
    (void)state;
    job j = {.context = test_context(THREADS)};
    xci_open_files *table;
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 8 * (THREADS - 1);
    j.most = open_now() + THREADS - 1 + THREADS; /* each thread may count at a time */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    open_all(&j, &table);
    assert_int_equal(xci_pool_run(j.context->shared->pool, 2 * FILES, read_piece, &j), XORCAST_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    xci_open_files_destroy(table);
    xorcast_context_destroy(j.context);
}

static void test_replaced_while_closed(void **state) {
    (void)state;
    char other[96];
    uint8_t bytes[PIECE];
    xorcast_error error;
    xci_file *made;
    job j = {.context = test_context(1)};
    xci_open_files *table, *beside;
    open_all(&j, &table); /* the last are open, the first are not */
    assert_int_equal(xci_open_files_create(j.context, &beside), XORCAST_OK);
    for (int i = 0; i < FILES; i += FILES - 1) {
        snprintf(other, sizeof other, "%s/other%d", folder, i);
        assert_int_equal(xci_file_create(beside, other, &made), XORCAST_OK);
        memset(bytes, 0xee, sizeof bytes);
        assert_int_equal(xci_file_write_at(j.context, made, 0, bytes, PIECE), XORCAST_OK);
        assert_int_equal(xci_file_write_at(j.context, made, PIECE, bytes, PIECE), XORCAST_OK);
        assert_int_equal(rename(other, paths[i]), 0);
    }
    assert_int_equal(read_piece(&j, 0, 0), XORCAST_IO_FAILED);
    xorcast_last_error(j.context, &error);
    assert_non_null(strstr(error.text, "/0 was replaced"));
    /* one that stayed open is the old file */
    assert_int_equal(xci_file_read_at(j.context, j.files[FILES - 1], 0, bytes, PIECE), XORCAST_OK);
    assert_int_not_equal(bytes[0], 0xee);
    xci_open_files_destroy(beside);
    xci_open_files_destroy(table);
    xorcast_context_destroy(j.context);
}

/* Creates, writes and reads files, more than may be open. */
static xorcast_status use_files(xorcast_context *context) {
    xci_open_files *table;
    xci_file *files[XCI_OPEN_FILES_MAX + 2];
    const uint64_t count = sizeof files / sizeof *files;
    uint8_t bytes[PIECE], back[PIECE];
    fill(0, 0, bytes);
    TRY(xci_open_files_create(context, &table));
    xorcast_status status = XORCAST_OK;
    for (uint64_t i = 0; i < count && status == XORCAST_OK; i++) {
        unlink(paths[i]);
        status = xci_file_create(table, paths[i], &files[i]);
    }
    for (uint64_t i = 0; i < 3 && status == XORCAST_OK; i++)
        status = xci_file_write_at(context, files[i], 0, bytes, PIECE);
    for (uint64_t i = 0; i < 3 && status == XORCAST_OK; i++) {
        status = xci_file_read_at(context, files[i], 0, back, PIECE);
        if (status == XORCAST_OK)
            assert_memory_equal(bytes, back, PIECE);
    }
    xci_open_files_destroy(table);
    return status;
}

/* Runs last: it writes over the files. */
static void test_failures(void **state) {
    (void)state;
    xorcast_context *context = test_context(1);
    const unsigned before = open_now();
    int64_t n = 0;
    for (;; n++) {
        assert_true(n < 1000);
        xci_io_fail_after(n, false);
        const xorcast_status status = use_files(context);
        xci_io_fail_after(-1, false);
        assert_int_equal(open_now(), before);
        if (status == XORCAST_OK)
            break;
        assert_int_equal(status, XORCAST_IO_FAILED);
    }
    assert_true(n > 2 * XCI_OPEN_FILES_MAX);
    xorcast_context_destroy(context);
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    for (int i = 0; i < FILES; i++)
        unlink(paths[i]);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_may_be_open),
        cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_replaced_while_closed),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
