/* Bundles: what may be added and what not, names and aliases, memory that is shared, boxes and
 * their edges, shapes that overflow, the empty cases, and the order that does not depend on the
 * order of adding. Names the tensor in every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "bundle/bundle.h"
#include "support/model.h"

typedef struct fixture {
    xorcast_context *context;
    xorcast_bundle *bundle;
    uint8_t memory[65536];
} fixture;

static void open_fixture(fixture *f) {
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    memset(f->memory, 7, sizeof f->memory);
    f->context = test_context(1);
    options.chunk_bytes = 16384;
    assert_int_equal(xorcast_bundle_create(f->context, &options, &f->bundle), XORCAST_OK);
}

static void close_fixture(fixture *f) {
    xorcast_bundle_destroy(f->bundle);
    xorcast_context_destroy(f->context);
}

static xorcast_tensor flat(const char *name, void *data, uint64_t *bytes) {
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.dtype = "U8";
    tensor.shape = bytes;
    tensor.rank = 1;
    tensor.bytes = *bytes;
    tensor.data = data;
    return tensor;
}

static xorcast_status add(fixture *f, const char *name, void *data, uint64_t bytes) {
    const xorcast_tensor tensor = flat(name, data, &bytes);
    return xorcast_bundle_add(f->bundle, &tensor);
}

static xorcast_status add_alias(fixture *f, const char *name, const char *of) {
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.alias_of = of;
    return xorcast_bundle_add(f->bundle, &tensor);
}

static xorcast_status add_boxes(fixture *f, const char *name, uint64_t rows, uint64_t row_bytes,
                                const xorcast_box *boxes, uint32_t count) {
    const uint64_t shape[] = {rows, row_bytes};
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.dtype = "U8";
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.bytes = rows * row_bytes;
    tensor.boxes = boxes;
    tensor.box_count = count;
    return xorcast_bundle_add(f->bundle, &tensor);
}

static xorcast_status seal(fixture *f) {
    return xorcast_bundle_seal(f->bundle, NULL);
}

static void says(fixture *f, xorcast_status status, xorcast_status expected, const char *words) {
    xorcast_error error;
    xorcast_last_error(f->context, &error);
    if (status != expected || (words != NULL && strstr(error.text, words) == NULL))
        print_message("%s: %s\n", xorcast_status_name(status), error.text);
    assert_int_equal(status, expected);
    if (words != NULL)
        assert_non_null(strstr(error.text, words));
}

/* ---- Names ---- */

static void test_order_is_by_name(void **state) {
    (void)state;
    fixture f;
    uint64_t index;
    const char *name;
    open_fixture(&f);
    assert_int_equal(add(&f, "b", f.memory + 100, 10), XORCAST_OK);
    assert_int_equal(add(&f, "a.10", f.memory + 200, 10), XORCAST_OK);
    assert_int_equal(add(&f, "a.9", f.memory + 300, 10), XORCAST_OK);
    assert_int_equal(add(&f, "\xc3\xa4", f.memory + 400, 10), XORCAST_OK);
    assert_int_equal(add(&f, "Z", f.memory + 500, 10), XORCAST_OK);
    says(&f, xorcast_bundle_find(f.bundle, "b", &index), XORCAST_BAD_STATE, "not sealed");
    says(&f, xorcast_bundle_name(f.bundle, 0, &name), XORCAST_BAD_STATE, "not sealed");
    assert_int_equal(seal(&f), XORCAST_OK);
    static const char *const order[] = {"Z", "a.10", "a.9", "b", "\xc3\xa4"};
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(xorcast_bundle_name(f.bundle, i, &name), XORCAST_OK);
        assert_string_equal(name, order[i]);
        assert_int_equal(xorcast_bundle_find(f.bundle, order[i], &index), XORCAST_OK);
        assert_int_equal(index, i);
    }
    says(&f, xorcast_bundle_find(f.bundle, "a", &index), XORCAST_NOT_FOUND, "no tensor a");
    says(&f, xorcast_bundle_name(f.bundle, 5, &name), XORCAST_NOT_FOUND, NULL);
    says(&f, xorcast_bundle_name(f.bundle, UINT64_MAX, &name), XORCAST_NOT_FOUND, NULL);
    says(&f, add(&f, "late", f.memory, 1), XORCAST_BAD_STATE, "sealed");
    says(&f, seal(&f), XORCAST_BAD_STATE, "sealed already");
    close_fixture(&f);
}

static void test_names_that_are_refused(void **state) {
    (void)state;
    fixture f;
    char longest[1025];
    open_fixture(&f);
    memset(longest, 'n', sizeof longest);
    longest[1024] = 0;
    says(&f, add(&f, longest, f.memory, 1), XORCAST_BAD_ARGUMENT, "name");
    longest[1023] = 0;
    says(&f, add(&f, longest, f.memory, 1), XORCAST_OK, NULL);
    says(&f, add(&f, "", f.memory, 1), XORCAST_BAD_ARGUMENT, "name");
    says(&f, add(&f, NULL, f.memory, 1), XORCAST_BAD_ARGUMENT, "name");
    says(&f, xorcast_bundle_add(f.bundle, NULL), XORCAST_BAD_ARGUMENT, "initialised");
    xorcast_tensor tensor = flat("t", f.memory, &(uint64_t){4});
    tensor.struct_size = 8;
    says(&f, xorcast_bundle_add(f.bundle, &tensor), XORCAST_BAD_ARGUMENT, "initialised");
    tensor = flat("t", f.memory, &(uint64_t){4});
    static const char *const dtypes[] = {NULL, "", "sixteen bytes..."};
    for (unsigned i = 0; i < 3; i++) {
        tensor.dtype = dtypes[i];
        says(&f, xorcast_bundle_add(f.bundle, &tensor), XORCAST_BAD_ARGUMENT,
             "tensor t: its dtype");
    }
    tensor.dtype = "U8";
    tensor.data = NULL;
    says(&f, xorcast_bundle_add(f.bundle, &tensor), XORCAST_BAD_ARGUMENT, "tensor t: data");
    assert_int_equal(seal(&f), XORCAST_OK); /* what was refused left nothing */
    close_fixture(&f);
}

static void test_a_name_twice(void **state) {
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        fixture f;
        open_fixture(&f);
        assert_int_equal(add(&f, "w", f.memory, 10), XORCAST_OK);
        assert_int_equal(add(&f, "x", f.memory + 32, 10), XORCAST_OK);
        if (i == 0) /* with memory of its own, with the same, as an alias, as two aliases */
            assert_int_equal(add(&f, "w", f.memory + 64, 10), XORCAST_OK);
        if (i == 1)
            assert_int_equal(add(&f, "w", f.memory, 10), XORCAST_OK);
        if (i >= 2)
            assert_int_equal(add_alias(&f, i == 2 ? "w" : "y", "x"), XORCAST_OK);
        if (i == 3)
            assert_int_equal(add_alias(&f, "y", "w"), XORCAST_OK);
        says(&f, seal(&f), XORCAST_BAD_ARGUMENT,
             i == 3 ? "tensor y was added twice" : "tensor w was added twice");
        close_fixture(&f);
    }
}

static void test_aliases(void **state) {
    (void)state;
    fixture f;
    uint64_t index;
    open_fixture(&f);
    assert_int_equal(add_alias(&f, "z.last", "m.middle"), XORCAST_OK); /* before its original */
    assert_int_equal(add_alias(&f, "m.middle", "k.first"), XORCAST_OK);
    assert_int_equal(add(&f, "k.first", f.memory, 5000), XORCAST_OK);
    assert_int_equal(add_alias(&f, "a", "z.last"), XORCAST_OK);
    assert_int_equal(add(&f, "j", f.memory + 6000, 5000), XORCAST_OK);
    assert_int_equal(seal(&f), XORCAST_OK);
    static const char *const names[] = {"a", "m.middle", "z.last", "k.first"};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(xorcast_bundle_find(f.bundle, names[i], &index), XORCAST_OK);
        assert_int_equal(index, 1);
    }
    assert_int_equal(f.bundle->layout.tensor_count, 2);
    assert_int_equal(f.bundle->layout.total_bytes, 10000);
    close_fixture(&f);
}

static void test_aliases_that_lead_nowhere(void **state) {
    (void)state;
    static const char *const cycles[][2] = {{"a", "a"}, {"a", "b"}, {"a", "gone"}};
    for (unsigned i = 0; i < 3; i++)
        for (unsigned with_tensor = 0; with_tensor < 2; with_tensor++) {
            fixture f;
            open_fixture(&f);
            if (with_tensor)
                assert_int_equal(add(&f, "t", f.memory, 10), XORCAST_OK);
            assert_int_equal(add_alias(&f, cycles[i][0], cycles[i][1]), XORCAST_OK);
            if (i == 1)
                assert_int_equal(add_alias(&f, "b", "a"), XORCAST_OK);
            says(&f, seal(&f), XORCAST_BAD_ARGUMENT, "alias");
            close_fixture(&f);
        }
}

static void test_missing_alias_is_no_difference(void **state) {
    (void)state;
    fixture f, g;
    open_fixture(&f);
    open_fixture(&g);
    assert_int_equal(add(&f, "embed", f.memory, 9000), XORCAST_OK);
    assert_int_equal(add_alias(&f, "head", "embed"), XORCAST_OK);
    assert_int_equal(add(&g, "embed", g.memory, 9000), XORCAST_OK);
    assert_int_equal(seal(&f), XORCAST_OK);
    assert_int_equal(seal(&g), XORCAST_OK);
    assert_memory_equal(f.bundle->layout.fingerprint, g.bundle->layout.fingerprint, 16);
    assert_int_equal(xci_bundle_same_layout(f.bundle, g.bundle), XORCAST_OK);
    close_fixture(&f);
    close_fixture(&g);
}

/* ---- Memory ---- */

static void test_one_storage_two_names(void **state) {
    (void)state;
    fixture f;
    uint64_t first, second;
    open_fixture(&f);
    assert_int_equal(add(&f, "lm_head", f.memory, 8000), XORCAST_OK);
    assert_int_equal(add(&f, "embed", f.memory, 8000), XORCAST_OK);
    assert_int_equal(add(&f, "copy", f.memory, 8000), XORCAST_OK);
    assert_int_equal(add(&f, "other", f.memory + 8000, 8000), XORCAST_OK);
    assert_int_equal(add_alias(&f, "more", "lm_head"), XORCAST_OK);
    assert_int_equal(seal(&f), XORCAST_OK);
    assert_int_equal(f.bundle->layout.tensor_count, 2);
    assert_int_equal(f.bundle->layout.total_bytes, 16000);
    assert_int_equal(xorcast_bundle_find(f.bundle, "copy", &first), XORCAST_OK);
    static const char *const names[] = {"embed", "lm_head", "more"};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(xorcast_bundle_find(f.bundle, names[i], &second), XORCAST_OK);
        assert_int_equal(first, second);
    }
    close_fixture(&f);
}

static void test_partial_overlap_is_refused(void **state) {
    (void)state;
    static const struct {
        uint64_t at, bytes;
    } others[] = {{0, 7999}, {0, 8001}, {1, 7999}, {7999, 1}, {4000, 8000}, {100, 100}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        fixture f;
        open_fixture(&f);
        assert_int_equal(add(&f, "a", f.memory, 8000), XORCAST_OK);
        assert_int_equal(add(&f, "far", f.memory + 30000, 8000), XORCAST_OK);
        assert_int_equal(add(&f, "z", f.memory + others[i].at, others[i].bytes), XORCAST_OK);
        says(&f, seal(&f), XORCAST_BAD_ARGUMENT, "overlap");
        close_fixture(&f);
    }
}

/* ---- Boxes ---- */

static void test_interleaved_boxes_are_taken(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    const xorcast_box q = {0, 20, 0, 64, f.memory, 192, 0},
                      k = {0, 20, 0, 64, f.memory + 64, 192, 0};
    const xorcast_box v = {0, 1, 0, 64, f.memory + 128, 0, 0}; /* one row has no pitch */
    assert_int_equal(add_boxes(&f, "q", 20, 64, &q, 1), XORCAST_OK);
    assert_int_equal(add_boxes(&f, "k", 20, 64, &k, 1), XORCAST_OK);
    assert_int_equal(add_boxes(&f, "v", 1, 64, &v, 1), XORCAST_OK);
    says(&f, seal(&f), XORCAST_OK, NULL);
    close_fixture(&f);
}

static void test_boxes_that_share_memory(void **state) {
    (void)state;
    static const struct {
        uint64_t at, rows, bytes, pitch;
    } others[] = {
        {63, 20, 64, 192},  /* touches the end of a row */
        {129, 20, 64, 192}, /* touches the begin of the next one */
        {64, 20, 64, 200},  /* drifts */
        {64, 20, 136, 192}, /* too wide for the gap */
        {0, 1, 64, 0},      /* single rows, without a pitch */
        {32, 1, 8, 8},      {190, 1, 8, 0}, {3648, 1, 64, 64},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (unsigned first = 0; first < 2; first++) {
            fixture f;
            open_fixture(&f);
            const xorcast_box one = {0, 20, 0, 64, f.memory, 192, 0};
            const xorcast_box two = {
                0, others[i].rows, 0, others[i].bytes, f.memory + others[i].at, others[i].pitch, 0};
            assert_int_equal(add_boxes(&f, first ? "a" : "b", 20, 64, &one, 1), XORCAST_OK);
            assert_int_equal(
                add_boxes(&f, first ? "b" : "a", others[i].rows, others[i].bytes, &two, 1),
                XORCAST_OK);
            says(&f, seal(&f), XORCAST_BAD_ARGUMENT, "overlap");
            close_fixture(&f);
        }
    fixture f; /* two single rows, neither of which has a pitch */
    open_fixture(&f);
    const xorcast_box one = {0, 1, 0, 64, f.memory, 0, 0}, two = {0, 1, 0, 64, f.memory + 32, 0, 0};
    assert_int_equal(add_boxes(&f, "a", 1, 64, &one, 1), XORCAST_OK);
    assert_int_equal(add_boxes(&f, "b", 1, 64, &two, 1), XORCAST_OK);
    says(&f, seal(&f), XORCAST_BAD_ARGUMENT, "overlap");
    close_fixture(&f);
}

static void test_box_edges(void **state) {
    (void)state;
    /* Rows of 100 bytes, 100 of them: row edges are words at even rows, column edges never. */
    static const struct {
        uint64_t row, rows, column, bytes, pitch;
        xorcast_status status;
    } cases[] = {
        {0, 100, 0, 100, 100, XORCAST_OK},
        {0, 50, 0, 100, 100, XORCAST_OK},
        {50, 50, 0, 100, 104, XORCAST_OK},
        {2, 2, 0, 100, 100, XORCAST_OK},
        {1, 2, 0, 100, 100, XORCAST_UNSUPPORTED},
        {0, 1, 0, 100, 100, XORCAST_UNSUPPORTED},
        {0, 100, 0, 48, 48, XORCAST_UNSUPPORTED},
        {0, 100, 8, 92, 92, XORCAST_UNSUPPORTED},
        {0, 101, 0, 100, 100, XORCAST_BAD_ARGUMENT},
        {100, 1, 0, 100, 100, XORCAST_BAD_ARGUMENT},
        {UINT64_MAX, 2, 0, 100, 100, XORCAST_BAD_ARGUMENT},
        {0, 2, 0, 101, 101, XORCAST_BAD_ARGUMENT},
        {0, 2, UINT64_MAX, 2, 100, XORCAST_BAD_ARGUMENT},
        {0, 0, 0, 100, 100, XORCAST_BAD_ARGUMENT},
        {0, 2, 0, 0, 100, XORCAST_BAD_ARGUMENT},
        {0, 2, 0, 100, 99, XORCAST_BAD_ARGUMENT},
        {0, 2, 0, 100, UINT64_MAX, XORCAST_BAD_ARGUMENT},
        {0, 2, 0, 100, UINT64_C(1) << 62, XORCAST_BAD_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_fixture(&f);
        const xorcast_box box = {cases[i].row,
                                 cases[i].rows,
                                 cases[i].column,
                                 cases[i].bytes,
                                 f.memory,
                                 cases[i].pitch,
                                 0};
        says(&f, add_boxes(&f, "t", 100, 100, &box, 1), cases[i].status,
             cases[i].status < 0 ? "tensor t" : NULL);
        close_fixture(&f);
    }
    fixture f; /* rows of whole words: any multiple of 8 */
    open_fixture(&f);
    const xorcast_box good[2] = {{1, 3, 8, 16, f.memory, 16, 0}, {5, 1, 0, 8, f.memory + 64, 0, 0}};
    const xorcast_box odd = {1, 3, 8, 17, f.memory, 32, 0}, off = {1, 3, 4, 16, f.memory, 32, 0};
    says(&f, add_boxes(&f, "odd", 10, 64, &odd, 1), XORCAST_UNSUPPORTED, "multiples of 8");
    says(&f, add_boxes(&f, "off", 10, 64, &off, 1), XORCAST_UNSUPPORTED, "multiples of 8");
    says(&f, add_boxes(&f, "good", 10, 64, good, 2), XORCAST_OK, NULL);
    says(&f, add_boxes(&f, "none", 10, 64, NULL, 1), XORCAST_BAD_ARGUMENT, "tensor none");
    assert_int_equal(seal(&f), XORCAST_OK);
    assert_int_equal(f.bundle->layout.covered_bytes, 3 * 16 + 8);
    assert_int_equal(f.bundle->layout.total_bytes, 640);
    close_fixture(&f);
}

static void test_boxes_that_hold_the_same_bytes(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    xorcast_box boxes[2] = {{0, 10, 0, 64, f.memory, 64, 0}, {9, 1, 56, 8, f.memory + 1000, 8, 0}};
    says(&f, add_boxes(&f, "t", 10, 64, boxes, 2), XORCAST_BAD_ARGUMENT, "REPLICA");
    boxes[1].flags = XORCAST_BOX_REPLICA;
    says(&f, add_boxes(&f, "t", 10, 64, boxes, 2), XORCAST_OK, NULL);
    assert_int_equal(seal(&f), XORCAST_OK);
    assert_int_equal(f.bundle->layout.covered_bytes, 640);
    close_fixture(&f);
}

/* A rank with many rows of two bytes, four apart, next to holes: its counted words are found whole.
 */
static void test_narrow_strided_rows_are_counted_by_words(void **state) {
    (void)state;
    enum { ROWS = 16384, HALF = ROWS / 2 };
    static uint8_t plain[2 * ROWS], spread[4 * ROWS];
    xorcast_digest digests[2] = {{{0, 0}}, {{0, 0}}}, all;
    fixture f;
    for (unsigned i = 0; i < 2 * ROWS; i++)
        plain[i] = (uint8_t)(i * 31 + (i >> 8));
    for (unsigned i = 0; i < 2 * ROWS; i++)
        spread[i / 2 * 4 + i % 2] = plain[i];
    for (uint64_t part = 0; part < 2; part++) {
        open_fixture(&f);
        const xorcast_box box = {part * HALF, HALF, 0, 2, spread + 4 * part * HALF, 4, 0};
        says(&f, add_boxes(&f, "t", ROWS, 2, &box, 1), XORCAST_OK, NULL);
        assert_int_equal(seal(&f), XORCAST_OK);
        assert_int_equal(xorcast_bundle_digest(f.bundle, &digests[part]), XORCAST_OK);
        close_fixture(&f);
    }
    open_fixture(&f);
    const xorcast_box whole = {0, ROWS, 0, 2, plain, 2, 0};
    says(&f, add_boxes(&f, "t", ROWS, 2, &whole, 1), XORCAST_OK, NULL);
    assert_int_equal(seal(&f), XORCAST_OK);
    assert_int_equal(xorcast_bundle_digest(f.bundle, &all), XORCAST_OK);
    assert_true(digests[0].lane[0] + digests[1].lane[0] == all.lane[0]);
    assert_true(digests[0].lane[1] + digests[1].lane[1] == all.lane[1]);
    close_fixture(&f);
}

/* ---- Shapes ---- */

static xorcast_status add_shape(fixture *f, uint32_t rank, const uint64_t *shape, uint64_t bytes) {
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = "t";
    tensor.dtype = "BF16";
    tensor.shape = shape;
    tensor.rank = rank;
    tensor.bytes = bytes;
    tensor.data = f->memory;
    return xorcast_bundle_add(f->bundle, &tensor);
}

static void test_shapes(void **state) {
    (void)state;
    const uint64_t big = UINT64_C(1) << 32;
    const uint64_t ones[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct {
        uint32_t rank;
        uint64_t shape[4], bytes;
        xorcast_status status;
    } cases[] = {
        {0, {0}, 2, XORCAST_OK},
        {0, {0}, 0, XORCAST_BAD_ARGUMENT}, /* one element has bytes */
        {1, {0}, 0, XORCAST_OK},
        {1, {0}, 2, XORCAST_BAD_ARGUMENT},
        {3, {4, 0, 5}, 0, XORCAST_OK},
        {4, {big, big, big, 0}, 0, XORCAST_OK}, /* empty, however large the rest */
        {2, {big, big}, 2, XORCAST_BAD_ARGUMENT},
        {3, {big, big, 2}, UINT64_MAX, XORCAST_BAD_ARGUMENT},
        {2, {UINT64_MAX, 2}, 4, XORCAST_BAD_ARGUMENT},
        {1, {UINT64_C(1) << 62}, UINT64_C(1) << 63, XORCAST_BAD_ARGUMENT},
        {1, {17}, 9, XORCAST_OK}, /* packed elements */
        {1, {3}, 36, XORCAST_OK}, /* wide ones */
        {2, {3, 5}, 7, XORCAST_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_fixture(&f);
        says(&f, add_shape(&f, cases[i].rank, cases[i].shape, cases[i].bytes), cases[i].status,
             NULL);
        if (cases[i].status == XORCAST_OK)
            assert_int_equal(seal(&f), XORCAST_OK);
        close_fixture(&f);
    }
    fixture f;
    open_fixture(&f);
    says(&f, add_shape(&f, 17, ones, 2), XORCAST_BAD_ARGUMENT, "rank");
    says(&f, add_shape(&f, 1, NULL, 2), XORCAST_BAD_ARGUMENT, "tensor t");
    says(&f, add_shape(&f, 16, ones, 2), XORCAST_OK, NULL);
    close_fixture(&f);
}

static void test_rows_that_do_not_fit(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f);
    uint64_t bytes = 1000;
    xorcast_tensor tensor = flat("t", f.memory, &bytes);
    static const uint64_t rows[] = {3, 1001, 2000, UINT64_MAX};
    for (unsigned i = 0; i < 4; i++) {
        tensor.row_bytes = rows[i];
        says(&f, xorcast_bundle_add(f.bundle, &tensor), XORCAST_BAD_ARGUMENT, "tensor t");
    }
    tensor.row_bytes = 8;
    says(&f, xorcast_bundle_add(f.bundle, &tensor), XORCAST_OK, NULL);
    close_fixture(&f);
}

static void test_more_than_there_can_be(void **state) {
    (void)state;
    fixture f;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    options.log_level = XORCAST_LOG_ERROR;
    options.scratch_limit_bytes = UINT64_C(1) << 40;
    assert_int_equal(xorcast_context_create(&options, &f.context), XORCAST_OK);
    assert_int_equal(xorcast_bundle_create(f.context, NULL, &f.bundle), XORCAST_OK);
    uint64_t bytes = INT64_MAX; /* never touched: its grid alone is more than any memory */
    xorcast_tensor tensor = flat("huge", f.memory, &bytes);
    says(&f, xorcast_bundle_add(f.bundle, &tensor), XORCAST_OK, NULL);
    says(&f, seal(&f), XORCAST_NO_HOST_MEMORY, NULL);
    close_fixture(&f);
}

static void test_bad_options(void **state) {
    (void)state;
    static const uint64_t chunks[] = {1, 8192, 16383, 24576, 2 << 20, UINT64_MAX};
    static const uint64_t groups[] = {1, 1 << 19, 3 << 20, 128 << 20, UINT64_MAX};
    xorcast_context *context = test_context(1);
    xorcast_bundle *bundle;
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    for (unsigned i = 0; i < 6; i++) {
        options.chunk_bytes = chunks[i];
        assert_int_equal(xorcast_bundle_create(context, &options, &bundle), XORCAST_BAD_ARGUMENT);
    }
    options.chunk_bytes = 0;
    for (unsigned i = 0; i < 5; i++) {
        options.group_bytes = groups[i];
        assert_int_equal(xorcast_bundle_create(context, &options, &bundle), XORCAST_BAD_ARGUMENT);
    }
    options.group_bytes = 0;
    options.struct_size--;
    assert_int_equal(xorcast_bundle_create(context, &options, &bundle), XORCAST_BAD_ARGUMENT);
    xorcast_bundle_destroy(NULL);
    xorcast_context_destroy(context);
}

/* ---- Nothing ---- */

static void round_trip(fixture *f) {
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    xorcast_delta_info info;
    assert_int_equal(xorcast_delta_encode(f->bundle, f->bundle, NULL, &sink, &info), XORCAST_OK);
    assert_int_equal(info.counts.bytes_changed, 0);
    assert_true(delta.count < 512);
    const xorcast_source source = test_source(&delta);
    says(f, xorcast_delta_apply(f->bundle, &source, &info), XORCAST_OK, NULL);
    test_bytes_free(&delta);
}

static void follow_nothing(fixture *f) {
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    uint64_t newest;
    says(f, xorcast_publisher_open(f->bundle, "inproc:nothing", NULL, &publisher), XORCAST_OK,
         NULL);
    says(f, xorcast_subscriber_open(f->bundle, "inproc:nothing", NULL, &subscriber), XORCAST_OK,
         NULL);
    says(f, xorcast_publisher_begin(publisher, 1), XORCAST_OK, NULL);
    says(f, xorcast_publisher_put(publisher, 0, NULL, NULL), XORCAST_OK, NULL);
    says(f, xorcast_publisher_finish(publisher, NULL), XORCAST_OK, NULL);
    says(f, xorcast_subscriber_poll(subscriber, 10000, &newest), XORCAST_OK, NULL);
    says(f, xorcast_subscriber_stage(subscriber, newest, 10000), XORCAST_OK, NULL);
    says(f, xorcast_subscriber_commit(subscriber, NULL), XORCAST_OK, NULL);
    says(f, xorcast_subscriber_wait(subscriber, 10000), XORCAST_OK, NULL);
    says(f, xorcast_subscriber_audit(subscriber, 0), XORCAST_OK, NULL);
    says(f, xorcast_subscriber_keyframe(subscriber, 10000), XORCAST_OK, NULL);
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
}

static void test_bundles_of_nothing(void **state) {
    (void)state;
    for (unsigned tensors = 0; tensors < 3; tensors++) {
        fixture f;
        uint64_t index;
        xorcast_layout layout;
        open_fixture(&f);
        if (tensors > 0)
            assert_int_equal(add(&f, "void", NULL, 0), XORCAST_OK);
        if (tensors > 1)
            assert_int_equal(add(&f, "void.too", NULL, 0), XORCAST_OK);
        assert_int_equal(xorcast_bundle_seal(f.bundle, &layout), XORCAST_OK);
        assert_int_equal(layout.tensor_count, tensors);
        assert_int_equal(layout.total_bytes + layout.chunk_count + layout.group_count, 0);
        assert_int_equal(xorcast_bundle_find(f.bundle, "void", &index),
                         tensors > 0 ? XORCAST_OK : XORCAST_NOT_FOUND);
        round_trip(&f);
        follow_nothing(&f);
        close_fixture(&f);
    }
}

static void test_describe(void **state) {
    (void)state;
    fixture f;
    xorcast_tensor found;
    open_fixture(&f);
    const xorcast_box box = {0, 5, 8, 8, f.memory, 16, 0};
    assert_int_equal(add(&f, "a", f.memory + 1000, 24), XORCAST_OK);
    assert_int_equal(add_boxes(&f, "b", 10, 32, &box, 1), XORCAST_OK);
    assert_int_equal(seal(&f), XORCAST_OK);
    assert_int_equal(xorcast_bundle_describe(f.bundle, 0, &found), XORCAST_OK);
    assert_string_equal(found.name, "a");
    assert_ptr_equal(found.data, f.memory + 1000);
    assert_int_equal(found.bytes, 24);
    assert_int_equal(xorcast_bundle_describe(f.bundle, 1, &found), XORCAST_OK);
    assert_null(found.data);
    assert_int_equal(found.shape[1], 32);
    assert_int_equal(xorcast_bundle_describe(f.bundle, 2, &found), XORCAST_NOT_FOUND);
    close_fixture(&f);
}

/* ---- Layouts ---- */

/* Every kind of difference is a difference, and the message names the tensor. */
static void test_layouts_that_differ(void **state) {
    (void)state;
    for (unsigned kind = 0; kind < 7; kind++) {
        model a, b;
        xorcast_context *context = test_context(1);
        model_create(&a, 1);
        model_create(&b, 1);
        model_tensor *t = &b.tensors[7];
        if (kind == 0)
            t->dtype = "F16";
        if (kind == 1)
            strcpy(t->name, "layers.1.x");
        if (kind == 2) {
            t->shape[0] = 513;
            t->shape[1] = 900;
        }
        if (kind == 3) {
            t->shape[0]--;
            t->bytes -= 2 * 513;
        }
        if (kind == 4) {
            free(t->data);
            *t = b.tensors[--b.count];
        }
        if (kind == 5) {
            b.tensors[5].rank = 1;
            b.tensors[5].shape[0] = 1;
        }
        xorcast_bundle *x = model_bundle(context, &a, 16384, 1);
        xorcast_bundle *y = model_bundle(context, &b, kind == 6 ? 32768 : 16384, 2);
        const xorcast_status status = xci_bundle_same_layout(x, y);
        xorcast_error error;
        xorcast_last_error(context, &error);
        assert_int_equal(status, XORCAST_LAYOUT_MISMATCH);
        if (kind < 6 && kind != 5)
            assert_non_null(strstr(error.text, "layers.1."));
        xorcast_bundle_destroy(x);
        xorcast_bundle_destroy(y);
        xorcast_context_destroy(context);
        model_free(&a);
        model_free(&b);
    }
}

static void test_grid_is_whole(void **state) {
    (void)state;
    model m;
    xorcast_context *context = test_context(1);
    model_create(&m, 1);
    xorcast_bundle *bundle = model_bundle(context, &m, 16384, 9);
    uint64_t bytes = 0, last_group = 0;
    for (uint64_t c = 0; c < bundle->layout.chunk_count; c++) {
        xci_chunk chunk, next;
        xci_bundle_chunk(bundle, c, NULL, &chunk);
        assert_int_equal(chunk.bytes, xci_bundle_chunk_bytes(bundle, c));
        assert_true(chunk.bytes > 0 && chunk.bytes <= 16384);
        for (uint32_t s = 0; s < chunk.segment_count; s++) {
            assert_int_equal(chunk.segments[s].offset % 8, 0);
            bytes += chunk.segments[s].bytes;
        }
        const uint64_t group = xci_bundle_group_of(bundle, c);
        assert_true(group == last_group || group == last_group + 1);
        last_group = group;
        if (c + 1 == bundle->layout.chunk_count)
            break;
        next = chunk;
        xci_bundle_next_chunk(bundle, NULL, &next);
        xci_chunk direct;
        xci_bundle_chunk(bundle, c + 1, NULL, &direct);
        assert_int_equal(next.tensor, direct.tensor);
        assert_int_equal(next.offset, direct.offset);
        assert_int_equal(next.bytes, direct.bytes);
    }
    assert_int_equal(bytes, bundle->layout.total_bytes);
    assert_int_equal(last_group + 1, bundle->layout.group_count);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    model_free(&m);
}

/* ---- 200,000 tensors ---- */

static void test_200000_tensors(void **state) {
    (void)state;
    enum { TENSORS = 200000, BYTES = 24 };
    fixture f;
    uint8_t *data = calloc(TENSORS, BYTES);
    uint64_t index;
    char name[64];
    assert_non_null(data);
    open_fixture(&f);
    const uint64_t begun = xci_now_ns();
    for (uint64_t i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "layers.%llu.experts.%llu.scale",
                 (unsigned long long)(i * 7919 % TENSORS / 128),
                 (unsigned long long)(i * 7919 % TENSORS % 128));
        assert_int_equal(add(&f, name, data + i * BYTES, BYTES), XORCAST_OK);
    }
    const uint64_t added = xci_now_ns();
    assert_int_equal(seal(&f), XORCAST_OK);
    const uint64_t sealed = xci_now_ns();
    print_message("200,000 tensors: added in %.0f ms, sealed in %.0f ms\n",
                  (double)(added - begun) / 1e6, (double)(sealed - added) / 1e6);
    assert_true(sealed - added < UINT64_C(5000000000)); /* a quadratic step would take minutes */
    assert_int_equal(f.bundle->layout.tensor_count, TENSORS);
    assert_int_equal(xorcast_bundle_find(f.bundle, "layers.1000.experts.17.scale", &index),
                     XORCAST_OK);
    round_trip(&f);
    close_fixture(&f);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_is_by_name),
        cmocka_unit_test(test_names_that_are_refused),
        cmocka_unit_test(test_a_name_twice),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_aliases_that_lead_nowhere),
        cmocka_unit_test(test_missing_alias_is_no_difference),
        cmocka_unit_test(test_one_storage_two_names),
        cmocka_unit_test(test_partial_overlap_is_refused),
        cmocka_unit_test(test_interleaved_boxes_are_taken),
        cmocka_unit_test(test_boxes_that_share_memory),
        cmocka_unit_test(test_box_edges),
        cmocka_unit_test(test_boxes_that_hold_the_same_bytes),
        cmocka_unit_test(test_narrow_strided_rows_are_counted_by_words),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_rows_that_do_not_fit),
        cmocka_unit_test(test_more_than_there_can_be),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_bundles_of_nothing),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_layouts_that_differ),
        cmocka_unit_test(test_grid_is_whole),
        cmocka_unit_test(test_200000_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
