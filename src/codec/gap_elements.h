/* Elements of a chunk in memory: 4 bits to 8 bytes wide, the last one perhaps cut off by the
 * chunk's end, where what is missing counts as 0. `width` is a constant wherever speed matters,
 * so that the compiler makes one loop for each. */
#ifndef XCI_GAP_ELEMENTS_H
#define XCI_GAP_ELEMENTS_H

#include "codec/gap_group.h"

#define XCI_GAP_INLINE static inline __attribute__((always_inline))

/* Element `index`, which exists, of `bytes`. */
XCI_GAP_INLINE uint64_t xci_gap_load(const uint8_t *at, uint32_t bytes, uint32_t width,
                                     uint32_t index) {
    if (width == 0)
        return at[index / 2] >> index % 2 * 4 & 15;
    const uint32_t element_bytes = 1u << (width - 1), offset = index * element_bytes;
    if (width == 1)
        return at[index];
    if (width == 2 && bytes - offset >= 2)
        return xci_load16(at + offset);
    if (width == 3 && bytes - offset >= 4)
        return xci_load32(at + offset);
    if (width == 4 && bytes - offset >= 8)
        return xci_load64(at + offset);
    uint64_t element = 0;
    memcpy(&element, at + offset, bytes - offset);
    return element;
}

/* XORs a value into element `index`. False: the value reaches beyond the end. */
XCI_GAP_INLINE bool xci_gap_change(uint8_t *at, uint32_t bytes, uint32_t width, uint32_t index,
                                   uint64_t value) {
    if (width < 2) {
        at[width == 0 ? index / 2 : index] ^=
            (uint8_t)(width == 0 ? value << index % 2 * 4 : value);
        return true;
    }
    const uint32_t element_bytes = 1u << (width - 1), offset = index * element_bytes;
    const uint32_t room = bytes - offset;
    if (room < element_bytes && value >> (8 * room) != 0)
        return false;
    if (width == 2 && room >= 2)
        xci_store16(at + offset, (uint16_t)(xci_load16(at + offset) ^ value));
    else if (width == 3 && room >= 4)
        xci_store32(at + offset, (uint32_t)(xci_load32(at + offset) ^ value));
    else if (width == 4 && room >= 8)
        xci_store64(at + offset, xci_load64(at + offset) ^ value);
    else
        for (uint32_t i = 0; i < room; i++)
            at[offset + i] ^= (uint8_t)(value >> 8 * i);
    return true;
}

/* ---- Reading of streams, which are foreign bytes ---- */

/* The next gap; `bad` if there is none. */
XCI_GAP_INLINE uint32_t xci_gap_take(xci_bit_reader *reader, const xci_gap_window *window) {
    const uint32_t k = xci_gap_parameter(window);
    xci_hold_bits(reader);
    const uint32_t ones = (uint32_t)__builtin_ctzll(~reader->held);
    if (ones < XCI_GAP_ONES) {
        const uint64_t low = xci_low_bits(reader->held >> (ones + 1), k);
        xci_drop_bits(reader, ones + 1 + k);
        return ones << k | (uint32_t)low;
    }
    xci_drop_bits(reader, XCI_GAP_ONES);
    const uint32_t gap = (uint32_t)xci_take_bits(reader, XCI_GAP_PLAIN_BITS);
    reader->bad |= gap >> k < XCI_GAP_ONES;
    return gap;
}

XCI_GAP_INLINE uint64_t xci_gap_take_value(xci_bit_reader *reader, const xci_gap_table *table) {
    if (reader->held_bits < XCI_PREFIX_LONGEST)
        xci_hold_bits(reader);
    const uint32_t symbol = xci_take_symbol(reader, &table->prefix);
    const uint32_t tail_bits = xci_gap_tail_bits(symbol, table->head);
    const uint64_t tail = tail_bits != 0 ? xci_take_many_bits(reader, tail_bits) : 0;
    return xci_gap_value(symbol, table->head, tail_bits, tail);
}

/* The next of several streams, each but the last behind its length. NULL in `at`: damaged. */
static inline xci_bit_reader xci_gap_take_stream(xci_reader *block, bool last) {
    const uint64_t bytes = last ? xci_reader_left(block) : xci_read_varint(block);
    const uint8_t *at = xci_read_bytes(block, bytes);
    return xci_bits_read(at, at != NULL ? at + bytes : NULL);
}

#endif
