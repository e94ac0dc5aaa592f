/* The gap codec's format: what a group's parameters and a chunk's streams consist of, with every
 * limit. docs/format.md, "Gap", is the law. Writers and readers of it include this; it owns no
 * memory but what a group's parameters are read into.
 *
 * A chunk is cut into elements of 4 bits to 8 bytes. A *shape* of the group says how: their
 * width, and whether all elements are listed (dense) or only changed ones, each behind the gap
 * of unchanged ones before it. Values are symbols of a prefix code and bits as they are. A shape
 * that knows the old weights puts the elements into classes by their old bytes; each class has a
 * stream, densities and a code of its own, and values are steps in the last place. */
#ifndef XCI_GAP_FORMAT_H
#define XCI_GAP_FORMAT_H

#include "codec/bits.h"
#include "codec/prefix_code.h"

#define XCI_GAP_SHAPES 8u
#define XCI_GAP_TABLES 32u
#define XCI_GAP_CLASSES 8u
#define XCI_GAP_KEYS 256u
#define XCI_GAP_WIDTHS 5u /* 4, 8, 16, 32, 64 bits */
#define XCI_GAP_CHUNK_MAX (1u << 20)
#define XCI_GAP_BLOCKS 32768u /* of a record */
/* Elements of a dense stream; longer chunks have several, which can be decoded side by side. */
#define XCI_GAP_SEGMENT 4096u

/* ---- Elements ---- */

XCI_BOTH uint32_t xci_gap_element_bits(uint32_t width) {
    return 4u << width;
}

XCI_BOTH uint32_t xci_gap_element_count(uint32_t width, uint32_t bytes) {
    return width == 0 ? 2 * bytes : (uint32_t)xci_divide_up(bytes, 1u << (width - 1));
}

/* ---- Gaps ----
 *
 * A gap g is g >> k ones, a zero and the k low bits of g. k follows the mean of the last gaps: with
 * `passed` elements since the change XCI_GAP_WINDOW before, of which `count` were changes, both
 * together with the group's prior, it is the smallest k with count << (k + 1) >= passed. */

#define XCI_GAP_WINDOW 16u
#define XCI_GAP_PRIOR 2u /* changes that the prior stands for */
#define XCI_GAP_PRIOR_MAX (1u << 23)
#define XCI_GAP_ONES 20u       /* as many ones: the gap follows as it is */
#define XCI_GAP_PLAIN_BITS 21u /* 1 MiB of nibbles */

typedef struct xci_gap_window {
    uint32_t prior;                /* elements that XCI_GAP_PRIOR changes take */
    uint32_t count;                /* changes so far */
    uint32_t next;                 /* behind the last change */
    uint32_t ends[XCI_GAP_WINDOW]; /* what `next` was before the last changes */
} xci_gap_window;

XCI_BOTH xci_gap_window xci_gap_begin(uint32_t prior) {
    xci_gap_window window = {prior, 0, 0, {0}};
    return window;
}

/* The parameter where `count` changes, at least 2, took `passed` elements, the prior's included. */
XCI_BOTH uint32_t xci_gap_parameter_of(uint32_t count, uint32_t passed) {
    const uint32_t before = passed - 1; /* count << k has as many bits */
    const uint32_t k = xci_zeros_above32(count) - xci_zeros_above32(before | 1);
    return (int32_t)k <= 0 ? 0 : k - (count << k > before);
}

XCI_BOTH uint32_t xci_gap_parameter(const xci_gap_window *window) {
    const bool full = window->count >= XCI_GAP_WINDOW;
    const uint32_t from = full ? window->ends[window->count % XCI_GAP_WINDOW] : 0;
    const uint32_t count = XCI_GAP_PRIOR + (full ? XCI_GAP_WINDOW : window->count);
    return xci_gap_parameter_of(count, window->prior + window->next - from);
}

/* The element at `position` is a change. */
XCI_BOTH void xci_gap_pass(xci_gap_window *window, uint32_t position) {
    window->ends[window->count++ % XCI_GAP_WINDOW] = window->next;
    window->next = position + 1;
}

/* ---- Values ----
 *
 * With `head` bits h, a value of L bits is its own symbol if L <= h + 1; else the symbol tells L
 * and the h bits behind its first one, and the other L - 1 - h follow as they are. */

XCI_BOTH uint32_t xci_gap_head_max(uint32_t width) {
    return width == 0 ? 3 : 8 - width; /* at most 1024 symbols */
}

XCI_BOTH uint32_t xci_gap_symbol_count(uint32_t width, uint32_t head) {
    return (xci_gap_element_bits(width) - head + 1) << head;
}

XCI_BOTH uint32_t xci_gap_symbol(uint64_t value, uint32_t head, uint32_t *tail_bits) {
    const uint32_t bits = 64 - xci_zeros_above64(value | 1);
    const uint32_t tail = bits > head + 1 ? bits - 1 - head : 0;
    *tail_bits = tail;
    return (uint32_t)(tail << head) + (uint32_t)(value >> tail);
}

XCI_BOTH uint32_t xci_gap_tail_bits(uint32_t symbol, uint32_t head) {
    return symbol < (2u << head) ? 0 : (symbol >> head) - 1;
}

XCI_BOTH uint64_t xci_gap_value(uint32_t symbol, uint32_t head, uint32_t tail_bits, uint64_t tail) {
    return (uint64_t)(symbol - (tail_bits << head)) << tail_bits | tail;
}

/* ---- Old weights ---- */

/* Elements are classed by the eight bits below the sign, or by all that there are. */
XCI_BOTH uint32_t xci_gap_key_count(uint32_t width) {
    return width == 0 ? 8 : width == 1 ? 128 : 256;
}

XCI_BOTH uint32_t xci_gap_key(uint64_t old_element, uint32_t width) {
    const uint32_t bits = xci_gap_element_bits(width), keys = xci_gap_key_count(width);
    return (uint32_t)(width < 2 ? old_element : old_element >> (bits - 9)) & (keys - 1);
}

/* Elements in the order of the numbers that they mean, if sign and magnitude are what they are. */
XCI_BOTH uint64_t xci_gap_order(uint64_t element, uint32_t width) {
    const uint32_t bits = xci_gap_element_bits(width);
    const uint64_t sign = element >> (bits - 1);
    return element ^ (sign != 0 ? xci_low_bits(UINT64_MAX, bits - 1) : 0);
}

XCI_BOTH uint64_t xci_gap_mask_bits(uint32_t width) {
    return UINT64_MAX >> (64 - xci_gap_element_bits(width));
}

/* The step from old to new: 0, -1, 1, -2, ... become 0, 1, 2, 3, ... */
XCI_BOTH uint64_t xci_gap_step(uint64_t old_element, uint64_t new_element, uint32_t width) {
    const uint32_t bits = xci_gap_element_bits(width);
    const uint64_t step = (xci_gap_order(new_element, width) - xci_gap_order(old_element, width)) &
                          xci_gap_mask_bits(width);
    const uint64_t sign = step >> (bits - 1);
    return (step << 1 & xci_gap_mask_bits(width)) ^ (sign != 0 ? xci_gap_mask_bits(width) : 0);
}

XCI_BOTH uint64_t xci_gap_stepped(uint64_t old_element, uint64_t value, uint32_t width) {
    const uint64_t step = value >> 1 ^ ((value & 1) != 0 ? xci_gap_mask_bits(width) : 0);
    return xci_gap_order((xci_gap_order(old_element, width) + step) & xci_gap_mask_bits(width),
                         width);
}

/* ---- Parameters of a group ---- */

typedef struct xci_gap_class {
    uint32_t prior; /* of a shape that is not dense */
    uint32_t table;
} xci_gap_class;

typedef struct xci_gap_shape {
    uint32_t width; /* elements have 4 << width bits */
    bool dense, knows_old;
    uint32_t class_count; /* 1 unless it knows the old weights */
    xci_gap_class classes[XCI_GAP_CLASSES];
    uint8_t class_of[XCI_GAP_KEYS];
} xci_gap_shape;

#endif
