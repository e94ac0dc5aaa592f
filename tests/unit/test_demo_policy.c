/* Tests of the demo's policy and its training: matrix products against plain sums, gradients
 * against finite differences, results that do not depend on the batch, generation that equals the
 * whole forward pass bit for bit, AdamW against its formula, and a few steps that learn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adamw.h"
#include "gemm.h"
#include "learner.h"
#include "pointwise.h"
#include "seeded.h"

static float *bell_values(size_t count, float spread, uint64_t seed) {
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    seeded random = seeded_begin(seed, count, 0, 0);
    for (size_t i = 0; i < count; i++)
        values[i] = spread * seeded_bell(&random);
    return values;
}

/* ---- Matrix products --------------------------------------------------------------------------*/

#define CANARY 12345.0F

static void check_product(size_t rows, size_t columns, size_t depth) {
    float *a = bell_values(rows * depth, 1, 1);
    float *b = bell_values(depth * columns, 1, 2);
    float *transposed = malloc(depth * columns * sizeof *transposed);
    float *a_transposed = malloc(rows * depth * sizeof *a_transposed);
    float *out = malloc((rows * columns + 1) * sizeof *out);
    assert_true(transposed != NULL && a_transposed != NULL && out != NULL);
    for (size_t k = 0; k < depth; k++) {
        for (size_t j = 0; j < columns; j++)
            transposed[j * depth + k] = b[k * columns + j];
        for (size_t i = 0; i < rows; i++)
            a_transposed[k * rows + i] = a[i * depth + k];
    }
    for (int way = 0; way < 3; way++) {
        const float before = way == 0 ? 0.0F : 1.0F;
        for (size_t i = 0; i < rows * columns; i++)
            out[i] = before;
        out[rows * columns] = CANARY;
        if (way == 0)
            gemm_times_transposed(rows, columns, depth, a, transposed, out);
        else if (way == 1)
            gemm_add(rows, columns, depth, a, b, out);
        else
            gemm_add_transposed(rows, columns, depth, a_transposed, b, out);
        for (size_t i = 0; i < rows; i++) {
            for (size_t j = 0; j < columns; j++) {
                double sum = (double)before;
                for (size_t k = 0; k < depth; k++)
                    sum += (double)a[i * depth + k] * (double)b[k * columns + j];
                assert_true(fabs(sum - (double)out[i * columns + j]) < 1e-4);
            }
        }
        assert_true(out[rows * columns] == CANARY);
    }
    free(a);
    free(b);
    free(transposed);
    free(a_transposed);
    free(out);
}

static void products_are_right(void **state) {
    (void)state;
    for (size_t rows = 1; rows <= 9; rows++)
        for (size_t columns = 8; columns <= 40; columns += 8)
            check_product(rows, columns, 24);
    check_product(33, 64, 128);
}

/* A row's result is the same bits alone and among others. */
static void rows_do_not_touch_each_other(void **state) {
    (void)state;
    enum { ROWS = 7, COLUMNS = 24, DEPTH = 64 };
    float *a = bell_values(ROWS * DEPTH, 1, 3);
    float *b = bell_values(DEPTH * COLUMNS, 1, 4);
    float all[ROWS * COLUMNS] = {0};
    gemm_times_transposed(ROWS, COLUMNS, DEPTH, a, b, all);
    for (size_t i = 0; i < ROWS; i++) {
        float one[COLUMNS];
        gemm_times_transposed(1, COLUMNS, DEPTH, a + i * DEPTH, b, one);
        assert_memory_equal(one, all + i * COLUMNS, sizeof one);
    }
    memset(all, 0, sizeof all);
    gemm_add(ROWS, COLUMNS, DEPTH, a, b, all);
    for (size_t i = 0; i < ROWS; i++) {
        float one[COLUMNS] = {0};
        gemm_add(1, COLUMNS, DEPTH, a + i * DEPTH, b, one);
        assert_memory_equal(one, all + i * COLUMNS, sizeof one);
    }
    free(a);
    free(b);
}

/* A product is rounded before it is added: else results would differ between CPUs and compilers. */
static void products_are_not_fused(void **state) {
    (void)state;
    float a[8] = {1.0F + 0x1p-12F};
    float b[8 * 8] = {1.0F + 0x1p-12F};
    float c[8] = {-(1.0F + 0x1p-11F)};
    gemm_add(1, 8, 8, a, b, c);
    assert_true(c[0] == 0.0F);
}

static void exponential_is_near(void **state) {
    (void)state;
    for (double x = -79.9; x <= 0; x += 0.00137) {
        const double expected = exp((double)(float)x);
        assert_true(fabs((double)exponential((float)x) - expected) <= 3e-7 * expected);
    }
    assert_true(exponential(0.0F) == 1.0F);
    assert_true(exponential(-81.0F) == 0.0F);
}

/* ---- Gradients --------------------------------------------------------------------------------*/

enum { CHECK_BATCH = 3, CHECK_POSITIONS = 6, CHECK_ROWS = CHECK_BATCH * CHECK_POSITIONS };

typedef struct checked {
    exported *weights;
    policy *model;
    float *values, *moved, *gradients, *direction;
    uint8_t targets[CHECK_ROWS];
    float pulls[CHECK_ROWS];
} checked;

/* A loss with every kind of row in it: the pulled sum of log chances. */
static double loss(checked *self, const float *values) {
    export_write(self->weights, values);
    policy_forward(self->model, self->weights, 0, CHECK_POSITIONS);
    const float *chances = policy_chances(self->model, 0);
    double sum = 0;
    for (size_t row = 0; row < CHECK_ROWS; row++)
        sum += (double)self->pulls[row] *
               log((double)chances[row * MODEL_VOCABULARY + self->targets[row]]);
    return sum;
}

static void gradient_of_loss(checked *self) {
    float logit_gradient[CHECK_ROWS * MODEL_VOCABULARY];
    (void)loss(self, self->values);
    const float *chances = policy_chances(self->model, 0);
    for (size_t i = 0; i < CHECK_ROWS * MODEL_VOCABULARY; i++) {
        const size_t row = i / MODEL_VOCABULARY;
        const float hit = i % MODEL_VOCABULARY == self->targets[row] ? 1.0F : 0.0F;
        logit_gradient[i] = self->pulls[row] * (hit - chances[i]);
    }
    policy_backward(self->model, self->weights, CHECK_POSITIONS, logit_gradient, self->gradients);
}

/* Slope of the loss when the values of one parameter move along `direction`, of length 1. */
static double slope(checked *self, const parameter *item, double step) {
    const size_t count = item->rows * item->columns;
    double sides[2];
    for (int side = 0; side < 2; side++) {
        memcpy(self->moved, self->values, self->weights->table.value_count * sizeof(float));
        for (size_t i = 0; i < count; i++)
            self->moved[item->offset + i] +=
                (float)((side == 0 ? step : -step) * (double)self->direction[i]);
        sides[side] = loss(self, self->moved);
    }
    return (sides[0] - sides[1]) / (2 * step);
}

static double length(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* Along the gradient the slope is its length. That alone would not see a part that is missing, so
 * the slope along signs, mostly those of the gradient, must fit too: there all elements count. The
 * steps are small enough for no token to change its experts, which would be a jump. */
static void check_parameter(checked *self, const parameter *item, uint64_t seed) {
    const size_t count = item->rows * item->columns;
    const float *gradient = self->gradients + item->offset;
    const double size = length(gradient, count);
    if (size <= 0) { /* only an expert that no token chose */
        assert_non_null(strstr(item->name, ".experts."));
        return;
    }
    for (size_t i = 0; i < count; i++)
        self->direction[i] = (float)((double)gradient[i] / size);
    const double along = slope(self, item, 1e-3);
    if (fabs(along - size) > 0.01 * size)
        fail_msg("%s: slope %g, but gradient %g", item->name, along, size);

    seeded random = seeded_begin(seed, count, 1, 0);
    double expected = 0;
    for (size_t i = 0; i < count; i++) {
        const bool up = (gradient[i] > 0) == ((seeded_next(&random) >> 60) < 12);
        self->direction[i] = (float)((up ? 1.0 : -1.0) / sqrt((double)count));
        expected += (double)self->direction[i] * (double)gradient[i];
    }
    const double found = slope(self, item, 5e-4);
    if (fabs(found - expected) > 0.02 * fabs(expected) + 1e-3)
        fail_msg("%s: slope along signs %g, but expected %g", item->name, found, expected);
}

static void gradients_equal_finite_differences(void **state) {
    (void)state;
    checked self = {.weights = export_create(EXPORT_F32), .model = policy_create(CHECK_BATCH)};
    assert_true(self.weights != NULL && self.model != NULL);
    const size_t count = self.weights->table.value_count;
    self.values = malloc(count * sizeof(float));
    self.moved = malloc(count * sizeof(float));
    self.gradients = calloc(count, sizeof(float));
    self.direction = malloc(count * sizeof(float));
    assert_true(self.values != NULL && self.moved != NULL && self.gradients != NULL &&
                self.direction != NULL);
    parameters_initialise(&self.weights->table, 11, self.values);
    seeded random = seeded_begin(11, 0, 0, 1);
    /* Gains that are all 1 would hide a gain that is left out; a small head would hide the rest. */
    for (size_t i = 0; i < PARAMETER_COUNT; i++) {
        const parameter *item = &self.weights->table.items[i];
        for (size_t j = 0; item->vector && j < item->columns; j++)
            self.values[item->offset + j] += 0.3F * seeded_bell(&random);
        for (size_t j = 0; i == PARAMETER_HEAD && j < item->rows * item->columns; j++)
            self.values[item->offset + j] *= 3.0F;
    }
    for (size_t row = 0; row < CHECK_ROWS; row++) {
        policy_tokens(self.model)[row] = (uint8_t)(seeded_next(&random) % MODEL_VOCABULARY);
        self.targets[row] = (uint8_t)(seeded_next(&random) % MODEL_VOCABULARY);
        self.pulls[row] = seeded_bell(&random);
    }
    gradient_of_loss(&self);
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        check_parameter(&self, &self.weights->table.items[i], i);
    free(self.values);
    free(self.moved);
    free(self.gradients);
    free(self.direction);
    policy_destroy(self.model);
    export_destroy(self.weights);
}

static void adamw_follows_its_formula(void **state) {
    (void)state;
    adamw optimizer;
    assert_int_equal(adamw_create(&optimizer, 2), 0);
    float weights[2] = {0.5F, -0.25F};
    double expected[2] = {0.5, -0.25};
    double first[2] = {0}, second[2] = {0};
    for (int step = 1; step <= 5; step++) {
        const float gradients[2] = {0.1F * (float)step, -3.0F};
        adamw_step(&optimizer, 1e-2F, gradients, weights);
        for (int i = 0; i < 2; i++) {
            const double g = (double)gradients[i];
            first[i] = 0.9 * first[i] + 0.1 * g;
            second[i] = 0.98 * second[i] + 0.02 * g * g;
            const double way =
                first[i] / (1 - pow(0.9, step)) / (sqrt(second[i] / (1 - pow(0.98, step))) + 1e-8);
            expected[i] -= 1e-2 * (way + 0.01 * expected[i]);
            assert_true(fabs((double)weights[i] - expected[i]) < 1e-6);
        }
    }
    adamw_destroy(&optimizer);
}

/* ---- Rollouts ---------------------------------------------------------------------------------*/

static void rollouts_prove_their_weights(void **state) {
    (void)state;
    for (int format = EXPORT_BF16; format <= EXPORT_NVFP4; format++) {
        exported *weights = export_create((export_format)format);
        policy *model = policy_create(ROLLOUT_SEQUENCES);
        assert_true(weights != NULL && model != NULL);
        float *values = malloc(weights->table.value_count * sizeof *values);
        assert_non_null(values);
        parameters_initialise(&weights->table, 3, values);
        export_write(weights, values);
        rollout one;
        rollout two;
        rollout_generate(model, weights, 9, 4, 0, &one);
        rollout_generate(model, weights, 9, 4, 0, &two);
        assert_memory_equal(&one, &two, sizeof one);
        rollout_generate(model, weights, 9, 4, 1, &two);
        assert_memory_not_equal(&one, &two, sizeof one);
        assert_true(rollout_verify(model, weights, &one));
        /* One bit of one weight that every token meets: no longer the weights of this rollout. */
        weights->parts[PARAMETER_LAYERS + LAYER_QKV].weight->data[100] ^= 0x10;
        assert_false(rollout_verify(model, weights, &one));
        free(values);
        policy_destroy(model);
        export_destroy(weights);
    }
}

static void rewards_are_what_the_task_says(void **state) {
    (void)state;
    uint8_t tokens[TASK_LENGTH] = {1, 2, 3, 4, TASK_END, 4, 3, 1, 1};
    assert_true(task_reward(tokens, 0) == 1.0F);
    assert_true(task_reward(tokens, 1) == 1.0F);
    assert_true(task_reward(tokens, 2) == 0.0F);
    assert_true(task_reward(tokens, 3) == 1.0F);
    uint8_t prompt[TASK_ANSWER_AT];
    for (uint64_t i = 0; i < 100; i++) {
        task_prompt(1, 2, i, prompt);
        for (uint32_t j = 0; j < TASK_PROMPT; j++)
            assert_in_range(prompt[j], 0, TASK_DIGITS - 1);
        assert_int_equal(prompt[TASK_PROMPT], TASK_END);
    }
}

/* Twelve steps at the warm-up's rate, in one process: twice the same, and better than chance. */
static void steps_learn_and_repeat(void **state) {
    (void)state;
    enum { STEPS = 12 };
    float rewards[2][STEPS];
    for (int round = 0; round < 2; round++) {
        learner *student = learner_create(EXPORT_BF16, 1, 1);
        policy *model = policy_create(ROLLOUT_SEQUENCES);
        assert_true(student != NULL && model != NULL);
        for (uint64_t step = 0; step < STEPS; step++) {
            rollout batch;
            rollout_generate(model, learner_weights(student), 1, step, 0, &batch);
            rewards[round][step] = learner_reward(&batch, 1);
            learner_step(student, &batch, 1e-3F);
        }
        policy_destroy(model);
        learner_destroy(student);
    }
    assert_memory_equal(rewards[0], rewards[1], sizeof rewards[0]);
    const float first = rewards[0][0] + rewards[0][1] + rewards[0][2];
    const float last = rewards[0][STEPS - 3] + rewards[0][STEPS - 2] + rewards[0][STEPS - 1];
    assert_true(last > first + 0.1F);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(rows_do_not_touch_each_other),
        cmocka_unit_test(products_are_not_fused),
        cmocka_unit_test(exponential_is_near),
        cmocka_unit_test(gradients_equal_finite_differences),
        cmocka_unit_test(adamw_follows_its_formula),
        cmocka_unit_test(rollouts_prove_their_weights),
        cmocka_unit_test(rewards_are_what_the_task_says),
        cmocka_unit_test(steps_learn_and_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
