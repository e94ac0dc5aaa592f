/* The CPU rows: what a version costs from new bytes at the trainer to committed weights at a
 * sampler, phase by phase, beside the bound that reading the same memory sets in the same
 * repetition.
 *
 * One publisher and one subscriber in this process, joined by an in-process link, public API only.
 * A row is the median over --repeat versions, each with changes of its own, once the publisher's
 * log is full:
 *     read     both buffers once, compared, nothing written: the bound
 *     encode   begin and put of all tensors: diff, counts, digest change, encoding, second pass,
 *              checksums, shadow
 *     finish   parts and their hashes, log
 *     stage    poll and stage: fetching, every check, second pass undone
 *     commit   commit and wait: the pause
 *     total    encode to commit, end to end
 * With one thread the process keeps to one CPU, the library's helpers included. */
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"
#include "gen/measure.h"
#include "gen/testbed.h"

#define MOST_REPEATS 1000u

static const char help[] =
    "usage: cpu_rows [options]\n"
    "\n"
    "  --bytes N[k|m|g]   of the weights (512m); at least four times the last-level cache\n"
    "  --threads N        1 also pins the process to one CPU (all CPUs)\n"
    "  --density X        share of bytes changed by a version (0.006)\n"
    "  --clustered        5 % of the 4 KiB blocks hold all changes\n"
    "  --dtype bf16|nvfp4 of the experts (bf16); nvfp4 is the mix, with its own densities\n"
    "  --codec NAME       raw, lz4, snappy, gap or auto (lz4)\n"
    "  --old-weights      with gap and auto: the form for samplers that hold the old weights\n"
    "  --second-pass      zstd over the encoded groups, as is the default of the library (off "
    "here)\n"
    "  --repeat N         versions to measure (11), once the log is full\n"
    "  --digest           also a row for the digest scan\n"
    "  --dump DIR         only write the old and the new weights as checkpoints, for peers\n";

typedef struct options {
    uint64_t bytes, repeat;
    uint32_t threads, codec;
    double density;
    bool clustered, mix, second_pass, digest, old_weights;
    const char *dump;
} options;

enum { READ, ENCODE, FINISH, STAGE, COMMIT, TOTAL, PHASES };
static const char *const phase_names[PHASES] = {"read_seconds",  "encode_seconds", "finish_seconds",
                                                "stage_seconds", "commit_seconds", "total_seconds"};

typedef struct bench {
    options o;
    gen_plan plan;
    gen_run run;
    uint64_t *offsets;
    uint64_t memory_bytes;
    uint8_t *trainer, *sampler;
    xorcast_context *trainer_context, *sampler_context;
    xorcast_bundle *trainer_bundle, *sampler_bundle;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    xorcast_publisher_stats stats;
    double times[PHASES][MOST_REPEATS];
    double inner_encode[MOST_REPEATS];
} bench;

/* 0: there is no such codec. */
static uint32_t codec_of(const char *name) {
    static const char *const names[] = {"raw", "lz4", "snappy", "gap", "auto"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return XORCAST_CODEC_RAW + i;
    return 0;
}

static bool parse(int argc, char **argv, options *o) {
    static const struct option table[] = {
        {"bytes", 1, NULL, 'b'},     {"threads", 1, NULL, 't'},     {"density", 1, NULL, 'd'},
        {"clustered", 0, NULL, 'c'}, {"dtype", 1, NULL, 'k'},       {"second-pass", 0, NULL, 's'},
        {"repeat", 1, NULL, 'r'},    {"digest", 0, NULL, 'g'},      {"dump", 1, NULL, 'u'},
        {"codec", 1, NULL, 'o'},     {"old-weights", 0, NULL, 'w'}, {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'b':
            o->bytes = testbed_size(optarg);
            break;
        case 't':
            o->threads = (uint32_t)testbed_size(optarg);
            break;
        case 'd':
            o->density = strtod(optarg, NULL);
            break;
        case 'c':
            o->clustered = true;
            break;
        case 'k':
            o->mix = strcmp(optarg, "nvfp4") == 0;
            break;
        case 's':
            o->second_pass = true;
            break;
        case 'r':
            o->repeat = testbed_size(optarg);
            break;
        case 'g':
            o->digest = true;
            break;
        case 'o':
            o->codec = codec_of(optarg);
            break;
        case 'w':
            o->old_weights = true;
            break;
        case 'u':
            o->dump = optarg;
            break;
        default:
            fputs(help, c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    return optind == argc && o->repeat > 0 && o->repeat <= MOST_REPEATS && o->threads > 0 &&
           o->codec != 0;
}

static void pin_to_one_cpu(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    size_t cpu = 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set)) {
        cpu++;
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        fputs("cpu_rows: the process could not be pinned to one CPU\n", stderr);
    }
}

static void set_up(bench *b) {
    b->trainer = measure_allocate(b->memory_bytes);
    b->sampler = measure_allocate(b->memory_bytes);
    if (b->trainer == NULL || b->sampler == NULL) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "weights");
    }
    testbed_fill(&b->run, b->offsets, b->trainer);
    memcpy(b->sampler, b->trainer, b->memory_bytes);
    b->trainer_context = testbed_context(b->o.threads);
    b->sampler_context = testbed_context(b->o.threads);
    b->trainer_bundle = testbed_bundle(b->trainer_context, &b->plan, b->offsets, b->trainer);
    b->sampler_bundle = testbed_bundle(b->sampler_context, &b->plan, b->offsets, b->sampler);
    testbed_must(b->trainer_context, xorcast_bundle_seal(b->trainer_bundle, NULL), "seal");
    testbed_must(b->sampler_context, xorcast_bundle_seal(b->sampler_bundle, NULL), "seal");
    xorcast_publisher_options publishing = XORCAST_PUBLISHER_OPTIONS_INIT;
    publishing.run = "bench";
    publishing.encoding.second_pass = b->o.second_pass ? 0 : 1;
    publishing.encoding.codec = b->o.codec;
    publishing.encoding.old_weights = b->o.old_weights;
    testbed_must(
        b->trainer_context,
        xorcast_publisher_open(b->trainer_bundle, "inproc:cpu_rows", &publishing, &b->publisher),
        "publisher");
    testbed_must(b->sampler_context,
                 xorcast_subscriber_open(b->sampler_bundle, xorcast_publisher_url(b->publisher),
                                         NULL, &b->subscriber),
                 "subscriber");
}

/* One version, step `step`; its times at index `at`. */
static void measure_version(bench *b, uint64_t step, uint64_t at) {
    double mark[PHASES];
    uint64_t newest = 0;
    testbed_advance(&b->run, b->offsets, step, b->trainer);
    b->times[READ][at] =
        measure_two_stream_read(b->trainer, b->sampler, b->memory_bytes, b->o.threads);
    mark[READ] = measure_now();
    testbed_must(b->trainer_context, xorcast_publisher_begin(b->publisher, step), "begin");
    testbed_must(b->trainer_context, xorcast_publisher_put(b->publisher, b->plan.count, NULL, NULL),
                 "put");
    mark[ENCODE] = measure_now();
    testbed_must(b->trainer_context, xorcast_publisher_finish(b->publisher, &b->stats), "finish");
    mark[FINISH] = measure_now();
    testbed_must(b->sampler_context, xorcast_subscriber_poll(b->subscriber, 10000, &newest),
                 "poll");
    testbed_must(b->sampler_context, xorcast_subscriber_stage(b->subscriber, newest, 10000),
                 "stage");
    mark[STAGE] = measure_now();
    testbed_must(b->sampler_context, xorcast_subscriber_commit(b->subscriber, NULL), "commit");
    testbed_must(b->sampler_context, xorcast_subscriber_wait(b->subscriber, 10000), "wait");
    mark[COMMIT] = measure_now();
    for (uint32_t i = ENCODE; i <= COMMIT; i++) {
        b->times[i][at] = mark[i] - mark[i - 1];
    }
    b->times[TOTAL][at] = mark[COMMIT] - mark[READ];
    b->inner_encode[at] = 1e-9 * (double)b->stats.encode_ns;
}

static void print_row(bench *b, int argc, char **argv) {
    double median[PHASES];
    const xorcast_delta_info *delta = &b->stats.delta;
    const double share = (double)delta->counts.bytes_changed / (double)b->plan.total_bytes;
    measure_row("cpu_version", argc, argv);
    measure_text("pattern", b->o.clustered ? "clustered" : "independent");
    measure_count("threads", b->o.threads);
    measure_count("weight_bytes", b->plan.total_bytes);
    measure_count("codec", b->o.codec);
    measure_count("old_weights", b->o.old_weights);
    measure_count("second_pass", b->o.second_pass);
    measure_number("bytes_changed_share", share);
    measure_number("bits_changed_share",
                   (double)delta->counts.bits_changed / 8 / (double)b->plan.total_bytes);
    measure_number("elements_changed_share",
                   (double)delta->counts.elements_changed / (double)delta->counts.elements_covered);
    measure_number("entropy_bound_share", delta->entropy_bound_bytes / (double)b->plan.total_bytes);
    measure_count("delta_bytes", delta->delta_bytes);
    measure_count("repeats", b->o.repeat);
    for (uint32_t i = 0; i < PHASES; i++) {
        median[i] = measure_median(b->times[i], b->o.repeat);
        measure_number(phase_names[i], median[i]);
    }
    measure_number("inner_encode_seconds", measure_median(b->inner_encode, b->o.repeat));
    measure_number("read_gigabytes_per_second", 2e-9 * (double)b->memory_bytes / median[READ]);
    measure_number("encode_of_read_bound", median[READ] / median[ENCODE]);
    measure_number("commit_faster_than_encode", median[ENCODE] / median[COMMIT]);
    measure_number("stage_and_commit_faster_than_encode",
                   median[ENCODE] / (median[STAGE] + median[COMMIT]));
    measure_row_end();
    fprintf(stderr,
            "%s %.3f %% of bytes, %u thread(s): read %.1f GB/s, encode %.2f of it, commit %.1fx "
            "(with stage %.1fx) "
            "as fast as encode, end to end %.0f ms\n",
            b->o.clustered ? "clustered" : "independent", 100 * share, b->o.threads,
            2e-9 * (double)b->memory_bytes / median[READ], median[READ] / median[ENCODE],
            median[ENCODE] / median[COMMIT], median[ENCODE] / (median[STAGE] + median[COMMIT]),
            1e3 * median[TOTAL]);
}

static void measure_digest(bench *b, int argc, char **argv) {
    xorcast_digest digest;
    for (uint64_t i = 0; i < b->o.repeat; i++) {
        const double start = measure_now();
        testbed_must(b->trainer_context, xorcast_bundle_digest(b->trainer_bundle, &digest),
                     "digest");
        b->times[READ][i] = measure_now() - start;
    }
    const double rate =
        1e-9 * (double)b->plan.total_bytes / measure_median(b->times[READ], b->o.repeat);
    measure_row("cpu_digest", argc, argv);
    measure_count("threads", b->o.threads);
    measure_count("weight_bytes", b->plan.total_bytes);
    measure_number("gigabytes_per_second", rate);
    measure_row_end();
    fprintf(stderr, "digest scan, %u thread(s): %.1f GB/s\n", b->o.threads, rate);
}

static void tear_down(bench *b) {
    xorcast_subscriber_close(b->subscriber);
    xorcast_publisher_close(b->publisher);
    xorcast_bundle_destroy(b->sampler_bundle);
    xorcast_bundle_destroy(b->trainer_bundle);
    xorcast_context_destroy(b->sampler_context);
    xorcast_context_destroy(b->trainer_context);
    measure_free(b->sampler, b->memory_bytes);
    measure_free(b->trainer, b->memory_bytes);
}

/* Versions that are not counted come first, until the log is full, as it is but for the first
 * minutes of a run: all memory that a version needs has been touched by then. */
static uint64_t warm_up(bench *b) {
    uint64_t step = 0, versions;
    do {
        versions = b->stats.log_versions;
        measure_version(b, ++step, 0);
    } while (b->stats.log_versions > versions);
    return step;
}

static void measure_all(bench *b, int argc, char **argv) {
    set_up(b);
    const uint64_t warm = warm_up(b);
    for (uint64_t i = 0; i < b->o.repeat; i++) {
        measure_version(b, warm + 1 + i, i);
    }
    if (memcmp(b->trainer, b->sampler, b->memory_bytes) != 0) {
        testbed_must(NULL, XORCAST_WEIGHTS_WRONG, "the sampler's weights after the last version");
    }
    print_row(b, argc, argv);
    if (b->o.digest) {
        measure_digest(b, argc, argv);
    }
    tear_down(b);
}

int main(int argc, char **argv) {
    static bench b;
    b.o = (options){.bytes = 512000000,
                    .repeat = 11,
                    .threads = measure_cpus(),
                    .density = 0.006,
                    .codec = XORCAST_CODEC_LZ4};
    if (!parse(argc, argv, &b.o)) {
        fputs(help, stderr);
        return 2;
    }
    if (b.o.bytes < 4 * measure_last_level_cache_bytes()) {
        fputs("cpu_rows: --bytes is less than four times the last-level cache\n", stderr);
    }
    if (b.o.threads == 1) {
        pin_to_one_cpu();
    }
    if (gen_plan_model(&b.plan, b.o.mix ? GEN_NVFP4 : GEN_BF16, b.o.bytes) != 0) {
        testbed_must(NULL, XORCAST_NO_HOST_MEMORY, "plan");
    }
    if (!b.o.mix) {
        gen_plan_set_density(&b.plan, GEN_BF16, gen_density_of_bytes(GEN_BF16, b.o.density));
    }
    b.run = (gen_run){.plan = &b.plan, .seed = 1, .clustered = b.o.clustered};
    b.offsets = testbed_offsets(&b.plan, &b.memory_bytes);
    if (b.o.dump != NULL) {
        if (gen_checkpoints_write(&b.run, 2, 1, b.o.dump) != 0) {
            testbed_must(NULL, XORCAST_IO_FAILED, b.o.dump);
        }
    } else {
        measure_all(&b, argc, argv);
    }
    free(b.offsets);
    gen_plan_free(&b.plan);
    return 0;
}
