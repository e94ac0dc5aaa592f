/* The n-th failure on a device: of every call of its table, of memory there, of memory on the host.
 * Whatever n is, the call says so with a status that fits, weights are the old or the new ones as
 * it says, nothing leaks, and after a failure that leaves the device alive the objects go on
 * working. On the stand-in device only: a real one cannot be told to fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/device_model.h"
#include "support/fake_device.h"
#include "support/expect_status.h"

#define TIMEOUT_MS 20000
#define CHUNK 16384u

/* ---- What fails ---- */

typedef enum failing { FAIL_CALL, FAIL_MEMORY, FAIL_HOST, FAIL_KINDS } failing;

static atomic_int_fast64_t host_countdown = -1;
static atomic_int_fast64_t host_failed, host_live;

static void *allocate(void *user, size_t bytes) {
    (void)user;
    if (atomic_load(&host_countdown) >= 0 && atomic_fetch_sub(&host_countdown, 1) == 0) {
        host_failed++;
        return NULL;
    }
    host_live++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *user, void *memory) {
    (void)user;
    host_live--;
    free(memory);
}

static void arm(failing kind, int64_t n) {
    host_failed = 0;
    host_countdown = kind == FAIL_HOST ? n : -1;
    if (kind == FAIL_MEMORY)
        fake_device_fail_memory(n);
    else
        fake_device_fail_call(kind == FAIL_CALL ? n : -1);
}

/* Whether something failed since arm; from now on nothing does. */
static bool disarm(void) {
    const bool failed = fake_device_failed() || host_failed > 0;
    host_countdown = -1;
    fake_device_fail_call(-1);
    return failed;
}

/* ---- A trainer and a sampler, both on the device ---- */

typedef struct rig {
    xorcast_context *trainer, *sampler;
    model published, from, live;
    xorcast_bundle *from_bundle, *to_bundle;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    uint64_t step;
} rig;

static xorcast_context *failing_context(void) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = 2;
    options.log_level = XORCAST_LOG_ERROR;
    options.allocate = allocate;
    options.release = release;
    return test_device_context_with(&options);
}

static void small_model(model *m) {
    memset(m, 0, sizeof *m);
    m->random = 17;
    model_add(m, "embed", "BF16", 2, 2, 90, 300);
    model_add(m, "norm", "BF16", 2, 1, 33, 0);
    model_add(m, "scale", "F32", 4, 1, 700, 0);
    model_add(m, "scale_2", "F32", 4, 0, 0, 0);
    model_add(m, "void", "F32", 4, 1, 0, 0);
    model_add(m, "wide", "U8", 1, 2, 120, 1000);
}

static uint32_t codec; /* 0: as by default; else beside the old weights too */

static void open_publisher(rig *r) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    options.encoding.codec = codec;
    options.encoding.old_weights = codec != 0;
    options.step = r->step;
    options.log_bytes = 1 << 24;
    must(r->trainer,
         xorcast_publisher_open(r->from_bundle, "inproc:failures", &options, &r->publisher));
}

static void open_subscriber(rig *r) {
    must(r->sampler,
         xorcast_subscriber_open(r->to_bundle, "inproc:failures", NULL, &r->subscriber));
}

static void open_rig(rig *r) {
    memset(r, 0, sizeof *r);
    small_model(&r->published);
    r->trainer = failing_context();
    r->sampler = failing_context();
    device_model_create(r->trainer, &r->from, &r->published);
    device_model_create(r->sampler, &r->live, &r->published);
    r->from_bundle = model_bundle(r->trainer, &r->from, CHUNK, 1);
    r->to_bundle = model_bundle(r->sampler, &r->live, CHUNK, 2);
    open_publisher(r);
    open_subscriber(r);
}

static void close_rig(rig *r) {
    xorcast_memory memory;
    xorcast_subscriber_close(r->subscriber);
    xorcast_publisher_close(r->publisher);
    xorcast_bundle_destroy(r->from_bundle);
    xorcast_bundle_destroy(r->to_bundle);
    xorcast_context_memory(r->trainer, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    xorcast_context_memory(r->sampler, &memory);
    assert_int_equal(memory.device_now_bytes, 0);
    device_model_free(r->trainer, &r->from);
    device_model_free(r->sampler, &r->live);
    xorcast_context_destroy(r->trainer);
    xorcast_context_destroy(r->sampler);
    model_free(&r->published);
    assert_int_equal(host_live, 0);
    assert_int_equal(fake_device_open_things(), 0);
}

static void change(rig *r) {
    model_step(&r->published, ++r->step, 3000);
    device_model_put(r->trainer, &r->from, &r->published);
}

static xorcast_status publish(rig *r) {
    xorcast_status status = xorcast_publisher_begin(r->publisher, r->step);
    if (status == XORCAST_OK)
        status = xorcast_publisher_put(r->publisher, 0, NULL, NULL);
    if (status == XORCAST_OK)
        status = xorcast_publisher_finish(r->publisher, NULL);
    if (status < 0)
        xorcast_publisher_abort(r->publisher);
    return status;
}

static void finish_commit(rig *r) {
    must(r->sampler, xorcast_subscriber_commit(r->subscriber, NULL));
    must(r->sampler, xorcast_subscriber_wait(r->subscriber, TIMEOUT_MS));
}

static void check_live(rig *r) {
    xorcast_version version;
    assert_true(device_model_equal(r->sampler, &r->live, &r->published));
    must(r->sampler, xorcast_subscriber_audit(r->subscriber, 0));
    xorcast_subscriber_current(r->subscriber, &version);
    assert_int_equal(version.step, r->step);
}

static void follow(rig *r) {
    must(r->sampler, xorcast_subscriber_stage(r->subscriber, r->step, TIMEOUT_MS));
    finish_commit(r);
    check_live(r);
}

/* The status of a call during which something failed. */
static void check_failure(xorcast_context *context, xorcast_status status, failing kind) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    switch (kind) {
    case FAIL_CALL:
        assert_true(status == XORCAST_DEVICE_FAILED || status == XORCAST_WEIGHTS_MIXED ||
                    status == XORCAST_WEIGHTS_WRONG);
        if (status == XORCAST_DEVICE_FAILED && strstr(error.text, "shadow") == NULL)
            assert_int_equal(error.device_error, FAKE_ERROR);
        break;
    case FAIL_MEMORY:
        assert_true(status == XORCAST_NO_DEVICE_MEMORY || status == XORCAST_NO_HOST_MEMORY ||
                    status == XORCAST_WEIGHTS_WRONG);
        break;
    default:
        assert_true(status == XORCAST_NO_HOST_MEMORY || status == XORCAST_WEIGHTS_WRONG);
    }
}

/* Runs `attempt` with the n-th failure of each kind for n = 0, 1, ... until one goes through
 * untouched. It disarms, checks, and leaves the rig fit for another. */
typedef void (*attempt)(rig *r, failing kind, int64_t n, bool *failed_out);

static void fail_everything(attempt call, const char *what) {
    for (failing kind = 0; kind < FAIL_KINDS; kind++) {
        rig r;
        int64_t n = 0;
        open_rig(&r);
        for (bool failed = true; failed; n++)
            call(&r, kind, n, &failed);
        close_rig(&r);
        print_message("%s: %lld failures of kind %d\n", what, (long long)n - 1, (int)kind);
        assert_true(n > 1 || kind != FAIL_CALL);
    }
}

/* ---- Opening ---- */

static xorcast_status open_all(rig *r) {
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    xorcast_bundle *bundle;
    xorcast_publisher *publisher = NULL;
    xorcast_subscriber *subscriber = NULL;
    xorcast_status status = xorcast_bundle_create(r->trainer, NULL, &bundle);
    if (status < 0)
        return status;
    for (uint32_t i = 0; i < r->from.count && status == XORCAST_OK; i++) {
        xorcast_tensor tensor = model_describe(&r->from.tensors[i]);
        tensor.memory_kind = XORCAST_MEMORY_DEVICE;
        status = xorcast_bundle_add(bundle, &tensor);
    }
    if (status == XORCAST_OK)
        status = xorcast_bundle_seal(bundle, NULL);
    if (status == XORCAST_OK)
        status = xorcast_publisher_open(bundle, "inproc:opening", &options, &publisher);
    if (status == XORCAST_OK)
        status = xorcast_subscriber_open(bundle, "inproc:opening", NULL, &subscriber);
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
    xorcast_bundle_destroy(bundle);
    return status;
}

/* Closing may meet the failure too: then the call itself was good. */
static void attempt_open(rig *r, failing kind, int64_t n, bool *failed_out) {
    xorcast_memory before, after;
    xorcast_context_memory(r->trainer, &before);
    arm(kind, n);
    const xorcast_status status = open_all(r);
    *failed_out = disarm();
    if (status != XORCAST_OK)
        check_failure(r->trainer, status, kind);
    assert_true(*failed_out || status == XORCAST_OK);
    xorcast_context_memory(r->trainer, &after);
    assert_int_equal(before.now_bytes, after.now_bytes);
    assert_int_equal(before.device_now_bytes, after.device_now_bytes);
}

/* ---- Publishing ---- */

static void attempt_publish(rig *r, failing kind, int64_t n, bool *failed_out) {
    change(r);
    arm(kind, n);
    xorcast_status status = publish(r);
    *failed_out = disarm();
    if (status < 0) {
        check_failure(r->trainer, status, kind);
        status = publish(r);
        /* Lost with the device: another publisher goes on, from the weights as they are. */
        if (status == XORCAST_DEVICE_FAILED && kind == FAIL_CALL) {
            xorcast_subscriber_close(r->subscriber);
            xorcast_publisher_close(r->publisher);
            open_publisher(r);
            open_subscriber(r);
            must(r->sampler, xorcast_subscriber_keyframe(r->subscriber, TIMEOUT_MS));
            check_live(r);
            return;
        }
        must(r->trainer, status);
    }
    follow(r);
}

/* ---- Staging, committing and back ---- */

static void attempt_stage(rig *r, failing kind, int64_t n, bool *failed_out) {
    change(r);
    must(r->trainer, publish(r));
    arm(kind, n);
    const xorcast_status status = xorcast_subscriber_stage(r->subscriber, r->step, TIMEOUT_MS);
    *failed_out = disarm();
    if (status < 0)
        check_failure(r->sampler, status, kind);
    if (status < 0)
        must(r->sampler, xorcast_subscriber_stage(r->subscriber, r->step, TIMEOUT_MS));
    finish_commit(r);
    check_live(r);
}

static void attempt_commit(rig *r, failing kind, int64_t n, bool *failed_out) {
    model before;
    small_model(&before);
    model_copy(&before, &r->published);
    change(r);
    must(r->trainer, publish(r));
    must(r->sampler, xorcast_subscriber_stage(r->subscriber, r->step, TIMEOUT_MS));
    arm(kind, n);
    xorcast_status status = xorcast_subscriber_commit(r->subscriber, NULL);
    const bool committed = status == XORCAST_OK;
    if (committed)
        status = xorcast_subscriber_wait(r->subscriber, TIMEOUT_MS);
    *failed_out = disarm();
    if (status < 0) {
        check_failure(r->sampler, status, kind);
        if (status == XORCAST_DEVICE_FAILED)
            assert_true(device_model_equal(r->sampler, &r->live, &before));
        if (n % 2 == 0 && status == XORCAST_WEIGHTS_MIXED) {
            must(r->sampler, xorcast_subscriber_undo(r->subscriber));
            assert_true(device_model_equal(r->sampler, &r->live, &before));
        }
        finish_commit(r);
    }
    check_live(r);
    model_free(&before);
}

static void attempt_undo(rig *r, failing kind, int64_t n, bool *failed_out) {
    model before;
    small_model(&before);
    model_copy(&before, &r->published);
    change(r);
    must(r->trainer, publish(r));
    follow(r);
    arm(kind, n);
    xorcast_status status = xorcast_subscriber_undo(r->subscriber);
    *failed_out = disarm();
    if (status < 0) {
        check_failure(r->sampler, status, kind);
        must(r->sampler, xorcast_subscriber_undo(r->subscriber));
    }
    assert_true(device_model_equal(r->sampler, &r->live, &before));
    must(r->sampler, xorcast_subscriber_audit(r->subscriber, 0));
    finish_commit(r);
    check_live(r);
    model_free(&before);
}

static void attempt_audit(rig *r, failing kind, int64_t n, bool *failed_out) {
    arm(kind, n);
    const xorcast_status status = xorcast_subscriber_audit(r->subscriber, 0);
    *failed_out = disarm();
    if (status < 0)
        check_failure(r->sampler, status, kind);
    change(r);
    must(r->trainer, publish(r));
    follow(r);
}

static void attempt_keyframe(rig *r, failing kind, int64_t n, bool *failed_out) {
    const uint8_t wrong = 0x5A;
    const model_tensor *t = &r->live.tensors[0];
    device_put(r->sampler, (uint8_t *)(t->box_count > 0 ? t->boxes[1].data : t->data) + 11, &wrong,
               1);
    change(r);
    must(r->trainer, publish(r));
    arm(kind, n);
    const xorcast_status status = xorcast_subscriber_keyframe(r->subscriber, TIMEOUT_MS);
    *failed_out = disarm();
    if (status < 0)
        check_failure(r->sampler, status, kind);
    if (status < 0)
        must(r->sampler, xorcast_subscriber_keyframe(r->subscriber, TIMEOUT_MS));
    check_live(r);
}

static void test_open(void **state) {
    (void)state;
    fail_everything(attempt_open, "open");
}
static void test_publish(void **state) {
    (void)state;
    fail_everything(attempt_publish, "publish");
}
static void test_stage(void **state) {
    (void)state;
    fail_everything(attempt_stage, "stage");
}
static void test_gap(void **state) {
    (void)state;
    codec = XORCAST_CODEC_GAP;
    fail_everything(attempt_publish, "publish in the gap codec");
    fail_everything(attempt_stage, "stage in the gap codec");
    codec = 0;
}
static void test_auto(void **state) {
    (void)state;
    codec = XORCAST_CODEC_AUTO;
    fail_everything(attempt_publish, "publish in auto");
    codec = 0;
}
static void test_commit(void **state) {
    (void)state;
    fail_everything(attempt_commit, "commit");
}
static void test_undo(void **state) {
    (void)state;
    fail_everything(attempt_undo, "undo");
}
static void test_audit(void **state) {
    (void)state;
    fail_everything(attempt_audit, "audit");
}
static void test_keyframe(void **state) {
    (void)state;
    fail_everything(attempt_keyframe, "keyframe");
}

/* ---- A device that dies ---- */

/* Work that was queued fails, and everything after it: nothing hangs, every call says so, and no
 * version is stamped. */
static void test_death(void **state) {
    (void)state;
    bool died = true;
    for (int64_t n = 0; died; n++) {
        rig r;
        xorcast_version version;
        open_rig(&r);
        change(&r);
        fake_device_fail_work(n);
        xorcast_status status = publish(&r);
        if (status == XORCAST_OK)
            status = xorcast_subscriber_stage(r.subscriber, r.step, TIMEOUT_MS);
        if (status == XORCAST_OK)
            status = xorcast_subscriber_commit(r.subscriber, NULL);
        if (status == XORCAST_OK)
            status = xorcast_subscriber_wait(r.subscriber, TIMEOUT_MS);
        died = fake_device_failed();
        xorcast_subscriber_current(r.subscriber, &version);
        assert_int_equal(status == XORCAST_OK, !died);
        assert_true(status == XORCAST_OK || version.step != r.step);
        if (died) {
            assert_true(xorcast_subscriber_keyframe(r.subscriber, TIMEOUT_MS) < 0);
            assert_true(publish(&r) < 0 || status != XORCAST_OK);
        }
        xorcast_subscriber_close(r.subscriber);
        xorcast_publisher_close(r.publisher);
        xorcast_bundle_destroy(r.from_bundle);
        xorcast_bundle_destroy(r.to_bundle);
        fake_device_fail_work(-1); /* only to give the weights back */
        device_model_free(r.trainer, &r.from);
        device_model_free(r.sampler, &r.live);
        xorcast_context_destroy(r.trainer);
        xorcast_context_destroy(r.sampler);
        model_free(&r.published);
        assert_int_equal(host_live, 0);
        assert_int_equal(fake_device_open_things(), 0);
        if (!died)
            print_message("death: %lld places\n", (long long)n);
    }
}

static void test_limits(void **state) {
    (void)state;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    model host, device;
    xorcast_publisher *publisher;
    xorcast_memory memory;
    xorcast_error error;
    options.log_level = XORCAST_LOG_ERROR;
    options.device_limit_bytes = 100000;
    xorcast_context *context = test_device_context_with(&options);
    small_model(&host);
    device_model_create(context, &device, &host);
    xorcast_bundle *bundle = model_bundle(context, &device, CHUNK, 1);
    assert_int_equal(xorcast_publisher_open(bundle, "inproc:limits", NULL, &publisher),
                     XORCAST_NO_DEVICE_MEMORY);
    xorcast_last_error(context, &error);
    assert_non_null(strstr(error.text, "device_limit_bytes"));
    xorcast_context_memory(context, &memory);
    assert_true(memory.device_high_water_bytes <= 100000);
    xorcast_bundle_destroy(bundle);
    device_model_free(context, &device);
    xorcast_context_destroy(context);
    model_free(&host);
}

int main(void) {
    if (!test_device_is_fake()) {
        printf("a real device cannot be told to fail\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),     cmocka_unit_test(test_publish),
        cmocka_unit_test(test_stage),    cmocka_unit_test(test_gap),
        cmocka_unit_test(test_auto),     cmocka_unit_test(test_commit),
        cmocka_unit_test(test_undo),     cmocka_unit_test(test_audit),
        cmocka_unit_test(test_keyframe), cmocka_unit_test(test_death),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
