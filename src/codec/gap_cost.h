/* What the gap codec's choices are made by: estimates in whole numbers, the same on every machine,
 * on the host and in kernels. Bits are in units of 1/256. */
#ifndef XCI_GAP_COST_H
#define XCI_GAP_COST_H

#include "codec/gap_format.h"

/* Changed words of each chunk by which the width is chosen. */
#define XCI_GAP_SAMPLE_WORDS 32u
#define XCI_GAP_TABLE_BITS 5u /* that a symbol costs in a table, about */

/* log2 times 256 of a number that is not 0; the same everywhere, and off by 3 at most. */
XCI_BOTH uint32_t xci_gap_log2(uint64_t value) {
    const uint32_t whole = 63 - xci_zeros_above64(value);
    const uint32_t part = (uint32_t)(value << (63 - whole) >> 55) & 255;
    return whole * 256 + part + (part * (256 - part) * 88 >> 16);
}

/* Of a shape or a class with so many changes among so many elements. */
XCI_BOTH uint32_t xci_gap_prior(uint64_t elements, uint64_t changes) {
    const uint64_t prior =
        changes == 0 ? elements : (XCI_GAP_PRIOR * elements + changes / 2) / changes;
    return (uint32_t)xci_max(1, xci_min(prior, XCI_GAP_PRIOR_MAX));
}

/* All of a symbol's occurrences, which are not none, in a best code, their tails and its line in
 * the table. */
XCI_BOTH uint64_t xci_gap_symbol_cost(uint32_t count, uint64_t log2_total, uint32_t tail_bits) {
    return count * (log2_total - xci_gap_log2(count) + (uint64_t)tail_bits * 256) +
           XCI_GAP_TABLE_BITS * 256;
}

/* Gaps between `changes` changes, not none, among `elements`: each about 1.5 bits more than its
 * logarithm. */
XCI_BOTH uint64_t xci_gap_gaps_cost(uint64_t elements, uint64_t changes) {
    return changes * (xci_gap_log2(elements) - xci_gap_log2(changes) + 384);
}

#endif
