/* Publisher to subscriber with weights in device memory, on the stand-in device or on a real one:
 * steps of all densities, late joiners, keyframes, undo, audit, boxes, foreign codecs. Compares
 * bytes after every commit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/device.h"
#include "base/clock.h"
#include "publish/device_encode.h"
#include "subscribe/feed.h"
#include "support/device_model.h"
#include "support/fake_device.h"
#include "support/expect_status.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u

/* ---- A trainer with host weights, a sampler with device weights ---- */

typedef struct pair {
    xorcast_context *trainer, *sampler;
    model published;   /* the trainer's weights, on the host */
    model from_device; /* where they lie if the trainer has them on a device */
    model live;        /* the sampler's, on its device */
    bool trainer_on_device;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
} pair;

static void connect_sampler(pair *p) {
    p->to = model_bundle(p->sampler, &p->live, CHUNK, 99);
    check_status(
        p->sampler,
        xorcast_subscriber_open(p->to, xorcast_publisher_url(p->publisher), NULL, &p->subscriber),
        XORCAST_OK);
}

static void open_pair(pair *p, const char *url, uint32_t threads, bool trainer_on_device,
                      const xorcast_publisher_options *options) {
    memset(p, 0, sizeof *p);
    model_create(&p->published, 7);
    p->trainer_on_device = trainer_on_device;
    p->trainer = trainer_on_device ? test_device_context(threads) : test_context(threads);
    if (trainer_on_device)
        device_model_create(p->trainer, &p->from_device, &p->published);
    p->from =
        model_bundle(p->trainer, trainer_on_device ? &p->from_device : &p->published, CHUNK, 1);
    check_status(p->trainer, xorcast_publisher_open(p->from, url, options, &p->publisher),
                 XORCAST_OK);
    p->sampler = test_device_context(threads);
    device_model_create(p->sampler, &p->live, &p->published);
    connect_sampler(p);
}

static void disconnect_sampler(pair *p) {
    xorcast_subscriber_close(p->subscriber);
    xorcast_bundle_destroy(p->to);
}

static void close_pair(pair *p) {
    xorcast_memory memory;
    disconnect_sampler(p);
    xorcast_context_memory(p->sampler, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    device_model_free(p->sampler, &p->live);
    xorcast_context_destroy(p->sampler);
    xorcast_publisher_close(p->publisher);
    xorcast_bundle_destroy(p->from);
    xorcast_context_memory(p->trainer, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    if (p->trainer_on_device)
        device_model_free(p->trainer, &p->from_device);
    xorcast_context_destroy(p->trainer);
    model_free(&p->published);
    if (test_device_is_fake())
        assert_int_equal(fake_device_open_things(), 0);
}

static void publish(pair *p, uint64_t step, uint32_t per_million, xorcast_publisher_stats *stats) {
    model_step(&p->published, step * 1000 + 1, per_million);
    if (p->trainer_on_device)
        device_model_put(p->trainer, &p->from_device, &p->published);
    check_status(p->trainer, xorcast_publisher_begin(p->publisher, step), XORCAST_OK);
    check_status(p->trainer, xorcast_publisher_put(p->publisher, 0, NULL, NULL), XORCAST_OK);
    check_status(p->trainer, xorcast_publisher_finish(p->publisher, stats), XORCAST_OK);
}

static void follow(pair *p, uint64_t step) {
    xorcast_version version;
    uint64_t newest;
    check_status(p->sampler, xorcast_subscriber_poll(p->subscriber, TIMEOUT_MS, &newest),
                 XORCAST_OK);
    assert_int_equal(newest, step);
    check_status(p->sampler, xorcast_subscriber_stage(p->subscriber, newest, TIMEOUT_MS),
                 XORCAST_OK);
    check_status(p->sampler, xorcast_subscriber_commit(p->subscriber, NULL), XORCAST_OK);
    check_status(p->sampler, xorcast_subscriber_wait(p->subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(p->sampler, &p->live, &p->published));
    xorcast_subscriber_current(p->subscriber, &version);
    assert_int_equal(version.step, step);
    check_status(p->sampler, xorcast_subscriber_audit(p->subscriber, 0), XORCAST_OK);
}

static const uint32_t densities[] = {0, 1, 500, 6000, 170000, 500000, 1000000};

static void follow_all(const char *url, uint32_t threads, bool trainer_on_device,
                       const xorcast_encoding *encoding) {
    pair p;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    if (encoding != NULL)
        options.encoding = *encoding;
    open_pair(&p, url, threads, trainer_on_device, &options);
    for (uint64_t i = 0; i < sizeof densities / sizeof *densities; i++) {
        publish(&p, i + 1, densities[i], NULL);
        follow(&p, i + 1);
    }
    close_pair(&p);
}

static void test_sampler_densities(void **state) {
    (void)state;
    follow_all("inproc:densities", 1, false, NULL);
    follow_all("tcp:127.0.0.1:0", 3, false, NULL);
}

/* What no device takes as it is: the host makes it ready. */
static void test_sampler_codecs(void **state) {
    (void)state;
    for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_AUTO; codec++) {
        xorcast_encoding encoding = XORCAST_ENCODING_INIT;
        encoding.codec = codec;
        encoding.second_pass = codec % 2;
        encoding.old_weights = codec == XORCAST_CODEC_GAP;
        follow_all("inproc:codecs", 2, false, &encoding);
    }
}

static void test_late_joiner(void **state) {
    (void)state;
    pair p;
    xorcast_subscriber_stats stats;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.log_bytes = UINT64_C(1) << 30;
    open_pair(&p, "inproc:late", 2, false, &options);
    for (uint64_t step = 10; step <= 50; step += 10)
        publish(&p, step, 2000, NULL);
    follow(&p, 50);
    xorcast_subscriber_get_stats(p.subscriber, &stats);
    assert_int_equal(stats.deltas_folded, 5);
    close_pair(&p);
}

static void spoil(pair *p, const char *name, uint64_t offset) {
    for (uint32_t i = 0; i < p->live.count; i++) {
        uint8_t byte;
        if (strcmp(p->live.tensors[i].name, name) != 0)
            continue;
        device_get(p->sampler, &byte, p->live.tensors[i].data + offset, 1);
        byte ^= 0x10;
        device_put(p->sampler, p->live.tensors[i].data + offset, &byte, 1);
    }
}

static void keyframes(bool trainer_on_device) {
    pair p;
    xorcast_version version;
    xorcast_error error;
    open_pair(&p, "inproc:keyframe", 2, trainer_on_device, NULL);
    disconnect_sampler(&p);
    spoil(&p, "router.bias", 3);
    spoil(&p, "layers.0.w", 77777);
    connect_sampler(&p);
    xorcast_subscriber_current(p.subscriber, &version);
    assert_int_equal(version.step, XORCAST_NO_STEP);
    publish(&p, 1, 1000, NULL);
    assert_int_equal(xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_VERSION_GONE);
    check_status(p.sampler, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &p.published));
    publish(&p, 2, 1000, NULL);
    follow(&p, 2);
    spoil(&p, "layers.1.w", 100000);
    assert_int_equal(xorcast_subscriber_audit(p.subscriber, 0), XORCAST_WEIGHTS_WRONG);
    xorcast_last_error(p.sampler, &error);
    assert_non_null(strstr(error.text, "layers.1.w"));
    check_status(p.sampler, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &p.published));
    close_pair(&p);
}

static void test_keyframes(void **state) {
    (void)state;
    keyframes(false);
    keyframes(true);
}

static bool is_spread(void) {
    xorcast_context *context = test_device_context(1);
    const bool spread = test_device_spread(context);
    xorcast_context_destroy(context);
    return spread;
}

/* Bytes that went from device to device during some versions. */
static uint64_t peer_bytes_of(const char *url, uint32_t threads, bool trainer_on_device,
                              const xorcast_encoding *encoding) {
    const uint64_t before = fake_device_peer_bytes();
    follow_all(url, threads, trainer_on_device, encoding);
    return fake_device_peer_bytes() - before;
}

/* Inside a process blocks stay on devices, whatever the second pass makes of what is shipped. */
static void test_device_to_device(void **state) {
    (void)state;
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    const uint64_t with = peer_bytes_of("inproc:both", 2, true, NULL);
    encoding.second_pass = 1;
    const uint64_t without = peer_bytes_of("inproc:both", 1, true, &encoding);
    encoding.codec = XORCAST_CODEC_RAW;
    const uint64_t raw = peer_bytes_of("inproc:both", 2, true, &encoding);
    const uint64_t joined = peer_bytes_of("tcp:127.0.0.1:0", 1, true, NULL);
    assert_int_equal(peer_bytes_of("inproc:host", 1, false, NULL), 0);
    if (!test_device_is_fake())
        return;
    assert_int_equal(joined > 0, is_spread()); /* chunks that lie on two devices */
    /* Of this model a group lies on one device only if all does. */
    assert_int_equal(with, without);
    assert_true(raw >= with && with >= joined);
    assert_true(is_spread() || (with > 0 && raw > with));
}

/* Blocks of whom there is room for are copied, the others come from the host. */
static void test_little_room_for_peers(void **state) {
    (void)state;
    xci_device_encoder_limit(1);
    const uint64_t some = peer_bytes_of("inproc:little", 2, true, NULL);
    xci_device_encoder_limit(0);
    const uint64_t all = peer_bytes_of("inproc:much", 2, true, NULL);
    if (test_device_is_fake() && !is_spread())
        assert_true(some > 0 && some < all);
}

/* Tensor by tensor: groups that come in pieces have no place on the device. */
static void test_pieces_to_a_peer(void **state) {
    (void)state;
    pair p;
    open_pair(&p, "inproc:pieces", 2, true, NULL);
    for (uint64_t step = 1; step <= 3; step++) {
        model_step(&p.published, step, 4000);
        device_model_put(p.trainer, &p.from_device, &p.published);
        check_status(p.trainer, xorcast_publisher_begin(p.publisher, step), XORCAST_OK);
        for (uint64_t t = p.published.count; t-- > 0;)
            check_status(p.trainer, xorcast_publisher_put(p.publisher, 1, &t, NULL), XORCAST_OK);
        check_status(p.trainer, xorcast_publisher_finish(p.publisher, NULL), XORCAST_OK);
        follow(&p, step);
    }
    close_pair(&p);
}

/* The publisher goes on while a sampler has staged what it has no more. */
static void test_publisher_is_ahead_of_a_peer(void **state) {
    (void)state;
    pair p;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.log_bytes = UINT64_C(1) << 30;
    open_pair(&p, "inproc:ahead", 2, true, &options);
    publish(&p, 1, 3000, NULL);
    check_status(p.sampler, xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_OK);
    publish(&p, 2, 3000, NULL);
    check_status(p.sampler, xorcast_subscriber_commit(p.subscriber, NULL), XORCAST_OK);
    check_status(p.sampler, xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    publish(&p, 3, 3000, NULL);
    const uint64_t before = fake_device_peer_bytes();
    /* an older version: its blocks are on the host alone */
    check_status(p.sampler, xorcast_subscriber_stage(p.subscriber, 2, TIMEOUT_MS), XORCAST_OK);
    assert_int_equal(fake_device_peer_bytes(), before);
    follow(&p, 3);
    close_pair(&p);
}

/* A context on the second device, or NULL if there is only one. */
static xorcast_context *second_device(void) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context = NULL;
    options.backend = test_device_name();
    options.device = 1;
    options.threads = 2;
    options.log_level = XORCAST_LOG_ERROR;
    const xorcast_status status = xorcast_context_create(&options, &context);
    assert_true(status == XORCAST_OK || status == XORCAST_UNSUPPORTED);
    return context;
}

/* The bounds that seal reports hold. */
static void test_bounds(void **state) {
    (void)state;
    pair p;
    xorcast_layout layout;
    xorcast_memory memory;
    open_pair(&p, "inproc:bounds", 2, true, NULL);
    xorcast_bundle *again = model_bundle_layout(p.sampler, &p.live, CHUNK, 5, &layout);
    xorcast_bundle_destroy(again);
    publish(&p, 1, 300000, NULL);
    follow(&p, 1);
    spoil(&p, "embed.weight", 12345);
    check_status(p.sampler, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    publish(&p, 2, 500000, NULL);
    follow(&p, 2);
    xorcast_context_memory(p.trainer, &memory);
    assert_true(memory.device_high_water_bytes <= layout.publisher_device_bytes);
    assert_true(memory.high_water_bytes <= layout.publisher_bytes + 3 * layout.delta_bound_bytes);
    xorcast_context_memory(p.sampler, &memory);
    assert_true(memory.device_high_water_bytes <=
                layout.subscriber_device_bytes + 2 * layout.delta_bound_bytes);
    assert_true(memory.high_water_bytes <= layout.subscriber_bytes + 3 * layout.delta_bound_bytes);
    close_pair(&p);
}

/* Trainer and sampler of one process, each on a GPU of its own. */
static void test_two_devices(void **state) {
    (void)state;
    pair p;
    xorcast_context *second = second_device();
    if (second == NULL) {
        print_message("there is one device only\n");
        skip();
    }
    open_pair(&p, "inproc:two", 2, true, NULL);
    disconnect_sampler(&p);
    device_model_free(p.sampler, &p.live);
    xorcast_context_destroy(p.sampler);
    p.sampler = second;
    device_model_create(p.sampler, &p.live, &p.published);
    connect_sampler(&p);
    const uint64_t before = fake_device_peer_bytes();
    for (uint64_t i = 0; i < sizeof densities / sizeof *densities; i++) {
        publish(&p, i + 1, densities[i], NULL);
        follow(&p, i + 1);
    }
    if (test_device_is_fake())
        assert_true(fake_device_peer_bytes() > before);
    spoil(&p, "embed.weight", 12345);
    check_status(p.sampler, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &p.published));
    close_pair(&p);
}

static void test_old_words_are_checked(void **state) {
    (void)state;
    pair p;
    open_pair(&p, "inproc:words", 2, false, NULL);
    publish(&p, 1, 200000, NULL);
    for (uint64_t at = 0; at < 64; at++)
        spoil(&p, "layers.0.packed", at);
    assert_int_equal(xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_BASE_MISMATCH);
    for (uint64_t at = 0; at < 64; at++)
        spoil(&p, "layers.0.packed", at);
    follow(&p, 1);
    close_pair(&p);
}

/* A bit of a part that the publisher holds is flipped. Whatever was read of it, the sampler refuses
 * the version, or gets the right weights if nobody needed that bit. */
static bool survive_flip(pair *p, uint8_t *byte, unsigned bit) {
    *byte ^= (uint8_t)(1u << bit);
    const xorcast_status status = xorcast_subscriber_stage(p->subscriber, 1, TIMEOUT_MS);
    if (status == XORCAST_OK) {
        check_status(p->sampler, xorcast_subscriber_commit(p->subscriber, NULL), XORCAST_OK);
        check_status(p->sampler, xorcast_subscriber_wait(p->subscriber, TIMEOUT_MS), XORCAST_OK);
        assert_true(device_model_equal(p->sampler, &p->live, &p->published));
        check_status(p->sampler, xorcast_subscriber_undo(p->subscriber), XORCAST_OK);
    }
    *byte ^= (uint8_t)(1u << bit);
    return status == XORCAST_OK;
}

static void flip_part(pair *p, const xci_blob *part, uint64_t counts[2]) {
    uint64_t random = part->size;
    /* The first record's head, byte by byte, then anything. */
    for (uint64_t i = 0; i < 160; i++) {
        const uint64_t at = i < 80 ? i : model_random(&random) % part->size;
        if (at < part->size)
            counts[survive_flip(p, &part->bytes[at], (unsigned)(i % 8))]++;
    }
}

static void test_damage_beside_a_device(void **state) {
    (void)state;
    pair p;
    xci_feed feed;
    xci_manifest manifest;
    xci_blob *blob, *part;
    uint64_t counts[2] = {0, 0}; /* refused, survived */
    model before;
    open_pair(&p, "inproc:damage", 2, true, NULL);
    model_create(&before, 7);
    publish(&p, 1, 6000, NULL);
    check_status(
        p.sampler,
        xci_feed_open(&feed, p.sampler, xorcast_publisher_url(p.publisher), false, XCI_FOREVER),
        XORCAST_OK);
    check_status(p.sampler,
                 xci_feed_manifest(&feed, 1, XCI_FORM_PLAIN, XCI_FOREVER, &manifest, &blob),
                 XORCAST_OK);
    for (uint64_t i = 0; i < manifest.info.part_count; i++) {
        char name[XCI_OBJECT_NAME_BYTES];
        xci_name_part(1, XCI_FORM_PLAIN, i, name);
        check_status(p.sampler,
                     xci_feed_get(&feed, name, manifest.parts[i].bytes, XCI_FOREVER, &part),
                     XORCAST_OK);
        flip_part(&p, part, counts);
        xci_blob_drop(part);
    }
    assert_true(counts[0] > 50 && (counts[1] > 50 || is_spread()));
    assert_true(device_model_equal(p.sampler, &p.live, &before));
    xci_manifest_free(p.sampler, &manifest);
    xci_blob_drop(blob);
    xci_feed_close(&feed);
    follow(&p, 1);
    model_free(&before);
    close_pair(&p);
}

static void test_undo(void **state) {
    (void)state;
    pair p;
    model before;
    open_pair(&p, "inproc:undo", 2, false, NULL);
    model_create(&before, 7);
    publish(&p, 1, 3000, NULL);
    assert_int_equal(xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_commit(p.subscriber, NULL), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_undo(p.subscriber), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &before));
    assert_int_equal(xorcast_subscriber_commit(p.subscriber, NULL), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_BAD_STATE);
    assert_int_equal(xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &p.published));
    assert_int_equal(xorcast_subscriber_undo(p.subscriber), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &before));
    check_status(p.sampler, xorcast_subscriber_audit(p.subscriber, 0), XORCAST_OK);
    follow(&p, 1);
    model_free(&before);
    close_pair(&p);
}

/* ---- Boxes: two ranks that hold the columns of a matrix, with room between rows ---- */

#define ROWS 96u
#define ROW_BYTES 4096u
#define HALF (ROW_BYTES / 2)
#define PITCH (HALF + 64)

typedef struct rank {
    uint8_t *half, *replica; /* device memory */
    xorcast_bundle *bundle;
    xorcast_subscriber *subscriber;
} rank;

static xorcast_bundle *matrix_bundle(xorcast_context *context, const xorcast_box *boxes,
                                     uint32_t box_count, void *data, uint32_t kind) {
    const uint64_t shape[2] = {ROWS, ROW_BYTES};
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    xorcast_bundle *bundle;
    options.chunk_bytes = CHUNK;
    options.group_bytes = 1 << 20;
    tensor.name = "matrix";
    tensor.dtype = "U8";
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.bytes = ROWS * ROW_BYTES;
    tensor.data = data;
    tensor.boxes = boxes;
    tensor.box_count = box_count;
    tensor.memory_kind = kind;
    assert_int_equal(xorcast_bundle_create(context, &options, &bundle), XORCAST_OK);
    check_status(context, xorcast_bundle_add(bundle, &tensor), XORCAST_OK);
    check_status(context, xorcast_bundle_seal(bundle, NULL), XORCAST_OK);
    return bundle;
}

static void put_half(xorcast_context *context, uint8_t *to, const uint8_t *matrix, uint32_t half) {
    for (uint32_t r = 0; r < ROWS; r++)
        device_put(context, to + r * PITCH, matrix + r * ROW_BYTES + half * HALF, HALF);
}

static void open_rank(rank *r, xorcast_context *context, const uint8_t *matrix, uint32_t half,
                      const char *url) {
    static const uint8_t canary[64] = {0xA5, 0xA5, 0xA5};
    r->half = device_memory(context, ROWS * PITCH);
    r->replica = device_memory(context, 16 * ROW_BYTES);
    for (uint32_t i = 0; i < ROWS; i++)
        device_put(context, r->half + i * PITCH + HALF, canary, sizeof canary);
    put_half(context, r->half, matrix, half);
    device_put(context, r->replica, matrix + 8 * ROW_BYTES, 16 * ROW_BYTES);
    const xorcast_box boxes[] = {{0, ROWS, half * HALF, HALF, r->half, PITCH, 0},
                                 {8, 16, 0, ROW_BYTES, r->replica, ROW_BYTES, XORCAST_BOX_REPLICA}};
    r->bundle = matrix_bundle(context, boxes, 2, NULL, XORCAST_MEMORY_DEVICE);
    check_status(context, xorcast_subscriber_open(r->bundle, url, NULL, &r->subscriber),
                 XORCAST_OK);
}

static void check_rank(const rank *r, xorcast_context *context, const uint8_t *matrix,
                       uint32_t half) {
    uint8_t row[PITCH], rows[16 * ROW_BYTES];
    for (uint32_t i = 0; i < ROWS; i++) {
        device_get(context, row, r->half + i * PITCH, PITCH);
        assert_memory_equal(row, matrix + i * ROW_BYTES + half * HALF, HALF);
        assert_int_equal(row[HALF], 0xA5);
        assert_int_equal(row[PITCH - 1], 0);
    }
    device_get(context, rows, r->replica, sizeof rows);
    assert_memory_equal(rows, matrix + 8 * ROW_BYTES, sizeof rows);
}

static void adopt(rank ranks[2], xorcast_context *context) {
    xorcast_subscriber_stats a, b;
    xorcast_subscriber_get_stats(ranks[0].subscriber, &a);
    xorcast_subscriber_get_stats(ranks[1].subscriber, &b);
    const xorcast_digest sum = {
        {a.digest.lane[0] + b.digest.lane[0], a.digest.lane[1] + b.digest.lane[1]}};
    for (unsigned i = 0; i < 2; i++)
        check_status(context, xorcast_subscriber_adopt(ranks[i].subscriber, &sum), XORCAST_OK);
}

static void follow_ranks(rank ranks[2], xorcast_context *context, const uint8_t *matrix,
                         uint64_t step) {
    for (uint32_t i = 0; i < 2; i++) {
        xorcast_subscriber *subscriber = ranks[i].subscriber;
        uint64_t newest;
        check_status(context, xorcast_subscriber_poll(subscriber, TIMEOUT_MS, &newest), XORCAST_OK);
        assert_int_equal(newest, step);
        check_status(context, xorcast_subscriber_stage(subscriber, step, TIMEOUT_MS), XORCAST_OK);
        check_status(context, xorcast_subscriber_commit(subscriber, NULL), XORCAST_OK);
        check_status(context, xorcast_subscriber_wait(subscriber, TIMEOUT_MS), XORCAST_OK);
        check_status(context, xorcast_subscriber_audit(subscriber, 0), XORCAST_OK);
        check_rank(&ranks[i], context, matrix, i);
    }
}

static void test_boxes(void **state) {
    (void)state;
    xorcast_context *trainer = test_context(2), *sampler = test_device_context(2);
    uint8_t *matrix = malloc(ROWS * ROW_BYTES);
    uint64_t random = 5;
    xorcast_publisher *publisher;
    rank ranks[2];
    assert_non_null(matrix);
    for (uint32_t i = 0; i < ROWS * ROW_BYTES; i++)
        matrix[i] = (uint8_t)model_random(&random);
    xorcast_bundle *from = matrix_bundle(trainer, NULL, 0, matrix, XORCAST_MEMORY_HOST);
    check_status(trainer, xorcast_publisher_open(from, "inproc:boxes", NULL, &publisher),
                 XORCAST_OK);
    for (uint32_t i = 0; i < 2; i++)
        open_rank(&ranks[i], sampler, matrix, i, "inproc:boxes");
    adopt(ranks, sampler);
    for (uint64_t step = 1; step <= 4; step++) {
        for (uint32_t i = 0; i < ROWS * ROW_BYTES; i++)
            matrix[i] ^= model_random(&random) % 100 < step * step ? 0x41 : 0;
        check_status(trainer, xorcast_publisher_begin(publisher, step), XORCAST_OK);
        check_status(trainer, xorcast_publisher_put(publisher, 0, NULL, NULL), XORCAST_OK);
        check_status(trainer, xorcast_publisher_finish(publisher, NULL), XORCAST_OK);
        follow_ranks(ranks, sampler, matrix, step);
    }
    const uint8_t wrong = 0x99;
    device_put(sampler, ranks[1].half + 5 * PITCH + 9, &wrong, 1);
    check_status(sampler, xorcast_subscriber_keyframe(ranks[1].subscriber, TIMEOUT_MS), XORCAST_OK);
    check_rank(&ranks[1], sampler, matrix, 1);
    for (uint32_t i = 0; i < 2; i++) {
        xorcast_subscriber_close(ranks[i].subscriber);
        xorcast_bundle_destroy(ranks[i].bundle);
        device_memory_free(sampler, ranks[i].half);
        device_memory_free(sampler, ranks[i].replica);
    }
    xorcast_publisher_close(publisher);
    xorcast_bundle_destroy(from);
    xorcast_context_destroy(trainer);
    xorcast_context_destroy(sampler);
    free(matrix);
}

/* ---- What the pause may not do ---- */

static atomic_uint_fast64_t host_allocations;

static void *counted_allocate(void *user, size_t bytes) {
    (void)user;
    atomic_fetch_add(&host_allocations, 1);
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void counted_release(void *user, void *memory) {
    (void)user;
    if (memory != NULL)
        atomic_fetch_add(&host_allocations, 1);
    free(memory);
}

static void sampler_with_counted_memory(pair *p) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    disconnect_sampler(p);
    device_model_free(p->sampler, &p->live);
    xorcast_context_destroy(p->sampler);
    options.threads = 2;
    options.allocate = counted_allocate;
    options.release = counted_release;
    p->sampler = test_device_context_with(&options);
    device_model_create(p->sampler, &p->live, &p->published);
    connect_sampler(p);
}

/* Commit takes and gives back no memory of any kind, the host waits for nothing, and all work on
 * the caller's device is on its stream; addresses stay where they are. */
static void test_commit_is_quiet(void **state) {
    (void)state;
    pair p;
    void *stream;
    if (!test_device_is_fake()) {
        print_message("only the stand-in counts\n");
        skip();
    }
    open_pair(&p, "inproc:quiet", 2, false, NULL);
    sampler_with_counted_memory(&p);
    const xci_device *d = p.sampler->shared->device;
    assert_int_equal(d->ops->stream_open(d->handle, &stream), 0);
    for (uint64_t step = 1; step <= 3; step++) {
        publish(&p, step, 5000, NULL);
        check_status(p.sampler, xorcast_subscriber_stage(p.subscriber, step, TIMEOUT_MS),
                     XORCAST_OK);
        const uint64_t before = atomic_load(&host_allocations);
        fake_device_count(stream);
        check_status(p.sampler, xorcast_subscriber_commit(p.subscriber, stream), XORCAST_OK);
        const fake_counts counts = fake_device_counted();
        assert_int_equal(atomic_load(&host_allocations), before);
        assert_int_equal(counts.allocations + counts.releases + counts.waits, 0);
        assert_int_equal(counts.put_elsewhere > 0, is_spread());
        assert_true(counts.put > 0 && counts.put < 10);
        check_status(p.sampler, xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS), XORCAST_OK);
        assert_true(device_model_equal(p.sampler, &p.live, &p.published));
    }
    assert_int_equal(d->ops->stream_close(d->handle, stream), 0);
    fake_device_count(NULL);
    close_pair(&p);
}

/* A stream that is captured takes neither a commit nor what stage and put wait for; nothing has
 * happened then, and all of it works afterwards. */
static void test_captured_streams(void **state) {
    (void)state;
    pair p;
    xorcast_error error;
    void *stream;
    if (!test_device_is_fake()) {
        print_message("tests/gpu/test_cuda_graph captures on a GPU\n");
        skip();
    }
    open_pair(&p, "inproc:captured", 2, true, NULL);
    void *sampler = p.sampler->shared->device->handle, *trainer = p.trainer->shared->device->handle;
    assert_int_equal(p.sampler->shared->device->ops->stream_open(sampler, &stream), 0);
    model_step(&p.published, 3, 4000);
    device_model_put(p.trainer, &p.from_device, &p.published);
    check_status(p.trainer, xorcast_publisher_begin(p.publisher, 1), XORCAST_OK);
    fake_stream_capture(trainer, NULL, true);
    check_status(p.trainer, xorcast_publisher_put(p.publisher, 0, NULL, NULL), XORCAST_BAD_STATE);
    fake_stream_capture(trainer, NULL, false);
    xorcast_publisher_abort(p.publisher);
    check_status(p.trainer, xorcast_publisher_begin(p.publisher, 1), XORCAST_OK);
    check_status(p.trainer, xorcast_publisher_put(p.publisher, 0, NULL, NULL), XORCAST_OK);
    check_status(p.trainer, xorcast_publisher_finish(p.publisher, NULL), XORCAST_OK);
    fake_stream_capture(sampler, NULL, true);
    check_status(p.sampler, xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS),
                 XORCAST_BAD_STATE);
    fake_stream_capture(sampler, NULL, false);
    check_status(p.sampler, xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_OK);
    fake_stream_capture(sampler, stream, true);
    check_status(p.sampler, xorcast_subscriber_commit(p.subscriber, stream), XORCAST_BAD_STATE);
    xorcast_last_error(p.sampler, &error);
    assert_non_null(strstr(error.text, "captured"));
    fake_stream_capture(sampler, stream, false);
    assert_false(device_model_equal(p.sampler, &p.live, &p.published));
    check_status(p.sampler, xorcast_subscriber_commit(p.subscriber, stream), XORCAST_OK);
    check_status(p.sampler, xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(p.sampler, &p.live, &p.published));
    assert_int_equal(p.sampler->shared->device->ops->stream_close(sampler, stream), 0);
    close_pair(&p);
}

/* ---- Deltas without a link, and what is refused ---- */

static void test_delta_calls(void **state) {
    (void)state;
    xorcast_context *host = test_context(2), *context = test_device_context(2);
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    xorcast_delta_info info;
    xorcast_digest a, b;
    model old, new, device, device_new;
    test_bytes delta = {0}, same = {0};
    const xorcast_sink sink = test_sink(&delta), same_sink = test_sink(&same);
    model_create(&old, 7);
    model_create(&new, 7);
    model_step(&new, 3, 4000);
    device_model_create(context, &device, &old);
    device_model_create(context, &device_new, &new);
    xorcast_bundle *from = model_bundle(host, &old, CHUNK, 1),
                   *to = model_bundle(host, &new, CHUNK, 2);
    xorcast_bundle *on_device = model_bundle(context, &device, CHUNK, 3);
    xorcast_bundle *on_device_new = model_bundle(context, &device_new, CHUNK, 4);
    check_status(host, xorcast_delta_encode(from, to, &options, &sink, NULL), XORCAST_OK);
    check_status(context,
                 xorcast_delta_encode(on_device, on_device_new, &options, &same_sink, NULL),
                 XORCAST_OK);
    assert_int_equal(same.count, delta.count);
    assert_memory_equal(same.bytes, delta.bytes, delta.count);
    const xorcast_source source = test_source(&delta);
    check_status(context, xorcast_delta_check(on_device, &source, &info), XORCAST_OK);
    assert_true(device_model_equal(context, &device, &old));
    check_status(context, xorcast_delta_apply(on_device, &source, &info), XORCAST_OK);
    assert_true(device_model_equal(context, &device, &new));
    check_status(context, xorcast_delta_apply(on_device, &source, NULL), XORCAST_BASE_MISMATCH);
    assert_int_equal(xorcast_bundle_digest(on_device, &a), XORCAST_OK);
    assert_int_equal(xorcast_bundle_digest(to, &b), XORCAST_OK);
    assert_memory_equal(&a, &b, sizeof a);
    options.encoding.codec = XORCAST_CODEC_GAP;
    options.encoding.old_weights = 1;
    delta.count = 0;
    check_status(host, xorcast_delta_encode(from, to, &options, &sink, NULL), XORCAST_OK);
    const xorcast_source beside = test_source(&delta);
    device_model_put(context, &device, &old);
    check_status(context, xorcast_delta_apply(on_device, &beside, &info),
                 is_spread() ? XORCAST_UNSUPPORTED : XORCAST_OK);
    assert_true(device_model_equal(context, &device, is_spread() ? &old : &new));
    assert_int_equal(info.needs_old_weights, !is_spread());
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    xorcast_bundle_destroy(on_device);
    xorcast_bundle_destroy(on_device_new);
    device_model_free(context, &device);
    device_model_free(context, &device_new);
    xorcast_context_destroy(host);
    xorcast_context_destroy(context);
    model_free(&old);
    model_free(&new);
    test_bytes_free(&delta);
    test_bytes_free(&same);
}

static xorcast_status add_bytes(xorcast_bundle *bundle, const char *name, void *data,
                                uint32_t kind) {
    const uint64_t shape[1] = {5000};
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.dtype = "U8";
    tensor.shape = shape;
    tensor.rank = 1;
    tensor.bytes = 5000;
    tensor.data = data;
    tensor.memory_kind = kind;
    return xorcast_bundle_add(bundle, &tensor);
}

static void test_refusals(void **state) {
    (void)state;
    static uint8_t host_bytes[5000];
    xorcast_context *context = test_device_context(1), *host;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_subscriber_options subscriber_options = XORCAST_SUBSCRIBER_OPTIONS_INIT;
    xorcast_bundle *bundle;
    xorcast_subscriber *subscriber;
    xorcast_error error;
    uint8_t *memory = device_memory(context, 5000);
    assert_int_equal(xorcast_bundle_create(context, NULL, &bundle), XORCAST_OK);
    assert_int_equal(add_bytes(bundle, "a", host_bytes, XORCAST_MEMORY_DEVICE),
                     XORCAST_BAD_ARGUMENT);
    assert_int_equal(add_bytes(bundle, "a", memory, 2), XORCAST_BAD_ARGUMENT);
    assert_int_equal(add_bytes(bundle, "a", memory, XORCAST_MEMORY_DEVICE), XORCAST_OK);
    assert_int_equal(add_bytes(bundle, "b", host_bytes, XORCAST_MEMORY_HOST), XORCAST_OK);
    assert_int_equal(xorcast_bundle_seal(bundle, NULL), XORCAST_UNSUPPORTED);
    xorcast_bundle_destroy(bundle);

    assert_int_equal(xorcast_bundle_create(context, NULL, &bundle), XORCAST_OK);
    assert_int_equal(add_bytes(bundle, "a", memory, XORCAST_MEMORY_DEVICE), XORCAST_OK);
    assert_int_equal(xorcast_bundle_seal(bundle, NULL), XORCAST_OK);
    subscriber_options.journal_path = "journal";
    assert_int_equal(
        xorcast_subscriber_open(bundle, "inproc:none", &subscriber_options, &subscriber),
        XORCAST_UNSUPPORTED);
    xorcast_bundle_destroy(bundle);

    options.backend = "cpu";
    assert_int_equal(xorcast_context_create(&options, &host), XORCAST_OK);
    assert_int_equal(xorcast_bundle_create(host, NULL, &bundle), XORCAST_OK);
    assert_int_equal(add_bytes(bundle, "a", memory, XORCAST_MEMORY_DEVICE), XORCAST_UNSUPPORTED);
    xorcast_last_error(host, &error);
    assert_non_null(strstr(error.text, "cuda"));
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(host);
    device_memory_free(context, memory);
    xorcast_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampler_densities),
        cmocka_unit_test(test_sampler_codecs),
        cmocka_unit_test(test_late_joiner),
        cmocka_unit_test(test_keyframes),
        cmocka_unit_test(test_device_to_device),
        cmocka_unit_test(test_little_room_for_peers),
        cmocka_unit_test(test_pieces_to_a_peer),
        cmocka_unit_test(test_publisher_is_ahead_of_a_peer),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_old_words_are_checked),
        cmocka_unit_test(test_damage_beside_a_device),
        cmocka_unit_test(test_undo),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_commit_is_quiet),
        cmocka_unit_test(test_captured_streams),
        cmocka_unit_test(test_delta_calls),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
