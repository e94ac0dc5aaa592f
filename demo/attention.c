/* The attention half of a block: norm, queries, keys and values, causal softmax over the positions
 * so far, output projection, residual. */
#include "gemm.h"
#include "pointwise.h"
#include "policy_inside.h"

#include <string.h>

#define QKV_WIDTH (3 * (size_t)MODEL_HIDDEN)
#define SCORE_SCALE 0.125F /* 1 / sqrt(MODEL_HEAD) */
_Static_assert(MODEL_HEAD == 64, "SCORE_SCALE belongs to heads of 64");

static size_t place(size_t layer, size_t part) {
    return PARAMETER_LAYERS + layer * PARAMETERS_PER_LAYER + part;
}

static float dot(const float *a, const float *b) {
    float sum = 0;
    for (size_t i = 0; i < MODEL_HEAD; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Adds scale * from to `to`. */
static void add_scaled(float *to, float scale, const float *from) {
    for (size_t i = 0; i < MODEL_HEAD; i++)
        to[i] += scale * from[i];
}

static void attend(const policy *model, const layer_trace *trace, size_t position, size_t sequence,
                   size_t head) {
    const size_t row = position * model->batch + sequence;
    const float *query = trace->qkv + row * QKV_WIDTH + head * MODEL_HEAD;
    float *weights = trace->attention + (row * MODEL_HEADS + head) * MODEL_CONTEXT;
    float *mixed = trace->mixed + row * MODEL_HIDDEN + head * MODEL_HEAD;
    const float *keys = trace->qkv + sequence * QKV_WIDTH + MODEL_HIDDEN + head * MODEL_HEAD;
    const size_t step = model->batch * QKV_WIDTH;
    for (size_t i = 0; i <= position; i++)
        weights[i] = SCORE_SCALE * dot(query, keys + i * step);
    softmax(weights, position + 1);
    memset(mixed, 0, MODEL_HEAD * sizeof *mixed);
    for (size_t i = 0; i <= position; i++)
        add_scaled(mixed, weights[i], keys + i * step + MODEL_HIDDEN);
}

void attention_forward(policy *model, const exported *weights, size_t layer, size_t from,
                       size_t to) {
    layer_trace *trace = &model->layers[layer];
    const size_t first = from * model->batch;
    const size_t rows = (to - from) * model->batch;
    const size_t hidden = first * MODEL_HIDDEN;
    const float *gain = policy_read(model, weights, place(layer, LAYER_INPUT_NORM));
    norm_forward(rows, trace->input + hidden, gain, trace->normed + hidden,
                 trace->inverse_rms + first);
    const float *qkv = policy_read(model, weights, place(layer, LAYER_QKV));
    gemm_times_transposed(rows, QKV_WIDTH, MODEL_HIDDEN, trace->normed + hidden, qkv,
                          trace->qkv + first * QKV_WIDTH);
    for (size_t position = from; position < to; position++)
        for (size_t sequence = 0; sequence < model->batch; sequence++)
            for (size_t head = 0; head < MODEL_HEADS; head++)
                attend(model, trace, position, sequence, head);
    const float *out = policy_read(model, weights, place(layer, LAYER_OUTPUT));
    gemm_times_transposed(rows, MODEL_HIDDEN, MODEL_HIDDEN, trace->mixed + hidden, out,
                          trace->middle + hidden);
    for (size_t i = hidden; i < hidden + rows * MODEL_HIDDEN; i++)
        trace->middle[i] += trace->input[i];
}

/* From the gradient by one head's mixed values to those by queries, keys and values. */
static void attend_backward(policy *model, const layer_trace *trace, size_t position,
                            size_t sequence, size_t head, const float *mixed_gradient) {
    const size_t row = position * model->batch + sequence;
    const float *query = trace->qkv + row * QKV_WIDTH + head * MODEL_HEAD;
    float *query_gradient = model->qkv_gradient + row * QKV_WIDTH + head * MODEL_HEAD;
    const float *weights = trace->attention + (row * MODEL_HEADS + head) * MODEL_CONTEXT;
    const size_t keys = sequence * QKV_WIDTH + MODEL_HIDDEN + head * MODEL_HEAD;
    const size_t step = model->batch * QKV_WIDTH;
    float weight_gradient[MODEL_CONTEXT];
    float mean = 0;
    for (size_t i = 0; i <= position; i++) {
        const size_t value = keys + i * step + MODEL_HIDDEN;
        weight_gradient[i] = dot(mixed_gradient, trace->qkv + value);
        mean += weights[i] * weight_gradient[i];
        add_scaled(model->qkv_gradient + value, weights[i], mixed_gradient);
    }
    for (size_t i = 0; i <= position; i++) {
        const float score_gradient = SCORE_SCALE * weights[i] * (weight_gradient[i] - mean);
        add_scaled(query_gradient, score_gradient, trace->qkv + keys + i * step);
        add_scaled(model->qkv_gradient + keys + i * step, score_gradient, query);
    }
}

void attention_backward(policy *model, const exported *weights, size_t layer, size_t positions,
                        float *gradients) {
    const layer_trace *trace = &model->layers[layer];
    const parameter *items = weights->table.items;
    const size_t rows = positions * model->batch;
    float *mixed_gradient = model->normed_gradient;

    gemm_add_transposed(MODEL_HIDDEN, MODEL_HIDDEN, rows, model->stream_gradient, trace->mixed,
                        gradients + items[place(layer, LAYER_OUTPUT)].offset);
    memset(mixed_gradient, 0, rows * MODEL_HIDDEN * sizeof(float));
    gemm_add(rows, MODEL_HIDDEN, MODEL_HIDDEN, model->stream_gradient,
             policy_read(model, weights, place(layer, LAYER_OUTPUT)), mixed_gradient);

    memset(model->qkv_gradient, 0, rows * QKV_WIDTH * sizeof(float));
    for (size_t row = 0; row < rows; row++)
        for (size_t head = 0; head < MODEL_HEADS; head++)
            attend_backward(model, trace, row / model->batch, row % model->batch, head,
                            mixed_gradient + row * MODEL_HIDDEN + head * MODEL_HEAD);

    gemm_add_transposed(QKV_WIDTH, MODEL_HIDDEN, rows, model->qkv_gradient, trace->normed,
                        gradients + items[place(layer, LAYER_QKV)].offset);
    memset(model->normed_gradient, 0, rows * MODEL_HIDDEN * sizeof(float));
    gemm_add(rows, MODEL_HIDDEN, QKV_WIDTH, model->qkv_gradient,
             policy_read(model, weights, place(layer, LAYER_QKV)), model->normed_gradient);
    norm_backward(rows, trace->input, policy_read(model, weights, place(layer, LAYER_INPUT_NORM)),
                  trace->inverse_rms, model->normed_gradient, model->stream_gradient,
                  gradients + items[place(layer, LAYER_INPUT_NORM)].offset);
}
