/* Codecs of chunks, transcoding and the second pass against liblz4, libsnappy and libzstd, in both
 * directions, and against blocks that are mutated, cut or made by hand. Buffers are exact, so that
 * the address sanitizer sees one byte too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lz4.h>
#include <lz4hc.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "backend/transcode.h"
#include "codec/codec.h"
#include "codec/second_pass.h"
#include "codec/snappy_block.h"
#include "support/exact.h"

#define TEST_SEED 77
#include "support/random.h"

#define MOST 5000u

static xorcast_context *context;
static const xci_place here = {3, 5, 0};

static int set_up(void **state) {
    (void)state;
    return xorcast_context_create(NULL, &context) == XORCAST_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    xorcast_context_destroy(context);
    return 0;
}

/* Sparse, with repeats (so that foreign encoders find matches of other offsets), or dense. */
static void make_mask(uint8_t *mask, uint32_t n) {
    const uint32_t kind = below(4), share = kind == 0 ? 5 : kind == 1 ? 60 : kind == 2 ? 400 : 1000;
    const uint32_t letters = 1 + below(255);
    for (uint32_t i = 0; i < n; ++i)
        mask[i] = below(1000) < share ? (uint8_t)(1 + below(letters)) : 0;
    if (n > 100 && below(3) == 0)
        memcpy(mask + n / 2, mask, n / 3);
}

static xorcast_status decode(uint32_t codec, const void *block, size_t size, uint8_t *mask,
                             uint32_t n) {
    uint8_t *tight = exact_copy(block, size);
    const xorcast_status status = xci_codec_decode(context, here, codec, tight, size, mask, n);
    free(tight);
    return status;
}

static void assert_decodes(uint32_t codec, const void *block, size_t size, const uint8_t *mask,
                           uint32_t n) {
    uint8_t *out = malloc(n);
    assert_non_null(out);
    assert_int_equal(decode(codec, block, size, out, n), XORCAST_OK);
    assert_memory_equal(out, mask, n);
    /* One more or one fewer than the block holds is refused. */
    uint8_t *other = malloc(n + 1);
    assert_non_null(other);
    assert_int_equal(decode(codec, block, size, other, n + 1), XORCAST_DATA_CORRUPT);
    if (n > 1)
        assert_int_equal(decode(codec, block, size, other, n - 1), XORCAST_DATA_CORRUPT);
    free(other);
    free(out);
}

static void test_names(void **state) {
    (void)state;
    static const uint32_t codecs[] = {XORCAST_CODEC_RAW, XORCAST_CODEC_LZ4, XORCAST_CODEC_SNAPPY,
                                      XORCAST_CODEC_GAP};
    for (size_t i = 0; i < 4; ++i) {
        uint32_t codec = 0;
        assert_true(xci_codec_find(xci_codec_name(codecs[i]), &codec));
        assert_int_equal(codec, codecs[i]);
    }
    uint32_t codec = 99;
    assert_null(xci_codec_name(0));
    assert_null(xci_codec_name(6));
    assert_false(xci_codec_find("lz", &codec));
    assert_false(xci_codec_find("", &codec));
    assert_int_equal(codec, 99);
}

static void test_foreign_blocks(void **state) {
    (void)state;
    static uint8_t mask[MOST], block[2 * MOST + 100];
    for (uint32_t round = 0; round < 600; ++round) {
        const uint32_t n = round < 40 ? 1 + round / 2 : 1 + below(MOST - 1);
        make_mask(mask, n);
        assert_decodes(XORCAST_CODEC_RAW, mask, n, mask, n);
        int size = LZ4_compress_default((const char *)mask, (char *)block, (int)n, sizeof block);
        assert_decodes(XORCAST_CODEC_LZ4, block, (size_t)size, mask, n);
        size = LZ4_compress_HC((const char *)mask, (char *)block, (int)n, sizeof block, 12);
        assert_decodes(XORCAST_CODEC_LZ4, block, (size_t)size, mask, n);
        size_t length = sizeof block;
        assert_int_equal(snappy_compress((const char *)mask, n, (char *)block, &length), SNAPPY_OK);
        assert_decodes(XORCAST_CODEC_SNAPPY, block, length, mask, n);
    }
}

/* Whether a block that liblz4 takes has an offset of 0, which liblz4 lets pass and the format
 * forbids. */
static bool has_zero_offset(const uint8_t *block, uint32_t size) {
    for (uint32_t at = 0;;) {
        const uint8_t token = block[at++];
        uint32_t literals = token >> 4;
        if (literals == 15)
            do
                literals += block[at];
            while (block[at++] == 255);
        at += literals;
        if (at == size)
            return false;
        if (block[at] == 0 && block[at + 1] == 0)
            return true;
        at += 2;
        if ((token & 15) == 15)
            while (block[at++] == 255)
                continue;
    }
}

static void check_lz4(const uint8_t *block, uint32_t size, uint32_t n, uint32_t *accepted) {
    uint8_t *tight = exact_copy(block, size), *theirs = calloc(1, n), *ours = malloc(n);
    assert_non_null(theirs);
    assert_non_null(ours);
    const int got = LZ4_decompress_safe((const char *)tight, (char *)theirs, (int)size, (int)n);
    const bool valid = got == (int)n && !has_zero_offset(tight, size);
    assert_int_equal(xci_codec_decode(context, here, XORCAST_CODEC_LZ4, tight, size, ours, n),
                     valid ? XORCAST_OK : XORCAST_DATA_CORRUPT);
    if (valid)
        assert_memory_equal(ours, theirs, n);
    *accepted += valid;
    free(ours);
    free(theirs);
    free(tight);
}

static void check_snappy(const uint8_t *block, uint32_t size, uint32_t n, uint32_t *accepted) {
    uint8_t *tight = exact_copy(block, size), *theirs = calloc(1, n), *ours = malloc(n);
    assert_non_null(theirs);
    assert_non_null(ours);
    size_t length = 0;
    bool valid =
        snappy_uncompressed_length((const char *)tight, size, &length) == SNAPPY_OK && length == n;
    /* Our varints are the shortest form only. */
    valid = valid && tight[n < 128 ? 0 : 1] != 0 && (tight[0] >= 128) == (n >= 128);
    valid =
        valid && snappy_uncompress((const char *)tight, size, (char *)theirs, &length) == SNAPPY_OK;
    assert_int_equal(xci_codec_decode(context, here, XORCAST_CODEC_SNAPPY, tight, size, ours, n),
                     valid ? XORCAST_OK : XORCAST_DATA_CORRUPT);
    if (valid)
        assert_memory_equal(ours, theirs, n);
    *accepted += valid;
    free(ours);
    free(theirs);
    free(tight);
}

static void test_mutated_blocks(void **state) {
    (void)state;
    uint32_t lz4_accepted = 0, snappy_accepted = 0;
    for (uint32_t round = 0; round < 50000; ++round) {
        uint8_t mask[300], block[500];
        const uint32_t n = 1 + below(sizeof mask);
        make_mask(mask, n);
        int size = LZ4_compress_HC((const char *)mask, (char *)block, (int)n, sizeof block, 3);
        uint32_t changed = mutate(block, (uint32_t)size, sizeof block);
        check_lz4(block, changed, n, &lz4_accepted);
        size_t length = sizeof block;
        assert_int_equal(snappy_compress((const char *)mask, n, (char *)block, &length), SNAPPY_OK);
        changed = mutate(block, (uint32_t)length, sizeof block);
        check_snappy(block, changed, n, &snappy_accepted);
    }
    assert_true(lz4_accepted > 5000 && snappy_accepted > 5000);
}

/* Every kind of element, the long forms too, which encoders hardly ever make. */
static void test_snappy_by_hand(void **state) {
    (void)state;
    static uint8_t block[70000], mask[70000];
    uint8_t *at = block;
    at += xci_varint_put(at, 300 + 4 + 11 + 64 + 1 + 5);
    *at++ = 61 << 2; /* 300 literals in the form of two length bytes */
    *at++ = 43;
    *at++ = 1;
    for (uint32_t i = 0; i < 300; ++i)
        *at++ = mask[i] = (uint8_t)(i * 7);
    static const uint8_t copies[] = {
        1 << 5 | 0 << 2 | 1,
        4, /* 4 bytes, offset 260 */
        0 << 5 | 7 << 2 | 1,
        3, /* 11 bytes, offset 3, overlapping */
        63 << 2 | 2,
        100,
        0, /* 64 bytes, offset 100 */
        0 << 2 | 3,
        1,
        0,
        0,
        0, /* 1 byte, offset 1, in the longest form */
        63 << 2,
        4,
        0,
        0,
        0, /* 5 literals in the longest form */
        9,
        8,
        7,
        6,
        5,
    };
    memcpy(at, copies, sizeof copies);
    at += sizeof copies;
    uint32_t n = 300;
    for (uint32_t k = 0; k < 4; ++k, ++n)
        mask[n] = mask[n - 260];
    for (uint32_t k = 0; k < 11; ++k, ++n)
        mask[n] = mask[n - 3];
    for (uint32_t k = 0; k < 64; ++k, ++n)
        mask[n] = mask[n - 100];
    for (uint32_t k = 0; k < 1; ++k, ++n)
        mask[n] = mask[n - 1];
    for (uint32_t k = 0; k < 5; ++k, ++n)
        mask[n] = (uint8_t)(9 - k);
    assert_decodes(XORCAST_CODEC_SNAPPY, block, (size_t)(at - block), mask, n);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        uint32_t codec;
        uint8_t block[12];
        uint32_t size;
        xorcast_status status;
    } blocks[] = {
        {0, {0}, 8, XORCAST_DATA_VERSION},
        {4, {0}, 8, XORCAST_DATA_VERSION},
        {UINT32_MAX, {0}, 8, XORCAST_DATA_VERSION},
        {XORCAST_CODEC_RAW, {0}, 7, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_RAW, {0}, 9, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_LZ4, {0}, 0, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_LZ4, {0x70, 1, 2, 3, 4, 5, 6, 7}, 8, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_SNAPPY, {0}, 0, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_SNAPPY, {8}, 1, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_SNAPPY, {8, 1 << 2 | 1, 1}, 3, XORCAST_DATA_CORRUPT}, /* nothing to copy */
        {XORCAST_CODEC_SNAPPY, {8, 0, 1, 6 << 2 | 2, 0, 0}, 6, XORCAST_DATA_CORRUPT}, /* offset 0 */
        {XORCAST_CODEC_SNAPPY, {8, 63 << 2, 255, 255, 255, 255}, 6, XORCAST_DATA_CORRUPT},
        {XORCAST_CODEC_SNAPPY, {8, 0, 1, 7 << 2 | 2, 1, 0}, 6, XORCAST_DATA_CORRUPT}, /* too long */
        {XORCAST_CODEC_SNAPPY, {8, 0, 1, 6 << 2 | 3, 1, 0}, 6, XORCAST_DATA_CORRUPT}, /* cut off */
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
        uint8_t mask[8];
        assert_int_equal(decode(blocks[i].codec, blocks[i].block, blocks[i].size, mask, 8),
                         blocks[i].status);
        xorcast_error error;
        xorcast_last_error(context, &error);
        assert_int_equal(error.status, blocks[i].status);
        assert_int_equal(error.tensor, 3);
        assert_int_equal(error.chunk, 5);
        assert_true(strlen(error.text) > 20);
    }
}

/* A foreign block becomes what encode would have made of the same change. */
static void test_transcode(void **state) {
    (void)state;
    static uint8_t mask[MOST], zeros[MOST], foreign[2 * MOST + 100], wanted[MOST + XCI_BLOCK_SLACK];
    for (uint32_t round = 0; round < 300; ++round) {
        const uint32_t n = 1 + below(MOST - 1), codec = 1 + round % 3;
        make_mask(mask, n);
        mask[0] |= 1;
        size_t size = sizeof foreign;
        if (codec == XORCAST_CODEC_LZ4)
            size = (size_t)LZ4_compress_HC((const char *)mask, (char *)foreign, (int)n,
                                           sizeof foreign, 9);
        else if (codec == XORCAST_CODEC_SNAPPY)
            assert_int_equal(snappy_compress((const char *)mask, n, (char *)foreign, &size),
                             SNAPPY_OK);
        else
            memcpy(foreign, mask, size = n);
        const xci_segment whole = {0, n, 0};
        xci_encode_job job = {.old_bytes = zeros,
                              .new_bytes = mask,
                              .bytes = n,
                              .element_bytes = 1,
                              .codec = XORCAST_CODEC_LZ4,
                              .segment_count = 1,
                              .segments = &whole,
                              .block = wanted};
        xci_backend_cpu.encode(&job, 1);
        uint8_t *scratch = malloc(XCI_TRANSCODE_SCRATCH(n)), *ready = malloc(n + XCI_BLOCK_SLACK);
        assert_non_null(scratch);
        assert_non_null(ready);
        uint32_t ready_bytes = 0, ready_codec = 0;
        assert_int_equal(xci_transcode(context, here, &xci_backend_cpu, codec, foreign, size, n,
                                       scratch, ready, &ready_bytes, &ready_codec),
                         XORCAST_OK);
        assert_int_equal(ready_bytes, job.block_bytes);
        assert_int_equal(ready_codec, job.block_codec);
        assert_memory_equal(ready, wanted, ready_bytes);
        assert_true(xci_codec_is_ready(ready_codec, ready, ready_bytes, n));
        free(ready);
        free(scratch);
    }
}

static void test_ready(void **state) {
    (void)state;
    static const uint8_t good[] = {0x1f, 0, 1, 0, 75, 0x50, 0, 0, 0, 0, 0};
    static const uint8_t changed[] = {0x1f, 7, 1, 0, 75, 0x50, 0, 0, 0, 0, 0};
    static const uint8_t offset[] = {0x2e, 0, 0, 2, 0, 0x50, 0, 0, 0, 0, 0};
    assert_true(xci_codec_is_ready(XORCAST_CODEC_LZ4, good, sizeof good, 100));
    assert_false(xci_codec_is_ready(XORCAST_CODEC_LZ4, good, sizeof good, 101));
    assert_false(xci_codec_is_ready(XORCAST_CODEC_LZ4, good, sizeof good - 1, 100));
    assert_false(xci_codec_is_ready(XORCAST_CODEC_LZ4, changed, sizeof changed, 100));
    assert_false(xci_codec_is_ready(XORCAST_CODEC_LZ4, offset, sizeof offset, 25));
    assert_false(xci_codec_is_ready(XORCAST_CODEC_SNAPPY, good, sizeof good, 100));
    assert_true(xci_codec_is_ready(XORCAST_CODEC_RAW, good, sizeof good, sizeof good));
    assert_false(xci_codec_is_ready(XORCAST_CODEC_RAW, good, sizeof good, 100));
    uint8_t mask[100];
    assert_int_equal(decode(XORCAST_CODEC_LZ4, changed, sizeof changed, mask, 100), XORCAST_OK);
    assert_int_equal(decode(XORCAST_CODEC_LZ4, offset, sizeof offset, mask, 25), XORCAST_OK);
}

/* ---- Second pass ------------------------------------------------------------------------------*/

static uint64_t allocated(void) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static void test_second_pass(void **state) {
    (void)state;
    enum { ROOM = 1 << 20 };
    uint8_t *in = malloc(ROOM), *out = malloc(ROOM), *back = malloc(ROOM);
    assert_non_null(in);
    assert_non_null(out);
    assert_non_null(back);
    const uint64_t before = allocated();
    xci_zstd_encoder *encoder;
    xci_zstd_decoder *decoder;
    assert_int_equal(xci_zstd_decoder_create(context, &decoder), XORCAST_OK);
    static const int32_t levels[] = {1, 3, XCI_ZSTD_MAX_LEVEL};
    for (size_t l = 0; l < 3; ++l) {
        assert_int_equal(xci_zstd_encoder_create(context, levels[l], &encoder), XORCAST_OK);
        const uint64_t steady = allocated();
        static const uint32_t sizes[] = {64, 1000, 65536, 1, 2, 300000, 17, ROOM, 5000};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
            make_mask(in, sizes[i]);
            memset(in, 0, sizes[i] / 2);
            uint8_t *tight = exact_copy(in, sizes[i]);
            uint64_t size = 99;
            assert_int_equal(xci_zstd_encode(context, encoder, tight, sizes[i], out, &size),
                             XORCAST_OK);
            assert_true(size < sizes[i]);
            if (size > 0) {
                uint8_t *frame = exact_copy(out, size), *whole = malloc(sizes[i]);
                assert_non_null(whole);
                assert_int_equal(
                    xci_zstd_decode(context, here, decoder, frame, size, whole, sizes[i]),
                    XORCAST_OK);
                assert_memory_equal(whole, tight, sizes[i]);
                free(whole);
                free(frame);
            }
            assert_int_equal(allocated(), steady);
            free(tight);
        }
        xci_zstd_encoder_destroy(context, encoder);
    }
    for (uint32_t i = 0; i < 1000; ++i)
        in[i] = (uint8_t)next_random();
    uint64_t size = 99;
    assert_int_equal(xci_zstd_encoder_create(context, 1, &encoder), XORCAST_OK);
    assert_int_equal(xci_zstd_encode(context, encoder, in, 1000, out, &size), XORCAST_OK);
    assert_int_equal(size, 0);
    xci_zstd_encoder_destroy(context, encoder);
    xci_zstd_decoder_destroy(context, decoder);
    xci_zstd_encoder_destroy(context, NULL);
    xci_zstd_decoder_destroy(context, NULL);
    assert_int_equal(allocated(), before);
    assert_int_equal(xci_zstd_encoder_create(context, 0, &encoder), XORCAST_BAD_ARGUMENT);
    assert_int_equal(xci_zstd_encoder_create(context, -1, &encoder), XORCAST_BAD_ARGUMENT);
    assert_int_equal(xci_zstd_encoder_create(context, XCI_ZSTD_MAX_LEVEL + 1, &encoder),
                     XORCAST_BAD_ARGUMENT);
    free(back);
    free(out);
    free(in);
}

static xorcast_status unpack(xci_zstd_decoder *decoder, const uint8_t *frame, size_t size,
                             size_t bytes) {
    uint8_t *tight = exact_copy(frame, size), *out = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(out);
    const xorcast_status status = xci_zstd_decode(context, here, decoder, tight, size, out, bytes);
    free(out);
    free(tight);
    return status;
}

static void test_second_pass_refuses(void **state) {
    (void)state;
    uint8_t in[3000], frame[4000], twice[8000];
    xci_zstd_decoder *decoder;
    assert_int_equal(xci_zstd_decoder_create(context, &decoder), XORCAST_OK);
    make_mask(in, sizeof in);
    memset(in, 0, 2000);
    const size_t size = ZSTD_compress(frame, sizeof frame, in, sizeof in, 3);
    assert_false(ZSTD_isError(size));
    assert_int_equal(unpack(decoder, frame, size, sizeof in), XORCAST_OK);
    assert_int_equal(unpack(decoder, frame, size, sizeof in - 1), XORCAST_DATA_CORRUPT);
    assert_int_equal(unpack(decoder, frame, size, sizeof in + 1), XORCAST_DATA_CORRUPT);
    assert_int_equal(unpack(decoder, frame, size, 0), XORCAST_DATA_CORRUPT);
    for (size_t cut = 0; cut < size; ++cut)
        assert_int_equal(unpack(decoder, frame, cut, sizeof in), XORCAST_DATA_CORRUPT);
    /* Two frames, a frame and rubbish, a skippable frame before or behind it, a hidden size. */
    memcpy(twice, frame, size);
    memcpy(twice + size, frame, size);
    assert_int_equal(unpack(decoder, twice, 2 * size, sizeof in), XORCAST_DATA_CORRUPT);
    assert_int_equal(unpack(decoder, twice, 2 * size, 2 * sizeof in), XORCAST_DATA_CORRUPT);
    assert_int_equal(unpack(decoder, twice, size + 1, sizeof in), XORCAST_DATA_CORRUPT);
    static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
    memcpy(twice, skippable, sizeof skippable);
    memcpy(twice + sizeof skippable, frame, size);
    assert_int_equal(unpack(decoder, twice, size + sizeof skippable, sizeof in),
                     XORCAST_DATA_CORRUPT);
    memcpy(twice, frame, size);
    memcpy(twice + size, skippable, sizeof skippable);
    assert_int_equal(unpack(decoder, twice, size + sizeof skippable, sizeof in),
                     XORCAST_DATA_CORRUPT);
    ZSTD_CCtx *encoder = ZSTD_createCCtx();
    assert_non_null(encoder);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(encoder, ZSTD_c_contentSizeFlag, 0)));
    const size_t hidden = ZSTD_compress2(encoder, twice, sizeof twice, in, sizeof in);
    assert_false(ZSTD_isError(hidden));
    ZSTD_freeCCtx(encoder);
    assert_int_equal(unpack(decoder, twice, hidden, sizeof in), XORCAST_DATA_CORRUPT);
    xorcast_error error;
    xorcast_last_error(context, &error);
    assert_int_equal(error.tensor, 3);
    for (uint32_t round = 0; round < 5000; ++round) {
        memcpy(twice, frame, size);
        const uint32_t changed = mutate(twice, (uint32_t)size, sizeof twice);
        const xorcast_status status = unpack(decoder, twice, changed, sizeof in);
        assert_true(status == XORCAST_OK || status == XORCAST_DATA_CORRUPT);
    }
    /* A decoder that has seen all this still works. */
    assert_int_equal(unpack(decoder, frame, size, sizeof in), XORCAST_OK);
    xci_zstd_decoder_destroy(context, decoder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_foreign_blocks),
        cmocka_unit_test(test_mutated_blocks),
        cmocka_unit_test(test_snappy_by_hand),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_transcode),
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_second_pass),
        cmocka_unit_test(test_second_pass_refuses),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
