/* Bit streams: bits go into bytes from the lowest up, numbers with their lowest bit first. Owns
 * reading beyond no end and nothing else; what the bits mean is for their codecs. */
#ifndef XCI_BITS_H
#define XCI_BITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

/* The `count` lowest bits, 0 .. 63. */
XCI_BOTH uint64_t xci_low_bits(uint64_t value, uint32_t count) {
    return value & ((UINT64_C(1) << count) - 1);
}

/* ---- Writing ---- */

typedef struct xci_bit_writer {
    uint8_t *at;
    uint64_t held; /* fewer than 8 bits between two calls */
    uint32_t held_bits;
} xci_bit_writer;

XCI_BOTH xci_bit_writer xci_bits_write(uint8_t *at) {
    return (xci_bit_writer){at, 0, 0};
}

/* `value` has no bits beyond `count`, 0 .. 56. Writes 8 bytes, of which the whole ones stay. */
XCI_BOTH void xci_put_bits(xci_bit_writer *writer, uint64_t value, uint32_t count) {
    writer->held |= value << writer->held_bits;
    writer->held_bits += count;
    xci_store64(writer->at, writer->held);
    writer->at += writer->held_bits / 8;
    writer->held >>= writer->held_bits & ~7u; /* at most 7 + 56 bits were held */
    writer->held_bits &= 7;
}

/* Up to 63 bits. */
XCI_BOTH void xci_put_many_bits(xci_bit_writer *writer, uint64_t value, uint32_t count) {
    const uint32_t low = count < 32 ? count : 32;
    xci_put_bits(writer, xci_low_bits(value, low), low);
    xci_put_bits(writer, value >> low, count - low);
}

/* Fills the last byte with ones; the end of the stream. */
XCI_BOTH uint8_t *xci_bits_end(xci_bit_writer *writer) {
    if (writer->held_bits == 0)
        return writer->at;
    *writer->at++ = (uint8_t)(writer->held | 0xffu << writer->held_bits);
    return writer->at;
}

/* ---- Reading ---- */

typedef struct xci_bit_reader {
    const uint8_t *at, *end;
    uint64_t held; /* bits read from the bytes before `at`, and zeros above */
    uint32_t held_bits;
    bool bad; /* something was taken beyond the end; stays */
} xci_bit_reader;

XCI_BOTH xci_bit_reader xci_bits_read(const uint8_t *at, const uint8_t *end) {
    return (xci_bit_reader){at, end, 0, 0, false};
}

/* Holds at least 56 bits, or all that are left. */
XCI_BOTH void xci_hold_bits(xci_bit_reader *reader) {
    if (reader->end - reader->at >= 8) {
        reader->held |= xci_load64(reader->at) << reader->held_bits;
        reader->at += (63 - reader->held_bits) / 8;
        reader->held_bits |= 56;
        reader->held = xci_low_bits(reader->held, reader->held_bits);
        return;
    }
    while (reader->held_bits <= 55 && reader->at < reader->end) {
        reader->held |= (uint64_t)*reader->at++ << reader->held_bits;
        reader->held_bits += 8;
    }
}

XCI_BOTH void xci_drop_bits(xci_bit_reader *reader, uint32_t count) {
    if (count > reader->held_bits) {
        reader->bad = true;
        count = reader->held_bits;
    }
    reader->held = count < 64 ? reader->held >> count : 0;
    reader->held_bits -= count;
}

/* 0 .. 56 bits. */
XCI_BOTH uint64_t xci_take_bits(xci_bit_reader *reader, uint32_t count) {
    if (reader->held_bits < count)
        xci_hold_bits(reader);
    const uint64_t value = xci_low_bits(reader->held, count);
    xci_drop_bits(reader, count);
    return value;
}

/* Up to 63 bits. */
XCI_BOTH uint64_t xci_take_many_bits(xci_bit_reader *reader, uint32_t count) {
    const uint32_t low = count < 32 ? count : 32;
    const uint64_t value = xci_take_bits(reader, low);
    return value | xci_take_bits(reader, count - low) << low;
}

/* Whether nothing is left but the ones that fill the last byte. */
XCI_BOTH bool xci_bits_at_end(xci_bit_reader *reader) {
    return reader->at == reader->end && reader->held_bits < 8 &&
           reader->held == xci_low_bits(UINT64_MAX, reader->held_bits);
}

#endif
