/* The library's order-0 bound says what bench/compare/entropy.h defines, for every width, packed
 * chunks and chunk size, for deltas and for one version of a publisher after another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/entropy.h"
#include "gen/gen.h"
#include "xorcast.h"

typedef struct kind {
    const char *dtype;
    uint32_t width;
    gen_kind changes; /* how its bytes change */
    uint64_t elements;
} kind;

/* Large ones, ones that share a packed chunk, and an empty one. */
static const kind kinds[] = {
    {"BF16", 2, GEN_BF16, 150000},  {"F32", 4, GEN_F32_SCALE, 50000},
    {"U8", 1, GEN_NVFP4, 200001},   {"F64", 8, GEN_F32_SCALE, 9000},
    {"F8_E4M3", 1, GEN_FP8, 70000}, {"I64", 8, GEN_BF16, 100},
    {"F32", 4, GEN_F32_SCALE, 1},   {"U8", 1, GEN_RANDOM, 33},
    {"F32", 4, GEN_F32_SCALE, 7},   {"F16", 2, GEN_BF16, 101},
    {"BF16", 2, GEN_BF16, 0},       {"F32", 4, GEN_F32_SCALE, 500},
};
enum { KINDS = sizeof kinds / sizeof *kinds, BYTES = 1 << 20 };

typedef struct side {
    xorcast_context *context;
    xorcast_bundle *bundle;
    uint8_t *memory;
    uint64_t at[KINDS], bytes[KINDS];
} side;

static void open_side(side *s, uint64_t chunk_bytes) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_bundle_options grid = XORCAST_BUNDLE_OPTIONS_INIT;
    options.threads = 2;
    grid.chunk_bytes = chunk_bytes;
    assert_int_equal(xorcast_context_create(&options, &s->context), XORCAST_OK);
    assert_int_equal(xorcast_bundle_create(s->context, &grid, &s->bundle), XORCAST_OK);
    s->memory = calloc(BYTES, 1);
    assert_non_null(s->memory);
    uint64_t at = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = name;
        tensor.dtype = kinds[i].dtype;
        tensor.shape = &kinds[i].elements;
        tensor.rank = 1;
        tensor.bytes = s->bytes[i] = kinds[i].elements * kinds[i].width;
        tensor.data = s->memory + (s->at[i] = at);
        at += (tensor.bytes + 63) / 64 * 64;
        assert_true(at <= BYTES);
        gen_weights(kinds[i].changes, 3, i, 0, tensor.data, tensor.bytes);
        assert_int_equal(xorcast_bundle_add(s->bundle, &tensor), XORCAST_OK);
    }
    assert_int_equal(xorcast_bundle_seal(s->bundle, NULL), XORCAST_OK);
}

static void close_side(side *s) {
    xorcast_bundle_destroy(s->bundle);
    xorcast_context_destroy(s->context);
    free(s->memory);
}

/* Changes what `step` changes and returns the bound of that. Every third step leaves tensors as
 * they are. */
static double change(side *s, uint64_t step) {
    static uint8_t before[BYTES];
    double bound = 0;
    memcpy(before, s->memory, BYTES);
    for (uint32_t i = 0; i < KINDS; i++) {
        const gen_mask mask = {kinds[i].changes, false, (i + step) % 3 == 0 ? 0 : 0.2, 5, i, step};
        gen_mask_xor(&mask, 0, s->memory + s->at[i], s->bytes[i]);
        compare_counts *counts = compare_counts_new(kinds[i].dtype, kinds[i].width);
        assert_non_null(counts);
        compare_counts_add(counts, before + s->at[i], s->memory + s->at[i], s->bytes[i]);
        bound += compare_counts_bounds(counts).order0;
        compare_counts_free(counts);
    }
    assert_true(bound > 1000);
    return bound;
}

static void same(double found, double expected) {
    if (fabs(found - expected) > 1e-9 * expected) {
        fail_msg("the bound is %.12g, not %.12g", found, expected);
    }
}

static int discard(void *user, const void *bytes, uint64_t count) {
    (void)user, (void)bytes, (void)count;
    return 0;
}

static void deltas_tell_the_bound(void **state) {
    (void)state;
    for (uint64_t chunk = 16 << 10; chunk <= 1 << 20; chunk *= 8) {
        side old, now;
        open_side(&old, chunk);
        open_side(&now, chunk);
        const double expected = change(&now, 1);
        for (uint32_t codec = XORCAST_CODEC_RAW; codec <= XORCAST_CODEC_SNAPPY; codec++) {
            xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
            const xorcast_sink sink = {discard, NULL};
            xorcast_delta_info info;
            options.measure_bound = 1;
            options.encoding.codec = codec;
            assert_int_equal(xorcast_delta_encode(old.bundle, now.bundle, &options, &sink, &info),
                             XORCAST_OK);
            same(info.entropy_bound_bytes, expected);
        }
        close_side(&old);
        close_side(&now);
    }
}

/* Counters are emptied between versions. */
static void publishers_tell_the_bound(void **state) {
    (void)state;
    side s;
    xorcast_publisher *publisher;
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    open_side(&s, 0);
    options.measure_bound = 1;
    assert_int_equal(xorcast_publisher_open(s.bundle, "inproc:bound", &options, &publisher),
                     XORCAST_OK);
    for (uint64_t step = 1; step <= 4; step++) {
        xorcast_publisher_stats stats;
        const double expected = change(&s, step);
        assert_int_equal(xorcast_publisher_begin(publisher, step), XORCAST_OK);
        assert_int_equal(xorcast_publisher_put(publisher, 0, NULL, NULL), XORCAST_OK);
        assert_int_equal(xorcast_publisher_finish(publisher, &stats), XORCAST_OK);
        same(stats.delta.entropy_bound_bytes, expected);
    }
    xorcast_publisher_close(publisher);
    close_side(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deltas_tell_the_bound),
        cmocka_unit_test(publishers_tell_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
