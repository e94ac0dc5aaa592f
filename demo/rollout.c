/* Generation token by token, and its proof. */
#include "rollout.h"

#include "seeded.h"

#include <string.h>

static uint8_t draw(const float *chances, seeded *random) {
    const float point = seeded_unit(random);
    float sum = 0;
    for (uint8_t token = 0; token + 1 < MODEL_VOCABULARY; token++) {
        sum += chances[token];
        if (point < sum)
            return token;
    }
    return MODEL_VOCABULARY - 1;
}

static void place_prompts(policy *model, uint64_t seed, uint64_t number, uint64_t sampler) {
    uint8_t *tokens = policy_tokens(model);
    for (size_t sequence = 0; sequence < ROLLOUT_SEQUENCES; sequence++) {
        uint8_t prompt[TASK_ANSWER_AT];
        task_prompt(seed, number, sampler * ROLLOUT_PROMPTS + sequence / ROLLOUT_GROUP, prompt);
        for (size_t i = 0; i < TASK_ANSWER_AT; i++)
            tokens[i * ROLLOUT_SEQUENCES + sequence] = prompt[i];
    }
}

void rollout_generate(policy *model, const exported *weights, uint64_t seed, uint64_t number,
                      uint64_t sampler, rollout *batch_out) {
    uint8_t *tokens = policy_tokens(model);
    seeded randoms[ROLLOUT_SEQUENCES];
    place_prompts(model, seed, number, sampler);
    for (size_t sequence = 0; sequence < ROLLOUT_SEQUENCES; sequence++)
        randoms[sequence] = seeded_begin(seed, number, sampler, sequence);
    for (size_t place = 0; place < TASK_ANSWER; place++) {
        const size_t position = TASK_ANSWER_AT + place;
        policy_forward(model, weights, place == 0 ? 0 : position - 1, position);
        const float *chances = policy_chances(model, position - 1);
        for (size_t sequence = 0; sequence < ROLLOUT_SEQUENCES; sequence++) {
            const float *row = chances + sequence * MODEL_VOCABULARY;
            const uint8_t token = draw(row, &randoms[sequence]);
            tokens[position * ROLLOUT_SEQUENCES + sequence] = token;
            batch_out->chances[sequence][place] = row[token];
        }
    }
    for (size_t sequence = 0; sequence < ROLLOUT_SEQUENCES; sequence++)
        for (size_t position = 0; position < TASK_LENGTH; position++)
            batch_out->tokens[sequence][position] = tokens[position * ROLLOUT_SEQUENCES + sequence];
}

bool rollout_verify(policy *model, const exported *weights, const rollout *batch) {
    uint8_t *tokens = policy_tokens(model);
    for (size_t sequence = 0; sequence < ROLLOUT_SEQUENCES; sequence++)
        for (size_t position = 0; position < TASK_LENGTH; position++)
            tokens[position * ROLLOUT_SEQUENCES + sequence] = batch->tokens[sequence][position];
    policy_forward(model, weights, 0, TASK_POSITIONS);
    for (size_t place = 0; place < TASK_ANSWER; place++) {
        const float *chances = policy_chances(model, TASK_ANSWER_AT + place - 1);
        for (size_t sequence = 0; sequence < ROLLOUT_SEQUENCES; sequence++) {
            const uint8_t token = batch->tokens[sequence][TASK_ANSWER_AT + place];
            const float *found = &chances[sequence * MODEL_VOCABULARY + token];
            if (memcmp(found, &batch->chances[sequence][place], sizeof *found) != 0)
                return false;
        }
    }
    return true;
}
