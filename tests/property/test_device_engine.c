/* The Decompression Engine on the stand-in device: what it decodes, what is checked before and
 * after it, how it is chosen, and that whatever it does not do is done by kernels and said.
 * Compares bytes after every commit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>

#include "backend/device.h"
#include "support/delta_maker.h"
#include "support/device_model.h"
#include "support/fake_device.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u
#define LARGE_BYTES (10u << 20) /* more than a batch that is measured needs */

typedef struct rig {
    xorcast_context *trainer, *sampler;
    model published, live;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    uint64_t step;
    uint32_t warnings;
    char warning[256];
} rig;

static void keep_log(void *user, xorcast_log_level level, const char *text) {
    rig *r = user;
    r->warnings += level == XORCAST_LOG_WARNING;
    if (level == XORCAST_LOG_WARNING)
        snprintf(r->warning, sizeof r->warning, "%s", text);
}

static void make_model(model *m, uint64_t large_bytes) {
    if (large_bytes == 0) {
        model_create(m, 7);
        return;
    }
    memset(m, 0, sizeof *m);
    m->random = 3;
    model_add(m, "large", "U8", 1, 2, 1024, large_bytes / 1024);
}

static void open_rig(rig *r, const fake_engine *engine, uint32_t use, uint64_t large_bytes) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    memset(r, 0, sizeof *r);
    make_model(&r->published, large_bytes);
    r->trainer = test_context(1);
    r->from = model_bundle(r->trainer, &r->published, CHUNK, 1);
    assert_int_equal(xorcast_publisher_open(r->from, "inproc:engine", NULL, &r->publisher),
                     XORCAST_OK);
    options.threads = 2;
    options.engine = use;
    options.log = keep_log;
    options.user = r;
    fake_device_engine(engine);
    r->sampler = test_device_context_with(&options);
    device_model_create(r->sampler, &r->live, &r->published);
    r->to = model_bundle(r->sampler, &r->live, CHUNK, 2);
    assert_int_equal(xorcast_subscriber_open(r->to, "inproc:engine", NULL, &r->subscriber),
                     XORCAST_OK);
}

static void close_rig(rig *r) {
    xorcast_memory memory;
    xorcast_subscriber_close(r->subscriber);
    xorcast_bundle_destroy(r->to);
    xorcast_context_memory(r->sampler, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    device_model_free(r->sampler, &r->live);
    xorcast_context_destroy(r->sampler);
    xorcast_publisher_close(r->publisher);
    xorcast_bundle_destroy(r->from);
    xorcast_context_destroy(r->trainer);
    model_free(&r->published);
    assert_int_equal(fake_device_open_things(), 0);
    fake_device_engine(&FAKE_ENGINE_NONE);
}

/* One version, published and followed; who decoded it. */
static xorcast_decoding next(rig *r, uint32_t per_million) {
    xorcast_subscriber_stats stats;
    uint64_t newest;
    r->step++;
    model_step(&r->published, r->step, per_million);
    assert_int_equal(xorcast_publisher_begin(r->publisher, r->step), XORCAST_OK);
    assert_int_equal(xorcast_publisher_put(r->publisher, 0, NULL, NULL), XORCAST_OK);
    assert_int_equal(xorcast_publisher_finish(r->publisher, NULL), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_poll(r->subscriber, TIMEOUT_MS, &newest), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_stage(r->subscriber, newest, TIMEOUT_MS), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_commit(r->subscriber, NULL), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_wait(r->subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(r->sampler, &r->live, &r->published));
    assert_int_equal(xorcast_subscriber_audit(r->subscriber, 0), XORCAST_OK);
    xorcast_subscriber_get_stats(r->subscriber, &stats);
    /* blocks without a change are none: every chunk that changed was decoded by somebody */
    assert_int_equal(stats.decoding.engine_chunks + stats.decoding.kernel_chunks,
                     stats.counts.chunks_changed);
    return stats.decoding;
}

static void expect_words(const char *text, const char *words) {
    if (strstr(text, words) == NULL)
        print_message("\"%s\" is not in \"%s\"\n", words, text);
    assert_non_null(strstr(text, words));
}

/* Every density: what stays LZ4 or raw because it is dense, and lists. */
static void test_decodes(void **state) {
    (void)state;
    static const uint32_t densities[] = {0, 1, 500, 6000, 170000, 500000, 1000000};
    rig r;
    uint64_t chunks = 0;
    open_rig(&r, &FAKE_ENGINE_GOOD, XORCAST_ENGINE_ALWAYS, 0);
    for (uint64_t i = 0; i < sizeof densities / sizeof *densities; i++) {
        const xorcast_decoding d = next(&r, densities[i]);
        chunks += d.engine_chunks;
        expect_words(d.why, "engine, as was asked for");
        if (densities[i] < 100000)
            assert_int_equal(d.kernel_chunks, 0);
    }
    assert_int_equal(chunks, fake_device_engine_jobs());
    assert_true(chunks > 100);
    assert_int_equal(r.warnings, 0);
    close_rig(&r);
}

/* A mask as LZ4 that is not of the zero-run profile: which no kernel takes. */
static made_record foreign_record(const made_record *from, const uint8_t *mask, uint32_t bytes,
                                  uint8_t *block, uint32_t room) {
    const int made = LZ4_compress_default((const char *)mask, (char *)block, (int)bytes, (int)room);
    assert_true(made > 0);
    return made_single(from->group, 0, 0x02, block, (uint64_t)made);
}

static void test_foreign_blocks(void **state) {
    (void)state;
    static uint8_t mask[CHUNK], block[2 * CHUNK];
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_delta_options encode = XORCAST_DELTA_OPTIONS_INIT;
    model old, new, live;
    test_bytes delta = {0};
    made_delta made;
    made_record records[4];
    const xorcast_sink sink = test_sink(&delta);
    memset(&old, 0, sizeof old);
    old.random = 5;
    model_add(&old, "w", "U8", 1, 1, CHUNK, 0);
    memset(&new, 0, sizeof new);
    new.random = 5;
    model_add(&new, "w", "U8", 1, 1, CHUNK, 0);
    for (uint32_t i = 500; i < CHUNK; i += 1000) /* the same words again: matches */
        for (uint32_t j = 0; j < 24; j++)
            new.tensors[0].data[i + j] ^= (uint8_t)(j % 5 ? 0 : 0x21 + j);
    for (uint32_t i = 0; i < CHUNK; i++)
        mask[i] = old.tensors[0].data[i] ^ new.tensors[0].data[i];
    options.engine = XORCAST_ENGINE_ALWAYS;
    fake_device_engine(&FAKE_ENGINE_GOOD);
    xorcast_context *context = test_device_context_with(&options), *host = test_context(1);
    xorcast_bundle *from = model_bundle(host, &old, CHUNK, 1),
                   *to = model_bundle(host, &new, CHUNK, 1);
    encode.encoding.second_pass = 1;
    assert_int_equal(xorcast_delta_encode(from, to, &encode, &sink, NULL), XORCAST_OK);
    made_take(&made, &delta);
    assert_int_equal(made_records(&made.parts[0], records, 4), 1);
    records[0] = foreign_record(&records[0], mask, CHUNK, block, sizeof block);
    made.payload_bytes = made.encoded_bytes = records[0].payload_bytes;
    made_set_records(&made.parts[0], records, 1);
    made_write(&made, &delta);
    const xorcast_source source = test_source(&delta);
    device_model_create(context, &live, &old);
    xorcast_bundle *on_device = model_bundle(context, &live, CHUNK, 1);
    assert_int_equal(xorcast_delta_apply(on_device, &source, NULL), XORCAST_OK);
    assert_true(device_model_equal(context, &live, &new));
    assert_int_equal(fake_device_engine_jobs(), 1);
    made_free(&made);
    test_bytes_free(&delta);
    xorcast_bundle_destroy(on_device);
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    device_model_free(context, &live);
    xorcast_context_destroy(context);
    xorcast_context_destroy(host);
    model_free(&old);
    model_free(&new);
    fake_device_engine(&FAKE_ENGINE_NONE);
}

/* ---- What it does not do, the kernels do, and it is said ---- */

static void without(const fake_engine *engine, uint32_t use, const char *why) {
    rig r;
    open_rig(&r, engine, use, 0);
    const xorcast_decoding d = next(&r, 3000);
    assert_int_equal(d.engine_chunks, 0);
    expect_words(d.why, why);
    assert_int_equal(fake_device_engine_jobs(), 0);
    close_rig(&r);
}

static void test_no_engine(void **state) {
    (void)state;
    fake_engine engine = FAKE_ENGINE_NONE;
    without(&engine, XORCAST_ENGINE_ALWAYS, "kernels, no engine: this GPU has none");
    engine = FAKE_ENGINE_GOOD;
    engine.mask = 3; /* Deflate and Snappy */
    without(&engine, XORCAST_ENGINE_ALWAYS, "does not decode LZ4");
    engine = FAKE_ENGINE_GOOD;
    without(&engine, XORCAST_ENGINE_NEVER, "not to be used");
    without(&engine, XORCAST_ENGINE_MEASURED, "nothing large was measured");
    engine.max_bytes = 8; /* no block of so few is LZ4 */
    without(&engine, XORCAST_ENGINE_ALWAYS, "as was asked for");
    engine = FAKE_ENGINE_GOOD;
    engine.reaches_nothing = true;
    without(&engine, XORCAST_ENGINE_ALWAYS, "given up: it does not reach");
}

/* Chunks, and packed ones, that are shorter than the others are the engine's. */
static void test_length_limit(void **state) {
    (void)state;
    fake_engine engine = FAKE_ENGINE_GOOD;
    rig r;
    engine.max_bytes = CHUNK - 1;
    open_rig(&r, &engine, XORCAST_ENGINE_ALWAYS, 0);
    const xorcast_decoding d = next(&r, 3000);
    assert_true(d.engine_chunks > 0 && d.kernel_chunks > d.engine_chunks);
    close_rig(&r);
}

/* A batch is refused, or a block comes back short: this version is still right, and later ones are
 * the kernels'. */
static void fails(const fake_engine *engine, const char *why) {
    rig r;
    open_rig(&r, engine, XORCAST_ENGINE_ALWAYS, 0);
    const xorcast_decoding first = next(&r, 3000);
    expect_words(first.why, why);
    assert_true(first.kernel_chunks > 0);
    const uint64_t jobs = fake_device_engine_jobs();
    const xorcast_decoding second = next(&r, 3000);
    assert_int_equal(second.engine_chunks, 0);
    expect_words(second.why, why);
    assert_int_equal(fake_device_engine_jobs(), jobs);
    assert_int_equal(r.warnings, 1);
    expect_words(r.warning, why);
    close_rig(&r);
}

static void test_failures(void **state) {
    (void)state;
    fake_engine engine = FAKE_ENGINE_GOOD;
    engine.fail_call = 0;
    fails(&engine, "the driver did not take a batch: another error (1, item 0)");
    engine = FAKE_ENGINE_GOOD;
    engine.short_job = 0;
    fails(&engine, "wrote less or more");
    engine.short_job = 60;
    fails(&engine, "wrote less or more");
}

/* A window holds 2,048 of these chunks. Its second turn is refused: the first one counts. */
static void test_second_turn_fails(void **state) {
    (void)state;
    fake_engine engine = FAKE_ENGINE_GOOD;
    rig r;
    engine.fail_call = 1;
    open_rig(&r, &engine, XORCAST_ENGINE_ALWAYS, 36 << 20);
    const xorcast_decoding d = next(&r, 3000);
    assert_int_equal(d.engine_chunks, 2048);
    assert_int_equal(d.kernel_chunks, (36 << 20) / CHUNK - 2048);
    assert_int_equal(r.warnings, 1);
    close_rig(&r);
}

/* ---- Measurement ---- */

static void chooses(double engine_ns, double kernel_ns, const char *who) {
    fake_engine engine = FAKE_ENGINE_GOOD;
    xorcast_decoding d;
    rig r;
    engine.engine_ns_per_byte = engine_ns;
    engine.kernel_ns_per_byte = kernel_ns;
    open_rig(&r, &engine, XORCAST_ENGINE_MEASURED, LARGE_BYTES);
    for (unsigned i = 0; i < 6; i++) {
        d = next(&r, 3000); /* every chunk changes */
        const bool by_engine = i < 4 ? i >= 2 : strcmp(who, "engine") == 0;
        assert_int_equal(d.engine_chunks, by_engine ? LARGE_BYTES / CHUNK : 0);
    }
    expect_words(d.why, who);
    expect_words(d.why, "by measurement");
    assert_true(d.engine_bytes_per_second > 0 && d.kernel_bytes_per_second > 0);
    assert_int_equal(d.engine_bytes_per_second > d.kernel_bytes_per_second,
                     strcmp(who, "engine") == 0);
    close_rig(&r);
}

static void test_measured(void **state) {
    (void)state;
    chooses(1000, 0, "kernels");
    chooses(0, 1000, "engine");
}

/* ---- The stand-in is as strict as it says ---- */

static void test_stand_in(void **state) {
    (void)state;
    enum { BYTES = 4096 };
    static uint8_t mask[BYTES], block[2 * BYTES];
    xorcast_context *context = test_device_context(1);
    const xci_device *d = context->shared->device;
    xci_device_memory memory, plain;
    uint64_t bad = 77;
    fake_device_engine(&FAKE_ENGINE_GOOD);
    assert_int_equal(xci_engine_allocate(context, 4 * BYTES, &memory), XORCAST_OK);
    assert_int_equal(xci_device_allocate(context, 4 * BYTES, &plain), XORCAST_OK);
    const int bytes = LZ4_compress_default((const char *)mask, (char *)block, BYTES, sizeof block);
    device_put(context, memory.at, block, (uint64_t)bytes);
    const xci_decompress_job good = {.block_bytes = (uint64_t)bytes,
                                     .mask_bytes = BYTES,
                                     .actual_bytes = (void *)(memory.at + 3 * BYTES),
                                     .block = memory.at,
                                     .mask = memory.at + BYTES,
                                     .algorithm = XCI_DECOMPRESS_LZ4};
    xci_decompress_job jobs[2] = {good, good};
#define TRY_WITH(field, value)                                                                     \
    jobs[1] = good;                                                                                \
    jobs[1].field = value;                                                                         \
    bad = 77;                                                                                      \
    assert_int_equal(d->ops->decompress(d->handle, jobs, 2, &bad, NULL), FAKE_INVALID);            \
    assert_int_equal(bad, 1)
    TRY_WITH(zero[19], 1);
    TRY_WITH(algorithm, 1);
    TRY_WITH(block_bytes, (4 << 20) + 1);
    TRY_WITH(mask_bytes, (4 << 20) + 1);
    TRY_WITH(block, plain.at);
    TRY_WITH(mask, plain.at);
    TRY_WITH(mask, memory.at + 3 * BYTES + 1);
    TRY_WITH(actual_bytes, (void *)plain.at);
    TRY_WITH(actual_bytes, (void *)(memory.at + 3 * BYTES + 2));
#undef TRY_WITH
    fake_device_engine(&FAKE_ENGINE_NONE);
    bad = 77;
    assert_int_equal(d->ops->decompress(d->handle, jobs, 1, &bad, NULL), FAKE_NOT_SUPPORTED);
    assert_int_equal(bad, 77);
    fake_device_engine(&FAKE_ENGINE_GOOD);
    assert_int_equal(d->ops->decompress(d->handle, jobs, 1, &bad, NULL), 0);
    assert_int_equal(d->ops->stream_wait(d->handle, NULL), 0);
    device_get(context, block, memory.at + BYTES, BYTES);
    assert_memory_equal(block, mask, BYTES);
    uint32_t actual;
    device_get(context, &actual, memory.at + 3 * BYTES, sizeof actual);
    assert_int_equal(actual, BYTES);
    xci_device_release(context, &memory);
    xci_device_release(context, &plain);
    xorcast_context_destroy(context);
    fake_device_engine(&FAKE_ENGINE_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes),   cmocka_unit_test(test_foreign_blocks),
        cmocka_unit_test(test_no_engine), cmocka_unit_test(test_length_limit),
        cmocka_unit_test(test_failures),  cmocka_unit_test(test_second_turn_fails),
        cmocka_unit_test(test_measured),  cmocka_unit_test(test_stand_in),
    };
    unsetenv("XORCAST_TEST_ENGINE"); /* each test says which engine there is */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
