/* The table of a device (backend/device.h), of the stand-in or of a real one: memory, streams that
 * are ordered by events, copies of every alignment, failures turned into statuses. And how a
 * plug-in is found. What the batched operations give is compared with the CPU by tests/gpu and,
 * through whole versions, by tests/property. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/cuda_move.h"
#include "backend/device.h"
#include "backend/device_arena.h"
#include "base/bytes.h"
#include "support/device_model.h"
#include "support/fake_device.h"

static const xci_device *device_of(xorcast_context *context) {
    return context->shared->device;
}

static void test_about(void **state) {
    (void)state;
    xorcast_context *context = test_device_context(1);
    const xci_device *d = device_of(context);
    xci_device_about about;
    assert_int_equal(d->ops->describe(d->handle, &about), 0);
    print_message("%s: %s, %s, %u processors, driver %u, engine %u\n", d->ops->name, about.name,
                  about.architecture, about.processors, about.driver_version,
                  about.decompress_mask);
    assert_true(about.memory_bytes >= about.free_bytes);
    assert_true(about.processors > 0);
    assert_true(about.decompress_mask != 0 || about.decompress_max_bytes == 0);
    xorcast_context_destroy(context);
}

static void test_owner(void **state) {
    (void)state;
    static int here;
    xorcast_context *context = test_device_context(1);
    const xci_device *d = device_of(context);
    xci_device_memory memory, pinned;
    uint64_t owned;
    int32_t owner;
    assert_int_equal(xci_device_allocate(context, 1000, &memory), XORCAST_OK);
    assert_int_equal(xci_pinned_allocate(context, 1000, &pinned), XORCAST_OK);
    /* Allocations may be longer than what was asked for, never shorter. */
    assert_int_equal(d->ops->owner(d->handle, memory.at + 999, &owner, &owned), 0);
    assert_true(owner == d->ordinal && owned >= 1);
    assert_int_equal(d->ops->owner(d->handle, memory.at, &owner, &owned), 0);
    assert_true(owner == d->ordinal && owned >= 1000);
    assert_int_equal(d->ops->owner(d->handle, &here, &owner, &owned), 0);
    assert_true(owner == XCI_NO_DEVICE && owned == 0);
    assert_int_equal(d->ops->owner(d->handle, pinned.at, &owner, &owned), 0);
    assert_true(owner == XCI_NO_DEVICE && owned == 0);
    xci_device_stretch known = {0};
    for (unsigned i = 0; i < 3; i++) { /* neighbours, and others between them */
        assert_int_equal(xci_device_owner(context, &known, memory.at + 300 * i, &owner),
                         XORCAST_OK);
        assert_int_equal(owner, d->ordinal);
        assert_int_equal(xci_device_owner(context, &known, memory.at + 300 * i + 7, &owner),
                         XORCAST_OK);
        assert_int_equal(owner, d->ordinal);
        assert_int_equal(
            xci_device_owner(context, &known, i == 1 ? &here : (void *)pinned.at, &owner),
            XORCAST_OK);
        assert_int_equal(owner, XCI_NO_DEVICE);
    }
    xci_device_release(context, &memory);
    xci_pinned_release(context, &pinned);
    xorcast_context_destroy(context);
}

/* Contexts beside another: their devices are others, their account and failures are its own. */
static void test_beside(void **state) {
    (void)state;
    xorcast_context *context = test_device_context(1), *beside;
    const xci_device *d = device_of(context);
    xci_device_memory memory;
    xci_device_stretch known = {0};
    xorcast_memory before, now;
    xorcast_error error;
    uint32_t count;
    int32_t owner;
    assert_int_equal(d->ops->count(&count), 0);
    assert_int_equal(xci_context_beside(context, (int32_t)count, &beside), XORCAST_UNSUPPORTED);
    xorcast_last_error(context, &error);
    assert_int_equal(error.status, XORCAST_UNSUPPORTED);
    xorcast_context_memory(context, &before);
    assert_int_equal(xci_context_beside(context, (int32_t)count - 1, &beside), XORCAST_OK);
    assert_int_equal(xci_device_allocate(beside, 5000, &memory), XORCAST_OK);
    xorcast_context_memory(context, &now);
    assert_int_equal(now.device_now_bytes, before.device_now_bytes + 5000);
    assert_int_equal(xci_device_owner(context, &known, memory.at, &owner), XORCAST_OK);
    assert_int_equal(owner, count - 1);
    xci_device_release(beside, &memory);
    assert_int_equal(xci_fail(beside, XORCAST_BAD_STATE, XCI_NOWHERE, "here"), XORCAST_BAD_STATE);
    xorcast_last_error(context, &error);
    assert_string_equal(error.text, "here");
    xorcast_context_destroy(beside);
    xorcast_context_memory(context, &now);
    assert_memory_equal(&now.now_bytes, &before.now_bytes, sizeof now.now_bytes);
    xorcast_context_destroy(context);
}

/* A chain over three streams: each piece of work needs the one before. */
static void test_order(void **state) {
    (void)state;
    enum { BYTES = 1 << 20, LINKS = 12 };
    xorcast_context *context = test_device_context(1);
    const xci_device *d = device_of(context);
    xci_device_memory a, b, pinned;
    void *streams[3], *event, *begun, *done;
    bool is_done = false;
    double milliseconds;
    assert_int_equal(xci_device_allocate(context, BYTES, &a), XORCAST_OK);
    assert_int_equal(xci_device_allocate(context, BYTES, &b), XORCAST_OK);
    assert_int_equal(xci_pinned_allocate(context, BYTES, &pinned), XORCAST_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(d->ops->stream_open(d->handle, &streams[i]), 0);
    assert_int_equal(d->ops->event_open(d->handle, &event), 0);
    assert_int_equal(d->ops->event_open(d->handle, &begun), 0);
    assert_int_equal(d->ops->event_open(d->handle, &done), 0);
    assert_int_equal(d->ops->event_record(d->handle, begun, streams[0]), 0);
    assert_int_equal(d->ops->fill(d->handle, a.at, 7, BYTES, streams[0]), 0);
    for (unsigned i = 1; i <= LINKS; i++) {
        void *stream = streams[i % 3];
        const xci_device_memory *to = i % 2 ? &b : &a, *from = i % 2 ? &a : &b;
        assert_int_equal(xci_stream_follow(context, stream, streams[(i - 1) % 3], event),
                         XORCAST_OK);
        assert_int_equal(d->ops->copy(d->handle, to->at, from->at, BYTES, stream), 0);
        assert_int_equal(d->ops->fill(d->handle, to->at + i, (uint8_t)(100 + i), 1, stream), 0);
    }
    void *last = streams[LINKS % 3];
    assert_int_equal(d->ops->copy(d->handle, pinned.at, a.at, BYTES, last), 0);
    assert_int_equal(d->ops->event_record(d->handle, done, last), 0);
    while (!is_done)
        assert_int_equal(d->ops->event_done(d->handle, done, &is_done), 0);
    assert_int_equal(d->ops->event_elapsed(d->handle, begun, done, &milliseconds), 0);
    assert_true(milliseconds >= 0);
    assert_int_equal(pinned.at[0], 7);
    for (unsigned i = 1; i <= LINKS; i++)
        assert_int_equal(pinned.at[i], 100 + i);
    assert_int_equal(pinned.at[BYTES - 1], 7);
    for (unsigned i = 0; i < 3; i++)
        xci_stream_close(context, &streams[i]);
    xci_event_close(context, &event);
    xci_event_close(context, &begun);
    xci_event_close(context, &done);
    xci_device_release(context, &a);
    xci_device_release(context, &b);
    xci_pinned_release(context, &pinned);
    xorcast_context_destroy(context);
}

/* ---- Pieces of any length and alignment ---- */

static void test_move_cut(void **state) {
    (void)state;
    for (uintptr_t to = 64; to < 72; to++)
        for (uintptr_t from = 128; from < 136; from++)
            for (uint64_t bytes = 0; bytes < 40; bytes++) {
                const xci_move_cut cut = xci_cut_move(to, from, bytes);
                assert_true(cut.first <= cut.end && cut.end <= bytes);
                assert_int_equal((cut.end - cut.first) % 4, 0);
                assert_true(cut.first <= 7 && (bytes < 16 || cut.end - cut.first >= bytes - 14));
                for (uint64_t i = cut.first; i < cut.end; i += 4) {
                    const uintptr_t begin = (from + i) & ~(uintptr_t)3;
                    assert_int_equal((to + i) % 4, 0);
                    assert_true(begin >= from);
                    assert_true(begin + ((from + i) % 4 ? 8 : 4) <= from + bytes);
                }
            }
}

static void test_copy_many(void **state) {
    (void)state;
    enum { BYTES = 1 << 18, MOVES = 3000 };
    xorcast_context *context = test_device_context(1);
    const xci_device *d = device_of(context);
    xci_cuda_move *moves = calloc(MOVES, sizeof *moves);
    uint8_t *source = malloc(BYTES), *expected = calloc(1, BYTES), *got = malloc(BYTES);
    xci_device_memory from, to, table;
    uint64_t random = 3, at = 0, count = 0;
    assert_true(moves != NULL && source != NULL && expected != NULL && got != NULL);
    assert_int_equal(xci_device_allocate(context, BYTES, &from), XORCAST_OK);
    assert_int_equal(xci_device_allocate(context, BYTES, &to), XORCAST_OK);
    assert_int_equal(xci_device_allocate(context, MOVES * sizeof *moves, &table), XORCAST_OK);
    for (uint32_t i = 0; i < BYTES; i++)
        source[i] = (uint8_t)model_random(&random);
    for (; count < MOVES; count++) {
        const uint64_t bytes = model_random(&random) % (count % 50 ? 70 : 3000);
        const uint64_t begin = model_random(&random) % (BYTES - bytes);
        at += model_random(&random) % 9;
        if (at + bytes > BYTES)
            break;
        moves[count] = (xci_cuda_move){from.at + begin, to.at + at, bytes};
        memcpy(expected + at, source + begin, bytes);
        at += bytes;
    }
    device_put(context, from.at, source, BYTES);
    device_put(context, to.at, memset(got, 0, BYTES), BYTES);
    device_put(context, table.at, moves, count * sizeof *moves);
    assert_int_equal(d->ops->copy_many(d->handle, (const void *)table.at, count, NULL), 0);
    assert_int_equal(d->ops->stream_wait(d->handle, NULL), 0);
    device_get(context, got, to.at, BYTES);
    assert_memory_equal(got, expected, BYTES);
    assert_int_equal(d->ops->copy_many(d->handle, (const void *)table.at, 0, NULL), 0);
    xci_device_release(context, &from);
    xci_device_release(context, &to);
    xci_device_release(context, &table);
    xorcast_context_destroy(context);
    free(moves);
    free(source);
    free(expected);
    free(got);
}

/* Moves of whole vectors: XORed into what is there, and nothing else is touched. */
static void test_join_many(void **state) {
    (void)state;
    enum { BYTES = 1 << 20, MOVES = 40 };
    xorcast_context *context = test_device_context(1);
    const xci_device *d = device_of(context);
    uint8_t *source = malloc(BYTES), *expected = malloc(BYTES), *got = malloc(BYTES);
    xci_device_memory from, to, table;
    uint64_t random = 4, at = 0, count = 0;
    assert_true(source != NULL && expected != NULL && got != NULL);
    assert_int_equal(xci_device_allocate(context, BYTES, &from), XORCAST_OK);
    assert_int_equal(xci_device_allocate(context, BYTES, &to), XORCAST_OK);
    assert_int_equal(xci_pinned_allocate(context, MOVES * sizeof(xci_cuda_move), &table),
                     XORCAST_OK);
    xci_cuda_move *moves = (void *)table.at;
    for (uint32_t i = 0; i < BYTES; i++) {
        source[i] = (uint8_t)model_random(&random);
        expected[i] = (uint8_t)model_random(&random);
    }
    device_put(context, from.at, source, BYTES);
    device_put(context, to.at, expected, BYTES);
    for (; count < MOVES; count++) {
        const uint64_t bytes = model_random(&random) % (count % 2 ? 20 : 4096) * 16;
        const uint64_t begin = model_random(&random) % ((BYTES - bytes) / 16) * 16;
        at += model_random(&random) % 3 * 16;
        if (at + bytes > BYTES)
            break;
        moves[count] = (xci_cuda_move){from.at + begin, to.at + at, bytes};
        for (uint64_t i = 0; i < bytes; i++)
            expected[at + i] ^= source[begin + i];
        at += bytes;
    }
    assert_true(count > 10);
    assert_int_equal(d->ops->join_many(d->handle, moves, count, NULL), 0);
    assert_int_equal(d->ops->join_many(d->handle, moves, 0, NULL), 0);
    assert_int_equal(d->ops->stream_wait(d->handle, NULL), 0);
    device_get(context, got, to.at, BYTES);
    assert_memory_equal(got, expected, BYTES);
    xci_device_release(context, &from);
    xci_device_release(context, &to);
    xci_pinned_release(context, &table);
    xorcast_context_destroy(context);
    free(source);
    free(expected);
    free(got);
}

/* ---- Memory ---- */

static void test_account(void **state) {
    (void)state;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_memory memory;
    xorcast_error error;
    xci_device_memory a, b;
    options.device_limit_bytes = 1 << 20;
    options.log_level = XORCAST_LOG_ERROR;
    xorcast_context *context = test_device_context_with(&options);
    assert_int_equal(xci_device_allocate(context, 600000, &a), XORCAST_OK);
    assert_int_equal(xci_device_allocate(context, 600000, &b), XORCAST_NO_DEVICE_MEMORY);
    assert_null(b.at);
    assert_int_equal(xci_device_reserve(context, &a, 500000), XORCAST_OK);
    assert_int_equal(a.bytes, 600000);
    xci_device_release(context, &a);
    xci_device_release(context, &a);
    assert_int_equal(xci_device_allocate(context, 0, &a), XORCAST_OK);
    assert_null(a.at);
    xorcast_context_memory(context, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    assert_int_equal(memory.device_high_water_bytes, 600000);
    assert_int_equal(xci_device_result(context, 1, "do this"), XORCAST_DEVICE_FAILED);
    xorcast_last_error(context, &error);
    assert_int_equal(error.device_error, 1);
    assert_non_null(strstr(error.text, "do this"));
    xorcast_context_destroy(context);
}

static void test_arena(void **state) {
    (void)state;
    xorcast_context *context = test_device_context(1);
    xci_device_arena arena;
    xorcast_memory memory;
    uint8_t *last = NULL, *at;
    xci_device_arena_open(&arena, context);
    for (unsigned round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 100; i++) {
            assert_int_equal(xci_device_arena_take(&arena, 1 + i * 777, &at), XORCAST_OK);
            assert_int_equal((uintptr_t)at % 256, 0);
            assert_true(at != last);
            last = at;
        }
        assert_true(arena.total_bytes < 100 * 100 * 777);
        xci_device_arena_reset(&arena);
    }
    assert_int_equal(xci_device_arena_take(&arena, 10, &at), XORCAST_OK);
    xci_device_arena_reset(&arena);
    xci_device_arena_reset(&arena);
    xorcast_context_memory(context, &memory);
    assert_int_equal(memory.device_now_bytes, 0); /* nothing was used: nothing is kept */
    xci_device_arena_close(&arena);
    xorcast_context_destroy(context);
}

/* What is expected, or a step, may be more than there is: what is taken fits. */
static void test_arena_fits(void **state) {
    (void)state;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.device_limit_bytes = 300000;
    xorcast_context *context = test_device_context_with(&options);
    xci_device_arena arena;
    uint8_t *at;
    for (unsigned expected = 0; expected < 2; expected++) {
        xci_device_arena_open(&arena, context);
        if (expected != 0)
            xci_device_arena_expect(&arena, UINT64_C(1) << 40);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(xci_device_arena_take(&arena, 90000, &at), XORCAST_OK);
        assert_int_equal(xci_device_arena_take(&arena, 90000, &at), XORCAST_NO_DEVICE_MEMORY);
        assert_int_equal(arena.taken, 3 * xci_round_up(90000, 256));
        xci_device_arena_close(&arena);
    }
    xorcast_context_destroy(context);
}

/* ---- The caller's own memory, and rates ---- */

static void test_caller_memory(void **state) {
    (void)state;
    xorcast_context *context = test_device_context(1), *host;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_memory account;
    uint8_t bytes[5000], back[5000];
    void *a, *b;
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    assert_int_equal(xorcast_device_allocate(context, 0, &a), XORCAST_BAD_ARGUMENT);
    assert_int_equal(xorcast_device_allocate(context, sizeof bytes, &a), XORCAST_OK);
    assert_int_equal(xorcast_device_allocate(context, sizeof bytes, &b), XORCAST_OK);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal(xorcast_device_copy(context, a, bytes, sizeof bytes), XORCAST_OK);
    assert_int_equal(xorcast_device_copy(context, b, a, sizeof bytes), XORCAST_OK);
    assert_int_equal(xorcast_device_copy(context, back, b, sizeof bytes), XORCAST_OK);
    assert_int_equal(xorcast_device_copy(context, NULL, NULL, 0), XORCAST_OK);
    assert_memory_equal(back, bytes, sizeof bytes);
    xorcast_context_memory(context, &account);
    assert_int_equal(account.device_high_water_bytes, 0);
    xorcast_device_release(context, a);
    xorcast_device_release(context, b);
    xorcast_device_release(context, NULL);
    xorcast_context_destroy(context);
    options.backend = "cpu";
    assert_int_equal(xorcast_context_create(&options, &host), XORCAST_OK);
    assert_int_equal(xorcast_device_allocate(host, 1, &a), XORCAST_UNSUPPORTED);
    xorcast_context_destroy(host);
}

/* With room for little it measures with little. */
static void test_rates(void **state) {
    (void)state;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_device_rates rates;
    xorcast_memory before, account;
    options.device_limit_bytes = 10 << 20;
    xorcast_context *context = test_device_context_with(&options);
    xorcast_context_memory(context, &before);
    assert_int_equal(xorcast_device_measure(context, &rates), XORCAST_OK);
    assert_true(rates.to_device > 1000000 && rates.from_device > 1000000);
    assert_true(rates.memory > 1000000);
    xorcast_context_memory(context, &account);
    assert_int_equal(account.device_now_bytes, 0);
    assert_int_equal(account.device_high_water_bytes, 8 << 20);
    assert_int_equal(account.now_bytes, before.now_bytes);
    xorcast_context_destroy(context);
    options.device_limit_bytes = 1000;
    context = test_device_context_with(&options);
    assert_int_equal(xorcast_device_measure(context, &rates), XORCAST_NO_DEVICE_MEMORY);
    xorcast_context_destroy(context);
}

/* ---- A stream of several threads ---- */

static atomic_bool events_done;

static void *wait_for_default(void *user) {
    const xci_device *d = user;
    uint64_t failures = 0;
    while (!atomic_load(&events_done))
        failures += d->ops->stream_wait(d->handle, NULL) != 0;
    return (void *)(uintptr_t)failures;
}

/* Contexts of a device have its default stream in common: while one thread marks it, another may
 * see the mark pass. */
static void test_default_stream_of_two(void **state) {
    (void)state;
    xorcast_context *here = test_device_context(1), *there = test_device_context(1);
    const xci_device *d = device_of(here);
    pthread_t threads[3];
    void *failures, *event;
    atomic_store(&events_done, false);
    for (unsigned t = 0; t < 3; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, wait_for_default,
                                        (void *)(uintptr_t)device_of(there)),
                         0);
    for (unsigned i = 0; i < 60000; i++) {
        bool done;
        assert_int_equal(d->ops->event_open(d->handle, &event), 0);
        assert_int_equal(d->ops->event_record(d->handle, event, NULL), 0);
        assert_int_equal(d->ops->event_wait(d->handle, event), 0);
        assert_int_equal(d->ops->event_done(d->handle, event, &done), 0);
        assert_true(done);
        assert_int_equal(d->ops->event_close(d->handle, event), 0);
    }
    atomic_store(&events_done, true);
    for (unsigned t = 0; t < 3; t++) {
        assert_int_equal(pthread_join(threads[t], &failures), 0);
        assert_null(failures);
    }
    xorcast_context_destroy(there);
    xorcast_context_destroy(here);
}

/* ---- Finding one ---- */

static char logged[1024];

static void keep_log(void *user, xorcast_log_level level, const char *text) {
    (void)user;
    (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

static void expect_unsupported(const char *backend, int32_t ordinal, const char *words) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    options.backend = backend;
    options.device = ordinal;
    options.log = keep_log;
    logged[0] = 0;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_UNSUPPORTED);
    if (strstr(logged, words) == NULL)
        print_message("%s\n", logged);
    assert_non_null(strstr(logged, words));
}

static void test_plugins(void **state) {
    (void)state;
    expect_unsupported("nonesuch", 0, "XORCAST_PLUGIN_PATH");
    expect_unsupported("../../etc", 0, "there are cpu and cuda");
    expect_unsupported(test_device_name(), 1000, "none with number 1000");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_about),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_move_cut),
        cmocka_unit_test(test_copy_many),
        cmocka_unit_test(test_join_many),
        cmocka_unit_test(test_account),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_plugins),
        cmocka_unit_test(test_caller_memory),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_default_stream_of_two),
        cmocka_unit_test(test_arena_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
