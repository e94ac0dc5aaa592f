/* What a warp works on: chunks, in order, from a counter that all warps share, and the rows of
 * old and new, which come to shared memory ahead of the work and need no registers meanwhile.
 * Tiles run ahead over the end of a chunk: the next one is taken when the last tile of this one
 * has been asked for. From the end of a chunk to its beginning, as the writer goes.
 *
 * Bytes outside the chunk are never read; they are zero. */
#ifndef XCI_CUDA_ENCODE_FEED_CUH
#define XCI_CUDA_ENCODE_FEED_CUH

#include "backend/cuda/cuda_encode_tally.cuh"

#define XCI_VECTOR 16u
#define XCI_ROW (XCI_WARP * XCI_VECTOR)
#define XCI_TILE_ROWS 2u
#define XCI_TILE (XCI_TILE_ROWS * XCI_ROW)
#define XCI_STAGES 3u
/* Chunks taken and not finished: one more than there are stages, so that tiles of small chunks
 * fill these. A power of two. */
#define XCI_JOBS 4u

/* What the launcher decides. `words` has one word a chunk, all 0 at first, as are the others. */
typedef struct xci_encode_plan {
    uint64_t *counter, *words;
    uint64_t *full;      /* becomes 1 when a block does not fit into the output */
    uint8_t *slots;      /* one a warp, but for the first warp of the grid */
    uint32_t slot_rows;  /* of one slot */
    uint32_t ring_bytes; /* of a warp; a power of two */
} xci_encode_plan;

typedef struct xci_chunk_job {
    uint8_t *old_at;
    const uint8_t *new_at;
    uint64_t index; /* counted from the call's first */
    uint32_t bytes, tops;
    xci_cuda_keys keys;
    bool shifted; /* old or new do not begin at a vector */
    bool moves;   /* old becomes new */
} xci_chunk_job;

/* One tile: rows of old and of new. */
typedef struct xci_stage {
    uint4 rows[2][XCI_TILE_ROWS][XCI_WARP];
} xci_stage;

/* The part of a warp's shared memory that is about its input. */
typedef struct __align__(16) xci_feed_memory {
    xci_stage stages[XCI_STAGES];
    const uint8_t *old_at, *new_at; /* of the chunk of which tiles are being asked for */
    uint4 edges[2]; /* of old and new: what a shifted tile needs of the one to its right */
    xci_chunk_job jobs[XCI_JOBS];
    uint32_t taken, begun, finished; /* chunks; begun: tiles have been asked for */
    int32_t plain; /* the tile behind the last look that can be asked for without looking */
    int32_t left;  /* the tile that must be looked at, in the last chunk begun; negative: none */
    bool more;     /* chunks */
}
xci_feed_memory;

typedef struct xci_feed {
    xci_feed_memory *memory;
    int32_t plain; /* where the next tile begins, if it can be asked for unseen; else < 0 */
    uint32_t from; /* the stage to use next */
} xci_feed;

__device__ __forceinline__ xci_feed d_open_feed(xci_feed_memory *memory) {
    xci_feed feed;
    feed.memory = memory;
    feed.plain = -1;
    feed.from = 0;
    if (d_lane() == 0) {
        memory->taken = memory->begun = memory->finished = 0;
        memory->plain = memory->left = -1;
        memory->more = true;
    }
    __syncwarp();
    return feed;
}

/* How far a byte is behind a multiple of a vector. */
__device__ __forceinline__ uint32_t d_shift_of(const uint8_t *at) {
    return (uint32_t)((uintptr_t)at % XCI_VECTOR);
}

/* Whether old becomes new while a chunk is worked on. What is gone is had back from the block only:
 * so the warp's slot must take any, and once one did not fit into the output, more will not. */
__device__ __forceinline__ bool d_moves(const xci_cuda_encode_call *call,
                                        const xci_encode_plan *plan, const xci_chunk_job *job) {
    const uint32_t most = job->bytes + job->bytes / 255 + 16;
    return call->move != 0 && d_shift_of(job->old_at) == 0 &&
           most <= plan->slot_rows * XCI_ROW && d_load_shared_word(plan->full) == 0;
}

/* The next chunk. Returns whether there was one. The warp's lane 0. */
__device__ __forceinline__ bool d_take_chunk(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan, xci_chunk_job *job) {
    const uint64_t index = atomicAdd((unsigned long long *)plan->counter, 1ull);
    if (index >= call->count)
        return false;
    const uint64_t number = call->first + index;
    const xci_cuda_chunk chunk = call->grid.chunks[number];
    job->index = index;
    job->old_at = call->old_at[number];
    job->new_at = call->new_at[number];
    job->bytes = chunk.bytes;
    job->moves = d_moves(call, plan, job);
    job->tops = d_element_tops(chunk.element_bytes);
    job->shifted = (d_shift_of(job->old_at) | d_shift_of(job->new_at)) != 0;
    job->keys.segments = call->grid.segments + chunk.segment_first;
    job->keys.count = chunk.segment_count;
    job->keys.whole = false;
    job->keys.first_key = 0;
    if (chunk.segment_count == 1) {
        const xci_cuda_segment segment = *job->keys.segments;
        job->keys.whole = segment.offset == 0 && segment.bytes >= chunk.bytes;
        job->keys.first_key = segment.key;
    }
    return true;
}

__device__ __forceinline__ xci_chunk_job *d_job(xci_feed_memory *memory, uint32_t number) {
    return &memory->jobs[number % XCI_JOBS];
}

/* Where the last tile of a chunk begins. */
__device__ __forceinline__ int32_t d_last_tile(uint32_t bytes) {
    return (int32_t)((bytes - 1) / XCI_TILE * XCI_TILE);
}

/* Sixteen bytes of a chunk, from `from` on, as a vector: those outside of it are zero. */
static __device__ __noinline__ uint4 d_load_inside(const uint8_t *chunk, uint32_t bytes,
                                                   int32_t from) {
    uint32_t words[4] = {0, 0, 0, 0};
    if (from >= 0 && from + XCI_VECTOR <= bytes && d_shift_of(chunk + from) == 0)
        return d_load_once((const uint4 *)(chunk + from));
#pragma unroll
    for (int32_t i = 0; i < (int32_t)XCI_VECTOR; ++i)
        if (from + i >= 0 && from + i < (int32_t)bytes)
            words[i / 4] |= (uint32_t)chunk[from + i] << i % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Asks for a lane's vector of a row; one that is not all inside the chunk is loaded. Of a chunk
 * that is shifted, the aligned one that the first of its bytes lies in. */
template <bool ONCE>
__device__ __forceinline__ void d_ask_for_vector(uint4 *to, const uint8_t *chunk, uint32_t bytes,
                                                 uint32_t offset) {
    const int32_t from = (int32_t)offset - (int32_t)d_shift_of(chunk);
    if (from >= 0 && from + XCI_VECTOR <= bytes)
        d_copy_async<ONCE>(to, chunk + from);
    else
        *to = d_load_inside(chunk, bytes, from);
}

/* ---- Chunks that are shifted ----
 * Their tiles come as the aligned vectors that they lie in, and are put right when they are used.
 * A row's last vector ends in the next row, a tile's last one in the tile to its right, which was
 * used before. */

/* Before the last tile of a chunk, at `left`, is used. */
__device__ __forceinline__ void d_begin_edges(xci_feed_memory *memory, const xci_chunk_job *job,
                                              uint32_t left) {
    const uint8_t *const chunk = d_lane() == 0 ? job->old_at : job->new_at;
    if (d_lane() < 2)
        memory->edges[d_lane()] = d_load_inside(
            chunk, job->bytes, (int32_t)(left + XCI_TILE) - (int32_t)d_shift_of(chunk));
    __syncwarp();
}

__device__ __forceinline__ uint4 d_first_vector(uint4 v) {
    return make_uint4(__shfl_sync(XCI_ALL, v.x, 0), __shfl_sync(XCI_ALL, v.y, 0),
                      __shfl_sync(XCI_ALL, v.z, 0), __shfl_sync(XCI_ALL, v.w, 0));
}

/* Puts the rows of a tile right, of which each lane has its vectors. */
static __device__ __noinline__ void d_shift_rows(uint4 rows[XCI_TILE_ROWS][XCI_WARP], uint4 *edge,
                                                 uint32_t shift) {
    uint4 behind = *edge;
#pragma unroll 1
    for (uint32_t i = XCI_TILE_ROWS; i-- > 0;) {
        const uint4 mine = rows[i][d_lane()], next = d_next_vector(mine);
        const uint4 first = d_first_vector(mine);
        rows[i][d_lane()] = d_shift_vector(mine, d_lane() + 1 < XCI_WARP ? next : behind, shift);
        behind = first;
    }
    __syncwarp();
    if (d_lane() == 0)
        *edge = behind;
    __syncwarp();
}

/* Goes on to the next chunk. Returns whether there is any. */
__device__ __forceinline__ bool d_begin_next(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan, xci_feed_memory *memory) {
    const uint32_t begun = memory->begun, taken = memory->taken;
    bool some = begun < taken || memory->more;
    if (begun == taken && some && d_lane() == 0)
        some = d_take_chunk(call, plan, d_job(memory, taken));
    __syncwarp();
    some = __shfl_sync(XCI_ALL, some, 0);
    if (d_lane() == 0) {
        memory->more = some;
        memory->begun = begun + some;
        memory->taken = taken + (begun == taken && some);
        memory->left = some ? d_last_tile(d_job(memory, begun)->bytes) : -1;
    }
    __syncwarp();
    return some;
}

/* Whether a chunk that is being used, or of which tiles are on their way, is shifted. */
__device__ __forceinline__ bool d_any_shifted(xci_feed_memory *memory) {
    bool any = false;
    for (uint32_t i = memory->finished; i != memory->begun; ++i)
        any = any || d_job(memory, i)->shifted;
    return any;
}

/* What comes behind the tile at `left`. While there are shifted chunks every tile takes a look,
 * since that is when they are put right. One lane. */
__device__ __forceinline__ void d_plan_ahead(xci_feed_memory *memory, const xci_chunk_job *job,
                                             int32_t left) {
    const int32_t next = left - (int32_t)XCI_TILE;
    const bool looks = d_any_shifted(memory);
    memory->plain = looks ? -1 : next;
    memory->left = looks ? next : -1;
    memory->old_at = job->old_at;
    memory->new_at = job->new_at;
}

/* Asks for the next tile, where it needs a look: the last of the next chunk, if there is one, or
 * any while there are shifted chunks. Leaves what comes behind. */
static __device__ __noinline__ void d_look_ahead(const xci_cuda_encode_call *call,
                                                 const xci_encode_plan *plan,
                                                 xci_feed_memory *memory, xci_stage *stage) {
    const bool some = memory->left >= 0 || d_begin_next(call, plan, memory);
    const xci_chunk_job *job = d_job(memory, memory->begun - 1);
    const int32_t left = memory->left;
    __syncwarp();
#pragma unroll 1
    for (uint32_t row = 0; some && row < XCI_TILE_ROWS; ++row) {
        const uint32_t offset = (uint32_t)left + row * XCI_ROW + d_lane() * XCI_VECTOR;
        d_ask_for_vector<false>(&stage->rows[0][row][d_lane()], job->old_at, job->bytes, offset);
        d_ask_for_vector<true>(&stage->rows[1][row][d_lane()], job->new_at, job->bytes, offset);
    }
    if (d_lane() == 0) {
        memory->plain = memory->left = -1;
        if (some)
            d_plan_ahead(memory, job, left);
    }
    __syncwarp();
}

/* The tile that is used next is put right, if its chunk is shifted. */
static __device__ __noinline__ void d_put_right(xci_feed_memory *memory, xci_stage *stage) {
    const xci_chunk_job *job = d_job(memory, memory->finished);
    if (!job->shifted)
        return;
    d_copy_async_wait<XCI_STAGES - 2>();
    d_shift_rows(stage->rows[0], &memory->edges[0], d_shift_of(job->old_at));
    d_shift_rows(stage->rows[1], &memory->edges[1], d_shift_of(job->new_at));
}

/* Asks for the next tile, if there is one, `ahead` stages from the one to use. Called STAGES - 1
 * times before the first tile is used, and then once for each: so the tile to use is there when
 * all but the last STAGES - 1 groups are. MOVE: old is written soon, and better found in L2. */
template <bool MOVE>
__device__ __forceinline__ void d_ask_for_tile(const xci_cuda_encode_call *call,
                                               const xci_encode_plan *plan, xci_feed *feed,
                                               uint32_t ahead) {
    xci_feed_memory *memory = feed->memory;
    const uint32_t into = feed->from + ahead;
    xci_stage *stage = &memory->stages[into < XCI_STAGES ? into : into - XCI_STAGES];
    if (XCI_USUAL(feed->plain >= 0)) {
        const uint32_t offset = (uint32_t)feed->plain + d_lane() * XCI_VECTOR;
        const uint8_t *olds = memory->old_at + offset, *news = memory->new_at + offset;
#pragma unroll
        for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row) {
            d_copy_async<!MOVE>(&stage->rows[0][row][d_lane()], olds + row * XCI_ROW);
            d_copy_async<true>(&stage->rows[1][row][d_lane()], news + row * XCI_ROW);
        }
        feed->plain -= (int32_t)XCI_TILE;
    } else {
        if (ahead == XCI_STAGES - 1)
            d_put_right(memory, &memory->stages[feed->from]);
        d_look_ahead(call, plan, memory, stage);
        feed->plain = memory->plain;
    }
    d_copy_async_group();
}

template <bool MOVE>
__device__ __forceinline__ void d_ask_for_first(const xci_cuda_encode_call *call,
                                                const xci_encode_plan *plan, xci_feed *feed) {
#pragma unroll 1
    for (uint32_t i = 0; i < XCI_STAGES - 1; ++i)
        d_ask_for_tile<MOVE>(call, plan, feed, i);
}

/* Whether there is a chunk whose tiles are to be used. */
__device__ __forceinline__ bool d_has_job(const xci_feed_memory *memory) {
    return memory->finished != memory->begun;
}

__device__ __forceinline__ void d_finish_job(xci_feed_memory *memory) {
    if (d_lane() == 0)
        ++memory->finished;
    __syncwarp();
}

/* The next tile, once it is there. A lane uses the vectors that it asked for. */
__device__ __forceinline__ const xci_stage *d_use_tile(xci_feed *feed) {
    d_copy_async_wait<XCI_STAGES - 1>();
    const xci_stage *stage = &feed->memory->stages[feed->from];
    feed->from = feed->from + 1 == XCI_STAGES ? 0 : feed->from + 1;
    return stage;
}

/* Makes the chunk come again, and those behind it. */
__device__ __forceinline__ void d_rewind(xci_feed *feed) {
    d_copy_async_wait<0>();
    __syncwarp();
    if (d_lane() == 0) {
        feed->memory->begun = feed->memory->finished;
        feed->memory->plain = feed->memory->left = -1;
    }
    __syncwarp();
    feed->plain = -1;
}

#endif
