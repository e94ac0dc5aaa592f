/* A publisher whose weights lie in device memory, on the stand-in device or on a real one: the same
 * objects, byte for byte, as a publisher of the same weights on the host; whatever the order of
 * puts, where the shadow lies, how tensors are stored; and after aborted versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frame/about.h"
#include "publish/device_encode.h"
#include "ship/link.h"
#include "support/device_model.h"
#include "support/fake_device.h"
#include "support/expect_status.h"
#include "support/sanitizers.h"
#include "support/twin_publishers.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u

/* Variants are many; the address sanitizer, to which they are alike, is slow. */
#if TEST_ADDRESS_SANITIZER
#define VARIANT_STEP 3u
#else
#define VARIANT_STEP 1u
#endif

/* ---- Two publishers of the same weights ---- */

typedef struct twins {
    twin_publishers both;
    model weights, device;
} twins;

static void open_twins(twins *t, const xorcast_publisher_options *wanted) {
    static const char *const urls[] = {"inproc:on-host", "inproc:on-device"};
    memset(t, 0, sizeof *t);
    t->both.context[0] = test_context(2);
    t->both.context[1] = test_device_context(3);
    model_create(&t->weights, 7);
    device_model_create(t->both.context[1], &t->device, &t->weights);
    t->both.bundle[0] = model_bundle(t->both.context[0], &t->weights, CHUNK, 1);
    t->both.bundle[1] = model_bundle(t->both.context[1], &t->device, CHUNK, 2);
    twins_open(&t->both, urls, wanted);
}

static void close_twins(twins *t) {
    twins_close(&t->both);
    xorcast_memory memory;
    xorcast_context_memory(t->both.context[1], &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    device_model_free(t->both.context[1], &t->device);
    for (unsigned i = 0; i < 2; i++)
        xorcast_context_destroy(t->both.context[i]);
    model_free(&t->weights);
    if (test_device_is_fake())
        assert_int_equal(fake_device_open_things(), 0);
}

static void change(twins *t, uint64_t step, uint32_t per_million) {
    model_step(&t->weights, step * 1000 + 1, per_million);
    device_model_put(t->both.context[1], &t->device, &t->weights);
}

/* What the shadows hold now, group by group, and their digests. */
static void same_shadow(twins *t) {
    xorcast_layout layout;
    xorcast_context *context = test_context(1);
    xorcast_bundle *bundle = model_bundle_layout(context, &t->weights, CHUNK, 1, &layout);
    twins_same_shadow(&t->both, layout.group_count);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
}

static void publish_whole(twins *t, uint64_t step) {
    twins_publish(&t->both, step);
    twins_same_version(&t->both, step);
    same_shadow(t);
}

static const uint32_t densities[] = {0, 1, 500, 6000, 170000, 500000, 1000000, 30};

static void publish_all(const xorcast_publisher_options *options) {
    twins t;
    open_twins(&t, options);
    same_shadow(&t);
    for (uint64_t i = 0; i < sizeof densities / sizeof *densities; i++) {
        change(&t, i + 1, densities[i]);
        publish_whole(&t, i + 1);
    }
    close_twins(&t);
}

static void test_same_bytes(void **state) {
    (void)state;
    for (uint32_t variant = 0; variant < 4; variant++) {
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        options.shadow_in_host = variant % 2;
        options.encoding.second_pass = variant / 2;
        options.encoding.codec = variant == 3 ? XORCAST_CODEC_RAW : 0;
        options.measure_bound = variant == 1;
        publish_all(&options);
    }
}

/* Gap, with and without the form beside the old weights, of which the device writes whole groups;
 * and the same by the host, where the bound is measured. */
static void test_gap(void **state) {
    (void)state;
    for (uint32_t variant = 0; variant < 6; variant++) {
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        options.shadow_in_host = variant % 2;
        options.encoding.codec = XORCAST_CODEC_GAP;
        options.encoding.old_weights = variant / 2 % 2;
        options.encoding.second_pass = variant == 1 || variant == 2;
        options.measure_bound = variant >= 4;
        publish_all(&options);
    }
}

/* Auto, for fewest bytes and for links and receivers of each kind. */
static void test_auto(void **state) {
    (void)state;
    static const uint64_t rates[] = {0, 50000, 125000000, 25000000000};
    for (uint32_t variant = 0; variant < 16; variant += VARIANT_STEP) {
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        options.encoding.codec = XORCAST_CODEC_AUTO;
        options.encoding.link_bytes_per_second = rates[variant % 4];
        options.encoding.receiver = variant / 4 % 3;
        options.encoding.old_weights = variant / 2 % 2;
        options.encoding.second_pass = (variant + variant / 4) % 2;
        options.shadow_in_host = variant / 5 % 2;
        publish_all(&options);
    }
}

/* Pieces that do not fit are cut and encoded again. */
static void test_little_room(void **state) {
    (void)state;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    xci_device_encoder_limit(1);
    for (uint32_t variant = 0; variant < 6; variant++) {
        static const uint32_t codecs[] = {0, XORCAST_CODEC_GAP, XORCAST_CODEC_AUTO};
        options.encoding.second_pass = variant % 2;
        options.encoding.codec = codecs[variant / 2];
        options.encoding.old_weights = variant == 3 || variant == 4;
        publish_all(&options);
    }
    xci_device_encoder_limit(0);
}

/* Beside the old weights there may be too little scratch on the device: then for fewer groups, or
 * the host writes them. */
static void test_no_room_beside(void **state) {
    (void)state;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    if (!test_device_is_fake())
        skip();
    options.encoding.old_weights = 1;
    for (uint32_t variant = 0; variant < 4; variant++) {
        fake_device_gap_room(variant % 2 == 0 ? 0 : 90);
        options.encoding.codec = variant < 2 ? XORCAST_CODEC_GAP : XORCAST_CODEC_AUTO;
        options.encoding.second_pass = 1;
        publish_all(&options);
    }
    fake_device_gap_room(UINT64_MAX);
}

/* ---- Tensors one by one, in any order, from other memory, or kept ---- */

/* Order and kind of the put of each tensor follow from `seed`; both publishers get the same, the
 * device's from device memory. */
static void put_in_pieces(twins *t, uint64_t seed, const model *fresh, const model *fresh_device) {
    uint64_t order[MODEL_TENSORS_MAX];
    const uint32_t count = t->weights.count;
    for (uint32_t k = 0; k < count; k++) {
        const uint64_t j = model_random(&seed) % (k + 1);
        order[k] = order[j];
        order[j] = k;
    }
    for (uint32_t k = 0; k < count;) {
        uint64_t indices[2][4];
        const void *data[2][4];
        const uint32_t n = (uint32_t)(1 + model_random(&seed) % 4);
        const uint32_t batch = n < count - k ? n : count - k;
        const bool own = model_random(&seed) % 2;
        for (unsigned i = 0; i < 2; i++)
            for (uint32_t b = 0; b < batch; b++) {
                const model *from = i == 0 ? fresh : fresh_device;
                check_status(t->both.context[i],
                             xorcast_bundle_find(t->both.bundle[i],
                                                 t->weights.tensors[order[k + b]].name,
                                                 &indices[i][b]),
                             XORCAST_OK);
                data[i][b] = from->tensors[order[k + b]].data;
            }
        const bool keep = model_random(&seed) % 4 == 0;
        for (unsigned i = 0; i < 2; i++)
            check_status(t->both.context[i],
                         keep ? xorcast_publisher_keep(t->both.publisher[i], batch, indices[i])
                              : xorcast_publisher_put(t->both.publisher[i], batch, indices[i],
                                                      own ? NULL : data[i]),
                         XORCAST_OK);
        k += batch;
    }
}

static void test_pieces(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        twins t;
        model fresh, fresh_device;
        options.shadow_in_host = seed % 2;
        if (seed > 8) {
            options.encoding.codec = seed > 10 ? XORCAST_CODEC_AUTO : XORCAST_CODEC_GAP;
            options.encoding.old_weights = 1;
        }
        open_twins(&t, &options);
        model_create(&fresh, 7);
        model_step(&fresh, seed, 3000);
        device_model_create(t.both.context[1], &fresh_device, &fresh);
        change(&t, 1, 900);
        for (uint64_t step = 1; step <= 5; step++) {
            if (step % 2 == 0) { /* from the bundle's own memory again */
                publish_whole(&t, step);
                continue;
            }
            for (unsigned i = 0; i < 2; i++)
                check_status(t.both.context[i], xorcast_publisher_begin(t.both.publisher[i], step),
                             XORCAST_OK);
            put_in_pieces(&t, seed * 10 + step, &fresh, &fresh_device);
            for (unsigned i = 0; i < 2; i++)
                check_status(t.both.context[i], xorcast_publisher_finish(t.both.publisher[i], NULL),
                             XORCAST_OK);
            twins_same_version(&t.both, step);
            same_shadow(&t);
        }
        device_model_free(t.both.context[1], &fresh_device);
        model_free(&fresh);
        close_twins(&t);
    }
}

/* A version that was dropped leaves no trace, and is not seen while it is open. Without a second
 * pass records go straight to their parts, which grow if pieces are small. */
static void test_abort(void **state) {
    (void)state;
    for (uint32_t kind = 0; kind < 12; kind++) {
        static const uint32_t codecs[] = {0, XORCAST_CODEC_GAP, XORCAST_CODEC_AUTO};
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        twins t;
        options.shadow_in_host = kind % 2;
        options.encoding.second_pass = kind / 2 % 2;
        options.encoding.codec = codecs[kind / 4];
        options.encoding.old_weights = kind > 9;
        xci_device_encoder_limit(kind % 3 == 0);
        open_twins(&t, &options);
        for (uint64_t step = 1; step <= 3; step++) {
            const uint64_t half[] = {0, 2, 3, 7, 8, 9};
            change(&t, step, 20000);
            check_status(t.both.context[1], xorcast_publisher_begin(t.both.publisher[1], step),
                         XORCAST_OK);
            check_status(t.both.context[1],
                         xorcast_publisher_put(t.both.publisher[1], step == 1 ? 6 : 0,
                                               step == 1 ? half : NULL, NULL),
                         XORCAST_OK);
            same_shadow(&t);
            xorcast_publisher_abort(t.both.publisher[1]);
            same_shadow(&t);
            change(&t, step + 100, 300);
            publish_whole(&t, step);
        }
        close_twins(&t);
    }
    xci_device_encoder_limit(0);
}

/* ---- Tensors with room between their rows, and in several boxes ---- */

#define ROWS 160u
#define ROW_BYTES 2048u
#define PITCH 2304u

static void add_matrix(xorcast_bundle *bundle, xorcast_context *context, const char *name,
                       const xorcast_box *boxes, uint32_t box_count, void *data, uint32_t kind) {
    const uint64_t shape[2] = {ROWS, ROW_BYTES / 2};
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.dtype = "BF16";
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.bytes = ROWS * ROW_BYTES;
    tensor.data = data;
    tensor.boxes = boxes;
    tensor.box_count = box_count;
    tensor.memory_kind = kind;
    check_status(context, xorcast_bundle_add(bundle, &tensor), XORCAST_OK);
}

static void write_boxes(xorcast_context *context, uint8_t *strided, uint8_t *left, uint8_t *right,
                        const uint8_t *matrix) {
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint8_t *row = matrix + r * ROW_BYTES;
        device_put(context, strided + r * PITCH, row, ROW_BYTES);
        device_put(context, left + r * 1024, row, 1024);
        device_put(context, right + r * 1024, row + 1024, 1024);
    }
}

static void test_boxes(void **state) {
    (void)state;
    xorcast_context *host = test_context(2), *context = test_device_context(2);
    xorcast_bundle_options layout = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_bundle *from, *to;
    uint8_t *matrix = malloc(ROWS * ROW_BYTES), *live[3];
    uint8_t *strided = device_memory(context, ROWS * PITCH);
    uint8_t *left = device_memory(context, ROWS * 1024),
            *right = device_memory(context, ROWS * 1024);
    uint8_t *plain = device_memory(context, ROWS * ROW_BYTES);
    uint64_t random = 9;
    const xorcast_box one[] = {{0, ROWS, 0, ROW_BYTES, strided, PITCH, 0}};
    const xorcast_box two[] = {{0, ROWS, 0, 1024, left, 1024, 0},
                               {0, ROWS, 1024, 1024, right, 1024, 0}};
    layout.chunk_bytes = CHUNK;
    layout.group_bytes = 1 << 20;
    assert_non_null(matrix);
    for (uint32_t i = 0; i < ROWS * ROW_BYTES; i++)
        matrix[i] = (uint8_t)model_random(&random);
    write_boxes(context, strided, left, right, matrix);
    device_put(context, plain, matrix, ROWS * ROW_BYTES);
    assert_int_equal(xorcast_bundle_create(context, &layout, &from), XORCAST_OK);
    assert_int_equal(xorcast_bundle_create(host, &layout, &to), XORCAST_OK);
    const char *const names[] = {"a", "b", "c"};
    add_matrix(from, context, "a", one, 1, NULL, XORCAST_MEMORY_DEVICE);
    add_matrix(from, context, "b", two, 2, NULL, XORCAST_MEMORY_DEVICE);
    add_matrix(from, context, "c", NULL, 0, plain, XORCAST_MEMORY_DEVICE);
    for (unsigned i = 0; i < 3; i++) {
        live[i] = malloc(ROWS * ROW_BYTES);
        memcpy(live[i], matrix, ROWS * ROW_BYTES);
        add_matrix(to, host, names[i], NULL, 0, live[i], XORCAST_MEMORY_HOST);
    }
    check_status(context, xorcast_bundle_seal(from, NULL), XORCAST_OK);
    check_status(host, xorcast_bundle_seal(to, NULL), XORCAST_OK);
    check_status(context, xorcast_publisher_open(from, "inproc:boxes", NULL, &publisher),
                 XORCAST_OK);
    check_status(host, xorcast_subscriber_open(to, "inproc:boxes", NULL, &subscriber), XORCAST_OK);
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t i = 0; i < ROWS * ROW_BYTES; i++)
            matrix[i] ^= model_random(&random) % 100 < step * step ? 0x41 : 0;
        write_boxes(context, strided, left, right, matrix);
        device_put(context, plain, matrix, ROWS * ROW_BYTES);
        check_status(context, xorcast_publisher_begin(publisher, step), XORCAST_OK);
        check_status(context, xorcast_publisher_put(publisher, 0, NULL, NULL), XORCAST_OK);
        check_status(context, xorcast_publisher_finish(publisher, NULL), XORCAST_OK);
        check_status(host, xorcast_subscriber_stage(subscriber, step, TIMEOUT_MS), XORCAST_OK);
        check_status(host, xorcast_subscriber_commit(subscriber, NULL), XORCAST_OK);
        check_status(host, xorcast_subscriber_wait(subscriber, TIMEOUT_MS), XORCAST_OK);
        for (unsigned i = 0; i < 3; i++)
            assert_memory_equal(live[i], matrix, ROWS * ROW_BYTES);
    }
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    for (unsigned i = 0; i < 3; i++)
        free(live[i]);
    device_memory_free(context, strided);
    device_memory_free(context, left);
    device_memory_free(context, right);
    device_memory_free(context, plain);
    xorcast_context_destroy(host);
    xorcast_context_destroy(context);
    free(matrix);
}

static void test_refusals(void **state) {
    (void)state;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    twins t;
    open_twins(&t, &options);
    const uint64_t first = 0;
    const void *on_host = t.weights.tensors[0].data;
    xorcast_publisher *other;
    check_status(t.both.context[1], xorcast_publisher_begin(t.both.publisher[1], 1), XORCAST_OK);
    assert_int_equal(xorcast_publisher_put(t.both.publisher[1], 1, &first, &on_host),
                     XORCAST_BAD_ARGUMENT);
    check_status(t.both.context[1], xorcast_publisher_put(t.both.publisher[1], 0, NULL, NULL),
                 XORCAST_OK);
    check_status(t.both.context[1], xorcast_publisher_finish(t.both.publisher[1], NULL),
                 XORCAST_OK);
    options.encoding.codec = XORCAST_CODEC_SNAPPY;
    assert_int_equal(xorcast_publisher_open(t.both.bundle[1], "inproc:other", &options, &other),
                     XORCAST_UNSUPPORTED);
    close_twins(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),  cmocka_unit_test(test_gap),
        cmocka_unit_test(test_auto),        cmocka_unit_test(test_no_room_beside),
        cmocka_unit_test(test_little_room), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_abort),       cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
