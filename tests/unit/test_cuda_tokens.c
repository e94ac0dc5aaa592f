/* The walk over tokens that the CUDA backend's threads make, played on the host one thread after
 * the other: accepts the same blocks as the CPU backend's check and finds the words of the mask,
 * each once and rising, for groups of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "backend/cuda/cuda_tokens.cuh"
#include "support/masks.h"

#define LARGEST (64u << 10)
#define BEHIND 16u /* bytes behind a block that the walk may read */

static mask_seed seed = {20240611};

typedef struct fixture {
    uint8_t mask[LARGEST], found[LARGEST + 8], block[2 * LARGEST];
} fixture;

static bool accepted_by_cpu(const uint8_t *block, uint32_t size, uint32_t n) {
    xci_block_job job = {.block = block,
                         .block_bytes = size,
                         .block_codec = XORCAST_CODEC_LZ4,
                         .bytes = n,
                         .element_bytes = 1};
    xci_backend_cpu.check(&job, 1);
    return job.status == XORCAST_OK;
}

/* Thread `lane` of `group` notes its words in `found`; true if the block is good. */
static bool play(const uint8_t *block, uint32_t size, uint32_t n, uint32_t lane, uint32_t group,
                 uint8_t *found) {
    xci_cuda_walk walk = xci_cuda_walk_begin(block, size, n);
    xci_cuda_item item;
    int64_t last = -1;
    for (uint32_t count; (count = xci_cuda_take(&walk, lane, group, &item)) != 0;) {
        assert_true(count <= group);
        if (lane >= count)
            continue;
        assert_true((int64_t)item.word > last);
        assert_true((uint64_t)item.word * 8 < n);
        last = item.word;
        xci_store64(found + (size_t)item.word * 8,
                    xci_load64(found + (size_t)item.word * 8) ^ item.mask);
    }
    return walk.state == XCI_LZ4_DONE;
}

/* A copy with no more room behind it than the walk may read, for the address sanitizer. */
static bool walked(fixture *f, const uint8_t *block, uint32_t size, uint32_t n, uint32_t group) {
    uint8_t *tight = malloc(size + BEHIND);
    assert_non_null(tight);
    memcpy(tight, block, size);
    memset(tight + size, (int)mask_random(&seed, 256), BEHIND);
    memset(f->found, 0, sizeof f->found);
    const bool good = play(tight, size, n, 0, group, f->found);
    for (uint32_t lane = 1; lane < group; ++lane)
        assert_int_equal(play(tight, size, n, lane, group, f->found), good);
    free(tight);
    return good;
}

static const uint32_t groups[] = {1, 2, 8, 32};

static void expect_mask(fixture *f, uint32_t size, uint32_t n) {
    for (unsigned g = 0; g < sizeof groups / sizeof *groups; ++g) {
        assert_true(walked(f, f->block, size, n, groups[g]));
        assert_memory_equal(f->found, f->mask, n);
    }
}

static void expect_same_verdict(fixture *f, uint32_t size, uint32_t n, uint32_t group) {
    if (size < n)
        assert_int_equal(walked(f, f->block, size, n, group), accepted_by_cpu(f->block, size, n));
}

/* Encodes the mask; false: as a raw block. */
static bool encode(fixture *f, uint32_t n, uint32_t *size) {
    static const uint8_t zeros[LARGEST];
    xci_encode_job job = {.old_bytes = zeros,
                          .new_bytes = f->mask,
                          .bytes = n,
                          .element_bytes = 1,
                          .codec = XORCAST_CODEC_LZ4,
                          .block = f->block};
    xci_backend_cpu.encode(&job, 1);
    *size = job.block_bytes;
    return job.block_bytes != 0 && job.block_codec == XORCAST_CODEC_LZ4;
}

static const uint32_t lengths[] = {1,  2,  3,  5,   8,   9,    12,    13,    14,    15,   16,
                                   17, 21, 64, 255, 300, 4096, 16383, 16384, 16385, 65536};

static void test_finds_masks(void **state) {
    fixture *f = *state;
    unsigned blocks = 0;
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; ++i)
        for (unsigned pattern = 0; pattern < MASK_PATTERNS; ++pattern) {
            uint32_t size;
            mask_make(&seed, pattern, f->mask, lengths[i]);
            if (!encode(f, lengths[i], &size))
                continue;
            expect_mask(f, size, lengths[i]);
            ++blocks;
        }
    assert_true(blocks > 50);
}

static void test_rejects_what_the_cpu_rejects(void **state) {
    fixture *f = *state;
    unsigned good = 0;
    for (unsigned round = 0; round < 60000; ++round) {
        const uint32_t n = 13 + mask_random(&seed, round % 16 == 0 ? 6000 : 200);
        uint32_t size;
        mask_make(&seed, mask_random(&seed, MASK_PATTERNS), f->mask, n);
        if (!encode(f, n, &size))
            continue;
        mask_damage(&seed, f->block, &size, n);
        expect_same_verdict(f, size, n, groups[round % 4]);
        good += size < n && accepted_by_cpu(f->block, size, n);
    }
    assert_true(good > 1000); /* damage to literals does not make a block invalid */
}

static void test_foreign_blocks(void **state) {
    fixture *f = *state;
    unsigned good = 0, bad = 0;
    for (unsigned round = 0; round < 2000; ++round) {
        const uint32_t n = 20 + mask_random(&seed, 5000);
        mask_make(&seed, round % MASK_PATTERNS, f->mask, n);
        const int size = LZ4_compress_fast((const char *)f->mask, (char *)f->block, (int)n,
                                           (int)sizeof f->block, (int)(round % 3) * 8 + 1);
        if (size <= 0 || (uint32_t)size >= n)
            continue;
        expect_same_verdict(f, (uint32_t)size, n, groups[round % 4]);
        const bool accepted = accepted_by_cpu(f->block, (uint32_t)size, n);
        good += accepted;
        bad += !accepted;
    }
    assert_true(good > 100 && bad > 100);
}

static void test_random_blocks(void **state) {
    fixture *f = *state;
    unsigned good = 0;
    for (unsigned round = 0; round < 100000; ++round) {
        uint32_t n;
        const uint32_t size = mask_random_tokens(&seed, f->block, &n);
        expect_same_verdict(f, size, n, groups[round % 4]);
        good += size < n && accepted_by_cpu(f->block, size, n);
    }
    assert_true(good > 1000);
}

static int make_fixture(void **state) {
    *state = malloc(sizeof(fixture));
    return *state == NULL ? -1 : 0;
}

static int free_fixture(void **state) {
    free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_masks),
        cmocka_unit_test(test_rejects_what_the_cpu_rejects),
        cmocka_unit_test(test_foreign_blocks),
        cmocka_unit_test(test_random_blocks),
    };
    return cmocka_run_group_tests(tests, make_fixture, free_fixture);
}
