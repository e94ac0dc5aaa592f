/* Rollouts: a policy answers prompts, several times each, and keeps the chance of every token it
 * drew. A batch is reproducible from seed, number, sampler and the bytes of the weights. */
#ifndef DEMO_ROLLOUT_H
#define DEMO_ROLLOUT_H

#include "policy.h"
#include "task.h"

enum {
    ROLLOUT_PROMPTS = 6, /* of one sampler in one batch */
    ROLLOUT_GROUP = 8,   /* answers to each: their mean is the baseline */
    ROLLOUT_SEQUENCES = ROLLOUT_PROMPTS * ROLLOUT_GROUP
};

typedef struct rollout {
    uint8_t tokens[ROLLOUT_SEQUENCES][TASK_LENGTH];
    float chances[ROLLOUT_SEQUENCES][TASK_ANSWER]; /* of the drawn tokens, under the weights used */
} rollout;

/* Generates batch `number` of one sampler; the policy must hold ROLLOUT_SEQUENCES. */
void rollout_generate(policy *model, const exported *weights, uint64_t seed, uint64_t number,
                      uint64_t sampler, rollout *batch_out);

/* True if the policy with these weights gives the recorded tokens the very same chances, bit for
 * bit: proof that the batch was generated with these weights. */
bool rollout_verify(policy *model, const exported *weights, const rollout *batch);

#endif
