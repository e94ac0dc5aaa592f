/* Tests of how the demo exports weights: every code of BF16, E4M3 and E2M1 there and back, rounding
 * against an exhaustive search, names, dtypes and shapes of the tensors, scales, packing, error
 * bounds, blocks of zeros. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "narrow.h"
#include "seeded.h"

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- Codes ------------------------------------------------------------------------------------*/

static void every_bf16_code_survives(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        const float value = bf16_to_float((uint16_t)code);
        assert_int_equal(bits_of(value), code << 16);
        const uint16_t back = bf16_from_float(value);
        if (isnan(value))
            assert_int_equal(back, code | 0x40U);
        else
            assert_int_equal(back, code);
    }
}

/* Between every code and the next: just below, at, and just above the middle. */
static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        if ((code & 0x7FFFU) >= 0x7F80U)
            continue;
        const uint32_t middle = code << 16 | 0x8000U;
        assert_int_equal(bf16_from_float(float_of(middle - 1)), code);
        assert_int_equal(bf16_from_float(float_of(middle)), code + (code & 1U));
        assert_int_equal(bf16_from_float(float_of(middle + 1)), code + 1);
    }
    assert_true(isnan(bf16_to_float(bf16_from_float(float_of(0x7F800001U)))));
    assert_true(isnan(bf16_to_float(bf16_from_float(float_of(0xFFFFFFFFU)))));
}

/* The nearest of the codes below `count`, the even one where two are as near; sign apart. */
static uint32_t nearest(double size, uint32_t count, float (*value_of)(uint8_t)) {
    uint32_t best = 0;
    for (uint32_t code = 1; code < count; code++) {
        const double away = fabs((double)value_of((uint8_t)code) - size);
        const double best_away = fabs((double)value_of((uint8_t)best) - size);
        if (away < best_away || (away <= best_away && code % 2 == 0))
            best = code;
    }
    return best;
}

static void check_rounding(float value, uint32_t count, uint32_t sign, float (*value_of)(uint8_t),
                           uint8_t (*code_of)(float)) {
    const uint32_t expected = nearest((double)value, count, value_of);
    assert_int_equal(code_of(value), expected);
    assert_int_equal(code_of(-value), expected | sign);
}

static void check_format(uint32_t count, uint32_t sign, float (*value_of)(uint8_t),
                         uint8_t (*code_of)(float)) {
    for (uint32_t code = 0; code < count; code++) {
        const float value = value_of((uint8_t)code);
        assert_int_equal(code_of(value), code);
        assert_int_equal(code_of(-value), code | sign);
        assert_int_equal(bits_of(value_of((uint8_t)(code | sign))), bits_of(-value));
        if (code + 1 == count)
            break;
        const float middle = (value + value_of((uint8_t)(code + 1))) / 2;
        check_rounding(middle, count, sign, value_of, code_of);
        check_rounding(nextafterf(middle, 0), count, sign, value_of, code_of);
        check_rounding(nextafterf(middle, 1e9F), count, sign, value_of, code_of);
    }
    seeded random = seeded_begin(7, count, 0, 0);
    for (int i = 0; i < 20000; i++) {
        const float scale = float_of((uint32_t)(seeded_next(&random) % 24 + 112) << 23);
        check_rounding(seeded_unit(&random) * scale, count, sign, value_of, code_of);
    }
    assert_int_equal(code_of(1e30F), count - 1);
    assert_int_equal(code_of(-INFINITY), (count - 1) | sign);
}

static void e4m3_codes_and_rounding(void **state) {
    (void)state;
    assert_true(e4m3_to_float(0x01) == 0x1p-9F);
    assert_true(e4m3_to_float(0x08) == 0x1p-6F);
    assert_true(e4m3_to_float(0x38) == 1.0F);
    assert_true(e4m3_to_float(0x7E) == E4M3_LARGEST);
    assert_true(isnan(e4m3_to_float(0x7F)) && isnan(e4m3_to_float(0xFF)));
    assert_int_equal(e4m3_from_float(NAN) & 0x7F, 0x7F);
    check_format(0x7F, 0x80, e4m3_to_float, e4m3_from_float);
}

static void e2m1_codes_and_rounding(void **state) {
    static const float sizes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    (void)state;
    for (uint8_t code = 0; code < 8; code++)
        assert_true(e2m1_to_float(code) == sizes[code]);
    check_format(8, 8, e2m1_to_float, e2m1_from_float);
}

/* ---- Tensors ----------------------------------------------------------------------------------*/

static const export_tensor *find(const exported *weights, const char *name) {
    for (size_t i = 0; i < weights->tensor_count; i++)
        if (strcmp(weights->tensors[i].name, name) == 0)
            return &weights->tensors[i];
    return NULL;
}

static void check_tensor(const exported *weights, const char *name, const char *dtype,
                         uint32_t rank, uint64_t rows, uint64_t columns, size_t bytes) {
    const export_tensor *tensor = find(weights, name);
    assert_non_null(tensor);
    assert_string_equal(tensor->dtype, dtype);
    assert_int_equal(tensor->rank, rank);
    assert_int_equal(tensor->bytes, bytes);
    if (rank == 2) {
        assert_int_equal(tensor->shape[0], rows);
        assert_int_equal(tensor->shape[1], columns);
    } else if (rank == 1) {
        assert_int_equal(tensor->shape[0], columns);
    }
}

#define GATE "model.layers.1.mlp.experts.7.gate_proj.weight"
#define H ((uint64_t)MODEL_HIDDEN)
#define I ((uint64_t)MODEL_INNER)

static void tensors_look_like_a_checkpoint(void **state) {
    (void)state;
    exported *weights = export_create(EXPORT_BF16);
    assert_non_null(weights);
    assert_int_equal(weights->tensor_count, PARAMETER_COUNT);
    check_tensor(weights, GATE, "BF16", 2, I, H, I * H * 2);
    check_tensor(weights, "model.norm.weight", "BF16", 1, 1, H, H * 2);
    assert_null(find(weights, GATE "_scale_inv"));
    export_destroy(weights);

    weights = export_create(EXPORT_FP8);
    assert_non_null(weights);
    check_tensor(weights, GATE, "F8_E4M3", 2, I, H, I * H);
    check_tensor(weights, GATE "_scale_inv", "F32", 2, I, H / 64, I * H / 16);
    check_tensor(weights, "lm_head.weight", "BF16", 2, MODEL_VOCABULARY, H,
                 MODEL_VOCABULARY * H * 2);
    check_tensor(weights, "model.layers.0.mlp.gate.weight", "BF16", 2, MODEL_EXPERTS, H,
                 MODEL_EXPERTS * H * 2);
    export_destroy(weights);

    weights = export_create(EXPORT_NVFP4);
    assert_non_null(weights);
    check_tensor(weights, GATE, "U8", 2, I, H / 2, I * H / 2);
    check_tensor(weights, GATE "_scale", "F8_E4M3", 2, I, H / 16, I * H / 16);
    check_tensor(weights, GATE "_scale_2", "F32", 0, 1, 1, 4);
    check_tensor(weights, "model.embed_tokens.weight", "BF16", 2, MODEL_VOCABULARY, H,
                 MODEL_VOCABULARY * H * 2);
    export_destroy(weights);
}

/* Largest distance of value and decoded value that rounding allows; `largest` is the block's. */
static double allowed(export_format format, bool quantised, double value, double largest) {
    if (format == EXPORT_BF16 || !quantised)
        return fabs(value) * 0x1p-8;
    if (format == EXPORT_FP8)
        return fmax(fabs(value) * 0x1.01p-4, largest / 448.0 * 0x1.01p-10);
    /* The coarsest step of E2M1 is 2 of 6; the block's scale is off by a sixteenth at most. */
    return largest / 6.0 * 1.07;
}

static void check_errors(export_format format, uint64_t block) {
    exported *weights = export_create(format);
    assert_non_null(weights);
    const size_t count = weights->table.value_count;
    float *values = malloc(count * sizeof *values);
    float *decoded = malloc(count * sizeof *decoded);
    assert_non_null(values);
    assert_non_null(decoded);
    parameters_initialise(&weights->table, 5, values);
    export_write(weights, values);
    for (size_t i = 0; i < PARAMETER_COUNT; i++) {
        const parameter *item = &weights->table.items[i];
        export_read(weights, i, decoded);
        for (size_t j = 0; j < item->rows * item->columns; j++) {
            const float *from = values + item->offset;
            double largest = 0;
            for (size_t k = j / block * block; item->quantised && k < (j / block + 1) * block; k++)
                largest = fmax(largest, fabs((double)from[k]));
            const double bound = allowed(format, item->quantised, (double)from[j], largest);
            assert_true(fabs((double)decoded[j] - (double)from[j]) <= bound);
        }
    }
    free(values);
    free(decoded);
    export_destroy(weights);
}

static void decoded_values_are_near(void **state) {
    (void)state;
    check_errors(EXPORT_BF16, 1);
    check_errors(EXPORT_FP8, 64);
    check_errors(EXPORT_NVFP4, 16);
}

/* One parameter by hand: packing, scales, a block of zeros, a block too small for its scale. */
static void nvfp4_by_hand(void **state) {
    (void)state;
    exported *weights = export_create(EXPORT_NVFP4);
    assert_non_null(weights);
    float *values = calloc(weights->table.value_count, sizeof *values);
    assert_non_null(values);
    const size_t index = PARAMETER_LAYERS + LAYER_OUTPUT;
    float *at = values + weights->table.items[index].offset;
    /* The largest is 6 * 448, so the tensor's scale is 1 and the first block's is 448. */
    at[0] = 2688.0F;
    at[1] = -448.0F;
    at[2] = 224.0F;
    /* The second block is all zero; the third rounds its scale to zero. */
    at[32] = 1e-6F;
    export_write(weights, values);
    const export_parts *parts = &weights->parts[index];
    float tensor_scale;
    memcpy(&tensor_scale, parts->tensor_scale->data, sizeof tensor_scale);
    assert_true(tensor_scale == 1.0F);
    assert_int_equal(parts->block_scale->data[0], 0x7E);
    assert_int_equal(parts->block_scale->data[1], 0);
    assert_int_equal(parts->block_scale->data[2], 0);
    assert_int_equal(parts->weight->data[0], 0x7 | 0xA << 4);
    assert_int_equal(parts->weight->data[1], 0x1);
    float *decoded = malloc(H * H * sizeof *decoded);
    assert_non_null(decoded);
    export_read(weights, index, decoded);
    assert_true(decoded[0] == 2688.0F && decoded[1] == -448.0F && decoded[2] == 224.0F);
    for (size_t i = 3; i < H * H; i++)
        assert_true(decoded[i] == 0.0F);
    /* A tensor of nothing but zeros has scales that nothing is divided by zero through. */
    export_read(weights, index + PARAMETERS_PER_LAYER, decoded);
    for (size_t i = 0; i < H * H; i++)
        assert_true(decoded[i] == 0.0F);
    free(decoded);
    free(values);
    export_destroy(weights);
}

static void fp8_by_hand(void **state) {
    (void)state;
    exported *weights = export_create(EXPORT_FP8);
    assert_non_null(weights);
    float *values = calloc(weights->table.value_count, sizeof *values);
    assert_non_null(values);
    const size_t index = PARAMETER_LAYERS + LAYER_OUTPUT;
    float *at = values + weights->table.items[index].offset;
    at[0] = -224.0F;
    at[63] = 1.0F;
    export_write(weights, values);
    const export_parts *parts = &weights->parts[index];
    float scales[2];
    memcpy(scales, parts->block_scale->data, sizeof scales);
    assert_true(scales[0] == 0.5F && scales[1] == 1.0F);
    assert_int_equal(parts->weight->data[0], 0xFE);
    assert_int_equal(parts->weight->data[63], 0x40);
    assert_int_equal(parts->weight->data[64], 0);
    free(values);
    export_destroy(weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_code_survives),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(e4m3_codes_and_rounding),
        cmocka_unit_test(e2m1_codes_and_rounding),
        cmocka_unit_test(tensors_look_like_a_checkpoint),
        cmocka_unit_test(decoded_values_are_near),
        cmocka_unit_test(nvfp4_by_hand),
        cmocka_unit_test(fp8_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
