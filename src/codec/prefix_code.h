/* Prefix codes: canonical Huffman codes of at most XCI_PREFIX_LONGEST bits, their making, the bytes
 * that describe one, and its tables. The only entropy code of values; docs/format.md, "Prefix
 * codes", is the law.
 *
 * A code belongs to a group, so that its tables are made once for many chunks. */
#ifndef XCI_PREFIX_CODE_H
#define XCI_PREFIX_CODE_H

#include "codec/bits.h"

#define XCI_PREFIX_SYMBOLS 1024u
#define XCI_PREFIX_LONGEST 12u

/* For writing: each symbol's code, its bits in the order of the stream, and their number. */
typedef struct xci_prefix_code {
    uint32_t symbol_count; /* symbols from here on do not exist */
    uint16_t codes[XCI_PREFIX_SYMBOLS];
    uint8_t lengths[XCI_PREFIX_SYMBOLS]; /* 0: not used, or the only one */
    bool single;                         /* one symbol, of no bits */
    uint32_t single_symbol;
} xci_prefix_code;

/* For reading: the next XCI_PREFIX_LONGEST bits give symbol << 4 | length. */
typedef struct xci_prefix_table {
    uint16_t entries[1u << XCI_PREFIX_LONGEST];
} xci_prefix_table;

/* The code that makes symbols of these counts, which are not all 0, shortest; the same on every
 * machine. Symbols are fewer than 2^32 in all. */
void xci_prefix_build(const uint32_t *counts, uint32_t symbol_count, xci_prefix_code *code);

/* Bits of all symbols. */
uint64_t xci_prefix_bits(const xci_prefix_code *code, const uint32_t *counts);

/* The description; at most XCI_PREFIX_BYTES. `out` may be NULL to learn its size. */
#define XCI_PREFIX_BYTES (XCI_PREFIX_SYMBOLS / 2 + 8)
uint32_t xci_prefix_write(const xci_prefix_code *code, uint8_t *out);

/* Reads a description of foreign bytes whose symbols are below `symbol_count`. False: it is cut
 * off, or not that of a complete code. */
bool xci_prefix_read(xci_reader *reader, uint32_t symbol_count, xci_prefix_table *table);

static inline void xci_put_symbol(xci_bit_writer *writer, const xci_prefix_code *code,
                                  uint32_t symbol) {
    xci_put_bits(writer, code->codes[symbol], code->lengths[symbol]);
}

/* At least XCI_PREFIX_LONGEST bits are held, or all that are left. */
static inline uint32_t xci_take_symbol(xci_bit_reader *reader, const xci_prefix_table *table) {
    const uint32_t entry = table->entries[reader->held & ((1u << XCI_PREFIX_LONGEST) - 1)];
    xci_drop_bits(reader, entry & 15);
    return entry >> 4;
}

#endif
