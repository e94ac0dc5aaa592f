/* xci_cuda_encode: how many warps, and how the scratch is divided. The kernel is in
 * cuda_encode_kernel.cuh.
 *
 *     scratch = counter, one word a chunk, then a slot for each warp of the grid but the first */
#include "backend/cuda/cuda_encode_kernel.cuh"

#define MOST_SCRATCH (UINT64_C(192) << 20)
#define COUNTER_BYTES UINT64_C(256)
/* So that a block can be made while a few wait, and of small chunks many. */
#define SPARE_ROWS 8u
#define LEAST_ROWS 64u /* with fewer, there are fewer warps */

typedef struct shape {
    uint32_t blocks, warps, shared; /* of the grid; warps and bytes of each block */
    uint32_t slot_rows, ring_bytes;
} shape;

typedef void encode_kernel(xci_cuda_encode_call call, xci_encode_plan plan);

static encode_kernel *kernel_for(bool move) {
    return move ? k_encode_chunks<true> : k_encode_chunks<false>;
}

static uint64_t fixed_bytes(uint64_t count) {
    return COUNTER_BYTES + (count * sizeof(uint64_t) + 255) / 256 * 256;
}

static uint32_t wanted_rows(uint32_t chunk_bytes) {
    const uint32_t rows = (chunk_bytes + XCI_ROW - 1) / XCI_ROW + SPARE_ROWS;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows;
}

/* Room for a row that is not full, for a batch, and for the 255s of all lengths in it. */
static uint32_t ring_bytes(uint32_t chunk_bytes) {
    uint32_t bytes = 2048;
    while (bytes < XCI_ROW + XCI_BATCH_BYTES + chunk_bytes / 255 + 64)
        bytes *= 2;
    return bytes;
}

/* How many blocks the current device runs at the same time. The attribute is a limit: it is the
 * same in each call, since calls may be made side by side. */
static cudaError_t fill_device(encode_kernel *kernel, shape *s, int processors, int most_shared) {
    int each;
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, (int)(s->warps * XCI_WARP),
                                                          s->shared);
    if (e == cudaSuccess)
        s->blocks = (uint32_t)(processors * each);
    return e;
}

/* Blocks of as many warps as shared memory allows and as it takes to have one a chunk, and as many
 * as run at the same time, but no more than it takes. */
static cudaError_t choose_blocks(encode_kernel *kernel, uint64_t count, uint32_t chunk_bytes,
                                 shape *s) {
    int device, processors, most_shared;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e != cudaSuccess)
        return e;
    s->ring_bytes = ring_bytes(chunk_bytes);
    const uint32_t each_warp = xci_warp_shared(s->ring_bytes);
    const uint64_t wanted = (count + (uint32_t)processors) / (uint32_t)processors;
    s->warps = wanted < XCI_BLOCK_WARPS ? (uint32_t)wanted : XCI_BLOCK_WARPS;
    while (s->warps > 1 && s->warps * each_warp > (uint32_t)most_shared)
        --s->warps;
    s->shared = s->warps * each_warp;
    e = fill_device(kernel, s, processors, most_shared);
    const uint64_t most = (count + s->warps) / s->warps; /* one warp more than chunks */
    if (e == cudaSuccess && s->blocks > most)
        s->blocks = (uint32_t)most;
    return e;
}

/* Warps that encode: all but the sequencer. */
static uint64_t worker_count(const shape *s) {
    return (uint64_t)s->blocks * s->warps - 1;
}

uint64_t xci_cuda_encode_scratch(uint64_t count, uint32_t chunk_bytes) {
    shape s;
    if (choose_blocks(kernel_for(false), count, chunk_bytes, &s) != cudaSuccess)
        return MOST_SCRATCH;
    const uint64_t wanted =
        fixed_bytes(count) + worker_count(&s) * wanted_rows(chunk_bytes) * XCI_ROW;
    return wanted < MOST_SCRATCH ? wanted : MOST_SCRATCH;
}

/* Divides the scratch among the warps; with little of it there are fewer. */
static cudaError_t choose_slots(const xci_cuda_encode_call *call, shape *s) {
    const uint64_t fixed = fixed_bytes(call->count);
    const uint64_t room = call->scratch_bytes > fixed ? (call->scratch_bytes - fixed) / XCI_ROW : 0;
    const uint32_t wanted = wanted_rows(call->grid.chunk_bytes);
    const uint64_t most = room / LEAST_ROWS;
    if (worker_count(s) > most)
        s->blocks = (uint32_t)((most + s->warps) / s->warps);
    const uint64_t workers = worker_count(s);
    if (workers == 0 || room / workers == 0)
        return cudaErrorInvalidValue;
    s->slot_rows = (uint32_t)(room / workers < wanted ? room / workers : wanted);
    return cudaSuccess;
}

int xci_cuda_encode(const xci_cuda_encode_call *call, void *stream) {
    cudaStream_t on = (cudaStream_t)stream;
    if (call->count == 0)
        return cudaMemsetAsync(call->used_bytes, 0, sizeof *call->used_bytes, on);
    shape s;
    encode_kernel *const kernel = kernel_for(call->move != 0);
    cudaError_t e = choose_blocks(kernel, call->count, call->grid.chunk_bytes, &s);
    if (e == cudaSuccess)
        e = choose_slots(call, &s);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(call->scratch, 0, fixed_bytes(call->count), on);
    if (e != cudaSuccess)
        return e;
    xci_encode_plan plan;
    plan.counter = (uint64_t *)call->scratch;
    plan.full = plan.counter + 1;
    plan.words = (uint64_t *)(call->scratch + COUNTER_BYTES);
    plan.slots = call->scratch + fixed_bytes(call->count);
    plan.slot_rows = s.slot_rows;
    plan.ring_bytes = s.ring_bytes;
    xci_cuda_encode_call copy = *call;
    void *arguments[] = {&copy, &plan};
    return cudaLaunchKernel(kernel, dim3(s.blocks), dim3(s.warps * XCI_WARP), arguments, s.shared,
                            on);
}
