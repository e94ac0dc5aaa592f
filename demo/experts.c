/* The other half of a block: norm, a router that picks two experts for each token, the experts'
 * SwiGLU networks over the tokens that chose them, their weighted sum, residual.
 *
 * Experts work on gathered rows, one expert after the other; what a token gets is summed in the
 * order of its own choice, so that the other tokens of the batch never change it. */
#include "gemm.h"
#include "pointwise.h"
#include "policy_inside.h"

#include <string.h>

static size_t place(size_t layer, size_t part) {
    return PARAMETER_LAYERS + layer * PARAMETERS_PER_LAYER + part;
}

static size_t expert_place(size_t layer, size_t expert, size_t part) {
    return place(layer, LAYER_EXPERTS + expert * PARAMETERS_PER_EXPERT + part);
}

/* Picks the two largest of a row of router logits (the lower expert on a tie) and shares 1 between
 * them by softmax. */
static void choose(const float *logits, uint8_t *chosen, float *share) {
    size_t best = 0;
    for (size_t i = 1; i < MODEL_EXPERTS; i++)
        best = logits[i] > logits[best] ? i : best;
    size_t second = best == 0 ? 1 : 0;
    for (size_t i = second + 1; i < MODEL_EXPERTS; i++)
        second = i != best && logits[i] > logits[second] ? i : second;
    chosen[0] = (uint8_t)best;
    chosen[1] = (uint8_t)second;
    share[0] = logits[best];
    share[1] = logits[second];
    softmax(share, MODEL_EXPERTS_USED);
}

static size_t find_members(policy *model, const layer_trace *trace, size_t expert, size_t first,
                           size_t last) {
    size_t count = 0;
    for (size_t i = first * MODEL_EXPERTS_USED; i < last * MODEL_EXPERTS_USED; i++)
        if (trace->chosen[i] == expert)
            model->members[count++] = i;
    return count;
}

static void gather(policy *model, const float *from, size_t width, size_t members_per_row,
                   size_t count, float *to) {
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * width, from + model->members[i] / members_per_row * width,
               width * sizeof(float));
}

static void scatter(policy *model, const float *from, size_t width, size_t count, float *to) {
    for (size_t i = 0; i < count; i++)
        memcpy(to + model->members[i] * width, from + i * width, width * sizeof(float));
}

static void expert_forward(policy *model, const exported *weights, size_t layer, size_t expert,
                           size_t count) {
    layer_trace *trace = &model->layers[layer];
    gather(model, trace->post_normed, MODEL_HIDDEN, MODEL_EXPERTS_USED, count, model->gathered);
    gemm_times_transposed(count, MODEL_INNER, MODEL_HIDDEN, model->gathered,
                          policy_read(model, weights, expert_place(layer, expert, EXPERT_GATE)),
                          model->gathered_gate);
    gemm_times_transposed(count, MODEL_INNER, MODEL_HIDDEN, model->gathered,
                          policy_read(model, weights, expert_place(layer, expert, EXPERT_UP)),
                          model->gathered_up);
    swiglu_forward(count * MODEL_INNER, model->gathered_gate, model->gathered_up,
                   model->gathered_act);
    gemm_times_transposed(count, MODEL_HIDDEN, MODEL_INNER, model->gathered_act,
                          policy_read(model, weights, expert_place(layer, expert, EXPERT_DOWN)),
                          model->gathered_out);
    scatter(model, model->gathered_gate, MODEL_INNER, count, trace->gate);
    scatter(model, model->gathered_up, MODEL_INNER, count, trace->up);
    scatter(model, model->gathered_out, MODEL_HIDDEN, count, trace->expert_out);
}

void experts_forward(policy *model, const exported *weights, size_t layer, size_t first,
                     size_t last, float *output) {
    layer_trace *trace = &model->layers[layer];
    const size_t rows = last - first;
    const size_t hidden = first * MODEL_HIDDEN;
    norm_forward(rows, trace->middle + hidden,
                 policy_read(model, weights, place(layer, LAYER_POST_NORM)),
                 trace->post_normed + hidden, trace->post_inverse_rms + first);
    float *logits = model->gathered_out;
    gemm_times_transposed(rows, MODEL_EXPERTS, MODEL_HIDDEN, trace->post_normed + hidden,
                          policy_read(model, weights, place(layer, LAYER_ROUTER)), logits);
    for (size_t row = 0; row < rows; row++)
        choose(logits + row * MODEL_EXPERTS, trace->chosen + (first + row) * MODEL_EXPERTS_USED,
               trace->share + (first + row) * MODEL_EXPERTS_USED);
    for (size_t expert = 0; expert < MODEL_EXPERTS; expert++) {
        const size_t count = find_members(model, trace, expert, first, last);
        if (count > 0)
            expert_forward(model, weights, layer, expert, count);
    }
    for (size_t row = first; row < last; row++) {
        const float *share = trace->share + row * MODEL_EXPERTS_USED;
        const float *outs = trace->expert_out + row * MODEL_EXPERTS_USED * MODEL_HIDDEN;
        for (size_t i = 0; i < MODEL_HIDDEN; i++)
            output[row * MODEL_HIDDEN + i] = trace->middle[row * MODEL_HIDDEN + i] +
                                             share[0] * outs[i] + share[1] * outs[MODEL_HIDDEN + i];
    }
}

/* Gradients of one expert's weights, and its part of the gradient by the normed rows. */
static void expert_backward(policy *model, const exported *weights, size_t layer, size_t expert,
                            size_t count, float *gradients) {
    const layer_trace *trace = &model->layers[layer];
    const parameter *items = weights->table.items;
    const size_t gate = expert_place(layer, expert, EXPERT_GATE);
    const size_t up = expert_place(layer, expert, EXPERT_UP);
    const size_t down = expert_place(layer, expert, EXPERT_DOWN);
    gather(model, trace->post_normed, MODEL_HIDDEN, MODEL_EXPERTS_USED, count, model->gathered);
    gather(model, trace->gate, MODEL_INNER, 1, count, model->gathered_gate);
    gather(model, trace->up, MODEL_INNER, 1, count, model->gathered_up);
    gather(model, model->stream_gradient, MODEL_HIDDEN, MODEL_EXPERTS_USED, count,
           model->gathered_out);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < MODEL_HIDDEN; j++)
            model->gathered_out[i * MODEL_HIDDEN + j] *= trace->share[model->members[i]];

    swiglu_forward(count * MODEL_INNER, model->gathered_gate, model->gathered_up,
                   model->gathered_act);
    gemm_add_transposed(MODEL_HIDDEN, MODEL_INNER, count, model->gathered_out, model->gathered_act,
                        gradients + items[down].offset);
    memset(model->inner_gradient, 0, count * MODEL_INNER * sizeof(float));
    gemm_add(count, MODEL_INNER, MODEL_HIDDEN, model->gathered_out,
             policy_read(model, weights, down), model->inner_gradient);
    swiglu_backward(count * MODEL_INNER, model->gathered_gate, model->gathered_up,
                    model->inner_gradient);
    gemm_add_transposed(MODEL_INNER, MODEL_HIDDEN, count, model->gathered_gate, model->gathered,
                        gradients + items[gate].offset);
    gemm_add_transposed(MODEL_INNER, MODEL_HIDDEN, count, model->gathered_up, model->gathered,
                        gradients + items[up].offset);

    memset(model->gathered_out, 0, count * MODEL_HIDDEN * sizeof(float));
    gemm_add(count, MODEL_HIDDEN, MODEL_INNER, model->gathered_gate,
             policy_read(model, weights, gate), model->gathered_out);
    gemm_add(count, MODEL_HIDDEN, MODEL_INNER, model->gathered_up, policy_read(model, weights, up),
             model->gathered_out);
    for (size_t i = 0; i < count; i++) {
        float *to = model->normed_gradient + model->members[i] / MODEL_EXPERTS_USED * MODEL_HIDDEN;
        for (size_t j = 0; j < MODEL_HIDDEN; j++)
            to[j] += model->gathered_out[i * MODEL_HIDDEN + j];
    }
}

/* Gradient by the router's logits: only the chosen two have one. */
static void router_backward(policy *model, const exported *weights, size_t layer, size_t rows,
                            float *gradients) {
    const layer_trace *trace = &model->layers[layer];
    const size_t router = place(layer, LAYER_ROUTER);
    float *logit_gradient = model->inner_gradient;
    memset(logit_gradient, 0, rows * MODEL_EXPERTS * sizeof(float));
    for (size_t row = 0; row < rows; row++) {
        const float *above = model->stream_gradient + row * MODEL_HIDDEN;
        const float *outs = trace->expert_out + row * MODEL_EXPERTS_USED * MODEL_HIDDEN;
        const float *share = trace->share + row * MODEL_EXPERTS_USED;
        const uint8_t *chosen = trace->chosen + row * MODEL_EXPERTS_USED;
        float difference = 0;
        for (size_t i = 0; i < MODEL_HIDDEN; i++)
            difference += above[i] * (outs[i] - outs[MODEL_HIDDEN + i]);
        const float first = share[0] * share[1] * difference;
        logit_gradient[row * MODEL_EXPERTS + chosen[0]] = first;
        logit_gradient[row * MODEL_EXPERTS + chosen[1]] = -first;
    }
    gemm_add_transposed(MODEL_EXPERTS, MODEL_HIDDEN, rows, logit_gradient, trace->post_normed,
                        gradients + weights->table.items[router].offset);
    gemm_add(rows, MODEL_HIDDEN, MODEL_EXPERTS, logit_gradient, policy_read(model, weights, router),
             model->normed_gradient);
}

void experts_backward(policy *model, const exported *weights, size_t layer, size_t rows,
                      float *gradients) {
    const layer_trace *trace = &model->layers[layer];
    memset(model->normed_gradient, 0, rows * MODEL_HIDDEN * sizeof(float));
    for (size_t expert = 0; expert < MODEL_EXPERTS; expert++) {
        const size_t count = find_members(model, trace, expert, 0, rows);
        if (count > 0)
            expert_backward(model, weights, layer, expert, count, gradients);
    }
    router_backward(model, weights, layer, rows, gradients);
    const size_t norm = place(layer, LAYER_POST_NORM);
    norm_backward(rows, trace->middle, policy_read(model, weights, norm), trace->post_inverse_rms,
                  model->normed_gradient, model->stream_gradient,
                  gradients + weights->table.items[norm].offset);
}
