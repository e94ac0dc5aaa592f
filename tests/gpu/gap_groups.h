/* Groups of chunks, old and new, for tests of the gap codec on a device: widths, lengths and shares
 * of changes at random, changes that depend on the old weights as real ones do; and what the CPU
 * makes of a group. */
#ifndef XCI_TEST_GAP_GROUPS_H
#define XCI_TEST_GAP_GROUPS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "codec/gap_elements.h"
#include "delta/auto_group_writer.h"
#include "delta/group_reader.h"
#include "support/masks.h"

#define GAP_CHUNKS 64u

typedef struct gap_chunk {
    uint32_t bytes, element_bytes;
    uint8_t *old_bytes, *new_bytes, *block;
    xci_segment segments[2];
    uint32_t segment_count;
    xci_encode_job job; /* what the backend lists */
} gap_chunk;

typedef struct gap_made {
    uint32_t count;
    gap_chunk chunks[GAP_CHUNKS];
    /* by the CPU */
    xci_record record;
    xci_block blocks[GAP_CHUNKS]; /* of changed chunks */
    uint8_t *payload;             /* blocks, then parameters */
} gap_made;

static mask_seed gap_seed = {20260729};

static void gap_fail(const char *what, uint64_t detail) {
    fprintf(stderr, "test_cuda_gap: %s (%llu)\n", what, (unsigned long long)detail);
    exit(1);
}

static void *gap_memory(size_t bytes) {
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL)
        gap_fail("out of memory", bytes);
    return memory;
}

/* An element like a weight: some keys are more frequent, and some change more often. */
static uint64_t gap_weight(uint32_t bits, uint32_t *rarity_out) {
    const uint64_t random =
        (uint64_t)mask_random(&gap_seed, 1u << 31) << 31 | mask_random(&gap_seed, 1u << 31);
    uint32_t below = 0;
    while (below < 12 && mask_random(&gap_seed, 3) != 0)
        below++;
    *rarity_out = below;
    const uint64_t all = random | random << 62;
    if (bits <= 8)
        return bits == 4 ? (all & 8) | (below < 7 ? below : 7) : (all & 0x87) | below << 3;
    const uint32_t exponent = 120 - below;
    const uint64_t top = (uint64_t)mask_random(&gap_seed, 2) << 8 | exponent;
    return (all & (UINT64_MAX >> (64 - bits)) >> 9) | top << (bits - 9);
}

/* Old elements of `bits` bits, of which about `share` in 100000 change, mostly by one step. */
static void gap_fill(gap_chunk *c, uint32_t width, uint32_t share) {
    const uint32_t bits = 4u << width, count = xci_gap_element_count(width, c->bytes);
    const uint32_t most = mask_random(&gap_seed, 4) == 0 ? bits : 2;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rarity;
        const uint64_t element = gap_weight(bits, &rarity);
        const uint32_t chance = share >= 50000 ? share : share * (rarity + 1) / 3;
        uint64_t value = 0;
        if (mask_random(&gap_seed, 100000) < chance) {
            const uint32_t used = 1 + mask_random(&gap_seed, most);
            value = mask_random(&gap_seed, 1u << 31) | (uint64_t)mask_random(&gap_seed, 1u << 31)
                                                           << 31;
            value = (value & UINT64_MAX >> (64 - used)) | 1;
        }
        (void)xci_gap_change(c->old_bytes, c->bytes, width, i, element);
        (void)xci_gap_change(c->new_bytes, c->bytes, width, i,
                             element ^ (element ^ xci_gap_stepped(element, value, width)));
    }
    for (uint32_t i = 0; i < c->bytes && width > 1; i++)
        if (i >= c->bytes / (bits / 8) * (bits / 8)) /* what is cut off was not written */
            c->old_bytes[i] = c->new_bytes[i] = (uint8_t)mask_random(&gap_seed, 256);
}

static void gap_list(gap_chunk *c) {
    c->job = (xci_encode_job){.old_bytes = c->old_bytes,
                              .new_bytes = c->new_bytes,
                              .bytes = c->bytes,
                              .element_bytes = c->element_bytes,
                              .codec = XORCAST_CODEC_GAP,
                              .segment_count = c->segment_count,
                              .segments = c->segments,
                              .block = c->block};
    xci_backend_cpu.encode(&c->job, 1);
}

static void gap_add(gap_made *made, uint32_t bytes, uint32_t element_bytes, uint32_t width,
                    uint32_t share, unsigned pattern) {
    gap_chunk *c = &made->chunks[made->count++];
    memset(c, 0, sizeof *c);
    c->bytes = bytes;
    c->element_bytes = element_bytes;
    c->old_bytes = gap_memory(bytes);
    c->new_bytes = gap_memory(bytes);
    c->block = gap_memory(bytes + XCI_BLOCK_SLACK);
    if (pattern == MASK_NOTHING) {
        gap_fill(c, width, share);
    } else {
        mask_make(&gap_seed, pattern, c->new_bytes, bytes);
        for (uint32_t i = 0; i < bytes; i++) {
            c->old_bytes[i] = (uint8_t)mask_random(&gap_seed, 256);
            c->new_bytes[i] ^= c->old_bytes[i];
        }
    }
    const uint32_t kind = mask_random(&gap_seed, 6), half = bytes / 16 * 8;
    c->segments[0] = (xci_segment){0, bytes, gap_seed.state};
    c->segment_count = kind != 0;
    if (kind == 1 && half != 0) {
        c->segments[0].bytes = half;
        c->segments[1] = (xci_segment){half, bytes - half, gap_seed.state ^ 77};
        c->segment_count = 2;
    }
    gap_list(c);
}

/* Chunks of one dtype, or of two; sparse, dense, and what some pattern gives. */
static void gap_make(gap_made *made, uint32_t count, uint32_t most_bytes) {
    static const uint32_t shares[] = {0,     3,     20,    200,   1300,  3000,
                                      17000, 45000, 55000, 90000, 100000};
    const uint32_t kinds = 1 + mask_random(&gap_seed, 2);
    const uint32_t base = mask_random(&gap_seed, 11), spread = 1 + mask_random(&gap_seed, 3);
    uint32_t widths[2], elements[2];
    for (uint32_t k = 0; k < 2; k++) {
        widths[k] = mask_random(&gap_seed, 5);
        elements[k] = widths[k] == 0 ? 1 : 1u << (widths[k] - 1);
    }
    memset(made, 0, sizeof *made);
    const bool patterns = mask_random(&gap_seed, 4) == 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t k = mask_random(&gap_seed, kinds);
        uint32_t bytes = most_bytes;
        if (mask_random(&gap_seed, 4) == 0)
            bytes = 1 + mask_random(&gap_seed, most_bytes);
        const uint32_t share = (base + mask_random(&gap_seed, spread)) % 11;
        gap_add(made, bytes, elements[k], widths[k], shares[share],
                patterns ? mask_random(&gap_seed, MASK_PATTERNS) : MASK_NOTHING);
    }
}

typedef struct gap_writers {
    xorcast_context *context;
    xci_gap_group_writer *gap;
    xci_auto_group_writer *choice; /* in use if it is not NULL */
} gap_writers;

/* `prices` NULL: in the gap codec alone. */
static gap_writers gap_open(const xci_prices *prices) {
    gap_writers writers = {0};
    if (xorcast_context_create(NULL, &writers.context) < 0 ||
        xci_gap_group_writer_open(writers.context, &writers.gap) < 0 ||
        (prices != NULL &&
         xci_auto_group_writer_open(writers.context, prices, &writers.choice) < 0))
        gap_fail("no context", 0);
    return writers;
}

static void gap_close(const gap_writers *writers) {
    xci_gap_group_writer_close(writers->context, writers->gap);
    xci_auto_group_writer_close(writers->context, writers->choice);
    xorcast_context_destroy(writers->context);
}

/* Lets the CPU encode the group; with `beside`, beside the old weights. */
static void gap_encode(const gap_writers *writers, gap_made *made, bool beside) {
    const uint8_t *old[GAP_CHUNKS];
    xci_record listed = {.blocks = made->blocks}, record;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < made->count; i++)
        bytes += made->chunks[i].job.block_bytes;
    uint8_t *lists = gap_memory(bytes), *at = lists;
    for (uint32_t i = 0; i < made->count; i++) {
        const gap_chunk *c = &made->chunks[i];
        if (c->job.block_bytes == 0)
            continue;
        old[listed.block_count] = c->old_bytes;
        made->blocks[listed.block_count++] =
            (xci_block){i, c->job.block_codec, c->element_bytes, c->job.block_bytes, c->bytes};
        memcpy(at, c->block, c->job.block_bytes);
        at += c->job.block_bytes;
    }
    listed.payload = lists;
    listed.raw_bytes = bytes;
    free(made->payload);
    made->payload = NULL;
    made->record = listed;
    if (listed.block_count > 0) {
        const uint8_t *const *known = beside ? old : NULL;
        if ((writers->choice != NULL
                 ? xci_auto_group_mix(writers->context, writers->choice, &listed, known, &record)
                 : xci_gap_group_write(writers->context, writers->gap, &listed, known, NULL,
                                       &record)) < 0)
            gap_fail("the CPU did not encode", 0);
        made->payload = gap_memory(record.raw_bytes);
        memcpy(made->payload, record.payload, record.raw_bytes);
        memcpy(made->blocks, record.blocks, record.block_count * sizeof *record.blocks);
        made->record = record;
        made->record.blocks = made->blocks;
        made->record.payload = made->payload;
    }
    free(lists);
}

static void gap_free(gap_made *made) {
    for (uint32_t i = 0; i < made->count; i++) {
        free(made->chunks[i].old_bytes);
        free(made->chunks[i].new_bytes);
        free(made->chunks[i].block);
    }
    free(made->payload);
    memset(made, 0, sizeof *made);
}

#endif
