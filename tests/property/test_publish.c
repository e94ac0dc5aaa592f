/* What a version is must not depend on how it was put together: tensors one by one or in batches,
 * in any order, from the bundle's memory or from buffers that are gone right after the call,
 * unchanged ones put or kept. And what a version is against: the last one published, of the same
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/model.h"
#include "support/expect_status.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u
#define LOG_BYTES (UINT64_C(1) << 26)

typedef struct street {
    xorcast_context *trainer, *sampler;
    model published, live;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_version hooked; /* what after_commit was told, and whether it saw the new weights */
    bool hook_saw_new;
} street;

static void hook(void *user, const xorcast_version *version) {
    street *s = user;
    s->hooked = *version;
    s->hook_saw_new = model_equal(&s->published, &s->live);
}

static void open_publisher(street *s, const char *run, const xorcast_encoding *encoding,
                           uint64_t log_bytes) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    if (encoding != NULL)
        options.encoding = *encoding;
    options.run = run;
    options.log_bytes = log_bytes;
    must(s->trainer, xorcast_publisher_open(s->from, "inproc:publish", &options, &s->publisher));
}

static void street_open_encoding(street *s, uint32_t threads, const xorcast_encoding *encoding) {
    xorcast_subscriber_options options = XORCAST_SUBSCRIBER_OPTIONS_INIT;
    memset(s, 0, sizeof *s);
    model_create(&s->published, 11);
    model_create(&s->live, 11);
    s->trainer = test_context(threads);
    s->sampler = test_context(1);
    s->from = model_bundle(s->trainer, &s->published, CHUNK, 1);
    s->to = model_bundle(s->sampler, &s->live, CHUNK, 2);
    open_publisher(s, "run", encoding, LOG_BYTES);
    options.after_commit = hook;
    options.user = s;
    must(s->sampler, xorcast_subscriber_open(s->to, "inproc:publish", &options, &s->subscriber));
}

static void street_open(street *s, uint32_t threads) { street_open_encoding(s, threads, NULL); }

static void street_close(street *s) {
    xorcast_subscriber_close(s->subscriber);
    xorcast_publisher_close(s->publisher);
    xorcast_bundle_destroy(s->from);
    xorcast_bundle_destroy(s->to);
    xorcast_context_destroy(s->trainer);
    xorcast_context_destroy(s->sampler);
    model_free(&s->published);
    model_free(&s->live);
}

static void follow(street *s, uint64_t step) {
    uint64_t newest;
    must(s->sampler, xorcast_subscriber_poll(s->subscriber, TIMEOUT_MS, &newest));
    assert_int_equal(newest, step);
    must(s->sampler, xorcast_subscriber_stage(s->subscriber, newest, TIMEOUT_MS));
    must(s->sampler, xorcast_subscriber_commit(s->subscriber, NULL));
    must(s->sampler, xorcast_subscriber_wait(s->subscriber, TIMEOUT_MS));
    assert_true(model_equal(&s->published, &s->live));
}

/* Where a tensor of the model stands in the bundle. */
static uint64_t index_of(const street *s, uint32_t tensor) {
    uint64_t index;
    must(s->trainer, xorcast_bundle_find(s->from, s->published.tensors[tensor].name, &index));
    return index;
}

static void shuffle(uint32_t *order, uint32_t count, uint64_t *random) {
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t j = (uint32_t)(model_random(random) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* Puts tensors order[0 .. count) from copies that are overwritten and freed right after. */
static void put_copies(street *s, const model *new, const uint32_t *order, uint64_t count) {
    uint64_t indices[MODEL_TENSORS_MAX];
    const void *data[MODEL_TENSORS_MAX];
    uint8_t *copies[MODEL_TENSORS_MAX];
    for (uint64_t i = 0; i < count; i++) {
        const model_tensor *t = &new->tensors[order[i]];
        copies[i] = malloc(t->bytes + 8);
        assert_non_null(copies[i]);
        memcpy(copies[i] + 3, t->data, t->bytes); /* at an odd address */
        data[i] = copies[i] + 3;
        indices[i] = index_of(s, order[i]);
    }
    must(s->trainer, xorcast_publisher_put(s->publisher, count, indices, data));
    for (uint64_t i = 0; i < count; i++) {
        memset(copies[i], 0xee, new->tensors[order[i]].bytes + 8);
        free(copies[i]);
    }
}

static void put_shuffled(street *s, const model *new, uint64_t *random) {
    uint32_t order[MODEL_TENSORS_MAX];
    shuffle(order, new->count, random);
    for (uint32_t at = 0; at < new->count;) {
        const uint64_t left = new->count - at,
                       batch = 1 + model_random(random) % (left < 5 ? left : 5);
        const uint64_t index = index_of(s, order[at]);
        const model_tensor *old = &s->live.tensors[order[at]];
        const bool same = memcmp(old->data, new->tensors[order[at]].data, old->bytes) == 0;
        if (same && model_random(random) % 2 == 0) {
            must(s->trainer, xorcast_publisher_keep(s->publisher, 1, &index));
            at++;
            continue;
        }
        if (model_random(random) % 3 == 0) { /* the bundle's own memory */
            must(s->trainer, xorcast_publisher_put(s->publisher, 1, &index, NULL));
            at++;
            continue;
        }
        put_copies(s, new, order + at, batch);
        at += (uint32_t)batch;
    }
}

/* Some tensors change, some do not; the same for every way of putting. */
static void next_weights(model *m, uint64_t step) {
    uint64_t random = step;
    for (uint32_t t = 0; t < m->count; t++) {
        if (model_random(&random) % 2 == 0)
            continue;
        for (uint64_t i = 0; i < m->tensors[t].bytes; i += 1 + model_random(&random) % 700)
            m->tensors[t].data[i] ^= (uint8_t)(1 + model_random(&random) % 255);
    }
}

static void test_order_of_puts_does_not_matter(void **state) {
    (void)state;
    enum { STEPS = 6 };
    xorcast_delta_info reference[STEPS];
    for (uint64_t way = 0; way < 8; way++) {
        street s;
        uint64_t random = way * 1000;
        street_open(&s, (uint32_t)way % 3 + 1);
        for (uint64_t step = 1; step <= STEPS; step++) {
            xorcast_publisher_stats stats;
            next_weights(&s.published, step);
            must(s.trainer, xorcast_publisher_begin(s.publisher, step));
            if (way == 0)
                must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
            else
                put_shuffled(&s, &s.published, &random);
            must(s.trainer, xorcast_publisher_finish(s.publisher, &stats));
            if (way == 0)
                reference[step - 1] = stats.delta;
            assert_memory_equal(&reference[step - 1], &stats.delta, sizeof stats.delta);
            follow(&s, step);
        }
        street_close(&s);
    }
}

/* The trainer steps four times and publishes once: a weight that changed at the first step only is
 * there. */
static void test_steps_between_versions(void **state) {
    (void)state;
    street s;
    street_open(&s, 2);
    s.published.tensors[0].data[77] ^= 1;
    for (uint64_t step = 2; step <= 4; step++)
        s.published.tensors[1].data[step] ^= 1;
    must(s.trainer, xorcast_publisher_begin(s.publisher, 4));
    must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
    must(s.trainer, xorcast_publisher_finish(s.publisher, NULL));
    follow(&s, 4);
    street_close(&s);
}

/* A version that was dropped is not what the next one is against. */
static void test_aborted_version_leaves_no_trace(void **state) {
    (void)state;
    street s;
    xorcast_publisher_stats stats;
    street_open(&s, 2);
    next_weights(&s.published, 1);
    must(s.trainer, xorcast_publisher_begin(s.publisher, 1));
    must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
    xorcast_publisher_abort(s.publisher);
    s.published.tensors[0].data[5] ^= 4;
    must(s.trainer, xorcast_publisher_begin(s.publisher, 1)); /* the number was never used */
    must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
    must(s.trainer, xorcast_publisher_finish(s.publisher, &stats));
    assert_true(stats.delta.counts.bytes_changed > 1);
    follow(&s, 1);
    assert_int_equal(xorcast_publisher_begin(s.publisher, 1), XORCAST_VERSION_ORDER);
    street_close(&s);
}

/* Overwrites the sampler's weights and has them sent whole. */
static void restore_from_keyframe(street *s, const model *published) {
    for (uint32_t t = 0; t < s->live.count; t++)
        if (s->live.tensors[t].bytes > 0)
            memset(s->live.tensors[t].data, 0x5a, s->live.tensors[t].bytes);
    must(s->sampler, xorcast_subscriber_keyframe(s->subscriber, TIMEOUT_MS));
    assert_true(model_equal(published, &s->live));
}

/* While a version is put together, with some groups whole, some begun and some untouched, a
 * keyframe is of the version before; and so is the next delta's base once that version is
 * dropped. */
static void test_keyframe_in_the_middle_of_a_version(void **state) {
    (void)state;
    for (uint32_t way = 0; way < 6; way++) {
        xorcast_encoding encoding = XORCAST_ENCODING_INIT;
        encoding.codec = XORCAST_CODEC_RAW + way % 3;
        encoding.second_pass = way / 3;
        street s;
        model before;
        uint32_t order[MODEL_TENSORS_MAX];
        uint64_t random = way;
        street_open_encoding(&s, 3, &encoding);
        model_create(&before, 11);
        shuffle(order, s.published.count, &random);
        next_weights(&s.published, 1 + way);
        must(s.trainer, xorcast_publisher_begin(s.publisher, 1));
        for (uint32_t at = 0; at < s.published.count; at += 2) {
            const uint64_t index = index_of(&s, order[at]);
            must(s.trainer, xorcast_publisher_put(s.publisher, 1, &index, NULL));
            if (at % 8 == 0)
                restore_from_keyframe(&s, &before);
        }
        restore_from_keyframe(&s, &before);
        xorcast_publisher_abort(s.publisher);
        restore_from_keyframe(&s, &before);
        must(s.trainer, xorcast_publisher_begin(s.publisher, 1));
        must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
        restore_from_keyframe(&s, &before);
        must(s.trainer, xorcast_publisher_finish(s.publisher, NULL));
        follow(&s, 1);
        model_free(&before);
        street_close(&s);
    }
}

static void test_hook_runs_after_the_commit(void **state) {
    (void)state;
    street s;
    street_open(&s, 1);
    model_step(&s.published, 3, 500);
    must(s.trainer, xorcast_publisher_begin(s.publisher, 9));
    must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
    must(s.trainer, xorcast_publisher_finish(s.publisher, NULL));
    follow(&s, 9);
    assert_int_equal(s.hooked.step, 9);
    assert_string_equal(s.hooked.run, "run");
    assert_true(s.hook_saw_new);
    street_close(&s);
}

/* The same steps of another run, in the same place: refused, and the weights stay. */
static void test_another_run_is_refused(void **state) {
    (void)state;
    street s;
    model before;
    uint64_t newest;
    street_open(&s, 1);
    model_create(&before, 11);
    xorcast_publisher_close(s.publisher);
    open_publisher(&s, "other", NULL, LOG_BYTES);
    model_step(&s.published, 3, 500);
    must(s.trainer, xorcast_publisher_begin(s.publisher, 1));
    must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
    must(s.trainer, xorcast_publisher_finish(s.publisher, NULL));
    xorcast_status status = XORCAST_LINK_DOWN; /* of the old publisher, once */
    for (unsigned i = 0; i < 3 && status != XORCAST_RUN_MISMATCH; i++) {
        status = xorcast_subscriber_poll(s.subscriber, 1000, &newest);
        assert_true(status < 0);
    }
    assert_int_equal(status, XORCAST_RUN_MISMATCH);
    assert_true(xorcast_subscriber_stage(s.subscriber, 1, 1000) < 0);
    assert_true(model_equal(&before, &s.live));
    model_free(&before);
    street_close(&s);
}

/* Deltas, a keyframe, deltas: one numbering. */
static void test_delta_keyframe_delta(void **state) {
    (void)state;
    street s;
    street_open(&s, 2);
    for (uint64_t step = 1; step <= 6; step++) {
        model_step(&s.published, step, 400);
        must(s.trainer, xorcast_publisher_begin(s.publisher, step));
        must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
        must(s.trainer, xorcast_publisher_finish(s.publisher, NULL));
        if (step % 3 == 0) {
            xorcast_version version;
            must(s.sampler, xorcast_subscriber_keyframe(s.subscriber, TIMEOUT_MS));
            assert_true(model_equal(&s.published, &s.live));
            xorcast_subscriber_current(s.subscriber, &version);
            assert_int_equal(version.step, step);
        } else {
            follow(&s, step);
        }
    }
    street_close(&s);
}

/* A version of nothing has 200 bytes and takes ten times as many: the log's bound knows that. */
static void test_log_of_versions_without_change(void **state) {
    (void)state;
    const uint64_t log_bytes = 64 * 1024;
    street s;
    xorcast_publisher_stats stats;
    street_open(&s, 1);
    xorcast_publisher_close(s.publisher);
    open_publisher(&s, "quiet", NULL, log_bytes);
    for (uint64_t step = 1; step <= 300; step++) {
        must(s.trainer, xorcast_publisher_begin(s.publisher, step));
        must(s.trainer, xorcast_publisher_put(s.publisher, 0, NULL, NULL));
        must(s.trainer, xorcast_publisher_finish(s.publisher, NULL));
        xorcast_publisher_get_stats(s.publisher, &stats);
        assert_true(stats.log_bytes <= log_bytes);
        assert_true(stats.log_versions <= log_bytes / 1024);
        assert_int_equal(stats.oldest_step, step - stats.log_versions);
    }
    assert_true(stats.log_versions > 20);
    street_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_puts_does_not_matter),
        cmocka_unit_test(test_steps_between_versions),
        cmocka_unit_test(test_aborted_version_leaves_no_trace),
        cmocka_unit_test(test_keyframe_in_the_middle_of_a_version),
        cmocka_unit_test(test_hook_runs_after_the_commit),
        cmocka_unit_test(test_another_run_is_refused),
        cmocka_unit_test(test_delta_keyframe_delta),
        cmocka_unit_test(test_log_of_versions_without_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
