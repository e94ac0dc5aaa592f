/* The macros of the public header: version, status table, initialisers and limits, each expanded at
 * least once. Owns no behaviour of the calls themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "xorcast.h"

/* An initialised struct names its own size and that of the encoding inside, and is zero elsewhere.
 * Statics, because their padding is zero too. */
#define ASSERT_INIT(type, initialiser, other_fields)          \
    do {                                                      \
        static const type made = initialiser;                 \
        static type expected;                                 \
        expected.struct_size = (uint32_t)sizeof(type);        \
        other_fields;                                         \
        assert_memory_equal(&made, &expected, sizeof made);   \
    } while (0)
#define ENCODING_SIZE expected.encoding.struct_size = (uint32_t)sizeof(xorcast_encoding)

static void test_initialisers(void **state) {
    (void)state;
    ASSERT_INIT(xorcast_context_options, XORCAST_CONTEXT_OPTIONS_INIT, (void)0);
    ASSERT_INIT(xorcast_tensor, XORCAST_TENSOR_INIT, (void)0);
    ASSERT_INIT(xorcast_bundle_options, XORCAST_BUNDLE_OPTIONS_INIT, (void)0);
    ASSERT_INIT(xorcast_encoding, XORCAST_ENCODING_INIT, (void)0);
    ASSERT_INIT(xorcast_publisher_options, XORCAST_PUBLISHER_OPTIONS_INIT, ENCODING_SIZE);
    ASSERT_INIT(xorcast_subscriber_options, XORCAST_SUBSCRIBER_OPTIONS_INIT, (void)0);
    ASSERT_INIT(xorcast_delta_options, XORCAST_DELTA_OPTIONS_INIT,
                (ENCODING_SIZE, expected.base_step = expected.target_step = XORCAST_NO_STEP));
}

static void test_version(void **state) {
    (void)state;
    assert_int_equal(xorcast_library_version(), XORCAST_VERSION_NUMBER);
    assert_int_equal(XORCAST_VERSION_NUMBER / 10000, XORCAST_VERSION_MAJOR);
    assert_int_equal(XORCAST_VERSION_NUMBER / 100 % 100, XORCAST_VERSION_MINOR);
    assert_int_equal(XORCAST_VERSION_NUMBER % 100, XORCAST_VERSION_PATCH);
}

typedef struct row {
    const char *name, *remedy, *text;
    int value, exit_code;
} row;

static const row table[] = {
#define ROW(name, value, remedy, code, text) {#name, remedy, text, value, code},
    XORCAST_STATUS_LIST(ROW)
#undef ROW
};
enum { ROWS = sizeof table / sizeof table[0] };

static void test_status_table(void **state) {
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const xorcast_status status = (xorcast_status)table[i].value;
        assert_string_equal(xorcast_status_name(status), table[i].name);
        assert_string_equal(xorcast_status_remedy(status), table[i].remedy);
        assert_string_equal(xorcast_status_text(status), table[i].text);
        assert_int_equal(xorcast_status_exit_code(status), table[i].exit_code);
        /* A shell sees failure exactly where a caller does. */
        assert_int_equal(table[i].value < 0, table[i].exit_code > 0 && table[i].exit_code < 126);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(table[i].value, table[j].value);
            assert_string_not_equal(table[i].name, table[j].name);
        }
    }
    assert_string_equal(xorcast_status_name((xorcast_status)-999), "UNKNOWN");
    assert_string_equal(xorcast_status_remedy((xorcast_status)-999), "REPORT");
    assert_int_equal(xorcast_status_exit_code((xorcast_status)-999), 70);
}

/* A declaration with both attributes compiles, as those of the header do. */
XORCAST_API int probe(void) XORCAST_MUST_USE;
int probe(void) {
    return 7;
}

static void test_attributes_and_limits(void **state) {
    (void)state;
    assert_int_equal(probe(), 7);
    static const xorcast_version version;
    assert_int_equal(sizeof version.run, XORCAST_RUN_BYTES);
    assert_true(XORCAST_NO_INDEX == UINT64_MAX && XORCAST_NO_STEP == UINT64_MAX);
    const xorcast_box box = {.flags = XORCAST_BOX_REPLICA};
    assert_int_not_equal(box.flags, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initialisers),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_status_table),
        cmocka_unit_test(test_attributes_and_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
