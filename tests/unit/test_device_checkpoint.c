/* Checkpoints and device memory: windows of pinned memory put pieces of any size anywhere
 * (bundle/device_fill.h); weights are loaded into a device, boxes too, and written from it as from
 * the host; every failure leaves weights that another load makes right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/pool.h"
#include "bundle/device_fill.h"
#include "support/device_model.h"
#include "support/disk.h"
#include "support/fake_device.h"

static char folder[4096];

static int setup(void **state) {
    (void)state;
    strcpy(folder, test_folder());
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_tree_remove(folder);
    return 0;
}

static void must(xorcast_context *context, xorcast_status status) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    if (status != XORCAST_OK)
        fprintf(stderr, "%s: %s\n", xorcast_status_name(status), error.text);
    assert_int_equal(status, XORCAST_OK);
}

/* ---- Windows ---- */

#define SPACE (UINT64_C(24) << 20)
#define WORKERS 3u

/* The space in pieces, one behind the other: the worker that brings each, and its bytes. */
typedef struct piece {
    uint64_t at, bytes;
    uint32_t worker;
} piece;

static piece *make_pieces(uint64_t seed, uint64_t *count_out) {
    piece *pieces = calloc(SPACE, sizeof *pieces / 8);
    uint64_t at = 0, count = 0;
    assert_non_null(pieces);
    while (at < SPACE) {
        const uint64_t kind = model_random(&seed) % 1000;
        uint64_t bytes = kind < 1 ? XCI_FILL_WINDOW - kind : kind < 10 ? 300000 : 700;
        bytes = kind == 0 ? XCI_FILL_WINDOW : 1 + model_random(&seed) % bytes;
        bytes = bytes < SPACE - at ? bytes : SPACE - at;
        pieces[count++] = (piece){at, bytes, (uint32_t)(model_random(&seed) % WORKERS)};
        at += bytes;
    }
    *count_out = count;
    return pieces;
}

static void test_windows(void **state) {
    (void)state;
    uint64_t count, random = 9;
    piece *pieces = make_pieces(3, &count);
    xorcast_context *context = test_device_context(1);
    uint8_t *host = malloc(SPACE), *got = malloc(SPACE), *device = device_memory(context, SPACE);
    xci_device_fill *fill;
    assert_true(host != NULL && got != NULL);
    for (uint64_t i = 0; i < SPACE; i++)
        host[i] = (uint8_t)model_random(&random);
    must(context, xci_device_fill_open(context, WORKERS, &fill));
    for (uint64_t i = 0; i < count; i++) {
        const piece *p = &pieces[i];
        uint8_t *room;
        must(context, xci_device_fill_room(fill, p->worker, device + p->at, p->bytes, &room));
        memcpy(room, host + p->at, p->bytes);
    }
    must(context, xci_device_fill_finish(fill));
    device_get(context, got, device, SPACE);
    assert_memory_equal(got, host, SPACE);
    xci_device_fill_close(fill);
    device_memory_free(context, device);
    free(host);
    free(got);
    free(pieces);
    xorcast_context_destroy(context);
}

/* ---- Whole checkpoints ---- */

/* The test model, a tensor to cut boxes from and one of more than two windows. */
static void large_model(model *m) {
    model_create(m, 21);
    model_add(m, "zz.boxed", "BF16", 2, 2, 1024, 128);
    model_add(m, "zz.large", "U8", 1, 1, 2 * XCI_FILL_WINDOW + 12345, 0);
}

typedef struct rig {
    xorcast_context *host_context, *context;
    model host, device;
    xorcast_bundle *host_bundle, *bundle;
    xorcast_checkpoint *checkpoint;
} rig;

/* A checkpoint on disk, and a device whose weights are others. */
static void open_rig(rig *r, uint32_t threads) {
    memset(r, 0, sizeof *r);
    r->host_context = test_context(2);
    r->context = test_device_context(threads);
    large_model(&r->host);
    device_model_create(r->context, &r->device, &r->host);
    model_step(&r->host, 4, 20000);
    r->host_bundle = model_bundle(r->host_context, &r->host, 0, 1);
    r->bundle = model_bundle(r->context, &r->device, 0, 2);
    must(r->host_context,
         xorcast_checkpoint_write(r->host_bundle, test_path(folder, "from"), 300000));
    must(r->context,
         xorcast_checkpoint_open(r->context, test_path(folder, "from"), NULL, &r->checkpoint));
}

static void close_rig(rig *r) {
    xorcast_checkpoint_close(r->checkpoint);
    xorcast_bundle_destroy(r->bundle);
    xorcast_bundle_destroy(r->host_bundle);
    device_model_free(r->context, &r->device);
    model_free(&r->host);
    xorcast_context_destroy(r->context);
    xorcast_context_destroy(r->host_context);
}

static void test_load_and_write(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        rig r;
        xorcast_memory before, after;
        open_rig(&r, threads);
        assert_false(device_model_equal(r.context, &r.device, &r.host));
        xorcast_context_memory(r.context, &before);
        must(r.context, xorcast_checkpoint_load(r.checkpoint, r.bundle));
        assert_true(device_model_equal(r.context, &r.device, &r.host));
        must(r.context, xorcast_checkpoint_write(r.bundle, test_path(folder, "to"), 300000));
        assert_true(test_tree_equal(test_path(folder, "from"), test_path(folder, "to")));
        must(r.context, xorcast_checkpoint_write(r.bundle, test_path(folder, "one"), 0));
        xorcast_context_memory(r.context, &after);
        assert_int_equal(after.now_bytes, before.now_bytes);
        assert_int_equal(after.device_now_bytes, before.device_now_bytes);
        test_tree_remove(test_path(folder, "one"));
        close_rig(&r);
    }
}

/* A rank's part of one tensor, rows apart. */
static void test_boxes(void **state) {
    (void)state;
    enum { ROWS = 100, WIDTH = 48, PITCH = 64 };
    rig r;
    open_rig(&r, 2);
    const model_tensor *t = &r.host.tensors[r.host.count - 2];
    uint8_t want[ROWS * PITCH], got[ROWS * PITCH], *at = device_memory(r.context, sizeof want);
    const xorcast_box box = {900, ROWS, 16, WIDTH, at, PITCH, 0};
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    xorcast_bundle *bundle;
    memset(want, 0xEE, sizeof want);
    device_put(r.context, at, want, sizeof want);
    for (unsigned row = 0; row < ROWS; row++)
        memcpy(want + row * PITCH, t->data + (900 + row) * t->shape[1] * 2 + 16, WIDTH);
    must(r.context, xorcast_bundle_create(r.context, NULL, &bundle));
    tensor.name = t->name;
    tensor.dtype = t->dtype;
    tensor.shape = t->shape;
    tensor.rank = t->rank;
    tensor.bytes = t->bytes;
    tensor.memory_kind = XORCAST_MEMORY_DEVICE;
    tensor.boxes = &box;
    tensor.box_count = 1;
    must(r.context, xorcast_bundle_add(bundle, &tensor));
    must(r.context, xorcast_bundle_seal(bundle, NULL));
    must(r.context, xorcast_checkpoint_load(r.checkpoint, bundle));
    device_get(r.context, got, at, sizeof got);
    assert_memory_equal(got, want, sizeof want);
    xorcast_bundle_destroy(bundle);
    device_memory_free(r.context, at);
    close_rig(&r);
}

/* A file that ends early: some weights are new then, and the next load makes all so. */
static void test_short_file(void **state) {
    (void)state;
    rig r;
    xorcast_error error;
    open_rig(&r, 2);
    char path[4200];
    size_t count;
    unsigned last = 99; /* shard: that of the largest tensor */
    do
        snprintf(path, sizeof path, "%s/from/model-%05u-of-%05u.safetensors", folder, last, last);
    while (access(path, R_OK) != 0 && --last > 0);
    uint8_t *bytes = test_file_get(path, &count);
    assert_int_equal(truncate(path, (off_t)count - 100), 0);
    assert_int_equal(xorcast_checkpoint_load(r.checkpoint, r.bundle), XORCAST_WEIGHTS_MIXED);
    xorcast_last_error(r.context, &error);
    assert_non_null(strstr(error.text, strrchr(path, '/') + 1));
    test_file_put(path, bytes, count);
    xorcast_checkpoint_close(r.checkpoint);
    must(r.context,
         xorcast_checkpoint_open(r.context, test_path(folder, "from"), NULL, &r.checkpoint));
    must(r.context, xorcast_checkpoint_load(r.checkpoint, r.bundle));
    assert_true(device_model_equal(r.context, &r.device, &r.host));
    free(bytes);
    close_rig(&r);
}

static void test_failing_calls(void **state) {
    (void)state;
    rig r;
    bool failed = true;
    unsigned refused = 0;
    if (!test_device_is_fake()) {
        print_message("a real device cannot be told to fail\n");
        skip();
    }
    open_rig(&r, 1);
    const uint64_t things = fake_device_open_things();
    for (int64_t n = 0; failed; n++) {
        device_put(r.context, r.device.tensors[0].data, "else", 4);
        fake_device_fail_call(n);
        const xorcast_status status = xorcast_checkpoint_load(r.checkpoint, r.bundle);
        failed = fake_device_failed();
        fake_device_fail_call(-1);
        /* What cannot be given back afterwards does no harm. */
        if (status == XORCAST_OK)
            assert_true(device_model_equal(r.context, &r.device, &r.host));
        else
            assert_true(failed &&
                        (status == XORCAST_DEVICE_FAILED || status == XORCAST_WEIGHTS_MIXED));
        refused += status != XORCAST_OK;
        assert_int_equal(fake_device_open_things(), things);
    }
    assert_true(refused > 10);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test_setup_teardown(test_load_and_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_boxes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing_calls, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
