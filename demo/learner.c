/* Policy gradient with a group baseline.
 *
 * The advantage of a token is its reward minus the mean over the answers to the same prompt at the
 * same place. Rollouts may be one version old, so each token is weighted by how much likelier it
 * has become since, at most twofold. Forward and backward run on the exported, rounded weights, the
 * update goes to the FP32 master: what mixed-precision trainers do. */
#include "learner.h"

#include "adamw.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_RATIO 2.0F

struct learner {
    size_t samplers;
    exported *weights;
    policy *model;
    adamw optimizer;
    float *master, *gradients, *logit_gradient;
};

learner *learner_create(export_format format, uint64_t seed, size_t samplers) {
    learner *self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    self->samplers = samplers;
    self->weights = export_create(format);
    self->model = policy_create(samplers * ROLLOUT_SEQUENCES);
    const size_t rows = samplers * ROLLOUT_SEQUENCES * TASK_POSITIONS;
    self->logit_gradient = calloc(rows * MODEL_VOCABULARY, sizeof(float));
    if (self->weights != NULL) {
        const size_t count = self->weights->table.value_count;
        self->master = malloc(count * sizeof(float));
        self->gradients = malloc(count * sizeof(float));
        if (adamw_create(&self->optimizer, count) == 0 && self->master != NULL &&
            self->gradients != NULL && self->model != NULL && self->logit_gradient != NULL) {
            parameters_initialise(&self->weights->table, seed, self->master);
            export_write(self->weights, self->master);
            return self;
        }
    }
    learner_destroy(self);
    return NULL;
}

void learner_destroy(learner *self) {
    if (self == NULL)
        return;
    export_destroy(self->weights);
    policy_destroy(self->model);
    adamw_destroy(&self->optimizer);
    free(self->master);
    free(self->gradients);
    free(self->logit_gradient);
    free(self);
}

exported *learner_weights(learner *self) {
    return self->weights;
}

float learner_reward(const rollout *rollouts, size_t samplers) {
    float sum = 0;
    for (size_t i = 0; i < samplers * ROLLOUT_SEQUENCES; i++)
        for (uint32_t place = 0; place < TASK_ANSWER; place++)
            sum +=
                task_reward(rollouts[i / ROLLOUT_SEQUENCES].tokens[i % ROLLOUT_SEQUENCES], place);
    return sum / (float)(samplers * ROLLOUT_SEQUENCES * TASK_ANSWER);
}

/* Mean reward at `place` over the group that sequence belongs to. */
static float baseline(const rollout *batch, size_t sequence, uint32_t place) {
    const size_t first = sequence / ROLLOUT_GROUP * ROLLOUT_GROUP;
    float sum = 0;
    for (size_t i = first; i < first + ROLLOUT_GROUP; i++)
        sum += task_reward(batch->tokens[i], place);
    return sum / (float)ROLLOUT_GROUP;
}

static void token_gradient(learner *self, const rollout *batch, size_t sampler, size_t sequence,
                           uint32_t place) {
    const size_t width = self->samplers * ROLLOUT_SEQUENCES;
    const size_t position = TASK_ANSWER_AT + place - 1;
    const size_t column = sampler * ROLLOUT_SEQUENCES + sequence;
    const float *chances = policy_chances(self->model, position) + column * MODEL_VOCABULARY;
    float *gradient = self->logit_gradient + (position * width + column) * MODEL_VOCABULARY;
    const uint8_t token = batch->tokens[sequence][TASK_ANSWER_AT + place];
    const float advantage =
        task_reward(batch->tokens[sequence], place) - baseline(batch, sequence, place);
    float ratio = chances[token] / (batch->chances[sequence][place] + 1e-9F);
    ratio = ratio < LARGEST_RATIO ? ratio : LARGEST_RATIO;
    const float pull = advantage * ratio / (float)(width * TASK_ANSWER);
    for (size_t i = 0; i < MODEL_VOCABULARY; i++)
        gradient[i] = pull * (chances[i] - (i == token ? 1.0F : 0.0F));
}

void learner_step(learner *self, const rollout *rollouts, float rate) {
    const size_t width = self->samplers * ROLLOUT_SEQUENCES;
    uint8_t *tokens = policy_tokens(self->model);
    for (size_t column = 0; column < width; column++)
        for (size_t position = 0; position < TASK_LENGTH; position++)
            tokens[position * width + column] =
                rollouts[column / ROLLOUT_SEQUENCES].tokens[column % ROLLOUT_SEQUENCES][position];
    policy_forward(self->model, self->weights, 0, TASK_POSITIONS);
    for (size_t column = 0; column < width; column++)
        for (uint32_t place = 0; place < TASK_ANSWER; place++)
            token_gradient(self, &rollouts[column / ROLLOUT_SEQUENCES], column / ROLLOUT_SEQUENCES,
                           column % ROLLOUT_SEQUENCES, place);
    memset(self->gradients, 0, self->weights->table.value_count * sizeof(float));
    policy_backward(self->model, self->weights, TASK_POSITIONS, self->logit_gradient,
                    self->gradients);
    adamw_step(&self->optimizer, rate, self->gradients, self->master);
    export_write(self->weights, self->master);
}
