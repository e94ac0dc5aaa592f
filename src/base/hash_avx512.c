/* XXH3 for AVX-512. The file is compiled for it and must be entered only where hash.c has found
 * it. */
#if defined(__x86_64__)
#include "base/hash_level.h"

xci_hash xci_hash_of_avx512(const void *bytes, uint64_t count) {
    return xci_hash_canonical(XXH3_128bits(bytes, count));
}

uint64_t xci_hash64_of_avx512(const void *bytes, uint64_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, count, seed);
}
#else
typedef int xci_hash_avx512_is_x86; /* an empty file is no C */
#endif
