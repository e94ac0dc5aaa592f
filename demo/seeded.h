/* Random numbers that are the same everywhere: integer arithmetic and exact float steps only, no
 * libm. A stream is named by the seed of the run and three more numbers (step, sampler, sequence),
 * so that no process has to know how much another one drew. */
#ifndef DEMO_SEEDED_H
#define DEMO_SEEDED_H

#include <stdint.h>

typedef struct seeded {
    uint64_t state;
} seeded;

/* splitmix64: every 64-bit state gives a different, well mixed number. */
static inline uint64_t seeded_next(seeded *random) {
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline seeded seeded_begin(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    seeded random = {seed};
    random.state = seeded_next(&random) ^ a;
    random.state = seeded_next(&random) ^ b;
    random.state = seeded_next(&random) ^ c;
    return random;
}

/* In [0, 1), in steps of 2^-24: exact in a float. */
static inline float seeded_unit(seeded *random) {
    return (float)(seeded_next(random) >> 40) * 0x1p-24F;
}

/* Nearly normal, mean 0, variance 1: the sum of four uniform numbers, cut from one draw. */
static inline float seeded_bell(seeded *random) {
    const uint64_t bits = seeded_next(random);
    const uint64_t sum =
        (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
    return ((float)sum - 131070.0F) * (1.7320508F / 65536.0F);
}

#endif
