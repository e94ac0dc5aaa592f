/* Weights and changes for xorcast bench: see cli_bench.h. */
#include "cli_bench.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t state) {
    state = (state ^ (state >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    state = (state ^ (state >> 27)) * UINT64_C(0x94D049BB133111EB);
    return state ^ (state >> 31);
}

static uint64_t next(uint64_t *state) {
    *state += UINT64_C(0x9E3779B97F4A7C15);
    return mix(*state);
}

/* Of 16 random bits an element keeps sign and fraction, and gets one of eight exponents. */
void cli_bench_fill(void *memory, uint64_t bytes) {
    uint64_t state = 1;
    uint8_t *at = memory;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        const uint64_t word =
            (next(&state) & UINT64_C(0x83FF83FF83FF83FF)) | UINT64_C(0x3800380038003800);
        memcpy(at + i, &word, 8);
    }
}

/* Gaps between changed elements are drawn, so that the work is that of the changes. A step of the
 * last place changes one low bit half of the time, two a quarter of it, and so on. */
uint64_t cli_bench_change(void *memory, uint64_t bytes, double density, uint64_t seed) {
    const double element_density = 2 * density < 1 ? 2 * density : 1;
    const double scale = element_density < 1 ? 1 / log1p(-element_density) : 0;
    uint64_t state = mix(seed), changed = 0;
    uint8_t *at = memory;
    for (uint64_t element = 0;; element++) {
        const double uniform = ((double)(next(&state) >> 11) + 1) / 9007199254740993.0;
        const double gap = log(uniform) * scale;
        if (gap >= (double)(bytes / 2 - element))
            return changed;
        element += (uint64_t)gap;
        if (element >= bytes / 2)
            return changed;
        const unsigned run = (unsigned)__builtin_ctzll(next(&state) | 64);
        at[2 * element] ^= (uint8_t)((2u << run) - 1);
        changed++;
    }
}
