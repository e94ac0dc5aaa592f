/* Reading and writing of one shape of a group's parameters, for the host and for kernels. */
#ifndef XCI_GAP_SHAPE_H
#define XCI_GAP_SHAPE_H

#include "codec/gap_format.h"

#define XCI_GAP_SHAPE_DENSE 8u
#define XCI_GAP_SHAPE_KNOWS_OLD 16u

/* Bits of a number of one of so many things. */
XCI_BOTH uint32_t xci_gap_bits_for(uint32_t count) {
    return count < 2 ? 0 : 32 - xci_zeros_above32(count - 1);
}

/* How many keys, from the lowest up, each class has: how many classes there are, or 0. */
XCI_BOTH uint32_t xci_gap_read_classes(xci_reader *reader, uint32_t key_count, uint8_t *class_of) {
    const uint64_t count = xci_read_varint(reader);
    uint32_t key = 0;
    if (count > XCI_GAP_CLASSES)
        return 0;
    for (uint32_t c = 0; c < count; c++) {
        const uint64_t keys = xci_read_varint(reader);
        if (keys == 0 || keys > key_count - key)
            return 0;
        for (uint32_t end = key + (uint32_t)keys; key < end; key++)
            class_of[key] = (uint8_t)c;
    }
    return key == key_count ? (uint32_t)count : 0;
}

/* A shape of foreign bytes; whether its tables are there, and have its width, is not looked at. All
 * lanes of a warp may read one into the same place: each writes a place once, what the others write
 * there, and reads none of it. */
XCI_BOTH bool xci_gap_read_shape(xci_reader *reader, xci_gap_shape *shape) {
    const uint8_t kind = xci_read8(reader);
    const uint32_t width = kind & 7;
    const bool dense = (kind & XCI_GAP_SHAPE_DENSE) != 0;
    const bool knows_old = (kind & XCI_GAP_SHAPE_KNOWS_OLD) != 0;
    if (kind >= 2 * XCI_GAP_SHAPE_KNOWS_OLD || width >= XCI_GAP_WIDTHS)
        return false;
    const uint32_t key_count = knows_old ? xci_gap_key_count(width) : 0;
    memset(shape->class_of + key_count, 0, XCI_GAP_KEYS - key_count);
    const uint32_t class_count =
        knows_old ? xci_gap_read_classes(reader, key_count, shape->class_of) : 1;
    if (class_count == 0)
        return false;
    shape->width = width;
    shape->dense = dense;
    shape->knows_old = knows_old;
    shape->class_count = class_count;
    for (uint32_t c = 0; c < class_count; c++) {
        const uint64_t prior = dense ? 1 : xci_read_varint(reader);
        if (prior == 0 || prior > XCI_GAP_PRIOR_MAX)
            return false;
        shape->classes[c].prior = (uint32_t)prior;
        shape->classes[c].table = xci_read8(reader);
    }
    return !reader->bad;
}

/* `table_of` gives the number that each table has among those that are written. */
XCI_BOTH uint8_t *xci_gap_write_shape(const xci_gap_shape *shape, const uint32_t *table_of,
                                      uint8_t *at) {
    *at++ = (uint8_t)(shape->width | (shape->dense ? XCI_GAP_SHAPE_DENSE : 0) |
                      (shape->knows_old ? XCI_GAP_SHAPE_KNOWS_OLD : 0));
    if (shape->knows_old) {
        const uint32_t key_count = xci_gap_key_count(shape->width);
        at += xci_varint_put(at, shape->class_count);
        for (uint32_t key = 0, end; key < key_count; key = end) {
            for (end = key; end < key_count && shape->class_of[end] == shape->class_of[key];)
                end++;
            at += xci_varint_put(at, end - key);
        }
    }
    for (uint32_t c = 0; c < shape->class_count; c++) {
        if (!shape->dense)
            at += xci_varint_put(at, shape->classes[c].prior);
        *at++ = (uint8_t)table_of[shape->classes[c].table];
    }
    return at;
}

#endif
