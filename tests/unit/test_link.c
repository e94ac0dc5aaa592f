/* Links: one list of cases, run over every link there is, and a few that only TCP has. Publisher
 * and subscriber have contexts of their own, as in two processes. Waits end by what they wait for;
 * the long deadlines below only keep a defect from hanging the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ship/link.h"

#define PATIENCE_MS 60000 /* until a wait counts as a hang */
#define MIB (UINT64_C(1) << 20)

/* ---- The rig ----------------------------------------------------------------------------------*/

/* Fails the allocation after the next `left` ones, or all after them. */
typedef struct budget {
    atomic_int left;
    bool persistent;
} budget;

static void *take(void *user, size_t bytes) {
    budget *b = user;
    const int left = atomic_fetch_sub(&b->left, 1);
    return left == 0 || (left < 0 && b->persistent) ? NULL : malloc(bytes);
}

static void give(void *user, void *memory) {
    (void)user;
    free(memory);
}

typedef struct rig {
    const xci_link *link;
    const char *url; /* to open a host at */
    xorcast_context *publisher, *subscriber;
    budget publisher_budget, subscriber_budget;
    uint64_t publisher_bytes, subscriber_bytes; /* in use before anything was opened */
    xci_host *host;
    char host_url[256];
} rig;

static uint64_t bytes_in_use(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static void allow_all(budget *b) {
    b->persistent = false;
    atomic_store(&b->left, 1 << 30);
}

static xorcast_context *make_context(budget *b) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    options.allocate = take;
    options.release = give;
    options.user = b;
    allow_all(b);
    xorcast_context *context;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    return context;
}

static void open_host(rig *r, const char *url, const xci_host_options *options,
                      const xci_serve *serve) {
    assert_int_equal(r->link->host_open(r->publisher, url, options, serve, &r->host), XORCAST_OK);
    snprintf(r->host_url, sizeof r->host_url, "%s", r->link->host_url(r->host));
}

static int set_up(void **state) {
    const xci_link *link = *state;
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->link = link;
    r->url = link == &xci_link_tcp ? "tcp:127.0.0.1:0" : "inproc:test";
    r->publisher = make_context(&r->publisher_budget);
    r->subscriber = make_context(&r->subscriber_budget);
    r->publisher_bytes = bytes_in_use(r->publisher);
    r->subscriber_bytes = bytes_in_use(r->subscriber);
    *state = r;
    return 0;
}

static void close_host(rig *r) {
    r->link->host_close(r->host);
    r->host = NULL;
}

/* Every case must give back all memory of both sides. */
static int tear_down(void **state) {
    rig *r = *state;
    close_host(r);
    const bool even = bytes_in_use(r->publisher) == r->publisher_bytes &&
                      bytes_in_use(r->subscriber) == r->subscriber_bytes;
    xorcast_context_destroy(r->publisher);
    xorcast_context_destroy(r->subscriber);
    free(r);
    return even ? 0 : -1;
}

static uint64_t soon(void) { return xci_deadline(PATIENCE_MS); }

static xci_peer *open_peer(rig *r) {
    xci_peer *peer;
    assert_int_equal(r->link->peer_open(r->subscriber, r->host_url, false, soon(), &peer),
                     XORCAST_OK);
    return peer;
}

static void assert_error(xorcast_context *context, xorcast_status status, const char *part) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    assert_int_equal(error.status, status);
    if (strstr(error.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, part);
}

/* xorshift64*: the same bytes for the same seed. */
static void fill(uint8_t *bytes, uint64_t count, uint64_t seed) {
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (uint64_t i = 0; i < count; i += 8) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        const uint64_t word = x * UINT64_C(2685821657736338717);
        memcpy(bytes + i, &word, count - i < 8 ? count - i : 8);
    }
}

static void put(rig *r, const char *name, uint64_t bytes, uint64_t seed) {
    xci_blob *blob;
    assert_int_equal(xci_blob_create(r->publisher, bytes, &blob), XORCAST_OK);
    fill(blob->bytes, bytes, seed);
    assert_int_equal(r->link->host_put(r->host, name, blob), XORCAST_OK);
    xci_blob_drop(blob);
}

static void request(rig *r, xci_peer *peer, const char *name) {
    assert_int_equal(r->link->peer_request(peer, name, UINT64_MAX, soon()), XORCAST_OK);
}

static void receive(rig *r, xci_peer *peer, uint64_t bytes, uint64_t seed) {
    xci_blob *blob;
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_OK);
    assert_int_equal(blob->size, bytes);
    uint8_t *expected = malloc(bytes + 1);
    assert_non_null(expected);
    fill(expected, bytes, seed);
    assert_true(bytes == 0 || memcmp(blob->bytes, expected, bytes) == 0);
    free(expected);
    xci_blob_drop(blob);
}

static void get(rig *r, xci_peer *peer, const char *name, uint64_t bytes, uint64_t seed) {
    request(r, peer, name);
    receive(r, peer, bytes, seed);
}

/* What a request and its reply come to. */
static xorcast_status get_status(rig *r, xci_peer *peer, const char *name, uint64_t limit_bytes) {
    xci_blob *blob;
    TRY(r->link->peer_request(peer, name, limit_bytes, soon()));
    const xorcast_status status = r->link->peer_receive(peer, soon(), &blob);
    if (status >= 0)
        xci_blob_drop(blob);
    return status;
}

/* Peers leave a TCP host when its thread notices; nothing tells a test, so it looks again and
 * again. */
static xci_host_stats await_stats(rig *r, uint64_t peers, uint64_t peers_current) {
    const uint64_t deadline_ns = soon();
    xci_host_stats stats;
    do {
        r->link->host_stats(r->host, &stats);
        if (stats.peers == peers && stats.peers_current == peers_current)
            return stats;
        poll(NULL, 0, 1);
    } while (xci_now_ns() < deadline_ns);
    fail_msg("%u peers of which %u are current", (unsigned)stats.peers,
             (unsigned)stats.peers_current);
    return stats;
}

/* ---- Cases for every link ---------------------------------------------------------------------*/

static void test_table_is_complete(void **state) {
    const rig *r = *state;
    const xci_link *l = r->link;
    assert_true(l->scheme && l->host_open && l->host_close && l->host_url && l->host_put &&
                l->host_drop);
    assert_true(l->host_announce && l->host_stats && l->peer_open && l->peer_close &&
                l->peer_request);
    assert_true(l->peer_receive && l->peer_newest && l->peer_acknowledge);
    const xci_link *found;
    assert_int_equal(xci_link_find(r->subscriber, r->url, &found), XORCAST_OK);
    assert_ptr_equal(found, l);
    const char *const bad[] = {NULL, "", "http://x", "tc", "TCP:1:1", "127.0.0.1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(xci_link_find(r->subscriber, bad[i], &found), XORCAST_BAD_ARGUMENT);
        assert_error(r->subscriber, XORCAST_BAD_ARGUMENT, "tcp:HOST:PORT or inproc:NAME");
    }
    l->host_close(NULL);
    l->peer_close(NULL);
}

static void test_put_get_replace_drop(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    xci_peer *peer = open_peer(r);
    put(r, "a", 1000, 1);
    put(r, "b/1.x-y", 17, 2);
    get(r, peer, "a", 1000, 1);
    get(r, peer, "a", 1000, 1);
    get(r, peer, "b/1.x-y", 17, 2);
    put(r, "a", 2000, 3);
    get(r, peer, "a", 2000, 3);
    r->link->host_drop(r->host, "a");
    r->link->host_drop(r->host, "a");
    assert_int_equal(get_status(r, peer, "a", UINT64_MAX), XORCAST_NOT_FOUND);
    assert_error(r->subscriber, XORCAST_NOT_FOUND, "no object a");
    get(r, peer, "b/1.x-y", 17, 2);
    r->link->peer_close(peer);
}

static void test_pipeline_keeps_order(void **state) {
    rig *r = *state;
    char name[16];
    open_host(r, r->url, NULL, NULL);
    xci_peer *peer = open_peer(r);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "n%u", i);
        put(r, name, i * 37, i);
    }
    for (unsigned i = 0; i < XCI_PIPELINE; i++) {
        snprintf(name, sizeof name, "n%u", i);
        request(r, peer, name);
    }
    assert_int_equal(r->link->peer_request(peer, "n0", 1, soon()), XORCAST_BAD_STATE);
    uint64_t step;
    assert_int_equal(r->link->peer_newest(peer, 0, soon(), &step), XORCAST_BAD_STATE);
    for (unsigned i = 0; i < 100; i++) {
        receive(r, peer, i % 40 * 37, i % 40);
        snprintf(name, sizeof name, "n%u", (i + XCI_PIPELINE) % 40);
        request(r, peer, name);
    }
    for (unsigned i = 100; i < 100 + XCI_PIPELINE; i++)
        receive(r, peer, i % 40 * 37, i % 40);
    xci_blob *blob;
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_BAD_STATE);
    get(r, peer, "n7", 7 * 37, 7);
    r->link->peer_close(peer);
}

/* Serves "made/N" as N bytes, fails for the rest. Checks that calls never overlap. */
typedef struct maker {
    xorcast_context *context;
    atomic_int inside, calls;
    bool overlapped;
} maker;

static xorcast_status make_object(void *user, xorcast_context *context, const char *name,
                                  xci_blob **blob_out) {
    maker *m = user;
    if (atomic_fetch_add(&m->inside, 1) != 0)
        m->overlapped = true;
    atomic_fetch_add(&m->calls, 1);
    xorcast_status status = XORCAST_OK;
    if (strncmp(name, "made/", 5) == 0) {
        const uint64_t bytes = strtoull(name + 5, NULL, 10);
        status = xci_blob_create(context, bytes, blob_out);
        if (status >= 0)
            fill((*blob_out)->bytes, bytes, bytes);
    } else if (strncmp(name, "gone", 4) == 0) {
        status =
            xci_fail(context, XORCAST_VERSION_GONE, XCI_NOWHERE, "version %s left the log", name);
    } else {
        status = xci_fail(context, XORCAST_NOT_FOUND, XCI_NOWHERE, "no %s here", name);
    }
    atomic_fetch_sub(&m->inside, 1);
    return status;
}

static void test_objects_on_demand(void **state) {
    rig *r = *state;
    maker m = {.context = r->publisher};
    const xci_serve serve = {make_object, &m};
    open_host(r, r->url, NULL, &serve);
    xci_peer *peer = open_peer(r);
    put(r, "made/5", 9, 1);
    get(r, peer, "made/5", 9, 1);
    assert_int_equal(atomic_load(&m.calls), 0);
    get(r, peer, "made/3000", 3000, 3000);
    get(r, peer, "made/0", 0, 0);
    assert_int_equal(atomic_load(&m.calls), 2);
    assert_int_equal(get_status(r, peer, "gone/7", UINT64_MAX), XORCAST_VERSION_GONE);
    assert_error(r->subscriber, XORCAST_VERSION_GONE, "version gone/7 left the log");
    assert_int_equal(get_status(r, peer, "made/100", 99), XORCAST_DATA_LIMIT);
    r->link->peer_close(peer);
}

/* Refusals between good replies, all in one pipeline. */
static void test_refusal_keeps_link(void **state) {
    rig *r = *state;
    maker m = {.context = r->publisher};
    const xci_serve serve = {make_object, &m};
    open_host(r, r->url, NULL, &serve);
    xci_peer *peer = open_peer(r);
    put(r, "good", 100, 1);
    xci_blob *blob;
    request(r, peer, "good");
    request(r, peer, "missing");
    assert_int_equal(r->link->peer_request(peer, "good", 99, soon()), XORCAST_OK);
    assert_int_equal(r->link->peer_request(peer, "good", 100, soon()), XORCAST_OK);
    request(r, peer, "gone");
    request(r, peer, "made/8");
    receive(r, peer, 100, 1);
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_NOT_FOUND);
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_DATA_LIMIT);
    assert_error(r->subscriber, XORCAST_DATA_LIMIT, "100 bytes, and at most 99");
    receive(r, peer, 100, 1);
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_VERSION_GONE);
    receive(r, peer, 8, 8);
    r->link->peer_close(peer);
}

static void test_bad_names(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    xci_peer *peer = open_peer(r);
    xci_blob *blob;
    assert_int_equal(xci_blob_create(r->publisher, 1, &blob), XORCAST_OK);
    blob->bytes[0] = 1;
    char longest[XCI_NAME_BYTES + 1];
    memset(longest, 'z', sizeof longest);
    longest[XCI_NAME_BYTES] = '\0';
    const char *const bad[] = {NULL, "", "A", "a b", "a_b", "..\\", "a\x01", longest};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(r->link->host_put(r->host, bad[i], blob), XORCAST_BAD_ARGUMENT);
        assert_error(r->publisher, XORCAST_BAD_ARGUMENT, "cannot name an object");
        assert_int_equal(r->link->peer_request(peer, bad[i], 1, soon()), XORCAST_BAD_ARGUMENT);
        assert_error(r->subscriber, XORCAST_BAD_ARGUMENT, "cannot name an object");
    }
    longest[XCI_NAME_BYTES - 1] = '\0';
    assert_int_equal(r->link->host_put(r->host, longest, blob), XORCAST_OK);
    assert_int_equal(get_status(r, peer, longest, 1), XORCAST_OK);
    xci_blob_drop(blob);
    r->link->peer_close(peer);
}

typedef struct waiter {
    pthread_t thread;
    rig *r;
    xci_peer *peer;
    uint64_t after, step;
    xorcast_status status;
} waiter;

static void *wait_for_newest(void *user) {
    waiter *w = user;
    w->status = w->r->link->peer_newest(w->peer, w->after, soon(), &w->step);
    return NULL;
}

static void start_waiter(waiter *w, rig *r, xci_peer *peer, uint64_t after) {
    *w = (waiter){.r = r, .peer = peer, .after = after};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_newest, w), 0);
}

static void test_newest(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    xci_peer *peer = open_peer(r);
    uint64_t step = 77;
    assert_int_equal(r->link->peer_newest(peer, XORCAST_NO_STEP, xci_deadline(0), &step),
                     XORCAST_NOTHING_NEW);
    r->link->host_announce(r->host, 0);
    assert_int_equal(r->link->peer_newest(peer, 0, xci_deadline(0), &step), XORCAST_NOTHING_NEW);
    assert_int_equal(step, 77);
    assert_int_equal(r->link->peer_newest(peer, XORCAST_NO_STEP, soon(), &step), XORCAST_OK);
    assert_int_equal(step, 0);
    r->link->host_announce(r->host, 41);
    assert_int_equal(r->link->peer_newest(peer, 40, soon(), &step), XORCAST_OK);
    assert_int_equal(step, 41);
    const uint64_t before_ns = xci_now_ns();
    assert_int_equal(r->link->peer_newest(peer, 41, xci_deadline(50), &step), XORCAST_NOTHING_NEW);
    assert_true(xci_now_ns() - before_ns >= 50000000);
    put(r, "still", 5, 5);
    get(r, peer, "still", 5, 5);
    r->link->peer_close(peer);
}

static void test_announce_wakes(void **state) {
    rig *r = *state;
    enum { WAITERS = 3 };
    waiter waiters[WAITERS];
    open_host(r, r->url, NULL, NULL);
    r->link->host_announce(r->host, 1);
    for (uint64_t step = 2; step < 30; step++) {
        for (unsigned i = 0; i < WAITERS; i++)
            start_waiter(&waiters[i], r, open_peer(r), step - 1);
        r->link->host_announce(r->host, step);
        for (unsigned i = 0; i < WAITERS; i++) {
            pthread_join(waiters[i].thread, NULL);
            assert_int_equal(waiters[i].status, XORCAST_OK);
            assert_int_equal(waiters[i].step, step);
            r->link->peer_close(waiters[i].peer);
        }
    }
}

static void test_acknowledge_and_stats(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    xci_peer *first = open_peer(r), *second = open_peer(r);
    await_stats(r, 2, 0);
    r->link->host_announce(r->host, 5);
    assert_int_equal(r->link->peer_acknowledge(first, 5, soon()), XORCAST_OK);
    assert_int_equal(r->link->peer_acknowledge(second, 4, soon()), XORCAST_OK);
    await_stats(r, 2, 1);
    assert_int_equal(r->link->peer_acknowledge(second, 5, soon()), XORCAST_OK);
    await_stats(r, 2, 2);
    r->link->host_announce(r->host, 6);
    put(r, "a", 1000, 1);
    get(r, first, "a", 1000, 1);
    while (await_stats(r, 2, 0).sent_bytes < 1000)
        poll(NULL, 0, 1); /* what is sent is counted after it may have come in */
    r->link->peer_close(second);
    await_stats(r, 1, 0);
    r->link->peer_close(first);
    await_stats(r, 0, 0);
}

static void test_sizes(void **state) {
    rig *r = *state;
    /* One byte round every step in which a peer takes memory, and the head of a message. */
    const uint64_t sizes[] = {0,  1,     7,       8,        23,           24,
                              25, 65535, 4 * MIB, 64 * MIB, 64 * MIB + 1, 70 * MIB + 3};
    open_host(r, r->url, NULL, NULL);
    xci_peer *peer = open_peer(r);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        put(r, "sized", sizes[i], i);
        get(r, peer, "sized", sizes[i], i);
        assert_int_equal(get_status(r, peer, "sized", sizes[i]), XORCAST_OK);
        if (sizes[i] > 0)
            assert_int_equal(get_status(r, peer, "sized", sizes[i] - 1), XORCAST_DATA_LIMIT);
    }
    r->link->peer_close(peer);
}

static void test_host_close_ends_peers(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    put(r, "a", 10, 1);
    xci_peer *waiting = open_peer(r), *asking = open_peer(r), *idle = open_peer(r);
    waiter w;
    start_waiter(&w, r, waiting, 5);
    request(r, asking, "a");
    receive(r, asking, 10, 1);
    close_host(r);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.status, XORCAST_LINK_DOWN);
    assert_error(r->subscriber, XORCAST_LINK_DOWN, "open it again");
    /* A request may still leave into a TCP link whose end nobody has noticed; its reply never
     * comes. */
    xci_peer *const peers[] = {waiting, asking, idle};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t step;
        assert_int_equal(get_status(r, peers[i], "a", 10), XORCAST_LINK_DOWN);
        assert_int_equal(r->link->peer_request(peers[i], "a", 10, soon()), XORCAST_LINK_DOWN);
        assert_int_equal(r->link->peer_newest(peers[i], 1, soon(), &step), XORCAST_LINK_DOWN);
        assert_int_equal(r->link->peer_acknowledge(peers[i], 1, soon()), XORCAST_LINK_DOWN);
        r->link->peer_close(peers[i]);
    }
}

static void test_open_again(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    for (unsigned round = 0; round < 5; round++) {
        char url[256];
        snprintf(url, sizeof url, "%s", r->host_url);
        xci_peer *peer = open_peer(r);
        put(r, "a", 100 + round, round);
        get(r, peer, "a", 100 + round, round);
        close_host(r);
        open_host(r, url, NULL, NULL);
        assert_string_equal(r->host_url, url);
        assert_int_equal(get_status(r, peer, "a", UINT64_MAX), XORCAST_LINK_DOWN);
        r->link->peer_close(peer);
    }
}

static void test_address_taken(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    xci_host *other = NULL;
    assert_int_equal(r->link->host_open(r->publisher, r->host_url, NULL, NULL, &other),
                     XORCAST_LINK_REFUSED);
    assert_error(r->publisher, XORCAST_LINK_REFUSED, "choose another");
    assert_error(r->publisher, XORCAST_LINK_REFUSED, r->host_url);
    assert_null(other);
    xci_peer *peer = open_peer(r);
    put(r, "a", 1, 1);
    get(r, peer, "a", 1, 1);
    r->link->peer_close(peer);
}

static void test_nothing_listens(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    close_host(r);
    xci_peer *peer = NULL;
    assert_int_equal(r->link->peer_open(r->subscriber, r->host_url, false, soon(), &peer),
                     XORCAST_LINK_REFUSED);
    assert_error(r->subscriber, XORCAST_LINK_REFUSED, "start");
    assert_error(r->subscriber, XORCAST_LINK_REFUSED, r->host_url);
    assert_null(peer);
}

static void test_too_many_peers(void **state) {
    rig *r = *state;
    const xci_host_options options = {.max_peers = 2};
    open_host(r, r->url, &options, NULL);
    xci_peer *first = open_peer(r), *second = open_peer(r), *third = NULL;
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(r->link->peer_open(r->subscriber, r->host_url, false, soon(), &third),
                         XORCAST_LINK_REFUSED);
        assert_error(r->subscriber, XORCAST_LINK_REFUSED, "2 peers already");
        assert_null(third);
    }
    put(r, "a", 10, 1);
    get(r, first, "a", 10, 1);
    get(r, second, "a", 10, 1);
    r->link->peer_close(first);
    await_stats(r, 1, 0);
    third = open_peer(r);
    get(r, third, "a", 10, 1);
    r->link->peer_close(second);
    r->link->peer_close(third);
}

static void test_blob_outlives_everything(void **state) {
    rig *r = *state;
    budget publisher_budget, subscriber_budget;
    xorcast_context *publisher = make_context(&publisher_budget),
                    *subscriber = make_context(&subscriber_budget);
    xci_host *host;
    xci_peer *peer;
    xci_blob *blob;
    assert_int_equal(r->link->host_open(publisher, r->url, NULL, NULL, &host), XORCAST_OK);
    assert_int_equal(r->link->peer_open(subscriber, r->link->host_url(host), false, soon(), &peer),
                     XORCAST_OK);
    assert_int_equal(xci_blob_copy(publisher, "kept", 4, &blob), XORCAST_OK);
    assert_int_equal(r->link->host_put(host, "a", blob), XORCAST_OK);
    xci_blob_drop(blob);
    assert_int_equal(r->link->peer_request(peer, "a", 4, soon()), XORCAST_OK);
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_OK);
    r->link->host_close(host);
    xorcast_context_destroy(publisher);
    r->link->peer_close(peer);
    xorcast_context_destroy(subscriber);
    assert_memory_equal(blob->bytes, "kept", 4);
    xci_blob_drop(blob);
}

/* One peer asks for much and reads nothing; the other goes on. */
static void test_slow_peer_disturbs_nobody(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    xci_peer *slow = open_peer(r), *quick = open_peer(r);
    put(r, "large", 20 * MIB, 1);
    put(r, "small", 1000, 2);
    for (unsigned i = 0; i < 4; i++)
        request(r, slow, "large");
    for (unsigned i = 0; i < 200; i++)
        get(r, quick, "small", 1000, 2);
    for (unsigned i = 0; i < 4; i++)
        receive(r, slow, 20 * MIB, 1);
    r->link->peer_close(slow);
    r->link->peer_close(quick);
}

static void test_limits_of_patience(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    put(r, "a", 10, 1);
    /* Long past: nothing may be waited for, but what is there may be had or the link breaks. */
    xci_peer *peer = open_peer(r);
    xci_blob *blob;
    assert_int_equal(r->link->peer_request(peer, "a", 10, 0), XORCAST_OK);
    const xorcast_status status = r->link->peer_receive(peer, 0, &blob);
    assert_true(status == XORCAST_OK || status == XORCAST_TIMED_OUT);
    if (status == XORCAST_OK)
        xci_blob_drop(blob);
    else
        assert_int_equal(r->link->peer_request(peer, "a", 10, soon()), XORCAST_LINK_DOWN);
    r->link->peer_close(peer);
}

/* Everything a subscriber does, with failing allocations of its own; true when all of it worked. */
static bool use_link(rig *r) {
    xci_peer *peer;
    xci_blob *blob = NULL;
    xorcast_status status = r->link->peer_open(r->subscriber, r->host_url, false, soon(), &peer);
    if (status < 0) {
        assert_int_equal(status, XORCAST_NO_HOST_MEMORY);
        return false;
    }
    assert_int_equal(r->link->peer_request(peer, "large", 65 * MIB, soon()), XORCAST_OK);
    status = r->link->peer_receive(peer, soon(), &blob);
    if (status >= 0) {
        assert_int_equal(blob->size, 65 * MIB);
        xci_blob_drop(blob);
    } else {
        assert_int_equal(status, XORCAST_NO_HOST_MEMORY);
        assert_error(r->subscriber, XORCAST_NO_HOST_MEMORY, "memory");
        assert_int_equal(r->link->peer_request(peer, "large", 65 * MIB, soon()), XORCAST_LINK_DOWN);
    }
    r->link->peer_close(peer);
    return status >= 0;
}

static void test_peer_without_memory(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    put(r, "large", 65 * MIB, 1);
    for (int persistent = 0; persistent < 2; persistent++) {
        bool worked = false;
        for (int n = 0; !worked; n++) {
            assert_true(n < 100);
            r->subscriber_budget.persistent = persistent == 1;
            atomic_store(&r->subscriber_budget.left, n);
            worked = use_link(r);
            allow_all(&r->subscriber_budget);
            assert_int_equal(bytes_in_use(r->subscriber), r->subscriber_bytes);
        }
    }
    assert_true(use_link(r));
}

static void test_host_without_memory(void **state) {
    rig *r = *state;
    for (int persistent = 0; persistent < 2; persistent++) {
        xorcast_status status = XORCAST_NO_HOST_MEMORY;
        for (int n = 0; status < 0; n++) {
            assert_true(n < 100);
            r->publisher_budget.persistent = persistent == 1;
            atomic_store(&r->publisher_budget.left, n);
            status = r->link->host_open(r->publisher, r->url, NULL, NULL, &r->host);
            allow_all(&r->publisher_budget);
            if (status >= 0)
                break;
            assert_int_equal(status, XORCAST_NO_HOST_MEMORY);
            assert_error(r->publisher, XORCAST_NO_HOST_MEMORY, "memory");
            assert_int_equal(bytes_in_use(r->publisher), r->publisher_bytes);
        }
        close_host(r);
    }
}

static unsigned open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    unsigned count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static void test_thousand_peers_in_turn(void **state) {
    rig *r = *state;
    const unsigned before = open_descriptors();
    open_host(r, r->url, NULL, NULL);
    put(r, "a", 100, 1);
    xci_peer *peer = open_peer(r);
    const unsigned opened = open_descriptors();
    r->link->peer_close(peer);
    await_stats(r, 0, 0);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 1000; i++) {
        peer = open_peer(r);
        get(r, peer, "a", 100, 1);
        r->link->peer_close(peer);
        await_stats(r, 0, 0);
        if (i == 0)
            bytes = bytes_in_use(r->publisher);
    }
    assert_int_equal(bytes_in_use(r->publisher), bytes);
    peer = open_peer(r);
    assert_int_equal(open_descriptors(), opened);
    r->link->peer_close(peer);
    close_host(r);
    assert_int_equal(open_descriptors(), before);
}

/* ---- Threads ----------------------------------------------------------------------------------*/

typedef struct runner {
    pthread_t thread;
    rig *r;
    xorcast_context *context;
    unsigned number;
    bool good;
} runner;

/* Follows the announcements to the last one, and fetches an object that is put, one that comes and
 * goes and one that is made, each time. */
static void *follow(void *user) {
    runner *f = user;
    const xci_link *link = f->r->link;
    xci_peer *peer;
    if (link->peer_open(f->context, f->r->host_url, false, soon(), &peer) < 0)
        return NULL;
    uint64_t step = 0;
    xorcast_status status = XORCAST_OK;
    while (step < 300 && status == XORCAST_OK) {
        static const char *const names[] = {"steady", "fickle", "made/500"};
        xci_blob *blob = NULL;
        status = link->peer_newest(peer, step, soon(), &step);
        for (unsigned i = 0; i < 3 && status == XORCAST_OK; i++)
            status = link->peer_request(peer, names[i], 1000, soon());
        for (unsigned i = 0; i < 3 && status == XORCAST_OK; i++) {
            status = link->peer_receive(peer, soon(), &blob);
            if (status == XORCAST_OK)
                xci_blob_drop(blob);
            else if (i == 1 && status == XORCAST_NOT_FOUND)
                status = XORCAST_OK;
        }
        if (status == XORCAST_OK)
            status = link->peer_acknowledge(peer, step, soon());
        if (status == XORCAST_OK && step % 16 == f->number) {
            link->peer_close(peer);
            status = link->peer_open(f->context, f->r->host_url, false, soon(), &peer);
            if (status < 0)
                return NULL;
        }
    }
    f->good = status == XORCAST_OK;
    link->peer_close(peer);
    return NULL;
}

static void test_threads(void **state) {
    rig *r = *state;
    enum { RUNNERS = 4 };
    runner runners[RUNNERS];
    maker m = {.context = r->publisher};
    const xci_serve serve = {make_object, &m};
    open_host(r, r->url, NULL, &serve);
    put(r, "steady", 1000, 1);
    for (unsigned i = 0; i < RUNNERS; i++) {
        runners[i] = (runner){.r = r, .number = i};
        assert_int_equal(xci_context_fork(r->subscriber, &runners[i].context), XORCAST_OK);
        assert_int_equal(pthread_create(&runners[i].thread, NULL, follow, &runners[i]), 0);
    }
    for (uint64_t step = 1; step <= 300; step++) {
        xci_host_stats stats;
        if (step % 2 == 0)
            r->link->host_drop(r->host, "fickle");
        else
            put(r, "fickle", 700, step);
        r->link->host_announce(r->host, step);
        r->link->host_stats(r->host, &stats);
        assert_true(stats.peers <= RUNNERS && stats.peers_current <= stats.peers);
    }
    for (unsigned i = 0; i < RUNNERS; i++) {
        pthread_join(runners[i].thread, NULL);
        xorcast_context_destroy(runners[i].context);
        assert_true(runners[i].good);
    }
    assert_false(m.overlapped);
}

/* ---- Cases of TCP alone -----------------------------------------------------------------------*/

static void test_tcp_urls(void **state) {
    rig *r = *state;
    const char *const good[] = {"tcp:127.0.0.1:0", "tcp://127.0.0.1:0", "tcp:localhost:0",
                                "tcp:127.9.8.7:0", "tcp:[::1]:0"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const xorcast_status status =
            r->link->host_open(r->publisher, good[i], NULL, NULL, &r->host);
        if (status < 0 && strstr(good[i], "[::1]") != NULL)
            continue; /* a machine without IPv6 */
        assert_int_equal(status, XORCAST_OK);
        snprintf(r->host_url, sizeof r->host_url, "%s", r->link->host_url(r->host));
        assert_null(strstr(r->host_url, ":0"));
        put(r, "a", 10, 1);
        xci_peer *peer = open_peer(r);
        get(r, peer, "a", 10, 1);
        r->link->peer_close(peer);
        close_host(r);
    }
    const char *const bad[] = {"tcp:",
                               "tcp:127.0.0.1",
                               "tcp::80",
                               "tcp:127.0.0.1:",
                               "tcp:127.0.0.1:x",
                               "tcp:::1:80",
                               "tcp:[::1",
                               "tcp:[::1]80",
                               "tcp:[]:80",
                               "tcp:127.0.0.1:65536",
                               "tcp:a:-1",
                               "tcp:a:1/x",
                               "tcp:127.0.0.1:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        xci_peer *peer;
        assert_int_equal(r->link->host_open(r->publisher, bad[i], NULL, NULL, &r->host),
                         XORCAST_BAD_ARGUMENT);
        assert_int_equal(r->link->peer_open(r->subscriber, bad[i], false, soon(), &peer),
                         XORCAST_BAD_ARGUMENT);
    }
    r->host = NULL;
    xci_peer *peer;
    assert_int_equal(r->link->peer_open(r->subscriber, "tcp:127.0.0.1:0", false, soon(), &peer),
                     XORCAST_BAD_ARGUMENT);
    assert_error(r->subscriber, XORCAST_BAD_ARGUMENT, "the port that the publisher reports");
    assert_int_equal(r->link->peer_open(r->subscriber, "tcp:no-such-host.invalid:80", false, soon(),
                                        &peer),
                     XORCAST_NOT_FOUND);
    assert_error(r->subscriber, XORCAST_NOT_FOUND, "no-such-host.invalid");
}

static void test_tcp_loopback_only(void **state) {
    rig *r = *state;
    xci_peer *peer;
    const char *const outside[] = {"tcp:0.0.0.0:0", "tcp:192.0.2.1:0", "tcp:[::]:0",
                                   "tcp:[::ffff:10.0.0.1]:0"};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_int_equal(r->link->host_open(r->publisher, outside[i], NULL, NULL, &r->host),
                         XORCAST_LINK_REFUSED);
        assert_error(r->publisher, XORCAST_LINK_REFUSED, "--insecure");
    }
    r->host = NULL;
    assert_int_equal(r->link->peer_open(r->subscriber, "tcp:192.0.2.1:80", false, soon(), &peer),
                     XORCAST_LINK_REFUSED);
    assert_error(r->subscriber, XORCAST_LINK_REFUSED, "no TLS yet");

    const xci_host_options options = {.insecure = true};
    open_host(r, "tcp:0.0.0.0:0", &options, NULL);
    put(r, "a", 10, 1);
    assert_int_equal(r->link->peer_open(r->subscriber, r->host_url, true, soon(), &peer),
                     XORCAST_OK);
    get(r, peer, "a", 10, 1);
    r->link->peer_close(peer);
}

/* The first object proves that the transfer runs; the others cannot fit in any socket's buffers. */
static void test_tcp_close_in_transfer(void **state) {
    rig *r = *state;
    open_host(r, r->url, NULL, NULL);
    put(r, "large", 70 * MIB, 1);
    xci_peer *peer = open_peer(r);
    for (unsigned i = 0; i < 3; i++)
        request(r, peer, "large");
    receive(r, peer, 70 * MIB, 1);
    close_host(r);
    xci_blob *blob;
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_LINK_DOWN);
    assert_int_equal(r->link->peer_receive(peer, soon(), &blob), XORCAST_LINK_DOWN);
    r->link->peer_close(peer);
}

static xorcast_status refuse_rudely(void *user, xorcast_context *context, const char *name,
                                    xci_blob **blob_out) {
    (void)user;
    (void)blob_out;
    if (strcmp(name, "weights") == 0)
        return xci_fail(context, XORCAST_WEIGHTS_MIXED, XCI_NOWHERE,
                        "not about the peer's weights");
    return xci_fail(context, XORCAST_NOT_FOUND, XCI_NOWHERE, "red \033[31m and %0*d", 600, 0);
}

/* Nothing that `serve` says can reach the subscriber's terminal raw, or speak of its weights. */
static void test_tcp_refusal_texts(void **state) {
    rig *r = *state;
    const xci_serve serve = {refuse_rudely, NULL};
    open_host(r, r->url, NULL, &serve);
    xci_peer *peer = open_peer(r);
    assert_int_equal(get_status(r, peer, "rude", 1), XORCAST_NOT_FOUND);
    assert_error(r->subscriber, XORCAST_NOT_FOUND, "red ?[31m and 0000");
    assert_int_equal(get_status(r, peer, "weights", 1), XORCAST_INTERNAL);
    r->link->peer_close(peer);
}

#define ON(link_, name) \
    { #name "(" #link_ ")", name, set_up, tear_down, (void *)(uintptr_t)&xci_link_##link_ }
#define ON_BOTH(name) ON(inproc, name), ON(tcp, name)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_table_is_complete),
        ON_BOTH(test_put_get_replace_drop),
        ON_BOTH(test_pipeline_keeps_order),
        ON_BOTH(test_objects_on_demand),
        ON_BOTH(test_refusal_keeps_link),
        ON_BOTH(test_bad_names),
        ON_BOTH(test_newest),
        ON_BOTH(test_announce_wakes),
        ON_BOTH(test_acknowledge_and_stats),
        ON_BOTH(test_sizes),
        ON_BOTH(test_host_close_ends_peers),
        ON_BOTH(test_open_again),
        ON_BOTH(test_address_taken),
        ON_BOTH(test_nothing_listens),
        ON_BOTH(test_too_many_peers),
        ON_BOTH(test_blob_outlives_everything),
        ON_BOTH(test_slow_peer_disturbs_nobody),
        ON_BOTH(test_limits_of_patience),
        ON_BOTH(test_peer_without_memory),
        ON_BOTH(test_host_without_memory),
        ON_BOTH(test_thousand_peers_in_turn),
        ON_BOTH(test_threads),
        ON(tcp, test_tcp_urls),
        ON(tcp, test_tcp_loopback_only),
        ON(tcp, test_tcp_close_in_transfer),
        ON(tcp, test_tcp_refusal_texts),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
