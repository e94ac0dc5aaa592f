/* A whole version between weights in GPU memory, through the public interface: a publisher and a
 * subscriber in one process, on one GPU or on two, over the link inside the process or over TCP
 * loopback. Times each phase by the clock, beside what reading two copies of the weights takes and,
 * on two GPUs, what a dense copy from one to the other takes, in the same rounds; every version is
 * checked by a full scan. One JSON line a setting; medians.
 *
 *     device_sync [--bytes N] [--rounds N] [--small N | --many N] [--in-host] [--setting NAME]
 *                 [--gpus 1|2 | --spread halves|turns|columns] [--link inproc|tcp]
 *                 [--threads N] [--worst] [--beside] [--gap | --auto [--rate N]] [--old-weights]
 *
 * --small: so many tensors of 40 bytes beside the large ones; --many: so many tensors, of a
 * fiftieth to twice the mean, and no others; --in-host: the shadow in pinned host memory; --gpus 2:
 * the sampler's weights on GPU 1; --spread: both have their weights on two GPUs, the first half of
 * the tensors on one and the second on the other, or in turns, or of each tensor the left columns
 * on one and the right ones on the other, and read_both is of both GPUs at once; --worst: the
 * slowest round of each phase too; --beside: stage beside a loop of matrix products on the
 * sampler's GPU, and what it costs the loop; --gap: the gap codec; --auto: the best for each chunk,
 * for fewest bytes, or --rate: for a GPU at the end of a link of so many bytes a second;
 * --old-weights: and beside the old weights. trainer_beyond_bytes is what the publisher has of the
 * GPU besides its shadow: output buffers and blocks kept for subscribers of the process are in it.
 * GPU 0 needs twice the bytes, the sampler's GPU once, and once more for the dense copy. */
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
#define COLUMN_BYTES 4096ull /* of a row, on each of two GPUs */
#define DEADLINE_MS 60000
#define AUDIT_BUDGET_MS 2

typedef struct setting {
    const char *name;
    double rare, often; /* shares of 16-bit elements that change: of most tensors, of 1 in 12 */
    double pages;       /* share of the 4 KiB pages that hold all of these changes */
    uint32_t second_pass;
} setting;

static const setting settings[] = {
    {"nvfp4 mix", 0.0004, 0.013, 1, 1},
    {"nvfp4 mix, clustered", 0.0004, 0.013, 0.05, 1},
    {"nvfp4 mix, zstd", 0.0004, 0.013, 1, 0},
    {"bf16 1 %", 0.01, 0.01, 1, 1},
    {"no change", 0, 0, 1, 1},
};

typedef struct options {
    uint64_t bytes = 16ull << 30, small = 1000, many = 0, rate = 0;
    unsigned rounds = 11, gpus = 1, threads = 0;
    bool in_host = false, worst = false, beside = false;
    bool gap = false, choose = false, old_weights = false;
    const char *link = "inproc", *only = "", *spread = "";
} options;

static void cuda(cudaError_t error, int line) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "device_sync:%d: %s\n", line, cudaGetErrorString(error));
    exit(1);
}
#define CUDA(call) cuda((call), __LINE__)

#include "cuda/arguments.h"
#include "cuda/products.cuh"

static xorcast_context *contexts[2];

static void must(xorcast_status status, int line) {
    if (status >= 0)
        return;
    fprintf(stderr, "device_sync:%d: %s\n", line, xorcast_status_name(status));
    for (int i = 0; i < 2 && contexts[i] != NULL; i++) {
        xorcast_error error;
        xorcast_last_error(contexts[i], &error);
        fprintf(stderr, "device_sync:%d: %s\n", line, error.text);
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

enum {
    BOUND,
    DENSE,
    PUT,
    FINISH,
    POLL,
    STAGE,
    COMMIT,
    TOTAL,
    PAUSE,
    SHIP,
    AUDIT,
    AUDIT_SLICES,
    AUDIT_LONGEST,
    LOST,
    PHASES
};
enum { ADD, SEAL, OPEN_PUBLISHER, OPEN_SUBSCRIBER, OPENINGS };
static const char *const phase_names[PHASES] = {"read_both",
                                                "dense_copy",
                                                "put",
                                                "finish",
                                                "poll",
                                                "stage",
                                                "commit",
                                                "total",
                                                "pause",
                                                "ship",
                                                "audit",
                                                "audit_slices",
                                                "audit_longest_slice",
                                                "products_lost"};

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

/* One step of the last place for some elements of some pages, as an optimizer makes them: of one
 * stretch in 12 more than of the others. */
static __global__ void k_change(uint16_t *at, uint64_t elements, uint64_t stretch, uint64_t seed,
                                uint64_t rare, uint64_t often, uint64_t page_threshold) {
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements;
         i += (uint64_t)gridDim.x * blockDim.x) {
        if (d_mix(seed + ~(i >> 11)) >> 16 >= page_threshold)
            continue;
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

/* What lies on one GPU, in one piece. */
typedef struct part {
    int gpu;
    uint8_t *memory;
    uint64_t bytes;
    uint64_t changing; /* bytes that may change */
} part;

typedef struct weights {
    std::vector<part> parts;
    std::vector<uint8_t *> at, right; /* right: the other columns, or NULL */
    std::vector<uint64_t> bytes;
    uint64_t total, stretch; /* changes come in such stretches */
} weights;

static std::vector<uint64_t> tensor_bytes(const options *o) {
    std::vector<uint64_t> all;
    const uint64_t mean = o->many > 0 ? o->bytes / o->many : 0;
    for (uint64_t i = 0; i < o->many; i++)
        all.push_back((mean / 50 + i * 2654435761u % (mean * 49 / 25)) / 16 * 16);
    for (uint64_t i = 0; o->many == 0 && i < o->bytes / TENSOR_BYTES; i++)
        all.push_back(TENSOR_BYTES);
    for (uint64_t i = 0; o->many == 0 && i < o->small; i++)
        all.push_back(SMALL_BYTES);
    return all;
}

/* By columns of rows of two boxes. */
static bool is_split(uint64_t bytes, const options *o) {
    return strcmp(o->spread, "columns") == 0 && bytes % (2 * COLUMN_BYTES) == 0;
}

/* Where a tensor goes that begins `before` bytes behind the first. */
static size_t part_of(const weights *w, size_t tensor, uint64_t before, const options *o) {
    if (w->parts.size() == 1)
        return 0;
    if (strcmp(o->spread, "columns") == 0)
        return 0;
    return strcmp(o->spread, "turns") == 0 ? tensor % 2 : before >= o->bytes / 2;
}

static void make_part(part *p) {
    p->bytes = (p->bytes + 63) / 64 * 64;
    CUDA(cudaSetDevice(p->gpu));
    CUDA(cudaMalloc(&p->memory, p->bytes));
    k_fill<<<2048, 256>>>((uint64_t *)p->memory, p->bytes / 8);
    CUDA(cudaDeviceSynchronize());
}

static void make_weights(weights *w, int gpu, const options *o) {
    w->bytes = tensor_bytes(o);
    w->stretch = o->many > 0 ? o->bytes / o->many : TENSOR_BYTES;
    w->parts.resize(*o->spread != 0 ? 2 : 1);
    for (size_t p = 0; p < w->parts.size(); p++)
        w->parts[p] = {w->parts.size() == 2 ? (int)p : gpu, NULL, 0, 0};
    std::vector<size_t> places;
    uint64_t before = 0;
    for (size_t i = 0; i < w->bytes.size(); before += w->bytes[i++]) {
        places.push_back(part_of(w, i, before, o));
        const uint64_t bytes = is_split(w->bytes[i], o) ? w->bytes[i] / 2 : w->bytes[i];
        for (size_t k = 0; k < (bytes < w->bytes[i] ? 2 : 1); k++) {
            part *p = &w->parts[places[i] + k];
            p->bytes += bytes;
            p->changing += bytes == SMALL_BYTES ? 0 : bytes;
        }
    }
    for (part &p : w->parts) {
        make_part(&p);
        w->total += p.bytes;
    }
    std::vector<uint64_t> used(w->parts.size(), 0);
    for (size_t i = 0; i < w->bytes.size(); i++) {
        const bool split = is_split(w->bytes[i], o);
        w->at.push_back(w->parts[places[i]].memory + used[places[i]]);
        w->right.push_back(split ? w->parts[1].memory + used[1] : NULL);
        used[places[i]] += split ? w->bytes[i] / 2 : w->bytes[i];
        if (split)
            used[1] += w->bytes[i] / 2;
    }
}

static void free_weights(weights *w) {
    for (part &p : w->parts)
        CUDA(cudaFree(p.memory));
}

static xorcast_bundle *make_bundle(xorcast_context *context, const weights *w,
                                   double opening[OPENINGS]) {
    xorcast_bundle *bundle;
    const double begun = now_ms();
    MUST(xorcast_bundle_create(context, NULL, &bundle));
    for (size_t i = 0; i < w->at.size(); i++) {
        char name[32];
        snprintf(name, sizeof name, "t%08zu", i);
        const bool split = w->right[i] != NULL;
        const uint64_t rows = w->bytes[i] / (2 * COLUMN_BYTES);
        const uint64_t shape[2] = {split ? rows : w->bytes[i] / 2, 2 * COLUMN_BYTES / 2};
        const xorcast_box boxes[2] = {
            {0, rows, 0, COLUMN_BYTES, w->at[i], COLUMN_BYTES, 0},
            {0, rows, COLUMN_BYTES, COLUMN_BYTES, w->right[i], COLUMN_BYTES, 0}};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = name;
        tensor.dtype = "BF16";
        tensor.shape = shape;
        tensor.rank = split ? 2 : 1;
        tensor.bytes = w->bytes[i];
        tensor.data = split ? NULL : w->at[i];
        tensor.boxes = boxes;
        tensor.box_count = split ? 2 : 0;
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
    for (const part &p : w->parts) {
        CUDA(cudaSetDevice(p.gpu));
        k_change<<<2048, 256>>>(
            (uint16_t *)p.memory, p.changing / 2, w->stretch / 2, seed * 1000003 + (uint64_t)p.gpu,
            (uint64_t)(s->rare / s->pages * most), (uint64_t)(s->often / s->pages * most),
            (uint64_t)(s->pages * most));
        CUDA(cudaDeviceSynchronize());
    }
}

/* ---- Measuring ---- */

static double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static double bound_ms(const weights *w, const weights *other) {
    static uint4 *out[2];
    const double begun = now_ms();
    for (size_t p = 0; p < w->parts.size(); p++) {
        CUDA(cudaSetDevice(w->parts[p].gpu));
        if (out[p] == NULL)
            CUDA(cudaMalloc(&out[p], sizeof *out[p]));
        k_read<<<132 * 8, 512>>>((const uint4 *)w->parts[p].memory,
                                 (const uint4 *)other->parts[p].memory, w->parts[p].bytes / 16,
                                 out[p]);
    }
    for (const part &p : w->parts) {
        CUDA(cudaSetDevice(p.gpu));
        CUDA(cudaDeviceSynchronize());
    }
    return now_ms() - begun;
}

/* All weights from the trainer's GPU to the sampler's, as a system without deltas would. */
static double dense_ms(const part *from, int gpu, uint8_t *to) {
    const double begun = now_ms();
    CUDA(cudaMemcpyPeerAsync(to, gpu, from->memory, from->gpu, from->bytes, 0));
    CUDA(cudaDeviceSynchronize());
    return now_ms() - begun;
}

/* How many milliseconds of products a loop lost since `begun`, when it had ended so many. */
static double lost_ms(const products *loop, double per_ms, double begun, unsigned ended) {
    return now_ms() - begun - (double)(loop->ended - ended) / per_ms;
}

static double products_per_ms(const products *loop) {
    const double begun = now_ms();
    const unsigned ended = loop->ended;
    while (now_ms() - begun < 200)
        std::this_thread::yield();
    return (loop->ended - ended) / (now_ms() - begun);
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
                        const options *o, uint64_t step, double times[PHASES]) {
    xorcast_subscriber_stats stats;
    uint64_t newest;
    double t[7];
    t[0] = now_ms();
    MUST(xorcast_publisher_begin(publisher, step));
    MUST(xorcast_publisher_put(publisher, 0, NULL, NULL));
    t[1] = now_ms();
    MUST(xorcast_publisher_finish(publisher, NULL));
    t[2] = now_ms();
    MUST(xorcast_subscriber_poll(subscriber, DEADLINE_MS, &newest));
    products loop;
    double per_ms = 0;
    if (o->beside) {
        products_begin(&loop, (int)o->gpus - 1);
        per_ms = products_per_ms(&loop);
    }
    const unsigned ended = o->beside ? loop.ended.load() : 0;
    t[3] = now_ms();
    MUST(xorcast_subscriber_stage(subscriber, newest, DEADLINE_MS));
    t[4] = now_ms();
    if (o->beside) {
        times[LOST] = lost_ms(&loop, per_ms, t[3], ended);
        products_end(&loop);
    }
    MUST(xorcast_subscriber_commit(subscriber, NULL));
    MUST(xorcast_subscriber_wait(subscriber, DEADLINE_MS));
    t[5] = now_ms();
    MUST(xorcast_subscriber_audit(subscriber, 0));
    t[6] = now_ms();
    xorcast_subscriber_get_stats(subscriber, &stats);
    for (int p = PUT; p <= COMMIT; p++)
        times[p] = t[p - PUT + 1] - t[p - PUT];
    times[TOTAL] = t[5] - t[0];
    times[PAUSE] = (double)stats.commit_ns / 1e6;
    times[SHIP] = (double)stats.ship_ns / 1e6;
    times[AUDIT] = t[6] - t[5];
    audit_slices(subscriber, times);
}

static void report(const setting *s, const options *o, const weights *w,
                   xorcast_publisher *publisher, xorcast_subscriber *subscriber,
                   const std::vector<double> times[PHASES], const double opening[OPENINGS]) {
    xorcast_publisher_stats published;
    xorcast_subscriber_stats followed;
    xorcast_publisher_get_stats(publisher, &published);
    xorcast_subscriber_get_stats(subscriber, &followed);
    printf("{\"bench\":\"device_sync\",\"setting\":\"%s\",\"gpus\":%u,\"link\":\"%s\","
           "\"spread\":\"%s\",\"bytes\":%llu,\"tensors\":%zu,\"rounds\":%zu,\"bytes_changed_"
           "share\":%.6f,"
           "\"delta_bytes\":%llu,\"encoded_bytes\":%llu",
           s->name, o->gpus, o->link, o->spread, (unsigned long long)w->total, w->at.size(),
           times[PUT].size(), (double)published.delta.counts.bytes_changed / (double)w->total,
           (unsigned long long)published.delta.delta_bytes,
           (unsigned long long)published.delta.chunk_encoded_bytes);
    for (int p = 0; p < PHASES; p++) {
        printf(",\"%s_ms\":%.2f", phase_names[p], median(times[p]));
        if (o->worst)
            printf(",\"%s_worst_ms\":%.2f", phase_names[p],
                   *std::max_element(times[p].begin(), times[p].end()));
    }
    for (int p = 0; p < OPENINGS; p++)
        printf(",\"%s\":%.1f", opening_names[p], opening[p]);
    if (o->gpus == 1)
        printf(",\"put_of_bound\":%.3f", median(times[BOUND]) / median(times[PUT]));
    if (o->gpus == 1 && *o->spread == 0)
        printf(",\"audit_of_bound\":%.3f", median(times[BOUND]) / 2 / median(times[AUDIT]));
    printf(",\"engine_chunks\":%llu,\"kernel_chunks\":%llu,\"decoding\":\"%s\"",
           (unsigned long long)followed.decoding.engine_chunks,
           (unsigned long long)followed.decoding.kernel_chunks, followed.decoding.why);
    printf(",\"encode_ms\":%.2f,\"frame_ms\":%.2f,\"trainer_device_bytes\":%llu,"
           "\"trainer_beyond_bytes\":%lld,\"sampler_device_bytes\":%llu,"
           "\"trainer_host_bytes\":%llu,"
           "\"sampler_host_bytes\":%llu}\n",
           (double)published.encode_ns / 1e6, (double)published.frame_ns / 1e6,
           (unsigned long long)published.memory.device_high_water_bytes,
           (long long)(published.memory.device_high_water_bytes - (o->in_host ? 0 : w->total)),
           (unsigned long long)followed.memory.device_high_water_bytes,
           (unsigned long long)published.memory.high_water_bytes,
           (unsigned long long)followed.memory.high_water_bytes);
    fflush(stdout);
}

static void run_rounds(const setting *s, const options *o, const weights *trainer,
                       const weights *sampler, xorcast_publisher *publisher,
                       xorcast_subscriber *subscriber, std::vector<double> times[PHASES]) {
    uint8_t *other = NULL;
    if (o->gpus == 2) {
        CUDA(cudaSetDevice(trainer->parts[0].gpu));
        const cudaError_t near = cudaDeviceEnablePeerAccess(sampler->parts[0].gpu, 0);
        CUDA(near == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : near);
        CUDA(cudaSetDevice(sampler->parts[0].gpu));
        CUDA(cudaMalloc(&other, sampler->total));
    }
    for (uint64_t round = 1; round <= o->rounds + 1; round++) {
        double one[PHASES] = {};
        change(trainer, s, round);
        if (o->gpus == 2)
            one[DENSE] = dense_ms(&trainer->parts[0], sampler->parts[0].gpu, other);
        else
            one[BOUND] = bound_ms(trainer, sampler);
        run_version(publisher, subscriber, o, round, one);
        for (int p = 0; p < PHASES && round > 1; p++) /* the first one warms up */
            times[p].push_back(one[p]);
    }
    CUDA(cudaFree(other));
}

static void measure(const setting *s, const options *o) {
    xorcast_publisher_options publishing = XORCAST_PUBLISHER_OPTIONS_INIT;
    xorcast_publisher *publisher;
    xorcast_subscriber *subscriber;
    weights trainer = {}, sampler = {};
    std::vector<double> times[PHASES];
    double opening[OPENINGS], begun;
    for (unsigned i = 0; i < 2; i++) {
        xorcast_context_options with = XORCAST_CONTEXT_OPTIONS_INIT;
        with.backend = "cuda";
        with.device = (int32_t)(i % o->gpus);
        with.threads = o->threads;
        MUST(xorcast_context_create(&with, &contexts[i]));
    }
    make_weights(&trainer, 0, o);
    make_weights(&sampler, (int)o->gpus - 1, o);
    xorcast_bundle *from = make_bundle(contexts[0], &trainer, opening);
    xorcast_bundle *to = make_bundle(contexts[1], &sampler, opening);
    publishing.encoding.second_pass = s->second_pass;
    publishing.encoding.codec = o->choose ? XORCAST_CODEC_AUTO
                                : o->gap  ? XORCAST_CODEC_GAP
                                          : XORCAST_CODEC_LZ4;
    publishing.encoding.link_bytes_per_second = o->rate;
    publishing.encoding.receiver = o->rate != 0 ? XORCAST_RECEIVER_GPU : XORCAST_RECEIVER_CPU;
    publishing.encoding.old_weights = o->old_weights;
    publishing.shadow_in_host = o->in_host;
    publishing.log_bytes = 1;
    const char *url = strcmp(o->link, "tcp") == 0 ? "tcp:127.0.0.1:0" : "inproc:bench";
    begun = now_ms();
    MUST(xorcast_publisher_open(from, url, &publishing, &publisher));
    opening[OPEN_PUBLISHER] = now_ms() - begun;
    begun = now_ms();
    MUST(xorcast_subscriber_open(to, xorcast_publisher_url(publisher), NULL, &subscriber));
    opening[OPEN_SUBSCRIBER] = now_ms() - begun;
    run_rounds(s, o, &trainer, &sampler, publisher, subscriber, times);
    report(s, o, &trainer, publisher, subscriber, times, opening);
    xorcast_subscriber_close(subscriber);
    xorcast_publisher_close(publisher);
    xorcast_bundle_destroy(from);
    xorcast_bundle_destroy(to);
    for (int i = 0; i < 2; i++)
        xorcast_context_destroy(contexts[i]);
    free_weights(&trainer);
    free_weights(&sampler);
}

int main(int count, char **arguments) {
    options o;
    const argument known[] = {
        {"--bytes", ARGUMENT_BYTES, &o.bytes},     {"--rounds", ARGUMENT_COUNT, &o.rounds},
        {"--small", ARGUMENT_BYTES, &o.small},     {"--many", ARGUMENT_BYTES, &o.many},
        {"--setting", ARGUMENT_TEXT, &o.only},     {"--gpus", ARGUMENT_COUNT, &o.gpus},
        {"--spread", ARGUMENT_TEXT, &o.spread},    {"--link", ARGUMENT_TEXT, &o.link},
        {"--threads", ARGUMENT_COUNT, &o.threads}, {"--in-host", ARGUMENT_FLAG, &o.in_host},
        {"--beside", ARGUMENT_FLAG, &o.beside},    {"--worst", ARGUMENT_FLAG, &o.worst},
        {"--gap", ARGUMENT_FLAG, &o.gap},          {"--auto", ARGUMENT_FLAG, &o.choose},
        {"--rate", ARGUMENT_BYTES, &o.rate},       {"--old-weights", ARGUMENT_FLAG, &o.old_weights},
    };
    read_options(count, arguments, known, sizeof known / sizeof *known);
    o.gpus = o.gpus == 2 ? 2 : 1;
    for (const setting &s : settings)
        if (*o.only == 0 || strcmp(s.name, o.only) == 0)
            measure(&s, &o);
    return 0;
}
