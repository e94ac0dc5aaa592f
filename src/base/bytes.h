/* Little-endian loads and stores, varints and checked arithmetic. A varint is LEB128: seven bits a
 * byte, lowest first, at most ten bytes, and the shortest form only. */
#ifndef XCI_BYTES_H
#define XCI_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/both.h"

XCI_BOTH uint16_t xci_load16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
XCI_BOTH uint32_t xci_load32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
XCI_BOTH uint64_t xci_load64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
XCI_BOTH void xci_store16(void *p, uint16_t v) {
    memcpy(p, &v, sizeof v);
}
XCI_BOTH void xci_store32(void *p, uint32_t v) {
    memcpy(p, &v, sizeof v);
}
XCI_BOTH void xci_store64(void *p, uint64_t v) {
    memcpy(p, &v, sizeof v);
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "xorcast runs on little-endian machines only: weights are shipped as they lie in memory"
#endif

#define XCI_VARINT_BYTES 10

/* Writes at most XCI_VARINT_BYTES, returns how many. */
XCI_BOTH unsigned xci_varint_put(uint8_t *out, uint64_t value) {
    unsigned n = 0;
    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    return n;
}

/* A cursor over foreign bytes. Every read is bounded; after the first failure `bad` stays set and
 * every read gives 0, so that a parser may check once after a block of reads. */
typedef struct xci_reader {
    const uint8_t *at, *end;
    bool bad;
} xci_reader;

XCI_BOTH uint64_t xci_reader_left(const xci_reader *r) {
    return (uint64_t)(r->end - r->at);
}

XCI_BOTH const uint8_t *xci_read_bytes(xci_reader *r, uint64_t count) {
    if (r->bad || count > xci_reader_left(r)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += count;
    return p;
}
XCI_BOTH uint8_t xci_read8(xci_reader *r) {
    const uint8_t *p = xci_read_bytes(r, 1);
    return p ? *p : 0;
}
static inline uint32_t xci_read32(xci_reader *r) {
    const uint8_t *p = xci_read_bytes(r, 4);
    return p ? xci_load32(p) : 0;
}
static inline uint64_t xci_read64(xci_reader *r) {
    const uint8_t *p = xci_read_bytes(r, 8);
    return p ? xci_load64(p) : 0;
}

XCI_BOTH uint64_t xci_read_varint(xci_reader *r) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        const uint8_t byte = xci_read8(r);
        if (r->bad || (shift == 63 && byte > 1) || (shift > 0 && byte == 0))
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    r->bad = true;
    return 0;
}

/* true and the result, or false on overflow. */
static inline bool xci_add(uint64_t a, uint64_t b, uint64_t *sum_out) {
    return !__builtin_add_overflow(a, b, sum_out);
}
static inline bool xci_multiply(uint64_t a, uint64_t b, uint64_t *product_out) {
    return !__builtin_mul_overflow(a, b, product_out);
}

XCI_BOTH uint64_t xci_min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
XCI_BOTH uint64_t xci_max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
XCI_BOTH uint64_t xci_round_up(uint64_t value, uint64_t power_of_two) {
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}
XCI_BOTH uint64_t xci_divide_up(uint64_t value, uint64_t by) {
    return value / by + (value % by != 0);
}

/* bytes ^= mask. A function of its own: where a byte that is stored might be part of a pointer or
 * of the count, as in a loop over members of a struct, compilers use no vectors. */
static inline void xci_xor_into(uint8_t *bytes, const uint8_t *mask, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        bytes[i] ^= mask[i];
}

#endif
