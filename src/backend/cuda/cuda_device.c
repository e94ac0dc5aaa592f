/* The CUDA backend's table (backend/device.h): the runtime's calls and this folder's launchers.
 * Together they are the plug-in libxorcast_cuda.so, which carries the runtime inside and needs only
 * a driver.
 *
 * Whoever calls the library may work on another GPU: each call makes its own device current and
 * puts the caller's back (cuda_current.h). Nor are traces left in the runtime's "last error", and a
 * graph that someone captures meanwhile is not disturbed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_current.h"
#include "backend/cuda/cuda_engine.h"

typedef struct cuda_device {
    int ordinal;
    CUcontext primary;    /* of this device */
    cudaStream_t service; /* for copies that are waited for at once */
    pthread_mutex_t lock; /* of the pool: */
    cudaMemPool_t engine; /* memory for the Decompression Engine; NULL: none was asked for */
    atomic_uint_fast64_t near; /* bits of devices whose memory kernels can read */
} cuda_device;

static int ordinal_of(void *device) {
    return ((const cuda_device *)device)->ordinal;
}

/* `call` on the device; evaluates to the table's result. */
#define ON(device, result, call)                                                                   \
    do {                                                                                           \
        enum cudaStreamCaptureMode mode_before = cudaStreamCaptureModeRelaxed;                     \
        (result) = xci_cuda_enter(((const cuda_device *)(device))->primary, &mode_before);         \
        if ((result) == 0)                                                                         \
            (result) = xci_cuda_leave((cudaError_t)(call), mode_before);                           \
    } while (0)

static const char *error_text(int error) {
    return cudaGetErrorString((cudaError_t)error);
}
static bool error_is_memory(int error) {
    return error == (int)cudaErrorMemoryAllocation;
}

/* ---- Devices ---- */

static int count_devices(uint32_t *count_out) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    *count_out = (uint32_t)count;
    return (int)error;
}

static int open_device(int ordinal, void **device_out) {
    int error, least, greatest;
    cuda_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return (int)cudaErrorMemoryAllocation;
    device->ordinal = ordinal;
    error = xci_cuda_primary_retain(ordinal, &device->primary);
    if (error != 0) {
        free(device);
        return error;
    }
    ON(device, error, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (error == 0)
        ON(device, error,
           cudaStreamCreateWithPriority(&device->service, cudaStreamNonBlocking, least));
    if (error == 0)
        error = pthread_mutex_init(&device->lock, NULL);
    if (error != 0) {
        xci_cuda_primary_release(ordinal);
        free(device);
        return error;
    }
    *device_out = device;
    return 0;
}

static void close_device(void *handle) {
    cuda_device *device = handle;
    int error;
    if (device->engine != NULL)
        ON(device, error, cudaMemPoolDestroy(device->engine));
    ON(device, error, cudaStreamDestroy(device->service));
    (void)error; /* what cannot be closed is gone */
    xci_cuda_primary_release(device->ordinal);
    (void)pthread_mutex_destroy(&device->lock);
    free(device);
}

static cudaError_t describe_here(int ordinal, xci_device_about *about) {
    struct cudaDeviceProp properties;
    int driver, runtime;
    size_t free_bytes, total_bytes;
    cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
    if (error == cudaSuccess)
        error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess)
        error = cudaRuntimeGetVersion(&runtime);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error == cudaSuccess)
        error = cudaDeviceGetPCIBusId(about->pci, sizeof about->pci, ordinal);
    if (error != cudaSuccess)
        return error;
    snprintf(about->name, sizeof about->name, "%.*s", (int)sizeof about->name - 1, properties.name);
    snprintf(about->architecture, sizeof about->architecture, "sm_%d%d", properties.major,
             properties.minor);
    about->processors = (uint32_t)properties.multiProcessorCount;
    about->driver_version = (uint32_t)driver;
    about->runtime_version = (uint32_t)runtime;
    about->memory_bytes = total_bytes;
    about->free_bytes = free_bytes;
    return xci_cuda_engine_describe(ordinal, about);
}

static int describe(void *device, xci_device_about *about_out) {
    xci_device_about about = {0};
    int error;
    ON(device, error, describe_here(ordinal_of(device), &about));
    if (error == 0)
        *about_out = about;
    return error;
}

static cudaError_t measure_stretch(const void *address, int32_t *ordinal_out, uint64_t *bytes_out) {
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    struct cudaPointerAttributes attributes;
    CUdeviceptr begin;
    size_t bytes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    if (error != cudaSuccess)
        return error;
    const bool there = attributes.type == cudaMemoryTypeDevice;
    *ordinal_out = there ? attributes.device : XCI_NO_DEVICE;
    *bytes_out = there;
    if (there && xci_cuda_address_range(&begin, &bytes, at) == CUDA_SUCCESS)
        *bytes_out = begin + bytes - at;
    return cudaSuccess;
}

static int owner(void *device, const void *address, int32_t *ordinal_out, uint64_t *bytes_out) {
    int error;
    ON(device, error, measure_stretch(address, ordinal_out, bytes_out));
    return error;
}

/* ---- Memory ---- */

static int allocate(void *device, uint64_t bytes, void **memory_out) {
    int error;
    ON(device, error, cudaMalloc(memory_out, bytes));
    return error;
}

static int release(void *device, void *memory) {
    int error;
    ON(device, error, cudaFree(memory));
    return error;
}

static int allocate_engine(void *handle, uint64_t bytes, void **memory_out) {
    cuda_device *device = handle;
    int error;
    (void)pthread_mutex_lock(&device->lock);
    ON(device, error,
       xci_cuda_engine_allocate(&device->engine, device->ordinal, device->service, bytes,
                                memory_out));
    (void)pthread_mutex_unlock(&device->lock);
    return error;
}

static int engine_reaches(void *device, const void *address, bool *reaches_out) {
    int error;
    ON(device, error, xci_cuda_engine_reaches(address, reaches_out));
    return error;
}

static int allocate_pinned(void *device, uint64_t bytes, void **memory_out) {
    int error;
    ON(device, error, cudaHostAlloc(memory_out, bytes, cudaHostAllocPortable));
    return error;
}

static int release_pinned(void *device, void *memory) {
    int error;
    ON(device, error, cudaFreeHost(memory));
    return error;
}

/* ---- Streams and events ---- */

static int quiet(void *device) {
    int error;
    ON(device, error, cudaDeviceSynchronize());
    return error;
}

/* Of the lowest priority: whoever owns the weights goes first. */
static int stream_open(void *device, void **stream_out) {
    int error, least, greatest;
    ON(device, error, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (error == 0)
        ON(device, error,
           cudaStreamCreateWithPriority((cudaStream_t *)stream_out, cudaStreamNonBlocking, least));
    return error;
}

static int stream_close(void *device, void *stream) {
    int error;
    ON(device, error, cudaStreamDestroy(stream));
    return error;
}

static int stream_wait(void *device, void *stream) {
    int error;
    ON(device, error, cudaStreamSynchronize(stream));
    return error;
}

static int stream_after(void *device, void *stream, void *event) {
    int error;
    ON(device, error, cudaStreamWaitEvent(stream, event, 0));
    return error;
}

static cudaError_t is_captured(cudaStream_t stream, bool *captured_out) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    /* The default stream while one that is ordered with it is captured. */
    const bool beside = error == cudaErrorStreamCaptureImplicit;
    *captured_out = beside || status != cudaStreamCaptureStatusNone;
    if (beside)
        (void)cudaGetLastError();
    return beside ? cudaSuccess : error;
}

static int stream_captured(void *device, void *stream, bool *captured_out) {
    int error;
    ON(device, error, is_captured(stream, captured_out));
    return error;
}

static int event_open(void *device, void **event_out) {
    int error;
    ON(device, error, cudaEventCreate((cudaEvent_t *)event_out));
    return error;
}

static int event_close(void *device, void *event) {
    int error;
    ON(device, error, cudaEventDestroy(event));
    return error;
}

static int event_record(void *device, void *event, void *stream) {
    int error;
    ON(device, error, cudaEventRecord(event, stream));
    return error;
}

static int event_done(void *device, void *event, bool *done_out) {
    int error;
    ON(device, error, cudaEventQuery(event));
    *done_out = error == 0;
    return error == (int)cudaErrorNotReady ? 0 : error;
}

static int event_wait(void *device, void *event) {
    int error;
    ON(device, error, cudaEventSynchronize(event));
    return error;
}

static int event_elapsed(void *device, void *from, void *to, double *milliseconds_out) {
    float milliseconds = 0;
    int error;
    ON(device, error, cudaEventElapsedTime(&milliseconds, from, to));
    *milliseconds_out = (double)milliseconds;
    return error;
}

/* ---- Copies ---- */

static int copy(void *device, void *to, const void *from, uint64_t bytes, void *stream) {
    int error;
    ON(device, error, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    return error;
}

static int copy_now(void *device, void *to, const void *from, uint64_t bytes) {
    const cudaStream_t service = ((const cuda_device *)device)->service;
    const int error = copy(device, to, from, bytes, service);
    return error != 0 ? error : stream_wait(device, service);
}

/* Lets kernels read a device's memory, if that can be. */
static cudaError_t come_near(cuda_device *device, int other, int *near_out) {
    const uint64_t bit = UINT64_C(1) << (other & 63);
    *near_out = other == device->ordinal || (atomic_load(&device->near) & bit) != 0;
    if (*near_out)
        return cudaSuccess;
    cudaError_t error = cudaDeviceCanAccessPeer(near_out, device->ordinal, other);
    if (error == cudaSuccess && *near_out)
        error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        error = cudaSuccess;
    }
    if (error == cudaSuccess && *near_out)
        (void)atomic_fetch_or(&device->near, bit);
    return error;
}

/* Whether a move goes on where one has ended of which there are so many bytes. */
static int follows(const xci_cuda_move *move, uint64_t bytes, const xci_cuda_move *next) {
    return next->from == move->from + bytes && next->to == move->to + bytes;
}

static cudaError_t copy_one_by_one(int to, int from, const xci_cuda_move *moves, uint64_t count,
                                   cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (uint64_t i = 0, end; i < count && error == cudaSuccess; i = end) {
        uint64_t bytes = moves[i].bytes;
        for (end = i + 1; end < count && follows(&moves[i], bytes, &moves[end]); end++)
            bytes += moves[end].bytes;
        error = cudaMemcpyPeerAsync(moves[i].to, to, moves[i].from, from, bytes, stream);
    }
    return error;
}

/* By a kernel: a copy for each of thousands of pieces would keep the host busy for longer than the
 * GPU. Only what no kernel reaches is left to the runtime, which finds another way. */
static int copy_peer_many(void *device, void *from_device, const xci_cuda_move *moves,
                          uint64_t count, void *stream) {
    const int from = ordinal_of(from_device);
    int error, near = 0;
    ON(device, error, come_near(device, from, &near));
    if (error == 0 && near)
        ON(device, error, xci_cuda_copy_aligned(moves, count, stream));
    else if (error == 0)
        ON(device, error, copy_one_by_one(ordinal_of(device), from, moves, count, stream));
    return error;
}

static int join_many(void *device, const xci_cuda_move *moves, uint64_t count, void *stream) {
    int error;
    ON(device, error, xci_cuda_join_aligned(moves, count, stream));
    return error;
}

static int fill(void *device, void *to, uint8_t value, uint64_t bytes, void *stream) {
    int error;
    ON(device, error, cudaMemsetAsync(to, value, bytes, stream));
    return error;
}

/* ---- Batched operations ---- */

static int decompress(void *device, xci_decompress_job *jobs, uint64_t count, uint64_t *bad_out,
                      void *stream) {
    int error;
    ON(device, error, xci_cuda_engine_decompress(jobs, count, bad_out, stream));
    return error;
}

static uint64_t encode_scratch(void *device, uint64_t count, uint32_t chunk_bytes) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    const int error = xci_cuda_enter(((const cuda_device *)device)->primary, &mode);
    const uint64_t bytes = xci_cuda_encode_scratch(count, chunk_bytes);
    if (error == 0)
        (void)xci_cuda_leave(cudaSuccess, mode);
    return bytes;
}

static int encode(void *device, const xci_cuda_encode_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_encode(call, stream));
    return error;
}

static int check(void *device, const xci_cuda_block_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_check(call, stream));
    return error;
}

static int prepare(void *device, const xci_cuda_block_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_prepare(call, stream));
    return error;
}

static int check_masks(void *device, const xci_cuda_mask_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_check_masks(call, stream));
    return error;
}

static int apply(void *device, const xci_cuda_block_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_apply(call, stream));
    return error;
}

static int gap_encode(void *device, const xci_cuda_gap_encode_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_gap_encode(call, stream));
    return error;
}

static int gap_move(void *device, const xci_cuda_gap_encode_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_gap_move(call, stream));
    return error;
}

static int gap_check(void *device, const xci_cuda_gap_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_gap_check(call, stream));
    return error;
}

static int gap_ready(void *device, const xci_cuda_gap_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_gap_ready(call, stream));
    return error;
}

static int digest(void *device, const xci_cuda_digest_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_digest(call, stream));
    return error;
}

static int gather(void *device, const xci_cuda_copy_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_gather(call, stream));
    return error;
}

static int scatter(void *device, const xci_cuda_copy_call *call, void *stream) {
    int error;
    ON(device, error, xci_cuda_scatter(call, stream));
    return error;
}

static int copy_many(void *device, const xci_cuda_move *moves, uint64_t count, void *stream) {
    int error;
    ON(device, error, xci_cuda_copy_many(moves, count, stream));
    return error;
}

static const xci_device_ops table = {
    .abi = XCI_DEVICE_ABI,
    .table_bytes = sizeof(xci_device_ops),
    .name = "cuda",
    .error_text = error_text,
    .error_is_memory = error_is_memory,
    .count = count_devices,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .owner = owner,
    .allocate = allocate,
    .release = release,
    .allocate_engine = allocate_engine,
    .engine_reaches = engine_reaches,
    .allocate_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .quiet = quiet,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_wait = stream_wait,
    .stream_after = stream_after,
    .stream_captured = stream_captured,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_done = event_done,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .copy = copy,
    .copy_now = copy_now,
    .copy_peer_many = copy_peer_many,
    .join_many = join_many,
    .fill = fill,
    .decompress = decompress,
    .encode_scratch = encode_scratch,
    .encode = encode,
    .check = check,
    .prepare = prepare,
    .check_masks = check_masks,
    .apply = apply,
    .gap_scratch = xci_cuda_gap_scratch,
    .gap_encode = gap_encode,
    .gap_move = gap_move,
    .gap_check = gap_check,
    .gap_ready = gap_ready,
    .digest = digest,
    .gather = gather,
    .scatter = scatter,
    .copy_many = copy_many,
};

/* What the library looks for (backend/plugin.c). */
XORCAST_API const xci_device_ops *xorcast_device_plugin(void);
const xci_device_ops *xorcast_device_plugin(void) {
    return &table;
}
