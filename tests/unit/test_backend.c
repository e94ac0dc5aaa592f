/* The operations of every backend and level against references written here from the format's
 * words, byte by byte, and against liblz4 and libsnappy. Owns its generator; every buffer is
 * allocated to the byte and has canaries, so that one byte too many is seen with and without
 * sanitizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lz4.h>
#include <lz4hc.h>
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_level.h"
#include "base/digest.h"
#include "codec/list_block.h"

#define TEST_SEED 20240607
#include "support/random.h"

#define CANARY_BYTES 64u
#define CANARY 0xC5
#define MOST_SEGMENTS 4u

/* ---- Generator and buffers ------------------------------------------------------------------*/

/* `bytes` at an address that is `skew` off, between canaries. */
typedef struct guarded {
    uint8_t *memory, *at;
    size_t bytes, skew;
} guarded;

static guarded guard(size_t bytes, size_t skew) {
    guarded g = {.bytes = bytes, .skew = skew};
    g.memory = malloc(CANARY_BYTES + skew + bytes + CANARY_BYTES);
    assert_non_null(g.memory);
    memset(g.memory, CANARY, CANARY_BYTES + skew + bytes + CANARY_BYTES);
    g.at = g.memory + CANARY_BYTES + skew;
    return g;
}

static void unguard(guarded g) {
    for (size_t i = 0; i < CANARY_BYTES + g.skew; ++i)
        assert_int_equal(g.memory[i], CANARY);
    for (size_t i = 0; i < CANARY_BYTES; ++i)
        assert_int_equal(g.at[g.bytes + i], CANARY);
    free(g.memory);
}

/* A copy without room behind it, for what is only read: the address sanitizer sees one byte too
 * many. */
static uint8_t *exact_copy(const void *bytes, size_t count, size_t skew) {
    uint8_t *memory = malloc(skew + count);
    assert_non_null(memory);
    memcpy(memory + skew, bytes, count);
    return memory;
}

/* ---- References -----------------------------------------------------------------------------*/

/* Marks the bytes that the canonical rule covers by copies. */
static void mark_copies(const uint8_t *mask, uint32_t n, bool lz4, uint8_t *copied) {
    memset(copied, 0, n);
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;
        while (end < n && mask[end] == 0)
            ++end;
        if (end == i) {
            ++i;
            continue;
        }
        const int64_t first = (int64_t)i + 1;
        int64_t last = end;
        if (lz4 && last > (int64_t)n - 5)
            last = (int64_t)n - 5;
        if (last - first >= 4 && (!lz4 || first <= (int64_t)n - 12))
            memset(copied + first, 1, (size_t)(last - first));
        i = end;
    }
}

static void put_length(uint8_t *out, uint32_t *size, uint32_t length) {
    if (length < 15)
        return;
    length -= 15;
    while (length >= 255) {
        out[(*size)++] = 255;
        length -= 255;
    }
    out[(*size)++] = (uint8_t)length;
}

static uint32_t reference_lz4(const uint8_t *mask, uint32_t n, const uint8_t *copied,
                              uint8_t *out) {
    uint32_t size = 0, i = 0;
    for (;;) {
        const uint32_t begin = i;
        while (i < n && !copied[i])
            ++i;
        const uint32_t literals = i - begin;
        while (i < n && copied[i])
            ++i;
        const uint32_t match = i - begin - literals;
        const uint32_t code = match > 0 ? match - 4 : 0;
        out[size++] = (uint8_t)((literals < 15 ? literals : 15) * 16 + (code < 15 ? code : 15));
        put_length(out, &size, literals);
        for (uint32_t k = 0; k < literals; ++k)
            out[size++] = mask[begin + k];
        if (match == 0)
            return size;
        out[size++] = 1;
        out[size++] = 0;
        put_length(out, &size, code);
    }
}

static void put_snappy_literal(const uint8_t *mask, uint32_t count, uint8_t *out, uint32_t *size) {
    const uint32_t code = count - 1;
    if (code < 60) {
        out[(*size)++] = (uint8_t)(code * 4);
    } else if (code < 256) {
        out[(*size)++] = 60 * 4;
        out[(*size)++] = (uint8_t)code;
    } else if (code < 65536) {
        out[(*size)++] = 61 * 4;
        out[(*size)++] = (uint8_t)code;
        out[(*size)++] = (uint8_t)(code >> 8);
    } else {
        out[(*size)++] = 62 * 4;
        out[(*size)++] = (uint8_t)code;
        out[(*size)++] = (uint8_t)(code >> 8);
        out[(*size)++] = (uint8_t)(code >> 16);
    }
    memcpy(out + *size, mask, count);
    *size += count;
}

static uint32_t reference_snappy(const uint8_t *mask, uint32_t n, const uint8_t *copied,
                                 uint8_t *out) {
    uint32_t size = 0;
    for (uint32_t rest = n;; rest >>= 7) {
        out[size++] = (uint8_t)(rest >= 128 ? rest | 128 : rest);
        if (rest < 128)
            break;
    }
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;
        while (end < n && copied[end] == copied[i])
            ++end;
        if (!copied[i]) {
            put_snappy_literal(mask + i, end - i, out, &size);
            i = end;
        }
        while (i < end) {
            const uint32_t length = end - i < 64 ? end - i : 64;
            if (length >= 4 && length <= 11) {
                out[size++] = (uint8_t)((length - 4) * 4 + 1);
                out[size++] = 1;
            } else {
                out[size++] = (uint8_t)((length - 1) * 4 + 2);
                out[size++] = 1;
                out[size++] = 0;
            }
            i += length;
        }
    }
    return size;
}

/* `out` has room for 2 * n + 64. Returns the codec that the block ends up with. */
static uint32_t reference_block(const uint8_t *mask, uint32_t n, uint32_t codec, uint8_t *out,
                                uint32_t *size) {
    uint8_t *copied = malloc(n);
    assert_non_null(copied);
    mark_copies(mask, n, codec == XORCAST_CODEC_LZ4, copied);
    *size = n;
    if (codec == XORCAST_CODEC_LZ4)
        *size = reference_lz4(mask, n, copied, out);
    else if (codec == XORCAST_CODEC_SNAPPY)
        *size = reference_snappy(mask, n, copied, out);
    free(copied);
    if (*size < n)
        return codec;
    memcpy(out, mask, n);
    *size = n;
    return XORCAST_CODEC_RAW;
}

typedef struct counts {
    uint64_t bits, bytes, elements;
} counts;

static counts reference_counts(const uint8_t *mask, uint32_t n, uint32_t element_bytes) {
    counts c = {0, 0, 0};
    for (uint32_t i = 0; i < n; i += element_bytes) {
        bool changed = false;
        for (uint32_t k = i; k < n && k < i + element_bytes; ++k) {
            for (unsigned bit = 0; bit < 8; ++bit)
                c.bits += (mask[k] >> bit) & 1;
            c.bytes += mask[k] != 0;
            changed |= mask[k] != 0;
        }
        c.elements += changed;
    }
    return c;
}

static xorcast_digest reference_digest(const uint8_t *bytes, const xci_segment *segments,
                                       uint32_t count) {
    xorcast_digest sum = {{0, 0}};
    for (uint32_t k = 0; k < count; ++k) {
        uint64_t key = segments[k].key;
        for (uint32_t i = 0; i < segments[k].bytes; i += 8, key += XCI_DIGEST_STRIDE) {
            uint64_t word = 0;
            for (uint32_t j = 0; j < 8 && i + j < segments[k].bytes; ++j)
                word |= (uint64_t)bytes[segments[k].offset + i + j] << (8 * j);
            const uint64_t x = word ^ key, y = ((x << 32) | (x >> 32)) ^ XCI_DIGEST_SALT;
            sum.lane[0] += x * y;
            sum.lane[1] += (uint64_t)(((unsigned __int128)x * y) >> 64);
        }
    }
    return sum;
}

/* ---- Cases ----------------------------------------------------------------------------------*/

typedef enum pattern {
    NOTHING,
    ONE_BIT,
    SPARSE,
    SEVENTEEN,
    HALF,
    FULL,
    BF16_LOW,
    CLUSTERED,
    SHORT_RUNS,
    LONG_RUNS,
    ENDS,
    PATTERNS
} pattern;

static void fill_share(uint8_t *mask, uint32_t n, uint32_t per_mille) {
    for (uint32_t i = 0; i < n; ++i)
        if (below(1000) < per_mille)
            mask[i] = (uint8_t)(1 + below(255));
}

/* Zero runs and changed runs of lengths around the rule's limits. */
static void fill_runs(uint8_t *mask, uint32_t n, uint32_t longest_zero, uint32_t longest_changed) {
    for (uint32_t i = 0; i < n;) {
        i += below(longest_zero + 1);
        for (uint32_t k = 1 + below(longest_changed); k > 0 && i < n; --k)
            mask[i++] = (uint8_t)(1 + below(255));
    }
}

static void make_mask(pattern p, uint8_t *mask, uint32_t n) {
    memset(mask, 0, n);
    switch (p) {
    case NOTHING:
        break;
    case ONE_BIT:
        mask[below(n)] = (uint8_t)(1u << below(8));
        break;
    case SPARSE:
        fill_share(mask, n, 10);
        break;
    case SEVENTEEN:
        fill_share(mask, n, 170);
        break;
    case HALF:
        fill_share(mask, n, 500);
        break;
    case FULL:
        fill_share(mask, n, 1000);
        break;
    case BF16_LOW:
        for (uint32_t i = 0; i < n; i += 2)
            if (below(1000) < 12)
                mask[i] = (uint8_t)(1u << below(3));
        break;
    case CLUSTERED:
        for (uint32_t i = 0; i + 200 < n; i += 200 + below(9000))
            fill_share(mask + i, 200, 300);
        break;
    case SHORT_RUNS:
        fill_runs(mask, n, 9, 4);
        break;
    case LONG_RUNS:
        fill_runs(mask, n, 5000, 300);
        break;
    case ENDS:
        mask[0] = 1;
        mask[n - 1 - below(n < 20 ? n : 20)] = 2;
        break;
    case PATTERNS:
        break;
    }
}

typedef struct chunk {
    uint32_t n, element_bytes;
    guarded old_bytes, new_bytes, mask;
    xci_segment segments[MOST_SEGMENTS];
    uint32_t segment_count;
} chunk;

/* One segment that covers all, or several with holes, odd ends and an empty one. */
static void make_segments(chunk *c) {
    c->segment_count = 1;
    c->segments[0] = (xci_segment){0, c->n, xci_digest_key(below(1000))};
    if (c->n < 100 || below(2) == 0)
        return;
    const uint32_t part = c->n / MOST_SEGMENTS / 8 * 8;
    for (uint32_t k = 0; k < MOST_SEGMENTS; ++k)
        c->segments[k] = (xci_segment){k * part, part - below(part > 40 ? 40 : part),
                                       xci_digest_key(k) + below(1000) * XCI_DIGEST_STRIDE};
    c->segments[1].bytes = 0;
    c->segments[MOST_SEGMENTS - 1].bytes = c->n - 3 * part;
    c->segment_count = MOST_SEGMENTS;
}

static chunk make_chunk(pattern p, uint32_t n, uint32_t element_bytes) {
    chunk c = {.n = n, .element_bytes = element_bytes};
    c.old_bytes = guard(n, below(9));
    c.new_bytes = guard(n, below(9));
    c.mask = guard(n, 0);
    make_mask(p, c.mask.at, n);
    for (uint32_t i = 0; i < n; ++i) {
        c.old_bytes.at[i] = (uint8_t)next_random();
        c.new_bytes.at[i] = c.old_bytes.at[i] ^ c.mask.at[i];
    }
    make_segments(&c);
    return c;
}

static void free_chunk(chunk *c) {
    unguard(c->old_bytes);
    unguard(c->new_bytes);
    unguard(c->mask);
}

static xorcast_digest expected_change(const chunk *c) {
    const xorcast_digest a = reference_digest(c->old_bytes.at, c->segments, c->segment_count);
    const xorcast_digest b = reference_digest(c->new_bytes.at, c->segments, c->segment_count);
    return (xorcast_digest){{b.lane[0] - a.lane[0], b.lane[1] - a.lane[1]}};
}

static void assert_digest(xorcast_digest got, xorcast_digest wanted) {
    assert_true(got.lane[0] == wanted.lane[0] && got.lane[1] == wanted.lane[1]);
}

static void assert_oracle(uint32_t codec, const uint8_t *block, uint32_t size, const uint8_t *mask,
                          uint32_t n) {
    uint8_t *out = malloc(n);
    assert_non_null(out);
    size_t length = n;
    if (codec == XORCAST_CODEC_LZ4)
        assert_int_equal(LZ4_decompress_safe((const char *)block, (char *)out, (int)size, (int)n),
                         n);
    else if (codec == XORCAST_CODEC_SNAPPY)
        assert_int_equal(snappy_uncompress((const char *)block, size, (char *)out, &length),
                         SNAPPY_OK);
    else
        memcpy(out, block, n);
    assert_int_equal(length, n);
    assert_memory_equal(out, mask, n);
    free(out);
}

/* The list that check made: every changed byte in order, or none, where it would have more bytes
 * than the block. */
static void assert_list(const chunk *c, const xci_block_job *job) {
    const uint64_t bytes = reference_counts(c->mask.at, c->n, 1).bytes * XCI_LIST_ENTRY;
    const bool wanted = job->block_codec == XORCAST_CODEC_LZ4 && bytes <= job->block_bytes;
    assert_int_equal(job->list_bytes, wanted ? bytes : 0);
    for (uint32_t i = 0, k = 0; wanted && i < c->n; ++i)
        if (c->mask.at[i] != 0)
            assert_int_equal(job->list[k++], i << 8 | c->mask.at[i]);
}

/* Checks the block with room for a list, and applies what came of it. */
static void check_list(const xci_backend *backend, const chunk *c, xci_block_job job) {
    guarded weights = guard(c->n, below(9));
    memcpy(weights.at, c->old_bytes.at, c->n);
    const size_t room = XCI_LIST_ROOM(job.block_bytes) * XCI_LIST_ENTRY;
    const xci_block_job without = job;
    job.list = malloc(room);
    assert_non_null(job.list);
    job.weights = weights.at;
    job.status = XORCAST_INTERNAL;
    backend->check(&job, 1);
    assert_int_equal(job.status, XORCAST_OK);
    assert_int_equal(job.bits_changed, without.bits_changed);
    assert_int_equal(job.bytes_changed, without.bytes_changed);
    assert_int_equal(job.elements_changed, without.elements_changed);
    assert_digest(job.change, expected_change(c));
    assert_list(c, &job);
    assert_memory_equal(weights.at, c->old_bytes.at, c->n);
    job.block_codec = job.list_bytes > 0 ? XCI_CODEC_LIST : job.block_codec;
    backend->apply(&job, 1);
    assert_memory_equal(weights.at, c->new_bytes.at, c->n);
    backend->apply(&job, 1);
    assert_memory_equal(weights.at, c->old_bytes.at, c->n);
    free(job.list);
    unguard(weights);
}

/* Checks the block at its exact size, applies it, compares, and applies it once more. */
static void check_ready(const xci_backend *backend, const chunk *c, uint32_t codec,
                        const uint8_t *block, uint32_t size) {
    const counts wanted = reference_counts(c->mask.at, c->n, c->element_bytes);
    guarded weights = guard(c->n, below(9));
    memcpy(weights.at, c->old_bytes.at, c->n);
    uint8_t *tight = exact_copy(block, size, 0);
    xci_block_job job = {
        .block = tight,
        .block_bytes = size,
        .block_codec = codec,
        .bytes = c->n,
        .element_bytes = c->element_bytes,
        .segment_count = c->segment_count,
        .segments = c->segments,
    };
    for (int with_weights = 0; with_weights < 2; ++with_weights) {
        job.weights = with_weights ? weights.at : NULL;
        job.status = XORCAST_INTERNAL;
        backend->check(&job, 1);
        assert_int_equal(job.status, XORCAST_OK);
        assert_int_equal(job.bits_changed, wanted.bits);
        assert_int_equal(job.bytes_changed, wanted.bytes);
        assert_int_equal(job.elements_changed, wanted.elements);
        if (with_weights)
            assert_digest(job.change, expected_change(c));
    }
    assert_memory_equal(weights.at, c->old_bytes.at, c->n);
    backend->apply(&job, 1);
    assert_memory_equal(weights.at, c->new_bytes.at, c->n);
    backend->apply(&job, 1);
    assert_memory_equal(weights.at, c->old_bytes.at, c->n);
    /* Without canaries, so that the address sanitizer sees what is rewritten unchanged, too. */
    job.weights = exact_copy(c->old_bytes.at, c->n, 0);
    backend->apply(&job, 1);
    assert_memory_equal(job.weights, c->new_bytes.at, c->n);
    free(job.weights);
    check_list(backend, c, job);
    free(tight);
    unguard(weights);
}

/* Once more, with old becoming new: the same block, though it is read while bytes move. */
static void check_move(const xci_backend *backend, const chunk *c, xci_encode_job job) {
    guarded block = guard(c->n + XCI_BLOCK_SLACK, 0), moved = guard(c->n, below(9));
    const xci_encode_job still = job;
    memcpy(moved.at, c->old_bytes.at, c->n);
    job.old_bytes = job.move = moved.at;
    job.block = block.at;
    backend->encode(&job, 1);
    assert_memory_equal(moved.at, c->new_bytes.at, c->n);
    assert_int_equal(job.block_codec, still.block_codec);
    assert_int_equal(job.block_bytes, still.block_bytes);
    assert_memory_equal(job.block, still.block, still.block_bytes);
    assert_digest(job.change, still.change);
    unguard(block);
    unguard(moved);
}

static void check_encode(const xci_backend *backend, const chunk *c, uint32_t codec) {
    const counts wanted = reference_counts(c->mask.at, c->n, c->element_bytes);
    guarded block = guard(c->n + XCI_BLOCK_SLACK, 0);
    const size_t skew = below(9);
    uint8_t *old_bytes = exact_copy(c->old_bytes.at, c->n, skew);
    uint8_t *new_bytes = exact_copy(c->new_bytes.at, c->n, 8 - skew);
    xci_encode_job job = {
        .old_bytes = old_bytes + skew,
        .new_bytes = new_bytes + 8 - skew,
        .bytes = c->n,
        .element_bytes = c->element_bytes,
        .codec = codec,
        .segment_count = c->segment_count,
        .segments = c->segments,
        .block = block.at,
    };
    backend->encode(&job, 1);
    assert_int_equal(job.bits_changed, wanted.bits);
    assert_int_equal(job.bytes_changed, wanted.bytes);
    assert_int_equal(job.elements_changed, wanted.elements);
    assert_digest(job.change, expected_change(c));
    if (wanted.bytes == 0) {
        assert_int_equal(job.block_bytes, 0);
    } else {
        uint8_t *reference = malloc(2 * (size_t)c->n + 64);
        assert_non_null(reference);
        uint32_t size;
        const uint32_t reference_codec = reference_block(c->mask.at, c->n, codec, reference, &size);
        assert_int_equal(job.block_codec, reference_codec);
        assert_int_equal(job.block_bytes, size);
        assert_memory_equal(job.block, reference, size);
        free(reference);
        assert_oracle(job.block_codec, job.block, job.block_bytes, c->mask.at, c->n);
        if (job.block_codec != XORCAST_CODEC_SNAPPY)
            check_ready(backend, c, job.block_codec, job.block, job.block_bytes);
    }
    check_move(backend, c, job);
    free(old_bytes);
    free(new_bytes);
    unguard(block);
}

static void check_case(pattern p, uint32_t n, uint32_t element_bytes) {
    chunk c = make_chunk(p, n, element_bytes);
    for (int level = 0; level < XCI_CPU_LEVELS; ++level) {
        const xci_backend *backend = xci_cpu_backend_at((xci_cpu_level)level);
        if (backend == NULL)
            continue;
        check_encode(backend, &c, XORCAST_CODEC_RAW);
        check_encode(backend, &c, XORCAST_CODEC_LZ4);
        check_encode(backend, &c, XORCAST_CODEC_SNAPPY);
        uint8_t *tight = exact_copy(c.new_bytes.at, n, 0);
        xci_digest_job job = {
            .bytes_at = tight, .segment_count = c.segment_count, .segments = c.segments};
        backend->digest(&job, 1);
        assert_digest(job.digest, reference_digest(tight, c.segments, c.segment_count));
        free(tight);
    }
    free_chunk(&c);
}

/* ---- Tests ----------------------------------------------------------------------------------*/

static void test_short_lengths(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 150; ++n)
        for (int p = 0; p < PATTERNS; ++p)
            for (uint32_t element_bytes = 1; element_bytes <= 8; element_bytes *= 2)
                check_case((pattern)p, n, element_bytes);
}

static void test_chunk_lengths(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1023, 1024, 4097, 16383, 16384, 16385, 65535, 65536, 65537};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; ++i)
        for (int p = 0; p < PATTERNS; ++p)
            check_case((pattern)p, lengths[i], 1u << below(4));
}

static void test_largest_chunk(void **state) {
    (void)state;
    for (int p = 0; p < PATTERNS; ++p)
        check_case((pattern)p, 1u << 20, 2);
}

/* Runs that end, begin and are cut everywhere around the limits of the rule. */
static void test_ends_of_blocks(void **state) {
    (void)state;
    for (uint32_t n = 12; n <= 96; n += 7)
        for (uint32_t begin = 0; begin < n; ++begin)
            for (uint32_t end = begin; end <= n; ++end) {
                chunk c = make_chunk(FULL, n, 2);
                memset(c.mask.at + begin, 0, end - begin);
                for (uint32_t i = 0; i < n; ++i)
                    c.new_bytes.at[i] = c.old_bytes.at[i] ^ c.mask.at[i];
                for (int level = 0; level < XCI_CPU_LEVELS; ++level) {
                    const xci_backend *backend = xci_cpu_backend_at((xci_cpu_level)level);
                    if (backend == NULL)
                        continue;
                    check_encode(backend, &c, XORCAST_CODEC_LZ4);
                    check_encode(backend, &c, XORCAST_CODEC_SNAPPY);
                }
                free_chunk(&c);
            }
}

/* Blocks that reach the raw size exactly, by one byte and by many: one long random tail after a
 * zero run. */
static void test_at_raw_size(void **state) {
    (void)state;
    for (uint32_t tail = 0; tail < 60; ++tail)
        for (uint32_t n = 300; n < 316; ++n) {
            chunk c = make_chunk(FULL, n, 1);
            memset(c.mask.at + 20 + tail, 0, 5 + tail % 7);
            for (uint32_t i = 0; i < n; ++i)
                c.new_bytes.at[i] = c.old_bytes.at[i] ^ c.mask.at[i];
            check_encode(&xci_backend_cpu, &c, XORCAST_CODEC_LZ4);
            check_encode(&xci_backend_cpu, &c, XORCAST_CODEC_SNAPPY);
            free_chunk(&c);
        }
}

/* Blocks that become raw at their very end, or just not: old must not have moved before that is
 * sure, or its mask is lost. */
static void test_raw_after_all(void **state) {
    (void)state;
    uint32_t raw = 0;
    for (uint32_t runs = 0; runs < 110; ++runs) {
        chunk c = make_chunk(FULL, 65536, 2);
        for (uint32_t i = 0; i < runs * 8; ++i) {
            const uint32_t at = i / 8 * 80 + 60 + i % 8;
            c.mask.at[at] = 0;
            c.new_bytes.at[at] = c.old_bytes.at[at];
        }
        for (int level = 0; level < XCI_CPU_LEVELS; ++level)
            if (xci_cpu_backend_at((xci_cpu_level)level) != NULL)
                check_encode(xci_cpu_backend_at((xci_cpu_level)level), &c, XORCAST_CODEC_LZ4);
        uint8_t block[65536 + 1024], copied[65536];
        mark_copies(c.mask.at, c.n, true, copied);
        raw += reference_lz4(c.mask.at, c.n, copied, block) >= c.n;
        free_chunk(&c);
    }
    assert_in_range(raw, 20, 90);
}

/* Blocks that have no room for what comes before a late zero run: the writer goes on behind it, as
 * if there were little left, but old must not move. */
static void test_raw_before_the_end(void **state) {
    (void)state;
    for (uint32_t left = 24; left < 400; left += 8) {
        chunk c = make_chunk(FULL, 65536, 2);
        const uint32_t at = c.n - left;
        memset(c.mask.at + at, 0, 8);
        memcpy(c.new_bytes.at + at, c.old_bytes.at + at, 8);
        for (int level = 0; level < XCI_CPU_LEVELS; ++level)
            if (xci_cpu_backend_at((xci_cpu_level)level) != NULL)
                check_encode(xci_cpu_backend_at((xci_cpu_level)level), &c, XORCAST_CODEC_LZ4);
        free_chunk(&c);
    }
}

/* A batch is as its jobs one by one; a tied result would hide one that is skipped. */
static void test_batch(void **state) {
    (void)state;
    enum { JOBS = 5 };
    chunk chunks[JOBS];
    guarded blocks[JOBS];
    xci_encode_job jobs[JOBS];
    for (uint32_t k = 0; k < JOBS; ++k) {
        chunks[k] = make_chunk(SPARSE, 3000 + 64 * k, 2);
        blocks[k] = guard(chunks[k].n + XCI_BLOCK_SLACK, 0);
        jobs[k] = (xci_encode_job){.old_bytes = chunks[k].old_bytes.at,
                                   .new_bytes = chunks[k].new_bytes.at,
                                   .bytes = chunks[k].n,
                                   .element_bytes = 2,
                                   .codec = XORCAST_CODEC_LZ4,
                                   .segment_count = chunks[k].segment_count,
                                   .segments = chunks[k].segments,
                                   .block = blocks[k].at};
    }
    xci_backend_find(NULL)->encode(jobs, JOBS);
    for (uint32_t k = 0; k < JOBS; ++k) {
        assert_digest(jobs[k].change, expected_change(&chunks[k]));
        assert_oracle(jobs[k].block_codec, jobs[k].block, jobs[k].block_bytes, chunks[k].mask.at,
                      chunks[k].n);
        unguard(blocks[k]);
        free_chunk(&chunks[k]);
    }
}

/* A batch of blocks: sparse and dense, raw, damaged, with room for a list and without; what becomes
 * of each must not depend on its neighbours. */
static void check_batch(const xci_backend *backend) {
    enum { JOBS = 23 };
    chunk chunks[JOBS];
    xci_block_job jobs[JOBS];
    guarded weights[JOBS], blocks[JOBS];
    for (uint32_t k = 0; k < JOBS; ++k) {
        chunk *c = &chunks[k];
        *c = make_chunk((pattern)(ONE_BIT + (int)below(PATTERNS - 1)), 14 + below(9000), 2);
        blocks[k] = guard(c->n + XCI_BLOCK_SLACK, 0);
        weights[k] = guard(c->n, below(9));
        memcpy(weights[k].at, c->old_bytes.at, c->n);
        xci_encode_job job = {.old_bytes = c->old_bytes.at,
                              .new_bytes = c->new_bytes.at,
                              .bytes = c->n,
                              .element_bytes = 2,
                              .block = blocks[k].at,
                              .codec = below(6) == 0 ? XORCAST_CODEC_RAW : XORCAST_CODEC_LZ4};
        backend->encode(&job, 1);
        jobs[k] = (xci_block_job){.block = job.block,
                                  .block_bytes = job.block_bytes,
                                  .block_codec = job.block_codec,
                                  .bytes = c->n,
                                  .element_bytes = 2,
                                  .weights = weights[k].at,
                                  .segments = c->segments,
                                  .segment_count = c->segment_count};
        jobs[k].block_bytes -= k % 7 == 3 && job.block_bytes > 0; /* damaged */
        jobs[k].list = below(5) > 0 ? malloc(4 * XCI_LIST_ROOM(job.block_bytes)) : NULL;
    }
    backend->check(jobs, JOBS);
    for (uint32_t k = 0; k < JOBS; ++k) {
        const bool good = k % 7 != 3 && jobs[k].block_bytes > 0;
        assert_int_equal(jobs[k].status, good ? XORCAST_OK : XORCAST_DATA_CORRUPT);
        if (good)
            assert_digest(jobs[k].change, expected_change(&chunks[k]));
        if (jobs[k].list_bytes > 0)
            jobs[k].block_codec = XCI_CODEC_LIST;
    }
    for (uint32_t k = 0, end; k < JOBS; k = end + 1) {
        for (end = k; end < JOBS && jobs[end].status == XORCAST_OK; ++end)
            continue;
        backend->apply(jobs + k, end - k);
    }
    for (uint32_t k = 0; k < JOBS; ++k) {
        const bool good = jobs[k].status == XORCAST_OK;
        const uint8_t *wanted = good ? chunks[k].new_bytes.at : chunks[k].old_bytes.at;
        assert_memory_equal(weights[k].at, wanted, chunks[k].n);
        free(jobs[k].list);
        unguard(weights[k]);
        unguard(blocks[k]);
        free_chunk(&chunks[k]);
    }
}

static void test_batches_of_blocks(void **state) {
    (void)state;
    for (int level = 0; level < XCI_CPU_LEVELS; ++level)
        for (int round = 0; round < 200 && xci_cpu_backend_at((xci_cpu_level)level); ++round)
            check_batch(xci_cpu_backend_at((xci_cpu_level)level));
}

static void test_find(void **state) {
    (void)state;
    assert_ptr_equal(xci_backend_find("cpu"), &xci_backend_cpu);
    assert_non_null(xci_backend_find(NULL));
    assert_null(xci_backend_find("abacus"));
    assert_null(xci_backend_find(""));
}

/* ---- Hostile blocks -------------------------------------------------------------------------*/

/* Whether a block that liblz4 takes has only matches of zeros at offset 1. */
static bool in_profile(const uint8_t *block, uint32_t size, const uint8_t *decoded) {
    uint32_t at = 0, produced = 0;
    for (;;) {
        const uint8_t token = block[at++];
        uint32_t literals = token >> 4, match = token & 15;
        if (literals == 15)
            do
                literals += block[at];
            while (block[at++] == 255);
        at += literals;
        produced += literals;
        if (at == size)
            return true;
        if (block[at] != 1 || block[at + 1] != 0 || decoded[produced - 1] != 0)
            return false;
        at += 2;
        if (match == 15)
            do
                match += block[at];
            while (block[at++] == 255);
        produced += match + 4;
    }
}

static xorcast_status run_check(const xci_backend *backend, uint8_t *block, uint32_t size,
                                guarded weights, uint64_t *bits_out) {
    const xci_segment whole = {0, (uint32_t)weights.bytes, 7};
    xci_block_job job = {
        .block = block,
        .block_bytes = size,
        .block_codec = XORCAST_CODEC_LZ4,
        .bytes = (uint32_t)weights.bytes,
        .element_bytes = 2,
        .segment_count = 1,
        .segments = &whole,
        .weights = weights.at,
        .status = XORCAST_INTERNAL,
    };
    backend->check(&job, 1);
    /* Apply is for blocks that passed; on others it must still stay within its bounds. */
    backend->apply(&job, 1);
    *bits_out = job.bits_changed;
    return job.status;
}

/* With room for a list it says the same, and a list is only made of a block that passed. */
static void check_hostile_list(const xci_backend *backend, uint8_t *block, uint32_t size,
                               uint32_t n, xorcast_status wanted) {
    guarded weights = guard(n, 0);
    const xci_segment whole = {0, n, 7};
    xci_block_job job = {
        .block = block,
        .block_bytes = size,
        .block_codec = XORCAST_CODEC_LZ4,
        .bytes = n,
        .element_bytes = 2,
        .segment_count = 1,
        .segments = &whole,
        .weights = weights.at,
        .list = malloc(XCI_LIST_ROOM(size) * XCI_LIST_ENTRY),
        .list_bytes = UINT32_MAX,
        .status = XORCAST_INTERNAL,
    };
    assert_non_null(job.list);
    backend->check(&job, 1);
    assert_int_equal(job.status, wanted);
    assert_true(job.list_bytes <= (wanted == XORCAST_OK ? size : 0));
    free(job.list);
    unguard(weights);
}

/* All levels say what liblz4 says, except where the profile is narrower; nothing is overrun. */
static void check_foreign(uint8_t *block, uint32_t size, uint32_t n, uint32_t *accepted) {
    uint8_t *tight = exact_copy(block, size, 0), *decoded = calloc(1, n);
    assert_non_null(decoded);
    const bool valid =
        LZ4_decompress_safe((const char *)tight, (char *)decoded, (int)size, (int)n) == (int)n;
    const bool wanted = valid && size < n && in_profile(tight, size, decoded);
    for (int level = 0; level < XCI_CPU_LEVELS; ++level) {
        const xci_backend *backend = xci_cpu_backend_at((xci_cpu_level)level);
        if (backend == NULL)
            continue;
        guarded weights = guard(n, 0);
        uint64_t bits;
        const xorcast_status status = run_check(backend, tight, size, weights, &bits);
        assert_int_equal(status, wanted ? XORCAST_OK : XORCAST_DATA_CORRUPT);
        check_hostile_list(backend, tight, size, n, status);
        if (wanted) {
            assert_int_equal(bits, reference_counts(decoded, n, 2).bits);
            for (uint32_t i = 0; i < n; ++i)
                assert_int_equal(weights.at[i], CANARY ^ decoded[i]);
            ++*accepted;
        }
        unguard(weights);
    }
    free(decoded);
    free(tight);
}

static void test_mutated_blocks(void **state) {
    (void)state;
    uint32_t accepted = 0;
    for (uint32_t round = 0; round < 60000; ++round) {
        const uint32_t n = 14 + below(500);
        uint8_t mask[600], block[700], copied[600];
        make_mask((pattern)(ONE_BIT + (int)below(PATTERNS - 1)), mask, n);
        uint32_t size;
        if (below(4) == 0) {
            size = (uint32_t)LZ4_compress_HC((const char *)mask, (char *)block, (int)n,
                                             sizeof block, 3);
        } else {
            mark_copies(mask, n, true, copied);
            size = reference_lz4(mask, n, copied, block);
        }
        check_foreign(block, size, n, &accepted);
        size = mutate(block, size, sizeof block);
        check_foreign(block, size, n, &accepted);
    }
    assert_true(accepted > 10000);
}

/* Named attacks: what each tries, and a status for each. */
static void test_attacks(void **state) {
    (void)state;
    static const struct {
        const char *what;
        uint8_t block[24];
        uint32_t size;
    } attacks[] = {
        {"empty block", {0}, 0},
        {"nothing decoded", {0x00}, 1},
        {"length chain without end",
         {0xf0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
         12},
        {"more literals than input", {0xf0, 20, 1, 2, 3}, 5},
        {"offset cut off", {0x1f, 0, 1}, 3},
        {"offset 0", {0x1f, 0, 0, 0, 75, 0x50, 0, 0, 0, 0, 0}, 11},
        {"offset before the start", {0x1f, 0, 2, 0, 75, 0x50, 0, 0, 0, 0, 0}, 11},
        {"match of a changed byte", {0x1f, 1, 1, 0, 75, 0x50, 0, 0, 0, 0, 0}, 11},
        {"match first", {0x0f, 1, 0, 76, 0x50, 0, 0, 0, 0, 0}, 10},
        {"match length without end", {0x1f, 0, 1, 0, 255, 255, 255}, 7},
        {"match beyond the chunk", {0x1f, 0, 1, 0, 255, 75, 0x50, 0, 0, 0, 0, 0}, 12},
        {"match into the last five bytes", {0x1f, 0, 1, 0, 76, 0x40, 0, 0, 0, 0}, 10},
        {"changed byte and match into the last five", {0x2f, 1, 0, 1, 0, 75, 0x40, 0, 0, 0, 0}, 11},
        {"changed byte and match in the last eleven",
         {0x2f, 1, 0, 1, 0, 68, 0x20, 1, 0, 1, 0, 0x50, 0, 0, 0, 0, 0},
         17},
        {"one byte too few", {0x1f, 0, 1, 0, 74, 0x50, 0, 0, 0, 0, 0}, 11},
        {"one byte too many", {0x1f, 0, 1, 0, 75, 0x60, 0, 0, 0, 0, 0, 0}, 12},
        {"bytes behind the end", {0x1f, 0, 1, 0, 75, 0x50, 0, 0, 0, 0, 0, 0}, 12},
        {"no last literals", {0x1f, 0, 1, 0, 80}, 5},
    };
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; ++i) {
        uint8_t *tight = exact_copy(attacks[i].block, attacks[i].size, 0);
        guarded weights = guard(100, 0);
        uint64_t bits;
        if (run_check(&xci_backend_cpu, tight, attacks[i].size, weights, &bits) !=
            XORCAST_DATA_CORRUPT)
            fail_msg("accepted: %s", attacks[i].what);
        unguard(weights);
        free(tight);
    }
    uint8_t good[] = {0x1f, 0, 1, 0, 75, 0x50, 0, 0, 0, 0, 0};
    guarded weights = guard(100, 0);
    uint64_t bits;
    assert_int_equal(run_check(&xci_backend_cpu, good, sizeof good, weights, &bits), XORCAST_OK);
    assert_int_equal(bits, 0);
    unguard(weights);
}

static void test_wrong_codec_or_size(void **state) {
    (void)state;
    uint8_t block[32] = {0}, weights[32] = {0};
    const xci_segment whole = {0, 32, 0};
    xci_block_job job = {.block = block,
                         .block_bytes = 32,
                         .bytes = 32,
                         .element_bytes = 1,
                         .segment_count = 1,
                         .segments = &whole,
                         .weights = weights};
    static const uint32_t refused[] = {0, XORCAST_CODEC_SNAPPY, 4, XCI_CODEC_LIST, UINT32_MAX};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; ++i) {
        job.block_codec = refused[i];
        xci_backend_cpu.check(&job, 1);
        assert_int_equal(job.status, XORCAST_DATA_CORRUPT);
    }
    job.block_codec = XORCAST_CODEC_RAW;
    xci_backend_cpu.check(&job, 1);
    assert_int_equal(job.status, XORCAST_OK);
    for (uint32_t size = 0; size < 32; ++size) {
        job.block_bytes = size;
        xci_backend_cpu.check(&job, 1);
        assert_int_equal(job.status, XORCAST_DATA_CORRUPT);
    }
}

/* Digests tell apart what sums and XOR folds do not. */
static void test_digest_sees(void **state) {
    (void)state;
    uint64_t words[64];
    for (size_t i = 0; i < 64; ++i)
        words[i] = next_random();
    const xci_segment whole = {0, sizeof words, xci_digest_key(3)};
    xci_digest_job job = {
        .bytes_at = (const uint8_t *)words, .segment_count = 1, .segments = &whole};
    xci_backend_cpu.digest(&job, 1);
    const xorcast_digest before = job.digest;
    static const uint64_t flips[][2] = {
        {UINT64_C(1) << 63, UINT64_C(1) << 63}, {1, 1}, {0xff, 0xff00}};
    for (size_t i = 0; i < sizeof flips / sizeof flips[0]; ++i)
        for (size_t other = 1; other < 64; ++other) {
            words[0] ^= flips[i][0];
            words[other] ^= flips[i][1];
            xci_backend_cpu.digest(&job, 1);
            assert_true(job.digest.lane[0] != before.lane[0] &&
                        job.digest.lane[1] != before.lane[1]);
            words[0] ^= flips[i][0];
            words[other] ^= flips[i][1];
        }
    const uint64_t swapped = words[4];
    words[4] = words[5];
    words[5] = swapped;
    xci_backend_cpu.digest(&job, 1);
    assert_true(job.digest.lane[0] != before.lane[0] && job.digest.lane[1] != before.lane[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_lengths),
        cmocka_unit_test(test_chunk_lengths),
        cmocka_unit_test(test_largest_chunk),
        cmocka_unit_test(test_ends_of_blocks),
        cmocka_unit_test(test_at_raw_size),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_mutated_blocks),
        cmocka_unit_test(test_attacks),
        cmocka_unit_test(test_wrong_codec_or_size),
        cmocka_unit_test(test_raw_after_all),
        cmocka_unit_test(test_raw_before_the_end),
        cmocka_unit_test(test_digest_sees),
        cmocka_unit_test(test_batches_of_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
