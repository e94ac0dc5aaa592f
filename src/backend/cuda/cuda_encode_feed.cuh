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
    uint16_t unit; /* both old and new are aligned to: 1, 4, 8 or 16 */
    bool moves;    /* old becomes new */
} xci_chunk_job;

/* One tile: rows of old and of new. */
typedef struct xci_stage {
    uint4 rows[2][XCI_TILE_ROWS][XCI_WARP];
} xci_stage;

/* The part of a warp's shared memory that is about its input. */
typedef struct __align__(16) xci_feed_memory {
    xci_stage stages[XCI_STAGES];
    const uint8_t *old_at, *new_at; /* of the chunk of which tiles are being asked for */
    xci_chunk_job jobs[XCI_JOBS];
    uint32_t taken, begun, finished; /* chunks; begun: tiles have been asked for */
    int32_t plain; /* the tile behind the last look that can be asked for without looking */
    int32_t left;  /* the tile that must be looked at, in the last chunk begun; negative: none */
    bool more;     /* chunks */
}
xci_feed_memory;

typedef struct xci_feed {
    xci_feed_memory *memory;
    int32_t plain; /* where the next tile begins, if it is inside its chunk and aligned; else < 0 */
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

__device__ __forceinline__ uint32_t d_unit_of(uintptr_t address) {
    return address % 16 == 0 ? 16 : address % 8 == 0 ? 8 : address % 4 == 0 ? 4 : 1;
}

/* Whether old becomes new while a chunk is worked on. What is gone is had back from the block only:
 * so the warp's slot must take any, and once one did not fit into the output, more will not. */
__device__ __forceinline__ bool d_moves(const xci_cuda_encode_call *call,
                                        const xci_encode_plan *plan, uint32_t bytes) {
    const uint32_t most = bytes + bytes / 255 + 16;
    return call->move != 0 && most <= plan->slot_rows * XCI_ROW &&
           d_load_shared_word(plan->full) == 0;
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
    job->moves = d_moves(call, plan, chunk.bytes);
    job->tops = d_element_tops(chunk.element_bytes);
    job->unit = (uint16_t)d_unit_of((uintptr_t)job->old_at | (uintptr_t)job->new_at);
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

/* Some bytes, at most sixteen, as a vector, and zeros behind them. */
static __device__ __noinline__ uint4 d_load_bytes(const uint8_t *from, uint32_t count) {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < XCI_VECTOR; ++i)
        words[i / 4] |= (i < count ? (uint32_t)from[i] : 0) << i % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Sixteen bytes at any address, in two aligned vectors that may be read. */
__device__ __forceinline__ uint4 d_load_shifted(const uint8_t *from) {
    const uint32_t shift = (uint32_t)((uintptr_t)from % XCI_VECTOR);
    const uint4 *at = (const uint4 *)(from - shift);
    const uint4 low = d_load_once(at), high = d_load_once(at + 1);
    return d_shift_vector(low, high, shift);
}

/* Bytes of a chunk from `offset` on, at most sixteen. */
__device__ __forceinline__ uint32_t d_bytes_left(uint32_t offset, uint32_t bytes) {
    return offset < bytes ? min(bytes - offset, XCI_VECTOR) : 0;
}

/* A vector of old and of new, of any alignment; bytes outside the chunk are zero. */
__device__ __forceinline__ void d_load_vectors(const xci_chunk_job *job, uint32_t offset,
                                               uint4 *olds, uint4 *news) {
    const uint32_t count = d_bytes_left(offset, job->bytes);
    if (offset >= XCI_VECTOR && offset + 2 * XCI_VECTOR <= job->bytes) {
        *olds = d_load_shifted(job->old_at + offset);
        *news = d_load_shifted(job->new_at + offset);
    } else {
        *olds = d_load_bytes(job->old_at + offset, count);
        *news = d_load_bytes(job->new_at + offset, count);
    }
}

/* Loads a tile of a chunk that is not aligned. */
__device__ __forceinline__ void d_load_tile(const xci_chunk_job *job, xci_stage *stage,
                                            uint32_t left) {
#pragma unroll 1
    for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row) {
        uint4 olds, news;
        d_load_vectors(job, left + row * XCI_ROW + d_lane() * XCI_VECTOR, &olds, &news);
        stage->rows[0][row][d_lane()] = olds;
        stage->rows[1][row][d_lane()] = news;
    }
}

/* Asks for a tile UNIT bytes at a time. Vectors that reach over the chunk's end are loaded. */
template <uint32_t UNIT>
__device__ __forceinline__ void d_ask_for_units(const xci_chunk_job *job, xci_stage *stage,
                                                uint32_t left) {
#pragma unroll 1
    for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row) {
        const uint32_t offset = left + row * XCI_ROW + d_lane() * XCI_VECTOR;
        uint4 *olds = &stage->rows[0][row][d_lane()], *news = &stage->rows[1][row][d_lane()];
        if (offset + XCI_VECTOR > job->bytes) {
            *olds = d_load_bytes(job->old_at + offset, d_bytes_left(offset, job->bytes));
            *news = d_load_bytes(job->new_at + offset, d_bytes_left(offset, job->bytes));
            continue;
        }
#pragma unroll
        for (uint32_t i = 0; i < XCI_VECTOR; i += UNIT) {
            d_copy_async<UNIT>((uint8_t *)olds + i, job->old_at + offset + i);
            d_copy_async<UNIT>((uint8_t *)news + i, job->new_at + offset + i);
        }
    }
}

/* Goes on to the next chunk. Returns whether there is any. */
__device__ __forceinline__ bool d_begin_next(const xci_cuda_encode_call *call,
                                             const xci_encode_plan *plan,
                                             xci_feed_memory *memory) {
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

/* Asks for the next tile, where it needs a look: the last of the next chunk, if there is one, or
 * one that is not aligned to vectors. One that is not aligned to four bytes does not come ahead.
 * Leaves what comes behind. */
static __device__ __noinline__ void d_look_ahead(const xci_cuda_encode_call *call,
                                                 const xci_encode_plan *plan,
                                                 xci_feed_memory *memory, xci_stage *stage) {
    const bool some = memory->left >= 0 || d_begin_next(call, plan, memory);
    const xci_chunk_job *job = d_job(memory, memory->begun - 1);
    const int32_t left = memory->left;
    __syncwarp();
    if (some && job->unit == XCI_VECTOR)
        d_ask_for_units<XCI_VECTOR>(job, stage, (uint32_t)left);
    else if (some && job->unit == 8)
        d_ask_for_units<8>(job, stage, (uint32_t)left);
    else if (some && job->unit == 4)
        d_ask_for_units<4>(job, stage, (uint32_t)left);
    else if (some)
        d_load_tile(job, stage, (uint32_t)left);
    if (d_lane() == 0) {
        const int32_t next = some ? left - (int32_t)XCI_TILE : -1;
        const bool plain = some && job->unit == XCI_VECTOR;
        memory->plain = plain ? next : -1;
        memory->left = plain ? -1 : next;
        memory->old_at = job->old_at;
        memory->new_at = job->new_at;
    }
    __syncwarp();
}

/* Asks for the next tile, if there is one, `ahead` stages from the one to use. Called STAGES - 1
 * times before the first tile is used, and then once for each: so the tile to use is there when
 * all but the last STAGES - 1 groups are. */
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
            d_copy_async<XCI_VECTOR>(&stage->rows[0][row][d_lane()], olds + row * XCI_ROW);
            d_copy_async<XCI_VECTOR>(&stage->rows[1][row][d_lane()], news + row * XCI_ROW);
        }
        feed->plain -= (int32_t)XCI_TILE;
    } else {
        d_look_ahead(call, plan, memory, stage);
        feed->plain = memory->plain;
    }
    d_copy_async_group();
}

__device__ __forceinline__ void d_ask_for_first(const xci_cuda_encode_call *call,
                                                const xci_encode_plan *plan, xci_feed *feed) {
#pragma unroll 1
    for (uint32_t i = 0; i < XCI_STAGES - 1; ++i)
        d_ask_for_tile(call, plan, feed, i);
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
