/* Ranges of tensors that follow FP32 masters: block by block, the masters of a block, its scale,
 * its numbers. Owns nothing. The arithmetic of a number is in gen_master.h. */
#include "gen/gen_master.h"

#include <string.h>

#define BLOCK_MOST 128u /* a row's last block is less than two */
#define PLAIN_BLOCK 64u /* numbers at a time where there are no scales */

/* A matrix of masters at a step, and how it is rounded. */
typedef struct matrix {
    gen_masters masters;
    gen_kind kind;
    uint64_t blocks; /* in a row */
    uint32_t block;
    float global; /* scale of NVFP4 */
    bool power_of_two;
} matrix;

/* The largest size that NVFP4 can show is set once, like a calibration: about that of a tensor of
 * normal numbers, with room for heavy tails. */
static float global_scale(const gen_run *run, uint64_t master) {
    const float jitter =
        (float)(gen_key(run->seed, master, 2) >> 40) * 0x1p-24f; /* tensors differ */
    const float deviations = run->heavy ? 16.0f + 8.0f * jitter : 4.0f + 0.75f * jitter;
    const float largest = GEN_DEVIATION * deviations;
    return largest / (GEN_E4M3_MOST * GEN_E2M1_MOST);
}

/* `tensor` may be any part of the matrix. Keys 1 and up of a tensor belong to masks. */
static matrix matrix_of(const gen_run *run, const gen_tensor *tensor, uint64_t step) {
    const uint64_t seed = run->seed ^ UINT64_C(0x6D61737465727321), id = tensor->master;
    const uint32_t block = tensor->block == 0 ? PLAIN_BLOCK : tensor->block;
    const uint64_t columns = tensor->columns == 0 ? 1 : tensor->columns;
    const gen_part part = tensor->part;
    return (matrix){
        .masters = {.first_key = gen_key(seed, id, 0),
                    .gradient_key = gen_key(seed, id, 1),
                    .row_key = gen_key(seed, id, 3),
                    .columns = columns,
                    .step = step,
                    /* 64 coins and the even spread have a deviation of 4.0104 */
                    .first_factor = GEN_DEVIATION * 0x1.feaap-27f,
                    .rate_factor = (float)run->learning_rate * 0x1p-20f,
                    .centre = tensor->norm ? 1.0f : 0.0f,
                    .heavy = run->heavy},
        .kind = part == GEN_PART_NUMBERS                                         ? tensor->kind
                : tensor->kind == GEN_F32_SCALE && part == GEN_PART_BLOCK_SCALES ? GEN_FP8
                                                                                 : GEN_NVFP4,
        .blocks = columns < block ? 1 : columns / block,
        .block = block,
        .global = global_scale(run, id),
        .power_of_two = run->power_of_two,
    };
}

/* ---- Blocks -----------------------------------------------------------------------------------*/

typedef struct block {
    uint64_t first; /* number of the matrix */
    uint32_t count;
    float numbers[BLOCK_MOST];
} block;

/* Block b of a row, or a plain run of numbers. */
static void fill_block(const matrix *m, uint64_t row, uint64_t b, block *out) {
    const uint64_t begin = b * m->block;
    const uint64_t end = b + 1 == m->blocks ? m->masters.columns : begin + m->block;
    out->first = row * m->masters.columns + begin;
    out->count = (uint32_t)(end - begin);
    for (uint32_t i = 0; i < out->count; i++)
        out->numbers[i] = gen_master(&m->masters, out->first + i);
}

static float largest_of(const block *b) {
    float largest = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const float size = gen_size(b->numbers[i]);
        largest = size > largest ? size : largest;
    }
    return largest;
}

/* Codes of a block, one to a byte. */
static void round_block(const matrix *m, const block *b, uint8_t *codes) {
    const float largest = largest_of(b);
    if (m->kind == GEN_FP8) {
        const float scale = gen_fp8_scale(largest, m->power_of_two);
        for (uint32_t i = 0; i < b->count; i++)
            codes[i] = scale > 0 ? gen_e4m3(b->numbers[i] / scale) : 0;
        return;
    }
    const float scale = gen_e4m3_number(gen_nvfp4_scale(largest, m->global)) * m->global;
    for (uint32_t i = 0; i < b->count; i++)
        codes[i] = gen_e2m1(b->numbers[i] / scale);
}

/* ---- Ranges -----------------------------------------------------------------------------------*/

static void bf16_range(const matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    for (uint64_t i = 0; i < count; i += 2) {
        const uint16_t code = gen_bf16(gen_master(&m->masters, (offset + i) / 2));
        memcpy(bytes + i, &code, count - i < 2 ? 1 : 2);
    }
}

/* Codes of FP8, or pairs of codes, that fall into the range. Numbers come in whole blocks, and a
 * block has an even number of them. */
static void code_range(const matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    const uint64_t pack = m->kind == GEN_NVFP4 ? 2 : 1, end = (offset + count) * pack;
    const uint64_t columns = m->masters.columns;
    for (uint64_t at = offset * pack; at < end;) {
        block b;
        uint8_t codes[BLOCK_MOST];
        uint64_t index = at % columns / m->block;
        index = index < m->blocks ? index : m->blocks - 1;
        fill_block(m, at / columns, index, &b);
        round_block(m, &b, codes);
        const uint64_t stop = b.first + b.count < end ? b.first + b.count : end;
        for (; at < stop; at += pack) {
            const uint8_t *code = codes + (at - b.first);
            bytes[at / pack - offset] = pack == 2 ? (uint8_t)(code[0] | code[1] << 4) : code[0];
        }
    }
}

static float block_scale(const matrix *m, uint64_t index) {
    block b;
    fill_block(m, index / m->blocks, index % m->blocks, &b);
    return largest_of(&b);
}

static void scale_range(const matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    const uint32_t width = m->kind == GEN_FP8 ? 4 : 1;
    for (uint64_t i = 0; i < count; i += width) {
        const float largest = block_scale(m, (offset + i) / width);
        const float scale = gen_fp8_scale(largest, m->power_of_two);
        const uint32_t code =
            m->kind == GEN_FP8 ? gen_bits_of(scale) : gen_nvfp4_scale(largest, m->global);
        memcpy(bytes + i, &code, count - i < width ? count - i : width);
    }
}

void gen_master_bytes(const gen_run *run, const gen_tensor *tensor, uint64_t step, uint64_t offset,
                      void *bytes, uint64_t count) {
    const matrix m = matrix_of(run, tensor, step);
    if (tensor->part == GEN_PART_GLOBAL_SCALE)
        memcpy(bytes, (const uint8_t *)&m.global + offset, count);
    else if (tensor->part == GEN_PART_BLOCK_SCALES)
        scale_range(&m, offset, bytes, count);
    else if (tensor->kind == GEN_BF16)
        bf16_range(&m, offset, bytes, count);
    else
        code_range(&m, offset, bytes, count);
}
