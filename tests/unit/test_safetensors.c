/* The header parser: what is a safetensors file and what is not, each refusal by its kind; the
 * writer; and a header of 200,000 tensors in time and memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"
#include "support/model.h"

static xorcast_context *context;

static int setup(void **state) {
    (void)state;
    context = test_context(1);
    return 0;
}

/* Nothing may stay allocated, whatever a header holds. */
static int teardown(void **state) {
    (void)state;
    xorcast_context_destroy(context);
    return 0;
}

typedef struct parsed {
    xci_entries entries;
    xci_arena *arena;
    uint64_t data_bytes;
} parsed;

static void parsed_free(parsed *p) {
    xci_entries_free(&p->entries);
    xci_arena_destroy(p->arena);
}

/* In a block of exactly its size, so that sanitizers see a read beyond it. */
static xorcast_status parse_bytes(const void *bytes, size_t count, parsed *p) {
    uint8_t *copy = malloc(count > 0 ? count : 1);
    *p = (parsed){.entries = {.context = context}};
    memcpy(copy, bytes, count);
    assert_int_equal(xci_arena_create(context, &p->arena), XORCAST_OK);
    xorcast_status status =
        xci_safetensors_parse(&p->entries, p->arena, "test", 0, copy, count, &p->data_bytes);
    if (status == XORCAST_OK)
        status = xci_entries_sort(&p->entries);
    free(copy);
    return status;
}

static void expect(const char *header, xorcast_status wanted) {
    parsed p;
    xorcast_memory before, after;
    xorcast_context_memory(context, &before);
    const xorcast_status status = parse_bytes(header, strlen(header), &p);
    if (status != wanted)
        fprintf(stderr, "%s: %s instead of %s\n", header, xorcast_status_name(status),
                xorcast_status_name(wanted));
    assert_int_equal(status, wanted);
    parsed_free(&p);
    xorcast_context_memory(context, &after);
    assert_int_equal(after.now_bytes, before.now_bytes);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void test_good_headers(void **state) {
    (void)state;
    static const char *const good[] = {
        "{}",
        "{ }   ",
        "{\"__metadata__\":{}}",
        "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u00e9\\n\"}," T("a", "F32", "[2]", "0",
                                                                        "8") "}",
        "{" T("a", "BF16", "[]", "0", "2") "}",
        "{" T("a", "F16", "[0,5]", "0", "0") "}",
        "{" T("a", "F16", "[0]", "0", "0") "," T("b", "U8", "[3]", "0",
                                                 "3") "," T("c", "I64", "[7,0]", "3", "3") "}",
        "{" T("b", "U8", "[3]", "2", "5") "," T("a", "I16", "[1]", "0", "2") "}",
        "{" T("a", "F4", "[4]", "0", "2") "}",
        "{" T("a", "F6_E2M3", "[4]", "0", "3") "," T("b", "F8_E8M0", "[1]", "3", "4") "}",
        "{" T("a", "C64", "[1]", "0", "8") "," T("b", "BOOL", "[2]", "8", "10") "}",
        "{" T("a", "NEWTYPE5", "[3]", "0", "7") "}", /* unknown: the offsets say how large */
        "{" T("\\u0061\\ud83d\\ude00", "U8", "[1]", "0", "1") "}",
        "{" T("\xc3\xa9", "U8", "[1]", "0", "1") "}",
        "{\"a\":{\"extra\":[1,{\"b\":[null,true,-1.5e3]}],\"dtype\":\"U8\",\"shape\":[1],\"data_"
        "offsets\":[0,1]}}",
        "{\n \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 1 , 1 ] , \"data_offsets\" : [ 0 , 1 ] } "
        "}\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(good[i], XORCAST_OK);
}

static void test_bad_syntax(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        " {}",
        "[]",
        "{",
        "}",
        "null",
        "{}}",
        "{},",
        "{} x",
        "{\"a\"}",
        "{\"a\":}",
        "{,}",
        "{\"a\":1}",
        "{\"a\":{}}",
        "{\"a\":[]}",
        "{a:1}",
        "{'a':1}",
        "{\"__metadata__\":1}",
        "{\"__metadata__\":null}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":{}}}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
        "{" T("a", "U8", "[1]", "0", "1") ",}",
        "{" T("a", "U8", "[1]", "0", "1") " " T("b", "U8", "[1]", "1", "2") "}",
        "{" T("a", "U8", "[1,]", "0", "1") "}",
        "{" T("a", "U8", "[,1]", "0", "1") "}",
        "{" T("a", "U8", "1", "0", "1") "}",
        "{" T("a", "U8", "{}", "0", "1") "}",
        "{" T("a", "U8", "[-1]", "0", "1") "}",
        "{" T("a", "U8", "[1.0]", "0", "1") "}",
        "{" T("a", "U8", "[1e0]", "0", "1") "}",
        "{" T("a", "U8", "[01]", "0", "1") "}",
        "{" T("a", "U8", "[+1]", "0", "1") "}",
        "{" T("a", "U8", "[\"1\"]", "0", "1") "}",
        "{" T("a", "U8", "[[1]]", "0", "1") "}",
        "{" T("a", "U8", "[1]", "-0", "1") "}",
        "{" T("a", "U8", "[1]", "0", "1.0") "}",
        "{" T("a", "U8", "[1]", "0", "1,2") "}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}",
        "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}",
        "{" T("", "U8", "[1]", "0", "1") "}",
        "{" T("a", "", "[1]", "0", "1") "}",
        "{" T("a", "SIXTEEN_BYTES___", "[1]", "0", "1") "}",
        "{" T("a\\u0000b", "U8", "[1]", "0", "1") "}",
        "{" T("a\x01", "U8", "[1]", "0", "1") "}",
        "{" T("\xff", "U8", "[1]", "0", "1") "}",
        "{" T("\xc0\xaf", "U8", "[1]", "0", "1") "}",
        "{" T("\xed\xa0\x80", "U8", "[1]", "0", "1") "}",
        "{" T("\xf4\x90\x80\x80", "U8", "[1]", "0", "1") "}",
        "{" T("\xe0\x80\x80", "U8", "[1]", "0", "1") "}",
        "{" T("\xc3", "U8", "[1]", "0", "1") "}",
        "{" T("\\ud83d", "U8", "[1]", "0", "1") "}",
        "{" T("\\ude00\\ud83d", "U8", "[1]", "0", "1") "}",
        "{" T("\\x41", "U8", "[1]", "0", "1") "}",
        "{" T("\\u12g4", "U8", "[1]", "0", "1") "}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(bad[i], XORCAST_DATA_CORRUPT);
}

static void test_bad_sizes(void **state) {
    (void)state;
    static const char *const bad[] = {
        /* shape, dtype and offsets disagree */
        "{" T("a", "F32", "[2]", "0", "7") "}",
        "{" T("a", "F32", "[2]", "0", "9") "}",
        "{" T("a", "F32", "[0]", "0", "4") "}",
        "{" T("a", "F32", "[1]", "0", "0") "}",
        "{" T("a", "F4", "[3]", "0", "2") "}",
        "{" T("a", "NEW", "[0]", "0", "2") "}",
        "{" T("a", "U8", "[4]", "4", "0") "}",
        /* overflow */
        "{" T("a", "U8", "[4294967296,4294967296]", "0", "0") "}",
        "{" T("a", "F64", "[2305843009213693952]", "0", "0") "}",
        "{" T("a", "F32", "[4294967296,4294967297]", "0", "17179869184") "}",
        "{" T("a", "U8", "[18446744073709551616]", "0", "1") "}",
        "{" T("a", "U8", "[1]", "18446744073709551615", "18446744073709551616") "}",
        "{" T("a", "U8", "[18446744073709551615]", "0", "18446744073709551615") "}",
        "{" T("a", "U8", "[1]", "9223372036854775807", "9223372036854775808") "}",
        /* rank */
        "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "0", "1") "}",
        /* holes, overlap, a beginning that is not 0 */
        "{" T("a", "U8", "[1]", "1", "2") "}",
        "{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "3", "5") "}",
        "{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "1", "3") "}",
        "{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "0", "2") "}",
        "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[0]", "2", "2") "}",
        "{" T("a", "U8", "[0]", "5", "5") "}",
        /* one name twice */
        "{" T("a", "U8", "[2]", "0", "2") "," T("a", "U8", "[2]", "2", "4") "}",
        "{" T("a", "U8", "[0]", "0", "0") "," T("\\u0061", "U8", "[0]", "0", "0") "}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(bad[i], XORCAST_DATA_CORRUPT);
}

static void test_deep_nesting(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(3 * DEPTH + 64);
    char *at = text + sprintf(text, "{\"a\":{\"x\":");
    memset(at, '[', DEPTH);
    at[DEPTH] = 0;
    expect(text, XORCAST_DATA_CORRUPT);
    for (int i = 0; i < DEPTH; i++)
        memcpy(at + 5 * (i % (DEPTH / 4)), "{\"b\":", 5);
    at[5 * (DEPTH / 4)] = 0;
    expect(text, XORCAST_DATA_CORRUPT);
    free(text);
}

/* Every beginning of a header is refused, and every flipped byte is refused or read without a
 * fault. */
static void test_cut_and_flipped(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"k\\n\":\"v\"}," T(
        "a", "F32", "[2,3]", "0", "24") "," T("b\\u00e9", "BF16", "[]", "24", "26") "}";
    parsed p;
    for (size_t n = 0; n < sizeof header - 1; n++) {
        assert_true(parse_bytes(header, n, &p) < 0);
        parsed_free(&p);
    }
    char copy[sizeof header];
    for (size_t n = 0; n < sizeof header - 1; n++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(copy, header, sizeof header);
            copy[n] = (char)value;
            (void)parse_bytes(copy, sizeof header - 1, &p);
            parsed_free(&p);
        }
    }
}

static void test_length(void **state) {
    (void)state;
    static const struct {
        uint64_t length, file_bytes;
        xorcast_status wanted;
    } cases[] = {
        {2, 10, XORCAST_OK},
        {2, 9, XORCAST_DATA_TRUNCATED},
        {0, 8, XORCAST_OK},
        {100000000, UINT64_C(1) << 40, XORCAST_OK},
        {100000001, UINT64_C(1) << 40, XORCAST_DATA_LIMIT},
        {UINT64_MAX, UINT64_C(1) << 40, XORCAST_DATA_LIMIT},
        {UINT64_MAX - 7, 8, XORCAST_DATA_LIMIT},
        {1000, 8, XORCAST_DATA_TRUNCATED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t prefix[8];
        uint64_t length = 77;
        memcpy(prefix, &cases[i].length, 8);
        assert_int_equal(
            xci_safetensors_length(context, "test", prefix, cases[i].file_bytes, &length),
            cases[i].wanted);
        assert_int_equal(length, cases[i].wanted == XORCAST_OK ? cases[i].length : 77);
    }
}

static void test_values(void **state) {
    (void)state;
    static const char header[] =
        "{" T("z", "F32", "[2,3]", "2", "26") "," T("a\\n", "BF16", "[]", "0", "2") "}   ";
    parsed p;
    assert_int_equal(parse_bytes(header, sizeof header - 1, &p), XORCAST_OK);
    assert_int_equal(p.data_bytes, 26);
    assert_int_equal(p.entries.count, 2);
    const xci_entry *a = xci_entries_find(&p.entries, "a\n"),
                    *z = xci_entries_find(&p.entries, "z");
    assert_non_null(a);
    assert_non_null(z);
    assert_null(xci_entries_find(&p.entries, "b"));
    assert_int_equal(a->offset, 8 + sizeof header - 1);
    assert_int_equal(a->rank, 0);
    assert_string_equal(a->dtype, "BF16");
    assert_int_equal(z->offset, 8 + sizeof header - 1 + 2);
    assert_int_equal(z->bytes, 24);
    assert_int_equal(z->shape[0] * 10 + z->shape[1], 23);
    parsed_free(&p);
}

/* What the writer writes, the parser reads: names that need escapes too. */
static void test_written_header(void **state) {
    (void)state;
    static const uint64_t shape[] = {3, 5};
    xci_entry entries[] = {
        {.name = "w\"\\\x01\n/\xc3\xa9", .dtype = "F64", .shape = shape, .rank = 2, .bytes = 120},
        {.name = "empty", .dtype = "U8", .shape = (const uint64_t[]){0}, .rank = 1, .bytes = 0},
        {.name = "scalar", .dtype = "BF16", .shape = NULL, .rank = 0, .bytes = 2},
    };
    xci_buffer buffer = {.context = context};
    assert_int_equal(xci_buffer_put8(&buffer, 'x'), XORCAST_OK); /* it appends */
    assert_int_equal(xci_safetensors_put_header(&buffer, entries, 3), XORCAST_OK);
    const uint64_t bytes = buffer.size - 1;
    uint64_t length;
    assert_int_equal(bytes % 8, 0);
    memcpy(&length, buffer.bytes + 1, 8);
    assert_int_equal(length, bytes - 8);
    parsed p;
    assert_int_equal(parse_bytes(buffer.bytes + 9, length, &p), XORCAST_OK);
    assert_int_equal(p.data_bytes, 122);
    for (size_t i = 0; i < 3; i++) {
        const xci_entry *found = xci_entries_find(&p.entries, entries[i].name);
        assert_non_null(found);
        assert_int_equal(found->offset, entries[i].offset);
        assert_int_equal(found->bytes, entries[i].bytes);
        assert_string_equal(found->dtype, entries[i].dtype);
        assert_int_equal(found->rank, entries[i].rank);
    }
    parsed_free(&p);
    xci_buffer_free(&buffer);
}

/* Sanitizers and slow machines get ten times what it takes. */
static void test_many_tensors(void **state) {
    (void)state;
    enum { COUNT = 200000 };
    char *text = malloc(COUNT * 140), *at = text;
    *at++ = '{';
    for (int i = 0; i < COUNT; i++)
        at += sprintf(
            at,
            "%s\"model.layers.%d.mlp.experts.%d.down_proj.weight_scale_2\":{\"dtype\":\"F32\","
            "\"shape\":[2],\"data_offsets\":[%d,%d]}",
            i ? "," : "", i / 1000, i % 1000, i * 8, i * 8 + 8);
    *at++ = '}';
    parsed p;
    const uint64_t begin = xci_now_ns();
    assert_int_equal(parse_bytes(text, (size_t)(at - text), &p), XORCAST_OK);
    const uint64_t took = xci_now_ns() - begin;
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    print_message("200,000 tensors: %.0f ms, %.0f MB\n", (double)took / 1e6,
                  (double)memory.high_water_bytes / 1e6);
    assert_int_equal(p.entries.count, COUNT);
    assert_true(took < UINT64_C(3000000000));
    assert_true(memory.high_water_bytes < UINT64_C(80) << 20);
    parsed_free(&p);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_headers),    cmocka_unit_test(test_bad_syntax),
        cmocka_unit_test(test_bad_sizes),       cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_cut_and_flipped), cmocka_unit_test(test_length),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_written_header),
        cmocka_unit_test(test_many_tensors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
