/* The arithmetic of weights that follow FP32 masters, number by number: the master at a step, and
 * its rounding to BF16, E4M3 and E2M1 with their scales. Plain functions of integers and floats
 * without state, so that a kernel can use them as they are.
 *
 * The same bits on every machine: random numbers are counted bits of integer hashes, sums are
 * integers, and every float operation is a single rounding of IEEE 754. Compile host code with
 * contraction off (-ffp-contract=off): a fused multiplication and subtraction rounds otherwise. For
 * a GPU gen_product sees to it; what nvcc fuses beside it are products that need no rounding. No
 * call of a mathematical library.
 *
 *     master(step) = first - rate * (u(1) + ... + u(step))
 *     u(s)         = a weighted sum of the last GEN_MEMORY gradients, as Adam's mean over its root
 *                    of squares is: a magnitude below one, mostly the direction of the step before
 *
 * Gradients are sums of 32 fair coins. gen_matrix.h makes ranges of tensors of it; knows nothing of
 * plans. */
#ifndef GEN_MASTER_H
#define GEN_MASTER_H

#include "gen/gen.h"

#define GEN_MEMORY 6 /* gradients that a step remembers, each weighing 0.9 of the one after */
#define GEN_DEVIATION 0.02f /* of the weights */
#define GEN_E4M3_MOST 448.0f
#define GEN_E2M1_MOST 6.0f

/* What all numbers of a matrix share at one step. */
typedef struct gen_masters {
    uint64_t first_key, gradient_key, row_key;
    uint64_t columns; /* numbers in a row */
    uint64_t step;
    float first_factor; /* of what gen_coins gives */
    float rate_factor;  /* of what gen_steps_sum gives */
    float centre;       /* 1 in norms, else 0 */
    bool heavy;
} gen_masters;

/* ---- Random numbers ---------------------------------------------------------------------------*/

GEN_FN uint32_t gen_ones(uint64_t word) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__popcll(word);
#else
    return (uint32_t)__builtin_popcountll(word);
#endif
}

/* Nearly normal, deviation 4 * 2^24: 64 coins, spread evenly between their whole numbers. */
GEN_FN int32_t gen_coins(uint64_t key, uint64_t index, uint64_t *rest_out) {
    const uint64_t coins = gen_mix64(key + (index + 1) * GEN_GOLDEN);
    const uint64_t spread = gen_mix64(coins ^ key);
    *rest_out = spread & 0xFFFFFFFFu;
    return (int32_t)((gen_ones(coins) - 32) << 24) + (int32_t)(spread >> 40) - (1 << 23);
}

/* Heavy tails: 1.5 to the power of k with k at least n once in 4^n, at most 8. Beyond a few
 * deviations a number is larger than x about as often as x^-3.4. */
GEN_FN float gen_tail(uint64_t rest) {
    float factor = 1;
    for (uint32_t k = 0; k < 8 && (rest & 3) == 0; k++, rest >>= 2)
        factor *= 1.5f;
    return factor;
}

/* Rows differ too: 0.75 to 1.25. */
GEN_FN float gen_row(uint64_t key, uint64_t row) {
    return 0.75f + (float)(gen_mix64(key + (row + 1) * GEN_GOLDEN) >> 44) * 0x1p-21f;
}

/* Rounded by itself, whatever is added to it. */
GEN_FN float gen_product(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

/* ---- Masters ----------------------------------------------------------------------------------*/

/* What the newest `count` gradients weigh together, in units of 2^-20: a deviation of u of 0.34. */
GEN_FN int64_t gen_weight_of(uint64_t count) {
    const int64_t sums[GEN_MEMORY + 1] = {0, 64859, 123232, 175768, 223050, 265604, 303903};
    return sums[count < GEN_MEMORY ? count : GEN_MEMORY];
}

/* How often, by weight, gradient t of 0, 1, ... step + GEN_MEMORY - 2 is in the sum of the steps
 * 1 to `step`; gradient t is new at step t + 2 - GEN_MEMORY. */
GEN_FN int64_t gen_gradient_weight(uint64_t t, uint64_t step) {
    const uint64_t before = t + 1 < GEN_MEMORY ? GEN_MEMORY - 1 - t : 0;
    const uint64_t last = step + GEN_MEMORY - 1 - t;
    return gen_weight_of(last) - gen_weight_of(before);
}

/* The sum of all steps so far. Two gradients come from one hash. */
GEN_FN int64_t gen_steps_sum(uint64_t key, uint64_t index, uint64_t step) {
    int64_t sum = 0;
    const uint64_t count = step == 0 ? 0 : step + GEN_MEMORY - 1;
    for (uint64_t t = 0; t < count; t += 2) {
        const uint64_t coins = gen_mix64(key + t * GEN_GOLDEN + gen_mix64(index + GEN_GOLDEN));
        sum += gen_gradient_weight(t, step) * ((int64_t)gen_ones(coins >> 32) - 16);
        if (t + 1 < count)
            sum += gen_gradient_weight(t + 1, step) * ((int64_t)gen_ones(coins & 0xFFFFFFFFu) - 16);
    }
    return sum;
}

GEN_FN float gen_master(const gen_masters *m, uint64_t index) {
    uint64_t rest;
    const float coins = (float)gen_coins(m->first_key, index, &rest);
    float first = gen_product(coins, m->first_factor);
    if (m->heavy) {
        first = gen_product(first, gen_tail(rest));
        first = gen_product(first, gen_row(m->row_key, index / m->columns));
    }
    const float sum = (float)gen_steps_sum(m->gradient_key, index, m->step);
    const float moved = gen_product(sum, m->rate_factor);
    const float start = m->centre != 0 ? m->centre : first;
    return start - moved;
}

/* ---- Formats ------------------------------------------------------------------------------------
 * Nearest, ties to even, and the largest number instead of an infinity. */

typedef union gen_bits {
    float number;
    uint32_t bits;
} gen_bits;

GEN_FN uint32_t gen_bits_of(float number) {
    gen_bits b;
    b.number = number;
    return b.bits;
}

GEN_FN float gen_number_of(uint32_t bits) {
    gen_bits b;
    b.bits = bits;
    return b.number;
}

GEN_FN uint16_t gen_bf16(float number) {
    const uint32_t bits = gen_bits_of(number);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

GEN_FN float gen_size(float number) {
    return gen_number_of(gen_bits_of(number) & 0x7FFFFFFFu);
}

GEN_FN uint8_t gen_e4m3(float number) {
    const uint32_t sign = gen_bits_of(number) >> 31 << 7;
    const float size = gen_size(number);
    if (size >= GEN_E4M3_MOST)
        return (uint8_t)(sign | 0x7E);
    if (size < 0x1p-6f) { /* below, the last place is fixed; adding 2^23 rounds to whole numbers */
        const float scaled = size * 512.0f;
        return (uint8_t)(sign | (gen_bits_of(scaled + 8388608.0f) - gen_bits_of(8388608.0f)));
    }
    const uint32_t bits = gen_bits_of(size);
    return (uint8_t)(sign | (((bits + 0x7FFFFu + (bits >> 20 & 1u)) >> 20) - (120u << 3)));
}

/* Of a positive code. */
GEN_FN float gen_e4m3_number(uint8_t code) {
    if (code < 8)
        return (float)code * 0x1p-9f;
    return gen_number_of(((uint32_t)code + (120u << 3)) << 20);
}

GEN_FN uint8_t gen_e2m1(float number) {
    const float a = gen_size(number);
    uint32_t code = 0; /* how many middles between neighbours lie below */
    code += a > 0.25f;
    code += a >= 0.75f;
    code += a > 1.25f;
    code += a >= 1.75f;
    code += a > 2.5f;
    code += a >= 3.5f;
    code += a > 5.0f;
    return (uint8_t)(gen_bits_of(number) >> 31 << 3 | code);
}

/* The scale of an FP8 block whose largest number has this size; as a power of two, the next one
 * that fits. */
GEN_FN float gen_fp8_scale(float largest, bool power_of_two) {
    const float scale = largest / GEN_E4M3_MOST;
    const uint32_t bits = gen_bits_of(scale);
    if (power_of_two && (bits & 0x7FFFFFu) != 0)
        return gen_number_of((bits & 0x7F800000u) + 0x800000u);
    return scale;
}

/* The scale of an NVFP4 block, itself in E4M3 and in units of the tensor's global scale. Never 0,
 * so that a block of zeros can be divided by it. */
GEN_FN uint8_t gen_nvfp4_scale(float largest, float global) {
    const float in_units = largest / GEN_E2M1_MOST;
    const uint8_t code = gen_e4m3(in_units / global);
    return code == 0 ? 1 : code;
}

#endif
