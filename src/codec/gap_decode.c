/* Decoding of blocks: see gap_group.h. Positions, values and ends of streams are checked as they
 * are read; what does not fit makes the block damaged. */
#include "codec/gap_elements.h"

/* Changed elements of a chunk, each behind its gap. */
XCI_GAP_INLINE bool decode_sparse(const xci_gap_group *group, const xci_gap_shape *shape,
                                  xci_reader *block, uint8_t *mask, uint32_t bytes,
                                  uint32_t width) {
    const xci_gap_table *table = &group->tables[shape->classes[0].table];
    const uint32_t count = xci_gap_element_count(width, bytes);
    xci_gap_window window = xci_gap_begin(shape->classes[0].prior);
    xci_bit_reader reader = xci_gap_take_stream(block, true);
    while (!xci_bits_at_end(&reader)) {
        const uint32_t gap = xci_gap_take(&reader, &window);
        const uint64_t value = xci_gap_take_value(&reader, table);
        if (reader.bad || gap >= count - window.next || value == 0)
            return false;
        const uint32_t position = window.next + gap;
        if (!xci_gap_change(mask, bytes, width, position, value))
            return false;
        xci_gap_pass(&window, position);
    }
    return true;
}

/* All elements, in segments. */
XCI_GAP_INLINE bool decode_dense(const xci_gap_group *group, const xci_gap_shape *shape,
                                 xci_reader *block, uint8_t *mask, uint32_t bytes, uint32_t width) {
    const xci_gap_table *table = &group->tables[shape->classes[0].table];
    const uint32_t count = xci_gap_element_count(width, bytes);
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = (uint32_t)xci_min(count, first + XCI_GAP_SEGMENT);
        xci_bit_reader reader = xci_gap_take_stream(block, end == count);
        if (block->bad)
            return false;
        for (uint32_t i = first; i < end; i++)
            if (!xci_gap_change(mask, bytes, width, i, xci_gap_take_value(&reader, table)))
                return false;
        if (reader.bad || !xci_bits_at_end(&reader))
            return false;
    }
    return true;
}

XCI_GAP_INLINE bool decode(const xci_gap_group *group, const xci_gap_shape *shape,
                           xci_reader *block, uint8_t *mask, uint32_t bytes, uint32_t width) {
    return shape->dense ? decode_dense(group, shape, block, mask, bytes, width)
                        : decode_sparse(group, shape, block, mask, bytes, width);
}

bool xci_gap_decode(const xci_gap_group *group, uint32_t index, const uint8_t *block,
                    uint64_t block_bytes, const uint8_t *old, uint8_t *mask) {
    memset(mask, 0, group->places[index].chunk_bytes);
    return xci_gap_change_by(group, index, block, block_bytes, old, mask);
}

bool xci_gap_change_by(const xci_gap_group *group, uint32_t index, const uint8_t *block,
                       uint64_t block_bytes, const uint8_t *old, uint8_t *mask) {
    const xci_gap_place *place = &group->places[index];
    const xci_gap_shape *shape = &group->shapes[place->shape];
    const uint32_t bytes = place->chunk_bytes;
    xci_reader reader = {block, block + block_bytes, false};
    if (shape->knows_old)
        return xci_gap_decode_old(group, shape, &reader, old, mask, bytes);
    switch (shape->width) {
    case 0:
        return decode(group, shape, &reader, mask, bytes, 0);
    case 1:
        return decode(group, shape, &reader, mask, bytes, 1);
    case 2:
        return decode(group, shape, &reader, mask, bytes, 2);
    case 3:
        return decode(group, shape, &reader, mask, bytes, 3);
    default:
        return decode(group, shape, &reader, mask, bytes, 4);
    }
}
