/* A tensor of 4 GiB and one byte, with changes where 32-bit offsets and counts go wrong: at 2^31 -
 * 1, 2^31, 2^32 - 1 and 2^32. Old and new are mappings of which only the changed pages exist; the
 * rest is the page of zeros, so the test needs address space and little memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock.h"
#include "support/model.h"
#include "support/sanitizers.h"

#define GIB (UINT64_C(1) << 30)
#define BYTES (4 * GIB + 1)

static const uint64_t places[] = {0, (UINT64_C(1) << 31) - 1, UINT64_C(1) << 31,
                                  (UINT64_C(1) << 32) - 1, UINT64_C(1) << 32};
#define PLACES (sizeof places / sizeof *places)

/* Huge pages would make every page that is read a page of its own. */
static uint8_t *map_zeros(void) {
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, BYTES, MADV_NOHUGEPAGE) != 0) {
        munmap(memory, BYTES);
        return NULL;
    }
    return memory;
}

static xorcast_bundle *bundle_over(xorcast_context *context, uint8_t *memory) {
    xorcast_bundle *bundle;
    xorcast_layout layout;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    const uint64_t shape = BYTES;
    tensor.name = "huge";
    tensor.dtype = "U8";
    tensor.shape = &shape;
    tensor.rank = 1;
    tensor.bytes = BYTES;
    tensor.data = memory;
    assert_int_equal(xorcast_bundle_create(context, NULL, &bundle), XORCAST_OK);
    assert_int_equal(xorcast_bundle_add(bundle, &tensor), XORCAST_OK);
    assert_int_equal(xorcast_bundle_seal(bundle, &layout), XORCAST_OK);
    assert_int_equal(layout.total_bytes, BYTES);
    assert_int_equal(layout.chunk_count, 65537);
    return bundle;
}

static void check_places(const uint8_t *memory) {
    for (size_t i = 0; i < PLACES; i++) {
        assert_int_equal(memory[places[i]], 0x11 + i);
        if (places[i] > 0 && (i == 0 || places[i - 1] != places[i] - 1))
            assert_int_equal(memory[places[i] - 1], 0);
    }
    for (size_t i = 0; i < PLACES; i++) /* where 32 bits would have put them */
        assert_int_equal(memory[(uint32_t)places[i]], (uint32_t)places[i] == 0 ? 0x11 : 0x11 + i);
}

static void encode_and_apply(uint8_t *old, uint8_t *new) {
    xorcast_memory memory;
    xorcast_delta_info info;
    test_bytes delta = {0};
    const xorcast_sink sink = test_sink(&delta);
    xorcast_context *context = test_context(2);
    xorcast_bundle *from = bundle_over(context, old), *to = bundle_over(context, new);
    const uint64_t begun = xci_now_ns();
    assert_int_equal(xorcast_delta_encode(from, to, NULL, &sink, &info), XORCAST_OK);
    const uint64_t encoded = xci_now_ns();
    assert_int_equal(info.counts.bytes_changed, PLACES);
    assert_int_equal(info.counts.bytes_covered, BYTES);
    assert_int_equal(info.counts.chunks_changed, 5);
    assert_true(delta.count < 1024);
    const xorcast_source source = test_source(&delta);
    assert_int_equal(xorcast_delta_apply(from, &source, &info), XORCAST_OK);
    print_message("encoded in %.1f s, applied in %.1f s\n", (double)(encoded - begun) / 1e9,
                  (double)(xci_now_ns() - encoded) / 1e9);
    check_places(old);
    xorcast_context_memory(context, &memory);
    assert_true(memory.high_water_bytes < 256 << 20);
    test_bytes_free(&delta);
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    xorcast_context_destroy(context);
}

static void test_offsets_beyond_32_bits(void **state) {
    (void)state;
#if TEST_ADDRESS_SANITIZER || TEST_THREAD_SANITIZER
    print_message("skipped: 4 GiB are too slow under a sanitizer\n");
    skip();
#endif
    uint8_t *old = map_zeros(), *new = map_zeros();
    if (old == NULL || new == NULL) {
        print_message("skipped: there are no 8 GiB of address space without huge pages here\n");
        if (old != NULL)
            munmap(old, BYTES);
        if (new != NULL)
            munmap(new, BYTES);
        skip();
    }
    for (size_t i = 0; i < PLACES; i++)
        new[places[i]] = (uint8_t)(0x11 + i);
    encode_and_apply(old, new);
    munmap(old, BYTES);
    munmap(new, BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_offsets_beyond_32_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
