/* Prefix codes and bit streams: what is written is read again, every code is complete and no longer
 * than it may be, and descriptions that lie are refused. Buffers are exact, so that the address
 * sanitizer sees one byte too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "codec/prefix_code.h"
#include "support/exact.h"

#define TEST_SEED 4242
#include "support/random.h"

/* ---- Bits ---- */

static void test_bits(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    static uint64_t values[COUNT];
    static uint32_t counts[COUNT];
    static uint8_t bytes[COUNT * 8 + 16];
    for (uint32_t round = 0; round < 20; round++) {
        xci_bit_writer writer = xci_bits_write(bytes);
        for (uint32_t i = 0; i < COUNT; i++) {
            counts[i] = below(64);
            values[i] = xci_low_bits(next_random(), counts[i]);
            xci_put_many_bits(&writer, values[i], counts[i]);
        }
        const size_t size = (size_t)(xci_bits_end(&writer) - bytes);
        uint8_t *tight = exact_copy(bytes, size);
        xci_bit_reader reader = xci_bits_read(tight, tight + size);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_true(xci_take_many_bits(&reader, counts[i]) == values[i]);
        assert_true(xci_bits_at_end(&reader));
        assert_false(reader.bad);
        assert_int_equal(xci_take_bits(&reader, 8) & 0x80, 0); /* zeros behind the end */
        assert_true(reader.bad);
        free(tight);
    }
}

static void test_end_of_bits(void **state) {
    (void)state;
    static const uint8_t good[] = {0x01, 0xfe}, bad[] = {0x01, 0x7e}, more[] = {0x01, 0xfe, 0xff};
    xci_bit_reader reader = xci_bits_read(good, good + 2);
    assert_int_equal(xci_take_bits(&reader, 9), 1);
    assert_true(xci_bits_at_end(&reader));
    reader = xci_bits_read(bad, bad + 2);
    assert_int_equal(xci_take_bits(&reader, 9), 1);
    assert_false(xci_bits_at_end(&reader));
    reader = xci_bits_read(more, more + 3);
    assert_int_equal(xci_take_bits(&reader, 9), 1);
    assert_false(xci_bits_at_end(&reader)); /* a whole byte of ones is no filling */
}

/* ---- Codes ---- */

static void check_complete(const xci_prefix_code *code, const uint32_t *counts) {
    uint64_t sum = 0;
    for (uint32_t s = 0; s < code->symbol_count; s++) {
        assert_true((code->lengths[s] != 0) == (counts[s] != 0));
        assert_true(code->lengths[s] <= XCI_PREFIX_LONGEST);
        sum += code->lengths[s] != 0 ? (1u << XCI_PREFIX_LONGEST) >> code->lengths[s] : 0;
    }
    assert_int_equal(sum, 1u << XCI_PREFIX_LONGEST);
}

/* Writes the code and symbols of it, reads both. Returns the description's size. */
static uint32_t round_trip(const uint32_t *counts, uint32_t symbol_count, uint8_t *described) {
    enum { COUNT = 500 };
    static xci_prefix_code code;
    static xci_prefix_table table;
    static uint32_t symbols[COUNT];
    uint8_t bytes[COUNT * 2 + 16];
    xci_prefix_build(counts, symbol_count, &code);
    if (!code.single)
        check_complete(&code, counts);
    const uint32_t size = xci_prefix_write(&code, described);
    assert_int_equal(size, xci_prefix_write(&code, NULL));
    assert_true(size <= XCI_PREFIX_BYTES);
    uint8_t *tight = exact_copy(described, size);
    xci_reader reader = {tight, tight + size, false};
    assert_true(xci_prefix_read(&reader, symbol_count, &table));
    assert_int_equal(xci_reader_left(&reader), 0);
    free(tight);
    xci_bit_writer writer = xci_bits_write(bytes);
    for (uint32_t i = 0; i < COUNT; i++) {
        do {
            symbols[i] = below(symbol_count);
        } while (counts[symbols[i]] == 0);
        xci_put_symbol(&writer, &code, symbols[i]);
    }
    const uint8_t *end = xci_bits_end(&writer);
    xci_bit_reader bits = xci_bits_read(bytes, end);
    for (uint32_t i = 0; i < COUNT; i++) {
        xci_hold_bits(&bits);
        assert_int_equal(xci_take_symbol(&bits, &table), symbols[i]);
    }
    assert_true(xci_bits_at_end(&bits) && !bits.bad);
    return size;
}

static void test_codes(void **state) {
    (void)state;
    static uint32_t counts[XCI_PREFIX_SYMBOLS];
    uint8_t described[XCI_PREFIX_BYTES];
    for (uint32_t round = 0; round < 400; round++) {
        const uint32_t symbol_count = 1 + below(XCI_PREFIX_SYMBOLS);
        const uint32_t share = 1 + below(100), shift = below(32);
        memset(counts, 0, sizeof counts);
        counts[below(symbol_count)] = 1;
        for (uint32_t s = 0; s < symbol_count; s++)
            if (below(100) < share)
                counts[s] = (uint32_t)(next_random() >> 33) >> below(shift + 1);
        round_trip(counts, symbol_count, described);
    }
}

/* Fibonacci numbers make the longest codes, powers of two too. */
static void test_long_codes_are_cut(void **state) {
    (void)state;
    uint8_t described[XCI_PREFIX_BYTES];
    uint32_t counts[46] = {1, 1};
    for (uint32_t i = 2; i < 46; i++)
        counts[i] = counts[i - 1] + counts[i - 2];
    round_trip(counts, 46, described);
    for (uint32_t i = 0; i < 32; i++)
        counts[i] = 1u << i;
    round_trip(counts, 32, described);
}

/* A code is as short as Huffman's, where no length is cut: here the lengths are known. */
static void test_lengths_are_shortest(void **state) {
    (void)state;
    static xci_prefix_code code;
    static const uint32_t counts[6] = {45, 13, 12, 16, 9, 5};
    static const uint8_t lengths[6] = {1, 3, 3, 3, 4, 4};
    xci_prefix_build(counts, 6, &code);
    assert_memory_equal(code.lengths, lengths, 6);
    assert_int_equal(xci_prefix_bits(&code, counts), 45 + 3 * 41 + 4 * 14);
}

static bool reads(const uint8_t *bytes, size_t count, uint32_t symbol_count) {
    static xci_prefix_table table;
    uint8_t *tight = exact_copy(bytes, count);
    xci_reader reader = {tight, tight + count, false};
    const bool good = xci_prefix_read(&reader, symbol_count, &table);
    free(tight);
    return good;
}

static void test_descriptions_that_lie(void **state) {
    (void)state;
    static const uint8_t good[] = {0, 0x11};
    static const struct {
        uint8_t bytes[6];
        size_t count;
        uint32_t symbol_count;
    } bad[] = {
        {{2, 0x11}, 2, 2},             /* a mark that does not exist */
        {{0, 0x11}, 2, 1},             /* more symbols than there are */
        {{0, 0x01}, 2, 2},             /* never complete */
        {{0, 0x21, 0x01}, 3, 4},       /* 1, 2, 1: more than complete */
        {{0, 0x1f, 0x01}, 3, 1024},    /* repeats the length before the first */
        {{0, 0x0d, 0x1f, 0x00}, 4, 9}, /* repeats one that is not used */
        {{0, 0xfe, 0xff, 0x11}, 4, 9}, /* skips beyond the last symbol */
        {{1, 9}, 2, 9},                /* the only symbol does not exist */
        {{1, 0x80, 0}, 3, 9},          /* a number that is not in its shortest form */
        {{0, 0x21, 0x12}, 3, 4},       /* the nibble that fills up is not 0 */
    };
    assert_true(reads(good, 2, 2));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(reads(bad[i].bytes, bad[i].count, bad[i].symbol_count));
}

/* Cut anywhere a description is refused; changed anywhere it is refused or another complete
 * code. */
static void test_damaged_descriptions(void **state) {
    (void)state;
    static uint32_t counts[300];
    uint8_t described[XCI_PREFIX_BYTES];
    for (uint32_t s = 0; s < 300; s++)
        counts[s] = below(3) == 0 ? 1 + below(1000) : 0;
    const uint32_t size = round_trip(counts, 300, described);
    for (uint32_t cut = 0; cut < size; cut++)
        assert_false(reads(described, cut, 300));
    for (uint32_t i = 0; i < 20000; i++) {
        uint8_t copy[XCI_PREFIX_BYTES];
        memcpy(copy, described, size);
        for (uint32_t flips = 1 + below(4); flips > 0; flips--)
            copy[below(size)] ^= (uint8_t)(1u << below(8));
        (void)reads(copy, size, 300);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_end_of_bits),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_long_codes_are_cut),
        cmocka_unit_test(test_lengths_are_shortest),
        cmocka_unit_test(test_descriptions_that_lie),
        cmocka_unit_test(test_damaged_descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
