/* A checkpoint directory into device memory and back, through the public interface: loading beside
 * what the same files take into host memory and what the bus takes for as many pinned bytes, and
 * writing. The files are new and in the system's cache. One JSON line; medians.
 *
 *     device_checkpoint [--bytes 4e9] [--rounds 5] [--folder DIR]
 *
 * DIR (the folder for temporary files) needs room for the bytes. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/arguments.h"
#include "xorcast.h"

#define TENSOR_BYTES (UINT64_C(32) << 20)
#define SMALL_TENSORS 2000u
#define SMALL_BYTES 40u
#define PINNED_BYTES (UINT64_C(256) << 20)
#define ROUNDS_MAX 101u

static xorcast_context *context;

static void must(xorcast_status status, int line) {
    xorcast_error error;
    if (status == XORCAST_OK)
        return;
    xorcast_last_error(context, &error);
    fprintf(stderr, "device_checkpoint:%d: %s: %s\n", line, xorcast_status_name(status),
            error.text);
    exit(1);
}
#define MUST(call) must((call), __LINE__)

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_time(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, unsigned count) {
    qsort(times, count, sizeof *times, by_time);
    return times[count / 2];
}

/* ---- Weights ---- */

static uint64_t total_bytes(uint64_t large) {
    return large * TENSOR_BYTES + SMALL_TENSORS * SMALL_BYTES;
}

static xorcast_bundle *make_bundle(uint8_t *at, uint64_t large, xorcast_memory_kind kind) {
    xorcast_bundle *bundle;
    MUST(xorcast_bundle_create(context, NULL, &bundle));
    for (uint64_t i = 0; i < large + SMALL_TENSORS; i++) {
        char name[32];
        const uint64_t shape[1] = {i < large ? TENSOR_BYTES : SMALL_BYTES};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        snprintf(name, sizeof name, "t%08llu", (unsigned long long)i);
        tensor.name = name;
        tensor.dtype = "U8";
        tensor.shape = shape;
        tensor.rank = 1;
        tensor.bytes = shape[0];
        tensor.data = at;
        tensor.memory_kind = kind;
        MUST(xorcast_bundle_add(bundle, &tensor));
        at += shape[0];
    }
    MUST(xorcast_bundle_seal(bundle, NULL));
    return bundle;
}

static void fill(uint8_t *at, uint64_t bytes) {
    uint64_t word = 1;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        memcpy(at + i, &word, 8);
    }
}

/* ---- Measuring ---- */

static double load_ms(const char *path, xorcast_bundle *bundle, unsigned rounds) {
    double times[ROUNDS_MAX];
    for (unsigned i = 0; i < rounds; i++) {
        xorcast_checkpoint *checkpoint;
        const double begun = now_ms();
        MUST(xorcast_checkpoint_open(context, path, NULL, &checkpoint));
        MUST(xorcast_checkpoint_load(checkpoint, bundle));
        xorcast_checkpoint_close(checkpoint);
        times[i] = now_ms() - begun;
    }
    return median(times, rounds);
}

/* As many bytes from pinned memory to the device. */
static double bus_ms(void *device, uint64_t bytes, unsigned rounds) {
    double times[ROUNDS_MAX];
    void *pinned;
    if (cudaMallocHost(&pinned, PINNED_BYTES) != cudaSuccess)
        return 0;
    for (unsigned i = 0; i < rounds; i++) {
        const double begun = now_ms();
        for (uint64_t done = 0; done < bytes; done += PINNED_BYTES) {
            const uint64_t some = bytes - done < PINNED_BYTES ? bytes - done : PINNED_BYTES;
            (void)cudaMemcpyAsync(device, pinned, some, cudaMemcpyHostToDevice, NULL);
        }
        (void)cudaStreamSynchronize(NULL);
        times[i] = now_ms() - begun;
    }
    (void)cudaFreeHost(pinned);
    return median(times, rounds);
}

static void remove_files(const char *path) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0)
        fprintf(stderr, "device_checkpoint: %s stays\n", path);
}

static void measure(const char *path, uint64_t large, unsigned rounds) {
    const uint64_t bytes = total_bytes(large);
    xorcast_digest wanted, loaded;
    void *device;
    uint8_t *host = malloc(bytes);
    if (host == NULL)
        exit(1);
    fill(host, bytes);
    MUST(xorcast_device_allocate(context, bytes, &device));
    xorcast_bundle *on_device = make_bundle(device, large, XORCAST_MEMORY_DEVICE);
    xorcast_bundle *on_host = make_bundle(host, large, XORCAST_MEMORY_HOST);
    MUST(xorcast_device_copy(context, device, host, bytes));
    MUST(xorcast_bundle_digest(on_device, &wanted));
    const double begun = now_ms();
    MUST(xorcast_checkpoint_write(on_device, path, UINT64_C(1) << 30));
    const double write_ms = now_ms() - begun;
    const double host_ms = load_ms(path, on_host, rounds);
    const double bus = bus_ms(device, bytes, rounds);
    const double device_ms = load_ms(path, on_device, rounds);
    MUST(xorcast_bundle_digest(on_device, &loaded));
    printf("{\"bench\":\"device_checkpoint\",\"bytes\":%llu,\"right\":%s,\"load_ms\":%.1f,"
           "\"load_gb_s\":%.2f,\"into_host_ms\":%.1f,\"bus_ms\":%.1f,\"write_ms\":%.1f,"
           "\"write_gb_s\":%.2f}\n",
           (unsigned long long)bytes,
           memcmp(&wanted, &loaded, sizeof wanted) == 0 ? "true" : "false", device_ms,
           1e-6 * (double)bytes / device_ms, host_ms, bus, write_ms,
           1e-6 * (double)bytes / write_ms);
    xorcast_bundle_destroy(on_device);
    xorcast_bundle_destroy(on_host);
    xorcast_device_release(context, device);
    free(host);
}

int main(int argc, char **argv) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    uint64_t bytes = 4000000000;
    unsigned rounds = 5;
    char path[400];
    const argument words[] = {{"--bytes", ARGUMENT_BYTES, &bytes},
                              {"--rounds", ARGUMENT_COUNT, &rounds},
                              {"--folder", ARGUMENT_TEXT, &folder}};
    read_options(argc, argv, words, 3);
    if (bytes < TENSOR_BYTES || rounds == 0 || rounds > ROUNDS_MAX)
        return fprintf(stderr, "device_checkpoint: too small or too many rounds\n"), 2;
    options.backend = "cuda";
    if (xorcast_context_create(&options, &context) != XORCAST_OK)
        return 1;
    snprintf(path, sizeof path, "%.300s/xorcast-checkpoint-%d", folder, (int)getpid());
    measure(path, bytes / TENSOR_BYTES, rounds);
    remove_files(path);
    xorcast_context_destroy(context);
    return 0;
}
