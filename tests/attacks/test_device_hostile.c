/* Blocks and parameters that are damaged, with every hash and checksum right, as who may publish
 * could send them: weights in device memory take what weights on the host take, refuse the rest
 * with the same status, and are as they were then. All codecs, beside the old weights too; on the
 * stand-in device, or on the one that XORCAST_TEST_DEVICE names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/delta_maker.h"
#include "support/device_model.h"
#include "support/expect_status.h"

#define TEST_SEED 20260611
#include "support/random.h"

#define CHUNK 16384u
#define ROUNDS 400u
#define RECORDS 8u

typedef struct scene {
    xorcast_context *host, *device;
    model old, new, live, on_device;
    xorcast_bundle *bundles[2];
    test_bytes delta;
    made_delta made;
    made_record records[RECORDS];
    uint32_t record_count, taken, refused;
} scene;

/* Whole chunks and packed ones; numbers that step, and scales that all change. */
static void make_models(scene *s) {
    model *const both[] = {&s->old, &s->new, &s->live};
    for (uint32_t i = 0; i < 3; i++) {
        memset(both[i], 0, sizeof *both[i]);
        both[i]->random = 44;
        model_add(both[i], "a", "BF16", 2, 2, 40, 500);
        model_add(both[i], "b", "U8", 1, 2, 33, 500);
        model_add(both[i], "c", "F32", 4, 1, 4100, 0);
        model_add(both[i], "d", "BF16", 2, 1, 70, 0);
        model_add(both[i], "e", "U8", 1, 1, 9, 0);
    }
    for (uint32_t t = 0; t < s->new.count; t++)
        for (uint64_t i = 0; i + 4 <= s->new.tensors[t].bytes; i += t == 2 ? 4 : 4 + below(40))
            s->new.tensors[t].data[i] += (uint8_t)(1 + below(t == 2 ? 200 : 3));
}

static void scene_open(scene *s, uint32_t codec, uint32_t old_weights) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    memset(s, 0, sizeof *s);
    s->host = test_context(1);
    s->device = test_device_context(2);
    make_models(s);
    device_model_create(s->device, &s->on_device, &s->old);
    xorcast_bundle *from = model_bundle(s->host, &s->old, CHUNK, 1),
                   *to = model_bundle(s->host, &s->new, CHUNK, 2);
    s->bundles[0] = model_bundle(s->host, &s->live, CHUNK, 3);
    s->bundles[1] = model_bundle(s->device, &s->on_device, CHUNK, 4);
    const xorcast_sink sink = test_sink(&s->delta);
    options.encoding.codec = codec;
    options.encoding.second_pass = 1;
    options.encoding.old_weights = old_weights;
    must(s->host, xorcast_delta_encode(from, to, &options, &sink, NULL));
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    made_take(&s->made, &s->delta);
    assert_int_equal(s->made.parts_made, 1);
    s->record_count = made_records(&s->made.parts[0], s->records, RECORDS);
}

static void scene_close(scene *s) {
    made_free(&s->made);
    test_bytes_free(&s->delta);
    for (uint32_t i = 0; i < 2; i++)
        xorcast_bundle_destroy(s->bundles[i]);
    device_model_free(s->device, &s->on_device);
    xorcast_context_destroy(s->host);
    xorcast_context_destroy(s->device);
    model_free(&s->old);
    model_free(&s->new);
    model_free(&s->live);
}

/* A record whose payload is `payload`, damaged: somewhere, or among the parameters. */
static void damage(made_record *record, uint8_t *payload) {
    const uint64_t bytes = record->payload_bytes;
    const uint64_t from = record->params > 0 && below(2) == 0 ? bytes - record->params : 0;
    memcpy(payload, record->payload, bytes);
    for (uint32_t flips = 1 + below(3); flips > 0; flips--) {
        uint8_t *at = &payload[from + below((uint32_t)(bytes - from))];
        *at = below(3) == 0 ? (uint8_t)next_random() : *at ^ (uint8_t)(1u << below(8));
    }
    record->payload = payload;
    if (record->sizes_made > 1 && below(4) == 0) { /* a block's end is elsewhere */
        const uint32_t i = below(record->sizes_made - 1);
        const uint64_t some = record->sizes[i] > 0 ? below((uint32_t)record->sizes[i]) : 0;
        record->sizes[i] -= some;
        record->sizes[i + 1] += some;
    }
}

static test_bytes damaged(scene *s) {
    test_bytes out = {0};
    made_part part = {{0}, 0, 0, {0}};
    made_record records[RECORDS];
    memcpy(records, s->records, sizeof records);
    made_record *record = &records[below(s->record_count)];
    uint8_t *payload = malloc(record->payload_bytes);
    assert_non_null(payload);
    damage(record, payload);
    made_set_records(&part, records, s->record_count);
    const made_part kept = s->made.parts[0];
    s->made.parts[0] = part;
    made_write(&s->made, &out);
    s->made.parts[0] = kept;
    test_bytes_free(&part.bytes);
    free(payload);
    return out;
}

static void expect_same(scene *s, const test_bytes *delta) {
    const xorcast_source source = test_source(delta);
    const xorcast_status on_host = xorcast_delta_apply(s->bundles[0], &source, NULL);
    const xorcast_status on_device = xorcast_delta_apply(s->bundles[1], &source, NULL);
    if (on_host != on_device)
        print_message("%s on the host, %s on the device\n", xorcast_status_name(on_host),
                      xorcast_status_name(on_device));
    assert_int_equal(on_host, on_device);
    assert_true(model_equal(&s->live, on_host == XORCAST_OK ? &s->new : &s->old));
    assert_true(device_model_equal(s->device, &s->on_device, &s->live));
    s->taken += on_host == XORCAST_OK;
    s->refused += on_host != XORCAST_OK;
    if (on_host != XORCAST_OK)
        return;
    model_copy(&s->live, &s->old);
    device_model_put(s->device, &s->on_device, &s->old);
}

static void attack(uint32_t codec, uint32_t old_weights) {
    scene s;
    scene_open(&s, codec, old_weights);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        test_bytes delta = damaged(&s);
        expect_same(&s, &delta);
        test_bytes_free(&delta);
    }
    assert_true(s.refused > ROUNDS / 2);
    expect_same(&s, &s.delta); /* and nothing is broken */
    assert_true(s.taken > 0);
    scene_close(&s);
}

static void test_damage(void **state) {
    (void)state;
    for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_AUTO; codec++)
        attack(codec, 0);
}

static void test_damage_beside_old_weights(void **state) {
    (void)state;
    attack(XORCAST_CODEC_GAP, 1);
    attack(XORCAST_CODEC_AUTO, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_damage_beside_old_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
