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

/* ---- Classes ---- */

/* Classes have codes of their own only while there are fewer tables: each shape needs one. */
#define XCI_GAP_OWN_TABLES (XCI_GAP_TABLES - XCI_GAP_SHAPES)
/* A class costs its line among the parameters and, in each sparse chunk, the length and the last
 * bits of its stream. */
#define XCI_GAP_CLASS_BITS 48u
#define XCI_GAP_STREAM_BITS 12u
#define XCI_GAP_DENSE_ELEMENTS 512u /* fewer are no reason for a class */

/* Keys next to each other, [first, the next range's first). */
typedef struct xci_gap_range {
    uint32_t first;
    uint64_t elements, changes;
} xci_gap_range;

/* Of sparse chunks, one stretch in so many is looked at: how frequent keys are needs no more. */
#define XCI_GAP_KEY_STRETCH 512u /* bytes */
#define XCI_GAP_KEY_STEP 16u

/* Elements with a key in all chunks, from those that were looked at. */
XCI_BOTH uint32_t xci_gap_scale_key(uint32_t seen, uint32_t changes, uint64_t all_seen,
                                    uint64_t elements) {
    const uint64_t scaled = (seen * elements + all_seen / 2) / all_seen;
    return (uint32_t)xci_max(scaled, changes);
}

/* Gaps between `changes` changes, not none, among `elements`: each about 1.5 bits more than its
 * logarithm. */
XCI_BOTH uint64_t xci_gap_gaps_cost(uint64_t elements, uint64_t changes) {
    return changes * (xci_gap_log2(elements) - xci_gap_log2(changes) + 384);
}

/* Where the changes of a chunk are: gaps, or, if most elements change, zeros among their values. */
XCI_BOTH uint64_t xci_gap_places_cost(uint64_t elements, uint64_t changes) {
    const uint64_t zeros = elements - changes;
    if (changes == 0 || zeros == 0)
        return 0;
    if (changes <= zeros)
        return xci_gap_gaps_cost(elements, changes);
    return changes * (xci_gap_log2(elements) - xci_gap_log2(changes)) +
           zeros * (xci_gap_log2(elements) - xci_gap_log2(zeros));
}

/* About, of a range as a class of sparse chunks. */
XCI_BOTH uint64_t xci_gap_class_cost(const xci_gap_range *r, uint32_t chunk_count) {
    const uint64_t fixed = (XCI_GAP_CLASS_BITS + (uint64_t)XCI_GAP_STREAM_BITS * chunk_count) * 256;
    if (r->changes == 0)
        return fixed;
    return fixed + xci_min(xci_gap_gaps_cost(r->elements, r->changes), r->elements * 256);
}

/* What joining two ranges gains; below 0 it costs. */
XCI_BOTH int64_t xci_gap_join_gain(const xci_gap_range *a, const xci_gap_range *b, bool dense,
                                   uint32_t chunk_count) {
    if (dense)
        return (int64_t)XCI_GAP_DENSE_ELEMENTS - (int64_t)xci_min(a->elements, b->elements);
    const xci_gap_range both = {a->first, a->elements + b->elements, a->changes + b->changes};
    return (int64_t)(xci_gap_class_cost(a, chunk_count) + xci_gap_class_cost(b, chunk_count)) -
           (int64_t)xci_gap_class_cost(&both, chunk_count);
}

#endif
