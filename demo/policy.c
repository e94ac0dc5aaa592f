/* The policy's blocks put together: embeddings, layers, final norm, head, and the way back.
 *
 * Owns the memory plan. attention.c and experts.c hold the two halves of a block. */
#include "gemm.h"
#include "pointwise.h"
#include "policy_inside.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_PARAMETER (3 * (size_t)MODEL_HIDDEN * MODEL_HIDDEN)

/* Cuts aligned pieces from one block; with base NULL it only adds up sizes. */
typedef struct cutter {
    unsigned char *base;
    size_t used;
} cutter;

static void *cut(cutter *from, size_t count, size_t element_bytes) {
    void *piece = from->base == NULL ? NULL : from->base + from->used;
    from->used += (count * element_bytes + 63) / 64 * 64;
    return piece;
}

static float *cut_floats(cutter *from, size_t rows, size_t width) {
    return cut(from, rows * width, sizeof(float));
}

static void cut_layer(cutter *from, layer_trace *trace, size_t rows) {
    trace->input = cut_floats(from, rows, MODEL_HIDDEN);
    trace->normed = cut_floats(from, rows, MODEL_HIDDEN);
    trace->inverse_rms = cut_floats(from, rows, 1);
    trace->qkv = cut_floats(from, rows, 3 * (size_t)MODEL_HIDDEN);
    trace->attention = cut_floats(from, rows, MODEL_HEADS * (size_t)MODEL_CONTEXT);
    trace->mixed = cut_floats(from, rows, MODEL_HIDDEN);
    trace->middle = cut_floats(from, rows, MODEL_HIDDEN);
    trace->post_normed = cut_floats(from, rows, MODEL_HIDDEN);
    trace->post_inverse_rms = cut_floats(from, rows, 1);
    trace->share = cut_floats(from, rows, MODEL_EXPERTS_USED);
    trace->chosen = cut(from, rows * MODEL_EXPERTS_USED, 1);
    trace->gate = cut_floats(from, rows, MODEL_EXPERTS_USED * (size_t)MODEL_INNER);
    trace->up = cut_floats(from, rows, MODEL_EXPERTS_USED * (size_t)MODEL_INNER);
    trace->expert_out = cut_floats(from, rows, MODEL_EXPERTS_USED * (size_t)MODEL_HIDDEN);
}

static size_t plan(policy *model, unsigned char *base) {
    cutter from = {base, 0};
    const size_t rows = model->rows;
    for (size_t layer = 0; layer < MODEL_LAYERS; layer++)
        cut_layer(&from, &model->layers[layer], rows);
    model->tokens = cut(&from, rows, 1);
    model->output = cut_floats(&from, rows, MODEL_HIDDEN);
    model->final_normed = cut_floats(&from, rows, MODEL_HIDDEN);
    model->final_inverse_rms = cut_floats(&from, rows, 1);
    model->chances = cut_floats(&from, rows, MODEL_VOCABULARY);
    model->weight = cut_floats(&from, 1, LARGEST_PARAMETER);
    model->members = cut(&from, rows * MODEL_EXPERTS_USED, sizeof(size_t));
    model->gathered = cut_floats(&from, rows, MODEL_HIDDEN);
    model->gathered_gate = cut_floats(&from, rows, MODEL_INNER);
    model->gathered_up = cut_floats(&from, rows, MODEL_INNER);
    model->gathered_act = cut_floats(&from, rows, MODEL_INNER);
    model->gathered_out = cut_floats(&from, rows, MODEL_HIDDEN);
    model->stream_gradient = cut_floats(&from, rows, MODEL_HIDDEN);
    model->normed_gradient = cut_floats(&from, rows, MODEL_HIDDEN);
    model->qkv_gradient = cut_floats(&from, rows, 3 * (size_t)MODEL_HIDDEN);
    model->inner_gradient = cut_floats(&from, rows, MODEL_INNER);
    return from.used;
}

policy *policy_create(size_t batch) {
    policy *model = calloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->batch = batch;
    model->rows = batch * MODEL_CONTEXT;
    const size_t bytes = plan(model, NULL);
    unsigned char *memory = aligned_alloc(64, bytes);
    if (memory == NULL) {
        free(model);
        return NULL;
    }
    memset(memory, 0, bytes);
    model->memory = memory;
    (void)plan(model, memory);
    return model;
}

void policy_destroy(policy *model) {
    if (model == NULL)
        return;
    free(model->memory);
    free(model);
}

uint8_t *policy_tokens(policy *model) {
    return model->tokens;
}

const float *policy_chances(const policy *model, size_t position) {
    return model->chances + position * model->batch * MODEL_VOCABULARY;
}

const float *policy_read(policy *model, const exported *weights, size_t index) {
    export_read(weights, index, model->weight);
    return model->weight;
}

/* ---- Forward ----------------------------------------------------------------------------------*/

static void embed(policy *model, const exported *weights, size_t from, size_t to) {
    float *stream = model->layers[0].input;
    const float *words = policy_read(model, weights, PARAMETER_EMBEDDING);
    for (size_t row = from * model->batch; row < to * model->batch; row++)
        memcpy(stream + row * MODEL_HIDDEN, words + model->tokens[row] * (size_t)MODEL_HIDDEN,
               MODEL_HIDDEN * sizeof(float));
    const float *places = policy_read(model, weights, PARAMETER_POSITION);
    for (size_t row = from * model->batch; row < to * model->batch; row++)
        for (size_t i = 0; i < MODEL_HIDDEN; i++)
            stream[row * MODEL_HIDDEN + i] += places[row / model->batch * MODEL_HIDDEN + i];
}

void policy_forward(policy *model, const exported *weights, size_t from, size_t to) {
    const size_t first = from * model->batch;
    const size_t rows = (to - from) * model->batch;
    const size_t hidden = first * MODEL_HIDDEN;
    embed(model, weights, from, to);
    for (size_t layer = 0; layer < MODEL_LAYERS; layer++) {
        const bool last = layer + 1 == MODEL_LAYERS;
        attention_forward(model, weights, layer, from, to);
        experts_forward(model, weights, layer, first, first + rows,
                        last ? model->output : model->layers[layer + 1].input);
    }
    norm_forward(rows, model->output + hidden, policy_read(model, weights, PARAMETER_FINAL_NORM),
                 model->final_normed + hidden, model->final_inverse_rms + first);
    float *chances = model->chances + first * MODEL_VOCABULARY;
    gemm_times_transposed(rows, MODEL_VOCABULARY, MODEL_HIDDEN, model->final_normed + hidden,
                          policy_read(model, weights, PARAMETER_HEAD), chances);
    for (size_t row = 0; row < rows; row++)
        softmax(chances + row * MODEL_VOCABULARY, MODEL_VOCABULARY);
}

/* ---- Backward ---------------------------------------------------------------------------------*/

static void embed_backward(const policy *model, const parameter *items, size_t rows,
                           float *gradients) {
    for (size_t row = 0; row < rows; row++) {
        const float *from = model->stream_gradient + row * MODEL_HIDDEN;
        float *word = gradients + items[PARAMETER_EMBEDDING].offset +
                      model->tokens[row] * (size_t)MODEL_HIDDEN;
        float *place =
            gradients + items[PARAMETER_POSITION].offset + row / model->batch * MODEL_HIDDEN;
        for (size_t i = 0; i < MODEL_HIDDEN; i++) {
            word[i] += from[i];
            place[i] += from[i];
        }
    }
}

void policy_backward(policy *model, const exported *weights, size_t positions,
                     const float *logit_gradient, float *gradients) {
    const parameter *items = weights->table.items;
    const size_t rows = positions * model->batch;
    gemm_add_transposed(MODEL_VOCABULARY, MODEL_HIDDEN, rows, logit_gradient, model->final_normed,
                        gradients + items[PARAMETER_HEAD].offset);
    memset(model->normed_gradient, 0, rows * MODEL_HIDDEN * sizeof(float));
    gemm_add(rows, MODEL_HIDDEN, MODEL_VOCABULARY, logit_gradient,
             policy_read(model, weights, PARAMETER_HEAD), model->normed_gradient);
    memset(model->stream_gradient, 0, rows * MODEL_HIDDEN * sizeof(float));
    norm_backward(rows, model->output, policy_read(model, weights, PARAMETER_FINAL_NORM),
                  model->final_inverse_rms, model->normed_gradient, model->stream_gradient,
                  gradients + items[PARAMETER_FINAL_NORM].offset);
    for (size_t layer = MODEL_LAYERS; layer-- > 0;) {
        experts_backward(model, weights, layer, rows, gradients);
        attention_backward(model, weights, layer, positions, gradients);
    }
    embed_backward(model, items, rows, gradients);
}
