/* The encode kernel. A block of threads works on one chunk after the other: its first warps, the
 * workers, each on a piece of the chunk (cuda_encode_piece.cuh), its last warp, the packer, on
 * the block that the pieces make (cuda_encode_pack.cuh). The packer also takes chunks, in order,
 * from a counter, one more than the workers are at.
 *
 *     packer   take 0, 1 ....... finish 0, take 2 ....... finish 1, take 3 ....... finish 2, ...
 *     workers      chunk 0 ........... chunk 1 ................ chunk 2 ....
 *
 * The first block of the grid does nothing but say places (cuda_encode_order.cuh). */
#ifndef XCI_CUDA_ENCODE_KERNEL_CUH
#define XCI_CUDA_ENCODE_KERNEL_CUH

#include "backend/cuda/cuda_encode_park.cuh"

#define XCI_MOST_BUFFERS 2u
#define XCI_MOST_THREADS 896u /* of a block: leaves 72 registers; 768 and 1024 are slower */

/* What the launcher decides. `words` has one word a chunk, all 0 at first, as has `counter`. */
typedef struct xci_encode_plan {
    uint64_t *counter, *words;
    uint8_t *slots, *parks;
    uint64_t slot_bytes; /* of one buffer of one block */
    uint32_t buffers;
} xci_encode_plan;

/* A buffer for a chunk on its way. */
typedef struct xci_encode_buffer {
    xci_chunk_job job;
    uint64_t ready, done; /* barriers: it holds a chunk; its pieces are done */
} xci_encode_buffer;

/* A block's shared memory: buffers, parked blocks, pieces by buffer and worker, then rings,
 * stages and lists of each worker. */
typedef struct xci_encode_memory {
    xci_encode_buffer *buffers;
    xci_parked *parked;
    xci_piece *pieces;
    uint8_t *rings, *stage;
    xci_list *lists;
} xci_encode_memory;

__host__ __device__ static inline uint32_t xci_buffers_bytes(uint32_t buffers) {
    return (buffers * (uint32_t)sizeof(xci_encode_buffer) + 15) / 16 * 16;
}

__host__ __device__ static inline uint32_t xci_pieces_bytes(uint32_t workers, uint32_t buffers) {
    return (workers * buffers * (uint32_t)sizeof(xci_piece) + 15) / 16 * 16;
}

__host__ __device__ static inline uint32_t xci_encode_shared(uint32_t workers, uint32_t buffers) {
    return xci_buffers_bytes(buffers) + XCI_PARKED * (uint32_t)sizeof(xci_parked) +
           xci_pieces_bytes(workers, buffers) +
           workers * (XCI_RING + XCI_STAGE + (uint32_t)sizeof(xci_list)) + XCI_STAGE_GAP;
}

__device__ __forceinline__ xci_encode_memory d_divide_memory(uint4 *shared, uint32_t workers,
                                                             uint32_t buffers) {
    uint8_t *at = (uint8_t *)shared;
    xci_encode_memory memory;
    memory.buffers = (xci_encode_buffer *)at;
    at += xci_buffers_bytes(buffers);
    memory.parked = (xci_parked *)at;
    at += XCI_PARKED * sizeof(xci_parked);
    memory.pieces = (xci_piece *)at;
    at += xci_pieces_bytes(workers, buffers);
    memory.rings = at;
    memory.stage = at + workers * XCI_RING;
    memory.lists = (xci_list *)(memory.stage + workers * XCI_STAGE + XCI_STAGE_GAP);
    return memory;
}

/* The next chunk, or that there is none. The packer's lane 0. */
__device__ __forceinline__ void d_take_chunk(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan, xci_chunk_job *job,
                                             uint32_t buffer) {
    job->bytes = 0;
    job->index = atomicAdd((unsigned long long *)plan->counter, 1ull);
    if (job->index >= call->count)
        return;
    const uint64_t number = call->first + job->index;
    const xci_cuda_chunk chunk = call->grid.chunks[number];
    job->old_at = call->old_at[number];
    job->new_at = call->new_at[number];
    job->element_bytes = chunk.element_bytes;
    job->keys.segments = call->grid.segments + chunk.segment_first;
    job->keys.count = chunk.segment_count;
    if (chunk.segment_count > 0)
        job->keys.first = job->keys.segments[0];
    job->slot =
        plan->slots + ((uint64_t)(blockIdx.x - 1) * plan->buffers + buffer) * plan->slot_bytes;
    job->bytes = chunk.bytes;
}

/* Takes a chunk into a buffer and lets the workers at it. Whether there was one: that there is
 * none they are told too, once. */
__device__ __forceinline__ bool d_hand_out(const xci_cuda_encode_call *call,
                                           const xci_encode_plan *plan,
                                           const xci_encode_memory *memory, uint32_t buffer) {
    if (d_lane() == 0)
        d_take_chunk(call, plan, &memory->buffers[buffer].job, buffer);
    __syncwarp();
    d_barrier_arrive(&memory->buffers[buffer].ready);
    return memory->buffers[buffer].job.bytes != 0;
}

__device__ __forceinline__ xci_pack d_pack_of(const xci_encode_memory *memory, uint32_t buffer,
                                              uint32_t workers) {
    xci_pack pack;
    pack.job = &memory->buffers[buffer].job;
    pack.pieces = memory->pieces + buffer * workers;
    pack.stage = memory->stage;
    pack.workers = workers;
    pack.piece_bytes = xci_piece_bytes(pack.job->bytes, workers);
    return pack;
}

__device__ __forceinline__ void d_run_packer(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan,
                                             const xci_encode_memory *memory, uint32_t workers) {
    xci_parking parking = {
        memory->parked, plan->parks + (uint64_t)(blockIdx.x - 1) * XCI_PARK_BYTES, 0, 0, 0, 0};
    uint32_t finished = 0, taken = 0;
    bool more = true;
#pragma unroll 1
    while (more || finished < taken || parking.count > 0) {
        if (more && taken - finished < plan->buffers) {
            more = d_hand_out(call, plan, memory, taken % plan->buffers);
            taken += more;
            continue;
        }
        d_place_parked(call, plan->words, &parking);
        if (finished < taken) {
            const uint32_t buffer = finished % plan->buffers;
            d_barrier_wait(&memory->buffers[buffer].done, finished / plan->buffers);
            const xci_pack pack = d_pack_of(memory, buffer, workers);
            d_finish_chunk(call, plan->words, &pack, &parking);
            ++finished;
        } else if (parking.count > 0) {
            d_pause();
        }
    }
}

/* Works on piece `worker` of the chunk. */
__device__ __forceinline__ void d_work_on_chunk(const xci_piece_work *work, uint32_t worker,
                                                uint32_t piece_bytes, bool lz4) {
    const uint32_t bottom = worker * piece_bytes;
    xci_piece *piece = d_piece(work);
    xci_list *list = d_list(work);
    if (d_lane() < sizeof(xci_piece) / 4)
        ((uint32_t *)piece)[d_lane()] = 0;
    list->counts[0][d_lane()] = list->counts[1][d_lane()] = list->counts[2][d_lane()] = 0;
    list->sums[0][d_lane()] = list->sums[1][d_lane()] = 0;
    __syncwarp();
    if (bottom < d_job(work)->bytes)
        d_encode_piece(work, bottom, bottom + piece_bytes, lz4);
    if (piece->state.end == 0)
        return;
    xci_cuda_tally tally;
    tally.bits = d_sum(list->counts[0][d_lane()]);
    tally.bytes = d_sum(list->counts[1][d_lane()]);
    tally.elements = d_sum(list->counts[2][d_lane()]);
    tally.low = d_sum64(list->sums[0][d_lane()]);
    tally.high = d_sum64(list->sums[1][d_lane()]);
    if (d_lane() == 0)
        piece->tally = tally;
    __syncwarp();
}

__device__ __forceinline__ void d_run_worker(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan,
                                             const xci_encode_memory *memory, uint32_t workers,
                                             uint32_t worker) {
#pragma unroll 1
    for (uint32_t turn = 0;; ++turn) {
        const uint32_t buffer = turn % plan->buffers;
        xci_encode_buffer *in = &memory->buffers[buffer];
        d_barrier_wait(&in->ready, turn / plan->buffers);
        const xci_chunk_job *job = &in->job;
        if (job->bytes == 0)
            return;
        const uint32_t piece_bytes = xci_piece_bytes(job->bytes, workers);
        xci_piece_work work;
        work.job_at = (uint32_t)((const uint8_t *)job - d_near(0));
        work.list_at = (uint32_t)((uint8_t *)&memory->lists[worker] - d_near(0));
        work.ring_at = (uint32_t)(memory->rings + worker * XCI_RING - d_near(0));
        work.slot_end = job->slot + (worker + 1) * xci_piece_room(piece_bytes);
        work.ring_limit = XCI_RING - XCI_BATCH_BYTES - piece_bytes / 255;
        work.piece_at =
            (uint32_t)((uint8_t *)&memory->pieces[buffer * workers + worker] - d_near(0));
        d_work_on_chunk(&work, worker, piece_bytes, call->codec == XORCAST_CODEC_LZ4);
        d_barrier_arrive(&in->done);
    }
}

__global__ void __launch_bounds__(XCI_MOST_THREADS, 1)
    k_encode_chunks(xci_cuda_encode_call call, xci_encode_plan plan) {
    XCI_SHARED_MEMORY(shared);
    const uint32_t workers = blockDim.x / XCI_WARP - 1, worker = threadIdx.x / XCI_WARP;
    const xci_encode_memory memory = d_divide_memory(shared, workers, plan.buffers);
    if (threadIdx.x < plan.buffers) {
        d_barrier_init(&memory.buffers[threadIdx.x].ready, XCI_WARP);
        d_barrier_init(&memory.buffers[threadIdx.x].done, workers * XCI_WARP);
    }
    __syncthreads();
    if (blockIdx.x == 0) {
        if (worker == 0)
            d_run_sequencer(plan.words, call.count, call.used_bytes);
    } else if (worker == workers) {
        d_run_packer(&call, &plan, &memory, workers);
    } else {
        d_run_worker(&call, &plan, &memory, workers, worker);
    }
}

#endif
