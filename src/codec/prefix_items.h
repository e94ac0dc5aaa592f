/* Items of the description of a prefix code (docs/format.md, "Prefix codes"), one by one, for the
 * host and for kernels. An item says the length of one symbol or of several, in nibbles:
 *
 *     0 .. 12   the length of one symbol, 0 if it is not used
 *     13 a      a + 2 symbols that are not used
 *     14 a b    a + 16 b + 18 symbols that are not used
 *     15 a      the length before, which is not 0, for a + 3 more symbols */
#ifndef XCI_PREFIX_ITEMS_H
#define XCI_PREFIX_ITEMS_H

#include "codec/prefix_code.h"

#define XCI_PREFIX_SKIP_FEW 13u
#define XCI_PREFIX_SKIP_FEW_BASE 2u
#define XCI_PREFIX_SKIP_MANY 14u
#define XCI_PREFIX_SKIP_MANY_BASE 18u
#define XCI_PREFIX_REPEAT 15u
#define XCI_PREFIX_REPEAT_BASE 3u
#define XCI_PREFIX_SINGLE 1u /* the mark of a code of one symbol */
#define XCI_PREFIX_COMPLETE (1u << XCI_PREFIX_LONGEST)

/* ---- Writing ---- */

typedef struct xci_nibble_writer {
    uint8_t *out; /* or NULL */
    uint32_t count;
} xci_nibble_writer;

XCI_BOTH void xci_put_nibble(xci_nibble_writer *writer, uint32_t value) {
    if (writer->out != NULL) {
        if (writer->count % 2 == 0)
            writer->out[writer->count / 2] = 0;
        writer->out[writer->count / 2] |= (uint8_t)(value << writer->count % 2 * 4);
    }
    writer->count++;
}

/* The item for the symbols from `at` on; returns for how many. */
XCI_BOTH uint32_t xci_put_item(xci_nibble_writer *writer, const uint8_t *lengths,
                               uint32_t symbol_count, uint32_t at) {
    const uint32_t length = lengths[at];
    uint32_t run = 1;
    while (at + run < symbol_count && lengths[at + run] == length)
        run++;
    if (length == 0 && run >= XCI_PREFIX_SKIP_MANY_BASE) {
        const uint32_t most = XCI_PREFIX_SKIP_MANY_BASE + 255;
        run = run < most ? run : most;
        xci_put_nibble(writer, XCI_PREFIX_SKIP_MANY);
        xci_put_nibble(writer, (run - XCI_PREFIX_SKIP_MANY_BASE) & 15);
        xci_put_nibble(writer, (run - XCI_PREFIX_SKIP_MANY_BASE) >> 4);
    } else if (length == 0 && run >= XCI_PREFIX_SKIP_FEW_BASE) {
        xci_put_nibble(writer, XCI_PREFIX_SKIP_FEW);
        xci_put_nibble(writer, run - XCI_PREFIX_SKIP_FEW_BASE);
    } else if (length != 0 && at > 0 && lengths[at - 1] == length &&
               run >= XCI_PREFIX_REPEAT_BASE) {
        run = run < XCI_PREFIX_REPEAT_BASE + 15 ? run : XCI_PREFIX_REPEAT_BASE + 15;
        xci_put_nibble(writer, XCI_PREFIX_REPEAT);
        xci_put_nibble(writer, run - XCI_PREFIX_REPEAT_BASE);
    } else {
        xci_put_nibble(writer, length);
        run = 1;
    }
    return run;
}

/* ---- Reading foreign bytes ---- */

typedef struct xci_nibble_reader {
    xci_reader *bytes;
    uint8_t byte;
    bool half;
} xci_nibble_reader;

XCI_BOTH uint32_t xci_take_nibble(xci_nibble_reader *reader) {
    reader->half = !reader->half;
    if (!reader->half)
        return reader->byte >> 4;
    reader->byte = xci_read8(reader->bytes);
    return reader->byte & 15;
}

/* One item: `run` symbols of the length that is returned. `before`: that of the item before, 0 if
 * there is none. */
XCI_BOTH uint32_t xci_take_item(xci_nibble_reader *reader, uint32_t before, uint32_t *run) {
    const uint32_t item = xci_take_nibble(reader);
    *run = 1;
    if (item <= XCI_PREFIX_LONGEST)
        return item;
    *run = xci_take_nibble(reader);
    if (item == XCI_PREFIX_REPEAT) {
        *run += XCI_PREFIX_REPEAT_BASE;
        reader->bytes->bad |= before == 0;
        return before;
    }
    *run += item == XCI_PREFIX_SKIP_FEW ? XCI_PREFIX_SKIP_FEW_BASE
                                        : XCI_PREFIX_SKIP_MANY_BASE + 16 * xci_take_nibble(reader);
    return 0;
}

#endif
