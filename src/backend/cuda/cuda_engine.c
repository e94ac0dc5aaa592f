/* The driver's Decompression Engine: see cuda_engine.h. */
#include "backend/cuda/cuda_engine.h"

#include <assert.h>
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* Of the driver's enumeration; the runtime has no names for them. */
#define ATTRIBUTE_DECOMPRESS_MASK 136
#define ATTRIBUTE_DECOMPRESS_LENGTH 137

/* Jobs go to the driver as they are. */
#define SAME_PLACE(ours, theirs)                                                                   \
    static_assert(offsetof(xci_decompress_job, ours) == offsetof(CUmemDecompressParams, theirs),   \
                  "the driver's " #theirs " is elsewhere")
SAME_PLACE(block_bytes, srcNumBytes);
SAME_PLACE(mask_bytes, dstNumBytes);
SAME_PLACE(actual_bytes, dstActBytes);
SAME_PLACE(block, src);
SAME_PLACE(mask, dst);
SAME_PLACE(algorithm, algo);
SAME_PLACE(zero, padding);
static_assert(sizeof(xci_decompress_job) == sizeof(CUmemDecompressParams), "another size");
static_assert(XCI_DECOMPRESS_LZ4 == CU_MEM_DECOMPRESS_ALGORITHM_LZ4, "another number");

static CUresult(CUDAAPI *batch_decompress)(CUmemDecompressParams *jobs, size_t count,
                                           unsigned flags, size_t *bad, CUstream stream);
static CUresult(CUDAAPI *pointer_attribute)(void *value, CUpointer_attribute attribute,
                                            CUdeviceptr address);

cudaError_t xci_cuda_find_call(const char *name, unsigned version, void *place) {
    enum cudaDriverEntryPointQueryResult found;
    void *call = NULL;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &call, version, cudaEnableDefault, &found);
    if (error == cudaSuccess && (found != cudaDriverEntryPointSuccess || call == NULL))
        return cudaErrorInsufficientDriver;
    memcpy(place, &call, sizeof call); /* C has no cast from one to the other */
    return error;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t calls_found;

static void find_calls(void) {
    calls_found = xci_cuda_find_call("cuMemBatchDecompressAsync", 12060, &batch_decompress);
    if (calls_found == cudaSuccess)
        calls_found = xci_cuda_find_call("cuPointerGetAttribute", 4000, &pointer_attribute);
}

cudaError_t xci_cuda_engine_describe(int ordinal, xci_device_about *about) {
    int mask = 0, length = 0;
    cudaError_t error = cudaSuccess;
    if (about->driver_version < XCI_ENGINE_DRIVER)
        return cudaSuccess;
    error = cudaDeviceGetAttribute(&mask, (enum cudaDeviceAttr)ATTRIBUTE_DECOMPRESS_MASK, ordinal);
    if (error == cudaSuccess && mask != 0)
        error = cudaDeviceGetAttribute(&length, (enum cudaDeviceAttr)ATTRIBUTE_DECOMPRESS_LENGTH,
                                       ordinal);
    if (error == cudaErrorInvalidValue) { /* a runtime that does not pass it on: there is none */
        (void)cudaGetLastError();
        return cudaSuccess;
    }
    about->decompress_mask = (uint32_t)mask;
    about->decompress_max_bytes = (uint64_t)length;
    return error;
}

static cudaError_t make_pool(int ordinal, cudaMemPool_t *pool_out) {
    const struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = ordinal},
        .usage = cudaMemPoolCreateUsageHwDecompress,
    };
    return cudaMemPoolCreate(pool_out, &properties);
}

cudaError_t xci_cuda_engine_allocate(cudaMemPool_t *pool, int ordinal, cudaStream_t stream,
                                     uint64_t bytes, void **memory_out) {
    cudaError_t error = *pool == NULL ? make_pool(ordinal, pool) : cudaSuccess;
    if (error == cudaSuccess)
        error = cudaMallocFromPoolAsync(memory_out, bytes, *pool, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

cudaError_t xci_cuda_engine_reaches(const void *address, bool *reaches_out) {
    int reaches = 0;
    (void)pthread_once(&once, find_calls);
    if (calls_found != cudaSuccess)
        return calls_found;
    const CUresult error = pointer_attribute(
        &reaches, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, (CUdeviceptr)(uintptr_t)address);
    *reaches_out = error == CUDA_SUCCESS && reaches != 0;
    return (cudaError_t)error;
}

cudaError_t xci_cuda_engine_decompress(xci_decompress_job *jobs, uint64_t count, uint64_t *bad_out,
                                       cudaStream_t stream) {
    size_t bad = *bad_out;
    (void)pthread_once(&once, find_calls);
    if (calls_found != cudaSuccess)
        return calls_found;
    const CUresult error =
        batch_decompress((CUmemDecompressParams *)(void *)jobs, count, 0, &bad, stream);
    *bad_out = bad;
    return (cudaError_t)error;
}
