/* Random numbers for one test program, the same ones each time, from TEST_SEED, which stands above
 * the include; and what is made with them: blocks that are damaged. */
#ifndef TEST_RANDOM_H
#define TEST_RANDOM_H

#include <stdint.h>
#include <string.h>

static uint64_t random_state = TEST_SEED;

static inline uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * UINT64_C(0x2545F4914F6CDD1D);
}

static inline uint32_t below(uint32_t bound) {
    return (uint32_t)((next_random() >> 32) * bound >> 32);
}

/* A few bits, bytes or lengths of a block changed; returns its size, `room` at most. */
static inline uint32_t mutate(uint8_t *block, uint32_t size, uint32_t room) {
    for (uint32_t k = 1 + below(3); k > 0 && size > 0; --k) {
        const uint32_t at = below(size);
        switch (below(6)) {
        case 0:
            block[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            block[at] = (uint8_t)next_random();
            break;
        case 2:
            block[at] = 255;
            break;
        case 3:
            size = at;
            break;
        case 4:
            memmove(block + at, block + at + 1, size - at - 1);
            --size;
            break;
        default:
            if (size < room) {
                memmove(block + at + 1, block + at, size - at);
                block[at] = (uint8_t)(below(2) ? next_random() : below(4));
                ++size;
            }
            break;
        }
    }
    return size;
}

#endif
