/* Tests of the entropy bounds (bench/compare/entropy.h): small cases by hand, every dtype's classes
 * and steps, and what must hold for any step. Uses no xorcast call. */
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

static void near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * (1 + fabs(expected)))) {
        fail_msg("%.12g is not %.12g", value, expected);
    }
}

static compare_bounds bounds_of(const char *dtype, uint32_t width, const void *from, const void *to,
                                uint64_t bytes) {
    compare_counts *counts = compare_counts_new(dtype, width);
    assert_non_null(counts);
    compare_counts_add(counts, from, to, bytes);
    const compare_bounds bounds = compare_counts_bounds(counts);
    compare_counts_free(counts);
    return bounds;
}

/* Bits of choosing k of n, ideally. */
static double choice(double k, double n) {
    return k == 0 || k == n ? 0 : k * log2(n / k) + (n - k) * log2(n / (n - k));
}

/* Step by step, as a coder would do it. */
static double learnt(uint64_t a, uint64_t b) {
    double bits = 0;
    for (uint64_t i = 0; i < a; i++) {
        bits -= log2(((double)i + 0.5) / ((double)i + 1));
    }
    for (uint64_t i = 0; i < b; i++) {
        bits -= log2(((double)i + 0.5) / ((double)(a + i) + 1));
    }
    return bits;
}

static void learning_costs_what_a_coder_pays(void **state) {
    (void)state;
    static const uint64_t counts[][2] = {{0, 0}, {1, 0}, {0, 7}, {1, 1}, {3, 1000}, {500, 499}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        near(compare_adaptive_bits(counts[i][0], counts[i][1]), learnt(counts[i][0], counts[i][1]));
    }
}

/* BF16: 1000 numbers of one exponent, of which four change: two up by one, one down by one, one
 * through a carry into the high byte. */
static void bf16_by_hand(void **state) {
    (void)state;
    uint16_t from[1000], to[1000];
    for (uint32_t i = 0; i < 1000; i++) {
        from[i] = 0x3C10;
    }
    memcpy(to, from, sizeof to);
    to[1] = to[77] = 0x3C11; /* XOR 1 */
    to[500] = 0x3C0F;        /* XOR 1F */
    from[900] = 0x3BFF;      /* another exponent; XOR 07FF */
    to[900] = 0x3C00;
    const compare_bounds b = bounds_of("BF16", 2, from, to, sizeof from);
    /* Bytes: 5 of 2000; values 1 twice, 1F, FF and 07 once. */
    near(b.order0, (choice(5, 2000) + 2 * log2(2.5) + 3 * log2(5)) / 8);
    /* 3 of 999 in one class: +1 twice, -1 once. 1 of 1 in the other, where all is certain. */
    near(b.conditional, (choice(3, 999) + 2 * log2(1.5) + log2(3)) / 8);
    /* Values by their bits from the highest: 0 0 0 0 for 1 1 7 and half of 1F; FF. */
    const double tree = learnt(4, 1)                                 /* bit 7 of all five */
                        + learnt(4, 0) + learnt(4, 0) + learnt(3, 1) /* bits 6, 5, 4: 1F leaves */
                        + learnt(3, 0)                               /* 3 of 1 1 7 */
                        + learnt(2, 1) + learnt(2, 0) + learnt(0, 2) /* 2, then 1 1: 1, 0 */
                        + learnt(0, 1) * 2                           /* 7: bits 1, 0 */
                        + learnt(0, 1) * 4                           /* 1F: bits 3 to 0 */
                        + learnt(0, 1) * 7;                          /* FF: bits 6 to 0 */
    near(b.order0_charged, (learnt(1995, 5) + tree) / 8);
    /* One probability of change for all is cheaper than two; so are steps: three up, one down, all
     * of them one. */
    const double flags = fmin(learnt(996, 4), learnt(996, 3) + learnt(0, 1));
    const double steps = fmin(learnt(3, 1) + learnt(4, 0),
                              learnt(2, 1) + learnt(3, 0) + learnt(1, 0) + learnt(1, 0));
    near(b.conditional_charged, (flags + steps + 2) / 8);
}

/* Byte planes of F32: the low bytes always change, the high ones never; the step is 16 or more. */
static void f32_by_hand(void **state) {
    (void)state;
    enum { COUNT = 8 };
    uint32_t from[COUNT], to[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        from[i] = 0x3A000000u;
        to[i] = from[i] + 0x20 + i % 2; /* XOR 20 or 21: planes 0 */
    }
    const compare_bounds b = bounds_of("F32", 4, from, to, sizeof from);
    near(b.order0, COUNT / 8.0);          /* all of plane 0 change, one bit each */
    near(b.conditional, COUNT * 5 / 8.0); /* length 6: five bits below the first */
    /* A byte plane by itself: the other three cost their one probability. */
    const double values = learnt(8, 0) * 2 + learnt(0, 8) + learnt(8, 0) * 4 + learnt(4, 4);
    near(b.order0_charged, (3 * learnt(8, 0) + learnt(0, 8) + values) / 8);
}

/* Packed E2M1: two numbers to a byte, each its own place and class. */
static void nibbles_by_hand(void **state) {
    (void)state;
    uint8_t from[500], to[500];
    memset(from, 0x23, sizeof from);
    memcpy(to, from, sizeof to);
    to[3] = 0x24;  /* low: code 3 to 4 */
    to[9] = 0x13;  /* high: code 2 to 1 */
    to[10] = 0x14; /* both */
    const compare_bounds b = bounds_of("U8", 1, from, to, sizeof from);
    /* Nibbles: XOR 7 twice, 3 twice. */
    near(b.order0, (choice(4, 1000) + 4) / 8);
    near(b.conditional, 2 * choice(2, 500) / 8); /* in a class all steps are alike */
    const compare_bounds same = bounds_of("F4", 1, from, to, sizeof from);
    near(same.conditional, b.conditional);
    near(same.order0, b.order0);
}

/* How many steps, and in which direction, seen through the bits of one change among many. */
static void steps_of_every_dtype(void **state) {
    (void)state;
    static const struct {
        const char *dtype;
        uint32_t width;
        uint64_t from, up, up_too, down;
    } cases[] = {
        {"BF16", 2, 0x8001, 0x8002, 0x8002, 0x8000}, /* away from zero is up, of both signs */
        {"BF16", 2, 0x0000, 0x0001, 0x0001, 0x8000}, /* through zero is down */
        {"F16", 2, 0x3C00, 0x3C01, 0x3C01, 0x3BFF},
        {"F8_E4M3", 1, 0x40, 0x41, 0x41, 0x3F},
        {"F8_E5M2", 1, 0xC0, 0xC1, 0xC1, 0xBF},
        {"F8_E8M0", 1, 0xFF, 0x00, 0x00, 0xFE}, /* integers go round */
        {"I32", 4, 0xFFFFFFFF, 0, 0, 0xFFFFFFFE},
        {"I64", 8, UINT64_MAX, 0, 0, UINT64_MAX - 1},
        {"F32", 4, 0x80000001, 0x80000002, 0x80000002, 0x80000000},
        {"F64", 8, 1, 2, 2, 0},
        {"I16", 2, 0x00FF, 0x0100, 0x0100, 0x00FE},
        {"ODD", 1, 0x7F, 0x80, 0x80, 0x7E},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum { COUNT = 64 };
        uint8_t from[COUNT * 8], to[COUNT * 8];
        const uint32_t width = cases[i].width;
        for (uint32_t e = 0; e < COUNT; e++) {
            memcpy(from + e * width, &cases[i].from, width);
        }
        memcpy(to, from, sizeof to);
        memcpy(to + 5 * width, &cases[i].up, width);
        memcpy(to + 9 * width, &cases[i].up_too, width);
        const compare_bounds alike = bounds_of(cases[i].dtype, width, from, to, COUNT * width);
        near(alike.conditional, choice(2, COUNT) / 8);
        memcpy(to + 9 * width, &cases[i].down, width);
        const compare_bounds apart = bounds_of(cases[i].dtype, width, from, to, COUNT * width);
        near(apart.conditional, (choice(2, COUNT) + 2) / 8);
        /* All steps are of size one: no bits but flags, signs and the choices. */
        near(apart.conditional_charged,
             (learnt(COUNT - 2, 2) + learnt(1, 1) + learnt(2, 0) + 2) / 8);
    }
}

static void nothing_costs_nothing(void **state) {
    (void)state;
    uint8_t bytes[100] = {1, 2, 3};
    const compare_bounds same = bounds_of("BF16", 2, bytes, bytes, sizeof bytes);
    near(same.order0 + same.order0_charged + same.conditional + same.conditional_charged, 0);
    const compare_bounds empty = bounds_of("F32", 4, bytes, bytes, 0);
    near(empty.order0_charged + empty.conditional_charged, 0);
}

/* Of generated steps: charged is more than ideal but not by much, knowing the old weights helps,
 * pieces add up to the whole. */
static void what_holds_for_any_step(void **state) {
    (void)state;
    static const gen_kind kinds[] = {GEN_BF16, GEN_FP8, GEN_NVFP4, GEN_FP8_SCALE, GEN_F32_SCALE};
    enum { SIZE = 400000 };
    static uint8_t from[SIZE], to[SIZE];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *dtype = gen_kind_dtype(kinds[k]);
        const uint32_t width = gen_kind_element_bytes(kinds[k]);
        const gen_mask mask = {kinds[k], false, 0.01, 1, 2, 3};
        gen_weights(kinds[k], 1, 2, 0, from, SIZE);
        memcpy(to, from, SIZE);
        gen_update(&mask, 0, to, SIZE);
        const compare_bounds whole = bounds_of(dtype, width, from, to, SIZE);
        assert_true(whole.order0 > 0 && whole.conditional > 0);
        assert_true(whole.order0 < whole.order0_charged);
        assert_true(whole.order0_charged < 1.1 * whole.order0 + 100);
        assert_true(whole.conditional < whole.conditional_charged);
        assert_true(whole.conditional_charged < 1.1 * whole.conditional + 100);
        assert_true(kinds[k] == GEN_F32_SCALE || whole.conditional < whole.order0);
        compare_counts *sum = compare_counts_new(dtype, width);
        compare_counts *part = compare_counts_new(dtype, width);
        assert_true(sum != NULL && part != NULL);
        for (uint64_t at = 0; at < SIZE; at += 8000) {
            compare_counts_begin(part, dtype, width);
            compare_counts_add(part, from + at, to + at, 8000);
            compare_counts_merge(sum, part);
        }
        const compare_bounds merged = compare_counts_bounds(sum);
        near(merged.order0_charged, whole.order0_charged);
        near(merged.conditional_charged, whole.conditional_charged);
        assert_int_equal(compare_counts_elements(sum),
                         kinds[k] == GEN_NVFP4 ? 2 * SIZE : SIZE / width);
        compare_counts_free(sum);
        compare_counts_free(part);
    }
}

/* The bytes of an element that is not whole count in one bound and are left out of the other. */
static void a_last_piece_is_not_lost(void **state) {
    (void)state;
    uint8_t from[7] = {0}, to[7] = {0};
    to[6] = 1;
    const compare_bounds b = bounds_of("BF16", 2, from, to, sizeof from);
    near(b.order0, choice(1, 7) / 8);
    near(b.conditional, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_costs_what_a_coder_pays),
        cmocka_unit_test(bf16_by_hand),
        cmocka_unit_test(f32_by_hand),
        cmocka_unit_test(nibbles_by_hand),
        cmocka_unit_test(steps_of_every_dtype),
        cmocka_unit_test(nothing_costs_nothing),
        cmocka_unit_test(what_holds_for_any_step),
        cmocka_unit_test(a_last_piece_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
