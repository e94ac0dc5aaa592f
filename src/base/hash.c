/* XXH3: see hash.h. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

_Static_assert(sizeof(XXH128_canonical_t) == sizeof(xci_hash), "16 bytes");

static xci_hash canonical(XXH128_hash_t hash) {
    XXH128_canonical_t canonical_form;
    xci_hash result;
    XXH128_canonicalFromHash(&canonical_form, hash);
    memcpy(result.bytes, canonical_form.digest, sizeof result.bytes);
    return result;
}

xci_hash xci_hash_of(const void *bytes, uint64_t count) {
    return canonical(XXH3_128bits(bytes, count));
}
uint64_t xci_hash64_of(const void *bytes, uint64_t count, uint64_t seed) {
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
    return canonical(XXH3_128bits_digest((const XXH3_state_t *)state));
}
void xci_hash_free(xci_hash_state *state) { XXH3_freeState((XXH3_state_t *)state); }
