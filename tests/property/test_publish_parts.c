/* Versions of several parts, which the threads that encode fill and hash while they do so, and
 * which the threads that stage work on together: the bytes are those that one thread makes of one
 * record after the other, however many threads there are and in whatever order tensors come; what
 * a keyframe or an abort needs of records that have moved into a part is still there; and of
 * damage in several parts the first is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frame/delta_reader.h"
#include "ship/link.h"
#include "support/model.h"
#include "support/expect_status.h"

#define TIMEOUT_MS 20000
#define CHUNK 65536u
#define TENSORS 4u
#define TENSOR_BYTES (UINT64_C(5) << 19)
#define STRIDE 5u /* records of 1 MiB groups become some 800 KB: a part has six of them */
#define STRIDE_GAP 3u

static void make_weights(model *m) {
    char name[16];
    memset(m, 0, sizeof *m);
    m->random = 3;
    for (uint32_t t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof name, "w%u", t);
        model_add(m, name, "BF16", 2, 1, TENSOR_BYTES / 2, 0);
    }
    model_add(m, "bias", "F32", 4, 1, 300, 0);
}

/* Changes a byte in every `stride` at most. */
static void change(model *m, uint64_t seed, uint64_t stride) {
    uint64_t random = seed;
    for (uint32_t t = 0; t < m->count; t++)
        for (uint64_t i = model_random(&random) % stride; i < m->tensors[t].bytes;
             i += 1 + model_random(&random) % stride)
            m->tensors[t].data[i] ^= (uint8_t)(1 + model_random(&random) % 255);
}

/* The delta from step `step` - 1 to `step` as one thread encodes it. */
static test_bytes encode_alone(const model *before, const model *after,
                               const xorcast_encoding *encoding, xorcast_delta_info *info_out) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    test_bytes delta = {0};
    xorcast_context *context = test_context(1);
    xorcast_bundle *from = model_bundle(context, before, CHUNK, 1);
    xorcast_bundle *to = model_bundle(context, after, CHUNK, 1);
    const xorcast_sink sink = test_sink(&delta);
    options.encoding = *encoding;
    must(context, xorcast_delta_encode(from, to, &options, &sink, info_out));
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    xorcast_context_destroy(context);
    return delta;
}

/* ---- Publishing ---- */

typedef struct trainer {
    xorcast_context *context;
    model weights;
    xorcast_bundle *bundle;
    xorcast_publisher *publisher;
    const xci_link *link;
    xci_peer *peer;
} trainer;

static void open_trainer_in(trainer *t, xorcast_context *context, uint64_t log_bytes,
                            const xorcast_encoding *encoding) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.encoding = *encoding;
    options.run = "run";
    options.log_bytes = log_bytes;
    make_weights(&t->weights);
    t->context = context;
    t->bundle = model_bundle(t->context, &t->weights, CHUNK, 1);
    must(t->context, xorcast_publisher_open(t->bundle, "inproc:parts", &options, &t->publisher));
    must(t->context, xci_link_find(t->context, "inproc:parts", &t->link));
    must(t->context, t->link->peer_open(t->context, "inproc:parts", false, UINT64_MAX, &t->peer));
}

static void open_trainer(trainer *t, uint32_t threads, const xorcast_encoding *encoding) {
    open_trainer_in(t, test_context(threads), UINT64_C(1) << 30, encoding);
}

static void close_trainer(trainer *t) {
    t->link->peer_close(t->peer);
    xorcast_publisher_close(t->publisher);
    xorcast_bundle_destroy(t->bundle);
    xorcast_context_destroy(t->context);
    model_free(&t->weights);
}

static xci_blob *fetch(trainer *t, const char *name) {
    xci_blob *blob;
    must(t->context, t->link->peer_request(t->peer, name, 1 << 30, UINT64_MAX));
    must(t->context, t->link->peer_receive(t->peer, UINT64_MAX, &blob));
    return blob;
}

/* Parts one behind the other are what stands behind the head of a delta. */
static void parts_are(trainer *t, uint64_t step, const xorcast_delta_info *info,
                      const test_bytes *delta) {
    xorcast_publisher_stats stats;
    char name[XCI_NAME_BYTES];
    const uint8_t *at = delta->bytes + XCI_HEAD_BYTES;
    xorcast_publisher_get_stats(t->publisher, &stats);
    assert_int_equal(stats.delta.part_count, info->part_count);
    for (uint64_t p = 0; p < info->part_count; p++) {
        snprintf(name, sizeof name, "version/%llu/part/%llu", (unsigned long long)step,
                 (unsigned long long)p);
        xci_blob *blob = fetch(t, name);
        assert_true((uint64_t)(at - delta->bytes) + blob->size <= delta->count);
        assert_memory_equal(blob->bytes, at, blob->size);
        at += blob->size;
        xci_blob_drop(blob);
    }
}

/* All at once; the last first; or from both ends. */
static uint64_t tensor_at(uint32_t way, uint64_t i) {
    if (way == 1)
        return TENSORS - i;
    return i % 2 == 0 ? i / 2 : TENSORS - i / 2;
}

static void put_some(trainer *t, uint32_t way, uint64_t first, uint64_t end) {
    for (uint64_t i = first; way > 0 && i < end; i++) {
        const uint64_t index = tensor_at(way, i);
        must(t->context, xorcast_publisher_put(t->publisher, 1, &index, NULL));
    }
    if (way == 0 && first == 0)
        must(t->context, xorcast_publisher_put(t->publisher, 0, NULL, NULL));
}

/* Every group is what it was at `step`, as bytes of the shadow that `before` keeps. */
static void shadow_is(trainer *t, uint64_t group_count, xci_blob **before, bool keep) {
    char name[XCI_NAME_BYTES];
    for (uint64_t g = 0; g < group_count; g++) {
        snprintf(name, sizeof name, "group/%llu", (unsigned long long)g);
        xci_blob *blob = fetch(t, name);
        if (keep) {
            before[g] = blob;
            continue;
        }
        assert_int_equal(blob->size, before[g]->size);
        assert_memory_equal(blob->bytes, before[g]->bytes, blob->size);
        xci_blob_drop(blob);
    }
}

static void publish_and_abort(uint32_t threads, uint32_t way, uint64_t stride,
                              const xorcast_encoding *encoding) {
    enum { GROUPS_MAX = 64 };
    trainer t;
    model before;
    xorcast_delta_info info;
    xci_blob *groups[GROUPS_MAX];
    open_trainer(&t, threads, encoding);
    make_weights(&before);
    for (uint64_t step = 1; step <= 2; step++) {
        change(&t.weights, step, stride);
        test_bytes delta = encode_alone(&before, &t.weights, encoding, &info);
        assert_true(info.group_count <= GROUPS_MAX && info.part_count >= 2);
        shadow_is(&t, info.group_count, groups, true);
        must(t.context, xorcast_publisher_begin(t.publisher, step));
        put_some(&t, way, 0, TENSORS / 2);
        shadow_is(&t, info.group_count, groups, false); /* published it is not yet */
        put_some(&t, way, TENSORS / 2, TENSORS + 1);
        xorcast_publisher_abort(t.publisher);
        shadow_is(&t, info.group_count, groups, false);
        must(t.context, xorcast_publisher_begin(t.publisher, step));
        put_some(&t, way, 0, TENSORS + 1);
        must(t.context, xorcast_publisher_finish(t.publisher, NULL));
        parts_are(&t, step, &info, &delta);
        for (uint64_t g = 0; g < info.group_count; g++)
            xci_blob_drop(groups[g]);
        test_bytes_free(&delta);
        model_copy(&before, &t.weights);
    }
    model_free(&before);
    close_trainer(&t);
}

static void test_same_parts(void **state) {
    (void)state;
    static const struct { uint32_t threads, way; } cases[] = {{1, 0}, {3, 0}, {7, 2}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xorcast_encoding encoding = XORCAST_ENCODING_INIT;
        encoding.second_pass = 1;
        publish_and_abort(cases[i].threads, cases[i].way, STRIDE, &encoding);
    }
}

/* The payload of these is the writer's own, not the encoder's. */
static void test_same_parts_of_other_codecs(void **state) {
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        xorcast_encoding encoding = XORCAST_ENCODING_INIT;
        encoding.codec = way == 0 ? XORCAST_CODEC_GAP : XORCAST_CODEC_LZ4;
        encoding.second_pass = way == 0;
        publish_and_abort(5, way, STRIDE_GAP, &encoding);
    }
}

/* A part gets room by the version before: these need more, less, and none. */
static void publish_uneven(uint32_t threads) {
    static const uint64_t strides[] = {20000, 400, 30, STRIDE, UINT64_MAX, 20000, 12, STRIDE, 60};
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    xorcast_delta_info info;
    trainer t;
    model before;
    encoding.second_pass = 1;
    open_trainer(&t, threads, &encoding);
    make_weights(&before);
    for (uint64_t step = 1; step <= sizeof strides / sizeof *strides; step++) {
        if (strides[step - 1] < UINT64_MAX)
            change(&t.weights, step, strides[step - 1]);
        test_bytes delta = encode_alone(&before, &t.weights, &encoding, &info);
        must(t.context, xorcast_publisher_begin(t.publisher, step));
        put_some(&t, 0, 0, TENSORS + 1);
        must(t.context, xorcast_publisher_finish(t.publisher, NULL));
        parts_are(&t, step, &info, &delta);
        test_bytes_free(&delta);
        model_copy(&before, &t.weights);
    }
    model_free(&before);
    close_trainer(&t);
}

static void test_uneven_versions(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 7; threads += 3)
        publish_uneven(threads);
}

/* ---- Memory of parts ---- */

static uint64_t large_blocks; /* that were ever asked for */

static void *ask(void *user, size_t bytes) {
    (void)user;
    large_blocks += bytes >= 1 << 20;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void take_back(void *user, void *memory) {
    (void)user;
    free(memory);
}

static xorcast_status publish_next(trainer *t, uint64_t step) {
    xorcast_status status = xorcast_publisher_begin(t->publisher, step);
    if (status == XORCAST_OK)
        status = xorcast_publisher_put(t->publisher, 0, NULL, NULL);
    return status == XORCAST_OK ? xorcast_publisher_finish(t->publisher, NULL) : status;
}

/* What a version of one part or two leaves is soon the next one's, also after others that were much
 * larger or smaller. */
static void test_memory_is_used_again(void **state) {
    (void)state;
    static const uint64_t strides[] = {20, 4, 40, 12, 6};
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    xorcast_context *context;
    trainer t;
    uint64_t step = 0;
    options.threads = 1;
    options.allocate = ask;
    options.release = take_back;
    encoding.second_pass = 1;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    open_trainer_in(&t, context, 1, &encoding);
    for (uint32_t s = 0; s < sizeof strides / sizeof *strides; s++)
        for (uint32_t i = 0; i < 8; i++) {
            const uint64_t before = large_blocks;
            change(&t.weights, ++step, strides[s]);
            must(context, publish_next(&t, step));
            if (i >= 4)
                assert_int_equal(large_blocks, before);
        }
    close_trainer(&t);
}

/* A version of most of a part, then small ones; returns what the first took at most: when it is
 * there that leaves less than another of its size. */
static uint64_t publish_below(uint64_t limit) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    xorcast_context *context;
    xorcast_publisher_stats stats;
    trainer t;
    options.threads = 1;
    options.scratch_limit_bytes = limit;
    encoding.second_pass = 1;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    open_trainer_in(&t, context, UINT64_C(1) << 30, &encoding);
    change(&t.weights, 1, 24);
    must(context, publish_next(&t, 1));
    xorcast_publisher_get_stats(t.publisher, &stats);
    assert_int_equal(stats.delta.part_count, 1);
    assert_true(stats.memory.high_water_bytes - stats.memory.now_bytes < stats.delta.delta_bytes);
    for (uint64_t step = 2; step < 5; step++) {
        change(&t.weights, step, 100000);
        must(context, publish_next(&t, step));
    }
    close_trainer(&t);
    return stats.memory.high_water_bytes;
}

/* Room that a part may need is not what a version fails for. */
static void test_likely_room(void **state) {
    (void)state;
    (void)publish_below(publish_below(0));
}

/* ---- Staging ---- */

/* Flips a bit of a part: of its first record's head, or in the middle. */
static void flip(const test_bytes *delta, uint64_t part, bool in_head) {
    xci_delta_reader reader;
    xorcast_context *context = test_context(1);
    const xorcast_source source = test_source(delta);
    must(context, xci_delta_reader_open(context, &source, &reader));
    uint64_t at = XCI_HEAD_BYTES;
    for (uint64_t p = 0; p < part; p++)
        at += reader.manifest.parts[p].bytes;
    delta->bytes[at + (in_head ? 0 : reader.manifest.parts[part].bytes / 2)] ^= 0x40;
    xci_delta_reader_close(&reader);
    xorcast_context_destroy(context);
}

static xorcast_status check(uint32_t threads, const model *weights, const test_bytes *delta,
                            xorcast_error *error_out) {
    xorcast_context *context = test_context(threads);
    xorcast_bundle *bundle = model_bundle(context, weights, CHUNK, 1);
    const xorcast_source source = test_source(delta);
    const xorcast_status status = xorcast_delta_check(bundle, &source, NULL);
    xorcast_last_error(context, error_out);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    return status;
}

/* Damage in one part, and in that and all behind it: the same words. */
static void damage(const model *before, const test_bytes *delta, uint64_t part_count, uint64_t part,
                   bool in_head) {
    xorcast_error alone, several;
    flip(delta, part, in_head);
    const xorcast_status status = check(1, before, delta, &alone);
    assert_true(status < 0);
    for (uint64_t p = part + 1; p < part_count; p++)
        flip(delta, p, p % 2 == 0);
    for (uint32_t threads = 1; threads <= 7; threads += 3) {
        assert_int_equal(check(threads, before, delta, &several), status);
        assert_string_equal(several.text, alone.text);
        assert_int_equal(several.chunk, alone.chunk);
    }
    for (uint64_t p = part + 1; p < part_count; p++)
        flip(delta, p, p % 2 == 0);
    flip(delta, part, in_head);
}

static void test_first_damage_is_named(void **state) {
    (void)state;
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    xorcast_delta_info info;
    xorcast_error error;
    model before, after;
    make_weights(&before);
    make_weights(&after);
    change(&after, 1, STRIDE);
    encoding.second_pass = 1;
    test_bytes delta = encode_alone(&before, &after, &encoding, &info);
    assert_true(info.part_count >= 3);
    for (uint64_t part = 0; part < info.part_count; part++) {
        damage(&before, &delta, info.part_count, part, true);
        damage(&before, &delta, info.part_count, part, false);
    }
    for (uint32_t threads = 1; threads <= 7; threads += 3)
        assert_int_equal(check(threads, &before, &delta, &error), XORCAST_OK);
    test_bytes_free(&delta);
    model_free(&before);
    model_free(&after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_parts),      cmocka_unit_test(test_same_parts_of_other_codecs),
        cmocka_unit_test(test_uneven_versions), cmocka_unit_test(test_memory_is_used_again),
        cmocka_unit_test(test_likely_room),     cmocka_unit_test(test_first_damage_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
