/* A publisher that lies: whatever it answers instead of an object, a subscriber says so, its
 * weights are what its status says, and it follows again once the lies are over. The liar passes on
 * what an honest publisher has, and changes some of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "frame/manifest.h"
#include "ship/link.h"
#include "support/expect_status.h"
#include "support/model.h"

#define LIAR "inproc:liar"
#define HONEST "inproc:honest"
#define TIMEOUT_MS 20000
#define NEWEST 3u
#define FAR (UINT64_C(1) << 40)

typedef enum lie_kind {
    NO_LIE,
    FLIP, /* of a bit */
    CUT,
    GROW,
    EMPTY,
    ZEROS,
    EXTREME, /* a word of ones */
    OTHER,   /* of another object */
    REFUSE,
    LIES
} lie_kind;

typedef struct liar {
    xorcast_context *context;
    xci_host *host;
    xci_peer *honest;
    xci_blob *before; /* what was asked for last */
    lie_kind lie;
    const char *about; /* how the names begin of what is lied about */
    uint64_t random, told;
} liar;

typedef struct street {
    xorcast_context *trainer, *sampler;
    model published, first, live, before;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    liar liar;
} street;

/* ---- The liar ---- */

static xorcast_status ask_honest(liar *l, const char *name, xci_blob **blob_out) {
    TRY(xci_link_inproc.peer_request(l->honest, name, UINT64_MAX, xci_deadline(TIMEOUT_MS)));
    return xci_link_inproc.peer_receive(l->honest, xci_deadline(TIMEOUT_MS), blob_out);
}

static xorcast_status any_failure(liar *l) {
    static const xorcast_status all[] = {
#define VALUE(name, value, remedy, code, text) XORCAST_##name,
        XORCAST_STATUS_LIST(VALUE)
#undef VALUE
    };
    for (;;) {
        const xorcast_status status = all[model_random(&l->random) % (sizeof all / sizeof *all)];
        if (status < 0)
            FAIL(l->context, status, "so says the liar");
    }
}

static void change(liar *l, uint8_t *bytes, uint64_t size) {
    const uint64_t at = size > 0 ? model_random(&l->random) % size : 0;
    switch (l->lie) {
    case FLIP:
        if (size > 0)
            bytes[at] ^= (uint8_t)(1u << model_random(&l->random) % 8);
        break;
    case ZEROS:
        memset(bytes, 0, size);
        break;
    case EXTREME:
        memset(bytes + at / 8 * 8, 0xff, xci_min(8, size - at / 8 * 8));
        break;
    default:
        break;
    }
}

static xorcast_status lie_about(liar *l, const xci_blob *truth, xci_blob **blob_out) {
    const xci_blob *from = l->lie == OTHER && l->before != NULL ? l->before : truth;
    uint64_t size = from->size;
    l->told++;
    if (l->lie == REFUSE)
        return any_failure(l);
    if (l->lie == EMPTY)
        size = 0;
    if (l->lie == CUT && size > 0)
        size = model_random(&l->random) % size;
    if (l->lie == GROW)
        size += 1 + model_random(&l->random) % 9;
    TRY(xci_blob_create(l->context, size, blob_out));
    memset((*blob_out)->bytes, 0x5a, size);
    memcpy((*blob_out)->bytes, from->bytes, xci_min(size, from->size));
    change(l, (*blob_out)->bytes, size);
    return XORCAST_OK;
}

static xorcast_status answer(void *user, xorcast_context *context, const char *name,
                             xci_blob **blob_out) {
    liar *l = user;
    xci_blob *truth;
    (void)context;
    TRY(ask_honest(l, name, &truth));
    const bool lying = l->lie != NO_LIE && strncmp(name, l->about, strlen(l->about)) == 0 &&
                       model_random(&l->random) % 3 != 0;
    xorcast_status status = XORCAST_OK;
    if (lying)
        status = lie_about(l, truth, blob_out);
    else
        status = xci_blob_copy(l->context, truth->bytes, truth->size, blob_out);
    xci_blob_drop(l->before);
    l->before = truth;
    return status;
}

/* ---- Both sides ---- */

/* Three groups and a packed one. */
static void small_model(model *m) {
    memset(m, 0, sizeof *m);
    m->random = 23;
    model_add(m, "big", "BF16", 2, 2, 1100, 700);
    model_add(m, "small", "F32", 4, 1, 700, 0);
    model_add(m, "norm", "BF16", 2, 1, 33, 0);
}

static void publish(street *s, uint64_t step) {
    model_step(&s->published, step, 2000);
    must(s->trainer, xorcast_publisher_begin(s->publisher, step));
    must(s->trainer, xorcast_publisher_put(s->publisher, 0, NULL, NULL));
    must(s->trainer, xorcast_publisher_finish(s->publisher, NULL));
}

static void open_liar(street *s, const xci_serve *serve) {
    s->liar = (liar){.context = test_context(1)};
    must(s->liar.context,
         xci_link_inproc.peer_open(s->liar.context, HONEST, false, 0, &s->liar.honest));
    must(s->liar.context,
         xci_link_inproc.host_open(s->liar.context, LIAR, NULL, serve, &s->liar.host));
    xci_link_inproc.host_announce(s->liar.host, NEWEST);
}

static void open_street(street *s, const xci_serve *serve) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.log_bytes = UINT64_C(1) << 30;
    options.run = "run";
    memset(s, 0, sizeof *s);
    s->trainer = test_context(2);
    s->sampler = test_context(2);
    small_model(&s->published);
    small_model(&s->first);
    small_model(&s->live);
    small_model(&s->before);
    s->from = model_bundle(s->trainer, &s->published, 16384, 1);
    s->to = model_bundle(s->sampler, &s->live, 16384, 2);
    must(s->trainer, xorcast_publisher_open(s->from, HONEST, &options, &s->publisher));
    for (uint64_t step = 1; step <= NEWEST; step++)
        publish(s, step);
    open_liar(s, serve);
}

static void close_street(street *s) {
    xorcast_memory memory;
    xorcast_bundle_destroy(s->to);
    xorcast_context_memory(s->sampler, &memory);
    xorcast_context_destroy(s->sampler);
    xci_link_inproc.host_close(s->liar.host);
    xci_blob_drop(s->liar.before);
    xci_link_inproc.peer_close(s->liar.honest);
    xorcast_context_destroy(s->liar.context);
    xorcast_publisher_close(s->publisher);
    xorcast_bundle_destroy(s->from);
    xorcast_context_destroy(s->trainer);
    model *const all[] = {&s->published, &s->first, &s->live, &s->before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        model_free(all[i]);
}

static uint64_t step_of(const street *s) {
    xorcast_version version;
    xorcast_subscriber_current(s->subscriber, &version);
    return version.step;
}

/* ---- What must hold ---- */

/* Opening reads the weights and nothing else. Where it fails, it works without lies. */
static void open_among_lies(street *s) {
    const lie_kind wanted = s->liar.lie;
    if (xorcast_subscriber_open(s->to, LIAR, NULL, &s->subscriber) != XORCAST_OK) {
        s->liar.lie = NO_LIE;
        must(s->sampler, xorcast_subscriber_open(s->to, LIAR, NULL, &s->subscriber));
        s->liar.lie = wanted;
    }
    assert_true(model_equal(&s->live, &s->before));
}

/* What is staged is the truth, or nothing is. */
static void follow_among_lies(street *s) {
    const xorcast_status status = xorcast_subscriber_stage(s->subscriber, NEWEST, TIMEOUT_MS);
    assert_true(model_equal(&s->live, &s->before));
    if (status != XORCAST_OK)
        return;
    must(s->sampler, xorcast_subscriber_commit(s->subscriber, NULL));
    must(s->sampler, xorcast_subscriber_wait(s->subscriber, TIMEOUT_MS));
    assert_true(model_equal(&s->live, &s->published));
    assert_int_equal(step_of(s), NEWEST);
}

static void keyframe_among_lies(street *s) {
    model_step(&s->live, 77, 50000);
    model_copy(&s->before, &s->live);
    const xorcast_status status = xorcast_subscriber_keyframe(s->subscriber, TIMEOUT_MS);
    if (status == XORCAST_OK) {
        assert_true(model_equal(&s->live, &s->published));
        return;
    }
    if (status == XORCAST_WEIGHTS_WRONG)
        assert_int_equal(step_of(s), XORCAST_NO_STEP);
    else
        assert_true(model_equal(&s->live, &s->before));
}

static void recover(street *s) {
    s->liar.lie = NO_LIE;
    must(s->sampler, xorcast_subscriber_keyframe(s->subscriber, TIMEOUT_MS));
    assert_true(model_equal(&s->live, &s->published));
    assert_int_equal(step_of(s), NEWEST);
    must(s->sampler, xorcast_subscriber_audit(s->subscriber, 0));
}

static void hear(street *s, lie_kind lie, const char *about, uint64_t seed) {
    s->liar.lie = lie;
    s->liar.about = about;
    s->liar.random = seed;
    model_copy(&s->live, &s->first);
    model_copy(&s->before, &s->first);
    open_among_lies(s);
    follow_among_lies(s);
    keyframe_among_lies(s);
    recover(s);
    xorcast_subscriber_close(s->subscriber);
}

static void test_lies(void **state) {
    (void)state;
    static const char *const about[] = {"about", "whois", "version", "digests", "group", ""};
    street s;
    xorcast_memory before, after;
    const xci_serve serve = {answer, &s.liar};
    open_street(&s, &serve);
    hear(&s, NO_LIE, "", 1); /* memory that stays with the context is there now */
    xorcast_context_memory(s.sampler, &before);
    for (lie_kind lie = FLIP; lie < LIES; lie++)
        for (size_t i = 0; i < sizeof about / sizeof *about; i++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                hear(&s, lie, about[i], seed * 1000 + lie);
    xorcast_context_memory(s.sampler, &after);
    print_message("%u lies were told\n", (unsigned)s.liar.told);
    assert_true(s.liar.told > 200);
    assert_true(after.now_bytes <= before.now_bytes + (256 << 10));
    close_street(&s);
}

/* ---- Without end ---- */

/* A manifest of every step there is, each after the one before it: that of the newest version with
 * other steps. With group 0 of step 1 and the others from far ahead, a keyframe walks them too. */
static xorcast_status answer_without_end(void *user, xorcast_context *context, const char *name,
                                         xci_blob **blob_out) {
    liar *l = user;
    uint64_t step;
    (void)context;
    if (sscanf(name, "version/%lu/manifest", &step) != 1) {
        TRY(ask_honest(l, name, blob_out));
        if (strncmp(name, "digests/", 8) == 0 && l->lie != NO_LIE)
            for (uint64_t i = 0; i < (*blob_out)->size / 24; i++)
                xci_store64((*blob_out)->bytes + 24 * i, i == 0 ? 1 : FAR);
        if (strncmp(name, "group/", 6) == 0 && l->lie != NO_LIE)
            xci_store64((*blob_out)->bytes, strcmp(name, "group/0") == 0 ? 1 : FAR);
        return XORCAST_OK;
    }
    TRY(ask_honest(l, "version/3/manifest", blob_out));
    uint8_t *bytes = (*blob_out)->bytes;
    const uint64_t size = (*blob_out)->size - XCI_FOOT_BYTES, steps_at = 4 + 4 + 1 + bytes[8];
    xci_store64(bytes + steps_at, step - 1);
    xci_store64(bytes + steps_at + 8, step);
    const xci_hash hash = xci_hash_of(bytes, size);
    memcpy(bytes + size + 8, hash.bytes, sizeof hash.bytes);
    l->told++;
    return XORCAST_OK;
}

static void test_chain_without_end(void **state) {
    (void)state;
    street s;
    xorcast_memory memory;
    xorcast_subscriber_options options = XORCAST_SUBSCRIBER_OPTIONS_INIT;
    const xci_serve serve = {answer_without_end, &s.liar};
    open_street(&s, &serve);
    options.log_bound_bytes = UINT64_C(1) << 60;
    must(s.sampler, xorcast_subscriber_open(s.to, LIAR, &options, &s.subscriber));
    check_status(s.sampler, xorcast_subscriber_stage(s.subscriber, FAR, 600000),
                 XORCAST_VERSION_GONE);
    assert_true(s.liar.told >= 10000 && s.liar.told < 20000);
    xorcast_context_memory(s.sampler, &memory);
    print_message("%u manifests: %u bytes\n", (unsigned)s.liar.told,
                  (unsigned)memory.high_water_bytes);
    assert_true(memory.high_water_bytes < 64 << 20);
    assert_true(model_equal(&s.live, &s.first));

    /* The deadline holds although nothing is ever waited for. */
    s.liar.lie = FLIP;
    const uint64_t begun = xci_now_ns();
    check_status(s.sampler, xorcast_subscriber_keyframe(s.subscriber, 300), XORCAST_WEIGHTS_WRONG);
    assert_true(xci_now_ns() - begun < UINT64_C(20000000000));
    xorcast_context_memory(s.sampler, &memory);
    assert_true(memory.high_water_bytes < 64 << 20);
    xorcast_subscriber_close(s.subscriber);
    close_street(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_chain_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
