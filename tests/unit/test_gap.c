/* The gap codec, group by group: what the backend lists becomes a record, plain or for receivers
 * that hold the old weights, and each block of it becomes its mask again. Sizes are held against
 * the entropy of what was encoded. Buffers are exact, so that the address sanitizer sees one
 * byte too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "delta/gap_group_writer.h"
#include "delta/group_reader.h"

#define TEST_SEED 990017
#include "support/random.h"

#define CHUNKS 24u
#define CHUNK_BYTES 65536u

static xorcast_context *context;

static int set_up(void **state) {
    (void)state;
    return xorcast_context_create(NULL, &context) == XORCAST_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    xorcast_context_destroy(context);
    return 0;
}

/* ---- A group ---- */

typedef struct group {
    uint32_t count, sizes[CHUNKS], element_bytes[CHUNKS];
    uint8_t *old[CHUNKS], *new[CHUNKS];
} group;

static void group_add(group *g, uint32_t bytes, uint32_t element_bytes) {
    uint8_t *old = malloc(bytes), *new = malloc(bytes);
    assert_non_null(old);
    assert_non_null(new);
    for (uint32_t i = 0; i < bytes; i++)
        old[i] = (uint8_t)next_random();
    memcpy(new, old, bytes);
    g->sizes[g->count] = bytes;
    g->element_bytes[g->count] = element_bytes;
    g->old[g->count] = old;
    g->new[g->count++] = new;
}

static void group_free(group *g) {
    for (uint32_t i = 0; i < g->count; i++) {
        free(g->old[i]);
        free(g->new[i]);
    }
    g->count = 0;
}

/* Changes one bit, and elements of a width with a density of so many thousandths. */
static void change(group *g, uint32_t c, uint32_t bits, uint32_t thousandths, uint64_t most) {
    const uint32_t count = (uint32_t)((uint64_t)g->sizes[c] * 8 / bits);
    g->new[c][below(g->sizes[c])] ^= (uint8_t)(1u << below(8));
    for (uint32_t i = 0; i < count; i++) {
        if (below(1000) >= thousandths)
            continue;
        uint64_t value = 1 + next_random() % most;
        value = bits < 64 ? value & ((UINT64_C(1) << bits) - 1) : value;
        if (bits == 4)
            g->new[c][i / 2] ^= (uint8_t)((value == 0 ? 1 : value) << i % 2 * 4);
        for (uint32_t b = 0; bits > 4 && b < bits / 8; b++)
            g->new[c][i * (bits / 8) + b] ^= (uint8_t)(value >> 8 * b);
    }
    if (memcmp(g->old[c], g->new[c], g->sizes[c]) == 0)
        g->new[c][0] ^= 1;
}

/* A record as it travels, head and payload. */
typedef struct encoded {
    uint8_t *bytes;
    uint64_t count;
} encoded;

static encoded encode(group *g, bool knows_old) {
    static xci_block blocks[CHUNKS];
    const uint8_t *old[CHUNKS];
    xci_gap_group_writer *writer;
    xci_record record = {.group = 3, .blocks = blocks};
    uint8_t *payload = malloc((size_t)CHUNKS * (CHUNK_BYTES + XCI_BLOCK_SLACK)), *at = payload;
    assert_non_null(payload);
    for (uint32_t c = 0; c < g->count; c++) {
        xci_encode_job job = {.old_bytes = g->old[c],
                              .new_bytes = g->new[c],
                              .bytes = g->sizes[c],
                              .element_bytes = g->element_bytes[c],
                              .codec = XORCAST_CODEC_GAP,
                              .block = at};
        xci_backend_cpu.encode(&job, 1);
        if (job.block_bytes == 0)
            continue;
        at += job.block_bytes;
        old[record.block_count] = g->old[c];
        blocks[record.block_count++] =
            (xci_block){c, job.block_codec, job.element_bytes, job.block_bytes, job.bytes};
    }
    record.payload = payload;
    record.raw_bytes = (uint64_t)(at - payload);
    assert_int_equal(xci_gap_group_writer_open(context, &writer), XORCAST_OK);
    for (uint32_t twice = 0; twice < 2; twice++) { /* nothing is left over from another group */
        xci_record copy;
        assert_int_equal(
            xci_gap_group_write(context, writer, &record, knows_old ? old : NULL, NULL, &copy),
            XORCAST_OK);
        if (twice == 0)
            continue;
        copy.stored_bytes = copy.raw_bytes;
        encoded e = {malloc(xci_record_head_bound(copy.block_count) + copy.raw_bytes), 0};
        assert_non_null(e.bytes);
        e.count = xci_record_write_head(&copy, e.bytes);
        memcpy(e.bytes + e.count, copy.payload, copy.raw_bytes);
        e.count += copy.raw_bytes;
        xci_gap_group_writer_close(context, writer);
        free(payload);
        return e;
    }
    return (encoded){NULL, 0};
}

static xorcast_status read_record(const encoded *e, xci_record_space *space, xci_record *record) {
    const xci_record_limits limits = {10, CHUNK_BYTES, (uint64_t)CHUNKS * CHUNK_BYTES * 2};
    xci_reader reader = {e->bytes, e->bytes + e->count, false};
    space->used = 0;
    return xci_record_read(context, &reader, &limits, space, record);
}

/* Every block gives the mask of its chunk, or is refused if it needs what is not at hand. */
static void check_blocks(const group *g, const xci_group_reader *reader, const xci_record *record,
                         const uint8_t *payload, bool knows_old) {
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        const uint32_t c = block->chunk, n = g->sizes[c];
        uint8_t *mask = malloc(n), *tight = malloc(block->bytes + 1);
        assert_non_null(mask);
        assert_non_null(tight);
        memcpy(tight, payload, block->bytes);
        tight = realloc(tight, block->bytes > 0 ? block->bytes : 1);
        if (knows_old && block->codec == XORCAST_CODEC_GAP)
            assert_int_equal(xci_block_decode(reader, XCI_NOWHERE, record, i, tight, NULL, mask, n),
                             XORCAST_UNSUPPORTED);
        assert_int_equal(xci_block_decode(reader, XCI_NOWHERE, record, i, tight,
                                          knows_old ? g->old[c] : NULL, mask, n),
                         XORCAST_OK);
        for (uint32_t b = 0; b < n; b++)
            assert_int_equal(mask[b], g->old[c][b] ^ g->new[c][b]);
        assert_int_equal(xci_block_decode(reader, XCI_NOWHERE, record, i, tight,
                                          knows_old ? g->old[c] : NULL, mask, n - 1),
                         XORCAST_DATA_CORRUPT);
        payload += block->bytes;
        free(tight);
        free(mask);
    }
}

/* Encodes and decodes; returns the record's bytes. */
static uint64_t round_trip(group *g, bool knows_old) {
    encoded e = encode(g, knows_old), again = encode(g, knows_old);
    assert_int_equal(e.count, again.count);
    assert_memory_equal(e.bytes, again.bytes, e.count);
    xci_record_space space = {0};
    xci_record record;
    xci_group_reader reader;
    const uint8_t *payload;
    xci_group_reader_open(&reader, context);
    assert_int_equal(read_record(&e, &space, &record), XORCAST_OK);
    assert_int_equal(xci_group_read(&reader, XCI_NOWHERE, &record, &payload), XORCAST_OK);
    check_blocks(g, &reader, &record, payload, knows_old);
    xci_group_reader_close(&reader);
    xci_record_space_free(context, &space);
    free(again.bytes);
    free(e.bytes);
    return e.count;
}

/* ---- Round trips ---- */

static const uint32_t widths[] = {4, 8, 16, 32, 64};
static const uint32_t densities[] = {0, 1, 14, 170, 500, 1000};
static const uint64_t mosts[] = {1, 14, 700, UINT64_MAX};

/* One group for each width and density, of chunks of odd sizes too. */
static void test_widths_and_densities(void **state) {
    (void)state;
    for (uint32_t w = 0; w < 5; w++)
        for (uint32_t d = 0; d < 6; d++)
            for (uint32_t v = 0; v < 4; v++) {
                group g = {0};
                for (uint32_t c = 0; c < 3; c++) {
                    group_add(&g, c == 0 ? CHUNK_BYTES / 4 : 1 + below(9000), 1u << below(4));
                    change(&g, c, widths[w], densities[d], mosts[v]);
                }
                round_trip(&g, false);
                round_trip(&g, true);
                group_free(&g);
            }
}

static void test_lengths(void **state) {
    (void)state;
    for (uint32_t n = 1; n < 40; n++)
        for (uint32_t d = 0; d < 6; d++) {
            group g = {0};
            const uint32_t element_bytes = 1u << below(4), width = widths[below(5)];
            group_add(&g, n, element_bytes);
            change(&g, 0, width, densities[d], mosts[below(4)]);
            if (below(2) == 0) { /* company, so that a group of one small chunk is not raw */
                group_add(&g, CHUNK_BYTES, element_bytes);
                change(&g, 1, width, densities[d], mosts[below(4)]);
            }
            round_trip(&g, false);
            round_trip(&g, true);
            group_free(&g);
        }
}

/* Chunks of all kinds side by side: sparse and dense, all dtypes, unchanged ones. */
static void test_mixed_groups(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        group g = {0};
        const uint32_t count = 1 + below(CHUNKS);
        for (uint32_t c = 0; c < count; c++) {
            group_add(&g, below(3) == 0 ? CHUNK_BYTES : 1 + below(5000), 1u << below(4));
            if (below(5) > 0)
                change(&g, c, widths[below(5)], densities[below(6)], mosts[below(4)]);
        }
        g.new[0][0] ^= 1;
        round_trip(&g, false);
        round_trip(&g, true);
        group_free(&g);
    }
}

/* Changes at both ends of a chunk, and gaps far longer than those before. */
static void test_far_apart(void **state) {
    (void)state;
    for (uint32_t w = 0; w < 5; w++) {
        group g = {0};
        group_add(&g, CHUNK_BYTES, 1);
        for (uint32_t i = 0; i < 200; i++)
            g.new[0][i] ^= (uint8_t)(1 + i);
        g.new[0][CHUNK_BYTES - 1] ^= 0x80;
        g.new[0][CHUNK_BYTES / 2] ^= 0x10;
        group_add(&g, CHUNK_BYTES, 1u << below(4));
        g.new[1][CHUNK_BYTES - 1] ^= 1;
        round_trip(&g, false);
        round_trip(&g, true);
        group_free(&g);
    }
}

/* Every 16-bit pattern steps to its neighbours and to itself with the sign turned: zeros of both
 * signs, infinities and NaN are numbers like others. */
static void test_every_pattern(void **state) {
    (void)state;
    static const uint16_t changes[] = {1, 0x8000, 0xffff, 0x7fff};
    for (uint32_t v = 0; v < 4; v++) {
        group g = {0};
        for (uint32_t c = 0; c < 2; c++) {
            group_add(&g, CHUNK_BYTES, 2);
            for (uint32_t i = 0; i < CHUNK_BYTES / 2; i++) {
                xci_store16(g.old[c] + 2 * i, (uint16_t)(i + c * 32768));
                xci_store16(g.new[c] + 2 * i, (uint16_t)((i + c * 32768) ^ changes[v]));
            }
        }
        round_trip(&g, false);
        round_trip(&g, true);
        group_free(&g);
    }
}

/* ---- Sizes ---- */

static double entropy(const double *counts, uint32_t count) {
    double total = 0, bits = 0;
    for (uint32_t i = 0; i < count; i++)
        total += counts[i];
    for (uint32_t i = 0; i < count; i++)
        bits += counts[i] > 0 ? counts[i] * log2(total / counts[i]) : 0;
    return bits;
}

/* Bytes that positions and XOR values of a group's 16-bit elements take at least. */
static double bound_of(const group *g) {
    static double values[65536];
    double places[2] = {0, 0};
    memset(values, 0, sizeof values);
    for (uint32_t c = 0; c < g->count; c++)
        for (uint32_t i = 0; i + 1 < g->sizes[c]; i += 2) {
            const uint16_t v = xci_load16(g->old[c] + i) ^ xci_load16(g->new[c] + i);
            places[v != 0]++;
            values[v] += v != 0;
        }
    return (entropy(places, 2) + entropy(values, 65536)) / 8;
}

/* Steps of the last place, as optimizers make them. */
static void step_elements(group *g, uint32_t c, uint32_t millionths) {
    for (uint32_t i = 0; i < g->sizes[c] / 2; i++) {
        uint8_t *at = g->new[c] + 2 * (size_t)i;
        if (below(1000000) < millionths)
            xci_store16(at, (uint16_t)(xci_load16(at) +
                                       (below(2) == 0 ? 1 : -1) * (below(10) == 0 ? 2 : 1)));
    }
}

static void test_size_is_near_the_bound(void **state) {
    (void)state;
    static const uint32_t millionths[] = {100, 1300, 14000, 170000, 500000, 1000000};
    for (uint32_t d = 0; d < 6; d++) {
        group g = {0};
        for (uint32_t c = 0; c < CHUNKS; c++) {
            group_add(&g, CHUNK_BYTES, 2);
            step_elements(&g, c, millionths[d]);
        }
        const double bound = bound_of(&g);
        const uint64_t plain = round_trip(&g, false);
        print_message("%u in a million: %llu bytes, bound %.0f\n", millionths[d],
                      (unsigned long long)plain, bound);
        assert_true((double)plain <= 1.05 * bound + 256 + g.count);
        group_free(&g);
    }
}

/* Numbers round 1 in BF16 that change the more often the smaller they are, by one step. */
static void test_old_weights_help(void **state) {
    (void)state;
    group g = {0};
    for (uint32_t c = 0; c < CHUNKS; c++) {
        group_add(&g, CHUNK_BYTES, 2);
        for (uint32_t i = 0; i < CHUNK_BYTES / 2; i++) {
            const uint32_t low = below(8);
            const uint16_t old = (uint16_t)(below(2) << 15 | (127 - low) << 7 | below(128));
            xci_store16(g.old[c] + 2 * i, old);
            xci_store16(g.new[c] + 2 * i, old);
            if (below(100000) < 20u << low)
                xci_store16(g.new[c] + 2 * i, (uint16_t)(old + (below(2) == 0 ? 1 : -1)));
        }
    }
    const uint64_t plain = round_trip(&g, false), knows_old = round_trip(&g, true);
    print_message("plain %llu, with old weights %llu\n", (unsigned long long)plain,
                  (unsigned long long)knows_old);
    assert_true(knows_old < plain * 17 / 20);
    group_free(&g);
}

/* Chunks of a dtype that change everywhere, beside others that hardly change, as packed numbers and
 * their scales may: each sort says what width it wants. */
static void test_thick_beside_thin(void **state) {
    (void)state;
    static const uint8_t values[] = {0x01, 0x01, 0x10, 0x10, 0x03, 0x30, 0x07, 0x70};
    group g = {0};
    for (uint32_t c = 0; c < CHUNKS; c++) {
        group_add(&g, CHUNK_BYTES, 1);
        for (uint32_t i = 0; i < CHUNK_BYTES && c % 3 == 0; i++)
            g.new[c][i] ^= values[below(8)];
        if (c % 3 != 0)
            g.new[c][100 * c] ^= 1;
    }
    /* 2.5 bits of each byte of a third of them */
    assert_true(round_trip(&g, false) < CHUNKS / 3 * (CHUNK_BYTES / 8 * 5 / 2) * 101 / 100);
    group_free(&g);
}

/* What is not smaller is raw, and costs no more than raw. */
static void test_noise_is_raw(void **state) {
    (void)state;
    group g = {0};
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < 4; c++) {
        group_add(&g, CHUNK_BYTES, 1u << c);
        change(&g, c, 8, 1000, UINT64_MAX);
        bytes += CHUNK_BYTES;
    }
    assert_true(round_trip(&g, false) < bytes + 64);
    assert_true(round_trip(&g, true) < bytes + 64);
    group_free(&g);
}

/* ---- Damage ---- */

/* Whatever the bytes of parameters and blocks: refused, or some mask; never more than the chunk.
 * The checksum is renewed, so that it does not hide the readers. */
static void damage(const encoded *e, const group *g, bool knows_old) {
    xci_record_space space = {0};
    xci_record record;
    xci_group_reader reader;
    xci_group_reader_open(&reader, context);
    assert_int_equal(read_record(e, &space, &record), XORCAST_OK);
    uint8_t *copy = malloc(record.raw_bytes), *mask = malloc(CHUNK_BYTES);
    assert_non_null(copy);
    assert_non_null(mask);
    uint32_t refused = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        const uint8_t *payload;
        memcpy(copy, e->bytes + e->count - record.raw_bytes, record.raw_bytes);
        const uint64_t from = below(2) == 0 ? record.raw_bytes - record.params_bytes : 0;
        for (uint32_t flips = 1 + below(3); flips > 0; flips--)
            copy[from + below((uint32_t)(record.raw_bytes - from))] ^= (uint8_t)(1u << below(8));
        xci_record changed = record;
        changed.payload = copy;
        if (xci_group_read(&reader, XCI_NOWHERE, &changed, &payload) != XORCAST_OK) {
            refused++;
            continue;
        }
        for (uint32_t i = 0; i < changed.block_count; i++) {
            const uint32_t c = changed.blocks[i].chunk;
            const xorcast_status status =
                xci_block_decode(&reader, XCI_NOWHERE, &changed, i, payload,
                                 knows_old ? g->old[c] : NULL, mask, g->sizes[c]);
            refused += status != XORCAST_OK;
            payload += changed.blocks[i].bytes;
        }
    }
    assert_true(refused > 1000);
    free(mask);
    free(copy);
    xci_group_reader_close(&reader);
    xci_record_space_free(context, &space);
}

static void test_damage(void **state) {
    (void)state;
    for (uint32_t d = 0; d < 6; d++) {
        group g = {0};
        for (uint32_t c = 0; c < 3; c++) {
            group_add(&g, 3000 + c, 2);
            change(&g, c, 16, densities[d], 3);
        }
        for (uint32_t knows_old = 0; knows_old < 2; knows_old++) {
            encoded e = encode(&g, knows_old != 0);
            damage(&e, &g, knows_old != 0);
            free(e.bytes);
        }
        group_free(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths_and_densities), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_mixed_groups),         cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_every_pattern),        cmocka_unit_test(test_size_is_near_the_bound),
        cmocka_unit_test(test_old_weights_help),     cmocka_unit_test(test_thick_beside_thin),
        cmocka_unit_test(test_noise_is_raw),         cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
