/* Tests of what codecs are compared with (bench/compare/compare.h): every one leads from old to new
 * weights, touches nothing else, gives the same bytes again, and has the size that its layout says.
 * Uses no xorcast call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"
#include "gen/gen.h"

#define GUARD 64u
#define CANARY 0xA5

static const compare_codec *named(const char *name) {
    const compare_codec *codec = NULL;
    for (uint32_t i = 0; (codec = compare_codec_at(i)) != NULL; i++) {
        if (strcmp(codec->name, name) == 0) {
            return codec;
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

/* ---- A step -----------------------------------------------------------------------------------*/

typedef struct shape {
    gen_kind kind;
    uint64_t bytes, columns;
    double density;
} shape;

/* Empty tensors, odd ones, one that does not change, one that changes everywhere, gaps above 65535,
 * and every width. */
static const shape shapes[] = {
    {GEN_BF16, 200000, 250, 0.013},
    {GEN_BF16, 0, 1, 1},
    {GEN_NVFP4, 70001, 70, 0.0005},
    {GEN_FP8, 131072, 256, 0},
    {GEN_F32_SCALE, 4096, 4, 0.97},
    {GEN_F32_SCALE, 4, 1, 1},
    {GEN_BF16, 600000, 300000, 1e-5},
    {GEN_RANDOM, 66000, 66000, 1},
    {GEN_FP8, 65537, 65537, 0.3},
    {GEN_BF16, 2, 1, 1},
    {GEN_ZERO, 1, 1, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct model {
    compare_tensor tensors[SHAPES];
    uint8_t *memory[SHAPES][3];
    compare_step step;
} model;

static uint8_t *guarded(uint64_t bytes) {
    uint8_t *memory = malloc(bytes + 2 * GUARD);
    assert_non_null(memory);
    memset(memory, CANARY, bytes + 2 * GUARD);
    return memory;
}

static void check_guards(const uint8_t *memory, uint64_t bytes) {
    for (uint64_t i = 0; i < GUARD; i++) {
        assert_int_equal(memory[i], CANARY);
        assert_int_equal(memory[GUARD + bytes + i], CANARY);
    }
}

static void open_model(model *m, uint64_t seed, double factor) {
    for (uint32_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        const double density = s->density * factor < 1 ? s->density * factor : 1;
        const gen_mask mask = {s->kind, false, density, seed, i, 1};
        for (uint32_t side = 0; side < 3; side++) {
            m->memory[i][side] = guarded(s->bytes);
            gen_weights(s->kind, seed, i, 0, m->memory[i][side] + GUARD, s->bytes);
        }
        gen_mask_xor(&mask, 0, m->memory[i][1] + GUARD, s->bytes);
        m->tensors[i] = (compare_tensor){.element_bytes = gen_kind_element_bytes(s->kind),
                                         .bytes = s->bytes,
                                         .columns = s->columns,
                                         .from = m->memory[i][0] + GUARD,
                                         .to = m->memory[i][1] + GUARD,
                                         .weights = m->memory[i][2] + GUARD};
    }
    m->step = (compare_step){m->tensors, SHAPES};
}

static void close_model(model *m) {
    for (uint32_t i = 0; i < SHAPES; i++) {
        for (uint32_t side = 0; side < 3; side++) {
            free(m->memory[i][side]);
        }
    }
}

/* Encodes, stages, commits, compares, and puts the weights back. The size. */
static uint64_t go(const compare_codec *codec, model *m, compare_work *work) {
    assert_int_equal(codec->encode(codec, &m->step, work), COMPARE_OK);
    const uint64_t size = work->encoded.count;
    assert_int_equal(codec->stage(codec, &m->step, work), COMPARE_OK);
    assert_int_equal(codec->commit(codec, &m->step, work), COMPARE_OK);
    for (uint32_t i = 0; i < SHAPES; i++) {
        const compare_tensor *t = &m->tensors[i];
        if (t->bytes > 0 && memcmp(t->weights, t->to, t->bytes) != 0) {
            fail_msg("%s does not give tensor %u", codec->name, i);
        }
        for (uint32_t side = 0; side < 3; side++) {
            check_guards(m->memory[i][side], t->bytes);
        }
        memcpy(t->weights, t->from, t->bytes);
    }
    return size;
}

static void all_lead_to_the_new_weights(void **state) {
    (void)state;
    static const double factors[] = {1, 0, 30};
    for (uint32_t f = 0; f < 3; f++) {
        model m;
        open_model(&m, 7 + f, factors[f]);
        const compare_codec *codec;
        for (uint32_t i = 0; (codec = compare_codec_at(i)) != NULL; i++) {
            compare_work work;
            memset(&work, 0, sizeof work);
            const uint64_t first = go(codec, &m, &work);
            uint8_t *copy = malloc(first + 1);
            assert_non_null(copy);
            memcpy(copy, work.encoded.at, first);
            assert_int_equal(go(codec, &m, &work), first); /* in buffers that hold another step */
            assert_memory_equal(copy, work.encoded.at, first);
            free(copy);
            compare_work_free(&work);
        }
        close_model(&m);
    }
}

/* ---- Sizes ------------------------------------------------------------------------------------*/

/* 1000 rows of 100 numbers of two bytes; changes at (0, 5), (0, 7), (3, 2) and (999, 99). */
typedef struct small {
    uint8_t from[200000], to[200000], weights[200000];
    compare_tensor tensor;
    compare_step step;
    compare_work work;
} small;

static small *open_small(void) {
    small *s = calloc(1, sizeof *s);
    assert_non_null(s);
    gen_weights(GEN_BF16, 1, 1, 0, s->from, sizeof s->from);
    memcpy(s->to, s->from, sizeof s->to);
    memcpy(s->weights, s->from, sizeof s->weights);
    static const uint32_t changed[] = {5, 7, 302, 99999};
    for (uint32_t i = 0; i < 4; i++) {
        s->to[2 * changed[i]] ^= 1;
    }
    s->tensor = (compare_tensor){2, sizeof s->from, 100, s->from, s->to, s->weights};
    s->step = (compare_step){&s->tensor, 1};
    return s;
}

static void close_small(small *s) {
    compare_work_free(&s->work);
    free(s);
}

static uint64_t encode(small *s, const char *name) {
    const compare_codec *codec = named(name);
    assert_int_equal(codec->encode(codec, &s->step, &s->work), COMPARE_OK);
    return s->work.encoded.count;
}

static void index_and_value_is_exact(void **state) {
    (void)state;
    small *s = open_small();
    static const uint32_t changed[] = {5, 7, 302, 99999};
    assert_int_equal(encode(s, "index+value"), 2 + 4 * (4 + 2));
    const uint8_t *at = s->work.encoded.at;
    assert_int_equal(at[0], 0); /* the first tensor */
    assert_int_equal(at[1], 4); /* elements */
    assert_memory_equal(at + 2, changed, sizeof changed);
    for (uint32_t i = 0; i < 4; i++) {
        assert_memory_equal(at + 18 + 2 * i, s->to + 2 * changed[i], 2);
    }
    close_small(s);
}

/* What is in a zstd frame can be seen before it is packed. */
static void gaps_and_rows_have_their_widths(void **state) {
    (void)state;
    small *s = open_small();
    encode(s, "gaps zstd");
    /* Six sizes (head 3, gaps 16, values 0 8 0 0); head: tensor, count, width; u32, as one gap is
     * 99696; XOR values of two bytes. */
    static const uint8_t gaps[] = {3,  16, 0, 8, 0,    0,    0, 4, 4, 5, 0, 0, 0, 1, 0, 0, 0,
                                   38, 1,  0, 0, 0x70, 0x85, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    assert_int_equal(s->work.ready.count, sizeof gaps);
    assert_memory_equal(s->work.ready.at, gaps, sizeof gaps);
    s->to[2 * 99999] ^= 1; /* the last change is gone: u16 will do */
    encode(s, "gaps zstd");
    static const uint8_t narrow[] = {3, 6, 0,  6, 0, 0, 0, 3, 2, 5, 0,
                                     1, 0, 38, 1, 1, 0, 1, 0, 1, 0};
    assert_int_equal(s->work.ready.count, sizeof narrow);
    assert_memory_equal(s->work.ready.at, narrow, sizeof narrow);
    s->to[2 * 99999] ^= 1;
    encode(s, "coo zstd");
    /* Tensor, count, widths of rows (996 at most: u16) and columns; rows, columns, values. */
    static const uint8_t rows[] = {0, 4, 2, 1, 0, 0, 0, 0, 3, 0, 0xE4, 3, 5, 2, 2, 99};
    assert_int_equal(s->work.ready.count, sizeof rows + 8);
    assert_memory_equal(s->work.ready.at, rows, sizeof rows);
    close_small(s);
}

/* 200000 bytes are four chunks, of which the third does not change. */
static void blocks_leave_chunks_out(void **state) {
    (void)state;
    small *s = open_small();
    uint64_t sizes[2];
    sizes[0] = encode(s, "zstd 1");
    memcpy(s->to, s->from, sizeof s->to);
    assert_int_equal(encode(s, "zstd 1"), 0);
    assert_int_equal(encode(s, "tensor zstd"), 0);
    s->to[199998] ^= 1;
    sizes[1] = encode(s, "zstd 1");
    assert_int_equal(s->work.encoded.at[0], 3); /* chunks left out */
    assert_true(sizes[1] < sizes[0] && sizes[1] > 3);
    close_small(s);
}

static void too_large_for_its_numbers(void **state) {
    (void)state;
    small *s = open_small();
    s->tensor.element_bytes = 1;
    s->tensor.bytes = UINT64_C(1) << 31; /* more than int32 can count; nothing is read */
    const compare_codec *codec = named("index+value");
    assert_int_equal(codec->encode(codec, &s->step, &s->work), COMPARE_NO_ROOM);
    codec = named("coo zstd");
    assert_int_equal(codec->encode(codec, &s->step, &s->work), COMPARE_NO_ROOM);
    close_small(s);
}

/* ---- Runs of zeros ----------------------------------------------------------------------------*/

static compare_runs runs_of(uint64_t bytes, const uint64_t *changed, uint32_t count) {
    static uint8_t from[200000], to[200000];
    compare_tensor tensor = {1, bytes, 1, from, to, NULL};
    compare_runs runs = {0, 0, 0, 0, 0};
    memset(to, 0, sizeof to);
    for (uint32_t i = 0; i < count; i++) {
        to[changed[i]] = 1;
    }
    compare_runs_add(&runs, &(compare_step){&tensor, 1});
    return runs;
}

static void runs_by_hand(void **state) {
    (void)state;
    /* 3 zeros (too few), then 96 to the end: a copy of 95. */
    compare_runs r = runs_of(100, (const uint64_t[]){3}, 1);
    assert_int_equal(r.changed_chunks, 1);
    assert_int_equal(r.runs, 1);
    assert_int_equal(r.zero_bytes, 96);
    assert_int_equal(r.lz4_bytes, 4);            /* 19 + 76 */
    assert_int_equal(r.snappy_bytes, 1 + 3 + 3); /* 64 + 31 */
    /* A copy of 64 + 8. */
    r = runs_of(74, (const uint64_t[]){0}, 1);
    assert_int_equal(r.snappy_bytes, 1 + 3 + 2);
    /* A copy of 18 in LZ4 needs no more bytes, of 19 it does, of 273 two, of 274 three. */
    assert_int_equal(runs_of(20, (const uint64_t[]){0}, 1).lz4_bytes, 3);
    assert_int_equal(runs_of(21, (const uint64_t[]){0}, 1).lz4_bytes, 4);
    assert_int_equal(runs_of(275, (const uint64_t[]){0}, 1).lz4_bytes, 4);
    assert_int_equal(runs_of(276, (const uint64_t[]){0}, 1).lz4_bytes, 5);
    /* Chunks end runs; those without a change have none. */
    r = runs_of(200000, (const uint64_t[]){65535}, 1);
    assert_int_equal(r.changed_chunks, 1);
    assert_int_equal(r.zero_bytes, 65535);
    assert_int_equal(runs_of(200000, NULL, 0).runs, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_lead_to_the_new_weights),
        cmocka_unit_test(index_and_value_is_exact),
        cmocka_unit_test(gaps_and_rows_have_their_widths),
        cmocka_unit_test(blocks_leave_chunks_out),
        cmocka_unit_test(too_large_for_its_numbers),
        cmocka_unit_test(runs_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
