/* The Decompression Engine through the CUDA plug-in, on the GPU at hand. Where there is one that
 * knows LZ4, it has to decode; where there is none, as on an H200, its attribute reads 0, the
 * driver's call gives 801 and touches nothing, and versions are decoded by kernels, which is said.
 * A program of its own; exit status 0: all good, 77: there is no GPU or no plug-in. */
#include <atomic>

#include <lz4.h>

#include "gpu/gpu_pair.cuh"

/* The context of the library is C. */
using std::atomic_uint;
using std::atomic_uint_fast64_t;
extern "C" {
#include "backend/device.h"
}

#define JOBS 64u
#define MASK_BYTES 65536u
#define BLOCK_ROOM 8192u
#define NOT_SUPPORTED 801

static unsigned failures;

static void expect(bool fact, const char *what, long long detail) {
    if (fact)
        return;
    failures++;
    printf("FAILED: %s (%lld)\n", what, detail);
}

/* Blocks, room for masks and the counts of a batch, in memory for the engine. */
struct batch {
    const xci_device *device;
    std::vector<std::vector<uint8_t>> masks;
    std::vector<xci_decompress_job> jobs;
    uint8_t *memory = nullptr;

    explicit batch(const xci_device *of) : device(of) {
        const uint64_t bytes = JOBS * (uint64_t)(MASK_BYTES + BLOCK_ROOM + 8);
        void *at;
        CUDA(device->ops->allocate_engine(device->handle, bytes, &at));
        memory = (uint8_t *)at;
        CUDA(cudaMemset(memory, 0, bytes));
        for (uint32_t i = 0; i < JOBS; ++i)
            add(i);
    }
    batch(const batch &) = delete;
    ~batch() { CUDA(device->ops->release(device->handle, memory)); }
    void add(uint32_t i) {
        std::vector<uint8_t> mask(MASK_BYTES);
        char block[BLOCK_ROOM];
        for (uint32_t at = i; at < MASK_BYTES; at += 331 + i)
            mask[at] = (uint8_t)(1 + at % 255);
        const int bytes = LZ4_compress_default((const char *)mask.data(), block, (int)MASK_BYTES,
                                               (int)BLOCK_ROOM);
        expect(bytes > 0, "a block of the test", i);
        uint8_t *const at = memory + JOBS * (uint64_t)MASK_BYTES + i * (uint64_t)BLOCK_ROOM;
        CUDA(cudaMemcpy(at, block, (size_t)bytes, cudaMemcpyHostToDevice));
        xci_decompress_job job = {};
        job.block_bytes = (uint64_t)bytes;
        job.mask_bytes = MASK_BYTES;
        job.actual_bytes =
            (uint32_t *)(memory + JOBS * (uint64_t)(MASK_BYTES + BLOCK_ROOM) + i * 8);
        job.block = at;
        job.mask = memory + i * (uint64_t)MASK_BYTES;
        job.algorithm = XCI_DECOMPRESS_LZ4;
        jobs.push_back(job);
        masks.push_back(mask);
    }
    bool decoded(uint32_t i) const {
        std::vector<uint8_t> got(MASK_BYTES);
        uint32_t actual;
        CUDA(cudaMemcpy(got.data(), jobs[i].mask, MASK_BYTES, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(&actual, jobs[i].actual_bytes, sizeof actual, cudaMemcpyDeviceToHost));
        return actual == MASK_BYTES && got == masks[i];
    }
    bool untouched(uint32_t i) const {
        std::vector<uint8_t> got(MASK_BYTES);
        uint32_t actual;
        CUDA(cudaMemcpy(got.data(), jobs[i].mask, MASK_BYTES, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(&actual, jobs[i].actual_bytes, sizeof actual, cudaMemcpyDeviceToHost));
        return actual == 0 && got == std::vector<uint8_t>(MASK_BYTES);
    }
};

static void test_call(const xci_device *device, const xci_device_about &about) {
    const bool able = (about.decompress_mask & XCI_DECOMPRESS_LZ4) != 0;
    batch b(device);
    uint64_t bad = 77;
    void *plain;
    bool reaches = false, plainly = false;
    CUDA(device->ops->engine_reaches(device->handle, b.memory, &reaches));
    CUDA(device->ops->allocate(device->handle, 4096, &plain));
    CUDA(device->ops->engine_reaches(device->handle, plain, &plainly));
    CUDA(device->ops->release(device->handle, plain));
    const int error = device->ops->decompress(device->handle, b.jobs.data(), JOBS, &bad, nullptr);
    printf(
        "engine: mask %u, up to %llu bytes; it reaches memory of the pool: %d, other: %d; a batch "
        "gives %d\n",
        about.decompress_mask, (unsigned long long)about.decompress_max_bytes, reaches, plainly,
        error);
    CUDA(cudaDeviceSynchronize());
    expect(!able || reaches, "the engine does not reach memory that was made for it", 0);
    expect(error == (able ? 0 : NOT_SUPPORTED), "the driver's answer", error);
    expect(able || bad == 77, "the index of a wrong item is written", (long long)bad);
    for (uint32_t i = 0; i < JOBS; ++i)
        expect(able ? b.decoded(i) : b.untouched(i), "a mask", i);
}

/* Whole versions, asked to be decoded by the engine. */
static void test_versions(const xci_device_about &about) {
    const bool able = (about.decompress_mask & XCI_DECOMPRESS_LZ4) != 0;
    gpu_pair pair;
    if (!pair.open(9 << 20, XORCAST_ENGINE_ALWAYS)) {
        expect(false, "no context", 0);
        return;
    }
    for (uint64_t each = 40; each < 100000; each *= 10) {
        xorcast_subscriber_stats stats;
        pair.publish(each);
        pair.stage();
        pair.commit(nullptr);
        pair.wait();
        expect(pair.same(), "weights", (long long)each);
        xorcast_subscriber_get_stats(pair.subscriber, &stats);
        const xorcast_decoding &d = stats.decoding;
        printf("one byte of %llu: engine %llu chunks, kernels %llu: %s\n", (unsigned long long)each,
               (unsigned long long)d.engine_chunks, (unsigned long long)d.kernel_chunks, d.why);
        expect((d.engine_chunks > 0) == able, "who decoded", (long long)d.engine_chunks);
        expect(able || strstr(d.why, "kernels, no engine: this GPU has none") != nullptr, "why", 0);
    }
}

int main() {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    xci_device_about about;
    options.backend = "cuda";
    options.threads = 1;
    if (xorcast_context_create(&options, &context) != XORCAST_OK) {
        printf("there is no GPU, or no plug-in in XORCAST_PLUGIN_PATH\n");
        return 77;
    }
    const xci_device *device = context->shared->device;
    CUDA(device->ops->describe(device->handle, &about));
    if (about.driver_version < XCI_ENGINE_DRIVER) {
        printf("the driver is older than the engine\n");
        return 77;
    }
    test_call(device, about);
    xorcast_context_destroy(context);
    test_versions(about);
    printf("test_cuda_engine: %s\n", failures == 0 ? "all good" : "FAILED");
    return failures == 0 ? 0 : 1;
}
