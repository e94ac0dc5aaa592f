/* The changed elements of a chunk in order, from a list of words or a raw mask. */
#ifndef XCI_GAP_INPUT_H
#define XCI_GAP_INPUT_H

#include "codec/gap_elements.h"
#include "codec/gap_encoder.h"
#include "codec/words_block.h"

/* What is done with a change. `state` is the caller's; `width` is a constant. */
typedef void xci_gap_visit(void *state, uint32_t position, uint64_t value, uint32_t width);

XCI_GAP_INLINE void xci_gap_each_of_word(uint32_t word, uint64_t mask, uint32_t width,
                                         xci_gap_visit *visit, void *state) {
    const uint32_t first = word << (4 - width);
    if (width == 4) {
        if (mask != 0)
            visit(state, first, mask, width);
        return;
    }
    const uint64_t ones = xci_low_bits(UINT64_MAX, 4u << width);
    while (mask != 0) {
        const uint32_t index = (uint32_t)__builtin_ctzll(mask) >> (2 + width);
        const uint32_t shift = index << (2 + width);
        visit(state, first + index, mask >> shift & ones, width);
        mask &= ~(ones << shift);
    }
}

/* Entries of the list, or words of the raw mask. */
static inline uint32_t xci_gap_word_count(const xci_gap_input *input) {
    return input->raw ? (uint32_t)xci_divide_up(input->bytes, 8)
                      : input->block_bytes / XCI_WORDS_ENTRY;
}

/* Mask of entry i, which may be 0, and its word. */
XCI_GAP_INLINE uint64_t xci_gap_word(const xci_gap_input *input, uint32_t i, uint32_t *word_out) {
    if (!input->raw) {
        const uint8_t *entry = input->block + (size_t)i * XCI_WORDS_ENTRY;
        *word_out = xci_load32(entry);
        return xci_load64(entry + 4);
    }
    *word_out = i;
    return xci_gap_load(input->block, input->bytes, 4, i);
}

XCI_GAP_INLINE void xci_gap_each_entry(const xci_gap_input *input, uint32_t count, uint32_t width,
                                       xci_gap_visit *visit, void *state) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word;
        const uint64_t mask = xci_gap_word(input, i, &word);
        xci_gap_each_of_word(word, mask, width, visit, state);
    }
}

/* Every change in the first `count` entries. */
XCI_GAP_INLINE void xci_gap_each(const xci_gap_input *input, uint32_t count, uint32_t width,
                                 xci_gap_visit *visit, void *state) {
    switch (width) {
    case 0:
        xci_gap_each_entry(input, count, 0, visit, state);
        return;
    case 1:
        xci_gap_each_entry(input, count, 1, visit, state);
        return;
    case 2:
        xci_gap_each_entry(input, count, 2, visit, state);
        return;
    case 3:
        xci_gap_each_entry(input, count, 3, visit, state);
        return;
    default:
        xci_gap_each_entry(input, count, 4, visit, state);
        return;
    }
}

#endif
