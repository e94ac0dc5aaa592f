/* The list of a chunk's changed words: what the backend hands to the gap codec, whose tables are
 * made when the whole group is known. Never on a wire, and its number is none of the format.
 *
 *     block = entry...
 *     entry = number of the word in the chunk, 4 bytes; its mask, 8 bytes, not 0
 *
 * Numbers rise. Behind the chunk's end the mask of the last word is 0. */
#ifndef XCI_WORDS_BLOCK_H
#define XCI_WORDS_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define XCI_CODEC_WORDS 0x100u
#define XCI_WORDS_ENTRY 12u

static inline uint8_t *xci_words_put(uint8_t *at, uint32_t word, uint64_t mask) {
    xci_store32(at, word);
    xci_store64(at + 4, mask);
    return at + XCI_WORDS_ENTRY;
}

/* A list of our own, XORed into the chunk. */
static inline void xci_words_xor(const uint8_t *block, uint64_t block_bytes, uint8_t *out,
                                 uint32_t bytes) {
    for (uint64_t at = 0; at < block_bytes; at += XCI_WORDS_ENTRY) {
        const uint64_t offset = (uint64_t)xci_load32(block + at) * 8;
        const uint8_t *mask = block + at + 4;
        for (uint64_t i = 0; i < xci_min(8, bytes - offset); i++)
            out[offset + i] ^= mask[i];
    }
}

static inline bool xci_words_decode(const uint8_t *block, uint64_t block_bytes, uint8_t *out,
                                    uint32_t bytes) {
    memset(out, 0, bytes);
    for (uint64_t at = 0; at + XCI_WORDS_ENTRY <= block_bytes; at += XCI_WORDS_ENTRY) {
        const uint64_t offset = (uint64_t)xci_load32(block + at) * 8;
        if (offset >= bytes)
            return false;
        memcpy(out + offset, block + at + 4, xci_min(8, bytes - offset));
    }
    return block_bytes % XCI_WORDS_ENTRY == 0;
}

#endif
