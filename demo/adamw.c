/* AdamW: moments with bias correction, decoupled weight decay. Every value is independent of the
 * others, so the loop vectorises without changing a bit. */
#include "adamw.h"

#include <math.h>
#include <stdlib.h>

#define FIRST_DECAY 0.9F
#define SECOND_DECAY 0.98F
#define WEIGHT_DECAY 0.01F
#define FLOOR 1e-8F

int adamw_create(adamw *optimizer, size_t count) {
    optimizer->count = count;
    optimizer->first_power = optimizer->second_power = 1.0F;
    optimizer->first_moment = calloc(count, sizeof(float));
    optimizer->second_moment = calloc(count, sizeof(float));
    if (optimizer->first_moment != NULL && optimizer->second_moment != NULL)
        return 0;
    adamw_destroy(optimizer);
    return -1;
}

void adamw_destroy(adamw *optimizer) {
    free(optimizer->first_moment);
    free(optimizer->second_moment);
    optimizer->first_moment = optimizer->second_moment = NULL;
}

void adamw_step(adamw *optimizer, float rate, const float *gradients, float *weights) {
    optimizer->first_power *= FIRST_DECAY;
    optimizer->second_power *= SECOND_DECAY;
    const float first_scale = 1.0F / (1.0F - optimizer->first_power);
    const float second_scale = 1.0F / (1.0F - optimizer->second_power);
    float *restrict first = optimizer->first_moment;
    float *restrict second = optimizer->second_moment;
    for (size_t i = 0; i < optimizer->count; i++) {
        const float g = gradients[i];
        first[i] = FIRST_DECAY * first[i] + (1.0F - FIRST_DECAY) * g;
        second[i] = SECOND_DECAY * second[i] + (1.0F - SECOND_DECAY) * g * g;
        const float way = first[i] * first_scale / (sqrtf(second[i] * second_scale) + FLOOR);
        weights[i] -= rate * (way + WEIGHT_DECAY * weights[i]);
    }
}
