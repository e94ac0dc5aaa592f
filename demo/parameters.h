/* The parameters of the demo's policy: a decoder of two transformer blocks with a mixture of
 * experts, named and shaped the way checkpoints of such models are.
 *
 * Owns the sizes of the model and the table of names, shapes and places in the flat FP32 arrays
 * (weights, gradients, optimizer moments). Knows nothing of how a parameter is computed with or
 * exported. */
#ifndef DEMO_PARAMETERS_H
#define DEMO_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 5.3 million parameters. Every size is a multiple of 8, which gemm.h asks for, and of 64, the
 * block of the FP8 scales, where a parameter is quantised. */
enum {
    MODEL_VOCABULARY = 16,
    MODEL_CONTEXT = 16,
    MODEL_HIDDEN = 512,
    MODEL_HEADS = 8,
    MODEL_HEAD = MODEL_HIDDEN / MODEL_HEADS,
    MODEL_LAYERS = 2,
    MODEL_EXPERTS = 8,
    MODEL_EXPERTS_USED = 2,
    MODEL_INNER = 128
};

/* Places in the table. A layer's begin at PARAMETER_LAYERS + layer * PARAMETERS_PER_LAYER. */
enum {
    PARAMETER_EMBEDDING = 0,
    PARAMETER_POSITION = 1,
    PARAMETER_LAYERS = 2,

    LAYER_INPUT_NORM = 0,
    LAYER_QKV = 1,
    LAYER_OUTPUT = 2,
    LAYER_POST_NORM = 3,
    LAYER_ROUTER = 4,
    LAYER_EXPERTS = 5, /* three for each expert, in this order: */
    EXPERT_GATE = 0,
    EXPERT_UP = 1,
    EXPERT_DOWN = 2,
    PARAMETERS_PER_EXPERT = 3,
    PARAMETERS_PER_LAYER = LAYER_EXPERTS + PARAMETERS_PER_EXPERT * MODEL_EXPERTS,

    PARAMETER_FINAL_NORM = PARAMETER_LAYERS + MODEL_LAYERS * PARAMETERS_PER_LAYER,
    PARAMETER_HEAD,
    PARAMETER_COUNT
};

typedef struct parameter {
    char name[72];
    size_t rows, columns; /* a vector is one row */
    bool vector;          /* of rank 1 */
    bool quantised;       /* FP8 and NVFP4 exports narrow it; the others stay BF16 */
    float initial_spread; /* standard deviation of the first values; 0: all are 1 */
    size_t offset;        /* of its first value in the flat arrays */
} parameter;

typedef struct parameter_table {
    parameter items[PARAMETER_COUNT];
    size_t value_count; /* of all parameters together */
} parameter_table;

void parameters_describe(parameter_table *table_out);

/* The first weights of a run: reproducible from the seed alone. */
void parameters_initialise(const parameter_table *table, uint64_t seed, float *values);

#endif
