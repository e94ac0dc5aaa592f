/* Masks of chunks from a seed, in the patterns that the rules of the codecs turn on, and damage to
 * blocks. Shared by tests in C and in CUDA; owns nothing but its generator's state. */
#ifndef XCI_TEST_MASKS_H
#define XCI_TEST_MASKS_H

#include <stdint.h>
#include <string.h>

typedef struct mask_seed {
    uint64_t state; /* not 0 */
} mask_seed;

static inline uint32_t mask_random(mask_seed *seed, uint32_t bound) {
    seed->state ^= seed->state << 13;
    seed->state ^= seed->state >> 7;
    seed->state ^= seed->state << 17;
    return (uint32_t)(((seed->state * UINT64_C(0x2545F4914F6CDD1D)) >> 32) * bound >> 32);
}

static inline uint8_t mask_byte(mask_seed *seed) {
    return (uint8_t)(1 + mask_random(seed, 255));
}

enum mask_pattern {
    MASK_NOTHING,
    MASK_ONE_BIT,
    MASK_SPARSE,
    MASK_SEVENTEEN,
    MASK_HALF,
    MASK_FULL,
    MASK_LOW_BYTES,
    MASK_CLUSTERED,
    MASK_SHORT_RUNS,
    MASK_LONG_RUNS,
    MASK_ENDS,
    MASK_DENSE_START,
    MASK_PATTERNS
};

static inline void mask_share(mask_seed *seed, uint8_t *mask, uint32_t n, uint32_t per_mille) {
    for (uint32_t i = 0; i < n; ++i)
        if (mask_random(seed, 1000) < per_mille)
            mask[i] = mask_byte(seed);
}

/* Zero runs and changed runs of up to the given lengths. */
static inline void mask_runs(mask_seed *seed, uint8_t *mask, uint32_t n, uint32_t zeros,
                             uint32_t changed) {
    for (uint32_t i = 0; i < n;) {
        i += mask_random(seed, zeros + 1);
        for (uint32_t k = 1 + mask_random(seed, changed); k > 0 && i < n; --k)
            mask[i++] = mask_byte(seed);
    }
}

static inline void mask_make(mask_seed *seed, unsigned pattern, uint8_t *mask, uint32_t n) {
    memset(mask, 0, n);
    switch (pattern) {
    case MASK_ONE_BIT:
        mask[mask_random(seed, n)] = (uint8_t)(1u << mask_random(seed, 8));
        break;
    case MASK_SPARSE:
        mask_share(seed, mask, n, 10);
        break;
    case MASK_SEVENTEEN:
        mask_share(seed, mask, n, 170);
        break;
    case MASK_HALF:
        mask_share(seed, mask, n, 500);
        break;
    case MASK_FULL:
        mask_share(seed, mask, n, 1000);
        break;
    case MASK_LOW_BYTES:
        for (uint32_t i = 0; i < n; i += 2)
            if (mask_random(seed, 1000) < 12)
                mask[i] = (uint8_t)(1u << mask_random(seed, 3));
        break;
    case MASK_CLUSTERED:
        for (uint32_t i = 0; i + 200 < n; i += 200 + mask_random(seed, 9000))
            mask_share(seed, mask + i, 200, 300);
        break;
    case MASK_SHORT_RUNS:
        mask_runs(seed, mask, n, 9, 4);
        break;
    case MASK_LONG_RUNS:
        mask_runs(seed, mask, n, 5000, 300);
        break;
    case MASK_ENDS:
        mask[0] = 1;
        mask[n - 1 - mask_random(seed, n < 20 ? n : 20)] = 2;
        break;
    case MASK_DENSE_START:
        for (uint32_t i = 0; i < n; i += i < n / 1024 * 3 ? 1 : 290)
            mask[i] = mask_byte(seed);
        break;
    default:
        break;
    }
}

/* A mask of `count` changed bytes that are apart; there is room for them. */
static inline void mask_counted(mask_seed *seed, uint8_t *mask, uint32_t n, uint32_t count) {
    memset(mask, 0, n);
    for (uint32_t i = 0; i < count; ++i)
        mask[n / count * i + mask_random(seed, n / count)] = mask_byte(seed);
}

/* A few sequences of tokens that are nearly right: every limit of the format is met, and broken
 * by little now and then. Returns their size, less than MASK_TOKENS, and that of the chunk. */
#define MASK_TOKENS 400u
static inline uint32_t mask_random_tokens(mask_seed *seed, uint8_t *block, uint32_t *chunk_out) {
    uint32_t size = 0, produced = 0;
    for (uint32_t left = 1 + mask_random(seed, 4); left > 0; --left) {
        const uint32_t literals = mask_random(seed, 16) == 0 ? 0 : 1 + mask_random(seed, 6);
        const uint32_t nibble = mask_random(seed, 4) == 0 ? 15 : mask_random(seed, 15);
        block[size++] = (uint8_t)(literals << 4 | nibble);
        for (uint32_t i = 0; i < literals; ++i)
            block[size++] = (uint8_t)(i + 1 < literals || mask_random(seed, 30) == 0);
        block[size++] = (uint8_t)(1 + (mask_random(seed, 30) == 0));
        block[size++] = (uint8_t)(mask_random(seed, 30) == 0);
        produced += literals + 4 + nibble;
        if (nibble == 15) {
            block[size] = (uint8_t)mask_random(seed, 5);
            produced += block[size++];
        }
    }
    /* Sometimes so many literals that their length takes two bytes, and then the block may end
     * between these. */
    const uint32_t is_long = mask_random(seed, 8) == 0;
    const uint32_t last = is_long ? 15 + 255 + mask_random(seed, 5) : 3 + mask_random(seed, 6);
    block[size++] = (uint8_t)((is_long ? 15 : last) << 4 | mask_random(seed, 16));
    *chunk_out = produced + last - (mask_random(seed, 10) == 0);
    if (is_long) {
        block[size++] = 255;
        if (mask_random(seed, 4) == 0)
            return size;
        block[size++] = (uint8_t)(last - 15 - 255);
    }
    for (uint32_t i = 0; i < last; ++i)
        block[size++] = (uint8_t)mask_random(seed, 3);
    return size - (mask_random(seed, 10) == 0 ? mask_random(seed, size < 10 ? size : 10) : 0);
}

/* What damages hurt most where it hits a token, a length or an offset. */
static inline uint8_t mask_damaged_byte(mask_seed *seed, uint8_t byte) {
    static const uint8_t favourites[] = {0, 1, 2, 15, 16, 31, 32, 240, 254, 255};
    const uint32_t kind = mask_random(seed, 3);
    if (kind == 0)
        return (uint8_t)(byte ^ 1u << mask_random(seed, 8));
    return kind == 1 ? favourites[mask_random(seed, sizeof favourites)]
                     : (uint8_t)mask_random(seed, 256);
}

/* Damages a block of *size bytes in up to four places, or cuts it, or lengthens it; there is room
 * for `room`. */
static inline void mask_damage(mask_seed *seed, uint8_t *block, uint32_t *size, uint32_t room) {
    for (uint32_t left = 1 + mask_random(seed, 4); left > 0 && *size > 0; --left) {
        const uint32_t at = mask_random(seed, mask_random(seed, 2) ? *size : 1 + *size / 8);
        const uint32_t kind = mask_random(seed, 10);
        if (kind == 0) {
            *size = at;
        } else if (kind == 1 && *size < room) {
            memmove(block + at + 1, block + at, *size - at);
            block[at] = mask_damaged_byte(seed, block[at]);
            ++*size;
        } else if (kind == 2) {
            memmove(block + at, block + at + 1, *size - at - 1);
            --*size;
        } else {
            block[at] = mask_damaged_byte(seed, block[at]);
        }
    }
}

#endif
