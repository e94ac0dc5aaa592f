/* XXH3 of one piece, compiled for several instruction sets. Each file includes this once, with the
 * suffix of its functions in XCI_HASH_LEVEL; hash.c picks. */
#ifndef XCI_HASH_LEVEL_H
#define XCI_HASH_LEVEL_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

_Static_assert(sizeof(XXH128_canonical_t) == sizeof(xci_hash), "16 bytes");

static inline xci_hash xci_hash_canonical(XXH128_hash_t hash) {
    XXH128_canonical_t canonical_form;
    xci_hash result;
    XXH128_canonicalFromHash(&canonical_form, hash);
    memcpy(result.bytes, canonical_form.digest, sizeof result.bytes);
    return result;
}

xci_hash xci_hash_of_avx2(const void *bytes, uint64_t count);
uint64_t xci_hash64_of_avx2(const void *bytes, uint64_t count, uint64_t seed);
xci_hash xci_hash_of_avx512(const void *bytes, uint64_t count);
uint64_t xci_hash64_of_avx512(const void *bytes, uint64_t count, uint64_t seed);

#endif
