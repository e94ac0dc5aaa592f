/* How much device memory a sampler takes: what it has staged, which is never more than the same
 * delta as LZ4 blocks, and tables of a bounded size for each chunk. Of all codecs, densities and
 * ways to a sampler, on the stand-in device or on a real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/device_model.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u
/* Bytes of a chunk: its description (40) and its entry in the list of what commit applies (24); and
 * what aligns its block, at most. */
#define CHUNK_TABLES 64u
#define CHUNK_PADDING 15u
#define BATCHES (4 * UINT64_C(131072)) /* blocks under way; 4 bytes each */
#define SCANS (2 * UINT64_C(65536))    /* chunks of an audit under way; 16 bytes each */
#define MORE (UINT64_C(512) << 10)
#define ROUNDING (UINT64_C(72) << 10) /* 64 KiB of them beyond what the manifest said */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Of gap blocks under way: themselves, what was found, and entries that the list has too. */
#define GAP_TABLES 136u
#define GAP_RECORDS (4 * UINT64_C(65536)) /* of the groups under way */

/* What a sampler needs beside `staged` bytes of blocks; with a little for the next version, which
 * may be larger. */
static uint64_t scratch(uint64_t staged, uint64_t chunks, uint64_t padding) {
    return chunks * (CHUNK_TABLES + padding) + 4 * least(BATCHES, 4 * chunks) +
           16 * least(SCANS, 2 * chunks) + least(staged / 512, MORE) + ROUNDING;
}

/* 55.6 GB in chunks of 64 KiB: blocks of all sizes are padded by 8 bytes in the mean. */
static void test_bar(void **state) {
    (void)state;
    assert_true(scratch(UINT64_C(1) << 40, 848389, 8) <= 64 << 20);
}

/* And for gap blocks, whose forms get places of their own: an eighth may be left between these. */
static uint64_t gap_scratch(uint64_t staged, uint64_t chunks) {
    return chunks * CHUNK_PADDING + GAP_TABLES * least(BATCHES, 4 * chunks) + GAP_RECORDS +
           staged / 8;
}

typedef struct session {
    xorcast_context *trainer, *sampler;
    model published, live, trained;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    bool trainer_on_device;
    uint64_t chunks;
} session;

static void make_model(model *m) {
    memset(m, 0, sizeof *m);
    m->random = 11;
    model_add(m, "a", "BF16", 2, 2, 500, 5003);
    model_add(m, "b", "U8", 1, 2, 1000, 4001);
    model_add(m, "c", "F32", 4, 2, 300, 1007);
    model_add(m, "d", "BF16", 2, 1, 77, 0);
}

static void open_session(session *s, const char *url, bool trainer_on_device,
                         const xorcast_encoding *encoding) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    xorcast_layout layout;
    memset(s, 0, sizeof *s);
    options.encoding = *encoding;
    make_model(&s->published);
    s->trainer_on_device = trainer_on_device;
    s->trainer = trainer_on_device ? test_device_context(2) : test_context(2);
    if (trainer_on_device)
        device_model_create(s->trainer, &s->trained, &s->published);
    s->from = model_bundle_layout(s->trainer, trainer_on_device ? &s->trained : &s->published,
                                  CHUNK, 1, &layout);
    s->chunks = layout.chunk_count;
    assert_int_equal(xorcast_publisher_open(s->from, url, &options, &s->publisher), XORCAST_OK);
    s->sampler = test_device_context(2);
    device_model_create(s->sampler, &s->live, &s->published);
    s->to = model_bundle(s->sampler, &s->live, CHUNK, 99);
    assert_int_equal(
        xorcast_subscriber_open(s->to, xorcast_publisher_url(s->publisher), NULL, &s->subscriber),
        XORCAST_OK);
}

static void close_session(session *s) {
    xorcast_subscriber_close(s->subscriber);
    xorcast_bundle_destroy(s->to);
    device_model_free(s->sampler, &s->live);
    xorcast_context_destroy(s->sampler);
    xorcast_publisher_close(s->publisher);
    xorcast_bundle_destroy(s->from);
    if (s->trainer_on_device)
        device_model_free(s->trainer, &s->trained);
    xorcast_context_destroy(s->trainer);
    model_free(&s->published);
}

static xorcast_delta_info run_step(session *s, uint64_t step, uint32_t per_million) {
    xorcast_publisher_stats stats;
    uint64_t newest;
    model_step(&s->published, step * 1000 + 1, per_million);
    if (s->trainer_on_device)
        device_model_put(s->trainer, &s->trained, &s->published);
    assert_int_equal(xorcast_publisher_begin(s->publisher, step), XORCAST_OK);
    assert_int_equal(xorcast_publisher_put(s->publisher, 0, NULL, NULL), XORCAST_OK);
    assert_int_equal(xorcast_publisher_finish(s->publisher, &stats), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_poll(s->subscriber, TIMEOUT_MS, &newest), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_stage(s->subscriber, newest, TIMEOUT_MS), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_commit(s->subscriber, NULL), XORCAST_OK);
    assert_int_equal(xorcast_subscriber_wait(s->subscriber, TIMEOUT_MS), XORCAST_OK);
    assert_true(device_model_equal(s->sampler, &s->live, &s->published));
    assert_int_equal(xorcast_subscriber_audit(s->subscriber, 0), XORCAST_OK);
    return stats.delta;
}

static const uint32_t densities[] = {0, 300, 300, 6000, 250000, 300};
#define STEPS (sizeof densities / sizeof *densities)

/* What is staged of a step at most: as much as LZ4 blocks, if not these; of gap blocks lists or
 * masks, and the blocks themselves. */
static uint64_t staged_bytes(const xorcast_delta_info *info, uint32_t codec, uint64_t lz4_bytes) {
    if (codec != XORCAST_CODEC_GAP)
        return lz4_bytes;
    return info->chunk_encoded_bytes +
           least(4 * info->counts.bytes_changed, info->counts.bytes_covered);
}

/* Memory stays for the largest step so far. The first runs, of LZ4, fill in `lz4_bytes`. */
static void run(const char *url, bool trainer_on_device, uint32_t codec, bool beside,
                uint32_t second_pass, uint64_t lz4_bytes[STEPS]) {
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    session s;
    xorcast_memory memory;
    uint64_t largest = 0;
    encoding.codec = codec;
    encoding.old_weights = beside;
    encoding.second_pass = second_pass;
    open_session(&s, url, trainer_on_device, &encoding);
    for (uint64_t i = 0; i < STEPS; i++) {
        const xorcast_delta_info info = run_step(&s, i + 1, densities[i]);
        if (codec == XORCAST_CODEC_LZ4)
            lz4_bytes[i] = info.chunk_encoded_bytes;
        const uint64_t staged = staged_bytes(&info, codec, lz4_bytes[i]);
        largest = staged > largest ? staged : largest;
        const uint64_t bound = largest + scratch(largest, s.chunks, CHUNK_PADDING) +
                               (codec == XORCAST_CODEC_GAP ? gap_scratch(largest, s.chunks) : 0);
        xorcast_context_memory(s.sampler, &memory);
        if (memory.device_high_water_bytes > bound)
            print_message("%s, codec %u, step %u: %llu bytes, %llu staged, %llu chunks\n", url,
                          codec, (unsigned)i + 1,
                          (unsigned long long)memory.device_high_water_bytes,
                          (unsigned long long)largest, (unsigned long long)s.chunks);
        assert_true(memory.device_high_water_bytes <= bound);
    }
    close_session(&s);
}

static void test_bound(void **state) {
    (void)state;
    uint64_t lz4[STEPS];
    run("inproc:device", true, XORCAST_CODEC_LZ4, false, 1, lz4);
    run("tcp:127.0.0.1:0", true, XORCAST_CODEC_LZ4, false, 0, lz4);
    run("inproc:host", false, XORCAST_CODEC_SNAPPY, false, 1, lz4);
    run("inproc:host", false, XORCAST_CODEC_GAP, false, 1, lz4);
    run("inproc:host", false, XORCAST_CODEC_GAP, true, 1, lz4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
