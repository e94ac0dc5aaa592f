/* What the files of the policy share: its activations, and the two halves of a block. For policy.c,
 * attention.c and experts.c only. */
#ifndef DEMO_POLICY_INSIDE_H
#define DEMO_POLICY_INSIDE_H

#include "policy.h"

/* What one layer keeps of a batch; all are [row][...]. */
typedef struct layer_trace {
    float *input;                /* [HIDDEN] the residual stream that enters */
    float *normed, *inverse_rms; /* [HIDDEN], [1] */
    float *qkv;                  /* [3 * HIDDEN] */
    float *attention;            /* [HEADS * CONTEXT] weights over the positions up to its own */
    float *mixed;                /* [HIDDEN] attended values of all heads */
    float *middle;               /* [HIDDEN] the residual stream after attention */
    float *post_normed, *post_inverse_rms;
    float *share;      /* [EXPERTS_USED] weights of the chosen experts, sum 1 */
    uint8_t *chosen;   /* [EXPERTS_USED] different experts, the better first */
    float *gate, *up;  /* [EXPERTS_USED * INNER] */
    float *expert_out; /* [EXPERTS_USED * HIDDEN] */
} layer_trace;

struct policy {
    size_t batch, rows; /* rows = batch * CONTEXT */
    uint8_t *tokens;
    layer_trace layers[MODEL_LAYERS];
    float *output; /* the residual stream that leaves the last layer */
    float *final_normed, *final_inverse_rms;
    float *chances; /* [VOCABULARY] */
    /* scratch */
    float *weight;   /* one parameter as FP32 */
    size_t *members; /* rows * EXPERTS_USED + slot, of the tokens of one expert */
    float *gathered, *gathered_gate, *gathered_up, *gathered_act, *gathered_out;
    float *stream_gradient, *normed_gradient, *qkv_gradient, *inner_gradient;
    void *memory; /* that all of these lie in */
};

/* One parameter as FP32, in scratch that the next call overwrites. */
const float *policy_read(policy *model, const exported *weights, size_t index);

/* middle = input + attention(norm(input)), for rows [first, last) = positions [from, to). */
void attention_forward(policy *model, const exported *weights, size_t layer, size_t from,
                       size_t to);
/* Turns stream_gradient, the gradient by `middle`, into the gradient by `input`. */
void attention_backward(policy *model, const exported *weights, size_t layer, size_t positions,
                        float *gradients);

/* output = middle + experts(norm(middle)). */
void experts_forward(policy *model, const exported *weights, size_t layer, size_t first,
                     size_t last, float *output);
/* Turns stream_gradient, the gradient by `output`, into the gradient by `middle`. */
void experts_backward(policy *model, const exported *weights, size_t layer, size_t rows,
                      float *gradients);

#endif
