/* XXH3 of a buffer, compiled for whatever instruction set the including file is compiled for: the
 * library picks its vectors when it is compiled. hash.c chooses at run time. */
#ifndef XCI_HASH_ONE_H
#define XCI_HASH_ONE_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

typedef struct xci_hash_level {
    xci_hash (*of)(const void *bytes, uint64_t count);
    uint64_t (*of64)(const void *bytes, uint64_t count, uint64_t seed);
    void (*more)(xci_hash_state *state, const void *bytes, uint64_t count);
} xci_hash_level;

extern const xci_hash_level xci_hash_avx2, xci_hash_avx512;

static inline xci_hash xci_hash_canonical(XXH128_hash_t hash) {
    XXH128_canonical_t canonical_form;
    xci_hash result;
    XXH128_canonicalFromHash(&canonical_form, hash);
    memcpy(result.bytes, canonical_form.digest, sizeof result.bytes);
    return result;
}

static xci_hash xci_hash_one(const void *bytes, uint64_t count) {
    return xci_hash_canonical(XXH3_128bits(bytes, count));
}

static uint64_t xci_hash_one64(const void *bytes, uint64_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, count, seed);
}

/* A state is the same for all levels. */
static void xci_hash_one_more(xci_hash_state *state, const void *bytes, uint64_t count) {
    XXH3_128bits_update((XXH3_state_t *)state, bytes, count);
}

#endif
