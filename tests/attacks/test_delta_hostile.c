/* Hostile deltas, built by hand after docs/format.md, each named for what it tries. Whatever is
 * refused must leave the weights byte for byte, the context's memory as it was and the bundle
 * usable; what is odd but valid (blocks of other compressors, parts cut otherwise) must be taken.
 *
 *     tiny layout, chunks of 16 KiB          chunk   group
 *     a.weight  BF16 [33, 300]               0, 1    0
 *     b.scale   F32 [1200]                   2       0
 *     e.codes   U8 [100], f.odd U8 [3]       3       1      padding: bytes 100 to 103 of the chunk
 *     c.norm    BF16 [9]                     4       1
 *     d.scale2  F32 []                       5       1
 *
 * With XORCAST_TEST_DEVICE the weights lie in memory of that device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>

#include "support/delta_maker.h"
#include "support/device_model.h"

#define CHUNK 16384u
#define KIB UINT64_C(1024)
#define RAW_U8 0x01u
#define RAW_BF16 0x11u
#define LZ4_BF16 0x12u
#define SNAPPY_BF16 0x13u

typedef struct rig {
    xorcast_context *context;
    model old, live, next; /* `live` as it should be ... */
    model device;          /* ... and where it is, if on a device */
    bool on_device;
    xorcast_bundle *bundle;
    test_bytes delta; /* a good one from old to next */
    made_delta made;  /* the same, taken apart */
    made_record records[8];
    uint32_t record_count;
    uint64_t empty_bytes, now_bytes; /* in use without and with the bundle */
    xorcast_error error;             /* of the last refusal */
} rig;

static uint64_t now_bytes(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static void tiny_model(model *m, bool large) {
    memset(m, 0, sizeof *m);
    m->random = 41;
    model_add(m, "a.weight", "BF16", 2, 2, 33, 300);
    model_add(m, "b.scale", "F32", 4, 1, 1200, 0);
    model_add(m, "c.norm", "BF16", 2, 1, 9, 0);
    model_add(m, "d.scale2", "F32", 4, 0, 0, 0);
    model_add(m, "e.codes", "U8", 1, 1, 100, 0);
    model_add(m, "f.odd", "U8", 1, 1, 3, 0);
    if (large)
        model_add(m, "m.big", "U8", 1, 1, 2300000, 0);
}

/* A few bytes of every tensor, and of every chunk of the tiny ones. */
static void change(model *m, uint64_t seed) {
    for (uint32_t t = 0; t < m->count; t++) {
        for (unsigned i = 0; i < (m->tensors[t].bytes > 1000000 ? 40 : 4); i++)
            m->tensors[t].data[model_random(&seed) % m->tensors[t].bytes] ^=
                (uint8_t)(1 + model_random(&seed) % 255);
        m->tensors[t].data[m->tensors[t].bytes - 1] ^= 0x80;
    }
}

static xorcast_status encode(rig *r, const model *old, const model *next, uint32_t codec,
                             bool second_pass, uint64_t base_step, const char *run,
                             test_bytes *out) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = test_sink(out);
    options.encoding.codec = codec;
    options.encoding.second_pass = !second_pass;
    options.run = run;
    options.base_step = base_step;
    options.target_step = base_step == XORCAST_NO_STEP ? XORCAST_NO_STEP : base_step + 1;
    xorcast_bundle *a = model_bundle(r->context, old, CHUNK, 1);
    xorcast_bundle *b = model_bundle(r->context, next, CHUNK, 2);
    out->count = 0;
    const xorcast_status status = xorcast_delta_encode(a, b, &options, &sink, NULL);
    xorcast_bundle_destroy(a);
    xorcast_bundle_destroy(b);
    return status;
}

/* ---- The live weights, on the host or on a device ---- */

static xorcast_bundle *live_bundle(rig *r, uint64_t chunk_bytes) {
    for (uint32_t t = 0; r->on_device && t < r->live.count; t++)
        r->device.tensors[t].dtype = r->live.tensors[t].dtype;
    return model_bundle(r->context, r->on_device ? &r->device : &r->live, chunk_bytes, 3);
}

static void live_set(rig *r, const model *to) {
    model_copy(&r->live, to);
    if (r->on_device)
        device_model_put(r->context, &r->device, to);
}

static bool live_is(rig *r, const model *what) {
    return r->on_device ? device_model_equal(r->context, &r->device, what)
                        : model_equal(&r->live, what);
}

static void rig_open(rig *r, bool large, uint32_t codec, bool second_pass) {
    memset(r, 0, sizeof *r);
    r->on_device = getenv("XORCAST_TEST_DEVICE") != NULL;
    r->context = r->on_device ? test_device_context(large ? 2 : 1) : test_context(large ? 2 : 1);
    r->empty_bytes = now_bytes(r->context);
    tiny_model(&r->old, large);
    tiny_model(&r->live, large);
    tiny_model(&r->next, large);
    change(&r->next, 5);
    assert_int_equal(encode(r, &r->old, &r->next, codec, second_pass, 7, "attack", &r->delta),
                     XORCAST_OK);
    made_take(&r->made, &r->delta);
    r->record_count = made_records(&r->made.parts[0], r->records, 8);
    if (r->on_device)
        device_model_create(r->context, &r->device, &r->live);
    r->bundle = live_bundle(r, CHUNK);
    r->now_bytes = now_bytes(r->context);
}

static void rig_close(rig *r) {
    made_free(&r->made);
    test_bytes_free(&r->delta);
    xorcast_bundle_destroy(r->bundle);
    assert_int_equal(now_bytes(r->context), r->empty_bytes);
    if (r->on_device)
        device_model_free(r->context, &r->device);
    xorcast_context_destroy(r->context);
    model_free(&r->old);
    model_free(&r->live);
    model_free(&r->next);
}

/* Takes the good delta apart again: payloads of records lie in its part. */
static void restore(rig *r) {
    made_free(&r->made);
    made_take(&r->made, &r->delta);
    r->record_count = made_records(&r->made.parts[0], r->records, 8);
}

/* Puts the records, changed by the test, back into the delta, writes it, and undoes the changes. */
static test_bytes rebuilt(rig *r) {
    test_bytes out = {0};
    made_part changed = {0};
    made_set_records(&changed, r->records, r->record_count);
    test_bytes_free(&r->made.parts[0].bytes);
    r->made.parts[0] = changed;
    r->made.group_count = r->record_count;
    made_write(&r->made, &out);
    restore(r);
    return out;
}

static void check_refusal(rig *r, xorcast_status status, xorcast_status expected,
                          const char *words) {
    xorcast_error error;
    xorcast_last_error(r->context, &error);
    r->error = error;
    if (status >= 0 || (expected != 0 && status != expected) ||
        (words != NULL && strstr(error.text, words) == NULL))
        print_message("%s, expected %s with '%s': %s\n", xorcast_status_name(status),
                      xorcast_status_name(expected), words != NULL ? words : "", error.text);
    assert_true(status < 0);
    assert_int_equal(error.status, status);
    assert_true(strlen(error.text) > 10);
    if (expected != 0)
        assert_int_equal(status, expected);
    if (words != NULL)
        assert_non_null(strstr(error.text, words));
    assert_true(live_is(r, &r->old));
    assert_int_equal(now_bytes(r->context), r->now_bytes);
}

static int swallow(void *user, const void *bytes, uint64_t count) {
    (void)user;
    (void)bytes;
    (void)count;
    return 0;
}

/* `expected` 0: any refusal. The delta lies in a block of exactly its size, for the sanitizer. */
static void refuse(rig *r, const test_bytes *delta, xorcast_status expected, const char *words) {
    uint8_t *exact = malloc(delta->count + 1);
    assert_non_null(exact);
    uint8_t *end_aligned = exact + 1; /* ends where the block ends */
    memcpy(end_aligned, delta->bytes, delta->count);
    const xorcast_source source = {.bytes = end_aligned, .size = delta->count};
    check_refusal(r, xorcast_delta_check(r->bundle, &source, NULL), expected, words);
    check_refusal(r, xorcast_delta_apply(r->bundle, &source, NULL), expected, words);
    /* Fold knows no weights: it may take what only weights disprove, but never crash or leak. */
    const xorcast_sink sink = {swallow, NULL};
    (void)!xorcast_delta_fold(r->context, &source, 1, NULL, &sink, NULL);
    assert_int_equal(now_bytes(r->context), r->now_bytes);
    free(exact);
}

static void refuse_and_free(rig *r, test_bytes delta, xorcast_status expected, const char *words) {
    refuse(r, &delta, expected, words);
    test_bytes_free(&delta);
}

/* The bundle is usable: a delta to `next` is taken, whole and folded; then back to old. */
static void accept(rig *r, const test_bytes *delta) {
    const xorcast_source source = test_source(delta);
    xorcast_delta_info info;
    test_bytes folded = {0};
    const xorcast_sink sink = test_sink(&folded);
    const xorcast_status status = xorcast_delta_apply(r->bundle, &source, &info);
    if (status != XORCAST_OK)
        check_refusal(r, status, XORCAST_OK, NULL);
    assert_true(live_is(r, &r->next));
    live_set(r, &r->old);
    assert_int_equal(xorcast_delta_fold(r->context, &source, 1, NULL, &sink, NULL), XORCAST_OK);
    const xorcast_source again = test_source(&folded);
    assert_int_equal(xorcast_delta_apply(r->bundle, &again, NULL), XORCAST_OK);
    assert_true(live_is(r, &r->next));
    live_set(r, &r->old);
    test_bytes_free(&folded);
    assert_int_equal(now_bytes(r->context), r->now_bytes);
}

static void accept_and_free(rig *r, test_bytes delta) {
    accept(r, &delta);
    test_bytes_free(&delta);
}

static const struct {
    uint32_t codec;
    bool second_pass;
} forms[] = {{XORCAST_CODEC_RAW, false},    {XORCAST_CODEC_RAW, true},
             {XORCAST_CODEC_LZ4, false},    {XORCAST_CODEC_LZ4, true},
             {XORCAST_CODEC_SNAPPY, false}, {XORCAST_CODEC_SNAPPY, true},
             {XORCAST_CODEC_GAP, false},    {XORCAST_CODEC_GAP, true},
             {XORCAST_CODEC_AUTO, false},   {XORCAST_CODEC_AUTO, true}};
#define FORM_COUNT (sizeof forms / sizeof *forms)

/* ---- The maker itself ---- */

static void test_maker_makes_what_the_library_makes(void **state) {
    (void)state;
    for (size_t f = 0; f < FORM_COUNT; f++) {
        rig r;
        rig_open(&r, f % 2 == 0, forms[f].codec, forms[f].second_pass);
        test_bytes out = {0};
        made_write(&r.made, &out);
        assert_int_equal(out.count, r.delta.count);
        assert_memory_equal(out.bytes, r.delta.bytes, out.count);
        test_bytes_free(&out);
        out = rebuilt(&r);
        assert_int_equal(out.count, r.delta.count);
        assert_memory_equal(out.bytes, r.delta.bytes, out.count);
        accept_and_free(&r, out);
        rig_close(&r);
    }
}

/* ---- Damage on the way ---- */

static void test_cut_at_every_byte(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, true);
    for (uint64_t count = 0; count < r.delta.count; count++) {
        test_bytes cut = {r.delta.bytes, count, 0};
        const xorcast_source source = test_source(&cut);
        xorcast_delta_info info;
        refuse(&r, &cut, 0, NULL);
        assert_true(xorcast_delta_inspect(r.context, &source, &info) < 0);
    }
    accept(&r, &r.delta);
    rig_close(&r);
}

/* Where in a delta a byte stands that was flipped, and what the message must then say. */
static const char *words_for(const rig *r, uint64_t at) {
    if (at < 16 || at >= 16 + r->made.parts[0].bytes.count)
        return NULL;
    return "group"; /* each record's checksum finds it before the part's hash */
}

static void flip_everywhere(uint32_t codec, bool second_pass) {
    rig r;
    rig_open(&r, false, codec, second_pass);
    test_bytes copy = {0};
    test_put(&copy, r.delta.bytes, r.delta.count);
    for (uint64_t at = 0; at < copy.count; at++) {
        copy.bytes[at] ^= (uint8_t)(1u << at % 8);
        refuse(&r, &copy, 0, words_for(&r, at));
        copy.bytes[at] = (uint8_t)~r.delta.bytes[at];
        refuse(&r, &copy, 0, words_for(&r, at));
        copy.bytes[at] = r.delta.bytes[at];
    }
    accept_and_free(&r, copy);
    rig_close(&r);
}

static void test_flip_at_every_byte(void **state) {
    (void)state;
    flip_everywhere(XORCAST_CODEC_LZ4, true);
    flip_everywhere(XORCAST_CODEC_LZ4, false);
    flip_everywhere(XORCAST_CODEC_SNAPPY, false);
    flip_everywhere(XORCAST_CODEC_GAP, false);
}

static void test_damage_names_the_tensor(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    r.records[1].checksum_flip = 1;
    refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "tensor e.codes");
    assert_int_equal(r.error.chunk, 3);
    r.records[0].sizes[0]++; /* the checksum is right, the block is not */
    refuse_and_free(&r, rebuilt(&r), 0, "group 0");
    rig_close(&r);
}

/* ---- Numbers that lie under right checksums ---- */

static void test_lying_sizes(void **state) {
    (void)state;
    static const uint64_t lies[] = {0,         CHUNK + 1, 0xffffffff, UINT64_C(1) << 32,
                                    INT64_MAX, UINT64_MAX};
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t b = 0; b < 3; b++) {
            for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
                r.records[g].sizes[b] = lies[i];
                refuse_and_free(&r, rebuilt(&r), 0, "group");
            }
            r.records[g].sizes[b]++;
            refuse_and_free(&r, rebuilt(&r), 0, "group");
            r.records[g].sizes[b]--;
            refuse_and_free(&r, rebuilt(&r), 0, NULL);
            r.records[g].sizes[b]++; /* in sum right, cut wrongly */
            r.records[g].sizes[(b + 1) % 3]--;
            refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, NULL);
        }
    r.records[0].sizes_made--;
    refuse_and_free(&r, rebuilt(&r), 0, "group");
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_lying_runs(void **state) {
    (void)state;
    static const uint64_t lies[] = {0, 4, 64, 32769, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX};
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        r.records[0].run_count = lies[i];
        refuse_and_free(&r, rebuilt(&r), 0, "group");
        r.records[0].runs[0].second = lies[i];
        refuse_and_free(&r, rebuilt(&r), 0, "group");
        r.records[0].codecs[0].second = lies[i];
        refuse_and_free(&r, rebuilt(&r), 0, "group");
        if (lies[i] == 0)
            continue;
        r.records[0].runs[0].first = lies[i];
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "group 0");
    }
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_runs_that_overlap(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    made_record *record = &r.records[0];
    /* 3 chunks as 1 + 2: runs that touch are one run; a gap of 2^64 - 1 would step back. */
    static const uint64_t gaps[] = {0, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
        record->run_count = record->runs_made = 2;
        record->runs[0] = (made_pair){0, 1};
        record->runs[1] = (made_pair){gaps[i], 2};
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "run of chunks");
    }
    rig_close(&r);
}

static void test_chunks_out_of_range(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    static const uint64_t chunks[] = {3, 5, 100, 32767};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        static const uint8_t block[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        r.records[0] = made_single(0, chunks[i], RAW_U8, block, sizeof block);
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "has no chunk");
    }
    r.records[0].runs[0].first = 1; /* the last chunk becomes the one after it */
    refuse_and_free(&r, rebuilt(&r), 0, NULL);
    rig_close(&r);
}

static void test_groups_out_of_order(void **state) {
    (void)state;
    static const uint64_t groups[] = {2, 3, 0xffffffff, UINT64_C(1) << 33, UINT64_MAX};
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        r.records[1].group = groups[i];
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "no such group");
    }
    const made_record first = r.records[0];
    r.records[0] = r.records[1];
    r.records[1] = first;
    refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "comes after group");
    r.records[1] = r.records[0]; /* twice: an XOR undone */
    refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "or twice");
    r.record_count = 1; /* one less than was encoded */
    refuse_and_free(&r, rebuilt(&r), 0, NULL);
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_numbers_in_long_form(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    /* The first record's group is 0: one byte. 80 00 is 0 as well, and ten bytes of it too many. */
    static const uint8_t longer[] = {0x80, 0x00}, endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                                               0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
    for (unsigned i = 0; i < 2; i++) {
        test_bytes part = {0}, out = {0};
        test_put(&part, i == 0 ? longer : endless, i == 0 ? sizeof longer : sizeof endless);
        test_put(&part, r.made.parts[0].bytes.bytes + 1, r.made.parts[0].bytes.count - 1);
        made_set_bytes(&r.made.parts[0], part.bytes, part.count);
        made_write(&r.made, &out);
        refuse_and_free(&r, out, 0, NULL);
        test_bytes_free(&part);
        restore(&r);
    }
    rig_close(&r);
}

static void test_counts_that_lie(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, true);
    uint64_t *const numbers[] = {&r.made.counts[MADE_BITS],
                                 &r.made.counts[MADE_BYTES],
                                 &r.made.counts[MADE_ELEMENTS],
                                 &r.made.counts[MADE_CHUNKS],
                                 &r.made.counts[MADE_COVERED],
                                 &r.made.payload_bytes,
                                 &r.made.encoded_bytes,
                                 &r.made.layout_groups,
                                 &r.made.layout_chunks,
                                 &r.made.group_count,
                                 &r.made.part_count,
                                 &r.made.parts[0].declared_groups,
                                 &r.made.parts[0].declared_bytes};
    static const uint64_t more[] = {1, (uint64_t)-1, 1000, UINT64_C(1) << 32, UINT64_C(1) << 62};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
            test_bytes out = {0};
            *numbers[n] += more[i];
            made_write(&r.made, &out);
            *numbers[n] -= more[i];
            refuse_and_free(&r, out, 0, NULL);
        }
    static const uint64_t manifest_bytes[] = {1, 0x100, UINT64_C(1) << 30, UINT64_C(1) << 40,
                                              UINT64_MAX};
    for (size_t i = 0; i < sizeof manifest_bytes / sizeof *manifest_bytes; i++) {
        test_bytes out = {0};
        r.made.manifest_bytes_lie = manifest_bytes[i];
        made_write(&r.made, &out);
        refuse_and_free(&r, out, 0, "manifest");
    }
    r.made.manifest_bytes_lie = 0;
    accept(&r, &r.delta);
    rig_close(&r);
}

/* ---- Blocks under right checksums ---- */

static const uint8_t *mask_of(rig *r, uint32_t tensor, uint64_t offset, uint64_t count) {
    static uint8_t mask[CHUNK];
    assert_true(count <= sizeof mask);
    for (uint64_t i = 0; i < count; i++)
        mask[i] =
            r->old.tensors[tensor].data[offset + i] ^ r->next.tensors[tensor].data[offset + i];
    return mask;
}

static void refuse_block(rig *r, uint8_t descriptor, const void *block, uint64_t bytes) {
    r->records[0] = made_single(0, 1, descriptor, block, bytes);
    refuse_and_free(r, rebuilt(r), XORCAST_DATA_CORRUPT, "a.weight");
}

static void test_blocks_that_do_not_fit(void **state) {
    (void)state;
    static const uint8_t zeros[CHUNK];
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    /* Chunk 1 has 3416 bytes. */
    refuse_block(&r, RAW_BF16, zeros, 3415);
    refuse_block(&r, RAW_BF16, zeros, 3417);
    refuse_block(&r, RAW_BF16, zeros, CHUNK);
    for (int size = 3000; size <= 4000; size += 125) {
        char block[CHUNK];
        const int bytes = LZ4_compress_default((const char *)zeros, block, size, sizeof block);
        refuse_block(&r, LZ4_BF16, block, (uint64_t)bytes);
    }
    /* Offset beyond the begin; a literal beyond the end; lengths that never end; offset 0. */
    static const uint8_t beyond[] = {0x10, 0xaa, 0xff, 0x00, 0x50, 1, 2, 3, 4, 5};
    static const uint8_t literal[] = {0xf0, 0xff, 0xff, 0xff, 0x00, 1, 2, 3};
    static const uint8_t zero_offset[] = {0x1f, 0x00, 0x00, 0x00, 0xff, 0x10, 0x50, 1, 2, 3, 4, 5};
    uint8_t endless[512];
    memset(endless, 0xff, sizeof endless);
    refuse_block(&r, LZ4_BF16, beyond, sizeof beyond);
    refuse_block(&r, LZ4_BF16, literal, sizeof literal);
    refuse_block(&r, LZ4_BF16, zero_offset, sizeof zero_offset);
    refuse_block(&r, LZ4_BF16, endless, sizeof endless);
    refuse_block(&r, SNAPPY_BF16, endless, sizeof endless);
    /* Snappy: wrong size; a copy before the begin; a literal beyond the input. */
    static const uint8_t short_snappy[] = {0x04, 0x0c, 1, 2, 3, 4};
    static const uint8_t early_copy[] = {0xd8, 0x1a, 0x00, 0xaa, 0xfe, 0x05, 0x00};
    static const uint8_t long_literal[] = {0xd8, 0x1a, 0xf4, 0x57, 0x0d, 1, 2, 3};
    refuse_block(&r, SNAPPY_BF16, short_snappy, sizeof short_snappy);
    refuse_block(&r, SNAPPY_BF16, early_copy, sizeof early_copy);
    refuse_block(&r, SNAPPY_BF16, long_literal, sizeof long_literal);
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_right_checksum_wrong_content(void **state) {
    (void)state;
    static const uint8_t descriptors[] = {RAW_BF16, LZ4_BF16, SNAPPY_BF16};
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    uint64_t random = 99;
    for (unsigned i = 0; i < 1500; i++) {
        uint8_t block[3416];
        const uint64_t bytes = i % 3 == 0 ? sizeof block : 1 + model_random(&random) % 300;
        for (uint64_t b = 0; b < bytes; b++)
            block[b] = (uint8_t)(model_random(&random) >> (b % 5 == 0 ? 0 : 58));
        if (i % 3 == 2)
            memcpy(block, "\xd8\x1a", bytes < 2 ? bytes : 2);
        r.records[0] = made_single(0, 1, descriptors[i % 3], block, bytes);
        refuse_and_free(&r, rebuilt(&r), 0, NULL);
    }
    accept(&r, &r.delta);
    rig_close(&r);
}

/* Of two parts with right hashes, a block of the first and the head of the other are damaged: the
 * first is named, by a device too, which looks at blocks later than others look at heads. */
static void test_damage_before_an_unknown_part(void **state) {
    (void)state;
    static const uint8_t block[] = {0xf0, 1, 2, 3, 4, 5};
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    test_bytes out = {0};
    made_part first = {0};
    r.records[0] = made_single(0, 1, LZ4_BF16, block, sizeof block);
    r.records[1].flags |= 0x80;
    made_set_records(&first, &r.records[0], 1);
    made_set_records(&r.made.parts[1], &r.records[1], 1);
    test_bytes_free(&r.made.parts[0].bytes);
    r.made.parts[0] = first;
    r.made.group_count = r.made.part_count = r.made.parts_made = 2;
    made_write(&r.made, &out);
    refuse_and_free(&r, out, XORCAST_DATA_CORRUPT, "block");
    restore(&r);
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_padding_touched(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    for (unsigned at = 100; at < 104; at++) {
        uint8_t block[107] = {0};
        block[at] = 0x80;
        r.records[1] = made_single(1, 0, RAW_U8, block, sizeof block);
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "between tensors");
    }
    rig_close(&r);
}

static void test_width_that_lies(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    for (uint64_t width = 0; width < 16; width++) {
        if (width == 1) /* the right one of chunk 0 */
            continue;
        r.records[0].codecs[0].first = XORCAST_CODEC_LZ4 | width << 4;
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, NULL);
    }
    rig_close(&r);
}

/* ---- Blocks of other compressors ---- */

/* One literal and many copies with an offset of 8: what no encoder of ours writes. */
static uint64_t snappy_pattern(uint8_t *out, const uint8_t *pattern, uint64_t bytes) {
    test_bytes block = {0};
    uint8_t literal = (8 - 1) << 2;
    test_put_varint(&block, bytes);
    test_put(&block, &literal, 1);
    test_put(&block, pattern, 8);
    for (uint64_t left = bytes - 8; left > 0;) {
        const uint64_t step = left < 64 ? left : 64;
        const uint8_t copy[] = {(uint8_t)((step - 1) << 2 | 3), 8, 0, 0, 0};
        test_put(&block, copy, sizeof copy);
        left -= step;
    }
    memcpy(out, block.bytes, block.count);
    const uint64_t count = block.count;
    test_bytes_free(&block);
    return count;
}

/* The delta of `next` whose chunk 1 is that block, all numbers right. */
static test_bytes with_block(rig *r, uint8_t descriptor, const uint8_t *block, uint64_t bytes) {
    r->records[0] = made_single(0, 1, descriptor, block, bytes);
    r->record_count = 1;
    r->made.payload_bytes = r->made.encoded_bytes = bytes;
    return rebuilt(r);
}

/* `next` was changed: the delta is made anew. */
static void encode_again(rig *r) {
    made_free(&r->made);
    assert_int_equal(encode(r, &r->old, &r->next, XORCAST_CODEC_LZ4, false, 7, "attack", &r->delta),
                     XORCAST_OK);
    made_take(&r->made, &r->delta);
    r->record_count = made_records(&r->made.parts[0], r->records, 8);
}

/* `next` is old with a repeated pattern in chunk 1 alone. */
static void pattern_rig(rig *r, uint64_t period) {
    rig_open(r, false, XORCAST_CODEC_LZ4, false);
    model_copy(&r->next, &r->old);
    for (uint64_t i = 0; i < 3416; i++)
        r->next.tensors[0].data[CHUNK + i] ^= (uint8_t)(0x40 + 7 * (i % period));
    encode_again(r);
}

static void test_foreign_blocks_are_taken(void **state) {
    (void)state;
    for (uint64_t period = 1; period <= 8; period++) {
        rig r;
        uint8_t block[CHUNK];
        pattern_rig(&r, period);
        const char *mask = (const char *)mask_of(&r, 0, CHUNK, 3416);
        int bytes = LZ4_compress_default(mask, (char *)block, 3416, sizeof block);
        assert_true(bytes > 0 && bytes < 200);
        accept_and_free(&r, with_block(&r, LZ4_BF16, block, (uint64_t)bytes));
        bytes = LZ4_compress_HC(mask, (char *)block, 3416, sizeof block, 9);
        accept_and_free(&r, with_block(&r, LZ4_BF16, block, (uint64_t)bytes));
        if (8 % period == 0)
            accept_and_free(&r, with_block(&r, SNAPPY_BF16, block,
                                           snappy_pattern(block, (const uint8_t *)mask, 3416)));
        accept_and_free(&r, with_block(&r, RAW_BF16, (const uint8_t *)mask, 3416));
        rig_close(&r);
    }
}

static void test_block_of_zeros_changes_nothing(void **state) {
    (void)state;
    static const uint8_t zeros[3416];
    char lz4[256];
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    model_copy(&r.next, &r.old);
    memset(r.made.counts, 0, sizeof(uint64_t) * MADE_COVERED);
    memcpy(r.made.target_digest, r.made.base_digest, sizeof r.made.base_digest);
    const made_delta same = r.made;
    for (unsigned i = 0; i < 2; i++) {
        const int bytes =
            i == 0 ? (int)sizeof zeros
                   : LZ4_compress_default((const char *)zeros, lz4, sizeof zeros, sizeof lz4);
        const uint8_t *block = i == 0 ? zeros : (const uint8_t *)lz4;
        made_part part = {0};
        const made_record record =
            made_single(0, 1, i == 0 ? RAW_BF16 : LZ4_BF16, block, (uint64_t)bytes);
        test_bytes out = {0};
        made_delta idle = same;
        made_set_records(&part, &record, 1);
        idle.parts[0] = part;
        idle.group_count = 1;
        idle.payload_bytes = idle.encoded_bytes = (uint64_t)bytes;
        made_write(&idle, &out);
        accept_and_free(&r, out);
        test_bytes_free(&part.bytes);
    }
    rig_close(&r);
}

/* A group of which little is kept, and of what is kept nothing was made another form: chunk 0 has
 * our own block, chunk 1 all literals, all of them zero. */
static void test_block_of_zeros_beside_another(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    model_copy(&r.next, &r.old);
    r.next.tensors[0].data[70] ^= 1;
    encode_again(&r);
    made_record *record = &r.records[0];
    assert_int_equal(r.record_count, 1);
    assert_int_equal(record->sizes_made, 1);
    uint8_t payload[CHUNK] = {0};
    memcpy(payload, record->payload, record->payload_bytes);
    uint8_t *literals = payload + record->payload_bytes;
    literals[0] = 15 << 4;
    memset(literals + 1, 255, (3416 - 15) / 255);
    literals[1 + (3416 - 15) / 255] = (3416 - 15) % 255;
    record->runs[0].second = record->codecs[0].second = record->sizes_made = 2;
    record->sizes[1] = 2 + (3416 - 15) / 255 + 3416;
    record->payload = payload;
    record->payload_bytes += record->sizes[1];
    r.made.payload_bytes = r.made.encoded_bytes = record->payload_bytes;
    accept_and_free(&r, rebuilt(&r));
    rig_close(&r);
}

/* ---- The second pass ---- */

/* A record whose payload is `frame` while its blocks are said to have what the good one's have. */
static void refuse_frame(rig *r, const void *frame, uint64_t bytes) {
    made_record *record = &r->records[0];
    record->flags = MADE_SECOND_PASS;
    record->payload = frame;
    record->payload_bytes = record->stored = bytes;
    refuse_and_free(r, rebuilt(r), XORCAST_DATA_CORRUPT, NULL);
}

static uint64_t raw_sum(const made_record *record) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < record->sizes_made; i++)
        sum += record->sizes[i];
    return sum;
}

static void test_second_pass_bombs(void **state) {
    (void)state;
    enum { BIG = 8 << 20 };
    rig r;
    uint8_t *zeros = calloc(1, BIG), frame[4096];
    assert_non_null(zeros);
    rig_open(&r, true, XORCAST_CODEC_RAW, false); /* raw: blocks enough that a frame is smaller */
    const uint64_t sum = raw_sum(&r.records[0]);
    const uint64_t sizes[] = {sum - 1, sum + 1, 1, 2 * sum, BIG};
    assert_true(sum > 16 * KIB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        refuse_frame(&r, frame, ZSTD_compress(frame, sizeof frame, zeros, sizes[i], 19));
    /* A frame that does not say its size, one that is cut, one with more behind it, two, one to
     * skip. */
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, 0)));
    refuse_frame(&r, frame, ZSTD_compress2(zstd, frame, sizeof frame, zeros, sum));
    ZSTD_freeCCtx(zstd);
    const uint64_t whole = ZSTD_compress(frame, sizeof frame, zeros, sum, 1);
    for (uint64_t cut = 1; cut < whole; cut++)
        refuse_frame(&r, frame, cut);
    memset(frame + whole, 0, 8);
    refuse_frame(&r, frame, whole + 1);
    memcpy(frame + whole, frame, whole);
    refuse_frame(&r, frame, 2 * whole);
    static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    refuse_frame(&r, skippable, sizeof skippable);
    refuse_frame(&r, frame,
                 ZSTD_compress(frame, sizeof frame, zeros, sum, 1)); /* decodes, but to zeros */
    accept(&r, &r.delta);
    rig_close(&r);
    free(zeros);
}

static void test_second_pass_that_is_not_smaller(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    const uint64_t sum = raw_sum(&r.records[0]);
    const uint64_t lies[] = {0, sum, sum + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        r.records[0].flags = MADE_SECOND_PASS;
        r.records[0].stored = lies[i];
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_CORRUPT, "second pass");
    }
    rig_close(&r);
}

/* ---- Whose delta it is ---- */

static void test_wrong_base(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, true);
    for (uint32_t t = 0; t < r.old.count; t++)
        for (unsigned i = 0; i < 2; i++) {
            const uint64_t at =
                i == 0 ? 0 : r.old.tensors[t].bytes - 1; /* touched or not: all count */
            r.old.tensors[t].data[at] ^= 0x20;
            live_set(&r, &r.old);
            refuse(&r, &r.delta, XORCAST_BASE_MISMATCH, "starts from");
            r.old.tensors[t].data[at] ^= 0x20;
            live_set(&r, &r.old);
        }
    for (unsigned lane = 0; lane < 2; lane++) {
        test_bytes out = {0};
        r.made.base_digest[lane] ^= 1;
        made_write(&r.made, &out);
        r.made.base_digest[lane] ^= 1;
        refuse_and_free(&r, out, XORCAST_BASE_MISMATCH, NULL);
        out = (test_bytes){0};
        r.made.target_digest[lane] += 1;
        made_write(&r.made, &out);
        r.made.target_digest[lane] -= 1;
        refuse_and_free(&r, out, XORCAST_BASE_MISMATCH, "changed positions");
    }
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_wrong_layout(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, true);
    for (unsigned i = 0; i < 32; i++) {
        test_bytes out = {0};
        uint8_t *byte = i < 16 ? &r.made.base_fingerprint[i] : &r.made.target_fingerprint[i - 16];
        *byte ^= 0x40;
        made_write(&r.made, &out);
        *byte ^= 0x40;
        refuse_and_free(&r, out, XORCAST_LAYOUT_MISMATCH, "layout");
    }
    uint8_t *const sizes[] = {&r.made.chunk_log2, &r.made.group_log2};
    for (unsigned i = 0; i < 2; i++)
        for (unsigned log2 = 0; log2 < 256; log2++) {
            const uint8_t right = *sizes[i];
            test_bytes out = {0};
            if (log2 == right)
                continue;
            *sizes[i] = (uint8_t)log2;
            made_write(&r.made, &out);
            *sizes[i] = right;
            refuse_and_free(&r, out, XORCAST_DATA_CORRUPT, NULL);
        }
    /* The same bytes as another bundle: another dtype, another chunk size. */
    xorcast_bundle *const right = r.bundle;
    r.live.tensors[2].dtype = "F16";
    r.bundle = live_bundle(&r, CHUNK);
    r.now_bytes = now_bytes(r.context);
    refuse(&r, &r.delta, XORCAST_LAYOUT_MISMATCH, "layout");
    xorcast_bundle_destroy(r.bundle);
    r.live.tensors[2].dtype = "BF16";
    r.bundle = live_bundle(&r, 2 * CHUNK);
    r.now_bytes = now_bytes(r.context);
    refuse(&r, &r.delta, XORCAST_LAYOUT_MISMATCH, "layout");
    xorcast_bundle_destroy(r.bundle);
    r.bundle = right;
    r.now_bytes = now_bytes(r.context);
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_unknown_versions(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    uint32_t *const fields[] = {&r.made.head_version, &r.made.version};
    static const struct {
        uint32_t version;
        const char *words;
    } lies[] = {{0, "format version 0"},
                {0, "make it again with this release"},
                {2, "use a newer library"},
                {0x80000000, "format version 2147483648"}};
    for (unsigned f = 0; f < 2; f++)
        for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
            test_bytes out = {0};
            const uint32_t right = *fields[f];
            *fields[f] = lies[i].version;
            made_write(&r.made, &out);
            *fields[f] = right;
            refuse_and_free(&r, out, XORCAST_DATA_VERSION, lies[i].words);
        }
    const uint32_t flags = r.made.flags;
    for (unsigned bit = 5; bit < 32; bit++) {
        test_bytes out = {0};
        r.made.flags = flags | UINT32_C(1) << bit;
        made_write(&r.made, &out);
        refuse_and_free(&r, out, XORCAST_DATA_VERSION, "flags");
    }
    r.made.flags = flags;
    for (unsigned bit = 2; bit < 8; bit++) {
        r.records[0].flags |= (uint8_t)(1u << bit);
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_VERSION, "group 0");
    }
    for (unsigned codec = 0; codec < 16; codec++) {
        if (codec >= XORCAST_CODEC_RAW && codec <= XORCAST_CODEC_GAP)
            continue;
        r.records[0].codecs[0].first = 0x10u | codec;
        refuse_and_free(&r, rebuilt(&r), XORCAST_DATA_VERSION, "codec");
    }
    rig_close(&r);
}

static void test_run_names_that_lie(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    test_bytes out = {0};
    memset(r.made.run, 'x', sizeof r.made.run);
    r.made.run_bytes = 64; /* no room for the end */
    made_write(&r.made, &out);
    refuse_and_free(&r, out, XORCAST_DATA_CORRUPT, "manifest");
    out = (test_bytes){0};
    r.made.run_bytes = 255;
    made_write(&r.made, &out);
    refuse_and_free(&r, out, XORCAST_DATA_CORRUPT, "manifest");
    out = (test_bytes){0};
    memcpy(r.made.run, "attack\0run", 10); /* would compare equal to another run */
    r.made.run_bytes = 10;
    made_write(&r.made, &out);
    refuse_and_free(&r, out, XORCAST_DATA_CORRUPT, "manifest");
    rig_close(&r);
}

/* ---- Parts ---- */

/* One part for each record: as good a delta as the other. */
static void cut_parts(rig *r) {
    made_part parts[MADE_PARTS_MAX] = {{{0}, 0, 0, {0}}};
    for (uint32_t i = 0; i < r->record_count; i++)
        made_set_records(&parts[i], &r->records[i], 1);
    test_bytes_free(&r->made.parts[0].bytes);
    memcpy(r->made.parts, parts, sizeof parts);
    r->made.part_count = r->made.parts_made = r->record_count;
}

static void test_parts_swapped_missing_foreign(void **state) {
    (void)state;
    rig r, other;
    test_bytes out = {0};
    rig_open(&r, true, XORCAST_CODEC_LZ4, true);
    rig_open(&other, true, XORCAST_CODEC_LZ4, true);
    change(&other.next, 6);
    made_free(&other.made);
    assert_int_equal(
        encode(&other, &other.old, &other.next, XORCAST_CODEC_LZ4, true, 7, "attack", &other.delta),
        XORCAST_OK);
    made_take(&other.made, &other.delta);
    other.record_count = made_records(&other.made.parts[0], other.records, 8);
    assert_int_equal(r.record_count, 4);
    cut_parts(&r);
    cut_parts(&other);
    made_write(&r.made, &out);
    accept(&r, &out);
    for (unsigned a = 0; a < 4; a++) {
        const made_part kept = r.made.parts[a];
        for (unsigned b = a + 1; b < 4; b++) { /* whole entries, then the bytes alone */
            const made_part second = r.made.parts[b];
            r.made.parts[a] = second;
            r.made.parts[b] = kept;
            made_write(&r.made, &out);
            refuse(&r, &out, XORCAST_DATA_CORRUPT, "comes after");
            memcpy(r.made.parts[a].hash, kept.hash, 16);
            memcpy(r.made.parts[b].hash, second.hash, 16);
            made_write(&r.made, &out);
            refuse(&r, &out, 0, NULL);
            r.made.parts[a] = kept;
            r.made.parts[b] = second;
        }
        r.made.parts[a].bytes =
            other.made.parts[a].bytes; /* of another delta, under this one's hash */
        r.made.parts[a].declared_bytes = other.made.parts[a].bytes.count;
        made_write(&r.made, &out);
        refuse(&r, &out, XORCAST_DATA_CORRUPT, "not the one its manifest names");
        r.made.parts[a] = other.made.parts[a]; /* and under its own */
        made_write(&r.made, &out);
        refuse(&r, &out, 0, NULL);
        r.made.parts[a] = kept;
        r.made.parts[a].bytes =
            (test_bytes){kept.bytes.bytes, 0, 0}; /* bytes missing, entry there */
        made_write(&r.made, &out);
        refuse(&r, &out, 0, NULL);
        r.made.parts[a] = kept;
    }
    const made_part last = r.made.parts[3];
    r.made.parts_made = 3;
    r.made.part_count = 3;
    made_write(&r.made, &out);
    refuse(&r, &out, XORCAST_DATA_CORRUPT, NULL); /* groups are missing */
    r.made.group_count = 3;
    made_write(&r.made, &out);
    refuse(&r, &out, XORCAST_DATA_CORRUPT, NULL); /* and counts tell when nothing else does */
    r.made.parts[3] = last;
    r.made.part_count = r.made.group_count = 4;
    r.made.parts_made = 4;
    made_write(&r.made, &out);
    accept_and_free(&r, out);
    rig_close(&other);
    rig_close(&r);
}

/* ---- Fold ---- */

static xorcast_status fold(rig *r, const test_bytes *deltas, uint64_t count) {
    xorcast_source sources[4];
    const xorcast_sink sink = {swallow, NULL};
    for (uint64_t i = 0; i < count; i++)
        sources[i] = test_source(&deltas[i]);
    const xorcast_status status = xorcast_delta_fold(r->context, sources, count, NULL, &sink, NULL);
    assert_int_equal(now_bytes(r->context), r->now_bytes);
    return status;
}

static void test_fold_out_of_order(void **state) {
    (void)state;
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, true);
    model third;
    test_bytes v1 = {0}, v2 = {0}, v3 = {0}, other_run = {0}, other_bytes = {0}, bare1 = {0},
               bare2 = {0};
    tiny_model(&third, false);
    model_copy(&third, &r.next);
    change(&third, 8);
    assert_int_equal(encode(&r, &r.old, &r.next, 0, true, 1, "one", &v1), XORCAST_OK);
    assert_int_equal(encode(&r, &r.next, &third, 0, true, 2, "one", &v2), XORCAST_OK);
    assert_int_equal(encode(&r, &third, &r.old, 0, true, 3, "one", &v3), XORCAST_OK);
    assert_int_equal(encode(&r, &r.next, &third, 0, true, 2, "two", &other_run), XORCAST_OK);
    assert_int_equal(encode(&r, &r.old, &third, 0, true, 2, "one", &other_bytes), XORCAST_OK);
    assert_int_equal(encode(&r, &r.old, &r.next, 0, true, XORCAST_NO_STEP, NULL, &bare1),
                     XORCAST_OK);
    assert_int_equal(encode(&r, &r.next, &third, 0, true, XORCAST_NO_STEP, NULL, &bare2),
                     XORCAST_OK);
    assert_int_equal(fold(&r, (test_bytes[]){v1, v2, v3}, 3), XORCAST_OK);
    assert_int_equal(fold(&r, (test_bytes[]){v1, v3, v2}, 3), XORCAST_VERSION_ORDER);
    assert_int_equal(fold(&r, (test_bytes[]){v2, v1}, 2), XORCAST_VERSION_ORDER);
    assert_int_equal(fold(&r, (test_bytes[]){v1, v1}, 2), XORCAST_VERSION_ORDER);
    assert_int_equal(fold(&r, (test_bytes[]){v1, v3}, 2), XORCAST_VERSION_ORDER);
    assert_int_equal(fold(&r, (test_bytes[]){v1, other_run}, 2), XORCAST_RUN_MISMATCH);
    assert_int_equal(fold(&r, (test_bytes[]){v1, other_bytes}, 2), XORCAST_VERSION_ORDER);
    assert_int_equal(fold(&r, (test_bytes[]){bare1, bare2}, 2), XORCAST_OK);
    assert_int_equal(fold(&r, (test_bytes[]){bare1, bare1}, 2), XORCAST_VERSION_ORDER);
    assert_int_equal(fold(&r, (test_bytes[]){v1, v2}, 2), XORCAST_OK);
    assert_int_equal(fold(&r, NULL, 0), XORCAST_BAD_ARGUMENT);
    test_bytes *const all[] = {&v1, &v2, &v3, &other_run, &other_bytes, &bare1, &bare2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_bytes_free(all[i]);
    model_free(&third);
    accept(&r, &r.delta);
    rig_close(&r);
}

static void test_fold_of_damage(void **state) {
    (void)state;
    static const uint8_t zeros[CHUNK];
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    test_bytes copy = {0};
    test_put(&copy, r.delta.bytes, r.delta.count);
    for (uint64_t at = 0; at < copy.count; at++) {
        copy.bytes[at] ^= 0x10;
        assert_true(fold(&r, &copy, 1) < 0);
        copy.bytes[at] ^= 0x10;
    }
    test_bytes_free(&copy);
    /* Damaged blocks, and one chunk with two sizes. */
    static const uint8_t bad[] = {0x1f, 0x00, 0x02, 0x00, 0xff, 0x10, 0x50, 1, 2, 3, 4, 5};
    static const uint8_t descriptors[] = {LZ4_BF16, SNAPPY_BF16};
    for (unsigned i = 0; i < 2; i++) {
        r.records[0] = made_single(0, 1, descriptors[i], bad, sizeof bad);
        copy = rebuilt(&r);
        assert_int_equal(fold(&r, &copy, 1), XORCAST_DATA_CORRUPT);
        test_bytes_free(&copy);
    }
    test_bytes deltas[2] = {{0}, {0}};
    for (unsigned i = 0; i < 2; i++) {
        r.made.base_step = 7 + i;
        r.made.target_step = 8 + i;
        memcpy(r.made.base_digest, r.made.target_digest, sizeof r.made.base_digest);
        r.records[0] = made_single(0, 1, RAW_BF16, zeros, 100 + i);
        deltas[i] = rebuilt(&r);
    }
    assert_int_equal(fold(&r, deltas, 2), XORCAST_DATA_CORRUPT);
    test_bytes_free(&deltas[0]);
    test_bytes_free(&deltas[1]);
    accept(&r, &r.delta);
    rig_close(&r);
}

/* ---- Memory ---- */

/* What one call takes at most beyond what is in use, measured in a context of its own. */
static uint64_t cost(const test_bytes *delta, bool folding, xorcast_status *status_out) {
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    xorcast_context *fresh = test_context(1);
    xorcast_bundle *bundle = model_bundle(fresh, &r.live, CHUNK, 3);
    const xorcast_source source = test_source(delta);
    const xorcast_sink sink = {swallow, NULL};
    const uint64_t before = now_bytes(fresh);
    xorcast_memory memory;
    *status_out = folding ? xorcast_delta_fold(fresh, &source, 1, NULL, &sink, NULL)
                          : xorcast_delta_apply(bundle, &source, NULL);
    xorcast_context_memory(fresh, &memory);
    assert_int_equal(memory.now_bytes, before);
    assert_true(model_equal(&r.old, &r.live) || *status_out == XORCAST_OK);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(fresh);
    rig_close(&r);
    return memory.high_water_bytes - before;
}

static void no_more_than(test_bytes delta, uint64_t good_apply, uint64_t good_fold, uint64_t more) {
    xorcast_status status;
    const uint64_t apply_bytes = cost(&delta, false, &status);
    assert_true(status < 0);
    const uint64_t fold_bytes = cost(&delta, true, &status);
    if (apply_bytes > good_apply + more || fold_bytes > good_fold + more)
        print_message("apply %llu of %llu, fold %llu of %llu\n", (unsigned long long)apply_bytes,
                      (unsigned long long)good_apply, (unsigned long long)fold_bytes,
                      (unsigned long long)good_fold);
    assert_true(apply_bytes <= good_apply + more);
    assert_true(fold_bytes <= good_fold + more);
    test_bytes_free(&delta);
}

/* Counts of all kinds at their largest in a delta of some hundred bytes: what is allocated follows
 * the bytes that are there, give or take buffers of a group's size. */
static void test_huge_counts_take_no_memory(void **state) {
    (void)state;
    rig r;
    xorcast_status status;
    static const uint64_t lies[] = {32768, UINT64_C(1) << 24, UINT64_C(1) << 32, INT64_MAX,
                                    UINT64_MAX};
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    const uint64_t good_apply = cost(&r.delta, false, &status);
    assert_int_equal(status, XORCAST_OK);
    const uint64_t good_fold = cost(&r.delta, true, &status);
    assert_int_equal(status, XORCAST_OK);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint64_t *const numbers[] = {&r.made.group_count, &r.made.part_count, &r.made.layout_groups,
                                     &r.made.parts[0].declared_groups,
                                     &r.made.parts[0].declared_bytes};
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
            const uint64_t right = *numbers[n];
            test_bytes out = {0};
            *numbers[n] = lies[i];
            made_write(&r.made, &out);
            *numbers[n] = right;
            no_more_than(out, good_apply, good_fold, 64 * KIB);
        }
        r.records[0].runs[0].second = lies[i];
        no_more_than(rebuilt(&r), good_apply, good_fold, 64 * KIB);
        r.records[0].run_count = lies[i];
        no_more_than(rebuilt(&r), good_apply, good_fold, 64 * KIB);
        r.records[0].sizes[0] = lies[i];
        no_more_than(rebuilt(&r), good_apply, good_fold, 64 * KIB);
        test_bytes out = {0};
        r.made.manifest_bytes_lie = lies[i];
        made_write(&r.made, &out);
        r.made.manifest_bytes_lie = 0;
        no_more_than(out, good_apply, good_fold, 64 * KIB);
    }
    rig_close(&r);
}

/* As many chunks as a group may have, each of one byte: fold must not take a chunk's room for each.
 */
static void test_many_small_blocks_take_no_memory(void **state) {
    (void)state;
    enum { BLOCKS = 512 };
    rig r;
    xorcast_status status;
    static uint8_t ones[BLOCKS];
    rig_open(&r, false, XORCAST_CODEC_LZ4, false);
    const uint64_t good_apply = cost(&r.delta, false, &status),
                   good_fold = cost(&r.delta, true, &status);
    memset(ones, 1, sizeof ones);
    r.made.chunk_log2 = 20;
    r.made.group_log2 = 26;
    r.records[0] = made_single(0, 0, RAW_U8, ones, BLOCKS);
    r.records[0].runs[0].second = r.records[0].codecs[0].second = BLOCKS;
    r.records[0].sizes_made = BLOCKS;
    for (unsigned i = 0; i < BLOCKS; i++)
        r.records[0].sizes[i] = 1;
    /* Buffers of one chunk are 64 times as large here; 512 of them would be 512 MiB. */
    no_more_than(rebuilt(&r), good_apply, good_fold, 8 * 1024 * KIB);
    rig_close(&r);
}

static void test_scratch_limit_is_kept(void **state) {
    (void)state;
    model old, live;
    tiny_model(&old, false);
    tiny_model(&live, false);
    rig r;
    rig_open(&r, false, XORCAST_CODEC_LZ4, true);
    bool refused = false, done = false;
    for (uint64_t limit = 4 * KIB; limit < 4096 * KIB && !done; limit += limit / 4) {
        xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
        xorcast_context *context;
        options.threads = 1;
        options.log_level = XORCAST_LOG_ERROR;
        options.scratch_limit_bytes = 512 * KIB + limit;
        assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
        xorcast_bundle *bundle = model_bundle(context, &live, CHUNK, 3);
        const xorcast_source source = test_source(&r.delta);
        const xorcast_status status = xorcast_delta_apply(bundle, &source, NULL);
        xorcast_memory memory;
        xorcast_context_memory(context, &memory);
        assert_true(memory.high_water_bytes <= options.scratch_limit_bytes);
        assert_true(status == XORCAST_OK || status == XORCAST_NO_HOST_MEMORY);
        assert_true(model_equal(&live, status == XORCAST_OK ? &r.next : &old));
        refused = refused || status < 0;
        done = status == XORCAST_OK;
        xorcast_bundle_destroy(bundle);
        xorcast_context_destroy(context);
    }
    assert_true(done);
    (void)refused; /* how much is needed is not this test's to know */
    rig_close(&r);
    model_free(&old);
    model_free(&live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maker_makes_what_the_library_makes),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_flip_at_every_byte),
        cmocka_unit_test(test_damage_names_the_tensor),
        cmocka_unit_test(test_lying_sizes),
        cmocka_unit_test(test_lying_runs),
        cmocka_unit_test(test_runs_that_overlap),
        cmocka_unit_test(test_chunks_out_of_range),
        cmocka_unit_test(test_groups_out_of_order),
        cmocka_unit_test(test_numbers_in_long_form),
        cmocka_unit_test(test_counts_that_lie),
        cmocka_unit_test(test_blocks_that_do_not_fit),
        cmocka_unit_test(test_right_checksum_wrong_content),
        cmocka_unit_test(test_damage_before_an_unknown_part),
        cmocka_unit_test(test_padding_touched),
        cmocka_unit_test(test_width_that_lies),
        cmocka_unit_test(test_foreign_blocks_are_taken),
        cmocka_unit_test(test_block_of_zeros_changes_nothing),
        cmocka_unit_test(test_block_of_zeros_beside_another),
        cmocka_unit_test(test_second_pass_bombs),
        cmocka_unit_test(test_second_pass_that_is_not_smaller),
        cmocka_unit_test(test_wrong_base),
        cmocka_unit_test(test_wrong_layout),
        cmocka_unit_test(test_unknown_versions),
        cmocka_unit_test(test_run_names_that_lie),
        cmocka_unit_test(test_parts_swapped_missing_foreign),
        cmocka_unit_test(test_fold_out_of_order),
        cmocka_unit_test(test_fold_of_damage),
        cmocka_unit_test(test_huge_counts_take_no_memory),
        cmocka_unit_test(test_many_small_blocks_take_no_memory),
        cmocka_unit_test(test_scratch_limit_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
