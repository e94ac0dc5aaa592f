/* A trainer with weights in host memory and a sampler with weights on the GPU, through the public
 * interface alone: what tests of whole versions need. Ends the program where anything fails. */
#ifndef XCI_TEST_GPU_PAIR_CUH
#define XCI_TEST_GPU_PAIR_CUH

#include "gpu/gpu_memory.cuh"
#include "xorcast.h"

#define GPU_PAIR_MS 30000u

struct gpu_pair {
    xorcast_context *trainer = nullptr, *sampler = nullptr;
    std::vector<uint8_t> weights; /* the trainer's */
    uint8_t *live = nullptr;      /* the sampler's, on the GPU */
    xorcast_bundle *from = nullptr, *to = nullptr;
    xorcast_publisher *publisher = nullptr;
    xorcast_subscriber *subscriber = nullptr;
    uint64_t step = 0, random = 7;

    gpu_pair() = default;
    gpu_pair(const gpu_pair &) = delete;

    void need(xorcast_context *context, xorcast_status status, const char *what) const {
        xorcast_error error;
        if (status == XORCAST_OK)
            return;
        xorcast_last_error(context, &error);
        printf("%s: %s: %s\n", what, xorcast_status_name(status), error.text);
        exit(1);
    }
    uint64_t next_random() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random;
    }
    xorcast_bundle *bundle_over(xorcast_context *context, void *data, uint32_t kind) const {
        const uint64_t shape[1] = {weights.size() / 2};
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        xorcast_bundle *bundle;
        tensor.name = "weight";
        tensor.dtype = "BF16";
        tensor.shape = shape;
        tensor.rank = 1;
        tensor.bytes = weights.size();
        tensor.data = data;
        tensor.memory_kind = kind;
        need(context, xorcast_bundle_create(context, nullptr, &bundle), "bundle");
        need(context, xorcast_bundle_add(bundle, &tensor), "add");
        need(context, xorcast_bundle_seal(bundle, nullptr), "seal");
        return bundle;
    }
    /* False: there is no GPU or no plug-in, and why was printed. */
    bool open(size_t bytes, uint32_t engine) {
        xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
        options.threads = 2;
        options.backend = "cpu";
        if (xorcast_context_create(&options, &trainer) != XORCAST_OK)
            return false;
        options.backend = "cuda";
        options.engine = engine;
        if (xorcast_context_create(&options, &sampler) != XORCAST_OK)
            return false;
        weights.resize(bytes / 8 * 8);
        for (size_t i = 0; i < weights.size(); ++i)
            weights[i] = (uint8_t)next_random();
        CUDA(cudaMalloc((void **)&live, weights.size()));
        CUDA(cudaMemcpy(live, weights.data(), weights.size(), cudaMemcpyHostToDevice));
        from = bundle_over(trainer, weights.data(), XORCAST_MEMORY_HOST);
        to = bundle_over(sampler, live, XORCAST_MEMORY_DEVICE);
        need(trainer, xorcast_publisher_open(from, "inproc:gpu-pair", nullptr, &publisher),
             "publisher");
        need(sampler, xorcast_subscriber_open(to, "inproc:gpu-pair", nullptr, &subscriber),
             "subscriber");
        return true;
    }
    ~gpu_pair() {
        xorcast_subscriber_close(subscriber);
        xorcast_publisher_close(publisher);
        xorcast_bundle_destroy(from);
        xorcast_bundle_destroy(to);
        xorcast_context_destroy(trainer);
        xorcast_context_destroy(sampler);
        if (live != nullptr)
            CUDA(cudaFree(live));
    }
    /* A version in which about one byte of `each` is another. */
    void publish(uint64_t each) {
        for (size_t at = next_random() % each; at < weights.size();
             at += 1 + next_random() % (2 * each))
            weights[at] ^= (uint8_t)(1 + next_random() % 255);
        need(trainer, xorcast_publisher_begin(publisher, ++step), "begin");
        need(trainer, xorcast_publisher_put(publisher, 0, nullptr, nullptr), "put");
        need(trainer, xorcast_publisher_finish(publisher, nullptr), "finish");
    }
    void stage() {
        uint64_t newest;
        need(sampler, xorcast_subscriber_poll(subscriber, GPU_PAIR_MS, &newest), "poll");
        need(sampler, xorcast_subscriber_stage(subscriber, newest, GPU_PAIR_MS), "stage");
    }
    void commit(void *stream) {
        need(sampler, xorcast_subscriber_commit(subscriber, stream), "commit");
    }
    void wait() { need(sampler, xorcast_subscriber_wait(subscriber, GPU_PAIR_MS), "wait"); }
    /* Whether the sampler's bytes are the trainer's. */
    bool same() const {
        std::vector<uint8_t> got(weights.size());
        CUDA(cudaMemcpy(got.data(), live, got.size(), cudaMemcpyDeviceToHost));
        return got == weights;
    }
};

#endif
