/* What reaches the wire, and what many tensors cost, through the public API:
 *
 *     --model   one byte changed, and none, in a bundle of 7 GB over TCP on loopback
 *     --many    200,000 tensors: time to seal; a version with one byte changed, beyond reading the
 *               weights; a change in every tensor, bytes beyond the payload
 *
 * In the model, trainer and sampler map the same memory file copy-on-write, so that 7 GB of
 * weights, twice, and the publisher's shadow fit in 16 GB. The many tensors, where a sampler's
 * whole memory is written, have memory of their own on both sides. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gen/gen.h"
#include "gen/measure.h"
#include "gen/testbed.h"

static const char help[] =
    "usage: wire [--model] [--many] [options]      (both unless one is named)\n"
    "\n"
    "  --bytes N[k|m|g]         of the model (7g)\n"
    "  --tensors N              (200000)\n"
    "  --matrix-bytes N[k|m|g]  of each of their weight matrices (4096), which are every third "
    "tensor\n"
    "  --threads N              (all CPUs)\n"
    "  --repeat N               versions of each kind (11)\n"
    "  --url URL                (tcp:127.0.0.1:0)\n";

typedef struct options {
    bool model, many;
    uint64_t bytes, tensors, matrix_bytes, repeat;
    uint32_t threads;
    const char *url;
} options;

/* A publisher and a subscriber, and the weights of each. */
typedef struct pair {
    const gen_plan *plan;
    uint64_t *offsets;
    uint64_t memory_bytes;
    bool shared;
    uint8_t *trainer, *sampler;
    xorcast_context *trainer_context, *sampler_context;
    xorcast_bundle *trainer_bundle, *sampler_bundle;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_publisher_stats published;
    xorcast_subscriber_stats received;
    double add_seconds, seal_seconds, publish_seconds, stage_seconds, commit_seconds;
} pair;

static bool parse(int argc, char **argv, options *o) {
    static const struct option table[] = {{"model", 0, NULL, 'm'},        {"many", 0, NULL, 'n'},
                                          {"bytes", 1, NULL, 'b'},        {"tensors", 1, NULL, 't'},
                                          {"matrix-bytes", 1, NULL, 'x'}, {"threads", 1, NULL, 'c'},
                                          {"repeat", 1, NULL, 'r'},       {"url", 1, NULL, 'u'},
                                          {"help", 0, NULL, 'h'},         {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'm':
            o->model = true;
            break;
        case 'n':
            o->many = true;
            break;
        case 'b':
            o->bytes = testbed_size(optarg);
            break;
        case 't':
            o->tensors = testbed_size(optarg);
            break;
        case 'x':
            o->matrix_bytes = testbed_size(optarg);
            break;
        case 'c':
            o->threads = (uint32_t)testbed_size(optarg);
            break;
        case 'r':
            o->repeat = testbed_size(optarg);
            break;
        case 'u':
            o->url = optarg;
            break;
        default:
            fputs(help, c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    if (!o->model && !o->many) {
        o->model = o->many = true;
    }
    return optind == argc && o->repeat > 0 && o->repeat <= 1000;
}

/* ---- Setting up -------------------------------------------------------------------------------*/

static void copy_weights(pair *p) {
    const gen_run run = {.plan = p->plan, .seed = 1};
    p->trainer = measure_allocate(p->memory_bytes);
    p->sampler = measure_allocate(p->memory_bytes);
    if (p->trainer == NULL || p->sampler == NULL) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "weights");
    }
    testbed_fill(&run, p->offsets, p->trainer);
    memcpy(p->sampler, p->trainer, p->memory_bytes);
}

/* Two private views of the same memory. */
static void share_weights(pair *p) {
    const int file = memfd_create("weights", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)p->memory_bytes) != 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "weights");
    }
    uint8_t *shared = mmap(NULL, p->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    p->trainer = mmap(NULL, p->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    p->sampler = mmap(NULL, p->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (shared == MAP_FAILED || p->trainer == MAP_FAILED || p->sampler == MAP_FAILED) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "weights");
    }
    const gen_run run = {.plan = p->plan, .seed = 1};
    testbed_fill(&run, p->offsets, shared);
    munmap(shared, p->memory_bytes);
    close(file);
}

static void set_up(pair *p, const gen_plan *plan, bool shared, const options *o) {
    memset(p, 0, sizeof *p);
    p->plan = plan;
    p->offsets = testbed_offsets(plan, &p->memory_bytes);
    p->shared = shared;
    if (shared) {
        share_weights(p);
    } else {
        copy_weights(p);
    }
    p->trainer_context = testbed_context(o->threads);
    p->sampler_context = testbed_context(o->threads);
    const double start = measure_now();
    p->trainer_bundle = testbed_bundle(p->trainer_context, plan, p->offsets, p->trainer);
    const double added = measure_now();
    testbed_must(p->trainer_context, xorcast_bundle_seal(p->trainer_bundle, NULL), "seal");
    p->seal_seconds = measure_now() - added;
    p->add_seconds = added - start;
    p->sampler_bundle = testbed_bundle(p->sampler_context, plan, p->offsets, p->sampler);
    testbed_must(p->sampler_context, xorcast_bundle_seal(p->sampler_bundle, NULL), "seal");
    xorcast_publisher_options publishing = XORCAST_PUBLISHER_OPTIONS_INIT;
    publishing.run = "bench";
    testbed_must(p->trainer_context,
                 xorcast_publisher_open(p->trainer_bundle, o->url, &publishing, &p->publisher),
                 "publisher");
    testbed_must(p->sampler_context,
                 xorcast_subscriber_open(p->sampler_bundle, xorcast_publisher_url(p->publisher),
                                         NULL, &p->subscriber),
                 "subscriber");
}

static void tear_down(pair *p) {
    xorcast_subscriber_close(p->subscriber);
    xorcast_publisher_close(p->publisher);
    xorcast_bundle_destroy(p->sampler_bundle);
    xorcast_bundle_destroy(p->trainer_bundle);
    xorcast_context_destroy(p->sampler_context);
    xorcast_context_destroy(p->trainer_context);
    if (p->shared) {
        munmap(p->sampler, p->memory_bytes);
        munmap(p->trainer, p->memory_bytes);
    } else {
        measure_free(p->sampler, p->memory_bytes);
        measure_free(p->trainer, p->memory_bytes);
    }
    free(p->offsets);
}

static void version(pair *p, uint64_t step) {
    uint64_t newest = 0;
    const double start = measure_now();
    testbed_must(p->trainer_context, xorcast_publisher_begin(p->publisher, step), "begin");
    testbed_must(p->trainer_context,
                 xorcast_publisher_put(p->publisher, p->plan->count, NULL, NULL), "put");
    testbed_must(p->trainer_context, xorcast_publisher_finish(p->publisher, &p->published),
                 "finish");
    const double finished = measure_now();
    testbed_must(p->sampler_context, xorcast_subscriber_poll(p->subscriber, 60000, &newest),
                 "poll");
    testbed_must(p->sampler_context, xorcast_subscriber_stage(p->subscriber, newest, 60000),
                 "stage");
    const double staged = measure_now();
    testbed_must(p->sampler_context, xorcast_subscriber_commit(p->subscriber, NULL), "commit");
    testbed_must(p->sampler_context, xorcast_subscriber_wait(p->subscriber, 60000), "wait");
    p->commit_seconds = measure_now() - staged;
    p->stage_seconds = staged - finished;
    p->publish_seconds = finished - start;
    xorcast_subscriber_get_stats(p->subscriber, &p->received);
    if (p->received.version.step != step) {
        testbed_must(NULL, XORCAST_VERSION_ORDER, "the sampler's version after commit");
    }
}

/* Bytes that crossed the loopback interface, headers and other programs included: an upper bound
 * that xorcast does not count itself. */
static uint64_t loopback_bytes(void) {
    FILE *in = fopen("/sys/class/net/lo/statistics/rx_bytes", "r");
    unsigned long long bytes = 0;
    if (in != NULL) {
        if (fscanf(in, "%llu", &bytes) != 1) {
            bytes = 0;
        }
        fclose(in);
    }
    return bytes;
}

/* ---- One byte in a large model ----------------------------------------------------------------*/

/* Medians over versions that flip `flips` bytes each. All bytes sent since the version before
 * count, announcements and acknowledgements included. */
static void model_row(pair *p, const char *name, bool flip, uint64_t first_step, uint64_t limit,
                      const options *o, int argc, char **argv) {
    static double sent[1000], loopback[1000], publish[1000];
    for (uint64_t i = 0; i < o->repeat; i++) {
        xorcast_publisher_stats before, after;
        xorcast_publisher_get_stats(p->publisher, &before);
        const uint64_t loopback_before = loopback_bytes();
        p->trainer[p->memory_bytes / 7 * (1 + i % 5)] ^= flip ? 1 : 0;
        version(p, first_step + i);
        xorcast_publisher_get_stats(p->publisher, &after);
        sent[i] = (double)(after.sent_bytes - before.sent_bytes);
        loopback[i] = (double)(loopback_bytes() - loopback_before);
        publish[i] = p->publish_seconds;
    }
    measure_row(name, argc, argv);
    measure_count("weight_bytes", p->plan->total_bytes);
    measure_count("tensors", p->plan->count);
    measure_count("bytes_changed", p->published.delta.counts.bytes_changed);
    measure_count("delta_bytes", p->published.delta.delta_bytes);
    measure_count("subscriber_wire_bytes", p->received.wire_bytes);
    const double median = measure_median(sent, o->repeat);
    measure_number("publisher_sent_bytes", median);
    measure_number("publisher_sent_bytes_most", sent[o->repeat - 1]);
    measure_number("loopback_bytes_both_ways", measure_median(loopback, o->repeat));
    measure_count("limit_bytes", limit);
    measure_number("publish_seconds", measure_median(publish, o->repeat));
    measure_row_end();
    fprintf(stderr, "%s in %.1f GB: %.0f bytes on the wire (limit %llu)\n", name,
            1e-9 * (double)p->plan->total_bytes, median, (unsigned long long)limit);
}

static void measure_model(const options *o, int argc, char **argv) {
    gen_plan plan = {0};
    static pair p;
    if (gen_plan_model(&plan, GEN_BF16, o->bytes) != 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "plan");
    }
    if (plan.total_bytes / 10 * 22 > measure_available_bytes()) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY,
                     "the model needs 2.2 times --bytes of free memory");
    }
    set_up(&p, &plan, true, o);
    version(&p, 1);
    model_row(&p, "wire_one_byte", true, 2, 1000, o, argc, argv);
    model_row(&p, "wire_no_change", false, 2 + o->repeat, 512, o, argc, argv);
    tear_down(&p);
    gen_plan_free(&plan);
}

/* ---- Many tensors -----------------------------------------------------------------------------*/

static void one_byte_row(pair *p, const options *o, int argc, char **argv) {
    static double read[1000], publish[1000], beyond[1000], stage[1000], commit[1000];
    for (uint64_t i = 0; i < o->repeat; i++) {
        p->trainer[p->offsets[p->plan->count / 3]] ^= 1;
        read[i] = measure_two_stream_read(p->trainer, p->sampler, p->memory_bytes, o->threads);
        version(p, 2 + i);
        publish[i] = p->publish_seconds;
        beyond[i] = publish[i] - read[i];
        stage[i] = p->stage_seconds;
        commit[i] = p->commit_seconds;
    }
    const double more = measure_median(beyond, o->repeat);
    measure_row("many_one_byte", argc, argv);
    measure_count("tensors", p->plan->count);
    measure_count("weight_bytes", p->plan->total_bytes);
    measure_count("threads", o->threads);
    measure_number("add_seconds", p->add_seconds);
    measure_number("seal_seconds", p->seal_seconds);
    measure_number("seal_limit_seconds", 0.3);
    measure_number("read_seconds", measure_median(read, o->repeat));
    measure_number("publish_seconds", measure_median(publish, o->repeat));
    measure_number("beyond_read_seconds", more);
    measure_number("beyond_read_limit_seconds", 0.05);
    measure_number("stage_seconds", measure_median(stage, o->repeat));
    measure_number("commit_seconds", measure_median(commit, o->repeat));
    measure_count("delta_bytes", p->published.delta.delta_bytes);
    measure_count("publisher_high_water_bytes", p->published.memory.high_water_bytes);
    measure_row_end();
    fprintf(stderr,
            "%llu tensors: sealed in %.0f ms (limit 300), one byte costs %.1f ms beyond reading "
            "(limit 50)\n",
            (unsigned long long)p->plan->count, 1e3 * p->seal_seconds, 1e3 * more);
}

static void every_tensor_row(pair *p, uint64_t step, int argc, char **argv) {
    for (uint64_t i = 0; i < p->plan->count; i++) {
        p->trainer[p->offsets[i] + (i * 7919) % p->plan->tensors[i].bytes] ^= 1;
    }
    version(p, step);
    const xorcast_delta_info *delta = &p->published.delta;
    const double overhead =
        ((double)delta->delta_bytes - (double)delta->payload_bytes) / (double)p->plan->count;
    measure_row("many_every_tensor", argc, argv);
    measure_count("tensors", p->plan->count);
    measure_count("bytes_changed", delta->counts.bytes_changed);
    measure_count("chunks_changed", delta->counts.chunks_changed);
    measure_count("delta_bytes", delta->delta_bytes);
    measure_count("payload_bytes", delta->payload_bytes);
    measure_count("chunk_encoded_bytes", delta->chunk_encoded_bytes);
    measure_count("subscriber_wire_bytes", p->received.wire_bytes);
    measure_number("overhead_bytes_per_tensor", overhead);
    measure_number("overhead_limit_bytes", 4);
    measure_number("publish_seconds", p->publish_seconds);
    measure_number("stage_seconds", p->stage_seconds);
    measure_number("commit_seconds", p->commit_seconds);
    measure_row_end();
    fprintf(stderr, "a change in every tensor: %.2f bytes for each beyond the payload (limit 4)\n",
            overhead);
}

static void measure_many(const options *o, int argc, char **argv) {
    gen_plan plan = {0};
    static pair p;
    if (gen_plan_many(&plan, o->tensors, o->matrix_bytes) != 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "plan");
    }
    set_up(&p, &plan, false, o);
    version(&p, 1);
    one_byte_row(&p, o, argc, argv);
    every_tensor_row(&p, 2 + o->repeat, argc, argv);
    if (memcmp(p.trainer, p.sampler, p.memory_bytes) != 0) {
        testbed_must(NULL, XORCAST_WEIGHTS_WRONG, "the sampler's weights after the last version");
    }
    tear_down(&p);
    gen_plan_free(&plan);
}

int main(int argc, char **argv) {
    options o = {.bytes = UINT64_C(7000000000),
                 .tensors = 200000,
                 .matrix_bytes = 4096,
                 .repeat = 11,
                 .threads = measure_cpus(),
                 .url = "tcp:127.0.0.1:0"};
    if (!parse(argc, argv, &o)) {
        fputs(help, stderr);
        return 2;
    }
    if (o.many) {
        measure_many(&o, argc, argv);
    }
    if (o.model) {
        measure_model(&o, argc, argv);
    }
    return 0;
}
