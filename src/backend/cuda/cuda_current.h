/* A device made current for a call, and the caller's put back. Its primary context, which
 * frameworks use too, is pushed and popped, which needs the driver's calls: the runtime could only
 * make another device current, and to put the caller's back would begin work on one that the
 * caller never touched. */
#ifndef XCI_CUDA_CURRENT_H
#define XCI_CUDA_CURRENT_H

#include <cuda.h>
#include <cuda_runtime_api.h>

/* Numbers are the runtime's, which the driver's agree with; 0 is success. */
int xci_cuda_primary_retain(int ordinal, CUcontext *primary_out);
void xci_cuda_primary_release(int ordinal);

/* While anyone captures a graph, calls that could disturb some captures are refused to every thread
 * that has not said that it knows what it does. Ours do not touch captured streams: `mode` says so,
 * and then is what was said before. */
int xci_cuda_enter(CUcontext primary, enum cudaStreamCaptureMode *mode);
/* Returns `error`, and leaves no trace of it in the runtime's "last error". Only after a successful
 * enter. */
int xci_cuda_leave(cudaError_t error, enum cudaStreamCaptureMode mode);

/* The piece of memory that holds an address. Once a primary context was retained. */
CUresult xci_cuda_address_range(CUdeviceptr *begin_out, size_t *bytes_out, CUdeviceptr at);

#endif
