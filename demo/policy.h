/* The policy: a small decoder-only transformer with a mixture of experts, forward and backward in
 * plain C. It computes straight from exported tensors, whatever their format, so a commit that
 * changes those bytes in place changes the policy, and nothing else has to be refreshed.
 *
 * A batch is `batch` sequences side by side; row position * batch + sequence is one token, so all
 * tokens of a range of positions are neighbours. Forward keeps what later positions and backward
 * need: generation extends the same batch position by position.
 *
 * Owns activations and scratch. Weights and gradients are the caller's. One thread at a time. */
#ifndef DEMO_POLICY_H
#define DEMO_POLICY_H

#include "export.h"

typedef struct policy policy;

/* NULL: out of memory. */
policy *policy_create(size_t batch);
void policy_destroy(policy *model);

/* The tokens of all positions, [position * batch + sequence], each below MODEL_VOCABULARY. */
uint8_t *policy_tokens(policy *model);

/* Reads the tokens at positions [from, to) and computes what may follow each. Positions below
 * `from` must have been computed with the same weights. */
void policy_forward(policy *model, const exported *weights, size_t from, size_t to);

/* Chances of the next token at a position after forward: [sequence][MODEL_VOCABULARY], each row
 * sums to 1. */
const float *policy_chances(const policy *model, size_t position);

/* Adds to the flat `gradients` the gradient of a loss whose gradient by the logits of positions
 * [0, positions) is `logit_gradient` [position * batch + sequence][MODEL_VOCABULARY], after forward
 * over the same positions. */
void policy_backward(policy *model, const exported *weights, size_t positions,
                     const float *logit_gradient, float *gradients);

#endif
