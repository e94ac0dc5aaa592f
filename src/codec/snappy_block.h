/* The Snappy block format: its tags, the writing of the few forms that we make, and a bounded
 * decoder of all forms. Does not own which bytes become copies (backend/cpu/cpu_writer.h).
 *
 *     block   = varint of the decoded size, element...
 *     element = literal: tag 00, length - 1 in the upper bits, or 60 .. 63 and 1 .. 4 bytes of it
 *             | copy:    tag 01, length 4 .. 11, offset of 11 bits, 2 bytes in all
 *             | copy:    tag 10, length 1 .. 64, offset of 16 bits, 3 bytes in all
 *             | copy:    tag 11, length 1 .. 64, offset of 32 bits, 5 bytes in all */
#ifndef XCI_SNAPPY_BLOCK_H
#define XCI_SNAPPY_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define XCI_SNAPPY_LONGEST_COPY 64u

/* Decodes a block whose size preamble must be `bytes`. False: damaged; `out` then holds rubbish. */
bool xci_snappy_decode(const uint8_t *block, uint64_t block_bytes, uint8_t *out, uint32_t bytes);

/* The tag of `length` literals, 1 .. 2^24; at most four bytes. */
XCI_BOTH uint8_t *xci_snappy_put_literal(uint8_t *at, uint32_t length) {
    const uint32_t code = length - 1;
    if (code < 60) {
        *at++ = (uint8_t)(code << 2);
        return at;
    }
    const uint32_t extra = code < 0x100 ? 1 : code < 0x10000 ? 2 : 3;
    *at++ = (uint8_t)((59 + extra) << 2);
    for (uint32_t i = 0; i < extra; ++i)
        *at++ = (uint8_t)(code >> (8 * i));
    return at;
}

/* A copy of offset 1, 1 .. 64 long. */
XCI_BOTH uint8_t *xci_snappy_put_zeros(uint8_t *at, uint32_t length) {
    if (length >= 4 && length <= 11) {
        *at++ = (uint8_t)((length - 4) << 2 | 1);
        *at++ = 1;
        return at;
    }
    *at++ = (uint8_t)((length - 1) << 2 | 2);
    xci_store16(at, 1);
    return at + 2;
}

#endif
