/* Tests of steps from FP32 masters (gen/gen_master.h): the same bytes for ever, for any range and
 * order; numbers and scales that fit each other and their masters; changes as often as real
 * optimizer steps make them. Uses no xorcast call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen_master.h"
#include "support/pinned.h"

static gen_run run_of(const gen_plan *plan, double rate) {
    return (gen_run){.plan = plan, .seed = 5, .masters = true, .learning_rate = rate};
}

/* ---- Bytes ------------------------------------------------------------------------------------*/

/* All tensors of a plan at a step, hashed. */
static uint64_t hash_of(const gen_run *run, uint64_t step) {
    uint64_t hash = 0;
    for (uint64_t i = 0; i < run->plan->count; i++) {
        const gen_tensor *tensor = &run->plan->tensors[i];
        uint8_t *bytes = bytes_of(tensor->bytes);
        gen_run_bytes(run, tensor, step, 0, bytes, tensor->bytes);
        hash = gen_mix64(hash ^ fnv(bytes, tensor->bytes));
        free(bytes);
    }
    return hash;
}

/* Pinned: every compiler and machine gives these bytes. */
static void masters_are_the_same_for_ever(void **state) {
    (void)state;
    static const struct {
        gen_kind experts;
        bool heavy, power_of_two;
        uint64_t step, hash;
    } cases[] = {
        {GEN_BF16, false, false, 0, UINT64_C(0x1FFB7521A9DC6019)},
        {GEN_BF16, false, false, 3, UINT64_C(0xFBDDDE426A22F403)},
        {GEN_BF16, true, false, 1, UINT64_C(0x3790777505AFF477)},
        {GEN_FP8, false, false, 1, UINT64_C(0x28CA51E3CFFD2FE8)},
        {GEN_FP8, true, true, 2, UINT64_C(0xA28C0726C3334EF7)},
        {GEN_NVFP4, false, false, 1, UINT64_C(0xACD8F3DB70822180)},
        {GEN_NVFP4, true, false, 9, UINT64_C(0x301D01F63356CC3B)},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_plan plan = {0};
        assert_int_equal(gen_plan_model(&plan, cases[i].experts, 200000), 0);
        assert_int_equal(gen_plan_add_extras(&plan), 0);
        gen_run run = run_of(&plan, 1e-6);
        run.heavy = cases[i].heavy;
        run.power_of_two = cases[i].power_of_two;
        const uint64_t hash = hash_of(&run, cases[i].step);
        if (hash != cases[i].hash) {
            print_error("case %zu gives 0x%016llX\n", i, (unsigned long long)hash);
            good = false;
        }
        gen_plan_free(&plan);
    }
    assert_true(good);
}

/* Pieces in falling order, each from a multiple of 8 bytes on, with canaries. */
static void any_range_alone(void **state) {
    (void)state;
    static const gen_kind experts[] = {GEN_BF16, GEN_FP8, GEN_NVFP4};
    for (uint32_t e = 0; e < 3; e++) {
        gen_plan plan = {0};
        assert_int_equal(gen_plan_model(&plan, experts[e], 300000), 0);
        const gen_run run = run_of(&plan, 1e-5);
        uint64_t random = e;
        for (uint64_t i = 0; i < plan.count; i++) {
            const gen_tensor *tensor = &plan.tensors[i];
            uint8_t *whole = bytes_of(tensor->bytes), *parts = bytes_of(tensor->bytes);
            gen_run_bytes(&run, tensor, 2, 0, whole, tensor->bytes);
            for (uint64_t end = tensor->bytes; end > 0;) {
                const uint64_t length = gen_next(&random) % 700 + 1;
                const uint64_t from = end > length ? (end - length) / 8 * 8 : 0;
                const uint8_t after = parts[end];
                gen_run_bytes(&run, tensor, 2, from, parts + from, end - from);
                assert_int_equal(parts[end], after);
                end = from;
            }
            assert_memory_equal(whole, parts, tensor->bytes);
            free(whole);
            free(parts);
        }
        gen_plan_free(&plan);
    }
}

/* Advancing in place counts what it changes, from whatever step the bytes are of. */
static void advancing_is_the_next_step(void **state) {
    (void)state;
    gen_plan plan = {0};
    assert_int_equal(gen_plan_model(&plan, GEN_FP8, 300000), 0);
    assert_int_equal(gen_plan_add_extras(&plan), 0);
    const gen_run run = run_of(&plan, 1e-5);
    uint64_t all = 0;
    for (uint64_t i = 0; i < plan.count; i++) {
        const gen_tensor *tensor = &plan.tensors[i];
        uint8_t *old = bytes_of(tensor->bytes), *now = bytes_of(tensor->bytes);
        gen_run_bytes(&run, tensor, 1, 0, old, tensor->bytes);
        gen_run_bytes(&run, tensor, 2, 0, now, tensor->bytes);
        uint64_t differ = 0;
        for (uint64_t b = 0; b < tensor->bytes; b++) {
            differ += old[b] != now[b];
        }
        assert_int_equal(gen_run_advance(&run, tensor, 2, 0, old, tensor->bytes), differ);
        assert_memory_equal(old, now, tensor->bytes);
        all += differ;
        free(old);
        free(now);
    }
    assert_true(all > 0);
    gen_plan_free(&plan);
}

/* ---- Numbers ----------------------------------------------------------------------------------*/

static double value_of_e4m3(uint32_t code) {
    const int exponent = (int)(code >> 3) & 15, mantissa = (int)code & 7;
    const double size = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return (code & 0x80) != 0 ? -size : size;
}

static double value_of_e2m1(uint32_t code) {
    static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (code & 8) != 0 ? -values[code & 7] : values[code & 7];
}

/* No other code is nearer, over all codes and a little beside the middles between them. */
static void rounding_is_to_the_nearest(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x7E; c++) {
        const double a = value_of_e4m3(c), b = value_of_e4m3(c + 1);
        const float middle = (float)((a + b) / 2);
        assert_int_equal(gen_e4m3((float)a), c);
        assert_int_equal(gen_e4m3(-(float)a) & 0x7F, c);
        assert_int_equal(gen_e4m3(nextafterf(middle, 0)), c);
        assert_int_equal(gen_e4m3(middle), c % 2 == 0 ? c : c + 1);
        assert_int_equal(gen_e4m3(nextafterf(middle, 1000)), c + 1);
        assert_true((double)gen_e4m3_number((uint8_t)c) == a);
    }
    assert_int_equal(gen_e4m3(1e9f), 0x7E);
    assert_int_equal(gen_e4m3(-464), 0xFE);
    for (uint32_t c = 0; c < 7; c++) {
        const double a = value_of_e2m1(c), b = value_of_e2m1(c + 1);
        const float middle = (float)((a + b) / 2);
        assert_int_equal(gen_e2m1((float)a), c);
        assert_int_equal(gen_e2m1(nextafterf(middle, 0)), c);
        assert_int_equal(gen_e2m1(middle), c % 2 == 0 ? c : c + 1);
        assert_int_equal(gen_e2m1(-nextafterf(middle, 1000)), 8 | (c + 1));
    }
    assert_int_equal(gen_bf16(1.0f), 0x3F80);
    assert_int_equal(gen_bf16(nextafterf(1.0f + 0x1p-8f, 0)), 0x3F80);
    assert_int_equal(gen_bf16(1.0f + 0x1p-8f), 0x3F80);
    assert_int_equal(gen_bf16(1.0f + 3 * 0x1p-8f), 0x3F82);
    assert_int_equal(gen_bf16(-nextafterf(1.0f + 0x1p-8f, 2)), 0xBF81);
    assert_true(gen_fp8_scale(448, false) == 1 && gen_fp8_scale(448, true) == 1);
    assert_true(gen_fp8_scale(450, true) == 2 && gen_fp8_scale(300, true) == 1);
    assert_true(gen_nvfp4_scale(0, 1) == 1);
}

/* The sum of steps is what adding them up one by one gives. */
static void steps_add_up(void **state) {
    (void)state;
    for (uint64_t index = 0; index < 50; index++) {
        assert_int_equal(gen_steps_sum(9, index, 0), 0);
        int64_t sum = 0;
        for (uint64_t step = 1; step < 30; step++) {
            for (uint64_t age = 0; age < GEN_MEMORY; age++) {
                const uint64_t t = step + GEN_MEMORY - 2 - age;
                const uint64_t coins =
                    gen_mix64(9 + t / 2 * 2 * GEN_GOLDEN + gen_mix64(index + GEN_GOLDEN));
                const uint64_t half = t % 2 == 0 ? coins >> 32 : coins & 0xFFFFFFFFu;
                sum +=
                    (gen_weight_of(age + 1) - gen_weight_of(age)) * ((int64_t)gen_ones(half) - 16);
            }
            assert_int_equal(gen_steps_sum(9, index, step), sum);
        }
    }
}

typedef struct moments {
    double deviation, kurtosis, beyond; /* share of numbers larger than five deviations */
} moments;

static moments moments_of(bool heavy) {
    enum { COUNT = 200000 };
    const gen_masters m = {.first_key = 3,
                           .gradient_key = 4,
                           .row_key = 5,
                           .columns = 100,
                           .first_factor = GEN_DEVIATION * 0x1.feaap-27f,
                           .heavy = heavy};
    double second = 0, fourth = 0, beyond = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const double x = (double)gen_master(&m, i);
        second += x * x;
        fourth += x * x * x * x;
        beyond += fabs(x) > 0.1;
    }
    second /= COUNT;
    return (moments){sqrt(second), fourth / COUNT / (second * second), beyond / COUNT};
}

static void masters_are_normal_or_heavy(void **state) {
    (void)state;
    const moments normal = moments_of(false), heavy = moments_of(true);
    assert_true(fabs(normal.deviation - 0.02) < 0.0002);
    assert_true(fabs(normal.kurtosis - 3) < 0.15);
    assert_true(normal.beyond < 1e-5);
    assert_true(heavy.deviation > 0.024 && heavy.deviation < 0.030);
    assert_true(heavy.kurtosis > 6 && heavy.beyond > 3e-4);
}

/* ---- Scales -----------------------------------------------------------------------------------*/

typedef struct matrix {
    const gen_tensor *numbers, *scales, *global;
    uint8_t *number_bytes, *scale_bytes;
    float global_scale;
} matrix;

static matrix matrix_at(const gen_run *run, uint64_t first, uint64_t step) {
    const gen_tensor *t = &run->plan->tensors[first];
    matrix m = {.numbers = t, .scales = t + 1, .global = t + 2};
    m.number_bytes = bytes_of(t[0].bytes);
    m.scale_bytes = bytes_of(t[1].bytes);
    gen_run_bytes(run, t, step, 0, m.number_bytes, t[0].bytes);
    gen_run_bytes(run, t + 1, step, 0, m.scale_bytes, t[1].bytes);
    if (t->kind == GEN_NVFP4) {
        gen_run_bytes(run, t + 2, step, 0, &m.global_scale, 4);
    }
    return m;
}

static void free_matrix(matrix m) {
    free(m.number_bytes);
    free(m.scale_bytes);
}

/* Every number times its scale is as near to what BF16 has of the same master as its grid
 * allows. The masters of two runs are the same where seed, tensor and columns are. */
static void check_scales(gen_kind kind, bool heavy, bool power_of_two) {
    gen_plan plan = {0};
    assert_int_equal(gen_plan_model(&plan, kind, 900000), 0);
    uint64_t first = 0;
    while (plan.tensors[first].kind != kind) {
        first++;
    }
    gen_run run = run_of(&plan, 1e-6);
    run.heavy = heavy;
    run.power_of_two = power_of_two;
    const matrix m = matrix_at(&run, first, 1);
    gen_tensor twin = *m.numbers;
    twin.kind = GEN_BF16;
    twin.block = 0;
    const uint64_t rows = twin.shape[0], columns = twin.columns;
    const uint64_t block = m.numbers->block, blocks = columns / block;
    uint16_t *numbers = calloc(rows * columns, 2);
    assert_non_null(numbers);
    gen_run_bytes(&run, &twin, 1, 0, numbers, 2 * rows * columns);
    uint64_t full = 0;
    for (uint64_t i = 0; i < rows * columns; i++) {
        const uint64_t b = i % columns / block < blocks ? i % columns / block : blocks - 1;
        const uint64_t s = i / columns * blocks + b;
        float scale, wide;
        const uint32_t bits = (uint32_t)numbers[i] << 16;
        memcpy(&wide, &bits, 4);
        double value, room;
        if (kind == GEN_FP8) {
            memcpy(&scale, m.scale_bytes + 4 * s, 4);
            value = value_of_e4m3(m.number_bytes[i]);
            room = fmax(fabs(value) / 16, 0x1p-10);
            full += fabs(value) == 448;
            int exponent;
            assert_true(!power_of_two || frexpf(scale, &exponent) == 0.5f);
        } else {
            scale = (float)value_of_e4m3(m.scale_bytes[s]) * m.global_scale;
            value = value_of_e2m1(m.number_bytes[i / 2] >> (i % 2 * 4) & 15);
            room = fabs(value) >= 6 ? 1.5 : fabs(value) >= 4 ? 1 : fabs(value) >= 2 ? 0.5 : 0.25;
            full += fabs(value) == 6;
        }
        const double master = (double)wide / (double)scale, off = fabs(value - master);
        if (off > room * 1.001 + fabs(master) / 256) { /* the other rounding, to BF16 */
            fail_msg("number %llu of kind %d is %g, %g off", (unsigned long long)i, (int)kind,
                     value, off);
        }
    }
    /* The largest of a block uses the whole range. */
    assert_true(power_of_two || full >= rows * blocks * 9 / 10);
    free(numbers);
    free_matrix(m);
    gen_plan_free(&plan);
}

static void scales_fit_numbers(void **state) {
    (void)state;
    check_scales(GEN_FP8, false, false);
    check_scales(GEN_FP8, true, false);
    check_scales(GEN_FP8, false, true);
    check_scales(GEN_NVFP4, false, false);
}

/* ---- Realism ----------------------------------------------------------------------------------*/

typedef struct share {
    double bytes, elements, bits;
} share;

/* What changes from step 1 to 2 in tensors of a kind. */
static share change_of(const gen_run *run, gen_kind kind, gen_part part) {
    double bytes = 0, changed = 0, elements = 0, bits = 0;
    const uint32_t width = gen_kind_element_bytes(kind);
    for (uint64_t i = 0; i < run->plan->count; i++) {
        const gen_tensor *tensor = &run->plan->tensors[i];
        if (tensor->kind != kind || tensor->part != part) {
            continue;
        }
        uint8_t *old = bytes_of(tensor->bytes), *now = bytes_of(tensor->bytes);
        gen_run_bytes(run, tensor, 1, 0, old, tensor->bytes);
        gen_run_bytes(run, tensor, 2, 0, now, tensor->bytes);
        bytes += (double)tensor->bytes;
        for (uint64_t b = 0; b < tensor->bytes; b++) {
            changed += old[b] != now[b];
            bits += __builtin_popcount(old[b] ^ now[b]);
            elements += b % width == 0 && memcmp(old + b, now + b, width) != 0;
        }
        free(old);
        free(now);
    }
    assert_true(bytes > 0);
    return (share){changed / bytes, elements * width / bytes, bits / bytes / 8};
}

static void between(double value, double least, double most) {
    if (value < least || value > most) {
        fail_msg("%g is not between %g and %g", value, least, most);
    }
}

/* Real steps at 1e-6: 0.63 to 0.72 % of bytes of BF16, 0.16 % of bits; of FP8 0.11 to 0.12 % of
 * bytes and nearly all F32 scales, a third of their bytes; of NVFP4 0.013 to 0.016 % of bytes. At
 * 2e-7, of BF16, 0.16 %. */
static void changes_are_like_real_ones(void **state) {
    (void)state;
    gen_plan bf16 = {0}, fp8 = {0}, nvfp4 = {0};
    assert_int_equal(gen_plan_model(&bf16, GEN_BF16, 6000000), 0);
    assert_int_equal(gen_plan_model(&fp8, GEN_FP8, 6000000), 0);
    assert_int_equal(gen_plan_model(&nvfp4, GEN_NVFP4, 6000000), 0);
    gen_run run = run_of(&bf16, 1e-6);
    const share at_1e6 = change_of(&run, GEN_BF16, GEN_PART_NUMBERS);
    between(at_1e6.bytes, 0.0060, 0.0075);
    between(at_1e6.elements, 0.0120, 0.0150);
    between(at_1e6.bits, 0.0014, 0.0019);
    run.learning_rate = 2e-7;
    between(change_of(&run, GEN_BF16, GEN_PART_NUMBERS).bytes, 0.0013, 0.0020);
    run = run_of(&fp8, 1e-6);
    between(change_of(&run, GEN_FP8, GEN_PART_NUMBERS).bytes, 0.0009, 0.0015);
    const share scales = change_of(&run, GEN_F32_SCALE, GEN_PART_BLOCK_SCALES);
    between(scales.elements, 0.97, 1);
    between(scales.bytes, 0.28, 0.36);
    run.power_of_two = true;
    between(change_of(&run, GEN_FP8, GEN_PART_NUMBERS).bytes, 0.0006, 0.0013);
    between(change_of(&run, GEN_F32_SCALE, GEN_PART_BLOCK_SCALES).elements, 0, 0.002);
    run = run_of(&nvfp4, 1e-6);
    between(change_of(&run, GEN_NVFP4, GEN_PART_NUMBERS).bytes, 0.00010, 0.00022);
    between(change_of(&run, GEN_FP8_SCALE, GEN_PART_BLOCK_SCALES).bytes, 0.00002, 0.0004);
    between(change_of(&run, GEN_F32_SCALE, GEN_PART_GLOBAL_SCALE).bytes, 0, 0);
    gen_plan_free(&bf16);
    gen_plan_free(&fp8);
    gen_plan_free(&nvfp4);
}

/* Momentum: most numbers that move on go the way they went. */
static void directions_persist(void **state) {
    (void)state;
    int64_t same = 0, all = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        const int64_t first = gen_steps_sum(1, i, 1), second = gen_steps_sum(1, i, 2) - first;
        same += (first > 0) == (second > 0);
        all++;
    }
    between((double)same / (double)all, 0.7, 0.95);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masters_are_the_same_for_ever),
        cmocka_unit_test(any_range_alone),
        cmocka_unit_test(advancing_is_the_next_step),
        cmocka_unit_test(rounding_is_to_the_nearest),
        cmocka_unit_test(steps_add_up),
        cmocka_unit_test(masters_are_normal_or_heavy),
        cmocka_unit_test(scales_fit_numbers),
        cmocka_unit_test(changes_are_like_real_ones),
        cmocka_unit_test(directions_persist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
