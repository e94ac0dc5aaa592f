/* Weights on two devices, the stand-in's or real ones: tensors that lie on one or the other, and
 * some that lie on both, by rows and by columns. A publisher of them makes the same objects, byte
 * for byte, as one of the same weights on the host; a sampler follows with them; streams of both
 * devices are ordered as the interface says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/device.h"
#include "delta/device_scans.h"
#include "delta/scan.h"
#include "frame/about.h"
#include "publish/device_encode.h"
#include "publish/device_join.h"
#include "ship/link.h"
#include "bundle/shares.h"
#include "support/device_model.h"
#include "support/fake_device.h"
#include "support/expect_status.h"
#include "support/sanitizers.h"
#include "support/twin_publishers.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u
#define GROUP (UINT64_C(1) << 20)
#define SKIPPED 77
#define PIECES 3u /* a tensor lies in so many at most */

/* Variants are many; the thread sanitizer, to which they are alike, is slow. */
#if TEST_THREAD_SANITIZER
#define VARIANT_STEP 5u
#define SHRINK 8u
#else
#define VARIANT_STEP 1u
#define SHRINK 1u
#endif
#define BIG(rows) ((rows) / SHRINK)

/* ---- Weights that lie on two devices ---- */

typedef enum lie {
    HERE,    /* on the first device */
    THERE,   /* on the second */
    ROWS,    /* some rows here, the others there */
    COLUMNS, /* some columns here, the others there */
    TWICE    /* whole on both: the second is a replica */
} lie;

typedef struct about_tensor {
    const char *name, *dtype;
    uint32_t width;
    uint64_t rows, columns;
    lie lie;
} about_tensor;

/* Odd sizes, empty and small ones; groups of one device and of both. */
static const about_tensor abouts[] = {
    {"a.large", "BF16", 2, BIG(1500), 801, HERE}, {"b.large", "BF16", 2, BIG(1403), 999, THERE},
    {"c.rows", "BF16", 2, BIG(1200), 1004, ROWS}, {"d.columns", "U8", 1, BIG(2000), 2048, COLUMNS},
    {"e.next", "F32", 4, BIG(300), 1000, THERE},  {"f.small", "F32", 4, 1, 3, HERE},
    {"g.small", "F32", 4, 1, 5, THERE},           {"h.empty", "BF16", 2, 0, 7, HERE},
    {"i.small.rows", "U8", 1, 100, 16, ROWS},     {"j.odd", "U8", 1, 1, 70001, THERE},
    {"k.twice", "BF16", 2, 64, 512, TWICE},       {"l.scale", "F8_E4M3", 1, 31, 33, THERE},
    {"m.tail", "BF16", 2, BIG(1000), 1100, HERE}, {"n.one", "I8", 1, 1, 1, THERE},
};
#define COUNT (sizeof abouts / sizeof *abouts)

typedef struct piece {
    xorcast_context *context;
    xorcast_box box;
} piece;

typedef struct weights {
    xorcast_context *contexts[2];
    piece pieces[COUNT][PIECES];
    uint32_t piece_count[COUNT];
    bool replicas;
} weights;

static void model_of_two(model *m, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->random = seed;
    for (uint32_t i = 0; i < COUNT; i++)
        model_add(m, abouts[i].name, abouts[i].dtype, abouts[i].width, 2, abouts[i].rows,
                  abouts[i].columns);
}

static void add_piece(weights *w, uint32_t i, unsigned device, uint64_t row, uint64_t rows,
                      uint64_t column, uint64_t columns, uint32_t flags) {
    const uint64_t pitch = flags != 0 ? columns + 64 : columns; /* a replica's rows lie apart */
    xorcast_context *context = w->contexts[device];
    w->pieces[i][w->piece_count[i]++] = (piece){
        context,
        {row, rows, column, columns, device_memory_on(context, rows * pitch), pitch, flags}};
}

static void place_tensor(weights *w, uint32_t i) {
    const about_tensor *t = &abouts[i];
    const uint64_t row_bytes = t->columns * t->width, half = t->rows * 2 / 5;
    if (t->rows == 0)
        return;
    switch (t->lie) {
    case ROWS:
        add_piece(w, i, 1, 0, half, 0, row_bytes, 0);
        add_piece(w, i, 0, half, t->rows - half, 0, row_bytes, 0);
        break;
    case COLUMNS:
        add_piece(w, i, 0, 0, t->rows, 0, row_bytes / 2, 0);
        add_piece(w, i, 1, 0, t->rows, row_bytes / 2, row_bytes / 2, 0);
        break;
    default:
        add_piece(w, i, t->lie == THERE, 0, t->rows, 0, row_bytes, 0);
    }
    if (t->lie == TWICE && w->replicas)
        add_piece(w, i, 1, 0, t->rows, 0, row_bytes, XORCAST_BOX_REPLICA);
}

/* Between the model's bytes and those on the devices. */
static void copy_piece(const piece *p, uint8_t *bytes, uint64_t row_bytes, bool to_device) {
    for (uint64_t r = 0; r < p->box.row_count; r++) {
        uint8_t *host = bytes + (p->box.row + r) * row_bytes + p->box.column;
        uint8_t *device = (uint8_t *)p->box.data + r * p->box.pitch_bytes;
        if (to_device)
            device_put(p->context, device, host, p->box.column_bytes);
        else
            device_get(p->context, host, device, p->box.column_bytes);
    }
}

static void copy_weights(const weights *w, const model *m, bool to_device) {
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t p = 0; p < w->piece_count[i]; p++)
            copy_piece(&w->pieces[i][p], m->tensors[i].data, abouts[i].columns * abouts[i].width,
                       to_device);
}

static bool same_weights(const weights *w, const model *m) {
    model got;
    bool same = true;
    model_of_two(&got, 1);
    for (uint32_t p = 0; p < PIECES; p++) { /* replicas after what they replicate */
        for (uint32_t i = 0; i < COUNT; i++)
            if (p < w->piece_count[i])
                copy_piece(&w->pieces[i][p], got.tensors[i].data,
                           abouts[i].columns * abouts[i].width, false);
        if (p == 1)
            same = model_equal(&got, m);
    }
    same = same && model_equal(&got, m);
    model_free(&got);
    return same;
}

/* `first`: the number of the context's device; the other is the second. */
static void open_weights(weights *w, uint32_t threads, const model *m, bool replicas) {
    memset(w, 0, sizeof *w);
    w->replicas = replicas;
    w->contexts[0] = test_device_context(threads);
    assert_int_equal(xci_context_beside(w->contexts[0], 1, &w->contexts[1]), XORCAST_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        place_tensor(w, i);
    copy_weights(w, m, true);
}

static void close_weights(weights *w) {
    xorcast_memory memory;
    xorcast_context_memory(w->contexts[0], &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t p = 0; p < w->piece_count[i]; p++)
            device_memory_free(w->pieces[i][p].context, w->pieces[i][p].box.data);
    xorcast_context_destroy(w->contexts[1]);
    xorcast_context_destroy(w->contexts[0]);
}

/* Of the device's memory, or, `w` NULL, of the model's. */
static xorcast_bundle *make_bundle(xorcast_context *context, const weights *w, const model *m,
                                   xorcast_layout *layout) {
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_bundle *bundle;
    options.chunk_bytes = CHUNK;
    options.group_bytes = GROUP;
    check_status(context, xorcast_bundle_create(context, &options, &bundle), XORCAST_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint64_t shape[2] = {abouts[i].rows, abouts[i].columns};
        xorcast_box boxes[PIECES];
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = abouts[i].name;
        tensor.dtype = abouts[i].dtype;
        tensor.shape = shape;
        tensor.rank = 2;
        tensor.bytes = m->tensors[i].bytes;
        tensor.data = m->tensors[i].data;
        if (w != NULL) {
            tensor.memory_kind = XORCAST_MEMORY_DEVICE;
            tensor.data = w->piece_count[i] == 1 ? w->pieces[i][0].box.data : NULL;
            tensor.box_count = w->piece_count[i] > 1 ? w->piece_count[i] : 0;
            tensor.boxes = boxes;
            for (uint32_t p = 0; p < w->piece_count[i]; p++)
                boxes[p] = w->pieces[i][p].box;
        }
        check_status(context, xorcast_bundle_add(bundle, &tensor), XORCAST_OK);
    }
    check_status(context, xorcast_bundle_seal(bundle, layout), XORCAST_OK);
    return bundle;
}

/* ---- The same bytes as from the host ---- */

typedef struct twins {
    model published;
    weights device;
    twin_publishers both;
    xorcast_layout layout;
} twins;

static void open_twins(twins *t, const xorcast_publisher_options *wanted) {
    static const char *const urls[] = {"inproc:of-host", "inproc:of-two"};
    memset(t, 0, sizeof *t);
    model_of_two(&t->published, 5);
    open_weights(&t->device, 3, &t->published, false);
    t->both.context[0] = test_context(2);
    t->both.context[1] = t->device.contexts[0];
    t->both.bundle[0] = make_bundle(t->both.context[0], NULL, &t->published, NULL);
    t->both.bundle[1] = make_bundle(t->both.context[1], &t->device, &t->published, &t->layout);
    twins_open(&t->both, urls, wanted);
}

static void close_twins(twins *t) {
    xorcast_memory memory;
    xorcast_context_memory(t->both.context[1], &memory);
    assert_true(memory.device_high_water_bytes <= t->layout.publisher_device_bytes);
    twins_close(&t->both);
    close_weights(&t->device);
    xorcast_context_destroy(t->both.context[0]);
    model_free(&t->published);
    if (test_device_is_fake())
        assert_int_equal(fake_device_open_things(), 0);
}

/* The version's objects, and what the shadows hold. */
static void same_version(twins *t, uint64_t step) {
    twins_same_version(&t->both, step);
    twins_same_shadow(&t->both, t->layout.group_count);
}

static void publish_whole(twins *t, uint64_t step, uint32_t per_million) {
    model_step(&t->published, step * 7 + 1, per_million);
    copy_weights(&t->device, &t->published, true);
    twins_publish(&t->both, step);
    same_version(t, step);
}

/* Columns that lie on both devices are at home on both, in turns. */
static void check_homes(const xorcast_bundle *bundle) {
    bool joined[2] = {false, false};
    for (uint64_t c = 0; c < bundle->whole_chunk_count; c++)
        if (xci_joined(bundle, c))
            joined[xci_home(bundle, c)] = true;
    assert_true(SHRINK > 1 || (joined[0] && joined[1]));
}

static void test_same_bytes(void **state) {
    (void)state;
    static const uint32_t codecs[] = {0, XORCAST_CODEC_GAP, XORCAST_CODEC_AUTO, XORCAST_CODEC_RAW};
    for (unsigned variant = 0; variant < 8; variant += VARIANT_STEP) {
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        twins t;
        options.encoding.codec = codecs[variant / 2];
        options.encoding.old_weights = variant == 2 || variant == 5;
        options.encoding.second_pass = variant % 2;
        options.shadow_in_host = variant == 1 || variant == 3;
        xci_device_join_limit(variant % 3 == 0);    /* joined chunks come in several lots */
        xci_device_encoder_limit(variant % 3 == 0); /* and do not fit */
        open_twins(&t, &options);
        check_homes(t.both.bundle[1]);
        publish_whole(&t, 1, 3000);
        publish_whole(&t, 2, 0);
        publish_whole(&t, 3, variant == 0 ? 700000 : 40);
        close_twins(&t);
    }
    xci_device_join_limit(0);
    xci_device_encoder_limit(0);
}

/* ---- What put takes ---- */

static uint64_t index_of(twins *t, unsigned i, const char *name) {
    uint64_t index;
    check_status(t->both.context[i], xorcast_bundle_find(t->both.bundle[i], name, &index),
                 XORCAST_OK);
    return index;
}

/* One tensor after the other, backwards; every third is kept, small ones on both devices too. */
static void test_one_by_one(void **state) {
    (void)state;
    for (unsigned variant = 0; variant < 4; variant += VARIANT_STEP) {
        xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
        twins t;
        options.shadow_in_host = variant % 2;
        options.encoding.codec = variant / 2 ? XORCAST_CODEC_GAP : 0;
        open_twins(&t, &options);
        for (uint64_t step = 1; step <= 3; step++) {
            model_step(&t.published, step + 40, 2000);
            copy_weights(&t.device, &t.published, true);
            for (unsigned i = 0; i < 2; i++)
                check_status(t.both.context[i], xorcast_publisher_begin(t.both.publisher[i], step),
                             XORCAST_OK);
            for (uint32_t k = COUNT; k-- > 0;)
                for (unsigned i = 0; i < 2; i++) {
                    const uint64_t index = index_of(&t, i, abouts[k].name);
                    check_status(t.both.context[i],
                                 (k + step) % 3 == 0
                                     ? xorcast_publisher_keep(t.both.publisher[i], 1, &index)
                                     : xorcast_publisher_put(t.both.publisher[i], 1, &index, NULL),
                                 XORCAST_OK);
                }
            for (unsigned i = 0; i < 2; i++)
                check_status(t.both.context[i], xorcast_publisher_finish(t.both.publisher[i], NULL),
                             XORCAST_OK);
            same_version(&t, step);
        }
        close_twins(&t);
    }
}

/* New bytes come from the device that the tensor lies on, and from no other memory where it lies on
 * both; nothing has happened after a refusal. */
static void test_refusals(void **state) {
    (void)state;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    twins t;
    open_twins(&t, &options);
    const uint64_t here = index_of(&t, 1, "a.large"), both = index_of(&t, 1, "c.rows");
    const uint64_t bytes = t.published.tensors[0].bytes;
    void *on_first = device_memory_on(t.device.contexts[0], bytes);
    void *on_second = device_memory_on(t.device.contexts[1], bytes);
    const void *first = on_first, *second = on_second;
    device_put(t.device.contexts[0], on_first, t.published.tensors[0].data, bytes);
    check_status(t.both.context[1], xorcast_publisher_begin(t.both.publisher[1], 1), XORCAST_OK);
    assert_int_equal(xorcast_publisher_put(t.both.publisher[1], 1, &here, &second),
                     XORCAST_BAD_ARGUMENT);
    assert_int_equal(xorcast_publisher_put(t.both.publisher[1], 1, &both, &first),
                     XORCAST_BAD_ARGUMENT);
    check_status(t.both.context[1], xorcast_publisher_put(t.both.publisher[1], 1, &here, &first),
                 XORCAST_OK);
    xorcast_publisher_abort(t.both.publisher[1]);
    publish_whole(&t, 1, 500);
    device_memory_free(t.device.contexts[0], on_first);
    device_memory_free(t.device.contexts[1], on_second);
    close_twins(&t);
}

/* A publisher on two devices takes no replicas. */
static void test_replicas(void **state) {
    (void)state;
    weights w;
    model m;
    xorcast_publisher *publisher;
    model_of_two(&m, 5);
    open_weights(&w, 1, &m, true);
    xorcast_bundle *bundle = make_bundle(w.contexts[0], &w, &m, NULL);
    assert_int_equal(xorcast_publisher_open(bundle, "inproc:replicas", NULL, &publisher),
                     XORCAST_UNSUPPORTED);
    xorcast_bundle_destroy(bundle);
    close_weights(&w);
    model_free(&m);
}

/* A version that was dropped leaves no trace on either device. */
static void test_abort(void **state) {
    (void)state;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    twins t;
    open_twins(&t, &options);
    for (uint64_t step = 1; step <= 2; step++) {
        model_step(&t.published, step + 70, 9000);
        copy_weights(&t.device, &t.published, true);
        check_status(t.both.context[1], xorcast_publisher_begin(t.both.publisher[1], step),
                     XORCAST_OK);
        check_status(t.both.context[1], xorcast_publisher_put(t.both.publisher[1], 0, NULL, NULL),
                     XORCAST_OK);
        xorcast_publisher_abort(t.both.publisher[1]);
        publish_whole(&t, step, 300);
    }
    close_twins(&t);
}

/* ---- Samplers ---- */

typedef struct pair {
    model published;
    weights from, to;
    xorcast_bundle *from_bundle, *to_bundle;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_layout layout; /* of the sampler */
} pair;

static void open_pair(pair *p, const char *url, uint64_t seed, const xorcast_encoding *encoding) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    model other;
    memset(p, 0, sizeof *p);
    model_of_two(&p->published, 5);
    model_of_two(&other, seed);
    open_weights(&p->from, 3, &p->published, false);
    open_weights(&p->to, 2, &other, true);
    p->from_bundle = make_bundle(p->from.contexts[0], &p->from, &p->published, NULL);
    p->to_bundle = make_bundle(p->to.contexts[0], &p->to, &p->published, &p->layout);
    if (encoding != NULL)
        options.encoding = *encoding;
    options.log_bytes = 1 << 26;
    check_status(p->from.contexts[0],
                 xorcast_publisher_open(p->from_bundle, url, &options, &p->publisher), XORCAST_OK);
    check_status(p->to.contexts[0],
                 xorcast_subscriber_open(p->to_bundle, xorcast_publisher_url(p->publisher), NULL,
                                         &p->subscriber),
                 XORCAST_OK);
    model_free(&other);
}

static void close_pair(pair *p) {
    xorcast_memory memory;
    xorcast_context_memory(p->to.contexts[0], &memory);
    assert_true(memory.device_high_water_bytes <=
                p->layout.subscriber_device_bytes + p->layout.delta_bound_bytes);
    xorcast_subscriber_close(p->subscriber);
    xorcast_publisher_close(p->publisher);
    xorcast_bundle_destroy(p->from_bundle);
    xorcast_bundle_destroy(p->to_bundle);
    close_weights(&p->from);
    close_weights(&p->to);
    model_free(&p->published);
    if (test_device_is_fake())
        assert_int_equal(fake_device_open_things(), 0);
}

static void publish(pair *p, uint64_t step, uint32_t per_million) {
    xorcast_context *context = p->from.contexts[0];
    model_step(&p->published, step + 90, per_million);
    copy_weights(&p->from, &p->published, true);
    check_status(context, xorcast_publisher_begin(p->publisher, step), XORCAST_OK);
    check_status(context, xorcast_publisher_put(p->publisher, 0, NULL, NULL), XORCAST_OK);
    check_status(context, xorcast_publisher_finish(p->publisher, NULL), XORCAST_OK);
}

static void follow(pair *p, uint64_t step) {
    xorcast_context *context = p->to.contexts[0];
    xorcast_subscriber_stats stats;
    check_status(context, xorcast_subscriber_stage(p->subscriber, step, TIMEOUT_MS), XORCAST_OK);
    check_status(context, xorcast_subscriber_commit(p->subscriber, NULL), XORCAST_OK);
    check_status(context, xorcast_subscriber_wait(p->subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(same_weights(&p->to, &p->published));
    check_status(context, xorcast_subscriber_audit(p->subscriber, 0), XORCAST_OK);
    xorcast_subscriber_get_stats(p->subscriber, &stats);
    assert_int_equal(stats.version.step, step);
}

static void test_follow(void **state) {
    (void)state;
    static const uint32_t codecs[] = {0, XORCAST_CODEC_GAP, XORCAST_CODEC_AUTO};
    static const char *const urls[] = {"inproc:two", "tcp:127.0.0.1:0"};
    for (unsigned variant = 0; variant < 6; variant += VARIANT_STEP) {
        xorcast_encoding encoding = XORCAST_ENCODING_INIT;
        pair p;
        encoding.codec = codecs[variant / 2];
        encoding.old_weights = variant > 3; /* offered, and not taken */
        open_pair(&p, urls[variant % 2], 5, &encoding);
        const uint64_t peer_bytes = fake_device_peer_bytes();
        for (uint64_t step = 1; step <= 3; step++) {
            publish(&p, step, step == 2 ? 300000 : 2000);
            follow(&p, step);
        }
        /* Blocks of groups that lie on one device, on both sides. */
        if (variant == 0 && test_device_is_fake() && SHRINK == 1)
            assert_true(fake_device_peer_bytes() - peer_bytes > 2 * 1000 * 1000);
        publish(&p, 4, 100);
        publish(&p, 5, 100);
        follow(&p, 5); /* folded */
        check_status(p.to.contexts[0], xorcast_subscriber_undo(p.subscriber), XORCAST_OK);
        assert_false(same_weights(&p.to, &p.published));
        check_status(p.to.contexts[0], xorcast_subscriber_audit(p.subscriber, 0), XORCAST_OK);
        check_status(p.to.contexts[0], xorcast_subscriber_commit(p.subscriber, NULL), XORCAST_OK);
        check_status(p.to.contexts[0], xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS),
                     XORCAST_OK);
        assert_true(same_weights(&p.to, &p.published));
        close_pair(&p);
    }
}

/* From other weights, and after a byte was damaged on either device. */
static void test_keyframe(void **state) {
    (void)state;
    static const char *const damaged[] = {"a.large", "b.large", "d.columns", "g.small"};
    pair p;
    open_pair(&p, "inproc:keyframe", 6, NULL);
    xorcast_context *context = p.to.contexts[0];
    publish(&p, 1, 1000);
    assert_int_equal(xorcast_subscriber_stage(p.subscriber, 1, TIMEOUT_MS), XORCAST_VERSION_GONE);
    check_status(context, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(same_weights(&p.to, &p.published));
    for (unsigned d = 0; d < sizeof damaged / sizeof *damaged; d++) {
        const uint64_t step = d + 2;
        uint32_t i = 0;
        while (strcmp(abouts[i].name, damaged[d]) != 0)
            i++;
        const piece *hit = &p.to.pieces[i][p.to.piece_count[i] - 1];
        const uint8_t wrong[] = {0x5A, 0xA5, 0x5A};
        publish(&p, step, 500);
        follow(&p, step);
        device_put(hit->context, hit->box.data, wrong, sizeof wrong);
        assert_int_equal(xorcast_subscriber_audit(p.subscriber, 0), XORCAST_WEIGHTS_WRONG);
        check_status(context, xorcast_subscriber_keyframe(p.subscriber, TIMEOUT_MS), XORCAST_OK);
        assert_true(same_weights(&p.to, &p.published));
    }
    close_pair(&p);
}

/* ---- Scans ---- */

typedef struct taking {
    const xorcast_digest *wanted;
    uint8_t *seen;
    uint64_t chunks, slices, fail_at; /* slice; UINT64_MAX: none */
} taking;

static xorcast_status take(void *user, uint64_t first, uint64_t count,
                           const xorcast_digest *digests) {
    taking *t = user;
    if (t->slices == t->fail_at)
        return XORCAST_WEIGHTS_WRONG;
    assert_memory_equal(digests, t->wanted + first, count * sizeof *digests);
    for (uint64_t c = first; c < first + count; c++)
        assert_int_equal(t->seen[c]++, 0);
    t->chunks += count;
    t->slices++;
    return XORCAST_OK;
}

static void scan_in_slices(xorcast_bundle *bundle, const xorcast_digest *wanted, uint64_t slice) {
    const uint64_t chunk_count = bundle->layout.chunk_count;
    xci_device_scans scans;
    assert_int_equal(xci_device_scans_open(&scans, bundle, slice), XORCAST_OK);
    for (unsigned variant = 0; variant < 3; variant++) { /* whole, refused, by deadlines */
        taking t = {wanted, calloc(chunk_count, 1), 0, 0, variant == 1 ? 1 : UINT64_MAX};
        uint64_t position = 0;
        assert_non_null(t.seen);
        xorcast_status status =
            xci_device_scans_run(&scans, &position, variant == 2 ? 0 : XCI_FOREVER, take, &t);
        while (variant == 2 && status == XORCAST_IN_PROGRESS) {
            const uint64_t before = t.slices;
            status = xci_device_scans_run(&scans, &position, 0, take, &t);
            assert_int_equal(t.slices, before + 1);
        }
        const bool refused = variant == 1 && slice < chunk_count;
        assert_int_equal(status, refused ? XORCAST_WEIGHTS_WRONG : XORCAST_OK);
        assert_int_equal(t.chunks, refused ? slice : chunk_count);
        free(t.seen);
    }
    xci_device_scans_close(&scans);
}

/* Slices of any length give the digests that the host finds, each chunk once. */
static void test_scans(void **state) {
    (void)state;
    static const uint64_t slices[] = {1, 7, 100, UINT64_MAX};
    weights w;
    model m;
    xorcast_digest sum;
    model_of_two(&m, 5);
    open_weights(&w, 1, &m, true);
    xorcast_context *host_context = test_context(1);
    xorcast_bundle *host = make_bundle(host_context, NULL, &m, NULL);
    xorcast_bundle *bundle = make_bundle(w.contexts[0], &w, &m, NULL);
    const uint64_t chunk_count = host->layout.chunk_count;
    xorcast_digest *wanted = calloc(chunk_count, sizeof *wanted);
    assert_non_null(wanted);
    assert_int_equal(xci_bundle_scan(host, wanted, &sum), XORCAST_OK);
    for (unsigned i = SHRINK > 1; i < sizeof slices / sizeof *slices; i++)
        scan_in_slices(bundle, wanted, slices[i]);
    free(wanted);
    xorcast_bundle_destroy(host);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(host_context);
    close_weights(&w);
    model_free(&m);
}

/* ---- Order ---- */

/* What is queued on the caller's stream, and on the default stream of the other device, is written
 * before put reads it; and what follows a commit on its stream comes after all of it. */
static void test_order(void **state) {
    (void)state;
    pair p;
    void *stream;
    open_pair(&p, "inproc:order", 5, NULL);
    const xci_device *first = p.from.contexts[0]->shared->device,
                     *second = p.from.contexts[1]->shared->device;
    const xci_device *sampler = p.to.contexts[0]->shared->device;
    const piece *here = &p.from.pieces[0][0], *there = &p.from.pieces[1][0];
    for (uint64_t step = 1; step <= 3; step++) {
        memset(p.published.tensors[0].data, (int)step, 5000);
        memset(p.published.tensors[1].data, (int)step + 100, 5000);
        assert_int_equal(first->ops->fill(first->handle, here->box.data, (uint8_t)step, 5000, NULL),
                         0);
        assert_int_equal(
            second->ops->fill(second->handle, there->box.data, (uint8_t)(step + 100), 5000, NULL),
            0);
        check_status(p.from.contexts[0], xorcast_publisher_begin(p.publisher, step), XORCAST_OK);
        check_status(p.from.contexts[0], xorcast_publisher_put(p.publisher, 0, NULL, NULL),
                     XORCAST_OK);
        check_status(p.from.contexts[0], xorcast_publisher_finish(p.publisher, NULL), XORCAST_OK);
        check_status(p.to.contexts[0], xorcast_subscriber_stage(p.subscriber, step, TIMEOUT_MS),
                     XORCAST_OK);
        assert_int_equal(sampler->ops->stream_open(sampler->handle, &stream), 0);
        check_status(p.to.contexts[0], xorcast_subscriber_commit(p.subscriber, stream), XORCAST_OK);
        assert_int_equal(sampler->ops->stream_wait(sampler->handle, stream), 0);
        assert_true(same_weights(&p.to, &p.published));
        check_status(p.to.contexts[0], xorcast_subscriber_wait(p.subscriber, TIMEOUT_MS),
                     XORCAST_OK);
        assert_int_equal(sampler->ops->stream_close(sampler->handle, stream), 0);
    }
    close_pair(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_one_by_one),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_abort),
        cmocka_unit_test(test_follow),     cmocka_unit_test(test_keyframe),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_scans),
    };
    xorcast_context *context = test_device_context(1);
    const bool two = test_device_count(context) > 1;
    xorcast_context_destroy(context);
    return two ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
