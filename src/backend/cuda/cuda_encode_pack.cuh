/* From the pieces of a chunk to its block in the packed output, and its result. One warp, one
 * piece a lane, the chunk's last piece first: as a batch does it with words
 * (cuda_encode_piece.cuh), since between two pieces, before the first and behind the last lies a
 * zero run. */
#ifndef XCI_CUDA_ENCODE_PACK_CUH
#define XCI_CUDA_ENCODE_PACK_CUH

#include "backend/cuda/cuda_encode_copy.cuh"
#include "backend/cuda/cuda_encode_order.cuh"
#include "backend/cuda/cuda_encode_piece.cuh"

/* The pieces of a chunk as the workers leave them. */
typedef struct xci_pack {
    const xci_chunk_job *job;
    const xci_piece *pieces;
    uint8_t *stage; /* shared memory, XCI_STAGE bytes for each piece */
    uint32_t workers, piece_bytes;
} xci_pack;

/* As much of a piece's end as the packer copies by way of shared memory. */
#define XCI_STAGE 512u
#define XCI_STAGE_GAP 16u /* so that words may be read over the edges */

/* A lane's part of the block, from right to left: `gap` zeros, the run to its right if that is
 * copied, the piece's tail, the token that was left out, the rest of the piece. */
typedef struct xci_joint {
    xci_piece_state piece;
    uint32_t gap;
    xci_run run;
    xci_close run_close, tail_close, own; /* own: of literals to the left of the piece */
    uint32_t at;                          /* distance from the end of the block */
} xci_joint;

/* The block as a whole, the same in all lanes. */
typedef struct xci_block_plan {
    uint32_t lanes; /* whose piece has changes */
    uint32_t first; /* changed byte of the chunk */
    xci_run run;    /* the zeros before it */
    xci_close close;
    uint32_t at, size; /* of what lies left of all pieces; of all */
} xci_block_plan;

__device__ __forceinline__ void d_join_pieces(const xci_pack *pack, xci_joint *joint,
                                              xci_block_plan *plan) {
    const uint32_t bytes = pack->job->bytes, before_me = (1u << d_lane()) - 1;
    const bool mine = d_lane() < pack->workers;
    xci_piece_state *piece = &joint->piece;
    *piece = pack->pieces[mine ? pack->workers - 1 - d_lane() : 0].state;
    const bool active = mine && piece->end != 0;
    plan->lanes = __ballot_sync(XCI_ALL, active);
    const uint32_t right = plan->lanes & before_me;
    const uint32_t right_first =
        __shfl_sync(XCI_ALL, active ? piece->first : 0, right != 0 ? d_highest(right) : 0);
    const uint32_t stop = right != 0 ? right_first : bytes;
    joint->run = d_run(active ? piece->end : 0, active ? stop : 0, bytes);
    const bool closes = active && (joint->run.match != 0 || piece->close.match != 0);
    joint->own.end = active ? piece->end + 1 : 0;
    joint->own.match = joint->run.match;
    if (active && piece->close.match != 0)
        joint->own = piece->close;
    const uint32_t closers = __ballot_sync(XCI_ALL, closes);
    const uint32_t before = closers & before_me;
    const uint32_t lane = before != 0 ? d_highest(before) : 0;
    joint->run_close.end = __shfl_sync(XCI_ALL, joint->own.end, lane);
    joint->run_close.match = __shfl_sync(XCI_ALL, joint->own.match, lane);
    if (before == 0) {
        joint->run_close.end = bytes;
        joint->run_close.match = 0;
    }
    joint->tail_close = joint->run_close;
    joint->gap = active ? stop - piece->end : 0;
    if (joint->run.match != 0) {
        joint->tail_close.end = piece->end + 1;
        joint->tail_close.match = joint->run.match;
        joint->gap = stop - joint->run.anchor;
    }
    const uint32_t left_lane = closers != 0 ? d_highest(closers) : 0;
    plan->close.end = __shfl_sync(XCI_ALL, joint->own.end, left_lane);
    plan->close.match = __shfl_sync(XCI_ALL, joint->own.match, left_lane);
    if (closers == 0) {
        plan->close.end = bytes;
        plan->close.match = 0;
    }
}

/* Size of a lane's part. */
__device__ __forceinline__ uint32_t d_joint_size(const xci_joint *joint) {
    uint32_t size = joint->gap + joint->piece.size;
    if (joint->run.match != 0)
        size += d_head_bytes(joint->run_close.end - joint->run.anchor) +
                d_match_bytes(joint->run.match) + 1;
    if (joint->piece.close.match != 0)
        size += d_head_bytes(joint->tail_close.end - joint->piece.tail_anchor);
    return size;
}

/* What lies left of all pieces: the run before the first change, and the first token. */
__device__ __forceinline__ uint32_t d_left_size(const xci_block_plan *plan) {
    if (plan->run.match == 0)
        return plan->first + d_head_bytes(plan->close.end);
    return plan->first - plan->run.anchor + d_head_bytes(plan->close.end - plan->run.anchor) +
           d_match_bytes(plan->run.match) + 1 + d_head_bytes(1);
}

/* Plans the block; some lane has changes. */
__device__ __forceinline__ void d_plan_block(const xci_pack *pack, xci_joint *joint,
                                             xci_block_plan *plan) {
    const bool active = (plan->lanes >> d_lane() & 1) != 0;
    const uint32_t size = active ? d_joint_size(joint) : 0, sum = d_scan(size);
    joint->at = sum - size;
    plan->at = __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    plan->first = __shfl_sync(XCI_ALL, joint->piece.first, d_highest(plan->lanes));
    plan->run = d_run(0, plan->first, pack->job->bytes);
    plan->size = plan->at + d_left_size(plan);
}

__device__ __forceinline__ const uint8_t *d_slot_end(const xci_pack *pack, uint32_t worker) {
    return pack->job->slot + (worker + 1) * xci_piece_room(pack->piece_bytes);
}

__device__ __forceinline__ const uint8_t *d_stage_end(const xci_pack *pack, uint32_t worker) {
    return pack->stage + (worker + 1) * XCI_STAGE;
}

/* Fetches the ends of all pieces from L2, all at once. */
__device__ __forceinline__ void d_stage_pieces(const xci_pack *pack) {
    for (uint32_t worker = 0; worker < pack->workers; ++worker) {
        const uint32_t bytes = min(pack->pieces[worker].state.size, XCI_STAGE);
        const uint4 *from = (const uint4 *)d_slot_end(pack, worker);
        uint4 *to = (uint4 *)d_stage_end(pack, worker);
        for (uint32_t i = d_lane(); i * XCI_VECTOR < bytes; i += XCI_WARP)
            d_copy_async(to - 1 - i, from - 1 - i);
    }
}

/* Distances [from, to) of a piece, to memory that ends at `end`. */
__device__ __forceinline__ void d_copy_piece(const xci_pack *pack, uint32_t worker, uint8_t *end,
                                             uint32_t from, uint32_t to) {
    const uint32_t middle = max(from, min(to, XCI_STAGE));
    if (to > middle)
        d_copy(end - (to - from), d_slot_end(pack, worker) - to, to - middle);
    if (middle > from)
        d_copy_near(end - (middle - from), d_stage_end(pack, worker) - middle, middle - from);
}

/* The bytes of all pieces. `at` is where each lane's piece begins, `hole` the bytes between its
 * tail and its rest. */
__device__ __forceinline__ void d_copy_pieces(const xci_pack *pack, const xci_joint *joint,
                                              uint32_t lanes, uint8_t *end, uint32_t at,
                                              uint32_t hole) {
    const xci_piece_state *piece = &joint->piece;
    const uint32_t tail = piece->close.match != 0 ? piece->tail_size : piece->size;
    while (lanes != 0) {
        const uint32_t lane = d_highest(lanes), worker = pack->workers - 1 - lane;
        lanes ^= 1u << lane;
        const uint32_t size = __shfl_sync(XCI_ALL, piece->size, lane);
        const uint32_t middle = __shfl_sync(XCI_ALL, tail, lane);
        uint8_t *to = end - __shfl_sync(XCI_ALL, at, lane);
        d_copy_piece(pack, worker, to, 0, middle);
        to -= middle + __shfl_sync(XCI_ALL, hole, lane);
        if (size > middle)
            d_copy_piece(pack, worker, to, middle, size);
    }
}

__device__ __forceinline__ void d_write_lz4(const xci_pack *pack, const xci_joint *joint,
                                            const xci_block_plan *plan, uint8_t *block) {
    const xci_sink sink = {block + plan->size, UINT32_MAX};
    xci_fill fills[3] = {{0, 0}, {0, 0}, {0, 0}};
    uint32_t at = joint->at, hole = 0;
    if ((plan->lanes >> d_lane() & 1) != 0) {
        const xci_piece_state *piece = &joint->piece;
        at = d_put_zeros(sink, at, joint->gap);
        if (joint->run.match != 0) {
            at = d_put_head(sink, at, joint->run_close.end - joint->run.anchor,
                            joint->run_close.match, &fills[0]);
            at = d_put_match(sink, at, joint->run.match, &fills[1]);
        }
        if (piece->close.match != 0)
            hole =
                d_put_head(sink, at + piece->tail_size, joint->tail_close.end - piece->tail_anchor,
                           joint->tail_close.match, &fills[2]) -
                at - piece->tail_size;
    }
    for (uint32_t i = 0; i < 3; ++i)
        d_put_fills(sink, &fills[i]);
    d_copy_pieces(pack, joint, plan->lanes, sink.base, at, hole);
    fills[0].count = fills[1].count = 0;
    if (d_lane() == 0 && plan->run.match == 0) {
        at = d_put_zeros(sink, plan->at, plan->first);
        d_put_head(sink, at, plan->close.end, plan->close.match, &fills[0]);
    } else if (d_lane() == 0) {
        xci_fill none;
        at = d_put_zeros(sink, plan->at, plan->first - plan->run.anchor);
        at = d_put_head(sink, at, plan->close.end - plan->run.anchor, plan->close.match, &fills[0]);
        at = d_put_match(sink, at, plan->run.match, &fills[1]);
        d_put_head(sink, at, 1, plan->run.match, &none);
    }
    d_put_fills(sink, &fills[0]);
    d_put_fills(sink, &fills[1]);
}

/* A piece of a raw block. A piece without a match is the bytes from its first change to its last;
 * of another the bytes are formed again, which is rare: such blocks are seldom raw. */
__device__ __forceinline__ void d_write_raw_piece(const xci_pack *pack, uint32_t worker,
                                                  uint8_t *block) {
    const xci_chunk_job *job = pack->job;
    const xci_piece_state *piece = &pack->pieces[worker].state;
    const uint32_t begin = min(worker * pack->piece_bytes, job->bytes);
    const uint32_t end = min(begin + pack->piece_bytes, job->bytes);
    if (piece->end == 0) {
        d_clear(block + begin, end - begin);
    } else if (piece->close.match == 0) {
        d_clear(block + begin, piece->first - begin);
        d_copy_piece(pack, worker, block + piece->end, 0, piece->size);
        d_clear(block + piece->end, end - piece->end);
    } else {
        for (uint32_t i = begin + d_lane(); i < end; i += XCI_WARP)
            block[i] = job->old_at[i] ^ job->new_at[i];
    }
}

/* Writes the block of a chunk that has changes; `wanted` is the call's codec, `codec` the
 * block's. */
__device__ __forceinline__ void d_write_block(const xci_pack *pack, const xci_joint *joint,
                                              const xci_block_plan *plan, uint32_t codec,
                                              uint32_t wanted, uint8_t *block) {
    if (wanted == XORCAST_CODEC_RAW) {
        d_copy(block, pack->job->slot, pack->job->bytes);
        return;
    }
    d_stage_pieces(pack);
    d_copy_async_wait();
    __syncwarp();
    if (codec == XORCAST_CODEC_LZ4) {
        d_write_lz4(pack, joint, plan, block);
    } else {
        for (uint32_t worker = 0; worker < pack->workers; ++worker)
            d_write_raw_piece(pack, worker, block);
    }
}

/* Adds up the lanes' tallies. */
__device__ __forceinline__ void d_set_counts(xci_cuda_result *result, const xci_cuda_tally *tally,
                                             bool active) {
    result->bits_changed = d_sum(active ? tally->bits : 0);
    result->bytes_changed = d_sum(active ? tally->bytes : 0);
    result->elements_changed = d_sum(active ? tally->elements : 0);
    result->change.lane[0] = d_sum64(active ? tally->low : 0);
    result->change.lane[1] = d_sum64(active ? tally->high : 0);
}

/* Size and codec of the block of a chunk whose pieces are done; the parts of a block in LZ4. */
__device__ __forceinline__ void d_size_block(const xci_pack *pack, uint32_t codec, xci_joint *joint,
                                             xci_block_plan *plan, uint32_t *codec_out) {
    d_join_pieces(pack, joint, plan);
    *codec_out = codec;
    plan->size = 0;
    if (plan->lanes == 0)
        return;
    if (codec == XORCAST_CODEC_LZ4)
        d_plan_block(pack, joint, plan);
    if (codec != XORCAST_CODEC_LZ4 || plan->size >= pack->job->bytes) {
        *codec_out = XORCAST_CODEC_RAW;
        plan->size = pack->job->bytes;
    }
}

/* Sets the result of a chunk but for what depends on its place. */
__device__ __forceinline__ void d_set_result(const xci_pack *pack, const xci_block_plan *plan,
                                             uint32_t codec, xci_cuda_result *result_out) {
    const bool active = (plan->lanes >> d_lane() & 1) != 0;
    const xci_cuda_tally tally = pack->pieces[active ? pack->workers - 1 - d_lane() : 0].tally;
    xci_cuda_result result;
    d_set_counts(&result, &tally, active);
    result.block_bytes = plan->size;
    result.block_codec = codec;
    result.block_offset = 0;
    result.status = XORCAST_OK;
    result.reserved = 0;
    if (d_lane() == 0)
        *result_out = result;
}

/* The place in the output. Returns whether the block fits there. One lane. */
__device__ __forceinline__ bool d_set_place(xci_cuda_result *result, uint32_t bytes, uint64_t place,
                                            uint64_t capacity) {
    const bool fits = bytes == 0 || place + bytes <= capacity;
    result->block_offset = place;
    if (!fits)
        result->status = XORCAST_BUFFER_TOO_SMALL;
    return fits;
}

#endif
