/* The object store: what is put is found until it is dropped, references come out even, failures of
 * memory leave the table as it was, and threads do not disturb each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ship/link.h"
#include "ship/store.h"

/* Fails every allocation after the first `left`. */
typedef struct budget {
    atomic_int left;
} budget;

static void *take(void *user, size_t bytes) {
    budget *b = user;
    return atomic_fetch_sub(&b->left, 1) > 0 ? malloc(bytes) : NULL;
}

static void give(void *user, void *memory) {
    (void)user;
    free(memory);
}

static xorcast_context *make_context(budget *b) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    options.allocate = b == NULL ? NULL : take;
    options.release = b == NULL ? NULL : give;
    options.user = b;
    xorcast_context *context;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    return context;
}

/* A context has a pool of its own, so that tests compare with what was in use before. */
static uint64_t bytes_in_use(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static xci_blob *blob_of(xorcast_context *context, uint64_t number) {
    xci_blob *blob;
    assert_int_equal(xci_blob_copy(context, &number, sizeof number, &blob), XORCAST_OK);
    return blob;
}

static void put_number(xci_store *store, xorcast_context *context, const char *name,
                       uint64_t number) {
    xci_blob *blob = blob_of(context, number);
    assert_int_equal(xci_store_put(store, name, blob), XORCAST_OK);
    xci_blob_drop(blob);
}

static bool holds_number(xci_store *store, const char *name, uint64_t number) {
    xci_blob *blob = xci_store_find(store, name);
    if (blob == NULL)
        return false;
    const bool equal = memcmp(blob->bytes, &number, sizeof number) == 0;
    xci_blob_drop(blob);
    return equal;
}

static void test_put_find_replace_drop(void **state) {
    (void)state;
    xorcast_context *context = make_context(NULL);
    const uint64_t before_bytes = bytes_in_use(context);
    xci_store *store;
    assert_int_equal(xci_store_create(context, &store), XORCAST_OK);
    const uint64_t empty_bytes = bytes_in_use(context);

    assert_null(xci_store_find(store, "a"));
    put_number(store, context, "a", 1);
    put_number(store, context, "a/b.c-d", 2);
    assert_true(holds_number(store, "a", 1));
    assert_true(holds_number(store, "a/b.c-d", 2));
    put_number(store, context, "a", 3);
    assert_true(holds_number(store, "a", 3));
    assert_int_equal(xci_store_count(store), 2);

    xci_store_drop(store, "a");
    xci_store_drop(store, "a");
    xci_store_drop(store, "never");
    xci_store_drop(store, "NO NAME");
    assert_null(xci_store_find(store, "a"));
    xci_store_drop(store, "a/b.c-d");
    assert_int_equal(xci_store_count(store), 0);
    assert_int_equal(bytes_in_use(context), empty_bytes);

    xci_store_destroy(store);
    xci_store_destroy(NULL);
    assert_int_equal(bytes_in_use(context), before_bytes);
    xorcast_context_destroy(context);
}

static void test_blob_outlives_drop_and_store(void **state) {
    (void)state;
    xorcast_context *context = make_context(NULL);
    xci_store *store;
    assert_int_equal(xci_store_create(context, &store), XORCAST_OK);
    put_number(store, context, "kept", 7);
    xci_blob *kept = xci_store_find(store, "kept");
    xci_store_drop(store, "kept");
    put_number(store, context, "left", 8);
    xci_store_destroy(store);
    xorcast_context_destroy(context);
    const uint64_t seven = 7;
    assert_memory_equal(kept->bytes, &seven, sizeof seven);
    xci_blob_drop(kept);
}

static void test_thousands_of_names(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    xorcast_context *context = make_context(NULL);
    const uint64_t before_bytes = bytes_in_use(context);
    xci_store *store;
    char name[32];
    assert_int_equal(xci_store_create(context, &store), XORCAST_OK);
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "part/%u", (unsigned)i);
        put_number(store, context, name, i);
    }
    assert_int_equal(xci_store_count(store), COUNT);
    for (uint64_t i = 0; i < COUNT; i += 2) {
        snprintf(name, sizeof name, "part/%u", (unsigned)i);
        xci_store_drop(store, name);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "part/%u", (unsigned)i);
        assert_int_equal(holds_number(store, name, i), i % 2);
    }
    xci_store_destroy(store);
    assert_int_equal(bytes_in_use(context), before_bytes);
    xorcast_context_destroy(context);
}

static void test_names(void **state) {
    (void)state;
    xorcast_context *context = make_context(NULL);
    const uint64_t before_bytes = bytes_in_use(context);
    xci_store *store;
    assert_int_equal(xci_store_create(context, &store), XORCAST_OK);
    xci_blob *blob = blob_of(context, 1);
    char longest[XCI_NAME_BYTES + 1];
    memset(longest, 'a', sizeof longest);
    longest[XCI_NAME_BYTES - 1] = '\0';
    assert_int_equal(xci_store_put(store, longest, blob), XORCAST_OK);
    longest[XCI_NAME_BYTES - 1] = 'a';
    longest[XCI_NAME_BYTES] = '\0';
    const char *const bad[] = {NULL, "", "A", "a b", "a_b", "a\n", "\xc3\xa4", "a:b", longest};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(xci_store_put(store, bad[i], blob), XORCAST_BAD_ARGUMENT);
        assert_null(xci_store_find(store, bad[i]));
    }
    assert_int_equal(xci_store_count(store), 1);
    xci_blob_drop(blob);
    xci_store_destroy(store);
    assert_int_equal(bytes_in_use(context), before_bytes);
    xorcast_context_destroy(context);
}

/* Puts until the table has to grow with the n-th allocation failing, for every n. */
static void test_failing_allocations(void **state) {
    (void)state;
    budget b;
    atomic_init(&b.left, 1 << 20);
    xorcast_context *context = make_context(&b);
    xci_blob *blob = blob_of(context, 1);
    const uint64_t before_bytes = bytes_in_use(context);
    bool whole = false;
    for (int n = 0; !whole; n++) {
        atomic_store(&b.left, n);
        xci_store *store;
        xorcast_status status = xci_store_create(context, &store);
        if (status < 0) {
            assert_int_equal(status, XORCAST_NO_HOST_MEMORY);
            continue;
        }
        uint64_t put = 0;
        char name[16];
        for (; put < 200 && status >= 0; put += status >= 0) {
            snprintf(name, sizeof name, "n%u", (unsigned)put);
            status = xci_store_put(store, name, blob);
        }
        assert_int_equal(xci_store_count(store), put);
        whole = put == 200;
        if (!whole) {
            assert_int_equal(status, XORCAST_NO_HOST_MEMORY);
            assert_null(xci_store_find(store, name));
            atomic_store(&b.left, 1 << 20);
            assert_int_equal(xci_store_put(store, name, blob), XORCAST_OK);
        }
        xci_store_destroy(store);
        assert_int_equal(atomic_load(&blob->references), 1);
        assert_int_equal(bytes_in_use(context), before_bytes);
    }
    xci_blob_drop(blob);
    xorcast_context_destroy(context);
}

typedef struct worker {
    pthread_t thread;
    xci_store *store;
    xorcast_context *context;
    unsigned number;
    bool good;
} worker;

/* Every worker has a name of its own and one that all fight over. */
static void *work(void *user) {
    worker *w = user;
    char own[16];
    snprintf(own, sizeof own, "own/%u", w->number);
    w->good = true;
    for (uint64_t i = 0; i < 2000; i++) {
        xci_blob *blob;
        const uint64_t twice[2] = {i, i};
        if (xci_blob_copy(w->context, twice, sizeof twice, &blob) < 0)
            return NULL;
        w->good = w->good && xci_store_put(w->store, own, blob) == XORCAST_OK &&
                  xci_store_put(w->store, "shared", blob) == XORCAST_OK;
        xci_blob_drop(blob);
        w->good = w->good && holds_number(w->store, own, i);
        blob = xci_store_find(w->store, "shared");
        if (blob != NULL)
            w->good = w->good && memcmp(blob->bytes, blob->bytes + 8, 8) == 0;
        xci_blob_drop(blob);
        if (i % 3 == 0)
            xci_store_drop(w->store, "shared");
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { WORKERS = 4 };
    xorcast_context *context = make_context(NULL);
    const uint64_t before_bytes = bytes_in_use(context);
    xci_store *store;
    worker workers[WORKERS];
    assert_int_equal(xci_store_create(context, &store), XORCAST_OK);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.store = store, .context = context, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].good);
    }
    xci_store_destroy(store);
    assert_int_equal(bytes_in_use(context), before_bytes);
    xorcast_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_find_replace_drop),
        cmocka_unit_test(test_blob_outlives_drop_and_store),
        cmocka_unit_test(test_thousands_of_names),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
