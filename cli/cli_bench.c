/* xorcast bench: what a version costs on this machine, phase by phase, beside the bound that
 * reading the same memory sets in the same repetition. One publisher and one subscriber in this
 * process; medians. */
#include "cli_bench.h"

#include "cli_commands.h"
#include "cli_device.h"
#include "cli_info.h"
#include "cli_stop.h"
#include "cli_weights.h"
#include "cli_words.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSOR_BYTES (UINT64_C(16) << 20) /* about a matrix of an expert */
#define DEADLINE_MS 60000u
#define MOST_REPEATS 100u /* as the option's limit */

enum { READ, ENCODE, FINISH, STAGE, COMMIT, DIGEST, PHASES };
static const char *const phase_names[PHASES] = {"read",  "encode", "finish",
                                                "stage", "commit", "digest"};
static const char *const phase_texts[PHASES] = {
    "old and new bytes read and compared: the bound",
    "diff, counts, digest change, encoding, second pass",
    "parts, log",
    "fetched, every check, second pass undone",
    "the pause: XOR in place",
    "scan of all weights"};

/* One side: a context of its own, as in separate processes. */
typedef struct side {
    cli_session session;
    void *memory;
    void *on_device; /* the weights, with --device; `memory` is what is copied there */
    xorcast_bundle *bundle;
} side;

typedef struct bench {
    cli_session *session;
    uint64_t bytes;
    uint32_t threads;
    side trainer, sampler;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_publisher_stats stats;
    xorcast_decoding decoding; /* of the last version */
    double bound_bytes; /* of the first version */
    bool has_device;
    xorcast_device device;
    xorcast_device_rates rates;
    char no_device[256]; /* why there is none */
    uint64_t times[PHASES][MOST_REPEATS];
    uint64_t medians[PHASES];
} bench;

/* ---- Setting up -------------------------------------------------------------------------------*/

/* A failure on one side is the failure of the whole. */
static xorcast_status must(bench *b, side *of, xorcast_status status) {
    if (status < 0)
        b->session->failure = cli_failure(&of->session, status);
    return status;
}

/* The side's weights as they are in host memory, to where they are measured; and back. */
static xorcast_status store(bench *b, side *of) {
    if (of->on_device == NULL)
        return XORCAST_OK;
    return must(b, of,
                xorcast_device_copy(of->session.context, of->on_device, of->memory, b->bytes));
}

static xorcast_status load(bench *b, side *of) {
    if (of->on_device == NULL)
        return XORCAST_OK;
    return must(b, of,
                xorcast_device_copy(of->session.context, of->memory, of->on_device, b->bytes));
}

/* A machine without a GPU is none with a failure, unless the weights were to lie there. */
static xorcast_status find_device(bench *b) {
    xorcast_status status = xorcast_context_device(b->session->context, &b->device);
    if (status == XORCAST_OK)
        status = xorcast_device_measure(b->session->context, &b->rates);
    b->has_device = status == XORCAST_OK;
    if (b->has_device || b->session->options.device)
        return status;
    xorcast_error error;
    xorcast_last_error(b->session->context, &error);
    snprintf(b->no_device, sizeof b->no_device, "%.*s", (int)sizeof b->no_device - 1, error.text);
    return XORCAST_OK;
}

static xorcast_status open_side(bench *b, side *of) {
    of->session = (cli_session){.command = b->session->command, .options = b->session->options};
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = b->threads;
    options.scratch_limit_bytes = b->session->options.scratch_bytes;
    CLI_TRY(xorcast_context_create(&options, &of->session.context));
    of->memory = cli_memory_take(b->bytes);
    if (of->memory == NULL)
        return cli_fail(b->session, XORCAST_NO_HOST_MEMORY, 0,
                        "no memory for %s of weights; try less with --bytes",
                        cli_bytes((double)b->bytes).text);
    if (b->session->options.device)
        CLI_TRY(
            must(b, of, xorcast_device_allocate(of->session.context, b->bytes, &of->on_device)));
    CLI_TRY(must(b, of, xorcast_bundle_create(of->session.context, NULL, &of->bundle)));
    for (uint64_t at = 0, i = 0; at < b->bytes; at += TENSOR_BYTES, i++) {
        char name[40];
        const uint64_t left = b->bytes - at, bytes = left < TENSOR_BYTES ? left : TENSOR_BYTES;
        const uint64_t shape[] = {bytes / 2};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        snprintf(name, sizeof name, "experts.%06llu.weight", (unsigned long long)i);
        tensor.name = name;
        tensor.dtype = "BF16";
        tensor.shape = shape;
        tensor.rank = 1;
        tensor.bytes = bytes;
        tensor.data = (uint8_t *)(of->on_device != NULL ? of->on_device : of->memory) + at;
        tensor.memory_kind = of->on_device != NULL ? XORCAST_MEMORY_DEVICE : XORCAST_MEMORY_HOST;
        CLI_TRY(must(b, of, xorcast_bundle_add(of->bundle, &tensor)));
    }
    return must(b, of, xorcast_bundle_seal(of->bundle, NULL));
}

static void close_side(const bench *b, side *of) {
    xorcast_bundle_destroy(of->bundle);
    if (of->on_device != NULL)
        xorcast_device_release(of->session.context, of->on_device);
    xorcast_context_destroy(of->session.context);
    cli_memory_drop(of->memory, b->bytes);
}

static xorcast_status open_all(bench *b) {
    char url[64];
    xorcast_publisher_options options = XORCAST_PUBLISHER_OPTIONS_INIT;
    CLI_TRY(find_device(b));
    CLI_TRY(open_side(b, &b->trainer));
    CLI_TRY(open_side(b, &b->sampler));
    cli_bench_fill(b->trainer.memory, b->bytes);
    memcpy(b->sampler.memory, b->trainer.memory, b->bytes);
    CLI_TRY(store(b, &b->trainer));
    CLI_TRY(store(b, &b->sampler));
    snprintf(url, sizeof url, "inproc:bench-%ld", (long)getpid());
    options.run = "bench";
    options.encoding = b->session->options.encoding;
    CLI_TRY(must(b, &b->trainer,
                 xorcast_publisher_open(b->trainer.bundle, url, &options, &b->publisher)));
    return must(b, &b->sampler,
                xorcast_subscriber_open(b->sampler.bundle, xorcast_publisher_url(b->publisher),
                                        NULL, &b->subscriber));
}

static void close_all(bench *b) {
    xorcast_subscriber_close(b->subscriber);
    xorcast_publisher_close(b->publisher);
    close_side(b, &b->sampler);
    close_side(b, &b->trainer);
}

/* ---- Measuring --------------------------------------------------------------------------------*/

static int discard(void *user, const void *bytes, uint64_t count) {
    (void)user;
    (void)bytes;
    (void)count;
    return 0;
}

/* Apart from the phases, because it reads each delta once more. */
static xorcast_status measure_bound(bench *b) {
    const xorcast_sink sink = {discard, NULL};
    xorcast_delta_info info;
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    options.measure_bound = 1;
    CLI_TRY(
        must(b, &b->sampler,
             xorcast_delta_encode(b->sampler.bundle, b->trainer.bundle, &options, &sink, &info)));
    b->bound_bytes = info.entropy_bound_bytes;
    return XORCAST_OK;
}

static xorcast_status publish_version(bench *b, uint64_t step, uint64_t *times) {
    const uint64_t begin = cli_now_ns();
    CLI_TRY(must(b, &b->trainer, xorcast_publisher_begin(b->publisher, step)));
    CLI_TRY(must(b, &b->trainer, xorcast_publisher_put(b->publisher, 0, NULL, NULL)));
    const uint64_t encoded = cli_now_ns();
    CLI_TRY(must(b, &b->trainer, xorcast_publisher_finish(b->publisher, &b->stats)));
    times[ENCODE] = encoded - begin;
    times[FINISH] = cli_now_ns() - encoded;
    return XORCAST_OK;
}

static xorcast_status take_version(bench *b, uint64_t step, uint64_t *times) {
    uint64_t newest;
    const uint64_t begin = cli_now_ns();
    const xorcast_status polled = xorcast_subscriber_poll(b->subscriber, DEADLINE_MS, &newest);
    CLI_TRY(must(b, &b->sampler, polled));
    if (polled != XORCAST_OK || newest != step)
        return cli_fail(b->session, XORCAST_INTERNAL, 0,
                        "the version that was published does not arrive");
    CLI_TRY(must(b, &b->sampler, xorcast_subscriber_stage(b->subscriber, newest, DEADLINE_MS)));
    const uint64_t staged = cli_now_ns();
    CLI_TRY(must(b, &b->sampler, xorcast_subscriber_commit(b->subscriber, NULL)));
    CLI_TRY(must(b, &b->sampler, xorcast_subscriber_wait(b->subscriber, DEADLINE_MS)));
    times[STAGE] = staged - begin;
    times[COMMIT] = cli_now_ns() - staged;
    xorcast_subscriber_stats taken;
    xorcast_subscriber_get_stats(b->subscriber, &taken);
    b->decoding = taken.decoding;
    return XORCAST_OK;
}

/* Both versions read: by these cores, or at the rate at which a copy moves the device's memory. */
static uint64_t read_time(const bench *b) {
    if (b->session->options.device)
        return (uint64_t)(2 * (double)b->bytes / (double)b->rates.memory * 1e9);
    return cli_bench_read(b->trainer.memory, b->sampler.memory, b->bytes, b->threads);
}

/* The first version touches all memory that a version needs and is not counted. */
static xorcast_status measure(bench *b) {
    const cli_options *o = &b->session->options;
    for (uint64_t step = 1; step <= o->repeat + 1; step++) {
        uint64_t times[PHASES];
        xorcast_digest digest;
        cli_bench_change(b->trainer.memory, b->bytes, o->density, step);
        CLI_TRY(store(b, &b->trainer));
        times[READ] = read_time(b);
        if (step == 1)
            CLI_TRY(measure_bound(b));
        CLI_TRY(publish_version(b, step, times));
        CLI_TRY(take_version(b, step, times));
        const uint64_t begin = cli_now_ns();
        CLI_TRY(must(b, &b->sampler, xorcast_bundle_digest(b->sampler.bundle, &digest)));
        times[DIGEST] = cli_now_ns() - begin;
        for (uint32_t i = 0; i < PHASES && step > 1; i++)
            b->times[i][step - 2] = times[i];
    }
    CLI_TRY(load(b, &b->sampler));
    if (memcmp(b->trainer.memory, b->sampler.memory, b->bytes) != 0)
        return cli_fail(b->session, XORCAST_WEIGHTS_WRONG, 0,
                        "the sampler's weights differ from the trainer's");
    return XORCAST_OK;
}

/* Parts and log are the same work however large the weights are: neither a rate of theirs nor a
 * share of the bound says anything. */
static bool reads_weights(uint32_t phase) {
    return phase != FINISH;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- Words ------------------------------------------------------------------------------------*/

static void print_json(const bench *b) {
    cli_json json = cli_json_begin(stdout);
    cli_json_text(&json, "event", "bench");
    cli_json_count(&json, "weight_bytes", b->bytes);
    cli_json_count(&json, "threads", b->threads);
    cli_json_real(&json, "density", b->session->options.density);
    cli_json_count(&json, "repeat", b->session->options.repeat);
    for (uint32_t i = 0; i < PHASES; i++) {
        cli_json_open(&json, phase_names[i]);
        cli_json_count(&json, "ns", b->medians[i]);
        if (reads_weights(i)) {
            cli_json_real(&json, "gigabytes_per_second", (double)b->bytes / (double)b->medians[i]);
            cli_json_real(&json, "of_read_bound", (double)b->medians[READ] / (double)b->medians[i]);
        }
        cli_json_close(&json);
    }
    cli_json_real(&json, "entropy_bound_bytes", b->bound_bytes);
    cli_json_open(&json, "delta");
    cli_info_json(&json, &b->stats.delta);
    cli_json_close(&json);
    cli_json_bool(&json, "weights_on_device", b->session->options.device);
    cli_json_text(&json, "decoding", b->decoding.why);
    if (b->has_device) {
        cli_json_open(&json, "device");
        cli_device_json(&json, &b->device, &b->rates);
        cli_json_close(&json);
    } else {
        cli_json_null(&json, "device");
    }
    cli_json_end(&json);
}

static void print_text(const bench *b) {
    const xorcast_delta_info *delta = &b->stats.delta;
    const bool on_device = b->session->options.device;
    printf("%s of BF16 weights in %s memory, %u threads, %s of bytes changed in a version, median "
           "of %llu\n",
           cli_bytes((double)b->bytes).text, on_device ? "GPU" : "host", b->threads,
           cli_percent((double)delta->counts.bytes_changed, (double)b->bytes).text,
           (unsigned long long)b->session->options.repeat);
    printf("%-8s %10s %12s %12s\n", "", "time", "of weights", "read bound");
    for (uint32_t i = 0; i < PHASES; i++) {
        char share[24];
        snprintf(share, sizeof share, "%.2fx", (double)b->medians[READ] / (double)b->medians[i]);
        printf("%-8s %10s %12s %12s  %s\n", phase_names[i], cli_time(b->medians[i]).text,
               reads_weights(i) ? cli_rate((double)b->bytes, (double)b->medians[i]).text : "-",
               reads_weights(i) ? share : "-",
               i == READ && on_device ? "both at the rate of a copy in GPU memory: the bound"
                                      : phase_texts[i]);
    }
    printf("delta %s, ratio %s, entropy bound %s\n", cli_bytes((double)delta->delta_bytes).text,
           cli_ratio((double)b->bytes, (double)delta->delta_bytes).text,
           cli_bytes(b->bound_bytes).text);
    if (b->has_device)
        cli_device_line(&b->device, &b->rates);
    else
        printf("no GPU: %s\n", b->no_device);
    if (on_device)
        printf("decoded by %s\n", b->decoding.why);
}

static uint32_t thread_count(const cli_options *o) {
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return o->threads > 0 ? (uint32_t)o->threads : cpus < 1 ? 1 : cpus > 256 ? 256 : (uint32_t)cpus;
}

xorcast_status cli_bench(cli_session *session) {
    const cli_options *o = &session->options;
    bench *b = calloc(1, sizeof *b);
    if (b == NULL)
        return cli_fail(session, XORCAST_NO_HOST_MEMORY, 0, "no memory for the benchmark");
    b->session = session;
    b->bytes = o->bytes / 4096 * 4096;
    b->threads = thread_count(o);
    xorcast_status status = open_all(b);
    if (status == XORCAST_OK)
        status = measure(b);
    for (uint32_t i = 0; i < PHASES; i++) {
        qsort(b->times[i], o->repeat, sizeof **b->times, by_size);
        b->medians[i] = b->times[i][o->repeat / 2];
    }
    if (status == XORCAST_OK && o->json)
        print_json(b);
    else if (status == XORCAST_OK && !o->quiet)
        print_text(b);
    close_all(b);
    free(b);
    return status;
}
