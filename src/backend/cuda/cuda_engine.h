/* The Decompression Engine as the driver gives it: its attributes, memory that it reaches, and the
 * one call. Found at run time, because older drivers do not have it. Every function works on the
 * device that is current. Checks nothing of what it is asked for: delta/device_engine.c does. */
#ifndef XCI_CUDA_ENGINE_H
#define XCI_CUDA_ENGINE_H

#include <cuda_runtime_api.h>

#include "backend/device.h"

/* What the attributes say; leaves 0 where the driver does not know them. */
cudaError_t xci_cuda_engine_describe(int ordinal, xci_device_about *about);

/* Memory of a pool for the engine, which is made with the first piece. Freed by cudaFree. */
cudaError_t xci_cuda_engine_allocate(cudaMemPool_t *pool, int ordinal, cudaStream_t stream,
                                     uint64_t bytes, void **memory_out);
cudaError_t xci_cuda_engine_reaches(const void *address, bool *reaches_out);

/* cuMemBatchDecompressAsync. `*bad_out` is written only if the driver writes it. */
cudaError_t xci_cuda_engine_decompress(xci_decompress_job *jobs, uint64_t count, uint64_t *bad_out,
                                       cudaStream_t stream);

/* A call of the driver, by name and the version that brought it. */
cudaError_t xci_cuda_find_call(const char *name, unsigned version, void *place);

#endif
