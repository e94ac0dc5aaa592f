/* The n-th failure of everything that can fail: allocations of each call (one alone, and all from
 * the n-th on), the caller's sink and source. Whatever n is, the call says so, nothing leaks,
 * weights are the old or the new ones as the status says, and the objects go on working. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/model.h"
#include "support/expect_status.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u

/* ---- An allocator that fails, and counts ---- */

typedef struct allocator {
    atomic_int_fast64_t countdown; /* the n-th allocation from now fails; negative: none */
    atomic_int_fast64_t live, failed;
    bool persistent;
} allocator;

static bool refuses(allocator *a) {
    int64_t left = atomic_load(&a->countdown);
    while (left >= 0 && !(left == 0 && a->persistent) &&
           !atomic_compare_exchange_weak(&a->countdown, &left, left - 1))
        continue;
    return left == 0;
}

static void *allocate(void *user, size_t bytes) {
    allocator *a = user;
    if (refuses(a)) {
        a->failed++;
        return NULL;
    }
    a->live++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *user, void *memory) {
    allocator *a = user;
    a->live--;
    free(memory);
}

static void arm(allocator *a, int64_t n, bool persistent) {
    a->persistent = persistent;
    a->failed = 0;
    a->countdown = n;
}

static bool disarm(allocator *a) {
    a->countdown = -1;
    return a->failed > 0;
}

static xorcast_context *failing_context(allocator *a, uint32_t threads) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    memset(a, 0, sizeof *a);
    a->countdown = -1;
    options.threads = threads;
    options.log_level = XORCAST_LOG_ERROR;
    options.allocate = allocate;
    options.release = release;
    options.user = a;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    return context;
}

static uint64_t now_bytes(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static void close_context(xorcast_context *context, allocator *a) {
    xorcast_context_destroy(context);
    assert_int_equal(a->live, 0);
}

static void small_model(model *m) {
    memset(m, 0, sizeof *m);
    m->random = 17;
    model_add(m, "big", "U8", 1, 2, 1200, 1000);
    model_add(m, "embed", "BF16", 2, 2, 90, 300);
    model_add(m, "norm", "BF16", 2, 1, 33, 0);
    model_add(m, "scale", "F32", 4, 1, 700, 0);
    model_add(m, "scale_2", "F32", 4, 0, 0, 0);
    model_add(m, "void", "F32", 4, 1, 0, 0);
}

/* Calls `attempt` with the n-th allocation failing, for n = 0, 1, ... until one goes through
 * untouched. It returns the status of the call under test. */
typedef struct scene {
    allocator a;
    xorcast_context *context;
    model old, new, live;
    test_bytes delta, more;
    uint64_t busy; /* bytes in use between attempts */
} scene;

typedef xorcast_status (*attempt)(scene *s);

static uint64_t fail_every_allocation(scene *s, attempt call) {
    uint64_t failures = 0;
    for (unsigned persistent = 0; persistent < 2; persistent++)
        for (int64_t n = 0;; n++) {
            assert_true(n < 5000);
            s->busy = now_bytes(s->context);
            arm(&s->a, n, persistent != 0);
            const xorcast_status status = call(s);
            const bool failed = disarm(&s->a);
            assert_int_equal(now_bytes(s->context), s->busy);
            if (!failed) {
                check_status(s->context, status, XORCAST_OK);
                break;
            }
            /* A call that can do without that memory may succeed. */
            if (status != XORCAST_OK)
                check_status(s->context, status, XORCAST_NO_HOST_MEMORY);
            failures++;
        }
    return failures;
}

static void scene_open(scene *s, uint32_t threads) {
    memset(s, 0, sizeof *s);
    s->context = failing_context(&s->a, threads);
    small_model(&s->old);
    small_model(&s->new);
    small_model(&s->live);
    model_step(&s->new, 3, 3000);
}

static void scene_close(scene *s) {
    close_context(s->context, &s->a);
    model_free(&s->old);
    model_free(&s->new);
    model_free(&s->live);
    test_bytes_free(&s->delta);
    test_bytes_free(&s->more);
}

/* ---- Bundles ---- */

static xorcast_status add_all(xorcast_bundle *bundle, const model *m) {
    for (uint32_t i = m->count; i-- > 0;) {
        const xorcast_tensor tensor = model_describe(&m->tensors[i]);
        xorcast_status status = xorcast_bundle_add(bundle, &tensor);
        if (status == XORCAST_NO_HOST_MEMORY) /* the bundle is as before: the same tensor again */
            status = xorcast_bundle_add(bundle, &tensor);
        if (status < 0)
            return status;
    }
    xorcast_tensor tied =
        XORCAST_TENSOR_INIT; /* the same memory under a second name, and an alias */
    tied.name = "tied";
    tied.dtype = "BF16";
    tied.shape = m->tensors[1].shape;
    tied.rank = 2;
    tied.bytes = m->tensors[1].bytes;
    tied.data = m->tensors[1].data;
    xorcast_status status = xorcast_bundle_add(bundle, &tied);
    if (status < 0)
        return status;
    tied.name = "alias";
    tied.alias_of = "tied";
    return xorcast_bundle_add(bundle, &tied);
}

static xorcast_status attempt_bundle(scene *s) {
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_bundle *bundle;
    xorcast_layout layout;
    uint64_t index;
    options.chunk_bytes = CHUNK;
    xorcast_status status = xorcast_bundle_create(s->context, &options, &bundle);
    if (status < 0)
        return status;
    status = add_all(bundle, &s->old);
    if (status == XORCAST_OK) {
        status = xorcast_bundle_seal(bundle, &layout);
        disarm(&s->a);
        if (status < 0) { /* sealing again works when there is memory again */
            check_status(s->context, xorcast_bundle_seal(bundle, &layout), XORCAST_OK);
            s->a.failed++;
        }
        assert_int_equal(layout.tensor_count, 6);
        check_status(s->context, xorcast_bundle_find(bundle, "alias", &index), XORCAST_OK);
        assert_int_equal(index, 1);
        if (status == XORCAST_OK)
            s->a.failed = 0;
    }
    xorcast_bundle_destroy(bundle);
    return status;
}

static void test_bundle(void **state) {
    (void)state;
    scene s;
    scene_open(&s, 1);
    assert_true(fail_every_allocation(&s, attempt_bundle) > 10);
    scene_close(&s);
}

/* ---- Deltas ---- */

typedef struct bundles {
    xorcast_bundle *old, *new, *live;
} bundles;
static bundles the;

static void make_bundles(scene *s) {
    the.old = model_bundle(s->context, &s->old, CHUNK, 1);
    the.new = model_bundle(s->context, &s->new, CHUNK, 2);
    the.live = model_bundle(s->context, &s->live, CHUNK, 3);
}

static void drop_bundles(void) {
    xorcast_bundle_destroy(the.old);
    xorcast_bundle_destroy(the.new);
    xorcast_bundle_destroy(the.live);
}

static uint32_t codec, old_weights; /* of encode */

static xorcast_status encode(scene *s, xorcast_bundle *from, xorcast_bundle *to, test_bytes *out) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = test_sink(out);
    (void)s;
    options.measure_bound = 1;
    options.encoding.codec = codec;
    options.encoding.old_weights = old_weights;
    out->count = 0;
    return xorcast_delta_encode(from, to, &options, &sink, NULL);
}

static xorcast_status attempt_encode(scene *s) {
    const xorcast_status status = encode(s, the.old, the.new, &s->delta);
    if (status == XORCAST_OK && s->more.count > 0) { /* the same bytes as without failures */
        assert_int_equal(s->delta.count, s->more.count);
        assert_memory_equal(s->delta.bytes, s->more.bytes, s->more.count);
    }
    return status;
}

static xorcast_status attempt_apply(scene *s) {
    const xorcast_source source = test_source(&s->delta);
    const xorcast_status status = xorcast_delta_apply(the.live, &source, NULL);
    assert_true(model_equal(&s->live, status == XORCAST_OK ? &s->new : &s->old));
    model_copy(&s->live, &s->old);
    return status;
}

static xorcast_status attempt_check(scene *s) {
    const xorcast_source source = test_source(&s->delta);
    const xorcast_status status = xorcast_delta_check(the.live, &source, NULL);
    assert_true(model_equal(&s->live, &s->old));
    return status;
}

static xorcast_status attempt_fold(scene *s) {
    const xorcast_source sources[2] = {test_source(&s->delta), test_source(&s->more)};
    test_bytes folded = {0};
    const xorcast_sink sink = test_sink(&folded);
    const xorcast_status status = xorcast_delta_fold(s->context, sources, 2, NULL, &sink, NULL);
    test_bytes_free(&folded);
    return status;
}

static xorcast_status attempt_inspect(scene *s) {
    const xorcast_source source = test_source(&s->delta);
    xorcast_delta_info info;
    return xorcast_delta_inspect(s->context, &source, &info);
}

static void deltas(uint32_t threads) {
    scene s;
    scene_open(&s, threads);
    make_bundles(&s);
    check_status(s.context, encode(&s, the.old, the.new, &s.more), XORCAST_OK);
    assert_true(fail_every_allocation(&s, attempt_encode) > 10);
    check_status(s.context, encode(&s, the.old, the.new, &s.delta), XORCAST_OK);
    check_status(s.context, encode(&s, the.new, the.old, &s.more), XORCAST_OK);
    assert_true(fail_every_allocation(&s, attempt_apply) > 10);
    assert_true(fail_every_allocation(&s, attempt_check) > 10);
    if (old_weights == 0)
        assert_true(fail_every_allocation(&s, attempt_fold) > 10);
    assert_true(fail_every_allocation(&s, attempt_inspect) > 1);
    drop_bundles();
    scene_close(&s);
}

static void test_deltas(void **state) {
    (void)state;
    deltas(1);
    deltas(3);
    codec = XORCAST_CODEC_GAP;
    deltas(3);
    old_weights = 1;
    deltas(1);
    codec = old_weights = 0;
}

/* ---- Sinks and sources ---- */

typedef struct faulty {
    test_bytes bytes;
    int64_t countdown;
} faulty;

static int write_or_fail(void *user, const void *bytes, uint64_t count) {
    faulty *f = user;
    if (f->countdown-- == 0)
        return ENOSPC;
    const xorcast_sink sink = test_sink(&f->bytes);
    return sink.write(sink.user, bytes, count);
}

static int read_or_fail(void *user, uint64_t offset, void *buffer, uint64_t count) {
    faulty *f = user;
    if (f->countdown-- == 0)
        return EIO;
    assert_true(count <= f->bytes.count && offset <= f->bytes.count - count);
    memcpy(buffer, f->bytes.bytes + offset, count);
    return 0;
}

static void check_io(scene *s, xorcast_status status, int os_error, uint64_t busy) {
    xorcast_error error;
    xorcast_last_error(s->context, &error);
    check_status(s->context, status, XORCAST_IO_FAILED);
    assert_int_equal(error.os_error, os_error);
    assert_int_equal(now_bytes(s->context), busy);
}

static void test_sink_fails_at_each_call(void **state) {
    (void)state;
    scene s;
    scene_open(&s, 2);
    make_bundles(&s);
    const uint64_t busy = now_bytes(s.context);
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    faulty f = {{0}, -1};
    const xorcast_sink sink = {write_or_fail, &f};
    uint64_t failures = 0;
    for (int64_t n = 0;; n++, failures++) {
        f.bytes.count = 0;
        f.countdown = n;
        const xorcast_status status = xorcast_delta_encode(the.old, the.new, &options, &sink, NULL);
        if (status == XORCAST_OK)
            break;
        check_io(&s, status, ENOSPC, busy);
    }
    assert_true(failures >= 3); /* head, part, manifest */
    const xorcast_source sources[1] = {test_source(&f.bytes)};
    for (int64_t n = 0; n < (int64_t)failures; n++) {
        faulty g = {{0}, n};
        const xorcast_sink folded = {write_or_fail, &g};
        check_io(&s, xorcast_delta_fold(s.context, sources, 1, NULL, &folded, NULL), ENOSPC, busy);
        test_bytes_free(&g.bytes);
    }
    check_status(s.context, xorcast_delta_apply(the.live, &sources[0], NULL), XORCAST_OK);
    assert_true(model_equal(&s.new, &s.live));
    test_bytes_free(&f.bytes);
    drop_bundles();
    scene_close(&s);
}

static void test_source_fails_at_each_call(void **state) {
    (void)state;
    scene s;
    scene_open(&s, 2);
    make_bundles(&s);
    faulty f = {{0}, -1};
    check_status(s.context, encode(&s, the.old, the.new, &f.bytes), XORCAST_OK);
    const uint64_t busy = now_bytes(s.context);
    const xorcast_source source = {.size = f.bytes.count, .read = read_or_fail, .user = &f};
    const xorcast_sink sink = test_sink(&s.more);
    xorcast_delta_info info;
    uint64_t failures = 0;
    for (int64_t n = 0;; n++, failures++) {
        f.countdown = n;
        const xorcast_status status = xorcast_delta_apply(the.live, &source, &info);
        if (status == XORCAST_OK)
            break;
        check_io(&s, status, EIO, busy);
        assert_true(model_equal(&s.old, &s.live));
        f.countdown = n;
        check_io(&s, xorcast_delta_fold(s.context, &source, 1, NULL, &sink, NULL), EIO, busy);
    }
    assert_true(failures >= 4); /* head, foot, manifest, part */
    assert_true(model_equal(&s.new, &s.live));
    f.countdown = 1;
    check_io(&s, xorcast_delta_inspect(s.context, &source, &info), EIO, busy);
    test_bytes_free(&f.bytes);
    drop_bundles();
    scene_close(&s);
}

/* ---- Publishing ---- */

typedef struct street {
    scene s; /* the trainer; `new` is what it publishes */
    xorcast_bundle *from;
    xorcast_publisher *publisher;
    xorcast_context *sampler;
    allocator sampler_allocator;
    xorcast_bundle *to;
    xorcast_subscriber *subscriber;
    uint64_t step;
} street;

static uint32_t threads = 2; /* of both sides */

static void sampler_open(street *p) {
    p->sampler = failing_context(&p->sampler_allocator, threads);
    p->to = model_bundle(p->sampler, &p->s.live, CHUNK, 5);
    check_status(p->sampler,
                 xorcast_subscriber_open(p->to, "inproc:failures", NULL, &p->subscriber),
                 XORCAST_OK);
}

static void street_open(street *p) {
    memset(p, 0, sizeof *p);
    scene_open(&p->s, threads);
    model_copy(&p->s.new, &p->s.old);
    p->from = model_bundle(p->s.context, &p->s.new, CHUNK, 4);
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.encoding.codec = codec;
    options.encoding.old_weights = old_weights;
    options.log_bytes = 1 << 24;
    check_status(p->s.context,
                 xorcast_publisher_open(p->from, "inproc:failures", &options, &p->publisher),
                 XORCAST_OK);
}

static void street_close(street *p) {
    xorcast_publisher_close(p->publisher);
    xorcast_bundle_destroy(p->from);
    scene_close(&p->s);
}

static void sampler_close(street *p) {
    xorcast_subscriber_close(p->subscriber);
    xorcast_bundle_destroy(p->to);
    close_context(p->sampler, &p->sampler_allocator);
}

static xorcast_status publish(street *p) {
    xorcast_status status = xorcast_publisher_begin(p->publisher, p->step + 1);
    if (status == XORCAST_OK)
        status = xorcast_publisher_put(p->publisher, 0, NULL, NULL);
    if (status == XORCAST_OK)
        status = xorcast_publisher_finish(p->publisher, NULL);
    if (status == XORCAST_OK)
        p->step++;
    else
        xorcast_publisher_abort(p->publisher);
    return status;
}

static void follow(street *p) {
    uint64_t newest;
    check_status(p->sampler, xorcast_subscriber_poll(p->subscriber, TIMEOUT_MS, &newest),
                 XORCAST_OK);
    assert_int_equal(newest, p->step);
    check_status(p->sampler, xorcast_subscriber_stage(p->subscriber, newest, TIMEOUT_MS),
                 XORCAST_OK);
    check_status(p->sampler, xorcast_subscriber_commit(p->subscriber, NULL), XORCAST_OK);
    check_status(p->sampler, xorcast_subscriber_wait(p->subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(model_equal(&p->s.new, &p->s.live));
}

static xorcast_status attempt_publisher_open(scene *s) {
    xorcast_publisher *publisher;
    const xorcast_status status =
        xorcast_publisher_open(the.old, "inproc:open-failures", NULL, &publisher);
    if (status == XORCAST_OK)
        xorcast_publisher_close(publisher);
    (void)s;
    return status;
}

static void test_publisher_open(void **state) {
    (void)state;
    scene s;
    scene_open(&s, 2);
    make_bundles(&s);
    assert_true(fail_every_allocation(&s, attempt_publisher_open) > 20);
    drop_bundles();
    scene_close(&s);
}

/* A version that fails is dropped, nobody sees it, the shadow has not moved; the next one is right.
 */
static void publish_with_failures(bool persistent) {
    street p;
    xorcast_publisher_stats stats;
    street_open(&p);
    sampler_open(&p);
    uint64_t failures = 0, newest;
    for (int64_t n = 0;; n++) {
        assert_true(n < 5000);
        model_step(&p.s.new, (uint64_t)n + 100, 800);
        const uint64_t before = p.step;
        arm(&p.s.a, n, persistent);
        const xorcast_status status = publish(&p);
        const bool failed = disarm(&p.s.a);
        xorcast_publisher_get_stats(p.publisher, &stats);
        assert_int_equal(stats.version.step, p.step);
        if (status == XORCAST_OK) {
            follow(&p);
        } else {
            assert_true(failed);
            failures++;
            check_status(p.s.context, status, XORCAST_NO_HOST_MEMORY);
            assert_int_equal(p.step, before);
            assert_int_equal(xorcast_subscriber_poll(p.subscriber, 0, &newest),
                             XORCAST_NOTHING_NEW);
            if (n % 4 == 0) { /* now and then the next version at once; else the failures pile up */
                check_status(p.s.context, publish(&p), XORCAST_OK);
                follow(&p);
            }
        }
        if (!failed)
            break;
    }
    assert_true(failures > 8);
    sampler_close(&p);
    street_close(&p);
}

static void test_publish(void **state) {
    (void)state;
    publish_with_failures(false);
    publish_with_failures(true);
}

/* ---- Subscribing ---- */

static void test_subscriber_open(void **state) {
    (void)state;
    street p;
    street_open(&p);
    p.sampler = failing_context(&p.sampler_allocator, 2);
    p.to = model_bundle(p.sampler, &p.s.live, CHUNK, 5);
    for (unsigned persistent = 0; persistent < 2; persistent++)
        for (int64_t n = 0;; n++) {
            assert_true(n < 5000);
            const uint64_t busy = now_bytes(p.sampler);
            arm(&p.sampler_allocator, n, persistent != 0);
            const xorcast_status status =
                xorcast_subscriber_open(p.to, "inproc:failures", NULL, &p.subscriber);
            const bool failed = disarm(&p.sampler_allocator);
            if (status == XORCAST_OK)
                xorcast_subscriber_close(p.subscriber);
            else
                assert_true(failed);
            assert_int_equal(now_bytes(p.sampler), busy);
            if (!failed) {
                check_status(p.sampler, status, XORCAST_OK);
                break;
            }
        }
    xorcast_bundle_destroy(p.to);
    close_context(p.sampler, &p.sampler_allocator);
    sampler_open(&p); /* nothing is left behind at the publisher either */
    sampler_close(&p);
    street_close(&p);
}

/* Stages and commits with the n-th allocation failing; after a failure the weights are the old
 * version, and the same calls again lead to the new one. */
static void stage_with_failures(unsigned versions, bool persistent) {
    street p;
    street_open(&p);
    sampler_open(&p);
    model before;
    small_model(&before);
    for (int64_t n = 0;; n++) {
        uint64_t newest;
        assert_true(n < 5000);
        model_copy(&before, &p.s.live);
        for (unsigned v = 0; v < versions; v++) {
            model_step(&p.s.new, (uint64_t)n * 8 + v, 500);
            check_status(p.s.context, publish(&p), XORCAST_OK);
        }
        check_status(p.sampler, xorcast_subscriber_poll(p.subscriber, TIMEOUT_MS, &newest),
                     XORCAST_OK);
        arm(&p.sampler_allocator, n, persistent);
        const xorcast_status status = xorcast_subscriber_stage(p.subscriber, newest, TIMEOUT_MS);
        const bool failed = disarm(&p.sampler_allocator);
        assert_true(model_equal(&before, &p.s.live));
        if (status != XORCAST_OK) {
            xorcast_version version;
            assert_true(failed && status < 0);
            xorcast_subscriber_current(p.subscriber, &version);
            assert_true(version.step < newest);
            assert_int_equal(xorcast_subscriber_commit(p.subscriber, NULL), XORCAST_BAD_STATE);
            check_status(p.sampler, xorcast_subscriber_stage(p.subscriber, newest, TIMEOUT_MS),
                         XORCAST_OK);
        }
        /* The pause allocates nothing: it goes through without any memory. */
        arm(&p.sampler_allocator, 0, true);
        check_status(p.sampler, xorcast_subscriber_commit(p.subscriber, NULL), XORCAST_OK);
        disarm(&p.sampler_allocator);
        check_status(p.sampler, xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS), XORCAST_OK);
        assert_true(model_equal(&p.s.new, &p.s.live));
        if (!failed)
            break;
    }
    check_status(p.sampler, xorcast_subscriber_audit(p.subscriber, 0), XORCAST_OK);
    model_free(&before);
    sampler_close(&p);
    street_close(&p);
}

static void test_stage_and_commit(void **state) {
    (void)state;
    stage_with_failures(1, false);
    stage_with_failures(1, true);
    stage_with_failures(2, false);
    stage_with_failures(2, true);
}

/* A keyframe overwrites in place. What fails before the first byte changes nothing; after it there
 * is no version, and the next keyframe mends all. */
static void test_keyframe(void **state) {
    (void)state;
    street p;
    model before;
    small_model(&before);
    street_open(&p);
    sampler_open(&p);
    for (unsigned persistent = 0; persistent < 2; persistent++)
        for (int64_t n = 0;; n++) {
            xorcast_version version;
            assert_true(n < 5000);
            for (uint64_t i = 0; i < p.s.live.tensors[0].bytes; i += 5000) /* weights of nobody */
                p.s.live.tensors[0].data[i] ^= (uint8_t)(n + 1);
            model_copy(&before, &p.s.live);
            arm(&p.sampler_allocator, n, persistent != 0);
            const xorcast_status status = xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS);
            const bool failed = disarm(&p.sampler_allocator);
            if (status != XORCAST_OK) {
                assert_true(failed && status < 0);
                xorcast_subscriber_current(p.subscriber, &version);
                if (status == XORCAST_WEIGHTS_WRONG)
                    assert_int_equal(version.step, XORCAST_NO_STEP);
                else
                    assert_true(model_equal(&before, &p.s.live));
                check_status(p.sampler, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS),
                             XORCAST_OK);
            }
            assert_true(model_equal(&p.s.new, &p.s.live));
            xorcast_subscriber_current(p.subscriber, &version);
            assert_int_equal(version.step, p.step);
            if (!failed)
                break;
        }
    model_step(&p.s.new, 5, 500);
    check_status(p.s.context, publish(&p), XORCAST_OK);
    follow(&p);
    model_free(&before);
    sampler_close(&p);
    street_close(&p);
}

/* ---- Rules of the calls, after failures ---- */

/* One thread a side: which thread takes what, and so how much each keeps for the next version, is
 * chance. */
static void test_long_life_is_flat(void **state) {
    (void)state;
    street p;
    threads = 1;
    street_open(&p);
    sampler_open(&p);
    uint64_t trainer_bytes = 0, sampler_bytes = 0;
    for (unsigned i = 0; i < 200; i++) {
        model_step(&p.s.new, i, 100);
        check_status(p.s.context, publish(&p), XORCAST_OK);
        follow(&p);
        xorcast_publisher_stats stats;
        xorcast_publisher_get_stats(p.publisher, &stats);
        const uint64_t trainer = now_bytes(p.s.context) - stats.log_bytes,
                       sampler = now_bytes(p.sampler);
        if (i == 100) {
            trainer_bytes = trainer;
            sampler_bytes = sampler;
        }
        if (i > 100) { /* buffers of this version's size */
            assert_true(trainer < trainer_bytes + 64 * 1024);
            assert_true(sampler < sampler_bytes + 64 * 1024);
        }
    }
    sampler_close(&p);
    street_close(&p);
    threads = 2;
}

/* All of publishing once more, in both forms of gap. */
static void test_gap(void **state) {
    codec = XORCAST_CODEC_GAP;
    old_weights = 1;
    test_publisher_open(state);
    test_publish(state);
    test_stage_and_commit(state);
    test_keyframe(state);
    test_long_life_is_flat(state);
    codec = old_weights = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundle),
        cmocka_unit_test(test_deltas),
        cmocka_unit_test(test_sink_fails_at_each_call),
        cmocka_unit_test(test_source_fails_at_each_call),
        cmocka_unit_test(test_publisher_open),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_subscriber_open),
        cmocka_unit_test(test_stage_and_commit),
        cmocka_unit_test(test_keyframe),
        cmocka_unit_test(test_long_life_is_flat),
        cmocka_unit_test(test_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
