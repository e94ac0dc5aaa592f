/* Plans: lists of tensors with names, shapes and densities, shaped like real mixture-of-experts
 * checkpoints. Owns the list of a plan. Makes no bytes. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"

#define MATRICES_PER_LAYER 24u /* 8 experts of gate, up and down */

/* Shares of elements that change in a step at 1e-6, from real optimizer steps. */
#define BF16_DENSITY 0.013
#define FP8_DENSITY 0.00108
#define NVFP4_DENSITY 0.0002
#define F32_SCALE_DENSITY 0.97

/* Numbers of a row that share a scale. */
#define FP8_BLOCK 64u
#define NVFP4_BLOCK 16u

int gen_plan_add(gen_plan *plan, gen_kind kind, double density, uint32_t rank, uint64_t rows,
                 uint64_t columns, const char *name_format, ...) {
    if (plan->count == plan->room) {
        const uint64_t room = plan->room == 0 ? 256 : 2 * plan->room;
        gen_tensor *larger = realloc(plan->tensors, room * sizeof(gen_tensor));
        if (larger == NULL) {
            return ENOMEM;
        }
        plan->tensors = larger;
        plan->room = room;
    }
    gen_tensor *tensor = &plan->tensors[plan->count];
    memset(tensor, 0, sizeof *tensor);
    va_list arguments;
    va_start(arguments, name_format);
    const int length = vsnprintf(tensor->name, sizeof tensor->name, name_format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof tensor->name) {
        return ENAMETOOLONG;
    }
    tensor->kind = kind;
    tensor->density = density;
    tensor->rank = rank;
    tensor->shape[0] = rank == 1 ? columns : rows;
    tensor->shape[1] = columns;
    tensor->bytes = gen_kind_element_bytes(kind) * (rank > 1 ? rows : 1) * (rank > 0 ? columns : 1);
    tensor->columns = (kind == GEN_NVFP4 ? 2 : 1) * (rank > 0 ? columns : 1);
    tensor->master = plan->count;
    tensor->id = plan->count++;
    plan->total_bytes += tensor->bytes;
    return 0;
}

void gen_plan_free(gen_plan *plan) {
    free(plan->tensors);
    memset(plan, 0, sizeof *plan);
}

void gen_plan_set_density(gen_plan *plan, gen_kind kind, double density) {
    for (uint64_t i = 0; i < plan->count; i++) {
        if (plan->tensors[i].kind == kind && plan->tensors[i].density > 0) {
            plan->tensors[i].density = density;
        }
    }
}

/* Makes the tensor added last the scales of the matrix that was added `back` tensors before it, and
 * tells the matrix of its blocks. */
static void scales_of(gen_plan *plan, uint64_t back, gen_part part, uint32_t block) {
    gen_tensor *scales = &plan->tensors[plan->count - 1], *matrix = scales - back;
    matrix->block = block;
    scales->part = part;
    scales->master = matrix->id;
    scales->columns = matrix->columns;
    scales->block = block;
}

/* A matrix of an expert, with its scales: `rows` of `columns` bytes in FP8 and NVFP4 (then two
 * numbers each), of `columns` numbers in BF16. */
static int add_matrix(gen_plan *plan, gen_kind kind, uint64_t rows, uint64_t columns,
                      const char *name) {
    const double density = kind == GEN_BF16  ? BF16_DENSITY
                           : kind == GEN_FP8 ? FP8_DENSITY
                                             : NVFP4_DENSITY;
    int error = gen_plan_add(plan, kind, density, 2, rows, columns, "%s.weight", name);
    if (error == 0 && kind == GEN_FP8) {
        error = gen_plan_add(plan, GEN_F32_SCALE, F32_SCALE_DENSITY, 2, rows, columns / FP8_BLOCK,
                             "%s.weight_scale_inv", name);
        if (error == 0) {
            scales_of(plan, 1, GEN_PART_BLOCK_SCALES, FP8_BLOCK);
        }
    }
    if (error == 0 && kind == GEN_NVFP4) {
        error = gen_plan_add(plan, GEN_FP8_SCALE, NVFP4_DENSITY, 2, rows, 2 * columns / NVFP4_BLOCK,
                             "%s.weight_scale", name);
        if (error == 0) {
            scales_of(plan, 1, GEN_PART_BLOCK_SCALES, NVFP4_BLOCK);
            error = gen_plan_add(plan, GEN_F32_SCALE, 0, 0, 0, 0, "%s.weight_scale_2", name);
        }
        if (error == 0) {
            scales_of(plan, 2, GEN_PART_GLOBAL_SCALE, NVFP4_BLOCK);
        }
    }
    return error;
}

static uint64_t matrix_cost(gen_kind kind, uint64_t rows, uint64_t columns) {
    const uint64_t bytes = rows * columns;
    return kind == GEN_BF16  ? 2 * bytes
           : kind == GEN_FP8 ? bytes + bytes / FP8_BLOCK * 4
                             : bytes + 2 * bytes / NVFP4_BLOCK + 4;
}

typedef struct shape {
    gen_kind kind;
    uint64_t hidden, rows, columns; /* of the model; of an expert's matrix, in stored elements */
    uint64_t matrices, layers;
    uint64_t attention_rows, vocabulary;
} shape;

/* The largest hidden size that still gives two layers, then as many matrices as fit the experts'
 * share; the rest goes to attention and embeddings. */
static shape shape_of(gen_kind kind, uint64_t bytes) {
    const double share = kind == GEN_BF16 ? 0.7 : kind == GEN_FP8 ? 0.75 : 0.92;
    const uint64_t experts = (uint64_t)((double)bytes * share);
    shape s = {.kind = kind};
    for (s.hidden = 4096; s.hidden > 64; s.hidden /= 2) {
        s.rows = s.hidden / 4 * 3;
        s.columns = kind == GEN_NVFP4 ? s.hidden / 2 : s.hidden;
        if (2 * MATRICES_PER_LAYER * matrix_cost(kind, s.rows, s.columns) <= experts) {
            break;
        }
    }
    s.rows = s.hidden / 4 * 3;
    s.columns = kind == GEN_NVFP4 ? s.hidden / 2 : s.hidden;
    const uint64_t matrix = matrix_cost(kind, s.rows, s.columns);
    s.matrices = (experts + matrix / 2) / matrix;
    while (s.matrices > 0 && s.matrices * matrix > bytes) {
        s.matrices--;
    }
    s.layers = (s.matrices + MATRICES_PER_LAYER - 1) / MATRICES_PER_LAYER;
    const uint64_t rest = (bytes - s.matrices * matrix) / 10 * 9, row = 2 * s.hidden;
    s.attention_rows = s.layers == 0 ? 0 : rest / 4 * 3 / s.layers / 4 / row;
    s.vocabulary = rest / 4 / 2 / row;
    return s;
}

static int add_layer(gen_plan *plan, const shape *s, uint64_t layer, uint64_t matrices) {
    static const char *const parts[3] = {"gate_proj", "up_proj", "down_proj"};
    static const char attention[4] = {'q', 'k', 'v', 'o'};
    const unsigned long long l = layer;
    int error = 0;
    for (uint32_t i = 0; i < 4 && error == 0 && s->attention_rows > 0; i++) {
        error = gen_plan_add(plan, GEN_BF16, BF16_DENSITY, 2, s->attention_rows, s->hidden,
                             "model.layers.%llu.self_attn.%c_proj.weight", l, attention[i]);
    }
    for (uint64_t i = 0; i < matrices && error == 0; i++) {
        char name[80];
        snprintf(name, sizeof name, "model.layers.%llu.mlp.experts.%u.%s", l, (unsigned)(i / 3),
                 parts[i % 3]);
        const bool down = i % 3 == 2;
        const uint64_t half = s->kind == GEN_NVFP4 ? 2 : 1; /* numbers to the stored byte */
        error = add_matrix(plan, s->kind, down ? s->columns * half : s->rows,
                           down ? s->rows / half : s->columns, name);
    }
    return error;
}

int gen_plan_model(gen_plan *plan, gen_kind experts, uint64_t bytes) {
    const shape s = shape_of(experts, bytes);
    const uint64_t before = plan->total_bytes;
    int error = 0;
    if (s.vocabulary > 0) {
        error = gen_plan_add(plan, GEN_BF16, BF16_DENSITY, 2, s.vocabulary, s.hidden,
                             "model.embed_tokens.weight");
    }
    uint64_t left = s.matrices;
    for (uint64_t layer = 0; layer < s.layers && error == 0; layer++) {
        const uint64_t here = left < MATRICES_PER_LAYER ? left : MATRICES_PER_LAYER;
        error = add_layer(plan, &s, layer, here);
        left -= here;
    }
    if (s.vocabulary > 0 && error == 0) {
        error =
            gen_plan_add(plan, GEN_BF16, BF16_DENSITY, 2, s.vocabulary, s.hidden, "lm_head.weight");
    }
    /* What no row is left for: whole rows to the norms' matrix, the last few numbers to the last
     * norm. Norms hardly ever change at these rates. */
    const uint64_t used = plan->total_bytes - before, rest = bytes > used ? (bytes - used) / 2 : 0;
    if (rest >= s.hidden && error == 0) {
        error = gen_plan_add(plan, GEN_BF16, BF16_DENSITY, 2, rest / s.hidden, s.hidden,
                             "model.router.weight");
    }
    if (rest % s.hidden > 0 && error == 0) {
        error = gen_plan_add(plan, GEN_BF16, 0, 1, 0, rest % s.hidden, "model.norm.weight");
        if (error == 0) {
            plan->tensors[plan->count - 1].norm = true;
        }
    }
    return error;
}

int gen_plan_many(gen_plan *plan, uint64_t count, uint64_t matrix_bytes) {
    int error = 0;
    for (uint64_t i = 0; i < count && error == 0; i++) {
        const unsigned long long layer = i / 3 / 1024, expert = i / 3 % 1024;
        const gen_kind kind = i % 3 == 0 ? GEN_NVFP4 : i % 3 == 1 ? GEN_FP8_SCALE : GEN_F32_SCALE;
        const uint64_t rows = 16, columns = i % 3 == 0 ? matrix_bytes / 16 : matrix_bytes / 128;
        static const char *const names[3] = {"weight", "weight_scale", "weight_scale_2"};
        error = gen_plan_add(plan, kind, NVFP4_DENSITY, i % 3 == 2 ? 0 : 2, rows, columns,
                             "model.layers.%llu.mlp.experts.%llu.gate_proj.%s", layer, expert,
                             names[i % 3]);
        if (error == 0 && i % 3 > 0) {
            scales_of(plan, i % 3, i % 3 == 1 ? GEN_PART_BLOCK_SCALES : GEN_PART_GLOBAL_SCALE,
                      NVFP4_BLOCK);
        }
    }
    return error;
}

int gen_plan_add_extras(gen_plan *plan) {
    int error = gen_plan_add(plan, GEN_BF16, BF16_DENSITY, 2, 0, 7, "extra.empty");
    if (error == 0) {
        error = gen_plan_add(plan, GEN_F32_SCALE, 1, 0, 0, 0, "extra.scalar");
    }
    if (error == 0) {
        error = gen_plan_add(plan, GEN_RANDOM, 0.01, 1, 0, 4099, "extra.odd");
    }
    return error;
}
