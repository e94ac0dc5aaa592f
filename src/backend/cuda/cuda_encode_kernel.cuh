/* The encode kernel. A block of threads works on one chunk after the other: its first warps, the
 * workers, each on a piece of the chunk (cuda_encode_piece.cuh), its last warp, the packer, on the
 * block that the pieces make (cuda_encode_pack.cuh). The packer also takes chunks, in order, from a
 * counter. There are several buffers for chunks on their way, so that workers read on while the
 * packer waits for the sizes of chunks before.
 *
 *     packer   take 0, take 1 ......... pack 0 ... take 2 ........... pack 1 ...
 *     workers         chunk 0 ......... chunk 1 ......... chunk 2 ....... */
#ifndef XCI_CUDA_ENCODE_KERNEL_CUH
#define XCI_CUDA_ENCODE_KERNEL_CUH

#include "backend/cuda/cuda_encode_pack.cuh"

#define XCI_MOST_BUFFERS 2u

/* What the launcher decides. `words` has one word a chunk, all 0 at first, as has `counter`. */
typedef struct xci_encode_plan {
    uint64_t *counter, *words;
    uint8_t *slots;
    uint64_t slot_bytes; /* of one buffer of one block */
    uint32_t buffers;
} xci_encode_plan;

/* A block's shared memory: jobs, then by buffer and worker pieces and rings, then lists. */
typedef struct xci_encode_memory {
    xci_chunk_job *jobs;
    xci_piece *pieces;
    uint8_t *rings;
    xci_list *lists;
} xci_encode_memory;

__host__ __device__ static inline uint32_t xci_jobs_bytes(void) {
    return (XCI_MOST_BUFFERS * (uint32_t)sizeof(xci_chunk_job) + 15) / 16 * 16;
}

__host__ __device__ static inline uint32_t xci_pieces_bytes(uint32_t workers, uint32_t buffers) {
    return (workers * buffers * (uint32_t)sizeof(xci_piece) + 15) / 16 * 16;
}

__host__ __device__ static inline uint32_t xci_encode_shared(uint32_t workers, uint32_t buffers) {
    return xci_jobs_bytes() + xci_pieces_bytes(workers, buffers) + workers * buffers * XCI_RING +
           workers * (uint32_t)sizeof(xci_list);
}

__device__ __forceinline__ xci_encode_memory d_divide_memory(uint4 *shared, uint32_t workers,
                                                             uint32_t buffers) {
    uint8_t *at = (uint8_t *)shared;
    xci_encode_memory memory;
    memory.jobs = (xci_chunk_job *)at;
    at += xci_jobs_bytes();
    memory.pieces = (xci_piece *)at;
    at += xci_pieces_bytes(workers, buffers);
    memory.rings = at;
    memory.lists = (xci_list *)(at + workers * buffers * XCI_RING);
    return memory;
}

/* Barriers of a buffer: it holds a chunk; its pieces are done. 0 is left to the compiler. */
__device__ __forceinline__ uint32_t d_ready(uint32_t buffer) {
    return 1 + 2 * buffer;
}

__device__ __forceinline__ uint32_t d_done(uint32_t buffer) {
    return 2 + 2 * buffer;
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
    job->slot = plan->slots + ((uint64_t)blockIdx.x * plan->buffers + buffer) * plan->slot_bytes;
    job->bytes = chunk.bytes;
}

__device__ __forceinline__ void d_run_packer(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan,
                                             const xci_encode_memory *memory, uint32_t workers) {
    bool more = true;
    for (uint32_t buffer = 0, turn = 0;; ++turn, buffer = (buffer + 1) % plan->buffers) {
        xci_chunk_job *job = &memory->jobs[buffer];
        if (turn >= plan->buffers) {
            if (job->bytes == 0)
                return;
            d_barrier_wait(d_done(buffer), blockDim.x);
            const xci_pack pack = {job, memory->pieces + buffer * workers,
                                   memory->rings + buffer * workers * XCI_RING, workers,
                                   xci_piece_bytes(job->bytes, workers)};
            d_pack_chunk(&pack, call, plan->words);
            __syncwarp();
        }
        if (d_lane() == 0)
            d_take_chunk(call, plan, job, buffer);
        __syncwarp();
        /* That there is none more is said once: nobody waits for it again. */
        if (more)
            d_barrier_arrive(d_ready(buffer), blockDim.x);
        more = more && job->bytes != 0;
    }
}

/* Works on piece `worker` of the chunk. */
__device__ __forceinline__ void d_work_on_chunk(const xci_piece_work *work, xci_piece *piece_out,
                                                uint32_t worker, uint32_t piece_bytes, bool lz4) {
    const xci_chunk_job *job = work->job;
    const uint32_t bottom = worker * piece_bytes, top = bottom + piece_bytes;
    xci_piece piece = {};
    if (bottom < job->bytes)
        d_encode_piece(work, &piece, bottom, top, lz4);
    if (piece.end != 0) {
        piece.tally.bits = d_sum(piece.tally.bits);
        piece.tally.bytes = d_sum(piece.tally.bytes);
        piece.tally.elements = d_sum(piece.tally.elements);
        piece.tally.low = d_sum64(piece.tally.low);
        piece.tally.high = d_sum64(piece.tally.high);
    }
    if (d_lane() == 0)
        *piece_out = piece;
    __syncwarp();
}

__device__ __forceinline__ void d_run_worker(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan,
                                             const xci_encode_memory *memory, uint32_t workers,
                                             uint32_t worker) {
    for (uint32_t buffer = 0;; buffer = (buffer + 1) % plan->buffers) {
        const xci_chunk_job *job = &memory->jobs[buffer];
        d_barrier_wait(d_ready(buffer), blockDim.x);
        if (job->bytes == 0)
            return;
        const uint32_t number = buffer * workers + worker;
        const uint32_t piece_bytes = xci_piece_bytes(job->bytes, workers);
        xci_piece_work work;
        work.job = job;
        work.list = &memory->lists[worker];
        work.ring = memory->rings + number * XCI_RING;
        work.slot_end = job->slot + (worker + 1) * xci_piece_room(piece_bytes);
        work.ring_limit = XCI_RING - XCI_BATCH_BYTES - piece_bytes / 255;
        work.tops = d_element_tops(job->element_bytes);
        d_work_on_chunk(&work, &memory->pieces[number], worker, piece_bytes,
                        call->codec == XORCAST_CODEC_LZ4);
        d_barrier_arrive(d_done(buffer), blockDim.x);
    }
}

__global__ void __launch_bounds__(1024, 1)
    k_encode_chunks(xci_cuda_encode_call call, xci_encode_plan plan) {
    XCI_SHARED_MEMORY(shared);
    const uint32_t workers = blockDim.x / XCI_WARP - 1, worker = threadIdx.x / XCI_WARP;
    const xci_encode_memory memory = d_divide_memory(shared, workers, plan.buffers);
    if (worker == workers)
        d_run_packer(&call, &plan, &memory, workers);
    else
        d_run_worker(&call, &plan, &memory, workers, worker);
}

#endif
