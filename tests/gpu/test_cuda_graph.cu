/* CUDA graphs and versions: a graph that captured a kernel reading the weights sees, replayed
 * behind a commit on the same stream, the new ones; a capture is not disturbed by stage, commit and
 * wait beside it; a commit into a capture is refused and changes nothing. A program of its own;
 * exit status 0: all good, 77: there is no GPU or no plug-in. */
#include "gpu/gpu_pair.cuh"

#define BYTES (24u << 20)
#define VERSIONS 6u

static unsigned failures;

static void expect(bool fact, const char *what, unsigned long long detail) {
    if (fact)
        return;
    failures++;
    printf("FAILED: %s (%llu)\n", what, detail);
}

/* ---- What reads the weights ---- */

/* A sum that tells every byte and its place. */
static __host__ __device__ uint64_t mix(uint64_t word, uint64_t place) {
    const uint64_t x = (word ^ place * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return x ^ x >> 33;
}

static __global__ void k_sum(const uint64_t *words, uint64_t count, unsigned long long *sum) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        mine += mix(words[i], i);
    atomicAdd(sum, mine);
}

static uint64_t host_sum(const std::vector<uint8_t> &bytes) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes.size() / 8; ++i) {
        uint64_t word;
        memcpy(&word, &bytes[i * 8], 8);
        sum += mix(word, i);
    }
    return sum;
}

/* A graph of one reading of the weights, whose result goes to the host. */
struct reader {
    unsigned long long *sum = nullptr, *result = nullptr; /* on the GPU; pinned */
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    const uint8_t *live;
    uint64_t words;

    reader(const uint8_t *weights, uint64_t bytes) : live(weights), words(bytes / 8) {
        CUDA(cudaMalloc((void **)&sum, sizeof *sum));
        CUDA(cudaMallocHost((void **)&result, sizeof *result));
    }
    reader(const reader &) = delete;
    ~reader() {
        if (exec != nullptr)
            CUDA(cudaGraphExecDestroy(exec));
        if (graph != nullptr)
            CUDA(cudaGraphDestroy(graph));
        CUDA(cudaFree(sum));
        CUDA(cudaFreeHost(result));
    }
    void put(cudaStream_t stream) {
        CUDA(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
        k_sum<<<264, 256, 0, stream>>>((const uint64_t *)live, words, sum);
        CUDA(cudaGetLastError());
        CUDA(cudaMemcpyAsync(result, sum, sizeof *sum, cudaMemcpyDeviceToHost, stream));
    }
    void begin(cudaStream_t stream, cudaStreamCaptureMode mode) {
        CUDA(cudaStreamBeginCapture(stream, mode));
        put(stream);
    }
    void end(cudaStream_t stream) {
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
    }
    uint64_t replay(cudaStream_t stream) {
        *result = 0;
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaStreamSynchronize(stream));
        return *result;
    }
};

static cudaStream_t new_stream(unsigned flags) {
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

/* ---- Tests ---- */

/* The replay is put behind the commit without waiting for it. */
static void test_replay(gpu_pair &pair, unsigned flags) {
    const cudaStream_t stream = new_stream(flags);
    reader r(pair.live, pair.weights.size());
    r.begin(stream, cudaStreamCaptureModeGlobal);
    r.end(stream);
    expect(r.replay(stream) == host_sum(pair.weights), "before any version", pair.step);
    for (unsigned i = 0; i < VERSIONS; ++i) {
        const uint64_t before = host_sum(pair.weights);
        pair.publish(i % 2 == 0 ? 3000 : 60);
        pair.stage();
        expect(r.replay(stream) == before, "stage changes weights", pair.step);
        pair.commit(stream);
        expect(r.replay(stream) == host_sum(pair.weights), "a replay behind a commit", pair.step);
        pair.wait();
        expect(r.replay(stream) == host_sum(pair.weights), "a replay after wait", pair.step);
        expect(pair.same(), "weights", pair.step);
    }
    CUDA(cudaStreamDestroy(stream));
}

/* Stage, commit on another stream, wait and audit while this thread captures. */
static void test_beside_a_capture(gpu_pair &pair, cudaStreamCaptureMode mode) {
    const cudaStream_t captured = new_stream(cudaStreamNonBlocking);
    const cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    reader r(pair.live, pair.weights.size());
    pair.publish(200);
    r.begin(captured, mode);
    pair.stage();
    pair.commit(stream);
    pair.wait();
    pair.need(pair.sampler, xorcast_subscriber_audit(pair.subscriber, 0), "audit");
    r.end(captured);
    expect(r.replay(captured) == host_sum(pair.weights), "a graph captured meanwhile", mode);
    expect(pair.same(), "weights after a capture", mode);
    CUDA(cudaStreamDestroy(captured));
    CUDA(cudaStreamDestroy(stream));
}

static void expect_refused(gpu_pair &pair, cudaStream_t stream, const char *what) {
    xorcast_error error;
    const xorcast_status status = xorcast_subscriber_commit(pair.subscriber, stream);
    xorcast_last_error(pair.sampler, &error);
    expect(status == XORCAST_BAD_STATE, what, (unsigned)-status);
    expect(strstr(error.text, "captured") != nullptr, error.text, 0);
}

/* Into the capture itself, and on the default stream while a stream that is ordered with it is
 * captured: refused, the capture is whole, and the commit can be made afterwards. */
static void test_into_a_capture(gpu_pair &pair) {
    const cudaStream_t blocking = new_stream(cudaStreamDefault);
    reader r(pair.live, pair.weights.size());
    const uint64_t before = host_sum(pair.weights);
    pair.publish(200);
    pair.stage();
    r.begin(blocking, cudaStreamCaptureModeThreadLocal);
    expect_refused(pair, blocking, "a commit into a capture");
    expect_refused(pair, nullptr, "a commit on the default stream beside a capture");
    r.end(blocking);
    expect(r.replay(blocking) == before, "a refused commit", 0);
    expect(r.replay(blocking) == before, "a refused commit, replayed", 0);
    pair.commit(blocking);
    expect(r.replay(blocking) == host_sum(pair.weights), "a commit after a capture", 0);
    pair.wait();
    expect(pair.same(), "weights after a refusal", 0);
    CUDA(cudaStreamDestroy(blocking));
}

int main() {
    int devices = 0;
    gpu_pair pair;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
        !pair.open(BYTES, XORCAST_ENGINE_MEASURED)) {
        printf("there is no GPU, or no plug-in in XORCAST_PLUGIN_PATH\n");
        return 77;
    }
    test_replay(pair, cudaStreamNonBlocking);
    test_replay(pair, cudaStreamDefault);
    test_beside_a_capture(pair, cudaStreamCaptureModeGlobal);
    test_beside_a_capture(pair, cudaStreamCaptureModeThreadLocal);
    test_beside_a_capture(pair, cudaStreamCaptureModeRelaxed);
    test_into_a_capture(pair);
    printf("test_cuda_graph: %llu versions, %s\n", (unsigned long long)pair.step,
           failures == 0 ? "all good" : "FAILED");
    return failures == 0 ? 0 : 1;
}
