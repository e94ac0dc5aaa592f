/* Prompts by seed, step and number; rewards by rule. */
#include "task.h"

#include "seeded.h"

#define PROMPTS                                                                                    \
    UINT64_C(0x70726F6D7074) /* keeps these streams apart from those of the rollouts   \
                                          */

void task_prompt(uint64_t seed, uint64_t step, uint64_t index, uint8_t *tokens) {
    seeded random = seeded_begin(seed ^ PROMPTS, step, index, 0);
    for (uint32_t i = 0; i < TASK_PROMPT; i++)
        tokens[i] = (uint8_t)((seeded_next(&random) >> 32) % TASK_DIGITS);
    tokens[TASK_PROMPT] = TASK_END;
}

float task_reward(const uint8_t *tokens, uint32_t place) {
    return tokens[TASK_ANSWER_AT + place] == tokens[TASK_PROMPT - 1 - place] ? 1.0F : 0.0F;
}
