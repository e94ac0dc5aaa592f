/* A whole version on one GPU, through the public interface: weights, shadow and a sampler's weights
 * in its memory, a publisher and a subscriber in one process. Times each phase by the clock beside
 * what reading two copies of the weights takes in the same run, and checks every version by a full
 * scan. One JSON line a setting; medians.
 *
 *     device_sync [--bytes N] [--rounds N] [--small N | --many N] [--in-host] [--setting NAME]
 *
 * --small: so many tensors of 40 bytes beside the large ones; --many: so many tensors, of a
 * fiftieth to twice the mean, and no others; --in-host: the shadow in pinned host memory. Needs
 * three times the bytes in device memory. */
#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <time.h>
#include <vector>

#include "xorcast.h"

#define TENSOR_BYTES (64ull << 20)
#define SMALL_BYTES 40ull
#define DEADLINE_MS 60000
#define AUDIT_BUDGET_MS 2

typedef struct setting {
    const char *name;
    double rare, often; /* shares of 16-bit elements that change: of most tensors, of 1 in 12 */
    uint32_t second_pass;
} setting;

static const setting settings[] = {
    {"nvfp4 mix", 0.0004, 0.013, 1}, {"nvfp4 mix, zstd", 0.0004, 0.013, 0},
    {"bf16 1 %", 0.01, 0.01, 1},     {"no change", 0, 0, 1},
};

static void cuda(cudaError_t error, int line) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "device_sync:%d: %s\n", line, cudaGetErrorString(error));
    exit(1);
}
#define CUDA(call) cuda((call), __LINE__)

static xorcast_context *contexts[2];

static void must(xorcast_status status, int line) {
    if (status >= 0)
        return;
    for (int i = 0; i < 2; i++) {
        xorcast_error error;
        xorcast_last_error(contexts[i], &error);
        fprintf(stderr, "device_sync:%d: %s: %s\n", line, xorcast_status_name(status), error.text);
    }
    exit(1);
}
#define MUST(call) must((call), __LINE__)

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- Phases ---- */

enum { BOUND, PUT, FINISH, STAGE, COMMIT, AUDIT, AUDIT_SLICES, AUDIT_LONGEST, PHASES };
enum { ADD, SEAL, OPEN_PUBLISHER, OPEN_SUBSCRIBER, OPENINGS };
static const char *const phase_names[PHASES] = {
    "read_both_ms", "put_ms",   "finish_ms",       "stage_ms",
    "commit_ms",    "audit_ms", "audit_slices_ms", "audit_longest_slice_ms"};

static const char *const opening_names[OPENINGS] = {"add_ms", "seal_ms", "open_publisher_ms",
                                                    "open_subscriber_ms"};

/* ---- Weights ---- */

static __device__ uint64_t d_mix(uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static __global__ void k_fill(uint64_t *at, uint64_t words) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += (uint64_t)gridDim.x * blockDim.x)
        at[i] = d_mix(i);
}

/* One step of the last place for some elements, as an optimizer makes them: of one stretch in 12
 * more than of the others. */
static __global__ void k_change(uint16_t *at, uint64_t elements, uint64_t stretch, uint64_t seed,
                                uint64_t rare, uint64_t often) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t random = d_mix(seed ^ d_mix(i));
        if ((random >> 16) < (i / stretch % 12 == 0 ? often : rare))
            at[i] = (uint16_t)(at[i] + ((random & 1) ? 1 : -1));
    }
}

static __global__ void k_read(const uint4 *a, const uint4 *b, uint64_t count, uint4 *out) {
    uint4 sum = {};
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const uint4 x = a[i], y = b[i];
        sum.x |= x.x ^ y.x, sum.y |= x.y ^ y.y, sum.z |= x.z ^ y.z, sum.w |= x.w ^ y.w;
    }
    if ((sum.x & sum.y & sum.z & sum.w) == 0x12345678u)
        *out = sum;
}

typedef struct weights {
    std::vector<uint8_t *> at;
    std::vector<uint64_t> bytes;
    uint8_t *memory;
    uint64_t total;
    uint64_t changing, stretch; /* bytes that may change, and in which stretches */
} weights;

typedef struct sizes {
    uint64_t bytes, small, many;
} sizes;

static std::vector<uint64_t> tensor_bytes(const sizes &s) {
    std::vector<uint64_t> all;
    const uint64_t mean = s.many > 0 ? s.bytes / s.many : 0;
    for (uint64_t i = 0; i < s.many; i++)
        all.push_back((mean / 50 + i * 2654435761u % (mean * 49 / 25)) / 16 * 16);
    for (uint64_t i = 0; s.many == 0 && i < s.bytes / TENSOR_BYTES; i++)
        all.push_back(TENSOR_BYTES);
    for (uint64_t i = 0; s.many == 0 && i < s.small; i++)
        all.push_back(SMALL_BYTES);
    return all;
}

static void make_weights(weights *w, const sizes &s) {
    w->bytes = tensor_bytes(s);
    for (uint64_t bytes : w->bytes)
        w->total += bytes;
    w->total = (w->total + 63) / 64 * 64;
    w->changing = s.many > 0 ? w->total : s.bytes / TENSOR_BYTES * TENSOR_BYTES;
    w->stretch = s.many > 0 ? s.bytes / s.many : TENSOR_BYTES;
    CUDA(cudaMalloc(&w->memory, w->total));
    k_fill<<<2048, 256>>>((uint64_t *)w->memory, w->total / 8);
    CUDA(cudaDeviceSynchronize());
    uint8_t *at = w->memory;
    for (uint64_t bytes : w->bytes) {
        w->at.push_back(at);
        at += bytes;
    }
}

static xorcast_bundle *make_bundle(xorcast_context *context, const weights *w,
                                   double opening[OPENINGS]) {
    xorcast_bundle *bundle;
    const double begun = now_ms();
    MUST(xorcast_bundle_create(context, NULL, &bundle));
    for (size_t i = 0; i < w->at.size(); i++) {
        char name[32];
        snprintf(name, sizeof name, "t%08zu", i);
        const uint64_t shape[1] = {w->bytes[i] / 2};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = name;
        tensor.dtype = "BF16";
        tensor.shape = shape;
        tensor.rank = 1;
        tensor.bytes = w->bytes[i];
        tensor.data = w->at[i];
        tensor.memory_kind = XORCAST_MEMORY_DEVICE;
        MUST(xorcast_bundle_add(bundle, &tensor));
    }
    opening[ADD] = now_ms() - begun;
    MUST(xorcast_bundle_seal(bundle, NULL));
    opening[SEAL] = now_ms() - begun - opening[ADD];
    return bundle;
}

static void change(const weights *w, const setting *s, uint64_t seed) {
    const double most = 281474976710656.0; /* 2^48 */
    k_change<<<2048, 256>>>((uint16_t *)w->memory, w->changing / 2, w->stretch / 2, seed * 1000003,
                            (uint64_t)(s->rare * most), (uint64_t)(s->often * most));
    CUDA(cudaDeviceSynchronize());
}

/* ---- Measuring ---- */

static double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static double bound_ms(const weights *a, const weights *b) {
    static uint4 *out;
    if (out == NULL)
        CUDA(cudaMalloc(&out, sizeof *out));
    const double begun = now_ms();
    k_read<<<132 * 8, 512>>>((const uint4 *)a->memory, (const uint4 *)b->memory, a->total / 16,
                             out);
    CUDA(cudaDeviceSynchronize());
    return now_ms() - begun;
}

/* All weights in calls of AUDIT_BUDGET_MS: how long they and the longest of them take. */
static void audit_slices(xorcast_subscriber *subscriber, double times[PHASES]) {
    xorcast_status status = XORCAST_IN_PROGRESS;
    while (status == XORCAST_IN_PROGRESS) {
        const double begun = now_ms();
        status = xorcast_subscriber_audit(subscriber, AUDIT_BUDGET_MS);
        const double took = now_ms() - begun;
        times[AUDIT_SLICES] += took;
        times[AUDIT_LONGEST] = std::max(times[AUDIT_LONGEST], took);
    }
    MUST(status);
}

static void run_version(xorcast_publisher *publisher, xorcast_subscriber *subscriber,
                        uint64_t step, double times[PHASES]) {
    xorcast_subscriber_stats stats;
    uint64_t newest;
    double t[6];
    MUST(xorcast_publisher_begin(publisher, step));
    t[0] = now_ms();
    MUST(xorcast_publisher_put(publisher, 0, NULL, NULL));
    t[1] = now_ms();
    MUST(xorcast_publisher_finish(publisher, NULL));
    t[2] = now_ms();
    MUST(xorcast_subscriber_poll(subscriber, DEADLINE_MS, &newest));
    t[3] = now_ms();
    MUST(xorcast_subscriber_stage(subscriber, newest, DEADLINE_MS));
    t[4] = now_ms();
    MUST(xorcast_subscriber_commit(subscriber, NULL));
    MUST(xorcast_subscriber_wait(subscriber, DEADLINE_MS));
    xorcast_subscriber_get_stats(subscriber, &stats);
    t[5] = now_ms();
    MUST(xorcast_subscriber_audit(subscriber, 0));
    times[PUT] = t[1] - t[0];
    times[FINISH] = t[2] - t[1];
    times[STAGE] = t[4] - t[3];
    times[COMMIT] = (double)stats.commit_ns / 1e6;
    times[AUDIT] = now_ms() - t[5];
    audit_slices(subscriber, times);
}

static void report(const setting *s, const weights *w, xorcast_publisher *publisher,
                   xorcast_subscriber *subscriber, const std::vector<double> times[PHASES],
                   const double opening[OPENINGS]) {
    xorcast_publisher_stats published;
    xorcast_subscriber_stats followed;
    xorcast_publisher_get_stats(publisher, &published);
    xorcast_subscriber_get_stats(subscriber, &followed);
    printf("{\"bench\":\"device_sync\",\"setting\":\"%s\",\"bytes\":%llu,\"tensors\":%zu,"
           "\"rounds\":%zu,\"bytes_changed_share\":%.6f,\"delta_bytes\":%llu,"
           "\"encoded_bytes\":%llu",
           s->name, (unsigned long long)w->total, w->at.size(), times[PUT].size(),
           (double)published.delta.counts.bytes_changed / (double)w->total,
           (unsigned long long)published.delta.delta_bytes,
           (unsigned long long)published.delta.chunk_encoded_bytes);
    for (int p = 0; p < PHASES; p++)
        printf(",\"%s\":%.3f", phase_names[p], median(times[p]));
    for (int p = 0; p < OPENINGS; p++)
        printf(",\"%s\":%.1f", opening_names[p], opening[p]);
    printf(",\"audit_of_bound\":%.3f", median(times[BOUND]) / 2 / median(times[AUDIT]));
    printf(",\"ship_ms\":%.3f", (double)followed.ship_ns / 1e6);
    printf(",\"engine_chunks\":%llu,\"kernel_chunks\":%llu,\"decoding\":\"%s\"",
           (unsigned long long)followed.decoding.engine_chunks,
           (unsigned long long)followed.decoding.kernel_chunks, followed.decoding.why);
    printf(",\"encode_ms\":%.3f,\"frame_ms\":%.3f,\"trainer_device_bytes\":%llu,"
           "\"sampler_device_bytes\":%llu}\n",
           (double)published.encode_ns / 1e6, (double)published.frame_ns / 1e6,
           (unsigned long long)published.memory.device_high_water_bytes,
           (unsigned long long)followed.memory.device_high_water_bytes);
    fflush(stdout);
}

static void measure(const setting *s, const sizes &size, unsigned rounds, bool in_host) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_publisher_options publishing = XORCAST_PUBLISHER_OPTIONS_INIT;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    weights trainer = {}, sampler = {};
    std::vector<double> times[PHASES];
    double opening[OPENINGS], begun;
    options.backend = "cuda";
    for (int i = 0; i < 2; i++)
        MUST(xorcast_context_create(&options, &contexts[i]));
    make_weights(&trainer, size);
    make_weights(&sampler, size);
    xorcast_bundle *from = make_bundle(contexts[0], &trainer, opening);
    xorcast_bundle *to = make_bundle(contexts[1], &sampler, opening);
    publishing.encoding.second_pass = s->second_pass;
    publishing.shadow_in_host = in_host;
    publishing.log_bytes = 1;
    begun = now_ms();
    MUST(xorcast_publisher_open(from, "inproc:bench", &publishing, &publisher));
    opening[OPEN_PUBLISHER] = now_ms() - begun;
    begun = now_ms();
    MUST(xorcast_subscriber_open(to, "inproc:bench", NULL, &subscriber));
    opening[OPEN_SUBSCRIBER] = now_ms() - begun;
    for (uint64_t round = 1; round <= rounds + 1; round++) {
        double one[PHASES] = {0};
        change(&trainer, s, round);
        one[BOUND] = bound_ms(&trainer, &sampler);
        run_version(publisher, subscriber, round, one);
        for (int p = 0; p < PHASES && round > 1; p++) /* the first one warms up */
            times[p].push_back(one[p]);
    }
    report(s, &trainer, publisher, subscriber, times, opening);
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    for (int i = 0; i < 2; i++)
        xorcast_context_destroy(contexts[i]);
    CUDA(cudaFree(trainer.memory));
    CUDA(cudaFree(sampler.memory));
}

int main(int count, char **arguments) {
    sizes size = {16ull << 30, 1000, 0};
    unsigned rounds = 11;
    bool in_host = false;
    const char *only = "";
    for (int i = 1; i < count; i++) {
        const bool value = i + 1 < count;
        if (strcmp(arguments[i], "--bytes") == 0 && value)
            size.bytes = strtoull(arguments[++i], NULL, 10);
        else if (strcmp(arguments[i], "--rounds") == 0 && value)
            rounds = (unsigned)strtoul(arguments[++i], NULL, 10);
        else if (strcmp(arguments[i], "--small") == 0 && value)
            size.small = strtoull(arguments[++i], NULL, 10);
        else if (strcmp(arguments[i], "--many") == 0 && value)
            size.many = strtoull(arguments[++i], NULL, 10);
        else if (strcmp(arguments[i], "--setting") == 0 && value)
            only = arguments[++i];
        else if (strcmp(arguments[i], "--in-host") == 0)
            in_host = true;
        else
            return fprintf(stderr, "device_sync: what is %s?\n", arguments[i]), 2;
    }
    for (const setting &s : settings)
        if (strstr(s.name, only) != NULL)
            measure(&s, size, rounds, in_host);
    return 0;
}
