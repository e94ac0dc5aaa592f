/* Base: status table, varints and the reader of foreign bytes, checked arithmetic, allocation with
 * its limit and high-water mark, arenas, the pool, deadlines, the failure record, and files that
 * fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdatomic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/blob.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/mapping.h"
#include "base/pool.h"
#include "support/model.h"

static uint64_t now_bytes(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

/* ---- Status ---- */

static void test_status_table(void **state) {
    (void)state;
    static const xorcast_status all[] = {
#define VALUE(name, value, remedy, code, text) XORCAST_##name,
        XORCAST_STATUS_LIST(VALUE)
#undef VALUE
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(strlen(xorcast_status_name(all[i])) > 1);
        assert_true(strlen(xorcast_status_text(all[i])) > 3);
        assert_true(strlen(xorcast_status_remedy(all[i])) > 2);
        assert_true((xorcast_status_exit_code(all[i]) == 0) == (all[i] >= 0));
        for (size_t j = 0; j < i; j++)
            assert_true(all[i] != all[j]);
    }
    assert_string_equal(xorcast_status_name(XORCAST_BASE_MISMATCH), "BASE_MISMATCH");
    assert_string_equal(xorcast_status_name((xorcast_status)-999), "UNKNOWN");
    assert_int_equal(xorcast_status_exit_code((xorcast_status)-999), 70);
    assert_int_equal(xorcast_library_version(), XORCAST_VERSION_NUMBER);
}

static void test_last_error(void **state) {
    (void)state;
    xorcast_context *context = test_context(1), *fork;
    xorcast_error error;
    xorcast_last_error(context, &error);
    assert_int_equal(error.status, XORCAST_OK);
    assert_true(error.tensor == XORCAST_NO_INDEX && error.chunk == XORCAST_NO_INDEX);
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(xci_fail(context, XORCAST_DATA_CORRUPT, ((xci_place){3, 4, EIO}), "%s", text),
                     XORCAST_DATA_CORRUPT);
    xorcast_last_error(context, &error);
    assert_int_equal(error.tensor, 3);
    assert_int_equal(error.chunk, 4);
    assert_int_equal(error.os_error, EIO);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_int_equal(xci_context_fork(context, &fork), XORCAST_OK);
    xorcast_last_error(fork, &error);
    assert_int_equal(error.status, XORCAST_OK);
    xorcast_context_destroy(context); /* a fork keeps what they share */
    assert_int_equal(xci_fail(fork, XORCAST_BAD_STATE, XCI_NOWHERE, "still here"),
                     XORCAST_BAD_STATE);
    xorcast_context_destroy(fork);
    xorcast_context_destroy(NULL);
}

static void keep_line(void *user, xorcast_log_level level, const char *text) {
    (void)level;
    snprintf(user, 64, "%s", text);
}

/* What a terminal obeys is in no record and no line of the log, wherever a name came from. */
static void test_texts_are_plain(void **state) {
    (void)state;
    static const char hostile[] = "a\x1b[2J\x7f\n\xc2\x9b\xc2\xa0\xc3\x9f\xc2";
    static const char plain[] = "a?[2J????\xc2\xa0\xc3\x9f\xc2";
    char line[64];
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    xorcast_error error;
    options.log = keep_line;
    options.user = line;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    assert_int_equal(xci_fail(context, XORCAST_DATA_CORRUPT, XCI_NOWHERE, "%s", hostile),
                     XORCAST_DATA_CORRUPT);
    xorcast_last_error(context, &error);
    assert_string_equal(error.text, plain);
    xci_log(context, XORCAST_LOG_ERROR, "%s", hostile);
    assert_string_equal(line, plain);
    xorcast_context_destroy(context);
}

static void test_context_options(void **state) {
    (void)state;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    options.threads = 1000;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_BAD_ARGUMENT);
    options.threads = 3;
    options.backend = "no such";
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_UNSUPPORTED);
    options.backend = "cpu";
    options.device = 1;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_UNSUPPORTED);
    options.device = 0;
    options.allocate = (void *(*)(void *, size_t))(uintptr_t)1; /* without its release */
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_BAD_ARGUMENT);
    options.allocate = NULL;
    options.scratch_limit_bytes = 1;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_NO_HOST_MEMORY);
    options.scratch_limit_bytes = 0;
    options.struct_size = 4;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_BAD_ARGUMENT);
    assert_int_equal(xorcast_context_create(&options, NULL), XORCAST_BAD_ARGUMENT);
    options.struct_size = sizeof options;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    assert_int_equal(xci_context_threads(context), 3);
    xorcast_context_destroy(context);
}

/* ---- Bytes ---- */

static void test_varints(void **state) {
    (void)state;
    for (unsigned shift = 0; shift < 64; shift++)
        for (int add = -1; add <= 1; add++) {
            const uint64_t value = (UINT64_C(1) << shift) + (uint64_t)add;
            uint8_t bytes[XCI_VARINT_BYTES + 1];
            memset(bytes, 0xee, sizeof bytes);
            const unsigned count = xci_varint_put(bytes, value);
            assert_true(count <= XCI_VARINT_BYTES);
            assert_int_equal(bytes[count], 0xee);
            xci_reader reader = {bytes, bytes + count, false};
            assert_true(xci_read_varint(&reader) == value);
            assert_false(reader.bad);
            assert_int_equal(xci_reader_left(&reader), 0);
            for (unsigned cut = 0; cut < count; cut++) {
                reader = (xci_reader){bytes, bytes + cut, false};
                assert_int_equal(xci_read_varint(&reader), 0);
                assert_true(reader.bad);
            }
        }
}

static void test_varints_that_are_refused(void **state) {
    (void)state;
    static const uint8_t bad[][12] = {
        {0x80, 0x00},                                                 /* 0 in two bytes */
        {0xff, 0x80, 0x00},                                           /* longer than needed */
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, /* 2^64 and more */
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
        {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x81, 0x01}, /* eleven bytes */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xci_reader reader = {bad[i], bad[i] + 12, false};
        assert_int_equal(xci_read_varint(&reader), 0);
        assert_true(reader.bad);
        assert_int_equal(xci_read8(&reader), 0); /* stays bad */
        assert_null(xci_read_bytes(&reader, 0));
    }
}

static void test_reader_is_bounded(void **state) {
    (void)state;
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    xci_reader reader = {bytes, bytes + 7, false};
    assert_int_equal(xci_read32(&reader), 0x04030201);
    assert_int_equal(xci_read32(&reader), 0);
    assert_true(reader.bad);
    reader = (xci_reader){bytes, bytes + 8, false};
    assert_true(xci_read64(&reader) == UINT64_C(0x0807060504030201));
    assert_null(xci_read_bytes(&reader, UINT64_MAX));
    reader = (xci_reader){bytes, bytes + 8, false};
    assert_ptr_equal(xci_read_bytes(&reader, 8), bytes);
    assert_non_null(xci_read_bytes(&reader, 0));
    assert_false(reader.bad);
}

static void test_arithmetic(void **state) {
    (void)state;
    uint64_t result = 7;
    assert_true(xci_add(UINT64_MAX - 1, 1, &result));
    assert_true(result == UINT64_MAX);
    assert_false(xci_add(UINT64_MAX, 1, &result));
    assert_true(xci_multiply(UINT64_C(1) << 32, UINT32_MAX, &result));
    assert_false(xci_multiply(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
    assert_int_equal(xci_divide_up(0, 8), 0);
    assert_int_equal(xci_divide_up(9, 8), 2);
    assert_true(xci_divide_up(UINT64_MAX, 2) == UINT64_C(1) << 63);
    assert_int_equal(xci_round_up(65, 64), 128);
    assert_int_equal(xci_min(3, 4) * 10 + xci_max(3, 4), 34);
}

/* Pieces and whole buffers go through code for other instruction sets; lengths lie on both sides of
 * where XXH3 changes its loop. */
static void test_hash_in_pieces(void **state) {
    (void)state;
    static uint8_t bytes[70000];
    const uint64_t lengths[] = {0, 1, 16, 17, 128, 129, 240, 241, 1000, 1024, 1025, 69999};
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 ^ i >> 8);
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const xci_hash whole = xci_hash_of(bytes, lengths[l]);
        xci_hash_state *hash = xci_hash_begin();
        assert_non_null(hash);
        for (uint64_t at = 0, step = 1; at < lengths[l]; at += step, step = step * 2 % 97 + 1)
            xci_hash_more(hash, bytes + at, xci_min(step, lengths[l] - at));
        const xci_hash pieces = xci_hash_now(hash);
        xci_hash_free(hash);
        assert_memory_equal(&whole, &pieces, sizeof whole);
    }
}

/* ---- Memory ---- */

static void test_limit_and_high_water(void **state) {
    (void)state;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    xorcast_memory memory;
    void *a, *b, *none;
    options.threads = 1;
    options.log_level = XORCAST_LOG_ERROR;
    options.scratch_limit_bytes = 1 << 20;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    const uint64_t before = now_bytes(context);
    assert_int_equal(xci_allocate(context, 600000, &a), XORCAST_OK);
    assert_int_equal(xci_allocate(context, 600000, &none), XORCAST_NO_HOST_MEMORY);
    assert_int_equal(now_bytes(context), before + 600000);
    assert_int_equal(xci_allocate(context, (1 << 20) - before - 600000, &b),
                     XORCAST_OK); /* to the last byte */
    assert_int_equal(xci_allocate(context, 1, &none), XORCAST_NO_HOST_MEMORY);
    xci_release(context, a);
    xci_release(context, b);
    xci_release(context, NULL);
    xorcast_context_memory(context, &memory);
    assert_int_equal(memory.now_bytes, before);
    assert_int_equal(memory.high_water_bytes, 1 << 20);
    assert_int_equal(xci_allocate(context, UINT64_MAX, &none), XORCAST_NO_HOST_MEMORY);
    assert_int_equal(xci_allocate(context, UINT64_MAX - 100, &none), XORCAST_NO_HOST_MEMORY);
    assert_int_equal(xci_allocate_array(context, UINT64_C(1) << 33, UINT64_C(1) << 31, &none),
                     XORCAST_NO_HOST_MEMORY);
    assert_int_equal(now_bytes(context), before);
    xorcast_context_destroy(context);
}

/* Large blocks that were released are taken again, count as long as they are kept, and make room
 * where memory is short. */
static void test_kept_blocks(void **state) {
    (void)state;
    const uint64_t large = UINT64_C(4) << 20;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    void *a, *b, *c, *last;
    uint64_t share = 0;
    options.threads = 1;
    options.scratch_limit_bytes = 16 << 20;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    const uint64_t before = now_bytes(context);
    assert_int_equal(xci_allocate(context, large, &a), XORCAST_OK);
    memset(a, 1, large);
    xci_release(context, a);
    assert_int_equal(now_bytes(context), before); /* nothing is kept yet */

    xci_keep(context, &share, large + large / 2);
    assert_int_equal(xci_allocate(context, large, &a), XORCAST_OK);
    assert_int_equal(xci_allocate(context, large, &b), XORCAST_OK);
    memset(b, 2, large);
    last = b;
    xci_release(context, a);
    xci_release(context, b); /* there is room for one of them: the other goes, as nobody took it */
    assert_int_equal(now_bytes(context), before + large);
    assert_int_equal(xci_allocate(context, large / 2, &b), XORCAST_OK); /* too small for it */
    assert_int_equal(now_bytes(context), before + large + large / 2);
    assert_int_equal(xci_allocate(context, large - large / 8, &c), XORCAST_OK);
    assert_ptr_equal(c, last);
    assert_int_equal(now_bytes(context), before + large + large / 2);
    memset(c, 3, large - large / 8);
    xci_release(context, c);
    xci_release(context, b);

    /* more than may be kept: it goes, and what is kept stays */
    assert_int_equal(xci_allocate(context, 2 * large, &b), XORCAST_OK);
    xci_release(context, b);
    assert_int_equal(now_bytes(context), before + large + large / 2);

    /* the limit is met by what is kept: it goes */
    assert_int_equal(xci_allocate(context, 15 << 20, &b), XORCAST_OK);
    assert_int_equal(now_bytes(context), before + (15 << 20));
    xci_release(context, b);
    xci_keep(context, &share, large);
    assert_int_equal(xci_allocate(context, large, &a), XORCAST_OK);
    xci_release(context, a);
    xci_keep(context, &share, 0);
    assert_int_equal(now_bytes(context), before);
    xorcast_context_destroy(context);
}

/* Publishers and samplers of one context each have a share of what is kept; one that goes takes its
 * own alone. */
static void test_kept_shares(void **state) {
    (void)state;
    const uint64_t large = UINT64_C(4) << 20;
    xorcast_context *context = test_context(1);
    void *memory[3];
    uint64_t first = 0, second = 0;
    const uint64_t before = now_bytes(context);
    xci_keep(context, &first, 2 * large);
    xci_keep(context, &second, large);
    for (int i = 0; i < 3; i++)
        assert_int_equal(xci_allocate(context, large, &memory[i]), XORCAST_OK);
    for (int i = 0; i < 3; i++)
        xci_release(context, memory[i]);
    assert_int_equal(now_bytes(context), before + 3 * large);
    xci_keep(context, &second, 0);
    assert_int_equal(now_bytes(context), before + 2 * large);
    xci_keep(context, &second, large / 2); /* no room for a third */
    for (int i = 0; i < 3; i++)
        assert_int_equal(xci_allocate(context, large, &memory[i]), XORCAST_OK);
    for (int i = 0; i < 3; i++)
        xci_release(context, memory[i]);
    assert_int_equal(now_bytes(context), before + 2 * large);
    xci_keep(context, &first, large);
    assert_int_equal(now_bytes(context), before + large);
    xci_keep(context, &first, 0);
    xci_keep(context, &second, 0);
    assert_int_equal(now_bytes(context), before);
    xorcast_context_destroy(context);
}

/* Of several that would do, the one that has been kept longest is taken: blocks of a version's
 * parts become the same parts of a later one. */
static void test_kept_in_order(void **state) {
    (void)state;
    const uint64_t large = UINT64_C(4) << 20;
    xorcast_context *context = test_context(1);
    void *memory[3], *again;
    uint64_t share = 0;
    xci_keep(context, &share, 4 * large);
    for (int i = 0; i < 3; i++)
        assert_int_equal(xci_allocate(context, large, &memory[i]), XORCAST_OK);
    for (int i = 0; i < 3; i++)
        xci_release(context, memory[i]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(xci_allocate(context, large, &again), XORCAST_OK);
        assert_ptr_equal(again, memory[i]);
    }
    for (int i = 0; i < 3; i++)
        xci_release(context, memory[i]);
    xci_keep(context, &share, 0);
    xorcast_context_destroy(context);
}

static uint64_t most_asked;

static void *ask(void *user, size_t bytes) {
    (void)user;
    most_asked = most_asked > bytes ? most_asked : bytes;
    return malloc(bytes);
}

static void take_back(void *user, void *memory) {
    (void)user;
    free(memory);
}

/* The system's large blocks begin in a huge page, where these are of 2 MiB, and not where weights
 * do; a caller's allocator is asked for little more than is needed. */
static void test_large_blocks(void **state) {
    (void)state;
    const uint64_t large = UINT64_C(5) << 20, page = UINT64_C(2) << 20;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context = test_context(1);
    void *memory;
    assert_int_equal(xci_allocate(context, large, &memory), XORCAST_OK);
    assert_int_equal((uintptr_t)memory % 64, 0);
    if (sysconf(_SC_PAGESIZE) == 4096)
        assert_in_range((uintptr_t)memory % page, 64, 4095);
    memset(memory, 1, large);
    xci_release(context, memory);
    xorcast_context_destroy(context);

    options.threads = 1;
    options.allocate = ask;
    options.release = take_back;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    assert_int_equal(xci_allocate(context, large, &memory), XORCAST_OK);
    assert_in_range(most_asked, large, large + 128);
    memset(memory, 1, large);
    xci_release(context, memory);
    xorcast_context_destroy(context);
}

static void test_allocations(void **state) {
    (void)state;
    xorcast_context *context = test_context(1);
    const uint64_t before = now_bytes(context);
    void *memory = &memory;
    assert_int_equal(xci_allocate(context, 0, &memory), XORCAST_OK);
    assert_null(memory);
    for (uint64_t bytes = 1; bytes < 40000000; bytes = bytes * 3 + 1) {
        assert_int_equal(xci_allocate_zeroed(context, bytes, &memory), XORCAST_OK);
        assert_int_equal((uintptr_t)memory % 64, 0);
        assert_int_equal(((uint8_t *)memory)[0] | ((uint8_t *)memory)[bytes - 1], 0);
        memset(memory, 1, bytes);
        xci_release(context, memory);
    }
    uint64_t capacity = 0;
    memory = NULL;
    for (uint64_t bytes = 1; bytes < 100000; bytes += 977) { /* keeps what was there */
        const uint64_t old = capacity;
        assert_int_equal(xci_grow(context, &memory, &capacity, bytes), XORCAST_OK);
        assert_true(capacity >= bytes);
        for (uint64_t i = 0; i < old; i++)
            assert_int_equal(((uint8_t *)memory)[i], 0x5a);
        memset(memory, 0x5a, capacity);
    }
    xci_release(context, memory);
    assert_int_equal(now_bytes(context), before);
    xorcast_context_destroy(context);
}

static void test_arena(void **state) {
    (void)state;
    xorcast_context *context = test_context(1);
    const uint64_t before = now_bytes(context);
    xci_arena *arena;
    uint8_t *taken[300];
    assert_int_equal(xci_arena_create(context, &arena), XORCAST_OK);
    for (uint64_t i = 0; i < 300; i++) { /* past a slab's end, and more than a slab at once */
        void *memory;
        const uint64_t bytes = i == 150 ? 1000000 : i * 13;
        assert_int_equal(xci_arena_take(arena, bytes, &memory), XORCAST_OK);
        assert_int_equal((uintptr_t)memory % 8, 0);
        taken[i] = memory;
        memset(memory, (int)i, bytes);
    }
    for (uint64_t i = 0; i < 300; i++)
        for (uint64_t b = 0; b < i * 13; b++)
            assert_int_equal(taken[i][b], (uint8_t)i);
    void *copy;
    assert_int_equal(xci_arena_copy(arena, "word", 5, &copy), XORCAST_OK);
    assert_string_equal(copy, "word");
    assert_int_equal(xci_arena_copy(arena, NULL, 0, &copy), XORCAST_OK);
    xci_arena_destroy(arena);
    xci_arena_destroy(NULL);
    assert_int_equal(now_bytes(context), before);
    xorcast_context_destroy(context);
}

/* Who keeps a blob of another context pays for it once its owner has let go, whichever comes first;
 * an owner can go on publishing while samplers that idle keep what they staged. */
static void test_kept_blob_is_its_keepers(void **state) {
    (void)state;
    const uint64_t size = 3 << 20;
    for (unsigned let_go_first = 0; let_go_first < 2; let_go_first++) {
        xorcast_context *owner = test_context(1), *keeper = test_context(1);
        const uint64_t owned = now_bytes(owner), kept = now_bytes(keeper);
        xci_blob *blob;
        assert_int_equal(xci_blob_create(owner, size, &blob), XORCAST_OK);
        assert_in_range(now_bytes(owner), owned + size, owned + size + size / 8);
        if (let_go_first) {
            (void)xci_blob_hold(blob); /* on its way to the keeper */
            xci_blob_let_go(blob);
            assert_in_range(now_bytes(owner), owned + size, owned + size + size / 8);
        }
        assert_int_equal(xci_blob_keep(blob, keeper), XORCAST_OK);
        assert_int_equal(now_bytes(keeper), kept + size);
        if (let_go_first)
            xci_blob_drop(blob);
        else
            xci_blob_let_go(blob);
        assert_in_range(now_bytes(owner), owned, owned + 4096);
        memset(blob->bytes, 7, size);
        xci_blob_keep_end(blob, keeper);
        assert_int_equal(now_bytes(owner), owned);
        assert_int_equal(now_bytes(keeper), kept);
        xorcast_context_destroy(keeper);
        xorcast_context_destroy(owner);
    }
}

/* The limit of the keeper is asked; and a blob that just fits is not refused for rounding. */
static void test_keeping_has_a_limit(void **state) {
    (void)state;
    const uint64_t size = (9 << 20) + 12345;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *owner, *keeper;
    xci_blob *blob;
    options.threads = 1;
    options.log_level = XORCAST_LOG_ERROR;
    options.scratch_limit_bytes = size + 4096;
    assert_int_equal(xorcast_context_create(&options, &owner), XORCAST_OK);
    options.scratch_limit_bytes = size - 1;
    assert_int_equal(xorcast_context_create(&options, &keeper), XORCAST_OK);
    assert_int_equal(xci_blob_create(owner, size, &blob), XORCAST_OK);
    assert_int_equal(xci_blob_keep(blob, keeper), XORCAST_NO_HOST_MEMORY);
    assert_int_equal(xci_blob_keep(blob, owner), XORCAST_OK); /* counted already */
    xci_blob_keep_end(blob, owner);
    xci_blob_drop(blob);
    xorcast_context_destroy(keeper);
    xorcast_context_destroy(owner);
}

static void test_blob_outlives_its_context(void **state) {
    (void)state;
    xorcast_context *context = test_context(2);
    xci_blob *blob;
    assert_int_equal(xci_blob_copy(context, "bytes", 6, &blob), XORCAST_OK);
    xci_blob *held = xci_blob_hold(blob);
    xci_blob_drop(blob);
    xorcast_context_destroy(context);
    assert_string_equal(held->bytes, "bytes");
    xci_blob_drop(held);
    xci_blob_drop(NULL);
}

/* ---- Pool ---- */

typedef struct loop {
    atomic_uint_fast64_t runs, sum;
    uint64_t fail_from, fail_to;
    uint8_t seen[5000];
    uint32_t threads;
} loop;

static xorcast_status count_item(void *user, uint64_t index, uint32_t worker) {
    loop *l = user;
    atomic_fetch_add(&l->runs, 1);
    atomic_fetch_add(&l->sum, index);
    l->seen[index]++;
    assert_true(worker < l->threads);
    return index >= l->fail_from && index < l->fail_to ? (xorcast_status)(-301 - (int)(index % 4))
                                                       : XORCAST_OK;
}

static void test_pool(void **state) {
    (void)state;
    static const uint32_t threads[] = {1, 2, 7};
    static loop l;
    for (unsigned t = 0; t < 3; t++) {
        xorcast_context *context = test_context(threads[t]);
        for (uint64_t count = 0; count < 5000; count = count * 2 + 1) {
            memset(&l, 0, sizeof l);
            l.threads = threads[t];
            l.fail_from = UINT64_MAX;
            assert_int_equal(xci_pool_run(context->shared->pool, count, count_item, &l),
                             XORCAST_OK);
            assert_int_equal(l.runs, count);
            for (uint64_t i = 0; i < count; i++)
                assert_int_equal(l.seen[i], 1);
        }
        for (uint64_t from = 0; from < 200;
             from += 13) { /* the lowest failure, whoever comes first */
            memset(&l, 0, sizeof l);
            l.threads = threads[t];
            l.fail_from = from;
            l.fail_to = 5000;
            assert_int_equal(xci_pool_run(context->shared->pool, 5000, count_item, &l),
                             -301 - (int)(from % 4));
            assert_true(l.runs < 5000); /* what had not begun was skipped */
            for (uint64_t i = 0; i <= from; i++)
                assert_int_equal(l.seen[i], 1);
        }
        xorcast_context_destroy(context);
    }
}

typedef struct two_failures {
    xorcast_context *context;
    atomic_bool begun, failed; /* the second item began; the first one failed */
} two_failures;

/* Item 1 fails after item 0, whose failure is the loop's. */
static xorcast_status fail_in_turn(void *user, uint64_t index, uint32_t worker) {
    two_failures *two = user;
    (void)worker;
    if (index == 1) {
        atomic_store(&two->begun, true);
        while (!atomic_load(&two->failed))
            sched_yield();
        FAIL(two->context, XORCAST_NO_HOST_MEMORY, "the second");
    }
    while (!atomic_load(&two->begun))
        sched_yield();
    (void)xci_fail(two->context, XORCAST_DATA_CORRUPT, XCI_NOWHERE, "the first");
    atomic_store(&two->failed, true);
    return XORCAST_DATA_CORRUPT;
}

static void test_pool_failure_has_its_record(void **state) {
    (void)state;
    two_failures two = {.context = test_context(2)};
    xorcast_error error;
    assert_int_equal(xci_pool_run(two.context->shared->pool, 2, fail_in_turn, &two),
                     XORCAST_DATA_CORRUPT);
    xorcast_last_error(two.context, &error);
    assert_int_equal(error.status, XORCAST_DATA_CORRUPT);
    assert_string_equal(error.text, "the first");
    xorcast_context_destroy(two.context);
}

/* ---- Time ---- */

static void test_deadlines(void **state) {
    (void)state;
    const uint64_t now = xci_now_ns();
    assert_true(xci_now_ns() >= now);
    assert_true(xci_deadline(1000) >= now + UINT64_C(1000000000));
    assert_true(xci_deadline(UINT64_MAX) == XCI_FOREVER);
    assert_true(xci_deadline(UINT64_MAX / 1000000) == XCI_FOREVER ||
                xci_deadline(UINT64_MAX / 1000000) > now);
    assert_int_equal(xci_deadline_left_ms(0), 0);
    assert_int_equal(xci_deadline_left_ms(now), 0);
    assert_int_equal(xci_deadline_left_ms(XCI_FOREVER), 60000);
    const int left = xci_deadline_left_ms(xci_deadline(500));
    assert_true(left > 0 && left <= 501);
    assert_true(xci_deadline_left_ms(xci_now_ns() + 1) <= 1); /* rounded up: a wait never spins */
}

/* ---- Files ---- */

static char folder[] = "/tmp/xorcast-base-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static void path_of(const char *name, char path[256]) {
    snprintf(path, 256, "%s/%s", folder, name);
}

static xorcast_status write_and_read(xorcast_context *context, uint8_t *out, uint64_t count) {
    char path[256], other[256];
    int fd = -1;
    uint64_t size;
    static const uint8_t bytes[] = "some bytes of a file";
    path_of("a", path);
    path_of("b", other);
    unlink(path); /* of a call that failed halfway */
    xorcast_status status = xci_io_create(context, path, &fd);
    if (status == XORCAST_OK) {
        status = xci_io_write_at(context, fd, path, 5, bytes, sizeof bytes);
        if (status == XORCAST_OK)
            status = xci_io_sync(context, fd, path);
        xci_io_close(fd);
    }
    if (status == XORCAST_OK)
        status = xci_io_sync_parent(context, path);
    if (status == XORCAST_OK)
        status = xci_io_rename(context, path, other);
    if (status == XORCAST_OK)
        status = xci_io_open_read(context, other, &fd, &size);
    if (status == XORCAST_OK) {
        assert_int_equal(size, 5 + sizeof bytes);
        status = xci_io_read_at(context, fd, other, 5, out, count);
        xci_io_close(fd);
    }
    if (status == XORCAST_OK)
        status = xci_io_remove(context, other);
    return status;
}

static void test_files(void **state) {
    (void)state;
    char path[256];
    uint8_t out[64];
    int fd;
    uint64_t size;
    xorcast_error error;
    xorcast_context *context = test_context(1);
    assert_int_equal(write_and_read(context, out, 21), XORCAST_OK);
    assert_string_equal(out, "some bytes of a file");
    assert_int_equal(write_and_read(context, out, 22), XORCAST_DATA_TRUNCATED);
    path_of("b", path);
    assert_int_equal(xci_io_remove(context, path), XORCAST_OK);
    assert_int_equal(xci_io_remove(context, path), XORCAST_OK); /* absent */
    assert_int_equal(xci_io_open_read(context, path, &fd, &size), XORCAST_NOT_FOUND);
    xorcast_last_error(context, &error);
    assert_int_equal(error.os_error, ENOENT);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(xci_io_open_read(context, folder, &fd, &size), XORCAST_BAD_ARGUMENT);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_equal(xci_io_create(context, path, &fd), XORCAST_IO_FAILED); /* not through it */
    assert_int_equal(xci_io_remove(context, path), XORCAST_OK);
    path_of("elsewhere", path);
    assert_int_equal(xci_io_open_read(context, path, &fd, &size), XORCAST_NOT_FOUND);
    path_of("none/file", path);
    assert_int_equal(xci_io_create(context, path, &fd), XORCAST_NOT_FOUND);
    assert_int_equal(xci_io_rename(context, path, folder), XORCAST_NOT_FOUND);
    assert_int_equal(xci_io_sync_parent(context, path), XORCAST_NOT_FOUND);
    xci_io_close(-1);
    xorcast_context_destroy(context);
}

/* What waiting does not help is not to be tried again. */
static void test_files_without_permission(void **state) {
    (void)state;
    static const int numbers[] = {EACCES, EPERM, EROFS};
    xorcast_context *context = test_context(1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        xorcast_error error;
        errno = numbers[i];
        assert_int_equal(xci_io_fail(context, "open", "weights"), XORCAST_NO_PERMISSION);
        xorcast_last_error(context, &error);
        assert_int_equal(error.os_error, numbers[i]);
        assert_non_null(strstr(error.text, "cannot open weights: "));
    }
    assert_string_equal(xorcast_status_remedy(XORCAST_NO_PERMISSION), "FIX");
    errno = ENOSPC;
    assert_int_equal(xci_io_fail(context, "write", "weights"), XORCAST_IO_FAILED);
    xorcast_context_destroy(context);
}

static void test_files_that_fail(void **state) {
    (void)state;
    uint8_t out[64];
    char path[256];
    xorcast_context *context = test_context(1);
    const uint64_t before = now_bytes(context);
    for (unsigned persistent = 0; persistent < 2; persistent++) {
        int64_t n = 0;
        for (;; n++) {
            assert_true(n < 100);
            xci_io_fail_after(n, persistent != 0);
            const xorcast_status status = write_and_read(context, out, 21);
            xci_io_fail_after(-1, false);
            path_of("a", path);
            unlink(path);
            path_of("b", path);
            unlink(path);
            if (status == XORCAST_OK)
                break;
            xorcast_error error;
            xorcast_last_error(context, &error);
            assert_int_equal(status, XORCAST_IO_FAILED);
            assert_int_equal(error.os_error, EIO);
            assert_int_equal(now_bytes(context), before);
        }
        assert_true(n >= 9);
    }
    xorcast_context_destroy(context);
}

static void test_mapping(void **state) {
    (void)state;
    char path[256];
    xci_mapping mapping, other;
    xorcast_context *context = test_context(1);
    path_of("mapped", path);
    for (int64_t n = 0; n < 5; n++) {
        xci_io_fail_after(n, true);
        xorcast_status status = xci_mapping_open(context, path, &mapping);
        if (status == XORCAST_OK) {
            status = xci_mapping_grow(context, path, &mapping, 10000);
            xci_mapping_close(&mapping);
        }
        xci_io_fail_after(-1, false);
        assert_int_equal(status, XORCAST_IO_FAILED);
    }
    assert_int_equal(xci_mapping_open(context, path, &mapping), XORCAST_OK);
    assert_int_equal(xci_mapping_grow(context, path, &mapping, 10000), XORCAST_OK);
    memcpy(mapping.bytes + 9990, "persists", 9);
    assert_int_equal(xci_mapping_grow(context, path, &mapping, 5000),
                     XORCAST_OK); /* never smaller */
    assert_int_equal(mapping.size, 10000);
    assert_int_equal(xci_mapping_grow(context, path, &mapping, 50000), XORCAST_OK);
    assert_string_equal(mapping.bytes + 9990, "persists");
    assert_int_equal(xci_mapping_open(context, path, &other), XORCAST_BAD_STATE);
    xci_mapping_close(&mapping);
    xci_mapping_close(&mapping);
    assert_int_equal(xci_mapping_open(context, path, &mapping), XORCAST_OK);
    assert_int_equal(mapping.size, 50000);
    assert_string_equal(mapping.bytes + 9990, "persists");
    xci_mapping_close(&mapping);
    unlink(path);
    xorcast_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_table),
        cmocka_unit_test(test_last_error),
        cmocka_unit_test(test_texts_are_plain),
        cmocka_unit_test(test_context_options),
        cmocka_unit_test(test_varints),
        cmocka_unit_test(test_varints_that_are_refused),
        cmocka_unit_test(test_reader_is_bounded),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_hash_in_pieces),
        cmocka_unit_test(test_limit_and_high_water),
        cmocka_unit_test(test_kept_blocks),
        cmocka_unit_test(test_kept_shares),
        cmocka_unit_test(test_kept_in_order),
        cmocka_unit_test(test_large_blocks),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_kept_blob_is_its_keepers),
        cmocka_unit_test(test_keeping_has_a_limit),
        cmocka_unit_test(test_blob_outlives_its_context),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_failure_has_its_record),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_files_without_permission),
        cmocka_unit_test(test_files_that_fail),
        cmocka_unit_test(test_mapping),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
