/* Decoder of Snappy blocks from anywhere: every element is checked against input and output
 * before a byte of it is copied. Reads only what it has written. */
#include "codec/snappy_block.h"

#include "codec/copy.h"

typedef struct snappy_element {
    uint32_t length, offset; /* offset 0: literals */
} snappy_element;

/* Little-endian number of `count` bytes, 0 .. 4. */
static uint32_t read_number(xci_reader *reader, uint32_t count) {
    const uint8_t *at = xci_read_bytes(reader, count);
    uint32_t value = 0;
    for (uint32_t i = 0; at != NULL && i < count; ++i)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

/* Sets `bad` in the reader for a copy of offset 0 or a length of 2^32. */
static snappy_element read_element(xci_reader *reader) {
    const uint8_t tag = xci_read8(reader);
    const uint32_t upper = tag >> 2;
    snappy_element element = {upper + 1, 0};
    switch (tag & 3) {
    case 0:
        if (upper >= 60)
            element.length = read_number(reader, upper - 59) + 1;
        reader->bad |= element.length == 0;
        return element;
    case 1:
        element.length = (upper & 7) + 4;
        element.offset = (upper >> 3) << 8 | xci_read8(reader);
        break;
    case 2:
        element.offset = read_number(reader, 2);
        break;
    default:
        element.offset = read_number(reader, 4);
        break;
    }
    reader->bad |= element.offset == 0;
    return element;
}

bool xci_snappy_decode(const uint8_t *block, uint64_t block_bytes, uint8_t *out, uint32_t bytes) {
    xci_reader reader = {block, block + block_bytes, false};
    if (xci_read_varint(&reader) != bytes || reader.bad)
        return false;
    uint32_t produced = 0;
    while (xci_reader_left(&reader) > 0) {
        const snappy_element element = read_element(&reader);
        if (reader.bad || element.length > bytes - produced)
            return false;
        if (element.offset == 0) {
            const uint8_t *literals = xci_read_bytes(&reader, element.length);
            if (literals == NULL)
                return false;
            memcpy(out + produced, literals, element.length);
        } else {
            if (element.offset > produced)
                return false;
            xci_copy_back(out + produced, element.offset, element.length);
        }
        produced += element.length;
    }
    return produced == bytes;
}
