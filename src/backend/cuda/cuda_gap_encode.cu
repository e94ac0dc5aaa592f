/* xci_cuda_gap_encode: four kernels, one after the other. Words are listed by as many warps as the
 * device holds; then each group is planned, placed and written. */
#include <stddef.h>

#include "backend/cuda/cuda_gap_list.cuh"
#include "backend/cuda/cuda_gap_write.cuh"

#define LIST_SHARED (XCI_LIST_THREADS / XCI_WARP * (uint32_t)sizeof(xci_gap_lister_memory))
#define PLACE_SHARED (XCI_PLACE_THREADS / XCI_WARP * (uint32_t)sizeof(uint64_t))
/* Of a multiprocessor: as many as memory needs, so that there is room for the plan and the write of
 * another call. */
#define LIST_BLOCKS 4
/* For the lists of a chunk, on average: one changed word in 48. */
#define LIST_BYTES UINT64_C(2048)

uint64_t xci_cuda_gap_scratch(uint64_t count, uint64_t group_count, uint32_t chunk_bytes) {
    xci_gap_scratch scratch;
    return xci_gap_divide(NULL, count, group_count, chunk_bytes, &scratch) + count * LIST_BYTES;
}

typedef struct launcher {
    xci_cuda_gap_encode_call call;
    xci_gap_scratch scratch;
    cudaStream_t stream;
} launcher;

/* Blocks of the listing kernel: all run at the same time on the current device. */
static cudaError_t count_blocks(uint32_t *blocks_out) {
    int device, processors, each;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(k_gap_list, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)LIST_SHARED);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, k_gap_list, (int)XCI_LIST_THREADS,
                                                          LIST_SHARED);
    if (e == cudaSuccess)
        *blocks_out = (uint32_t)(processors * (each < LIST_BLOCKS ? each : LIST_BLOCKS));
    return e;
}

static cudaError_t launch_list(launcher *l) {
    uint32_t blocks;
    cudaError_t e = count_blocks(&blocks);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(l->scratch.counters, 0, 256, l->stream);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(l->scratch.nibbles, 0, l->call.count * sizeof(uint32_t), l->stream);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(l->call.results, 0, l->call.count * sizeof(xci_cuda_result), l->stream);
    void *arguments[] = {&l->call, &l->scratch};
    return e != cudaSuccess ? e
                            : cudaLaunchKernel(k_gap_list, dim3(blocks), dim3(XCI_LIST_THREADS),
                                               arguments, LIST_SHARED, l->stream);
}

typedef void gap_kernel(xci_cuda_gap_encode_call, xci_gap_scratch);

static cudaError_t launch_groups(launcher *l, gap_kernel *kernel, uint32_t shared) {
    void *arguments[] = {&l->call, &l->scratch};
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return e != cudaSuccess
               ? e
               : cudaLaunchKernel(kernel, dim3((unsigned)l->call.group_count),
                                  dim3(XCI_PLAN_THREADS), arguments, shared, l->stream);
}

static cudaError_t launch_plan(launcher *l) {
    return l->call.beside != 0
               ? launch_groups(l, k_gap_plan<true>, (uint32_t)sizeof(xci_gap_planner))
               : launch_groups(l, k_gap_plan<false>, (uint32_t)offsetof(xci_gap_planner, old));
}

static cudaError_t launch_place(launcher *l) {
    void *arguments[] = {&l->call, &l->scratch};
    return cudaLaunchKernel(k_gap_place, dim3(1), dim3(XCI_PLACE_THREADS), arguments, PLACE_SHARED,
                            l->stream);
}

static cudaError_t launch_write(launcher *l) {
    const uint32_t streams = XCI_PLAN_WARPS * (uint32_t)sizeof(xci_gap_streams);
    return l->call.beside != 0
               ? launch_groups(l, k_gap_write<true>, xci_gap_writer_bytes(true) + streams)
               : launch_groups(l, k_gap_write<false>, xci_gap_writer_bytes(false));
}

extern "C" int xci_cuda_gap_encode(const xci_cuda_gap_encode_call *call, void *stream) {
    launcher l;
    l.call = *call;
    l.stream = (cudaStream_t)stream;
    if (call->count == 0)
        return cudaMemsetAsync(call->used_bytes, 0, sizeof *call->used_bytes, l.stream);
    const uint64_t fixed = xci_gap_divide(call->scratch, call->count, call->group_count,
                                          call->grid.chunk_bytes, &l.scratch);
    if (fixed > call->scratch_bytes || l.scratch.unit_count > UINT32_MAX)
        return cudaErrorInvalidValue;
    l.scratch.list_words = (call->scratch_bytes - fixed) / sizeof(uint32_t);
    cudaError_t e = call->listed != 0 ? cudaSuccess : launch_list(&l);
    if (e == cudaSuccess)
        e = launch_plan(&l);
    if (e == cudaSuccess)
        e = launch_place(&l);
    return e != cudaSuccess ? e : launch_write(&l);
}
