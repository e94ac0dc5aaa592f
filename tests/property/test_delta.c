/* What must hold for every delta: apply(encode(old, new)) makes new of old, bit for bit, whatever
 * the element width, length, density, codec, second pass, chunk size and number of threads; the
 * bytes of a delta depend on none of the last; a fold is its chain; boxes, strides and ranks make
 * no difference; and the digest sees what sums and XORs would not. Seeded: the seed is printed,
 * XORCAST_SEED sets it. With XORCAST_TEST_DEVICE most weights lie in memory of that device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "support/device_model.h"
#include "support/expect_status.h"

#define KIB UINT64_C(1024)
#define CANARY 0xA5
#define TIMEOUT_MS 20000

static uint64_t seed = 20240229;

static const char *const dtypes[] = {"U8", "BF16", "F32", "F64"};
static const uint32_t widths[] = {1, 2, 4, 8};

static uint64_t now_bytes(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

/* ---- Every length and density ---- */

/* Lengths in elements: 0 to 17, about 4 KiB, where tensors stop being packed, and about a chunk. */
static void lengths_model(model *m, uint32_t width, const char *dtype, uint64_t chunk_bytes) {
    static const uint64_t around[] = {4095, 4096, 4097};
    char name[64];
    memset(m, 0, sizeof *m);
    m->random = seed + width;
    for (uint64_t n = 0; n <= 17; n++) {
        snprintf(name, sizeof name, "t%llu", (unsigned long long)n);
        model_add(m, name, dtype, width, 1, n, 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "elements%llu", (unsigned long long)around[i]);
        model_add(m, name, dtype, width, 1, around[i], 0);
        snprintf(name, sizeof name, "bytes%llu", (unsigned long long)around[i]);
        model_add(m, name, "U8", 1, 1, around[i], 0);
        snprintf(name, sizeof name, "chunk%u", i);
        model_add(m, name, dtype, width, 1, chunk_bytes / width + i - 1, 0);
    }
    snprintf(name, sizeof name, "scalar");
    model_add(m, name, dtype, width, 0, 0, 0);
}

enum { NOTHING = -2, ONE_BIT = -1 };
static const int densities[] = {NOTHING, ONE_BIT, 10000, 170000, 500000, 1000000};

static void change(model *m, int density, uint64_t with) {
    if (density != NOTHING)
        model_step(m, with, density == ONE_BIT ? 0 : (uint32_t)density);
}

static uint64_t bits_between(const model *a, const model *b, uint64_t *bytes_out) {
    uint64_t bits = 0;
    *bytes_out = 0;
    for (uint32_t t = 0; t < a->count; t++)
        for (uint64_t i = 0; i < a->tensors[t].bytes; i++) {
            const unsigned difference = (unsigned)(a->tensors[t].data[i] ^ b->tensors[t].data[i]);
            bits += (uint64_t)__builtin_popcount(difference);
            *bytes_out += difference != 0;
        }
    return bits;
}

typedef struct shape_case {
    uint32_t codec, second_pass, threads;
    uint64_t chunk_bytes;
} shape_case;

static void encode(xorcast_context *context, model *old, model *new, const shape_case *c,
                   uint64_t order, test_bytes *out, xorcast_delta_info *info) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = test_sink(out);
    placed_model a, b;
    options.encoding.codec = c->codec;
    options.encoding.second_pass = c->second_pass;
    placed_open(context, &a, old, c->chunk_bytes, order);
    placed_open(context, &b, new, c->chunk_bytes, order + 1);
    out->count = 0;
    must(context, xorcast_delta_encode(a.bundle, b.bundle, &options, &sink, info));
    placed_close(context, &a);
    placed_close(context, &b);
}

static void apply(xorcast_context *context, model *live, uint64_t chunk_bytes,
                  const test_bytes *delta, xorcast_delta_info *info) {
    placed_model placed;
    placed_open(context, &placed, live, chunk_bytes, 77);
    const xorcast_source source = test_source(delta);
    must(context, xorcast_delta_apply(placed.bundle, &source, info));
    placed_get(context, &placed);
    placed_close(context, &placed);
}

static void check_info(const model *old, const model *new, const xorcast_delta_info *made,
                       const xorcast_delta_info *applied, const test_bytes *delta) {
    uint64_t bytes, total = 0;
    const uint64_t bits = bits_between(old, new, &bytes);
    for (uint32_t t = 0; t < old->count; t++)
        total += old->tensors[t].bytes;
    assert_int_equal(made->counts.bits_changed, bits);
    assert_int_equal(made->counts.bytes_changed, bytes);
    assert_int_equal(made->counts.bytes_covered, total);
    assert_true(made->counts.elements_changed <= made->counts.elements_covered);
    assert_int_equal(made->delta_bytes, delta->count);
    assert_memory_equal(&made->counts, &applied->counts, sizeof made->counts);
    assert_memory_equal(&made->target, &applied->target, sizeof made->target);
}

static void round_trip(uint32_t w, int density, const shape_case *c) {
    model old, new, live;
    xorcast_delta_info made, applied;
    xorcast_context *context = test_weights_context(c->threads);
    lengths_model(&old, widths[w], dtypes[w], c->chunk_bytes);
    lengths_model(&new, widths[w], dtypes[w], c->chunk_bytes);
    lengths_model(&live, widths[w], dtypes[w], c->chunk_bytes);
    change(&new, density, seed + (uint64_t)(density + 3) + c->chunk_bytes);
    const uint64_t before = now_bytes(context);
    test_bytes delta = {0};
    encode(context, &old, &new, c, 5, &delta, &made);
    apply(context, &live, c->chunk_bytes, &delta, &applied);
    assert_true(model_equal(&new, &live));
    check_info(&old, &new, &made, &applied, &delta);
    if (density == NOTHING)
        assert_true(delta.count < 512);
    assert_int_equal(now_bytes(context), before);
    test_bytes_free(&delta);
    model_free(&old);
    model_free(&new);
    model_free(&live);
    xorcast_context_destroy(context);
}

/* Widths, densities, codecs and passes in all combinations; chunk sizes and threads in turn beside
 * them. */
static void test_round_trips(void **state) {
    (void)state;
    static const uint64_t chunk_sizes[] = {16 * KIB, 64 * KIB, 1024 * KIB};
    static const uint32_t thread_counts[] = {1, 2, 7};
    uint32_t turn = 0;
    for (uint32_t w = 0; w < 4; w++)
        for (size_t d = 0; d < sizeof densities / sizeof *densities; d++)
            for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_AUTO; codec++)
                for (uint32_t pass = 0; pass < 2; pass++, turn++) {
                    const bool large = turn % 12 == 11; /* 1 MiB chunks cost the most time */
                    const shape_case c = {codec, pass, thread_counts[turn / 2 % 3],
                                          chunk_sizes[large ? 2 : turn % 2]};
                    round_trip(w, densities[d], &c);
                }
}

static void test_threads_and_order_do_not_matter(void **state) {
    (void)state;
    model old, new;
    test_bytes first = {0}, other = {0};
    model_create(&old, seed);
    model_create(&new, seed);
    model_step(&new, seed, 3000);
    for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_AUTO; codec++)
        for (uint32_t pass = 0; pass < 2; pass++) {
            static const uint32_t thread_counts[] = {1, 2, 7};
            xorcast_delta_info info;
            for (unsigned i = 0; i < 3; i++) {
                const shape_case c = {codec, pass, thread_counts[i], 16 * KIB};
                xorcast_context *context = test_weights_context(thread_counts[i]);
                encode(context, &old, &new, &c, 100 * i, i == 0 ? &first : &other, &info);
                xorcast_context_destroy(context);
                if (i == 0)
                    continue;
                assert_int_equal(first.count, other.count);
                assert_memory_equal(first.bytes, other.bytes, first.count);
            }
        }
    test_bytes_free(&first);
    test_bytes_free(&other);
    model_free(&old);
    model_free(&new);
}

/* ---- Which codec is smallest ---- */

static uint64_t size_of(model *old, model *new, uint32_t codec, uint32_t pass) {
    const shape_case c = {codec, pass, 2, 64 * KIB};
    test_bytes delta = {0};
    xorcast_delta_info info;
    xorcast_context *context = test_weights_context(2);
    encode(context, old, new, &c, 5, &delta, &info);
    xorcast_context_destroy(context);
    test_bytes_free(&delta);
    return info.payload_bytes;
}

/* Payloads of every codec alone, with and without the second pass, beside gap without it and beside
 * auto. `repeats`: changes repeat themselves, which only the second pass sees. */
static void compare_sizes(uint32_t per_million, bool repeats) {
    model old, new;
    uint64_t least = UINT64_MAX;
    memset(&old, 0, sizeof old);
    old.random = seed;
    model_add(&old, "a", "BF16", 2, 2, 300, 1000);
    model_add(&old, "b", "F32", 4, 2, 200, 400);
    model_add(&old, "c", "U8", 1, 2, 500, 700);
    new = old;
    for (uint32_t t = 0; t < old.count; t++) {
        new.tensors[t].data = malloc(old.tensors[t].bytes);
        assert_non_null(new.tensors[t].data);
        memcpy(new.tensors[t].data, old.tensors[t].data, old.tensors[t].bytes);
    }
    model_step(&new, seed + per_million, per_million);
    for (uint32_t t = 0; t < new.count &&repeats; t++)
        for (uint64_t i = 96; i < new.tensors[t].bytes; i++)
            new.tensors[t].data[i] =
                old.tensors[t].data[i] ^ old.tensors[t].data[i % 96] ^ new.tensors[t].data[i % 96];
    for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_SNAPPY; codec++)
        for (uint32_t pass = 0; pass < 2; pass++)
            least = xci_min(least, size_of(&old, &new, codec, pass));
    const uint64_t gap = size_of(&old, &new, XORCAST_CODEC_GAP, 1),
                   packed = size_of(&old, &new, XORCAST_CODEC_GAP, 0);
    if (!repeats)
        assert_true(gap <= least);
    least = xci_min(least, xci_min(gap, packed));
    assert_true(size_of(&old, &new, XORCAST_CODEC_AUTO, 0) <= least + least / 100 + 16);
    assert_true(size_of(&old, &new, XORCAST_CODEC_AUTO, 1) <= gap + 16);
    model_free(&new);
    model_free(&old);
}

static void test_gap_and_auto_are_smallest(void **state) {
    (void)state;
    static const uint32_t millionths[] = {20, 500, 6000, 170000, 500000, 1000000};
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t repeats = 0; repeats < 2; repeats++)
            compare_sizes(millionths[i], repeats != 0);
}

/* The rate decides between few bytes and little work, and the settings travel with the delta. */
static void test_auto_minimises_time(void **state) {
    (void)state;
    static const uint64_t rates[] = {0, 1000000, 1000000000, UINT64_C(1000000000000)};
    model old, new;
    uint64_t before = 0;
    model_create(&old, seed);
    model_create(&new, seed);
    model_step(&new, seed, 6000);
    for (uint32_t receiver = XORCAST_RECEIVER_CPU; receiver <= XORCAST_RECEIVER_ENGINE; receiver++)
        for (uint32_t r = 0; r < 4; r++) {
            xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
            test_bytes delta = {0};
            xorcast_delta_info info;
            xorcast_delta_choices choices;
            xorcast_context *context = test_context(2);
            xorcast_bundle *a = model_bundle(context, &old, 16 * KIB, 1);
            xorcast_bundle *b = model_bundle(context, &new, 16 * KIB, 2);
            const xorcast_sink sink = test_sink(&delta);
            options.encoding.codec = XORCAST_CODEC_AUTO;
            options.encoding.receiver = receiver;
            options.encoding.link_bytes_per_second = rates[r];
            must(context, xorcast_delta_encode(a, b, &options, &sink, NULL));
            const xorcast_source source = test_source(&delta);
            must(context, xorcast_delta_inspect(context, &source, &info));
            assert_int_equal(info.asked.codec, XORCAST_CODEC_AUTO);
            assert_int_equal(info.asked.receiver, receiver);
            assert_int_equal(info.asked.link_bytes_per_second, rates[r]);
            must(context, xorcast_delta_explain(context, &source, &choices));
            uint64_t chunks = 0;
            for (uint32_t c = 0; c < 5; c++)
                chunks += choices.chunks[c];
            assert_int_equal(chunks, info.counts.chunks_changed);
            assert_true(r == 0 || info.payload_bytes >= before); /* a faster link, more bytes */
            assert_true(r < 3 || choices.chunks[XORCAST_CODEC_GAP] == 0);
            before = info.payload_bytes;
            xorcast_bundle_destroy(a);
            xorcast_bundle_destroy(b);
            test_bytes_free(&delta);
            xorcast_context_destroy(context);
        }
    model_free(&old);
    model_free(&new);
}

/* ---- Folds ---- */

static void fold_steps(uint32_t codec, uint32_t pass, uint64_t chunk_bytes, uint32_t threads) {
    enum { STEPS = 4 };
    static const uint32_t steps[STEPS] = {2000, 0, 300, 100000};
    const shape_case c = {codec, pass, threads, chunk_bytes};
    model versions[STEPS + 1], live;
    test_bytes deltas[STEPS] = {{0}}, direct = {0}, folded = {0};
    xorcast_source sources[STEPS];
    xorcast_delta_info info, folded_info;
    xorcast_context *context = test_weights_context(threads);
    for (unsigned i = 0; i <= STEPS; i++) {
        model_create(&versions[i], seed);
        if (i == 0)
            continue;
        model_copy(&versions[i], &versions[i - 1]);
        model_step(&versions[i], seed + i, steps[i - 1]);
        encode(context, &versions[i - 1], &versions[i], &c, i, &deltas[i - 1], &info);
        sources[i - 1] = test_source(&deltas[i - 1]);
    }
    encode(context, &versions[0], &versions[STEPS], &c, 9, &direct, &info);
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    options.encoding.codec = codec;
    options.encoding.second_pass = pass;
    const xorcast_sink sink = test_sink(&folded);
    const uint64_t before = now_bytes(context);
    must(context, xorcast_delta_fold(context, sources, STEPS, &options, &sink, &folded_info));
    assert_int_equal(now_bytes(context), before);
    /* Without weights the same masks: and so the same delta, byte for byte. */
    assert_int_equal(folded.count, direct.count);
    assert_memory_equal(folded.bytes, direct.bytes, direct.count);
    assert_memory_equal(&folded_info.counts, &info.counts, sizeof info.counts);
    model_create(&live, seed);
    apply(context, &live, chunk_bytes, &folded, NULL);
    assert_true(model_equal(&versions[STEPS], &live));
    model_free(&live);
    test_bytes_free(&direct);
    test_bytes_free(&folded);
    for (unsigned i = 0; i <= STEPS; i++)
        model_free(&versions[i]);
    for (unsigned i = 0; i < STEPS; i++)
        test_bytes_free(&deltas[i]);
    xorcast_context_destroy(context);
}

static void test_fold_is_the_chain(void **state) {
    (void)state;
    for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_AUTO; codec++) {
        fold_steps(codec, 0, 16 * KIB, 2);
        fold_steps(codec, 1, 64 * KIB, 1);
    }
}

static void test_there_and_back_folds_to_nothing(void **state) {
    (void)state;
    const shape_case c = {XORCAST_CODEC_LZ4, 0, 2, 16 * KIB};
    model old, new;
    test_bytes deltas[2] = {{0}}, folded = {0};
    xorcast_delta_info info;
    xorcast_context *context = test_weights_context(2);
    const xorcast_sink sink = test_sink(&folded);
    model_create(&old, seed);
    model_create(&new, seed);
    model_step(&new, seed, 5000);
    encode(context, &old, &new, &c, 1, &deltas[0], &info);
    encode(context, &new, &old, &c, 1, &deltas[1], &info);
    const xorcast_source sources[2] = {test_source(&deltas[0]), test_source(&deltas[1])};
    must(context, xorcast_delta_fold(context, sources, 2, NULL, &sink, &info));
    assert_int_equal(info.counts.bytes_changed, 0);
    assert_int_equal(info.group_count, 0);
    assert_true(folded.count < 512);
    apply(context, &old, 16 * KIB, &folded, NULL);
    test_bytes_free(&folded);
    test_bytes_free(&deltas[0]);
    test_bytes_free(&deltas[1]);
    model_free(&old);
    model_free(&new);
    xorcast_context_destroy(context);
}

/* ---- One tensor larger than any buffer ---- */

static void test_tensor_larger_than_a_group(void **state) {
    (void)state;
    const shape_case c = {XORCAST_CODEC_LZ4, 0, 2, 16 * KIB};
    model old, new, live;
    model *const all[] = {&old, &new, &live};
    test_bytes delta = {0};
    xorcast_delta_info info;
    xorcast_context *context = test_weights_context(2);
    for (unsigned i = 0; i < 3; i++) {
        memset(all[i], 0, sizeof *all[i]);
        all[i]->random = seed;
        model_add(all[i], "wide", "BF16", 2, 2, 1100, 2047); /* 4.3 MiB in groups of 1 MiB */
    }
    model_step(&new, seed, 700);
    encode(context, &old, &new, &c, 1, &delta, &info);
    assert_true(info.group_count >= 4);
    apply(context, &live, c.chunk_bytes, &delta, &info);
    assert_true(model_equal(&new, &live));
    test_bytes_free(&delta);
    for (unsigned i = 0; i < 3; i++)
        model_free(all[i]);
    xorcast_context_destroy(context);
}

static void test_one_byte_costs_little(void **state) {
    (void)state;
    const shape_case c = {XORCAST_CODEC_LZ4, 0, 2, 64 * KIB};
    model old, new;
    test_bytes delta = {0};
    xorcast_delta_info info;
    xorcast_context *context = test_weights_context(2);
    model_create(&old, seed);
    model_create(&new, seed);
    model_step(&new, seed, 0);
    encode(context, &old, &new, &c, 1, &delta, &info);
    assert_true(delta.count < KIB);
    test_bytes_free(&delta);
    model_free(&old);
    model_free(&new);
    xorcast_context_destroy(context);
}

/* ---- Bits, never floats ---- */

/* A bundle of one tensor over `words`. */
static xorcast_bundle *words_bundle(xorcast_context *context, const char *dtype, void *words,
                                    uint64_t count, uint64_t bytes) {
    xorcast_bundle *bundle;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = "words";
    tensor.dtype = dtype;
    tensor.shape = &count;
    tensor.rank = 1;
    tensor.bytes = bytes;
    tensor.data = words;
    must(context, xorcast_bundle_create(context, NULL, &bundle));
    must(context, xorcast_bundle_add(bundle, &tensor));
    must(context, xorcast_bundle_seal(bundle, NULL));
    return bundle;
}

static void check_words(const char *dtype, void *old_words, void *new_words, uint64_t count,
                        uint64_t bytes, uint64_t elements_changed) {
    xorcast_context *context = test_context(1);
    xorcast_bundle *old = words_bundle(context, dtype, old_words, count, bytes);
    xorcast_bundle *new = words_bundle(context, dtype, new_words, count, bytes);
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    xorcast_delta_info info;
    must(context, xorcast_delta_encode(old, new, NULL, &sink, &info));
    assert_int_equal(info.counts.elements_changed, elements_changed);
    const xorcast_source source = test_source(&delta);
    must(context, xorcast_delta_apply(old, &source, NULL));
    assert_memory_equal(old_words, new_words, bytes);
    test_bytes_free(&delta);
    xorcast_bundle_destroy(old);
    xorcast_bundle_destroy(new);
    xorcast_context_destroy(context);
}

/* Every BF16 pattern to its twin of another sign, to a NaN of its own payload, to its inverse. */
static void test_all_bf16_patterns(void **state) {
    (void)state;
    enum { COUNT = 65536 };
    static const uint16_t flips[] = {0x8000, 0x7f80, 0xffff, 0x0001, 0x0040};
    uint16_t *old = malloc(COUNT * 2), *new = malloc(COUNT * 2);
    assert_non_null(old);
    assert_non_null(new);
    for (unsigned f = 0; f < 5; f++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            old[i] = (uint16_t)i;
            new[i] = (uint16_t)(i ^ flips[f]);
        }
        check_words("BF16", old, new, COUNT, COUNT * 2, COUNT);
    }
    uint64_t changed = 0;
    for (uint32_t i = 0; i < COUNT; i++) { /* anything becomes a NaN; NaNs of that payload stay */
        old[i] = (uint16_t)i;
        new[i] = (uint16_t)(0x7fc0 | (i & 0x803f));
        changed += old[i] != new[i];
    }
    check_words("BF16", old, new, COUNT, COUNT * 2, changed);
    free(old);
    free(new);
}

static void test_carries_and_special_values(void **state) {
    (void)state;
    uint16_t old16[] = {0x0001, 0x8001, 0x3f80, 0x00ff, 0x0100, 0x0000, 0x8000, 0x7fc1};
    uint16_t new16[] = {0x8001, 0x0001, 0x4040, 0x0100, 0x00ff, 0x8000, 0x0000, 0x7fc1};
    uint32_t old32[] = {0x7fc00000, 0x7f800001, 0x00000000, 0x80000000, 0x3f800000};
    uint32_t new32[] = {0x7fc00001, 0xff800001, 0x80000000, 0x80000000, 0xffc12345};
    check_words("BF16", old16, new16, 8, sizeof old16, 7);
    check_words("F32", old32, new32, 5, sizeof old32, 4);
}

/* ---- What the digest sees ---- */

static xorcast_digest digest_of(const model *m) {
    xorcast_digest digest;
    xorcast_context *context = test_context(1);
    xorcast_bundle *bundle = model_bundle(context, m, 16 * KIB, 1);
    must(context, xorcast_bundle_digest(bundle, &digest));
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    return digest;
}

static void must_differ(const model *m, const xorcast_digest *from) {
    const xorcast_digest digest = digest_of(m);
    assert_true(digest.lane[0] != from->lane[0]);
    assert_true(digest.lane[1] != from->lane[1]);
}

static void swap_bytes(uint8_t *a, uint8_t *b, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void test_digest_sees_swaps_and_top_bits(void **state) {
    (void)state;
    model m;
    memset(&m, 0, sizeof m);
    m.random = seed;
    model_add(&m, "a", "F64", 8, 1, 4000, 0);
    model_add(&m, "b", "F64", 8, 1, 4000, 0);
    model_add(&m, "small.a", "F64", 8, 1, 3, 0);
    model_add(&m, "small.b", "F64", 8, 1, 3, 0);
    const xorcast_digest digest = digest_of(&m);
    uint8_t *const a = m.tensors[0].data, *const b = m.tensors[1].data;
    for (unsigned bit = 0; bit < 64;
         bit += 9) /* the same bit of two words: sums of word * odd number miss bit 63 */
        for (unsigned other = 1; other < 4; other++) {
            a[bit / 8] ^= (uint8_t)(1u << bit % 8);
            a[8 * 800 * other + bit / 8] ^= (uint8_t)(1u << bit % 8);
            must_differ(&m, &digest);
            a[bit / 8] ^= (uint8_t)(1u << bit % 8);
            a[8 * 800 * other + bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    a[7] ^= 0x80;
    a[15] ^= 0x80;
    must_differ(&m, &digest);
    a[7] ^= 0x80;
    a[15] ^= 0x80;
    swap_bytes(a, a + 8, 8); /* neighbours, far words, words of two tensors, whole tensors */
    must_differ(&m, &digest);
    swap_bytes(a, a + 8, 8);
    swap_bytes(a, a + 8 * 3999, 8);
    must_differ(&m, &digest);
    swap_bytes(a, a + 8 * 3999, 8);
    swap_bytes(a + 40, b + 40, 8);
    must_differ(&m, &digest);
    swap_bytes(a + 40, b + 40, 8);
    swap_bytes(a, b, 32000);
    must_differ(&m, &digest);
    swap_bytes(a, b, 32000);
    swap_bytes(m.tensors[2].data, m.tensors[3].data, 24);
    must_differ(&m, &digest);
    swap_bytes(m.tensors[2].data, m.tensors[3].data, 24);
    const xorcast_digest again = digest_of(&m);
    assert_memory_equal(&again, &digest, sizeof digest);
    model_free(&m);
}

static void test_digest_does_not_see_chunks(void **state) {
    (void)state;
    static const uint64_t chunk_sizes[] = {16 * KIB, 64 * KIB, 1024 * KIB};
    xorcast_digest first = {{0, 0}};
    model m;
    model_create(&m, seed);
    for (unsigned i = 0; i < 3; i++) {
        xorcast_digest digest;
        xorcast_context *context = test_context(1 + i);
        xorcast_bundle *bundle = model_bundle(context, &m, chunk_sizes[i], i);
        must(context, xorcast_bundle_digest(bundle, &digest));
        if (i == 0)
            first = digest;
        assert_memory_equal(&first, &digest, sizeof digest);
        xorcast_bundle_destroy(bundle);
        xorcast_context_destroy(context);
    }
    model_free(&m);
}

/* ---- Ranks: boxes with canaries between them ---- */

enum { ROWS = 96, ROW_BYTES = 1024 };

/* What the trainer has: q, k, v of a fused projection, a column-parallel and a row-parallel matrix,
 * a norm that every rank holds, a strided one, and one that a rank does not hold at all. */
typedef struct whole {
    xorcast_context *context;
    model m;
    xorcast_bundle *bundle;
    xorcast_publisher *publisher;
} whole;

static void whole_model(model *m) {
    memset(m, 0, sizeof *m);
    m->random = seed;
    model_add(m, "column", "BF16", 2, 2, ROWS, ROW_BYTES / 2);
    model_add(m, "expert", "U8", 1, 2, 64, 512);
    model_add(m, "k", "BF16", 2, 2, 32, ROW_BYTES / 2);
    model_add(m, "norm", "BF16", 2, 1, 700, 0);
    model_add(m, "q", "BF16", 2, 2, 64, ROW_BYTES / 2);
    model_add(m, "row", "BF16", 2, 2, ROWS, ROW_BYTES / 2);
    model_add(m, "strided", "BF16", 2, 2, 20000, 1);
    model_add(m, "v", "BF16", 2, 2, 32, ROW_BYTES / 2);
}

typedef struct rank_rig {
    xorcast_context *context;
    xorcast_bundle *bundle;
    xorcast_subscriber *subscriber;
    uint8_t *arena; /* all the rank's memory, canaries between */
    uint64_t used, capacity;
    struct {
        uint64_t tensor, row, rows, column, bytes, pitch, at;
    } boxes[32];
    uint32_t box_count;
} rank_rig;

static model_tensor *tensor_of(const model *m, const char *name) {
    for (uint32_t i = 0; i < m->count; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return (model_tensor *)(uintptr_t)&m->tensors[i];
    fail();
    return NULL;
}

/* Plans a box at `at` of the arena, filled with the trainer's present bytes. */
static xorcast_box box_at(rank_rig *r, const model *m, const char *name, uint64_t row_bytes,
                          uint64_t row, uint64_t rows, uint64_t column, uint64_t bytes,
                          uint64_t pitch, uint64_t at, uint32_t flags) {
    const model_tensor *t = tensor_of(m, name);
    for (uint64_t i = 0; i < rows; i++)
        memcpy(r->arena + at + i * pitch, t->data + (row + i) * row_bytes + column, bytes);
    r->boxes[r->box_count].tensor = (uint64_t)(t - m->tensors);
    r->boxes[r->box_count].row = row * row_bytes;
    r->boxes[r->box_count].rows = rows;
    r->boxes[r->box_count].column = column;
    r->boxes[r->box_count].bytes = bytes;
    r->boxes[r->box_count].pitch = pitch;
    r->boxes[r->box_count++].at = at;
    return (xorcast_box){row, rows, column, bytes, r->arena + at, pitch, flags};
}

static void add_boxed(rank_rig *r, const model *m, const char *name, const xorcast_box *boxes,
                      uint32_t count, uint64_t row_bytes) {
    xorcast_tensor tensor = model_describe(tensor_of(m, name));
    tensor.data = NULL;
    tensor.boxes = boxes;
    tensor.box_count = count;
    tensor.row_bytes = row_bytes;
    must(r->context, xorcast_bundle_add(r->bundle, &tensor));
}

static uint64_t place(rank_rig *r, uint64_t bytes) {
    const uint64_t at = r->used + 24; /* never at the alignment a tensor of its own would have */
    r->used = at + bytes;
    assert_true(r->used <= r->capacity);
    return at;
}

/* The parts of a fused matrix of this rank: rows of q, k and v behind each other, interleaved by
 * head. */
static void add_fused(rank_rig *r, const model *m, uint64_t rank) {
    const uint64_t pitch = 3 * ROW_BYTES + 40, at = place(r, 32 * pitch);
    xorcast_box boxes[2];
    boxes[0] = box_at(r, m, "q", ROW_BYTES, 32 * rank, 32, 0, ROW_BYTES, pitch, at, 0);
    add_boxed(r, m, "q", boxes, 1, 0);
    /* k: half of the rows of each rank, the other half as a replica elsewhere. */
    boxes[0] = box_at(r, m, "k", ROW_BYTES, 16 * rank, 16, 0, ROW_BYTES, pitch, at + ROW_BYTES, 0);
    boxes[1] = box_at(r, m, "k", ROW_BYTES, 16 * (1 - rank), 16, 0, ROW_BYTES, pitch,
                      at + ROW_BYTES + 16 * pitch, XORCAST_BOX_REPLICA);
    add_boxed(r, m, "k", boxes, 2, 0);
    boxes[0] = box_at(r, m, "v", ROW_BYTES, 0, 32, 512 * rank, 512, pitch, at + 2 * ROW_BYTES, 0);
    add_boxed(r, m, "v", boxes, 1, 0);
}

static void rank_open(rank_rig *r, const whole *w, uint64_t rank) {
    const model *m = &w->m;
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_box boxes[2];
    memset(r, 0, sizeof *r);
    r->capacity = 1 << 20;
    r->arena = malloc(r->capacity);
    assert_non_null(r->arena);
    memset(r->arena, CANARY, r->capacity);
    r->context = test_context(2);
    options.chunk_bytes = 16 * KIB;
    options.group_bytes = 1024 * KIB;
    must(r->context, xorcast_bundle_create(r->context, &options, &r->bundle));
    boxes[0] =
        box_at(r, m, "column", ROW_BYTES, 0, ROWS, 512 * rank, 512, 600, place(r, ROWS * 600), 0);
    add_boxed(r, m, "column", boxes, 1, 0);
    boxes[0] = box_at(r, m, "row", ROW_BYTES, 48 * rank, 48, 0, ROW_BYTES, ROW_BYTES,
                      place(r, 48 * ROW_BYTES), 0);
    boxes[1] = box_at(r, m, "row", ROW_BYTES, 48 * rank, 48, 0, ROW_BYTES, ROW_BYTES + 8,
                      place(r, 48 * (ROW_BYTES + 8)), XORCAST_BOX_REPLICA);
    add_boxed(r, m, "row", boxes, 2, 0);
    boxes[0] = box_at(r, m, "norm", 1400, 0, 1, 0, 1400, 1400, place(r, 1400),
                      rank == 0 ? 0 : XORCAST_BOX_REPLICA);
    add_boxed(r, m, "norm", boxes, 1, 0);
    /* Elements of two bytes, four apart: half of them on each rank. */
    boxes[0] = box_at(r, m, "strided", 2, 10000 * rank, 10000, 0, 2, 4, place(r, 40000), 0);
    add_boxed(r, m, "strided", boxes, 1, 0);
    if (rank == 1) {
        boxes[0] = box_at(r, m, "expert", 512, 0, 64, 0, 512, 512, place(r, 64 * 512), 0);
        add_boxed(r, m, "expert", boxes, 1, 0);
    } else { /* this rank has none of it but one word, and that as a replica */
        boxes[0] = box_at(r, m, "expert", 512, 3, 1, 8, 8, 8, place(r, 8), XORCAST_BOX_REPLICA);
        add_boxed(r, m, "expert", boxes, 1, 0);
    }
    add_fused(r, m, rank);
    must(r->context, xorcast_bundle_seal(r->bundle, NULL));
    must(r->context, xorcast_subscriber_open(r->bundle, xorcast_publisher_url(w->publisher), NULL,
                                             &r->subscriber));
}

static void rank_close(rank_rig *r) {
    xorcast_subscriber_close(r->subscriber);
    xorcast_bundle_destroy(r->bundle);
    xorcast_context_destroy(r->context);
    free(r->arena);
}

/* Every box has the trainer's bytes, and no byte between boxes was touched. */
static void check_rank(const rank_rig *r, const model *m) {
    uint8_t *expected = malloc(r->capacity);
    assert_non_null(expected);
    memset(expected, CANARY, r->capacity);
    for (uint32_t b = 0; b < r->box_count; b++) {
        const model_tensor *t = &m->tensors[r->boxes[b].tensor];
        const uint64_t row_bytes = t->rank == 2 ? t->bytes / t->shape[0] : t->bytes;
        for (uint64_t i = 0; i < r->boxes[b].rows; i++)
            memcpy(expected + r->boxes[b].at + i * r->boxes[b].pitch,
                   t->data + r->boxes[b].row + i * row_bytes + r->boxes[b].column,
                   r->boxes[b].bytes);
    }
    assert_memory_equal(expected, r->arena, r->capacity);
    free(expected);
}

static void publish(whole *w, uint64_t step, uint32_t per_million) {
    model_step(&w->m, seed + step, per_million);
    must(w->context, xorcast_publisher_begin(w->publisher, step));
    must(w->context, xorcast_publisher_put(w->publisher, 0, NULL, NULL));
    must(w->context, xorcast_publisher_finish(w->publisher, NULL));
}

static void follow(rank_rig *r, const model *m, uint64_t step) {
    uint64_t newest;
    must(r->context, xorcast_subscriber_poll(r->subscriber, TIMEOUT_MS, &newest));
    assert_int_equal(newest, step);
    must(r->context, xorcast_subscriber_stage(r->subscriber, newest, TIMEOUT_MS));
    must(r->context, xorcast_subscriber_commit(r->subscriber, NULL));
    must(r->context, xorcast_subscriber_wait(r->subscriber, TIMEOUT_MS));
    check_rank(r, m);
    must(r->context, xorcast_subscriber_audit(r->subscriber, 0));
}

static xorcast_digest sum_of(rank_rig *ranks, uint64_t count) {
    xorcast_digest sum = {{0, 0}};
    for (uint64_t i = 0; i < count; i++) {
        xorcast_subscriber_stats stats;
        xorcast_subscriber_get_stats(ranks[i].subscriber, &stats);
        sum.lane[0] += stats.digest.lane[0];
        sum.lane[1] += stats.digest.lane[1];
    }
    return sum;
}

static void whole_open(whole *w, const char *url, const xorcast_encoding *encoding) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.encoding = *encoding;
    options.log_bytes = 1 << 30;
    options.step = 1;
    w->context = test_context(2);
    whole_model(&w->m);
    w->bundle = model_bundle(w->context, &w->m, 16 * KIB, 4);
    must(w->context, xorcast_publisher_open(w->bundle, url, &options, &w->publisher));
}

static void whole_close(whole *w) {
    xorcast_publisher_close(w->publisher);
    xorcast_bundle_destroy(w->bundle);
    xorcast_context_destroy(w->context);
    model_free(&w->m);
}

static const xorcast_encoding by_default = XORCAST_ENCODING_INIT;

static void ranks_follow(const char *url, const xorcast_encoding *encoding) {
    static const uint32_t steps[] = {0, 500, 20000, 1000000};
    whole w;
    rank_rig ranks[2];
    xorcast_digest published, sum;
    whole_open(&w, url, encoding);
    for (uint64_t i = 0; i < 2; i++)
        rank_open(&ranks[i], &w, i);
    for (uint64_t s = 0; s < 4; s++) {
        must(w.context, xorcast_bundle_digest(w.bundle, &published));
        sum = sum_of(ranks, 2);
        assert_memory_equal(&sum, &published, sizeof sum);
        for (uint64_t i = 0; i < 2; i++) {
            if (s == 0) { /* which version it is, only all ranks together can say */
                xorcast_version version;
                xorcast_subscriber_current(ranks[i].subscriber, &version);
                assert_int_equal(version.step, XORCAST_NO_STEP);
                must(ranks[i].context, xorcast_subscriber_adopt(ranks[i].subscriber, &sum));
            }
        }
        publish(&w, 2 + s, steps[s]);
        for (uint64_t i = 0; i < 2; i++)
            follow(&ranks[i], &w.m, 2 + s);
    }
    must(w.context, xorcast_bundle_digest(w.bundle, &published));
    sum = sum_of(ranks, 2);
    assert_memory_equal(&sum, &published, sizeof sum);
    sum.lane[0]++;
    assert_int_equal(xorcast_subscriber_adopt(ranks[0].subscriber, &sum), XORCAST_VERSION_GONE);
    for (uint64_t i = 0; i < 2; i++)
        rank_close(&ranks[i]);
    whole_close(&w);
}

static void test_ranks_follow_with_boxes(void **state) {
    (void)state;
    ranks_follow("inproc:ranks", &by_default);
}

/* A form for receivers that hold the old weights whole is none for them: they take the plain
 * one. */
static void test_ranks_take_the_plain_form(void **state) {
    (void)state;
    xorcast_encoding encoding = XORCAST_ENCODING_INIT;
    encoding.codec = XORCAST_CODEC_GAP;
    encoding.old_weights = 1;
    ranks_follow("inproc:plain-ranks", &encoding);
}

static void test_rank_takes_a_keyframe(void **state) {
    (void)state;
    whole w;
    rank_rig rank;
    whole_open(&w, "inproc:rank-keyframe", &by_default);
    rank_open(&rank, &w, 1);
    publish(&w, 2, 1000000);
    must(rank.context, xorcast_subscriber_keyframe(rank.subscriber, TIMEOUT_MS));
    check_rank(&rank, &w.m);
    publish(&w, 3, 3000);
    follow(&rank, &w.m, 3);
    rank_close(&rank);
    whole_close(&w);
}

/* A stride of two elements, a transposed view and a slice: whole tensors, so encode and apply take
 * them. */
static void test_strided_tensors_encode_and_apply(void **state) {
    (void)state;
    enum { COUNT = 9000, GAP = 4 };
    uint8_t *memory[2], *plain = malloc(2 * COUNT);
    xorcast_bundle *bundles[2];
    xorcast_context *context = test_context(2);
    const uint64_t shape = COUNT;
    uint64_t random = seed;
    for (unsigned i = 0; i < 2; i++) {
        memory[i] = malloc(GAP * COUNT);
        assert_non_null(memory[i]);
        memset(memory[i], CANARY, GAP * COUNT);
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        const xorcast_box box = {0, COUNT, 0, 2, memory[i], GAP, 0};
        tensor.name = "strided";
        tensor.dtype = "BF16";
        tensor.shape = &shape;
        tensor.rank = 1;
        tensor.bytes = 2 * COUNT;
        tensor.boxes = &box;
        tensor.box_count = 1;
        tensor.row_bytes = 2;
        must(context, xorcast_bundle_create(context, NULL, &bundles[i]));
        must(context, xorcast_bundle_add(bundles[i], &tensor));
        must(context, xorcast_bundle_seal(bundles[i], NULL));
        for (uint64_t j = 0; j < COUNT; j++) {
            memory[i][GAP * j] =
                (uint8_t)(i == 0 ? j : memory[0][GAP * j] ^ (model_random(&random) % 16 == 0));
            memory[i][GAP * j + 1] = (uint8_t)(j >> 8);
        }
    }
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    must(context, xorcast_delta_encode(bundles[0], bundles[1], NULL, &sink, NULL));
    const xorcast_source source = test_source(&delta);
    must(context, xorcast_delta_apply(bundles[0], &source, NULL));
    assert_memory_equal(memory[0], memory[1], GAP * COUNT);
    /* The same bytes without a stride have the same digest. */
    xorcast_digest strided, dense;
    must(context, xorcast_bundle_digest(bundles[1], &strided));
    for (uint64_t j = 0; j < COUNT; j++)
        memcpy(plain + 2 * j, memory[1] + GAP * j, 2);
    xorcast_bundle *without = words_bundle(context, "BF16", plain, COUNT, 2 * COUNT);
    must(context, xorcast_bundle_digest(without, &dense));
    assert_memory_equal(&strided, &dense, sizeof dense);
    xorcast_bundle_destroy(without);
    test_bytes_free(&delta);
    for (unsigned i = 0; i < 2; i++) {
        xorcast_bundle_destroy(bundles[i]);
        free(memory[i]);
    }
    free(plain);
    xorcast_context_destroy(context);
}

/* ---- Quantised weights, all in one version ---- */

static void test_values_and_scales_move_together(void **state) {
    (void)state;
    whole w;
    model live;
    uint64_t newest;
    xorcast_subscriber *subscriber;
    xorcast_context *sampler = test_context(1);
    memset(&w, 0, sizeof w);
    w.context = test_context(1);
    model *const both[] = {&w.m, &live};
    for (unsigned i = 0; i < 2; i++) {
        memset(both[i], 0, sizeof *both[i]);
        both[i]->random = seed;
        model_add(both[i], "w", "U8", 1, 2, 300, 256);
        model_add(both[i], "w.scale", "F8_E4M3", 1, 2, 300, 32);
        model_add(both[i], "w.scale_2", "F32", 4, 0, 0, 0);
    }
    w.bundle = model_bundle(w.context, &w.m, 16 * KIB, 1);
    must(w.context, xorcast_publisher_open(w.bundle, "inproc:quantised", NULL, &w.publisher));
    xorcast_bundle *to = model_bundle(sampler, &live, 16 * KIB, 2);
    must(sampler, xorcast_subscriber_open(to, "inproc:quantised", NULL, &subscriber));
    memset(w.m.tensors[0].data, 0, 256 * 4); /* a block of zeros, its scale, and the scale of all */
    memset(w.m.tensors[1].data, 0, 32 * 4);
    memcpy(w.m.tensors[2].data, "\x01\x00\xc0\x7f", 4);
    must(w.context, xorcast_publisher_begin(w.publisher, 1));
    must(w.context, xorcast_publisher_put(w.publisher, 0, NULL, NULL));
    must(w.context, xorcast_publisher_finish(w.publisher, NULL));
    must(sampler, xorcast_subscriber_poll(subscriber, TIMEOUT_MS, &newest));
    must(sampler, xorcast_subscriber_stage(subscriber, newest, TIMEOUT_MS));
    must(sampler, xorcast_subscriber_commit(subscriber, NULL));
    must(sampler, xorcast_subscriber_wait(subscriber, TIMEOUT_MS));
    assert_true(model_equal(&w.m, &live));
    xorcast_subscriber_close(subscriber);
    xorcast_bundle_destroy(to);
    xorcast_context_destroy(sampler);
    model_free(&live);
    whole_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_threads_and_order_do_not_matter),
        cmocka_unit_test(test_gap_and_auto_are_smallest),
        cmocka_unit_test(test_auto_minimises_time),
        cmocka_unit_test(test_fold_is_the_chain),
        cmocka_unit_test(test_there_and_back_folds_to_nothing),
        cmocka_unit_test(test_tensor_larger_than_a_group),
        cmocka_unit_test(test_one_byte_costs_little),
        cmocka_unit_test(test_all_bf16_patterns),
        cmocka_unit_test(test_carries_and_special_values),
        cmocka_unit_test(test_digest_sees_swaps_and_top_bits),
        cmocka_unit_test(test_digest_does_not_see_chunks),
        cmocka_unit_test(test_ranks_follow_with_boxes),
        cmocka_unit_test(test_ranks_take_the_plain_form),
        cmocka_unit_test(test_rank_takes_a_keyframe),
        cmocka_unit_test(test_strided_tensors_encode_and_apply),
        cmocka_unit_test(test_values_and_scales_move_together),
    };
    if (getenv("XORCAST_SEED") != NULL)
        seed = strtoull(getenv("XORCAST_SEED"), NULL, 10);
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
