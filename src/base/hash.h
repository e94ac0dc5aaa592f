/* XXH3 of the xxHash library, for integrity of stored and shipped bytes and for fingerprints. */
#ifndef XCI_HASH_H
#define XCI_HASH_H

#include <stdint.h>

/* 128 bits in xxHash's canonical (big-endian) form, as `xxhsum -H2` prints them. */
typedef struct xci_hash { uint8_t bytes[16]; } xci_hash;

xci_hash xci_hash_of(const void *bytes, uint64_t count);
uint64_t xci_hash64_of(const void *bytes, uint64_t count, uint64_t seed);

/* Piece by piece; the state is allocated by the library itself, NULL if there is no memory. */
typedef struct xci_hash_state xci_hash_state;
xci_hash_state *xci_hash_begin(void);
void xci_hash_more(xci_hash_state *state, const void *bytes, uint64_t count);
xci_hash xci_hash_now(const xci_hash_state *state);
void xci_hash_free(xci_hash_state *state);

#endif
