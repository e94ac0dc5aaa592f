/* XXH3: see hash.h. Whole buffers are hashed with the widest vectors that the CPU has; pieces,
 * which only small or rare things come in, with those that every CPU has. */
#include "base/hash_one.h"

_Static_assert(sizeof(XXH128_canonical_t) == sizeof(xci_hash), "16 bytes");

static const xci_hash_level portable = {xci_hash_one, xci_hash_one64, xci_hash_one_more};

static const xci_hash_level *best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("bmi2"))
        return &xci_hash_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return &xci_hash_avx2;
#endif
    return &portable;
}

xci_hash xci_hash_of(const void *bytes, uint64_t count) {
    return best()->of(bytes, count);
}

uint64_t xci_hash64_of(const void *bytes, uint64_t count, uint64_t seed) {
    return best()->of64(bytes, count, seed);
}

xci_hash_state *xci_hash_begin(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL)
        XXH3_128bits_reset(state);
    return (xci_hash_state *)state;
}

void xci_hash_more(xci_hash_state *state, const void *bytes, uint64_t count) {
    best()->more(state, bytes, count);
}

xci_hash xci_hash_now(const xci_hash_state *state) {
    return xci_hash_canonical(XXH3_128bits_digest((const XXH3_state_t *)state));
}

void xci_hash_free(xci_hash_state *state) { XXH3_freeState((XXH3_state_t *)state); }
