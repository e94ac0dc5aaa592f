/* The encode kernel. Each warp works on one chunk after the other, from its end to its beginning,
 * alone: rows come ahead into shared memory (cuda_encode_feed.cuh), words that differ become the
 * LZ4 block in a ring there (cuda_encode_words.cuh), from which rows move to the warp's slot in
 * global memory; there the block waits for its place (cuda_encode_park.cuh).
 *
 * The first warp of the grid does nothing but say places (cuda_encode_order.cuh). */
#ifndef XCI_CUDA_ENCODE_KERNEL_CUH
#define XCI_CUDA_ENCODE_KERNEL_CUH

#include "backend/cuda/cuda_encode_dense.cuh"
#include "backend/cuda/cuda_encode_finish.cuh"

#define XCI_BLOCK_WARPS 6u /* of a block, at most */
/* Of a multiprocessor: leaves 96 registers. With fewer a loop spills, to an L1 that hardly exists
 * beside so much shared memory. */
#define XCI_LEAST_BLOCKS 3

/* Words [first, first + count) of the list, at most 32, to the tally and the block. */
__device__ __forceinline__ void d_encode_batch(xci_encoder *e, const xci_chunk_job *job,
                                               uint32_t first, uint32_t count, bool lz4) {
    const xci_list *list = &e->memory->list;
    const uint64_t mask = d_lane() < count ? list->masks[first + d_lane()] : 0;
    const uint32_t offset = list->offsets[first + d_lane()];
    const uint32_t changed = d_changed_bytes(mask);
    d_tally_word(&e->memory->tally, &job->keys, job->tops, offset, list->olds[first + d_lane()],
                 mask, (uint32_t)__popc(changed));
    const xci_word word = d_look_at_word(mask, changed, offset, job->bytes);
    if (lz4)
        d_write_words(&e->ring, &e->state, &word, count, job->bytes);
    e->state.first = __shfl_sync(XCI_ALL, word.first, count - 1);
    __syncwarp();
}

/* Full batches of the words listed, or all of them. */
__device__ __forceinline__ void d_encode_batches(xci_encoder *e, const xci_chunk_job *job,
                                                 uint32_t enough, bool lz4) {
    uint32_t first = 0;
#pragma unroll 1
    while (e->listed - first >= enough) {
        const uint32_t count = min(e->listed - first, XCI_WARP);
        d_encode_batch(e, job, first, count, lz4);
        d_flush(e, XCI_ROW - 1);
        first += count;
    }
    e->listed -= first;
    d_move_words(&e->memory->list, first);
}

__device__ __forceinline__ void d_begin_chunk(xci_encoder *e, const xci_chunk_job *job) {
    if (XCI_RARE(job->shifted))
        d_begin_edges(e->feed.memory, job, (uint32_t)d_last_tile(job->bytes));
    e->state.first = job->bytes;
    e->state.size = 0;
    e->state.close = d_close(job->bytes, 0);
    e->memory->tally.counts[d_lane()] = {0, 0};
    e->memory->tally.sums[d_lane()] = {0, 0};
    if (d_lane() == 0)
        e->memory->flushed = 0;
    __syncwarp();
}

/* For raw blocks: the masks of a tile as they are. */
__device__ __forceinline__ void d_store_tile(xci_encoder *e, const xci_stage *stage, uint32_t left,
                                             uint32_t bytes) {
#pragma unroll 1
    for (uint32_t i = XCI_TILE_ROWS; i-- > 0;) {
        if (left + i * XCI_ROW >= bytes)
            continue;
        const uint4 olds = stage->rows[0][i][d_lane()], news = stage->rows[1][i][d_lane()];
        d_store_row(e->call, e->plan->words, &e->memory->parking, d_xor(olds, news));
    }
}

__device__ __forceinline__ void d_tally_half(xci_encoder *e, const xci_chunk_job *job,
                                             uint32_t offset, uint64_t old_word, uint64_t mask) {
    d_tally_word(&e->memory->tally, &job->keys, job->tops, offset, old_word, mask,
                 (uint32_t)__popc(d_changed_bytes(mask)));
}

/* A tile of rows that are literal, once no word is listed. */
__device__ __forceinline__ void d_encode_literals(xci_encoder *e, const xci_chunk_job *job,
                                                  const xci_stage *stage, uint32_t left) {
#pragma unroll 1
    for (uint32_t i = XCI_TILE_ROWS; i-- > 0;) {
        const uint4 olds = stage->rows[0][i][d_lane()];
        const uint4 mask = d_xor(olds, stage->rows[1][i][d_lane()]);
        const uint32_t offset = left + i * XCI_ROW, mine = offset + d_lane() * XCI_VECTOR;
        d_tally_half(e, job, mine, (uint64_t)olds.y << 32 | olds.x,
                     (uint64_t)mask.y << 32 | mask.x);
        d_tally_half(e, job, mine + 8, (uint64_t)olds.w << 32 | olds.z,
                     (uint64_t)mask.w << 32 | mask.z);
        d_write_row(&e->ring, &e->state, mask, offset, job->bytes);
        d_flush(e, XCI_ROW - 1);
    }
}

/* Vectors of old become those of new, if one of four neighbours differs, which `changed` says:
 * memory is written in pieces of 64 bytes. */
__device__ __forceinline__ void d_move_vector(const xci_chunk_job *job, uint32_t offset, uint4 olds,
                                              uint4 mask, uint32_t changed) {
    if ((changed >> (d_lane() & ~3u) & 0xf) != 0 && offset + XCI_VECTOR <= job->bytes)
        *(uint4 *)(job->old_at + offset) = d_xor(olds, mask);
}

/* Lists what differs in the next tile of the chunk, and works on what is listed. Batches are
 * worked on in one place, because they are long. */
template <bool MOVE>
__device__ __forceinline__ void d_encode_tile(xci_encoder *e, const xci_chunk_job *job,
                                              uint32_t left, bool lz4) {
    const xci_stage *stage = d_use_tile(&e->feed);
    if (XCI_RARE(!lz4))
        d_store_tile(e, stage, left, job->bytes);
    uint4 olds[XCI_TILE_ROWS];
    xci_row rows[XCI_TILE_ROWS];
    uint32_t any = 0, all = XCI_ALL;
#pragma unroll
    for (uint32_t i = 0; i < XCI_TILE_ROWS; ++i) {
        olds[i] = stage->rows[0][i][d_lane()];
        rows[i] = d_compare(olds[i], stage->rows[1][i][d_lane()]);
        any |= rows[i].lows | rows[i].highs;
        all &= rows[i].lows & rows[i].highs;
    }
    if (MOVE && any != 0 && job->moves) {
#pragma unroll
        for (uint32_t i = 0; i < XCI_TILE_ROWS; ++i)
            d_move_vector(job, left + i * XCI_ROW + d_lane() * XCI_VECTOR, olds[i], rows[i].mask,
                          rows[i].lows | rows[i].highs);
    }
    bool literal = XCI_RARE(all == XCI_ALL) && lz4;
    if (literal) {
#pragma unroll
        for (uint32_t i = 0; i < XCI_TILE_ROWS; ++i)
            literal = d_is_literal(rows[i].mask) && literal;
    }
    if (any != 0 && !literal) {
#pragma unroll
        for (uint32_t i = XCI_TILE_ROWS; i-- > 0;)
            e->listed = d_list_words(&e->memory->list, e->listed, &rows[i], olds[i],
                                     left + i * XCI_ROW + d_lane() * XCI_VECTOR);
        __syncwarp();
    }
    const uint32_t enough = left == 0 || literal ? 1 : XCI_WARP;
    if (e->listed >= enough)
        d_encode_batches(e, job, enough, lz4);
    if (literal)
        d_encode_literals(e, job, stage, left);
}

template <bool MOVE> __device__ __forceinline__ void d_run_encoder(xci_encoder *e) {
    const bool lz4 = e->call->codec == XORCAST_CODEC_LZ4;
    xci_parking *parking = &e->memory->parking;
    bool begins = true;
#pragma unroll 1
    for (;;) {
        if (XCI_RARE(begins))
            d_ask_for_first<MOVE>(e->call, e->plan, &e->feed);
        if (!d_has_job(e->feed.memory))
            break;
        const xci_chunk_job *job = d_job(e->feed.memory, e->feed.memory->finished);
        d_begin_chunk(e, job);
#pragma unroll 1
        for (int32_t left = d_last_tile(job->bytes); left >= 0; left -= (int32_t)XCI_TILE) {
            d_ask_for_tile<MOVE>(e->call, e->plan, &e->feed, XCI_STAGES - 1);
            d_encode_tile<MOVE>(e, job, (uint32_t)left, lz4);
        }
        begins = !d_finish_chunk(e, job);
        if (XCI_RARE(begins))
            d_rewind(&e->feed);
        else
            d_finish_job(e->feed.memory);
        d_place_parked(e->call, e->plan->words, parking);
    }
    while (parking->count > 0) {
        d_place_parked(e->call, e->plan->words, parking);
        d_pause();
    }
}

__device__ __forceinline__ xci_encoder d_make_encoder(const xci_cuda_encode_call *call,
                                                      const xci_encode_plan *plan, uint8_t *shared,
                                                      uint32_t number) {
    xci_encoder e;
    e.call = call;
    e.plan = plan;
    e.memory = (xci_warp_memory *)shared;
    e.ring.words = (uint32_t *)(shared + sizeof(xci_warp_memory));
    e.ring.mask = plan->ring_bytes - 4;
    d_clear_ring(&e.ring, plan->ring_bytes);
    xci_parking *parking = &e.memory->parking;
    if (d_lane() == 0) {
        parking->slot = plan->slots + (uint64_t)number * plan->slot_rows * XCI_ROW;
        parking->slot_rows = plan->slot_rows;
        parking->first = parking->count = 0;
        parking->row = plan->slot_rows - 1;
        parking->room = plan->slot_rows;
        parking->stored = 0;
        parking->outgrown = false;
        parking->padded = call->codec == XORCAST_CODEC_RAW;
        parking->straight = NULL;
        parking->straight_bytes = 0;
    }
    __syncwarp();
    e.listed = 0;
    e.feed = d_open_feed(&e.memory->feed);
    return e;
}

/* MOVE: old becomes new, as far as d_moves allows. A kernel of its own, because what that takes in
 * the loop over tiles costs up to 1 % where nothing is to move. */
template <bool MOVE>
__global__ void __launch_bounds__(XCI_BLOCK_WARPS *XCI_WARP, XCI_LEAST_BLOCKS)
    k_encode_chunks(const __grid_constant__ xci_cuda_encode_call call,
                    const __grid_constant__ xci_encode_plan plan) {
    XCI_SHARED_MEMORY(shared);
    const uint32_t warp = threadIdx.x / XCI_WARP;
    const uint32_t number = blockIdx.x * (blockDim.x / XCI_WARP) + warp;
    if (number == 0) {
        d_run_sequencer(&call, &plan);
        return;
    }
    xci_encoder encoder = d_make_encoder(
        &call, &plan, (uint8_t *)shared + warp * xci_warp_shared(plan.ring_bytes), number - 1);
    d_run_encoder<MOVE>(&encoder);
}

#endif
