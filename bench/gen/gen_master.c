/* Ranges of tensors that follow FP32 masters, on the host. Owns nothing. The arithmetic is in
 * gen_master.h, of numbers, and gen_matrix.h, of ranges. */
#include "gen/gen_matrix.h"

#define PLAIN_BLOCK 64u /* numbers at a time where there are no scales */

/* The largest size that NVFP4 can show is set once, like a calibration: about that of a tensor of
 * normal numbers, with room for heavy tails. */
static float global_scale(const gen_run *run, uint64_t master) {
    const float jitter =
        (float)(gen_key(run->seed, master, 2) >> 40) * 0x1p-24f; /* tensors differ */
    const float deviations = run->heavy ? 16.0f + 8.0f * jitter : 4.0f + 0.75f * jitter;
    const float largest = GEN_DEVIATION * deviations;
    return largest / (GEN_E4M3_MOST * GEN_E2M1_MOST);
}

/* Keys 1 and up of a tensor belong to masks. */
gen_matrix gen_matrix_of(const gen_run *run, const gen_tensor *tensor, uint64_t step) {
    const uint64_t seed = run->seed ^ UINT64_C(0x6D61737465727321), id = tensor->master;
    const uint32_t block = tensor->block == 0 ? PLAIN_BLOCK : tensor->block;
    const uint64_t columns = tensor->columns == 0 ? 1 : tensor->columns;
    const gen_part part = tensor->part;
    return (gen_matrix){
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
        .part = part,
        .power_of_two = run->power_of_two,
    };
}

bool gen_has_masters(const gen_run *run, const gen_tensor *tensor) {
    const gen_kind kind = tensor->kind;
    return run->masters && (tensor->part != GEN_PART_NUMBERS || kind == GEN_BF16 ||
                            kind == GEN_FP8 || kind == GEN_NVFP4);
}

void gen_master_bytes(const gen_run *run, const gen_tensor *tensor, uint64_t step, uint64_t offset,
                      void *bytes, uint64_t count) {
    const gen_matrix m = gen_matrix_of(run, tensor, step);
    gen_matrix_range(&m, offset, bytes, count);
}
