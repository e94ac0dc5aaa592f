/* Bundles over generated weights for benchmarks; see testbed.h. */
#include "gen/testbed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/measure.h"

#define MOST_THREADS 63u /* beside the caller */

static _Noreturn void give_up(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void testbed_must(xorcast_context *context, xorcast_status status, const char *what) {
    if (status == XORCAST_OK) {
        return;
    }
    xorcast_error error = {0};
    if (context != NULL && status < 0) {
        xorcast_last_error(context, &error);
    }
    fprintf(stderr, "%s: ", xorcast_status_name(status));
    give_up(what, error.text[0] != '\0' ? error.text : xorcast_status_text(status));
}

xorcast_context *testbed_context(uint32_t threads) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context = NULL;
    options.threads = threads;
    testbed_must(NULL, xorcast_context_create(&options, &context), "context");
    return context;
}

uint64_t *testbed_offsets(const gen_plan *plan, uint64_t *bytes_out) {
    uint64_t *offsets = calloc(plan->count + 1, sizeof *offsets), at = 0;
    if (offsets == NULL) {
        give_up("offsets", "no memory");
    }
    for (uint64_t i = 0; i < plan->count; i++) {
        offsets[i] = at;
        at += (plan->tensors[i].bytes + 63) / 64 * 64;
    }
    *bytes_out = at;
    return offsets;
}

void testbed_add(xorcast_context *context, xorcast_bundle *bundle, const gen_tensor *tensor,
                 uint8_t *data) {
    xorcast_tensor added = XORCAST_TENSOR_INIT;
    added.name = tensor->name;
    added.dtype = gen_kind_dtype(tensor->kind);
    added.shape = tensor->shape;
    added.rank = tensor->rank;
    added.bytes = tensor->bytes;
    added.data = data;
    testbed_must(context, xorcast_bundle_add(bundle, &added), tensor->name);
}

xorcast_bundle *testbed_bundle(xorcast_context *context, const gen_plan *plan,
                               const uint64_t *offsets, uint8_t *memory) {
    xorcast_bundle *bundle = NULL;
    testbed_must(context, xorcast_bundle_create(context, NULL, &bundle), "bundle");
    for (uint64_t i = 0; i < plan->count; i++) {
        testbed_add(context, bundle, &plan->tensors[i], memory + offsets[i]);
    }
    return bundle;
}

void testbed_fill(const gen_run *run, const uint64_t *offsets, uint8_t *memory) {
    for (uint64_t i = 0; i < run->plan->count; i++) {
        const gen_tensor *tensor = &run->plan->tensors[i];
        gen_run_bytes(run, tensor, 0, 0, memory + offsets[i], tensor->bytes);
    }
}

/* Tensors to be advanced, by as many threads as there are CPUs: making changes takes longer than
 * publishing them. */
typedef struct advance {
    const gen_run *run;
    const uint64_t *offsets;
    uint64_t step;
    uint8_t *memory;
    atomic_uint_fast64_t next, changed;
} advance;

static void *advance_tensors(void *argument) {
    advance *a = argument;
    for (uint64_t i; (i = atomic_fetch_add(&a->next, 1)) < a->run->plan->count;) {
        const gen_tensor *tensor = &a->run->plan->tensors[i];
        atomic_fetch_add(&a->changed, gen_run_advance(a->run, tensor, a->step, 0,
                                                      a->memory + a->offsets[i], tensor->bytes));
    }
    return NULL;
}

uint64_t testbed_advance(const gen_run *run, const uint64_t *offsets, uint64_t step,
                         uint8_t *memory) {
    advance a = {.run = run, .offsets = offsets, .step = step, .memory = memory};
    pthread_t threads[MOST_THREADS];
    uint32_t count = 0;
    while (count + 1 < measure_cpus() && count < MOST_THREADS &&
           pthread_create(&threads[count], NULL, advance_tensors, &a) == 0) {
        count++;
    }
    advance_tensors(&a);
    while (count > 0) {
        pthread_join(threads[--count], NULL);
    }
    return atomic_load(&a.changed);
}

uint64_t testbed_size(const char *text) {
    uint64_t bytes = 0;
    if (!measure_size(text, &bytes)) {
        give_up(text, "not a size such as 470m");
    }
    return bytes;
}
