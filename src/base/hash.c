/* XXH3: see hash.h. Long pieces go to the widest instruction set that the CPU has. */
#include "base/hash.h"

#include <stdbool.h>

#include "base/hash_level.h"

#define LONG_BYTES 1024u /* below it, choosing costs as much as it gains */

#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

xci_hash xci_hash_of(const void *bytes, uint64_t count) {
#if defined(__x86_64__)
    if (count >= LONG_BYTES && has_avx512())
        return xci_hash_of_avx512(bytes, count);
    if (count >= LONG_BYTES && has_avx2())
        return xci_hash_of_avx2(bytes, count);
#endif
    return xci_hash_canonical(XXH3_128bits(bytes, count));
}

uint64_t xci_hash64_of(const void *bytes, uint64_t count, uint64_t seed) {
#if defined(__x86_64__)
    if (count >= LONG_BYTES && has_avx512())
        return xci_hash64_of_avx512(bytes, count, seed);
    if (count >= LONG_BYTES && has_avx2())
        return xci_hash64_of_avx2(bytes, count, seed);
#endif
    return XXH3_64bits_withSeed(bytes, count, seed);
}

xci_hash_state *xci_hash_begin(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL)
        XXH3_128bits_reset(state);
    return (xci_hash_state *)state;
}

void xci_hash_more(xci_hash_state *state, const void *bytes, uint64_t count) {
    XXH3_128bits_update((XXH3_state_t *)state, bytes, count);
}

xci_hash xci_hash_now(const xci_hash_state *state) {
    return xci_hash_canonical(XXH3_128bits_digest((const XXH3_state_t *)state));
}
void xci_hash_free(xci_hash_state *state) { XXH3_freeState((XXH3_state_t *)state); }
