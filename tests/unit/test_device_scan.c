/* Scans of weights on a device (delta/device_scan.h): slices of any length give the digests that
 * the host finds, each chunk once and in order; a deadline ends a scan between slices, and what a
 * scan left is taken up by the next one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "delta/device_scan.h"
#include "delta/scan.h"
#include "support/device_model.h"

#define CHUNK 16384u

typedef struct rig {
    xorcast_context *host_context, *context;
    model host, device;
    xorcast_bundle *host_bundle, *bundle;
    uint64_t chunk_count;
    xorcast_digest *wanted;
    xci_device_scanner scanner;
} rig;

static void open_rig(rig *r) {
    xorcast_digest sum;
    memset(r, 0, sizeof *r);
    r->host_context = test_context(1);
    r->context = test_device_context(1);
    model_create(&r->host, 5);
    device_model_create(r->context, &r->device, &r->host);
    r->host_bundle = model_bundle(r->host_context, &r->host, CHUNK, 1);
    r->bundle = model_bundle(r->context, &r->device, CHUNK, 2);
    r->chunk_count = r->bundle->layout.chunk_count;
    r->wanted = calloc(r->chunk_count, sizeof *r->wanted);
    assert_non_null(r->wanted);
    assert_int_equal(xci_bundle_scan(r->host_bundle, r->wanted, &sum), XORCAST_OK);
    assert_int_equal(xci_device_scanner_open(&r->scanner, r->context, r->chunk_count), XORCAST_OK);
    assert_true(r->chunk_count > 8);
}

static void close_rig(rig *r) {
    xci_device_scanner_close(&r->scanner);
    xorcast_bundle_destroy(r->host_bundle);
    xorcast_bundle_destroy(r->bundle);
    device_model_free(r->context, &r->device);
    model_free(&r->host);
    free(r->wanted);
    xorcast_context_destroy(r->context);
    xorcast_context_destroy(r->host_context);
}

typedef struct taking {
    const rig *r;
    uint64_t next, slices;
    uint64_t fail_at; /* slice; UINT64_MAX: none */
} taking;

static xorcast_status take(void *user, uint64_t first, uint64_t count,
                           const xorcast_digest *digests) {
    taking *t = user;
    if (t->slices == t->fail_at)
        return XORCAST_WEIGHTS_WRONG;
    assert_int_equal(first, t->next);
    assert_true(count > 0 && count <= t->r->scanner.slice_most);
    assert_memory_equal(digests, t->r->wanted + first, count * sizeof *digests);
    t->next += count;
    t->slices++;
    return XORCAST_OK;
}

static void test_slices(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    for (uint64_t slice = 1; slice <= r.chunk_count; slice = slice < 4 ? slice + 1 : slice * 3)
        for (uint64_t first = 0; first < r.chunk_count; first += 5)
            for (uint64_t count = 0; count <= r.chunk_count - first; count += 3) {
                taking t = {&r, first, 0, UINT64_MAX};
                r.scanner.slice_most = slice;
                assert_int_equal(
                    xci_device_scan(&r.scanner, r.bundle->map, first, count, XCI_FOREVER, take, &t),
                    XORCAST_OK);
                assert_int_equal(t.next, first + count);
                assert_int_equal(t.slices, xci_divide_up(count, slice));
            }
    close_rig(&r);
}

static void test_deadline(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    taking t = {&r, 0, 0, UINT64_MAX};
    r.scanner.slice_most = 3;
    while (t.next + 3 < r.chunk_count) {
        const uint64_t before = t.slices;
        assert_int_equal(
            xci_device_scan(&r.scanner, r.bundle->map, t.next, r.chunk_count - t.next, 0, take, &t),
            XORCAST_IN_PROGRESS);
        assert_int_equal(t.slices, before + 1);
    }
    assert_int_equal(
        xci_device_scan(&r.scanner, r.bundle->map, t.next, r.chunk_count - t.next, 0, take, &t),
        XORCAST_OK);
    assert_int_equal(t.next, r.chunk_count);
    close_rig(&r);
}

/* What is refused ends the scan; the scanner can be used again. */
static void test_refused(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    r.scanner.slice_most = 2;
    for (uint64_t fail_at = 0; fail_at * 2 < r.chunk_count; fail_at++) {
        taking bad = {&r, 0, 0, fail_at}, good = {&r, 0, 0, UINT64_MAX};
        assert_int_equal(
            xci_device_scan(&r.scanner, r.bundle->map, 0, r.chunk_count, XCI_FOREVER, take, &bad),
            XORCAST_WEIGHTS_WRONG);
        assert_int_equal(bad.slices, fail_at);
        assert_int_equal(
            xci_device_scan(&r.scanner, r.bundle->map, 0, r.chunk_count, XCI_FOREVER, take, &good),
            XORCAST_OK);
        assert_int_equal(good.next, r.chunk_count);
    }
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
