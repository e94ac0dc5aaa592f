/* xci_cuda_encode: how many warps, and how the scratch is divided. The kernel is in
 * cuda_encode_kernel.cuh.
 *
 *     scratch = counter, one word a chunk, then a slot for each warp of the grid but the first */
#include "backend/cuda/cuda_encode_kernel.cuh"

#define MOST_SCRATCH (UINT64_C(192) << 20)
#define COUNTER_BYTES UINT64_C(256)
#define MOST_WARPS UINT64_C(4096) /* more are of no use to any GPU so far */
/* So that a block can be made while a few wait, and of small chunks many. */
#define SPARE_ROWS 8u
#define LEAST_ROWS 64u /* with fewer, there are fewer warps */

typedef struct shape {
    uint32_t blocks, warps, shared; /* of the grid; warps and bytes of each block */
    uint32_t slot_rows, ring_bytes;
} shape;

static uint64_t words_bytes(uint64_t count) {
    return (count * sizeof(uint64_t) + 255) / 256 * 256;
}

static uint32_t wanted_rows(uint32_t chunk_bytes) {
    const uint32_t rows = (chunk_bytes + XCI_ROW - 1) / XCI_ROW + SPARE_ROWS;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows;
}

uint64_t xci_cuda_encode_scratch(uint64_t count, uint32_t chunk_bytes) {
    const uint64_t warps = count < MOST_WARPS ? count : MOST_WARPS;
    const uint64_t wanted =
        COUNTER_BYTES + words_bytes(count) + warps * wanted_rows(chunk_bytes) * XCI_ROW;
    return wanted < MOST_SCRATCH ? wanted : MOST_SCRATCH;
}

/* Room for a row that is not full, for a batch, and for the 255s of all lengths in it. */
static uint32_t ring_bytes(uint32_t chunk_bytes) {
    uint32_t bytes = 2048;
    while (bytes < XCI_ROW + XCI_BATCH_BYTES + chunk_bytes / 255 + 64)
        bytes *= 2;
    return bytes;
}

/* Blocks of as many warps as shared memory allows and as it takes to have one a chunk, and as many
 * as run at the same time on the current device. */
static cudaError_t choose_blocks(uint64_t count, shape *s) {
    int device, processors, most_shared, each;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e != cudaSuccess)
        return e;
    const uint32_t each_warp = xci_warp_shared(s->ring_bytes);
    const uint64_t wanted = (count + (uint32_t)processors) / (uint32_t)processors;
    s->warps = wanted < XCI_BLOCK_WARPS ? (uint32_t)wanted : XCI_BLOCK_WARPS;
    while (s->warps > 1 && s->warps * each_warp > (uint32_t)most_shared)
        --s->warps;
    s->shared = s->warps * each_warp;
    e = cudaFuncSetAttribute(k_encode_chunks, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)s->shared);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, k_encode_chunks,
                                                          (int)(s->warps * XCI_WARP), s->shared);
    if (e == cudaSuccess)
        s->blocks = (uint32_t)(processors * each);
    return e;
}

/* Divides the scratch among the warps; with little of it there are fewer. */
static cudaError_t choose_slots(const xci_cuda_encode_call *call, shape *s) {
    const uint64_t fixed = COUNTER_BYTES + words_bytes(call->count);
    const uint64_t room = call->scratch_bytes > fixed ? (call->scratch_bytes - fixed) / XCI_ROW : 0;
    const uint32_t wanted = wanted_rows(call->grid.chunk_bytes);
    uint64_t workers = (uint64_t)s->blocks * s->warps - 1;
    if (workers > call->count)
        workers = call->count;
    if (workers > room / LEAST_ROWS)
        workers = room / LEAST_ROWS;
    s->blocks = (uint32_t)((workers + s->warps) / s->warps);
    workers = (uint64_t)s->blocks * s->warps - 1;
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
    s.ring_bytes = ring_bytes(call->grid.chunk_bytes);
    cudaError_t e = choose_blocks(call->count, &s);
    if (e == cudaSuccess)
        e = choose_slots(call, &s);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(call->scratch, 0, COUNTER_BYTES + words_bytes(call->count), on);
    if (e != cudaSuccess)
        return e;
    xci_encode_plan plan;
    plan.counter = (uint64_t *)call->scratch;
    plan.words = (uint64_t *)(call->scratch + COUNTER_BYTES);
    plan.slots = call->scratch + COUNTER_BYTES + words_bytes(call->count);
    plan.slot_rows = s.slot_rows;
    plan.ring_bytes = s.ring_bytes;
    xci_cuda_encode_call copy = *call;
    void *arguments[] = {&copy, &plan};
    return cudaLaunchKernel(k_encode_chunks, dim3(s.blocks), dim3(s.warps * XCI_WARP), arguments,
                            s.shared, on);
}
