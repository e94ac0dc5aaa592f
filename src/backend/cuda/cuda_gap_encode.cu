/* xci_cuda_gap_encode: kernels one after the other. Words are listed by as many warps as the device
 * holds; groups are planned, chunks get their rivals if the call chooses, blocks get their sizes,
 * groups are finished and placed, and blocks are written. What is done for each chunk is a warp's,
 * so that groups with many changes, which may lie together, are everybody's. */
#include <stddef.h>

#include "backend/cuda/cuda_gap_finish.cuh"
#include "backend/cuda/cuda_gap_group.cuh"
#include "backend/cuda/cuda_gap_list.cuh"
#include "backend/cuda/cuda_gap_move.cuh"
#include "backend/cuda/cuda_gap_records.cuh"
#include "backend/cuda/cuda_gap_write.cuh"

#define LIST_SHARED (XCI_LIST_THREADS / XCI_WARP * (uint32_t)sizeof(xci_gap_lister_memory))
#define PLACE_SHARED (XCI_PLACE_THREADS / XCI_WARP * (uint32_t)sizeof(uint64_t))
/* Of a multiprocessor: as many as memory needs, so that there is room for the plan and the write of
 * another call. */
#define LIST_BLOCKS 3

uint64_t xci_cuda_gap_scratch(uint64_t count, uint64_t group_count, uint32_t chunk_bytes) {
    xci_gap_scratch scratch;
    return xci_gap_divide(NULL, count, group_count, chunk_bytes, &scratch);
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

static cudaError_t launch(launcher *l, gap_kernel *kernel, uint64_t blocks, uint32_t threads,
                          uint32_t shared) {
    void *arguments[] = {&l->call, &l->scratch};
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return e != cudaSuccess ? e
                            : cudaLaunchKernel(kernel, dim3((unsigned)blocks), dim3(threads),
                                               arguments, shared, l->stream);
}

static cudaError_t launch_plan(launcher *l) {
    gap_kernel *const kernel = l->call.beside != 0 ? k_gap_plan<true> : k_gap_plan<false>;
    const uint64_t shared =
        l->call.beside != 0 ? sizeof(xci_gap_planner) : offsetof(xci_gap_planner, old);
    return launch(l, kernel, l->call.group_count, XCI_PLAN_THREADS, (uint32_t)shared);
}

static cudaError_t launch_chunks(launcher *l, gap_kernel *kernel, uint64_t warps,
                                 uint64_t warp_bytes) {
    return launch(l, kernel, (warps + XCI_CHUNK_WARPS - 1) / XCI_CHUNK_WARPS, XCI_CHUNK_THREADS,
                  (uint32_t)(XCI_CHUNK_WARPS * warp_bytes));
}

static cudaError_t launch_size(launcher *l) {
    const uint64_t count = l->call.count;
    cudaError_t e = cudaSuccess;
    if (l->call.prices.wire != 0 && l->call.listed == 0)
        e = launch_chunks(l, k_gap_rival, count, 0);
    if (e != cudaSuccess)
        return e;
    if (l->call.beside == 0)
        return launch_chunks(l, k_gap_size<false>, count, sizeof(xci_gap_batch));
    e = launch_chunks(l, k_gap_record, count, sizeof(xci_gap_recorder));
    return e != cudaSuccess ? e : launch_chunks(l, k_gap_size<true>, count, sizeof(xci_gap_batch));
}

static cudaError_t launch_finish(launcher *l) {
    const cudaError_t e =
        launch(l, k_gap_finish, (l->call.group_count + XCI_FINISH_WARPS - 1) / XCI_FINISH_WARPS,
               XCI_FINISH_THREADS, XCI_FINISH_WARPS * (uint32_t)sizeof(xci_gap_finisher));
    return e != cudaSuccess ? e : launch(l, k_gap_place, 1, XCI_PLACE_THREADS, PLACE_SHARED);
}

static cudaError_t launch_write(launcher *l) {
    gap_kernel *const kernel = l->call.beside != 0 ? k_gap_write<true> : k_gap_write<false>;
    const cudaError_t e =
        launch_chunks(l, kernel, l->call.count + l->call.group_count, sizeof(xci_gap_block_memory));
    return e != cudaSuccess || l->call.prices.wire == 0
               ? e
               : launch_chunks(l, k_gap_write_rivals, l->call.count, 0);
}

/* Divides the scratch of a checked call. */
static cudaError_t divide(launcher *l) {
    const xci_cuda_gap_encode_call *call = &l->call;
    const uint64_t fixed = xci_gap_divide(call->scratch, call->count, call->group_count,
                                          call->grid.chunk_bytes, &l->scratch);
    if (fixed > call->scratch_bytes || l->scratch.unit_count > UINT32_MAX ||
        call->group_count >> (32 - XCI_DRAFT_BITS) != 0)
        return cudaErrorInvalidValue;
    l->scratch.list_words = (call->scratch_bytes - fixed) / sizeof(uint32_t);
    return cudaSuccess;
}

extern "C" int xci_cuda_gap_encode(const xci_cuda_gap_encode_call *call, void *stream) {
    launcher l;
    l.call = *call;
    l.stream = (cudaStream_t)stream;
    if (call->count == 0)
        return cudaMemsetAsync(call->used, 0, sizeof *call->used, l.stream);
    cudaError_t e = divide(&l);
    if (e == cudaSuccess && call->listed == 0)
        e = launch_list(&l);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(l.scratch.counters + 2, 0, 2 * sizeof *l.scratch.counters, l.stream);
    if (e == cudaSuccess)
        e = launch_plan(&l);
    if (e == cudaSuccess)
        e = launch_size(&l);
    if (e == cudaSuccess)
        e = launch_finish(&l);
    return e != cudaSuccess ? e : launch_write(&l);
}

extern "C" int xci_cuda_gap_move(const xci_cuda_gap_encode_call *call, void *stream) {
    launcher l;
    l.call = *call;
    l.stream = (cudaStream_t)stream;
    if (call->count == 0)
        return cudaSuccess;
    const cudaError_t e = divide(&l);
    return e != cudaSuccess ? e : launch_chunks(&l, k_gap_move, call->count, 0);
}
