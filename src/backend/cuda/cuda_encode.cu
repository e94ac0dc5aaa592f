/* xci_cuda_encode: how many blocks of how many threads, and how the scratch is divided. The
 * kernel is in cuda_encode_kernel.cuh.
 *
 *     scratch = counter, one word a chunk, then for each block of the grid but the first a
 *               parking and slots: buffers x the room of a chunk's pieces */
#include "backend/cuda/cuda_encode_kernel.cuh"

#define MOST_SCRATCH (UINT64_C(192) << 20)
#define COUNTER_BYTES UINT64_C(256)
/* More are of no use to any GPU so far. */
#define MOST_BLOCKS UINT64_C(4096)

typedef struct shape {
    uint32_t warps, buffers, blocks; /* warps of a block; blocks of the grid */
    uint64_t slot_bytes;
} shape;

static uint64_t words_bytes(uint64_t count) {
    return (count * sizeof(uint64_t) + 255) / 256 * 256;
}

static uint64_t slot_room(uint32_t chunk_bytes, uint32_t warps) {
    const uint32_t workers = warps - 1;
    return (uint64_t)workers * xci_piece_room(xci_piece_bytes(chunk_bytes, workers));
}

/* Warps of a block. Small chunks want small blocks, because a block does one chunk at a time;
 * large ones large blocks, because their slots are large, and pieces at most XCI_LARGEST_PIECE. */
static uint32_t wanted_warps(uint32_t chunk_bytes) {
    if (chunk_bytes <= 64u << 10)
        return 4;
    if (chunk_bytes <= 128u << 10)
        return 8;
    return chunk_bytes <= 256u << 10 ? 10 : 20;
}

uint64_t xci_cuda_encode_scratch(uint64_t count, uint32_t chunk_bytes) {
    const uint64_t blocks = count < MOST_BLOCKS ? count : MOST_BLOCKS;
    /* With fewer workers slots are smaller, but for rounding. */
    const uint64_t slot = slot_room(chunk_bytes, wanted_warps(chunk_bytes)) + 4096;
    const uint64_t wanted =
        COUNTER_BYTES + words_bytes(count) + blocks * (XCI_PARK_BYTES + XCI_MOST_BUFFERS * slot);
    return wanted < MOST_SCRATCH ? wanted : MOST_SCRATCH;
}

/* Blocks that run at the same time on the current device. */
static cudaError_t count_blocks(const shape *s, uint32_t *blocks_out) {
    int device, processors, each;
    const uint32_t shared = xci_encode_shared(s->warps - 1, s->buffers);
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(k_encode_chunks, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)shared);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, k_encode_chunks,
                                                          (int)(s->warps * XCI_WARP), shared);
    if (e == cudaSuccess)
        *blocks_out = (uint32_t)(processors * each);
    return e;
}

static cudaError_t choose_shape(const xci_cuda_encode_call *call, shape *s) {
    int device, most_shared;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e != cudaSuccess)
        return e;
    s->buffers = XCI_MOST_BUFFERS;
    s->warps = wanted_warps(call->grid.chunk_bytes);
    while (xci_encode_shared(s->warps - 1, s->buffers) > (uint32_t)most_shared)
        s->warps /= 2;
    s->slot_bytes = slot_room(call->grid.chunk_bytes, s->warps);
    e = count_blocks(s, &s->blocks);
    const uint64_t fixed = COUNTER_BYTES + words_bytes(call->count);
    const uint64_t room = call->scratch_bytes > fixed ? call->scratch_bytes - fixed : 0;
    uint64_t workers = s->blocks - 1;
    if (workers > call->count)
        workers = call->count;
    if (workers * (XCI_PARK_BYTES + s->buffers * s->slot_bytes) > room)
        s->buffers = 1;
    if (workers > room / (XCI_PARK_BYTES + s->buffers * s->slot_bytes))
        workers = room / (XCI_PARK_BYTES + s->buffers * s->slot_bytes);
    if (e == cudaSuccess && workers == 0)
        e = cudaErrorInvalidValue;
    s->blocks = (uint32_t)workers + 1;
    return e;
}

int xci_cuda_encode(const xci_cuda_encode_call *call, void *stream) {
    cudaStream_t on = (cudaStream_t)stream;
    if (call->count == 0)
        return cudaMemsetAsync(call->used_bytes, 0, sizeof *call->used_bytes, on);
    shape s;
    cudaError_t e = choose_shape(call, &s);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(call->scratch, 0, COUNTER_BYTES + words_bytes(call->count), on);
    if (e != cudaSuccess)
        return e;
    xci_encode_plan plan;
    plan.counter = (uint64_t *)call->scratch;
    plan.words = (uint64_t *)(call->scratch + COUNTER_BYTES);
    plan.parks = call->scratch + COUNTER_BYTES + words_bytes(call->count);
    plan.slots = plan.parks + (uint64_t)(s.blocks - 1) * XCI_PARK_BYTES;
    plan.slot_bytes = s.slot_bytes;
    plan.buffers = s.buffers;
    const uint32_t shared = xci_encode_shared(s.warps - 1, s.buffers);
    xci_cuda_encode_call copy = *call;
    void *arguments[] = {&copy, &plan};
    return cudaLaunchKernel(k_encode_chunks, dim3(s.blocks), dim3(s.warps * XCI_WARP), arguments,
                            shared, on);
}
