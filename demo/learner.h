/* The trainer's mathematics: a batch of rollouts becomes one policy-gradient step of AdamW on FP32
 * master weights, and new exported weights. Knows nothing of processes or of xorcast. */
#ifndef DEMO_LEARNER_H
#define DEMO_LEARNER_H

#include "rollout.h"

typedef struct learner learner;

/* `samplers` rollouts make a batch. Exports the first weights. NULL: out of memory. */
learner *learner_create(export_format format, uint64_t seed, size_t samplers);
void learner_destroy(learner *self);

/* The present version, as it is to be published; changes with every step, in place. */
exported *learner_weights(learner *self);

/* Mean reward of rollouts, 0 to 1. */
float learner_reward(const rollout *rollouts, size_t samplers);

/* Learns from one rollout of each sampler, drawn from these weights or slightly older ones. */
void learner_step(learner *self, const rollout *rollouts, float rate);

#endif
