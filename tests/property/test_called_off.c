/* Work that its progress call calls off, at one call after another: it fails, all is as it was,
 * nothing of it stays in memory, and the same call then does the whole. What a publisher and its
 * samplers do is not told, so it cannot be called off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/disk.h"
#include "support/model.h"

#define CHUNK 16384u
#define TIMEOUT_MS 20000

typedef struct caller {
    uint64_t calls;
    uint64_t calls_to_go; /* the last of them calls off, and all after it; 0: none does */
    bool off;
} caller;

typedef struct work {
    xorcast_context *context;
    caller caller;
    char folder[4096];
    model old, new, memory; /* `memory` is what is loaded */
    xorcast_bundle *old_bundle, *new_bundle, *loaded;
    xorcast_checkpoint *checkpoint;
    test_bytes there, back, made; /* deltas; `made` is what a call writes */
    uint64_t bytes;               /* that the context has allocated when it is new */
} work;

static int look(void *user, uint64_t done_bytes, uint64_t total_bytes) {
    caller *c = user;
    assert_true(done_bytes <= total_bytes);
    c->calls++;
    c->off = c->off || (c->calls_to_go > 0 && c->calls == c->calls_to_go);
    return c->off;
}

static void must(xorcast_context *context, xorcast_status status) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    if (status != XORCAST_OK)
        fprintf(stderr, "%s: %s\n", xorcast_status_name(status), error.text);
    assert_int_equal(status, XORCAST_OK);
}

static uint64_t allocated(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static const char *in_folder(const work *w, const char *name) {
    return test_path(w->folder, name);
}

/* ---- The calls ---- */

static xorcast_status diff(work *w) {
    const xorcast_sink sink = test_sink(&w->made);
    return xorcast_checkpoint_diff(w->context, in_folder(w, "old"), in_folder(w, "new"), NULL,
                                   &sink, NULL);
}

static xorcast_status encode(work *w) {
    const xorcast_sink sink = test_sink(&w->made);
    return xorcast_delta_encode(w->old_bundle, w->new_bundle, NULL, &sink, NULL);
}

static xorcast_status fold(work *w) {
    const xorcast_sink sink = test_sink(&w->made);
    const xorcast_source sources[] = {test_source(&w->there), test_source(&w->back)};
    return xorcast_delta_fold(w->context, sources, 2, NULL, &sink, NULL);
}

static xorcast_status check(work *w) {
    const xorcast_source source = test_source(&w->there);
    return xorcast_checkpoint_check(w->context, in_folder(w, "old"), &source, NULL);
}

static xorcast_status apply_elsewhere(work *w) {
    const xorcast_source source = test_source(&w->there);
    return xorcast_checkpoint_apply(w->context, in_folder(w, "old"), &source, in_folder(w, "out"),
                                    NULL);
}

/* `path` is the target, so this is a copy. */
static xorcast_status copy(work *w) {
    const xorcast_source source = test_source(&w->there);
    return xorcast_checkpoint_apply(w->context, in_folder(w, "new"), &source, in_folder(w, "out"),
                                    NULL);
}

static xorcast_status apply_again(work *w) {
    const xorcast_source source = test_source(&w->there);
    return xorcast_checkpoint_apply(w->context, in_folder(w, "new"), &source, NULL, NULL);
}

static xorcast_status load(work *w) {
    return xorcast_checkpoint_load(w->checkpoint, w->loaded);
}

static const struct {
    const char *name;
    xorcast_status (*call)(work *w);
    xorcast_status status; /* when it is called off */
} calls[] = {
    {"diff", diff, XORCAST_CANCELLED},
    {"encode", encode, XORCAST_CANCELLED},
    {"fold", fold, XORCAST_CANCELLED},
    {"check", check, XORCAST_CANCELLED},
    {"apply", apply_elsewhere, XORCAST_CANCELLED},
    {"copy", copy, XORCAST_CANCELLED},
    {"again", apply_again, XORCAST_CANCELLED},
    {"load", load, XORCAST_WEIGHTS_MIXED},
};
#define CALLS (sizeof calls / sizeof *calls)

/* ---- Each of them ---- */

static void make_model(model *m) {
    *m = (model){.random = 1};
    model_add(m, "a.weight", "BF16", 2, 2, 2000, 3000);
    model_add(m, "b.weight", "F32", 4, 2, 1000, 1500);
    model_add(m, "c.scale", "U8", 1, 1, 11, 0);
}

static void write_checkpoints(work *w) {
    must(w->context, xorcast_checkpoint_write(w->old_bundle, in_folder(w, "old"), 5000000));
    must(w->context, xorcast_checkpoint_write(w->new_bundle, in_folder(w, "new"), 5000000));
    test_tree_copy(in_folder(w, "old"), in_folder(w, "old.before"));
    test_tree_copy(in_folder(w, "new"), in_folder(w, "new.before"));
    must(w->context,
         xorcast_checkpoint_open(w->context, in_folder(w, "new"), NULL, &w->checkpoint));
}

static void make_deltas(work *w) {
    const xorcast_sink there = test_sink(&w->there), back = test_sink(&w->back);
    must(w->context, xorcast_checkpoint_diff(w->context, in_folder(w, "old"), in_folder(w, "new"),
                                             NULL, &there, NULL));
    must(w->context, xorcast_checkpoint_diff(w->context, in_folder(w, "new"), in_folder(w, "old"),
                                             NULL, &back, NULL));
}

static void open_work(work *w, uint32_t threads) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    *w = (work){0};
    strcpy(w->folder, test_folder());
    options.threads = threads;
    options.progress = look;
    options.user = &w->caller;
    assert_int_equal(xorcast_context_create(&options, &w->context), XORCAST_OK);
    w->bytes = allocated(w->context);
    make_model(&w->old);
    make_model(&w->new);
    make_model(&w->memory);
    model_step(&w->new, 5, 2000);
    w->old_bundle = model_bundle(w->context, &w->old, CHUNK, 1);
    w->new_bundle = model_bundle(w->context, &w->new, CHUNK, 1);
    w->loaded = model_bundle(w->context, &w->memory, CHUNK, 2);
    write_checkpoints(w);
    make_deltas(w);
}

static void close_work(work *w) {
    xorcast_checkpoint_close(w->checkpoint);
    xorcast_bundle_destroy(w->old_bundle);
    xorcast_bundle_destroy(w->new_bundle);
    xorcast_bundle_destroy(w->loaded);
    test_bytes_free(&w->there);
    test_bytes_free(&w->back);
    test_bytes_free(&w->made);
    assert_int_equal(allocated(w->context), w->bytes);
    xorcast_context_destroy(w->context);
    model_free(&w->old);
    model_free(&w->new);
    model_free(&w->memory);
    test_tree_remove(w->folder);
}

/* Everything that a call may read, or has written, before it is called. */
static void begin(work *w, uint64_t calls_to_go) {
    w->caller = (caller){.calls_to_go = calls_to_go};
    w->made.count = 0;
    model_copy(&w->memory, &w->old);
    test_tree_remove(in_folder(w, "out"));
}

static void as_before(const work *w, uint64_t bytes) {
    assert_true(test_tree_equal(in_folder(w, "old"), in_folder(w, "old.before")));
    assert_true(test_tree_equal(in_folder(w, "new"), in_folder(w, "new.before")));
    assert_int_equal(allocated(w->context), bytes);
}

/* What a call leaves when nobody calls it off; `whole` is its delta, if it makes one. */
static void did_all(work *w, size_t i, const test_bytes *whole) {
    assert_int_equal(w->made.count, whole->count);
    if (whole->count > 0)
        assert_memory_equal(w->made.bytes, whole->bytes, whole->count);
    if (calls[i].call == apply_elsewhere || calls[i].call == copy)
        assert_true(test_tree_equal(in_folder(w, "out"), in_folder(w, "new")));
    assert_true(model_equal(&w->memory, calls[i].call == load ? &w->new : &w->old));
}

/* Returns at how many calls it could be called off. */
static uint64_t call_off_each(work *w, size_t i) {
    test_bytes whole;
    begin(w, 0);
    must(w->context, calls[i].call(w));
    whole = w->made;
    w->made = (test_bytes){0};
    const uint64_t bytes = allocated(w->context);
    for (uint64_t n = 1;; n++) {
        begin(w, n);
        const xorcast_status status = calls[i].call(w);
        as_before(w, bytes);
        if (status == XORCAST_OK) {
            did_all(w, i, &whole);
            test_bytes_free(&whole);
            return n - 1;
        }
        assert_int_equal(status, calls[i].status);
        assert_int_not_equal(access(in_folder(w, "out"), F_OK), 0);
        begin(w, 0);
        must(w->context, calls[i].call(w));
        did_all(w, i, &whole);
    }
}

static void test_each_call(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        work w;
        open_work(&w, threads);
        for (size_t i = 0; i < CALLS; i++) {
            const uint64_t count = call_off_each(&w, i);
            print_message("%s, %u threads: called off at each of %u calls\n", calls[i].name,
                          (unsigned)threads, (unsigned)count);
            /* of several threads, the one that called may have no part in the work */
            assert_true(count >= (threads == 1 ? 3 : 0));
        }
        close_work(&w);
    }
}

/* ---- What cannot be called off ---- */

static void publish(work *w, xorcast_publisher *publisher, uint64_t step) {
    model_step(&w->new, step, 500);
    must(w->context, xorcast_publisher_begin(publisher, step));
    must(w->context, xorcast_publisher_put(publisher, 0, NULL, NULL));
    must(w->context, xorcast_publisher_finish(publisher, NULL));
}

static void follow(work *w, xorcast_subscriber *subscriber, uint64_t step) {
    must(w->context, xorcast_subscriber_stage(subscriber, step, TIMEOUT_MS));
    must(w->context, xorcast_subscriber_commit(subscriber, NULL));
    must(w->context, xorcast_subscriber_wait(subscriber, TIMEOUT_MS));
    assert_true(model_equal(&w->memory, &w->new));
}

/* On the context of work that was just called off, and would be again: one version is followed,
 * then several that are folded to one. */
static void test_versions(void **state) {
    (void)state;
    work w;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    open_work(&w, 2);
    begin(&w, 1);
    while (check(&w) == XORCAST_OK) /* worked on without the thread that called */
        begin(&w, 1);
    model_copy(&w.memory, &w.new);
    must(w.context, xorcast_publisher_open(w.new_bundle, "inproc:called-off", NULL, &publisher));
    must(w.context, xorcast_subscriber_open(w.loaded, "inproc:called-off", NULL, &subscriber));
    publish(&w, publisher, 1);
    follow(&w, subscriber, 1);
    for (uint64_t step = 2; step <= 4; step++)
        publish(&w, publisher, step);
    follow(&w, subscriber, 4);
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
    close_work(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
