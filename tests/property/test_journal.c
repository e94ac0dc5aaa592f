/* kill -9 in the middle of commits and undos into mapped weights: whoever opens them next finds
 * the old version or the new one, never a mixture. The killed process commits and takes back
 * without end, so that most kills land inside a chunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/model.h"

#define TENSORS 3u
#define TENSOR_BYTES (UINT64_C(1) << 20)
#define WEIGHTS_BYTES (TENSORS * TENSOR_BYTES)
#define KILLS 25u
#define TIMEOUT_MS 20000

static char folder[] = "/tmp/xorcast-journal-XXXXXX";
static char weights_path[128], journal_path[128];

static uint8_t *map_weights(void) {
    const int fd = open(weights_path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, WEIGHTS_BYTES) != 0)
        return NULL;
    uint8_t *weights = mmap(NULL, WEIGHTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return weights == MAP_FAILED ? NULL : weights;
}

/* Two tensors in one piece, one as two boxes with a pitch, which commit has to gather and
 * scatter. */
static xorcast_bundle *bundle_over(xorcast_context *context, uint8_t *weights) {
    static const char *const names[TENSORS] = {"a", "b", "c"};
    const uint64_t shape[2] = {1024, TENSOR_BYTES / 1024};
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_bundle *bundle;
    options.chunk_bytes = 1 << 16;
    if (xorcast_bundle_create(context, &options, &bundle) != XORCAST_OK)
        return NULL;
    for (uint32_t i = 0; i < TENSORS; i++) {
        uint8_t *data = weights + i * TENSOR_BYTES;
        const xorcast_box boxes[2] = {{0, 1024, 0, 512, data, 512, 0},
                                      {0, 1024, 512, 512, data + TENSOR_BYTES / 2, 512, 0}};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = names[i];
        tensor.dtype = "U8";
        tensor.shape = shape;
        tensor.rank = 2;
        tensor.bytes = TENSOR_BYTES;
        if (i < 2) {
            tensor.data = data;
        } else {
            tensor.boxes = boxes;
            tensor.box_count = 2;
        }
        if (xorcast_bundle_add(bundle, &tensor) != XORCAST_OK)
            return NULL;
    }
    return xorcast_bundle_seal(bundle, NULL) == XORCAST_OK ? bundle : NULL;
}

static xorcast_subscriber *subscribe(xorcast_bundle *bundle, const char *url) {
    xorcast_subscriber_options options = XORCAST_SUBSCRIBER_OPTIONS_INIT;
    xorcast_subscriber *subscriber;
    options.journal_path = journal_path;
    return xorcast_subscriber_open(bundle, url, &options, &subscriber) == XORCAST_OK ? subscriber
                                                                                     : NULL;
}

/* Never returns: tells through the pipe that it begins, then commits and undoes until it is
 * killed. */
static void churn(const char *url, int ready) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    uint64_t step;
    options.threads = 2;
    uint8_t *weights = map_weights();
    if (weights == NULL || xorcast_context_create(&options, &context) != XORCAST_OK)
        _exit(2);
    xorcast_bundle *bundle = bundle_over(context, weights);
    xorcast_subscriber *subscriber = bundle != NULL ? subscribe(bundle, url) : NULL;
    if (subscriber == NULL ||
        xorcast_subscriber_poll(subscriber, TIMEOUT_MS, &step) != XORCAST_OK ||
        xorcast_subscriber_stage(subscriber, step, TIMEOUT_MS) != XORCAST_OK ||
        write(ready, "r", 1) != 1)
        _exit(3);
    for (;;)
        if (xorcast_subscriber_commit(subscriber, NULL) != XORCAST_OK ||
            xorcast_subscriber_undo(subscriber) != XORCAST_OK)
            _exit(4);
}

static void kill_one(const char *url, uint64_t microseconds) {
    int pipes[2];
    char byte;
    int status;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        churn(url, pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    const struct timespec pause = {0, (long)microseconds * 1000};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(pipes[0]);
}

/* The boxes of tensor "c" put its columns one behind the other. */
static void as_mapped(const uint8_t *plain, uint8_t *mapped) {
    memcpy(mapped, plain, 2 * TENSOR_BYTES);
    for (uint64_t row = 0; row < 1024; row++)
        for (uint64_t half = 0; half < 2; half++)
            memcpy(mapped + 2 * TENSOR_BYTES + half * TENSOR_BYTES / 2 + row * 512,
                   plain + 2 * TENSOR_BYTES + row * 1024 + half * 512, 512);
}

typedef struct trainer {
    xorcast_context *context;
    xorcast_bundle *bundle;
    xorcast_publisher *publisher;
    uint8_t *plain, *old_bytes, *new_bytes; /* the latter two as they are mapped */
} trainer;

static xorcast_bundle *plain_bundle(xorcast_context *context, uint8_t *bytes) {
    static const char *const names[TENSORS] = {"a", "b", "c"};
    const uint64_t shape[2] = {1024, TENSOR_BYTES / 1024};
    xorcast_bundle *bundle;
    assert_int_equal(xorcast_bundle_create(context, NULL, &bundle), XORCAST_OK);
    for (uint32_t i = 0; i < TENSORS; i++) {
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = names[i];
        tensor.dtype = "U8";
        tensor.shape = shape;
        tensor.rank = 2;
        tensor.bytes = TENSOR_BYTES;
        tensor.data = bytes + i * TENSOR_BYTES;
        assert_int_equal(xorcast_bundle_add(bundle, &tensor), XORCAST_OK);
    }
    assert_int_equal(xorcast_bundle_seal(bundle, NULL), XORCAST_OK);
    return bundle;
}

static void open_trainer(trainer *t, uint64_t seed) {
    uint64_t random = seed;
    t->context = test_context(2);
    t->plain = malloc(WEIGHTS_BYTES);
    t->old_bytes = malloc(WEIGHTS_BYTES);
    t->new_bytes = malloc(WEIGHTS_BYTES);
    for (uint64_t i = 0; i < WEIGHTS_BYTES; i++)
        t->plain[i] = (uint8_t)model_random(&random);
    as_mapped(t->plain, t->old_bytes);
    t->bundle = plain_bundle(t->context, t->plain);
    assert_int_equal(xorcast_publisher_open(t->bundle, "tcp:127.0.0.1:0", NULL, &t->publisher),
                     XORCAST_OK);
    for (uint64_t i = 0; i < WEIGHTS_BYTES; i++)
        if (i % TENSOR_BYTES < TENSOR_BYTES / 2 || model_random(&random) % 100 == 0)
            t->plain[i] ^= (uint8_t)model_random(&random);
    as_mapped(t->plain, t->new_bytes);
    assert_int_equal(xorcast_publisher_begin(t->publisher, 1), XORCAST_OK);
    assert_int_equal(xorcast_publisher_put(t->publisher, 0, NULL, NULL), XORCAST_OK);
    assert_int_equal(xorcast_publisher_finish(t->publisher, NULL), XORCAST_OK);
}

static void close_trainer(trainer *t) {
    xorcast_publisher_close(t->publisher);
    xorcast_bundle_destroy(t->bundle);
    xorcast_context_destroy(t->context);
    free(t->plain);
    free(t->old_bytes);
    free(t->new_bytes);
}

/* Opening finishes what was interrupted: the weights are a version, and the subscriber says
 * which. */
static bool reopened_is_new(const trainer *t, const char *url) {
    xorcast_version version;
    xorcast_context *context = test_context(3);
    uint8_t *weights = map_weights();
    assert_non_null(weights);
    xorcast_bundle *bundle = bundle_over(context, weights);
    xorcast_subscriber *subscriber = subscribe(bundle, url);
    assert_non_null(subscriber);
    const bool is_new = memcmp(weights, t->new_bytes, WEIGHTS_BYTES) == 0;
    assert_true(is_new || memcmp(weights, t->old_bytes, WEIGHTS_BYTES) == 0);
    xorcast_subscriber_current(subscriber, &version);
    assert_int_equal(version.step, is_new ? 1 : 0);
    assert_int_equal(xorcast_subscriber_audit(subscriber, 0), XORCAST_OK);
    memcpy(weights, t->old_bytes, WEIGHTS_BYTES); /* for the next round */
    xorcast_subscriber_close(subscriber);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    munmap(weights, WEIGHTS_BYTES);
    return is_new;
}

static void test_kill_in_commit(void **state) {
    (void)state;
    trainer t;
    uint64_t random = 42;
    unsigned finished = 0;
    open_trainer(&t, 5);
    uint8_t *weights = map_weights();
    memcpy(weights, t.old_bytes, WEIGHTS_BYTES);
    munmap(weights, WEIGHTS_BYTES);
    const char *url = xorcast_publisher_url(t.publisher);
    for (unsigned i = 0; i < KILLS; i++) {
        kill_one(url, model_random(&random) % 8000);
        finished += reopened_is_new(&t, url);
    }
    print_message("%u of %u kills left a commit that was finished at the next open\n", finished,
                  KILLS);
    assert_true(finished > 0);
    close_trainer(&t);
}

/* A journal that is damaged is refused by name, and nothing is changed. */
static void test_damaged_journal(void **state) {
    (void)state;
    trainer t;
    open_trainer(&t, 6);
    xorcast_context *context = test_context(1);
    uint8_t *weights = map_weights();
    memcpy(weights, t.old_bytes, WEIGHTS_BYTES);
    const int fd = open(journal_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, "something else", 14), 14);
    close(fd);
    xorcast_bundle *bundle = bundle_over(context, weights);
    assert_null(subscribe(bundle, xorcast_publisher_url(t.publisher)));
    xorcast_error error;
    xorcast_last_error(context, &error);
    assert_int_equal(error.status, XORCAST_DATA_CORRUPT);
    assert_non_null(strstr(error.text, journal_path));
    assert_memory_equal(weights, t.old_bytes, WEIGHTS_BYTES);
    xorcast_bundle_destroy(bundle);
    xorcast_context_destroy(context);
    munmap(weights, WEIGHTS_BYTES);
    unlink(journal_path);
    close_trainer(&t);
}

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(weights_path, sizeof weights_path, "%s/weights", folder);
    snprintf(journal_path, sizeof journal_path, "%s/journal", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(weights_path);
    unlink(journal_path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_in_commit),
        cmocka_unit_test(test_damaged_journal),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
