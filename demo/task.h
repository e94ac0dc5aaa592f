/* The task: read four digits, then say them backwards. A prompt is four of sixteen digits and an
 * end mark; the answer is four tokens, and the reward is the share of them that are right, so
 * chance gives 1 in 32 at first and a perfect policy 1.
 *
 * Owns what a sequence looks like and what it earns; knows nothing of policies. */
#ifndef DEMO_TASK_H
#define DEMO_TASK_H

#include <stdint.h>

enum {
    TASK_DIGITS = 10,
    TASK_END = TASK_DIGITS, /* the token after the prompt */
    TASK_PROMPT = 4,
    TASK_ANSWER = 4,
    TASK_ANSWER_AT = TASK_PROMPT + 1,           /* position of the first answer token */
    TASK_LENGTH = TASK_ANSWER_AT + TASK_ANSWER, /* of a whole sequence */
    TASK_POSITIONS = TASK_LENGTH - 1            /* that the policy reads: all but the last token */
};

/* Prompt `index` of a training step: the first TASK_ANSWER_AT tokens of a sequence. */
void task_prompt(uint64_t seed, uint64_t step, uint64_t index, uint8_t *tokens);

/* Reward, 0 or 1, of answer token `place` of a sequence. */
float task_reward(const uint8_t *tokens, uint32_t place);

#endif
