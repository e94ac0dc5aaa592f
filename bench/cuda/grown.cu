/* Versions of weights that follow FP32 masters, grown on the GPU at any size: how long a step takes
 * to grow, what it changes, and what each form of it takes to send and to bring from a publisher to
 * a subscriber of this process on the same GPU. Every version is compared by a full scan. One JSON
 * line a form; medians of the steps but the first.
 *
 *     grown [--bytes 4e9] [--steps 3] [--lr 1e-6] [--heavy] [bf16 fp8 nvfp4]
 *
 * The GPU needs three times the bytes, and what publisher and subscriber take beside. */
#include "cuda/arguments.h"
#include "cuda/masters.cuh"
#include "cuda/timing.cuh"

#include <time.h>

#include "xorcast.h"

#define DEADLINE_MS 60000

typedef struct form {
    const char *name;
    uint32_t codec, no_second_pass, old_weights;
} form;

static const form forms[] = {
    {"lz4", XORCAST_CODEC_LZ4, 1, 0},       {"lz4+zstd", XORCAST_CODEC_LZ4, 0, 0},
    {"gap", XORCAST_CODEC_GAP, 1, 0},       {"gap+old", XORCAST_CODEC_GAP, 1, 1},
    {"auto+old", XORCAST_CODEC_AUTO, 1, 1},
};

static xorcast_context *context;

static void must(xorcast_status status, int line) {
    if (status >= 0)
        return;
    xorcast_error error;
    xorcast_last_error(context, &error);
    fprintf(stderr, "grown:%d: %s: %s\n", line, xorcast_status_name(status), error.text);
    exit(1);
}
#define MUST(call) must((call), __LINE__)

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- Weights ---- */

/* All tensors of a run, each 256-byte aligned. */
typedef struct weights {
    const gen_run *run;
    std::vector<uint8_t *> at;
    uint8_t *memory;
} weights;

static weights make_weights(const gen_run *run) {
    weights w = {run, {}, NULL};
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < run->plan->count; i++)
        bytes += (run->plan->tensors[i].bytes + 255) / 256 * 256;
    w.memory = device_array<uint8_t>(bytes);
    for (uint64_t i = 0, before = 0; i < run->plan->count; i++) {
        w.at.push_back(w.memory + before);
        before += (run->plan->tensors[i].bytes + 255) / 256 * 256;
    }
    return w;
}

/* Milliseconds that it takes. */
static double grow(const weights *w, uint64_t step) {
    const double begun = now_ms();
    for (uint64_t i = 0; i < w->run->plan->count; i++) {
        const gen_tensor *tensor = &w->run->plan->tensors[i];
        CUDA(masters_grow(w->run, tensor, step, 0, w->at[i], tensor->bytes));
    }
    CUDA(cudaDeviceSynchronize());
    return now_ms() - begun;
}

static xorcast_bundle *make_bundle(const weights *w) {
    xorcast_bundle *bundle;
    MUST(xorcast_bundle_create(context, NULL, &bundle));
    for (uint64_t i = 0; i < w->run->plan->count; i++) {
        const gen_tensor *from = &w->run->plan->tensors[i];
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = from->name;
        tensor.dtype = gen_kind_dtype(from->kind);
        tensor.shape = from->shape;
        tensor.rank = from->rank;
        tensor.bytes = from->bytes;
        tensor.data = w->at[i];
        tensor.memory_kind = XORCAST_MEMORY_DEVICE;
        MUST(xorcast_bundle_add(bundle, &tensor));
    }
    MUST(xorcast_bundle_seal(bundle, NULL));
    return bundle;
}

/* ---- Versions ---- */

typedef struct street {
    weights trainer, sampler;
    xorcast_bundle *from, *to;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
} street;

typedef struct times {
    std::vector<double> grow, put, stage, commit;
    std::vector<double> delta_bytes, wire_bytes, changed; /* of all bytes */
} times;

static street open_street(const gen_run *run, const form *f) {
    street s = {make_weights(run), make_weights(run), NULL, NULL, NULL, NULL};
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    grow(&s.trainer, 0);
    grow(&s.sampler, 0);
    s.from = make_bundle(&s.trainer);
    s.to = make_bundle(&s.sampler);
    options.encoding.codec = f->codec;
    options.encoding.second_pass = f->no_second_pass;
    options.encoding.old_weights = f->old_weights;
    options.log_bytes = 1;
    MUST(xorcast_publisher_open(s.from, "inproc:grown", &options, &s.publisher));
    MUST(xorcast_subscriber_open(s.to, "inproc:grown", NULL, &s.subscriber));
    return s;
}

static void close_street(street *s) {
    xorcast_subscriber_close(s->subscriber);
    xorcast_publisher_close(s->publisher);
    xorcast_bundle_destroy(s->from);
    xorcast_bundle_destroy(s->to);
    CUDA(cudaFree(s->trainer.memory));
    CUDA(cudaFree(s->sampler.memory));
}

static void run_step(street *s, uint64_t step, times *t) {
    xorcast_publisher_stats published;
    xorcast_subscriber_stats followed;
    uint64_t newest;
    t->grow.push_back(grow(&s->trainer, step));
    const double begun = now_ms();
    MUST(xorcast_publisher_begin(s->publisher, step));
    MUST(xorcast_publisher_put(s->publisher, 0, NULL, NULL));
    MUST(xorcast_publisher_finish(s->publisher, &published));
    t->put.push_back(now_ms() - begun);
    MUST(xorcast_subscriber_poll(s->subscriber, DEADLINE_MS, &newest));
    MUST(xorcast_subscriber_stage(s->subscriber, newest, DEADLINE_MS));
    MUST(xorcast_subscriber_commit(s->subscriber, NULL));
    MUST(xorcast_subscriber_wait(s->subscriber, DEADLINE_MS));
    MUST(xorcast_subscriber_audit(s->subscriber, 0));
    xorcast_subscriber_get_stats(s->subscriber, &followed);
    t->stage.push_back((double)followed.stage_ns / 1e6);
    t->commit.push_back((double)followed.commit_ns / 1e6);
    t->delta_bytes.push_back((double)published.delta.delta_bytes);
    t->wire_bytes.push_back((double)followed.wire_bytes);
    t->changed.push_back((double)published.delta.counts.bytes_changed);
}

static void measure(const gen_run *run, const char *dtype, const form *f, unsigned steps) {
    times t;
    street s = open_street(run, f);
    for (uint64_t step = 1; step <= steps + 1; step++)
        run_step(&s, step, &t);
    const double bytes = (double)run->plan->total_bytes;
    printf("{\"bench\":\"grown\",\"weights\":\"%s\",\"bytes\":%.0f,\"tensors\":%llu,\"rate\":%g,"
           "\"heavy\":%s,\"form\":\"%s\",\"steps\":%u,\"bytes_changed_share\":%.6f,"
           "\"delta_bytes\":%.0f,\"wire_bytes\":%.0f,\"grow_ms\":%.1f,\"put_ms\":%.2f,"
           "\"stage_ms\":%.2f,\"commit_ms\":%.2f}\n",
           dtype, bytes, (unsigned long long)run->plan->count, run->learning_rate,
           run->heavy ? "true" : "false", f->name, steps, median(t.changed) / bytes,
           median(t.delta_bytes), median(t.wire_bytes), median(t.grow), median(t.put),
           median(t.stage), median(t.commit));
    fflush(stdout);
    close_street(&s);
}

int main(int argc, char **argv) {
    uint64_t bytes = 4000000000;
    unsigned steps = 3;
    const char *rate = "1e-6";
    bool heavy = false;
    const argument options[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                                {"--steps", ARGUMENT_COUNT, &steps},
                                {"--lr", ARGUMENT_TEXT, &rate},
                                {"--heavy", ARGUMENT_FLAG, &heavy}};
    const int names = read_arguments(argc, argv, options, 4);
    static const struct {
        const char *name;
        gen_kind kind;
    } dtypes[] = {{"bf16", GEN_BF16}, {"fp8", GEN_FP8}, {"nvfp4", GEN_NVFP4}};
    xorcast_context_options with = XORCAST_CONTEXT_OPTIONS_INIT;
    with.backend = "cuda";
    MUST(xorcast_context_create(&with, &context));
    for (const auto &dtype : dtypes) {
        gen_plan plan = {};
        if (!is_wanted(names, argv, dtype.name))
            continue;
        if (steps == 0 || gen_plan_model(&plan, dtype.kind, bytes) != 0)
            return fprintf(stderr, "grown: no such weights\n"), 2;
        gen_run run = {};
        run.plan = &plan;
        run.seed = 1;
        run.masters = true;
        run.heavy = heavy;
        run.learning_rate = strtod(rate, NULL);
        for (const form &f : forms)
            measure(&run, dtype.name, &f, steps);
        gen_plan_free(&plan);
    }
    xorcast_context_destroy(context);
    return 0;
}
