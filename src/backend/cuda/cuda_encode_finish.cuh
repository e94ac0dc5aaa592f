/* From what a warp has written of a chunk to its block and result: the beginning of the block, the
 * size, and a block that is not in the slot. */
#ifndef XCI_CUDA_ENCODE_FINISH_CUH
#define XCI_CUDA_ENCODE_FINISH_CUH

#include "backend/cuda/cuda_encode_state.cuh"

/* What lies left of the first change: a run of zeros and the first token. */
__device__ __forceinline__ uint32_t d_left_size(const xci_block_state *state, xci_run run) {
    const uint32_t head = 1 + d_length(d_close_end(state->close) - run.anchor).count;
    const uint32_t zeros = state->first - run.anchor;
    if (run.match == 0)
        return state->first + 1 + d_length(d_close_end(state->close)).count;
    return zeros + head + d_match_length(run.match).count + 3 + 1;
}

/* Writes it; of a block that becomes raw, the zeros only. One lane. */
__device__ __forceinline__ void d_put_left(const xci_ring *ring, const xci_block_state *state,
                                           xci_run run, bool raw) {
    const uint32_t zeros = state->first - (run.match != 0 ? run.anchor : 0);
    uint32_t at = state->size + zeros;
    d_put_zeros(ring, 0u - at, zeros);
    if (raw)
        return;
    const uint32_t anchor = run.match != 0 ? run.anchor : 0;
    at = d_put_head(ring, at, d_close_end(state->close) - anchor, state->close);
    if (run.match != 0)
        d_put_head(ring, d_put_match(ring, at, run.match), 1, d_match_code(run.match));
}

/* How a chunk's block came out. */
typedef struct xci_outcome {
    uint32_t bytes, codec;
    bool stored; /* in the slot; or written straight */
    bool moved;  /* old is new */
} xci_outcome;

__device__ __forceinline__ void d_clear_ring(const xci_ring *ring, uint32_t bytes) {
#pragma unroll 1
    for (uint32_t i = d_lane(); i < (bytes + XCI_RING_SPILL) / XCI_VECTOR; i += XCI_WARP)
        ((uint4 *)ring->words)[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
}

/* Completes the LZ4 block of a chunk that has changed. A block without any copy is its literals,
 * and so is a raw block: it can be had without reading the chunk again. One with copies that is to
 * be raw cannot: of that, old must be what it was. */
__device__ __forceinline__ xci_outcome d_complete_lz4(xci_encoder *e, const xci_chunk_job *job) {
    const uint32_t bytes = job->bytes;
    xci_block_state *state = &e->state;
    const xci_run run = d_run(0, state->first, bytes);
    const uint32_t size = state->size + d_left_size(state, run);
    const bool raw = size >= bytes, literal = (run.match | (state->close & XCI_COPIES)) == 0;
    xci_outcome outcome = {size, XORCAST_CODEC_LZ4, true, job->moves};
    if (raw)
        outcome = {bytes, XORCAST_CODEC_RAW, literal, literal && job->moves};
    if (raw && !literal && !job->moves) {
        d_clear_ring(&e->ring, e->plan->ring_bytes);
        return outcome;
    }
    if (d_lane() == 0)
        d_put_left(&e->ring, state, run, raw && literal);
    __syncwarp();
    state->size = raw && literal ? bytes : size;
    d_flush(e, 0);
    if (raw && !literal)
        d_take_slot_back(&e->memory->parking, d_end_row(&e->memory->parking), size,
                         XORCAST_CODEC_LZ4, job->old_at);
    outcome.stored = outcome.stored && !e->memory->parking.outgrown;
    return outcome;
}

__device__ __forceinline__ xci_outcome d_complete_block(xci_encoder *e, const xci_chunk_job *job) {
    if (e->state.first == job->bytes)
        return {0, e->call->codec, false, false};
    if (e->call->codec == XORCAST_CODEC_LZ4)
        return d_complete_lz4(e, job);
    return {job->bytes, XORCAST_CODEC_RAW, !e->memory->parking.outgrown, job->moves};
}

/* Sets the result of a chunk but for what depends on its place. */
__device__ __forceinline__ void d_set_result(const xci_encode_tally *tally,
                                             const xci_outcome *outcome,
                                             xci_cuda_result *result_out) {
    xci_cuda_result result;
    result.bits_changed = d_sum(tally->counts[d_lane()].bits);
    result.bytes_changed = d_sum(tally->counts[d_lane()].bytes_elements & 0xffff);
    result.elements_changed = d_sum(tally->counts[d_lane()].bytes_elements >> 16);
    result.change.lane[0] = d_sum64(tally->sums[d_lane()].low);
    result.change.lane[1] = d_sum64(tally->sums[d_lane()].high);
    result.block_bytes = outcome->bytes;
    result.block_codec = outcome->codec;
    result.block_offset = 0;
    result.status = XORCAST_OK;
    result.moved = outcome->moved;
    if (d_lane() == 0)
        *result_out = result;
}

/* The mask of a chunk, formed again, to its place. */
static __device__ __noinline__ void d_write_raw(const xci_chunk_job *job, uint8_t *block) {
    for (uint32_t offset = d_lane() * XCI_VECTOR; offset < job->bytes; offset += XCI_ROW) {
        const uint4 olds = d_load_inside(job->old_at, job->bytes, (int32_t)offset);
        const uint4 news = d_load_inside(job->new_at, job->bytes, (int32_t)offset);
        d_store_edge(block, (int32_t)offset, job->bytes, d_xor(olds, news));
    }
}

/* Where a block goes that is not in the slot: once all before it are written. */
__device__ __forceinline__ uint8_t *d_await_place(xci_encoder *e, uint64_t index, uint32_t bytes) {
    xci_parking *parking = &e->memory->parking;
    while (parking->count > 0) {
        d_place_parked(e->call, e->plan->words, parking);
        d_pause();
    }
    return d_wait_for_place(e->call, e->plan->words, index, bytes);
}

/* The end of old that is no whole vector. */
__device__ __forceinline__ void d_move_end(const xci_chunk_job *job) {
    const uint32_t at = job->bytes / XCI_VECTOR * XCI_VECTOR + d_lane();
    if (job->moves && at < job->bytes)
        job->old_at[at] = job->new_at[at];
}

/* The chunk's tiles are done. False: its block outgrew the slot, has its place now, and is to be
 * made a second time, straight into it. */
__device__ __forceinline__ bool d_finish_chunk(xci_encoder *e, const xci_chunk_job *job) {
    xci_parking *parking = &e->memory->parking;
    d_move_end(job);
    const xci_outcome outcome = d_complete_block(e, job);
    if (XCI_RARE(parking->straight != NULL)) {
        __syncwarp();
        if (d_lane() == 0)
            parking->straight = NULL;
        __syncwarp();
        return true;
    }
    d_say_size(e->plan->words, job->index, outcome.bytes);
    d_set_result(&e->memory->tally, &outcome, &e->call->results[job->index]);
    __syncwarp();
    if (XCI_RARE(!outcome.stored) && d_lane() == 0)
        d_drop_rows(parking);
    __syncwarp();
    if (XCI_USUAL(outcome.stored || outcome.bytes == 0)) {
        d_park(e->call, e->plan->words, parking, job->index, outcome.bytes);
        return true;
    }
    uint8_t *block = d_await_place(e, job->index, outcome.bytes);
    if (block == NULL)
        return true;
    if (outcome.codec == XORCAST_CODEC_RAW) {
        d_write_raw(job, block);
        return true;
    }
    if (d_lane() == 0) {
        parking->straight = block;
        parking->straight_bytes = outcome.bytes;
    }
    __syncwarp();
    return false;
}

#endif
