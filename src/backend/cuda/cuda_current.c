/* Entering and leaving a device: see cuda_current.h. */
#include "backend/cuda/cuda_current.h"

#include <pthread.h>

#include "backend/cuda/cuda_engine.h"

static CUresult(CUDAAPI *push_context)(CUcontext context);
static CUresult(CUDAAPI *pop_context)(CUcontext *context_out);
static CUresult(CUDAAPI *retain_primary)(CUcontext *context_out, CUdevice device);
static CUresult(CUDAAPI *release_primary)(CUdevice device);
static CUresult(CUDAAPI *address_range)(CUdeviceptr *begin_out, size_t *bytes_out, CUdeviceptr at);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t calls_found;

static void find_calls(void) {
    cudaError_t error = xci_cuda_find_call("cuCtxPushCurrent", 4000, &push_context);
    if (error == cudaSuccess)
        error = xci_cuda_find_call("cuCtxPopCurrent", 4000, &pop_context);
    if (error == cudaSuccess)
        error = xci_cuda_find_call("cuDevicePrimaryCtxRetain", 7000, &retain_primary);
    if (error == cudaSuccess)
        error = xci_cuda_find_call("cuDevicePrimaryCtxRelease", 11000, &release_primary);
    if (error == cudaSuccess)
        error = xci_cuda_find_call("cuMemGetAddressRange", 3020, &address_range);
    calls_found = error;
}

int xci_cuda_primary_retain(int ordinal, CUcontext *primary_out) {
    (void)pthread_once(&once, find_calls);
    return calls_found != cudaSuccess ? (int)calls_found
                                      : (int)retain_primary(primary_out, ordinal);
}

void xci_cuda_primary_release(int ordinal) {
    (void)release_primary(ordinal);
}

int xci_cuda_enter(CUcontext primary, enum cudaStreamCaptureMode *mode) {
    const CUresult error = push_context(primary);
    if (error == CUDA_SUCCESS)
        (void)cudaThreadExchangeStreamCaptureMode(mode);
    return (int)error;
}

int xci_cuda_leave(cudaError_t error, enum cudaStreamCaptureMode mode) {
    CUcontext ours;
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)pop_context(&ours);
    return (int)error;
}

CUresult xci_cuda_address_range(CUdeviceptr *begin_out, size_t *bytes_out, CUdeviceptr at) {
    return address_range(begin_out, bytes_out, at);
}
