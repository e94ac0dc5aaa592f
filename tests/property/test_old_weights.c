/* Deltas that are encoded beside the old weights: they lead where the plain form leads, for any
 * threads and widths; they are refused by whoever does not hold the base exactly, and nothing is
 * changed then. A publisher offers both forms: who is one version behind and holds everything takes
 * this one, all others the plain one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "support/delta_maker.h"
#include "support/model.h"
#include "support/expect_status.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384

/* Weights whose change follows from their size: BF16 and FP8 round 1, nibbles, F32 scales. */
static void weights(model *m) {
    memset(m, 0, sizeof *m);
    m->random = 31;
    model_add(m, "a.bf16", "BF16", 2, 2, 300, 500);
    model_add(m, "b.fp8", "F8_E4M3", 1, 2, 256, 300);
    model_add(m, "b.scale", "F32", 4, 2, 256, 3);
    model_add(m, "c.nibbles", "U8", 1, 2, 256, 400);
    model_add(m, "d.f64", "F64", 8, 2, 64, 200);
    model_add(m, "e.norm", "BF16", 2, 1, 77, 0);
    model_add(m, "f.one", "F32", 4, 0, 0, 0);
    for (uint64_t i = 0; i < m->tensors[0].bytes / 2; i++) {
        const uint64_t random = model_random(&m->random);
        const uint32_t low = (uint32_t)__builtin_ctzll(random | 1u << 9);
        xci_store16(m->tensors[0].data + 2 * i,
                    (uint16_t)((random >> 32 & 0x8000) | (120 - low) << 7 | (random >> 20 & 127)));
    }
}

/* One step of the last place for some, most often for small numbers; every scale moves. */
static void step(model *m, uint64_t seed) {
    uint64_t random = seed;
    for (uint64_t i = 0; i < m->tensors[0].bytes / 2; i++) {
        uint8_t *at = m->tensors[0].data + 2 * i;
        const uint32_t exponent = xci_load16(at) >> 7 & 255;
        const uint64_t r = model_random(&random);
        if (r % 4096 < 4096u >> (exponent > 110 ? exponent - 110 : 0))
            xci_store16(at, (uint16_t)(xci_load16(at) + (r >> 40 & 1 ? 1 : -1)));
    }
    for (uint32_t t = 1; t < m->count; t++)
        for (uint64_t i = 0; i < m->tensors[t].bytes; i += 4) {
            const uint64_t r = model_random(&random);
            if (t == 2)
                xci_store32(m->tensors[t].data + i,
                            xci_load32(m->tensors[t].data + i) + (uint32_t)(r % 400) - 200);
            else if (r % 100 == 0)
                m->tensors[t].data[i] ^= (uint8_t)(1u << (r >> 32) % 8);
        }
}

static void encode(xorcast_context *context, const model *old, const model *new,
                   uint32_t old_weights, test_bytes *out, xorcast_delta_info *info) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    xorcast_bundle *a = model_bundle(context, old, CHUNK, 1),
                   *b = model_bundle(context, new, CHUNK, 2);
    const xorcast_sink sink = test_sink(out);
    options.encoding.codec = XORCAST_CODEC_GAP;
    options.encoding.second_pass = 1;
    options.encoding.old_weights = old_weights;
    out->count = 0;
    must(context, xorcast_delta_encode(a, b, &options, &sink, info));
    xorcast_bundle_destroy(a);
    xorcast_bundle_destroy(b);
}

static xorcast_status apply(xorcast_context *context, const model *live, const test_bytes *delta) {
    xorcast_bundle *bundle = model_bundle(context, live, CHUNK, 3);
    const xorcast_source source = test_source(delta);
    const xorcast_status status = xorcast_delta_apply(bundle, &source, NULL);
    xorcast_bundle_destroy(bundle);
    return status;
}

/* ---- One delta ---- */

static void test_leads_where_the_plain_form_leads(void **state) {
    (void)state;
    model old, new, live;
    test_bytes plain = {0}, beside = {0}, other = {0};
    xorcast_delta_info plain_info, info;
    static const uint32_t thread_counts[] = {1, 2, 7};
    weights(&old);
    weights(&new);
    step(&new, 5);
    for (uint32_t i = 0; i < 3; i++) {
        xorcast_context *context = test_context(thread_counts[i]);
        encode(context, &old, &new, 0, &plain, &plain_info);
        encode(context, &old, &new, 1, i == 0 ? &beside : &other, &info);
        assert_int_equal(info.needs_old_weights, 1);
        assert_int_equal(plain_info.needs_old_weights, 0);
        assert_memory_equal(&info.counts, &plain_info.counts, sizeof info.counts);
        assert_memory_equal(&info.target, &plain_info.target, sizeof info.target);
        print_message("plain %llu, beside %llu\n", (unsigned long long)plain.count,
                      (unsigned long long)beside.count);
        assert_true(beside.count < plain.count);
        if (i > 0) {
            assert_int_equal(beside.count, other.count);
            assert_memory_equal(beside.bytes, other.bytes, other.count);
        }
        weights(&live);
        must(context, apply(context, &live, &beside));
        assert_true(model_equal(&live, &new));
        model_free(&live);
        xorcast_context_destroy(context);
    }
    test_bytes_free(&plain);
    test_bytes_free(&beside);
    test_bytes_free(&other);
    model_free(&old);
    model_free(&new);
}

/* One other byte in a chunk that changes, in one that does not, and the target itself. */
static void test_other_bases_are_refused(void **state) {
    (void)state;
    model old, new, live, before;
    test_bytes delta = {0};
    xorcast_delta_info info;
    xorcast_context *context = test_context(2);
    weights(&old);
    weights(&new);
    weights(&live);
    weights(&before);
    new.tensors[0].data[7] ^= 1;
    new.tensors[0].data[77] ^= 3;
    encode(context, &old, &new, 1, &delta, &info);
    static const uint64_t places[] = {0, 6, 7, 8, 100, CHUNK + 5};
    for (uint32_t i = 0; i < 6; i++) {
        live.tensors[0].data[places[i]] ^= 0x10;
        model_copy(&before, &live);
        assert_int_equal(apply(context, &live, &delta), XORCAST_BASE_MISMATCH);
        assert_true(model_equal(&live, &before));
        live.tensors[0].data[places[i]] ^= 0x10;
    }
    must(context, apply(context, &live, &delta));
    assert_int_equal(apply(context, &live, &delta), XORCAST_BASE_MISMATCH);
    assert_true(model_equal(&live, &new));
    test_bytes_free(&delta);
    model_free(&old);
    model_free(&new);
    model_free(&live);
    model_free(&before);
    xorcast_context_destroy(context);
}

/* Blocks that know the old weights in a delta that does not say so. */
static void test_is_announced(void **state) {
    (void)state;
    model old, new, live, before;
    test_bytes delta = {0};
    xorcast_delta_info info;
    made_delta *made = calloc(1, sizeof *made);
    xorcast_context *context = test_context(2);
    weights(&old);
    weights(&new);
    weights(&live);
    step(&new, 8);
    encode(context, &old, &new, 1, &delta, &info);
    made_take(made, &delta);
    made->flags ^= 8;
    made_write(made, &delta);
    weights(&before);
    assert_int_equal(apply(context, &live, &delta), XORCAST_UNSUPPORTED);
    assert_true(model_equal(&live, &before));
    made->flags ^= 8;
    made_write(made, &delta);
    must(context, apply(context, &live, &delta));
    assert_true(model_equal(&live, &new));
    made_free(made);
    free(made);
    test_bytes_free(&delta);
    model_free(&old);
    model_free(&new);
    model_free(&live);
    model_free(&before);
    xorcast_context_destroy(context);
}

static void test_is_not_folded(void **state) {
    (void)state;
    model old, new;
    test_bytes delta = {0}, folded = {0};
    xorcast_delta_info info;
    xorcast_context *context = test_context(1);
    weights(&old);
    weights(&new);
    step(&new, 6);
    encode(context, &old, &new, 1, &delta, &info);
    const xorcast_source source = test_source(&delta);
    const xorcast_sink sink = test_sink(&folded);
    assert_int_equal(xorcast_delta_fold(context, &source, 1, NULL, &sink, NULL),
                     XORCAST_UNSUPPORTED);
    test_bytes_free(&delta);
    test_bytes_free(&folded);
    model_free(&old);
    model_free(&new);
    xorcast_context_destroy(context);
}

static void test_only_gap_knows_old_weights(void **state) {
    (void)state;
    model old;
    test_bytes out = {0};
    xorcast_context *context = test_context(1);
    weights(&old);
    xorcast_bundle *bundle = model_bundle(context, &old, CHUNK, 1);
    const xorcast_sink sink = test_sink(&out);
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    options.encoding.old_weights = 1; /* with lz4 */
    assert_int_equal(xorcast_delta_encode(bundle, bundle, &options, &sink, NULL),
                     XORCAST_BAD_ARGUMENT);
    options.encoding.codec = XORCAST_CODEC_GAP;
    options.encoding.old_weights = 2;
    assert_int_equal(xorcast_delta_encode(bundle, bundle, &options, &sink, NULL),
                     XORCAST_BAD_ARGUMENT);
    xorcast_bundle_destroy(bundle);
    model_free(&old);
    xorcast_context_destroy(context);
}

/* ---- Publishing ---- */

typedef struct street {
    xorcast_context *context;
    model published, live;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_publisher_stats stats;
} street;

static void street_open(street *s, const char *url, uint32_t old_weights) {
    memset(s, 0, sizeof *s);
    s->context = test_context(2);
    weights(&s->published);
    weights(&s->live);
    s->from = model_bundle(s->context, &s->published, CHUNK, 1);
    s->to = model_bundle(s->context, &s->live, CHUNK, 2);
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.encoding.codec = XORCAST_CODEC_GAP;
    options.encoding.old_weights = old_weights;
    must(s->context, xorcast_publisher_open(s->from, url, &options, &s->publisher));
    must(s->context,
         xorcast_subscriber_open(s->to, xorcast_publisher_url(s->publisher), NULL, &s->subscriber));
}

static void street_close(street *s) {
    xorcast_subscriber_close(s->subscriber);
    xorcast_publisher_close(s->publisher);
    xorcast_bundle_destroy(s->from);
    xorcast_bundle_destroy(s->to);
    model_free(&s->published);
    model_free(&s->live);
    xorcast_context_destroy(s->context);
}

/* Tensors come one by one, so that groups are put together from pieces. */
static void publish(street *s, uint64_t number) {
    step(&s->published, number);
    must(s->context, xorcast_publisher_begin(s->publisher, number));
    for (uint64_t t = 0; t < s->published.count; t++) {
        const uint64_t last_first = s->published.count - 1 - t;
        must(s->context, xorcast_publisher_put(s->publisher, 1, &last_first, NULL));
    }
    must(s->context, xorcast_publisher_finish(s->publisher, &s->stats));
}

/* Returns the bytes that came over the wire. */
static uint64_t follow(street *s, uint64_t number) {
    uint64_t newest;
    xorcast_subscriber_stats stats;
    must(s->context, xorcast_subscriber_poll(s->subscriber, TIMEOUT_MS, &newest));
    assert_int_equal(newest, number);
    must(s->context, xorcast_subscriber_stage(s->subscriber, newest, TIMEOUT_MS));
    must(s->context, xorcast_subscriber_commit(s->subscriber, NULL));
    must(s->context, xorcast_subscriber_wait(s->subscriber, TIMEOUT_MS));
    assert_true(model_equal(&s->published, &s->live));
    must(s->context, xorcast_subscriber_audit(s->subscriber, 0));
    xorcast_subscriber_get_stats(s->subscriber, &stats);
    return stats.wire_bytes;
}

static void both_forms(const char *url) {
    street plain, beside;
    street_open(&plain, url, 0);
    street_open(&beside, strncmp(url, "tcp", 3) == 0 ? url : "inproc:beside", 1);
    for (uint64_t n = 1; n <= 3; n++) {
        publish(&plain, n);
        publish(&beside, n);
        const uint64_t plain_bytes = follow(&plain, n), beside_bytes = follow(&beside, n);
        assert_int_equal(plain.stats.delta.offers_old_weights, 0);
        assert_int_equal(beside.stats.delta.offers_old_weights, 1);
        assert_int_equal(plain.stats.delta.delta_bytes, beside.stats.delta.delta_bytes);
        assert_true(beside_bytes < plain_bytes);
        must(beside.context, xorcast_subscriber_undo(beside.subscriber));
        must(beside.context, xorcast_subscriber_commit(beside.subscriber, NULL));
        must(beside.context, xorcast_subscriber_wait(beside.subscriber, TIMEOUT_MS));
        assert_true(model_equal(&beside.published, &beside.live));
    }
    /* Two versions behind: the plain forms are folded. */
    publish(&beside, 4);
    const uint64_t one = beside.stats.delta.delta_bytes;
    publish(&beside, 5);
    assert_true(follow(&beside, 5) > one + beside.stats.delta.delta_bytes - 128);
    publish(&beside, 6);
    assert_true(follow(&beside, 6) < beside.stats.delta.delta_bytes);
    street_close(&plain);
    street_close(&beside);
}

static void test_publisher_serves_both(void **state) {
    (void)state;
    both_forms("inproc:plain");
    both_forms("tcp:127.0.0.1:0");
}

/* Weights that changed behind the subscriber's back are found before anything is written. */
static void test_foreign_weights_are_found(void **state) {
    (void)state;
    street s;
    uint64_t newest;
    street_open(&s, "inproc:foreign", 1);
    publish(&s, 1);
    must(s.context, xorcast_subscriber_poll(s.subscriber, TIMEOUT_MS, &newest));
    for (uint64_t i = 0; i < 200; i++)
        s.live.tensors[0].data[i] ^= 0x40;
    const xorcast_status status = xorcast_subscriber_stage(s.subscriber, newest, TIMEOUT_MS);
    assert_true(status == XORCAST_BASE_MISMATCH || status == XORCAST_DATA_CORRUPT);
    for (uint64_t i = 0; i < 200; i++)
        s.live.tensors[0].data[i] ^= 0x40;
    follow(&s, 1);
    street_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leads_where_the_plain_form_leads),
        cmocka_unit_test(test_other_bases_are_refused),
        cmocka_unit_test(test_is_announced),
        cmocka_unit_test(test_is_not_folded),
        cmocka_unit_test(test_only_gap_knows_old_weights),
        cmocka_unit_test(test_publisher_serves_both),
        cmocka_unit_test(test_foreign_weights_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
