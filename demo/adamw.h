/* AdamW over flat FP32 arrays: master weights, and the two moments of the gradient, which it owns.
 */
#ifndef DEMO_ADAMW_H
#define DEMO_ADAMW_H

#include <stddef.h>

typedef struct adamw {
    size_t count;
    float *first_moment, *second_moment;
    float first_power, second_power; /* the decays to the power of the steps done */
} adamw;

/* 0, or -1: out of memory. */
int adamw_create(adamw *optimizer, size_t count);
void adamw_destroy(adamw *optimizer);

void adamw_step(adamw *optimizer, float rate, const float *gradients, float *weights);

#endif
