/* The blocks of a version that stay on a publisher's device: whose memory they are, and until when.
 * On the stand-in device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/device_side.h"
#include "support/device_model.h"
#include "support/fake_device.h"

#define LIMIT (UINT64_C(4) << 20)

static xorcast_context *context, *contexts[2];
static uint64_t things, bytes; /* open, and taken on the host, before a test */

static int setup(void **state) {
    (void)state;
    xorcast_memory memory;
    context = contexts[0] = test_device_context(1);
    assert_int_equal(xci_context_beside(context, 1, &contexts[1]), XORCAST_OK);
    things = fake_device_open_things();
    xorcast_context_memory(context, &memory);
    bytes = memory.now_bytes;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    xorcast_memory memory;
    assert_int_equal(fake_device_open_things(), things);
    xorcast_context_memory(context, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    assert_int_equal(memory.now_bytes, bytes);
    xorcast_context_destroy(contexts[1]);
    xorcast_context_destroy(context);
    return 0;
}

static xci_device_side *open_side(xci_device_side *before) {
    xci_device_side *side;
    assert_int_equal(xci_device_side_open(contexts, 2, 8, LIMIT, before, &side), XORCAST_OK);
    for (unsigned g = 0; g < 8; g++)
        assert_null(side->groups[g]);
    return side;
}

static const uint8_t *end_of(const xci_device_side *side, const uint8_t *address) {
    const xci_device *device = NULL;
    const uint8_t *end = xci_device_side_end(side, address, &device);
    if (end != NULL)
        assert_ptr_equal(device, context->shared->device);
    return end;
}

static void test_memory_goes_to_the_next_version(void **state) {
    (void)state;
    xci_device_side *first = open_side(NULL);
    uint8_t *at = xci_device_side_take(first, 0, 1000);
    assert_non_null(at);
    first->groups[3] = at;
    const uint64_t held = fake_device_open_things();
    xci_device_side *second = open_side(first);
    assert_ptr_equal(xci_device_side_take(second, 0, 2000), at);
    assert_int_equal(fake_device_open_things(), held);
    xci_device_side_close(second);
}

static void test_readers_keep_memory(void **state) {
    (void)state;
    xci_device_side *first = open_side(NULL);
    uint8_t *at = xci_device_side_take(first, 0, 1000);
    assert_true(xci_device_side_enter(first));
    assert_true(xci_device_side_enter(first));
    xci_device_side *second = open_side(first);
    assert_false(xci_device_side_enter(first));
    assert_ptr_not_equal(xci_device_side_take(second, 0, 1000), at);
    device_put(context, at, "still here", 10);
    xci_device_side_leave(first);
    const uint64_t held = fake_device_open_things();
    xci_device_side_leave(first);
    assert_int_equal(fake_device_open_things(), held - 1);
    xci_device_side_close(second);
}

static void test_blobs_refer_to_it(void **state) {
    (void)state;
    xci_device_side *side = open_side(NULL);
    xci_blob *blob;
    assert_int_equal(xci_blob_copy(context, "part", 4, &blob), XORCAST_OK);
    blob->side = xci_device_side_refer(side);
    assert_non_null(xci_device_side_take(side, 0, 1000));
    xci_device_side_close(side);
    assert_int_equal(fake_device_open_things(), things);
    assert_false(xci_device_side_enter((xci_device_side *)(void *)blob->side));
    xci_blob_drop(blob);
}

/* Addresses of several allocations may follow each other; copies must not. */
static void test_ends(void **state) {
    (void)state;
    const uint64_t count = UINT64_C(1) << 20;
    xci_device_side *side = open_side(NULL);
    const uint8_t *first = xci_device_side_take(side, 0, count);
    const uint8_t *second = xci_device_side_take(side, 0, count);
    assert_ptr_equal(end_of(side, first), first + count);
    assert_ptr_equal(end_of(side, first + count - 1), first + count);
    assert_true(end_of(side, second) >= second + count);
    assert_null(end_of(side, first + count));
    assert_null(end_of(side, NULL));
    xci_device_side_close(side);
}

static void test_limits(void **state) {
    (void)state;
    xci_device_side *side = open_side(NULL);
    assert_null(xci_device_side_take(side, 0, LIMIT + 1));
    assert_non_null(xci_device_side_take(side, 0, LIMIT - 1000));
    assert_null(xci_device_side_take(side, 0, 1001));
    assert_non_null(xci_device_side_take(side, 0, 1000));
    side = open_side(side);
    fake_device_fail_memory(0); /* of what would be taken ahead: what is needed fits */
    assert_non_null(xci_device_side_take(side, 0, LIMIT));
    assert_true(fake_device_failed());
    xci_device_side_close(side);
    side = open_side(NULL);
    fake_device_fail_memory(0);
    assert_null(xci_device_side_take(side, 0, LIMIT)); /* nothing is taken ahead */
    assert_true(fake_device_failed());
    fake_device_fail_memory(-1);
    assert_non_null(xci_device_side_take(side, 0, 1000));
    xci_device_side_close(side);
}

static void test_devices(void **state) {
    (void)state;
    const xci_device *device = NULL;
    xci_device_side *side = open_side(NULL);
    uint8_t *here = xci_device_side_take(side, 0, 1000),
            *there = xci_device_side_take(side, 1, 500);
    assert_non_null(xci_device_side_end(side, here, &device));
    assert_int_equal(device->ordinal, 0);
    assert_non_null(xci_device_side_end(side, there, &device));
    assert_int_equal(device->ordinal, 1);
    assert_null(xci_device_side_take(side, 1, LIMIT - 1499));
    side = open_side(side);
    assert_ptr_equal(xci_device_side_take(side, 1, 500), there);
    xci_device_side_close(side);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory_goes_to_the_next_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_readers_keep_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blobs_refer_to_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_devices, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
