/* Reading the parameters of a group: see gap_group.h. */
#include "codec/gap_group.h"

#include "codec/gap_shape.h"

static bool read_tables(xci_gap_group *group, xci_reader *reader) {
    const uint64_t count = xci_read_varint(reader);
    if (count == 0 || count > XCI_GAP_TABLES)
        return false;
    group->table_count = (uint32_t)count;
    for (uint32_t t = 0; t < count; t++) {
        xci_gap_table *table = &group->tables[t];
        const uint8_t kind = xci_read8(reader);
        table->width = kind & 7;
        table->head = kind >> 3;
        if (table->width >= XCI_GAP_WIDTHS || table->head > xci_gap_head_max(table->width) ||
            !xci_prefix_read(reader, xci_gap_symbol_count(table->width, table->head),
                             &table->prefix))
            return false;
    }
    return true;
}

static bool read_shape(const xci_gap_group *group, xci_gap_shape *shape, xci_reader *reader) {
    if (!xci_gap_read_shape(reader, shape))
        return false;
    for (uint32_t c = 0; c < shape->class_count; c++)
        if (shape->classes[c].table >= group->table_count ||
            group->tables[shape->classes[c].table].width != shape->width)
            return false;
    return true;
}

static bool read_shapes(xci_gap_group *group, xci_reader *reader) {
    const uint64_t count = xci_read_varint(reader);
    if (count == 0 || count > XCI_GAP_SHAPES)
        return false;
    group->shape_count = (uint32_t)count;
    for (uint32_t s = 0; s < count; s++)
        if (!read_shape(group, &group->shapes[s], reader))
            return false;
    return true;
}

static bool read_sizes(xci_gap_group *group, xci_reader *reader, uint32_t gap_count,
                       uint32_t *size_count_out) {
    const uint64_t count = xci_read_varint(reader);
    if (count == 0 || count > gap_count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t size = xci_read_varint(reader);
        if (size == 0 || size > XCI_GAP_CHUNK_MAX)
            return false;
        group->sizes[i] = (uint32_t)size;
    }
    *size_count_out = (uint32_t)count;
    return true;
}

static bool read_places(xci_gap_group *group, xci_reader *reader, uint32_t block_count,
                        uint32_t size_count) {
    const uint32_t shape_bits = xci_gap_bits_for(group->shape_count),
                   size_bits = xci_gap_bits_for(size_count);
    xci_bit_reader bits = xci_bits_read(reader->at, reader->end);
    for (uint32_t i = 0; i < block_count; i++) {
        group->places[i] = (xci_gap_place){0, 0};
        if (!group->is_gap[i])
            continue;
        const uint32_t shape = (uint32_t)xci_take_bits(&bits, shape_bits);
        const uint32_t size = (uint32_t)xci_take_bits(&bits, size_bits);
        if (shape >= group->shape_count || size >= size_count)
            return false;
        group->places[i] = (xci_gap_place){group->sizes[size], shape};
    }
    return !bits.bad && xci_bits_at_end(&bits);
}

bool xci_gap_group_read(xci_gap_group *group, const uint8_t *at, uint64_t bytes,
                        uint32_t block_count) {
    xci_reader reader = {at, at + bytes, false};
    uint32_t gap_count = 0, size_count;
    for (uint32_t i = 0; i < block_count; i++)
        gap_count += group->is_gap[i] != 0;
    return read_tables(group, &reader) && read_shapes(group, &reader) &&
           read_sizes(group, &reader, gap_count, &size_count) && !reader.bad &&
           read_places(group, &reader, block_count, size_count);
}
