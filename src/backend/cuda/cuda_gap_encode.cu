/* xci_cuda_gap_encode: four kernels, one after the other. Words are listed by as many warps as the
 * device holds; then each group is planned, placed and written. */
#include "backend/cuda/cuda_gap_list.cuh"
#include "backend/cuda/cuda_gap_write.cuh"

#define LIST_SHARED (XCI_LIST_THREADS / XCI_WARP * (uint32_t)sizeof(xci_gap_waiting))
#define PLACE_SHARED (XCI_PLACE_THREADS / XCI_WARP * (uint32_t)sizeof(uint64_t))
/* Pages for as many warps as any device holds, and a share of what a call covers. */
#define LEAST_PAGES UINT64_C(12000)

uint64_t xci_cuda_gap_scratch(uint64_t count, uint64_t group_count, uint32_t chunk_bytes) {
    xci_gap_scratch scratch;
    const uint64_t fixed = xci_gap_divide(NULL, count, group_count, chunk_bytes, &scratch);
    const uint64_t pages = count < LEAST_PAGES ? count : LEAST_PAGES;
    return fixed + pages * XCI_PAGE_BYTES;
}

typedef struct launcher {
    xci_cuda_gap_encode_call call;
    xci_gap_scratch scratch;
    cudaStream_t stream;
} launcher;

/* Blocks of the listing kernel that run at the same time on the current device. */
static cudaError_t count_blocks(uint32_t *blocks_out) {
    int device, processors, each;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, k_gap_list, (int)XCI_LIST_THREADS,
                                                          LIST_SHARED);
    if (e == cudaSuccess)
        *blocks_out = (uint32_t)(processors * each);
    return e;
}

static cudaError_t launch_list(launcher *l) {
    uint32_t blocks;
    cudaError_t e = count_blocks(&blocks);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(l->scratch.counters, 0, 256, l->stream);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(l->call.results, 0, l->call.count * sizeof(xci_cuda_result), l->stream);
    void *arguments[] = {&l->call, &l->scratch};
    return e != cudaSuccess ? e
                            : cudaLaunchKernel(k_gap_list, dim3(blocks), dim3(XCI_LIST_THREADS),
                                               arguments, LIST_SHARED, l->stream);
}

static cudaError_t launch_groups(launcher *l,
                                 void (*kernel)(xci_cuda_gap_encode_call, xci_gap_scratch),
                                 uint32_t shared) {
    void *arguments[] = {&l->call, &l->scratch};
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return e != cudaSuccess
               ? e
               : cudaLaunchKernel(kernel, dim3((unsigned)l->call.group_count),
                                  dim3(XCI_PLAN_THREADS), arguments, shared, l->stream);
}

static cudaError_t launch_place(launcher *l) {
    void *arguments[] = {&l->call};
    return cudaLaunchKernel(k_gap_place, dim3(1), dim3(XCI_PLACE_THREADS), arguments, PLACE_SHARED,
                            l->stream);
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
    l.scratch.page_count = (call->scratch_bytes - fixed) / XCI_PAGE_BYTES;
    cudaError_t e = launch_list(&l);
    if (e == cudaSuccess)
        e = launch_groups(&l, k_gap_plan, (uint32_t)sizeof(xci_gap_planner));
    if (e == cudaSuccess)
        e = launch_place(&l);
    return e != cudaSuccess ? e : launch_groups(&l, k_gap_write, (uint32_t)sizeof(xci_gap_writer));
}
