/* The arithmetic of ranges: block by block, the masters of a block, its scale, its numbers. Plain
 * functions, so that the host (gen_master.c) and kernels (bench/cuda/masters.cuh) give the same
 * bytes. */
#ifndef GEN_MATRIX_H
#define GEN_MATRIX_H

#include <string.h>

#include "gen/gen_master.h"

#define GEN_BLOCK_MOST 128u /* numbers: a row's last block is less than two */

/* A matrix of masters at a step, and how it is rounded. */
typedef struct gen_matrix {
    gen_masters masters;
    gen_kind kind;
    gen_part part;   /* which tensor of it is made */
    uint64_t blocks; /* in a row */
    uint32_t block;
    float global; /* scale of NVFP4 */
    bool power_of_two;
} gen_matrix;

/* `tensor` may be any part of the matrix, and follows masters (gen_has_masters). */
gen_matrix gen_matrix_of(const gen_run *run, const gen_tensor *tensor, uint64_t step);

/* ---- Blocks -----------------------------------------------------------------------------------*/

typedef struct gen_block {
    uint64_t first; /* number of the matrix */
    uint32_t count;
    float numbers[GEN_BLOCK_MOST];
} gen_block;

/* Block b of a row, or a plain run of numbers. */
GEN_FN void gen_fill_block(const gen_matrix *m, uint64_t row, uint64_t b, gen_block *out) {
    const uint64_t begin = b * m->block;
    const uint64_t end = b + 1 == m->blocks ? m->masters.columns : begin + m->block;
    out->first = row * m->masters.columns + begin;
    out->count = (uint32_t)(end - begin);
    for (uint32_t i = 0; i < out->count; i++)
        out->numbers[i] = gen_master(&m->masters, out->first + i);
}

GEN_FN float gen_largest_of(const gen_block *b) {
    float largest = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const float size = gen_size(b->numbers[i]);
        largest = size > largest ? size : largest;
    }
    return largest;
}

/* Codes of a block, one to a byte. */
GEN_FN void gen_round_block(const gen_matrix *m, const gen_block *b, uint8_t *codes) {
    const float largest = gen_largest_of(b);
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

GEN_FN void gen_bf16_range(const gen_matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    for (uint64_t i = 0; i < count; i += 2) {
        const uint16_t code = gen_bf16(gen_master(&m->masters, (offset + i) / 2));
        memcpy(bytes + i, &code, count - i < 2 ? 1 : 2);
    }
}

/* Codes of FP8, or pairs of codes, that fall into the range. Numbers come in whole blocks, and a
 * block has an even number of them. */
GEN_FN void gen_code_range(const gen_matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    const uint64_t pack = m->kind == GEN_NVFP4 ? 2 : 1, end = (offset + count) * pack;
    const uint64_t columns = m->masters.columns;
    for (uint64_t at = offset * pack; at < end;) {
        gen_block b;
        uint8_t codes[GEN_BLOCK_MOST];
        uint64_t index = at % columns / m->block;
        index = index < m->blocks ? index : m->blocks - 1;
        gen_fill_block(m, at / columns, index, &b);
        gen_round_block(m, &b, codes);
        const uint64_t stop = b.first + b.count < end ? b.first + b.count : end;
        for (; at < stop; at += pack) {
            const uint8_t *code = codes + (at - b.first);
            bytes[at / pack - offset] = pack == 2 ? (uint8_t)(code[0] | code[1] << 4) : code[0];
        }
    }
}

GEN_FN float gen_block_scale(const gen_matrix *m, uint64_t index) {
    gen_block b;
    gen_fill_block(m, index / m->blocks, index % m->blocks, &b);
    return gen_largest_of(&b);
}

GEN_FN void gen_scale_range(const gen_matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    const uint32_t width = m->kind == GEN_FP8 ? 4 : 1;
    for (uint64_t i = 0; i < count; i += width) {
        const float largest = gen_block_scale(m, (offset + i) / width);
        const float scale = gen_fp8_scale(largest, m->power_of_two);
        const uint32_t code =
            m->kind == GEN_FP8 ? gen_bits_of(scale) : gen_nvfp4_scale(largest, m->global);
        memcpy(bytes + i, &code, count - i < width ? count - i : width);
    }
}

/* Bytes [offset, offset + count) of the tensor. */
GEN_FN void gen_matrix_range(const gen_matrix *m, uint64_t offset, uint8_t *bytes, uint64_t count) {
    if (m->part == GEN_PART_GLOBAL_SCALE)
        memcpy(bytes, (const uint8_t *)&m->global + offset, count);
    else if (m->part == GEN_PART_BLOCK_SCALES)
        gen_scale_range(m, offset, bytes, count);
    else if (m->kind == GEN_BF16)
        gen_bf16_range(m, offset, bytes, count);
    else
        gen_code_range(m, offset, bytes, count);
}

#endif
