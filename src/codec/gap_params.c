/* Writing of a group's parameters: see gap_encoder.h. Shapes, tables and sizes that no chunk
 * uses are left out, and the rest is numbered as it comes. */
#include "codec/gap_encoder.h"
#include "codec/gap_shape.h"

#define NOT_USED UINT32_MAX

typedef struct numbering {
    uint32_t shape_count, table_count;
    uint32_t shapes[XCI_GAP_SHAPES]; /* the draft of each shape */
    uint32_t tables[XCI_GAP_TABLES]; /* the code of each table */
    uint32_t table_of[XCI_GAP_TABLES];
} numbering;

static void number_tables(const xci_gap_draft *draft, numbering *n) {
    for (uint32_t c = 0; c < draft->shape.class_count; c++) {
        uint32_t *number = &n->table_of[draft->shape.classes[c].table];
        if (*number != NOT_USED)
            continue;
        *number = n->table_count;
        n->tables[n->table_count++] = draft->shape.classes[c].table;
    }
}

static void number_all(xci_gap_encoder *encoder, const xci_gap_input *inputs, const uint8_t *kept,
                       uint32_t count, numbering *n) {
    *n = (numbering){0};
    memset(n->table_of, 0xff, sizeof n->table_of);
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; d++)
        encoder->drafts[d].number = NOT_USED;
    for (uint32_t i = 0; i < count; i++) {
        xci_gap_draft *draft = &encoder->drafts[inputs[i].draft];
        if (!kept[i] || draft->number != NOT_USED)
            continue;
        draft->number = n->shape_count;
        n->shapes[n->shape_count++] = inputs[i].draft;
        number_tables(draft, n);
    }
}

static uint8_t *write_tables(const xci_gap_encoder *encoder, const numbering *n, uint8_t *at) {
    at += xci_varint_put(at, n->table_count);
    for (uint32_t t = 0; t < n->table_count; t++) {
        const xci_gap_code *code = &encoder->codes[n->tables[t]];
        *at++ = (uint8_t)(code->width | code->head << 3);
        at += xci_prefix_write(&code->prefix, at);
    }
    return at;
}

/* ---- Where chunks belong ---- */

static uint32_t find_size(const uint32_t *sizes, uint32_t count, uint32_t size) {
    for (uint32_t i = 0; i < count; i++)
        if (sizes[i] == size)
            return i;
    return count;
}

static uint8_t *write_places(const xci_gap_encoder *encoder, const xci_gap_input *inputs,
                             const uint8_t *kept, uint32_t count, uint32_t shape_count,
                             uint32_t *sizes, uint8_t *at) {
    uint32_t size_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (kept[i] && find_size(sizes, size_count, inputs[i].bytes) == size_count)
            sizes[size_count++] = inputs[i].bytes;
    at += xci_varint_put(at, size_count);
    for (uint32_t i = 0; i < size_count; i++)
        at += xci_varint_put(at, sizes[i]);
    xci_bit_writer bits = xci_bits_write(at);
    for (uint32_t i = 0; i < count; i++) {
        if (!kept[i])
            continue;
        xci_put_bits(&bits, encoder->drafts[inputs[i].draft].number, xci_gap_bits_for(shape_count));
        xci_put_bits(&bits, find_size(sizes, size_count, inputs[i].bytes),
                     xci_gap_bits_for(size_count));
    }
    return xci_bits_end(&bits);
}

uint32_t xci_gap_write_params(xci_gap_encoder *encoder, const xci_gap_input *inputs,
                              const uint8_t *kept, uint32_t count, uint8_t *out) {
    numbering n;
    number_all(encoder, inputs, kept, count, &n);
    uint8_t *at = write_tables(encoder, &n, out);
    at += xci_varint_put(at, n.shape_count);
    for (uint32_t s = 0; s < n.shape_count; s++)
        at = xci_gap_write_shape(&encoder->drafts[n.shapes[s]].shape, n.table_of, at);
    at = write_places(encoder, inputs, kept, count, n.shape_count, encoder->sizes, at);
    return (uint32_t)(at - out);
}
