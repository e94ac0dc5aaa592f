/* The term of one 8-byte word in a digest, and the key of a tensor. docs/format.md, "Digest", is
 * the law; this is its only implementation on the host, shared with device code.
 *
 *     key(tensor, word)  = mix(tensor) + word * STRIDE
 *     x                  = value xor key
 *     (low, high)        = x * (rotate_left(x, 32) xor SALT)      64x64 -> 128 bits
 *     lane 0 += low, lane 1 += high                               modulo 2^64
 *
 * The product of a word with a rotation of itself makes every bit of the word reach both lanes,
 * and not linearly: flips of top bits, swaps and opposite changes do not cancel as they do in a
 * sum of word * multiplier. One multiplication a word. */
#ifndef XCI_DIGEST_H
#define XCI_DIGEST_H

#include <stdint.h>

#include "xorcast.h"

#define XCI_DIGEST_STRIDE UINT64_C(0x9E3779B97F4A7C15)
#define XCI_DIGEST_SALT UINT64_C(0xD6E8FEB86659FD93)

/* Key of word 0 of the tensor with this index (splitmix64's finaliser). */
static inline uint64_t xci_digest_key(uint64_t tensor) {
    uint64_t z = (tensor + 1) * UINT64_C(0xD1342543DE82EF95);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline void xci_digest_term(uint64_t value, uint64_t key, uint64_t *low_out,
                                   uint64_t *high_out) {
    const uint64_t x = value ^ key;
    const uint64_t y = ((x << 32) | (x >> 32)) ^ XCI_DIGEST_SALT;
    const unsigned __int128 product = (unsigned __int128)x * y;
    *low_out = (uint64_t)product;
    *high_out = (uint64_t)(product >> 64);
}

static inline void xci_digest_add(xorcast_digest *digest, uint64_t value, uint64_t key) {
    uint64_t low, high;
    xci_digest_term(value, key, &low, &high);
    digest->lane[0] += low;
    digest->lane[1] += high;
}

static inline void xci_digest_merge(xorcast_digest *digest, const xorcast_digest *other) {
    digest->lane[0] += other->lane[0];
    digest->lane[1] += other->lane[1];
}

#endif
