/* One warp's share of a chunk: streams it from its end to its beginning, counts what changed, and
 * turns it into the piece of an LZ4 block. Does not know what lies left and right of it: the two
 * sequences that reach over its edges are left to the packer (cuda_encode_pack.cuh).
 *
 * Words that differ are listed in shared memory, with two ballots for each row, and worked on 32 at
 * a time, one a lane. The piece grows backwards in a ring in shared memory, and moves from there to
 * its slot in global memory, which stays in L2.
 *
 *     piece in memory:  literals | match, token, literals | ... | match || literals
 *     `size` bytes      head group                                  hole  tail group, `tail_size`
 *
 * The state of a piece and the lanes' tallies live in shared memory between batches, because
 * registers are needed for rows then, and spilled ones would miss in the little L1 that is left.
 *
 * The token before the tail group depends on what follows the piece, so it is missing: a hole.
 * The head group's token depends on what precedes. A piece without a match is all tail. */
#ifndef XCI_CUDA_ENCODE_PIECE_CUH
#define XCI_CUDA_ENCODE_PIECE_CUH

#include "backend/cuda/cuda_encode_lz4.cuh"
#include "backend/cuda/cuda_encode_stream.cuh"
#include "backend/cuda/cuda_encode_tally.cuh"

#define XCI_RING 2048u
#define XCI_FLUSH XCI_ROW
#define XCI_TILE_ROWS 2u
#define XCI_LIST (32u + XCI_TILE_ROWS * 64u) /* at most 31 words wait, and a row adds 64 */

/* What a batch can add to the ring, without length bytes that grow with the piece: 32 words with
 * their gaps, 64 sequences of four bytes, 17 literal lengths and 32 match lengths of one byte. */
#define XCI_BATCH_BYTES (32 * 8 + 32 * 4 + 16 + 64 * 4 + 17 + 32)
/* Larger pieces' length bytes would not fit the ring. */
#define XCI_LARGEST_PIECE ((XCI_RING - XCI_FLUSH - XCI_BATCH_BYTES) * 255u)

typedef struct xci_list {
    uint64_t masks[XCI_LIST], olds[XCI_LIST];
    uint32_t offsets[XCI_LIST];
    uint4 next[2]; /* of the streams of old and new */
    /* of each lane: bits, bytes, elements changed; lanes of the digest's change */
    uint32_t counts[3][XCI_WARP];
    uint64_t sums[2][XCI_WARP];
} xci_list;

/* How far a piece is. */
typedef struct xci_piece_state {
    uint32_t first, end;    /* from the first to behind the last changed byte; end 0: none */
    uint32_t size, flushed; /* bytes; of these, moved to the slot: in the end, all */
    uint32_t tail_anchor, tail_size;
    xci_close close; /* of the head group; match 0: no match in the piece */
} xci_piece_state;

/* What the packer needs of a piece. */
typedef struct xci_piece {
    xci_piece_state state;
    xci_cuda_tally tally;
} xci_piece;

/* A chunk on its way through a block of threads. */
typedef struct xci_chunk_job {
    const uint8_t *old_at, *new_at;
    uint64_t index;                /* counted from the call's first */
    uint32_t bytes, element_bytes; /* bytes 0: there is no more */
    xci_cuda_keys keys;
    uint8_t *slot;
} xci_chunk_job;

typedef struct xci_piece_work {
    uint32_t job_at, list_at, ring_at,
        piece_at; /* in shared memory; not pointers, so that it is seen to be that */
    uint8_t *slot_end;
    uint32_t ring_limit; /* more than this must not wait in the ring when a batch begins */
} xci_piece_work;

/* Bytes of the piece of each of `workers` warps; the last one's may be less. */
__host__ __device__ static inline uint32_t xci_piece_bytes(uint32_t bytes, uint32_t workers) {
    const uint32_t rows = (bytes + XCI_ROW - 1) / XCI_ROW;
    return (rows + workers - 1) / workers * XCI_ROW;
}

/* Room for it in a slot. */
__host__ __device__ static inline uint32_t xci_piece_room(uint32_t piece_bytes) {
    return (piece_bytes + piece_bytes / 128 + 64 + XCI_FLUSH - 1) / XCI_FLUSH * XCI_FLUSH;
}

__device__ __forceinline__ uint8_t *d_near(uint32_t at) {
    XCI_SHARED_MEMORY(shared);
    return (uint8_t *)shared + at;
}

__device__ __forceinline__ xci_list *d_list(const xci_piece_work *work) {
    return (xci_list *)d_near(work->list_at);
}

__device__ __forceinline__ xci_piece *d_piece(const xci_piece_work *work) {
    return (xci_piece *)d_near(work->piece_at);
}

__device__ __forceinline__ const xci_chunk_job *d_job(const xci_piece_work *work) {
    return (const xci_chunk_job *)d_near(work->job_at);
}

/* Moves whole rows from the ring to the slot until at most `limit` bytes wait. Returns the bytes
 * moved in all. */
__device__ __forceinline__ uint32_t d_flush(const xci_piece_work *work, uint32_t size,
                                            uint32_t flushed, uint32_t limit) {
    const uint8_t *ring = d_near(work->ring_at);
    while (XCI_RARE(flushed + limit < size)) {
        flushed += XCI_FLUSH;
        const uint32_t from = (0u - flushed) % XCI_RING + d_lane() * XCI_VECTOR;
        *(uint4 *)(work->slot_end - flushed + d_lane() * XCI_VECTOR) =
            *(const uint4 *)(ring + from);
    }
    return flushed;
}

/* A lane's word in a batch, as the writer sees it: from right to left the gap to the next word,
 * bytes [right_first, end), and, where five or more zeros part the word, the inner run and bytes
 * [first, left_end). */
typedef struct xci_word {
    uint64_t mask;
    uint32_t offset, first, end, left_end, right_first;
    uint32_t gap; /* zeros that stay literal between the word and what is written already */
    xci_run outer, inner;
    xci_close outer_close, inner_close; /* of the literals to the right of each run */
} xci_word;

__device__ __forceinline__ uint32_t d_head_size(xci_run run, xci_close close) {
    return close.match != 0 ? d_head_bytes(close.end - run.anchor) : 0;
}

__device__ __forceinline__ xci_word d_look_at_word(const xci_list *list, uint32_t place,
                                                   bool active, uint32_t bytes) {
    xci_word word;
    word.mask = active ? list->masks[place] : 1;
    word.offset = active ? list->offsets[place] : 0;
    const uint32_t low = ((uint32_t)__ffsll((long long)word.mask) - 1) / 8;
    const uint32_t high = 8 - (uint32_t)__clzll((long long)word.mask) / 8;
    word.first = word.offset + low;
    word.end = word.offset + high;
    word.left_end = word.right_first = word.first;
    word.inner.match = word.inner.anchor = 0;
    if (XCI_RARE(high - low >= 7 && (word.mask & UINT64_C(0xffffffff0000)) == 0)) {
        const uint32_t left_end = word.offset + ((word.mask & 0xff00) != 0 ? 2 : 1);
        const uint32_t right_first = word.offset + ((word.mask >> 48 & 0xff) != 0 ? 6 : 7);
        const xci_run run = d_run(left_end, right_first, bytes);
        if (run.match != 0) {
            word.inner = run;
            word.left_end = left_end;
            word.right_first = right_first;
        }
    }
    return word;
}

/* Bytes that the lane adds to the piece. */
__device__ __forceinline__ uint32_t d_word_size(const xci_word *word) {
    uint32_t size = word->gap + word->end - word->right_first;
    if (word->outer.match != 0)
        size += d_head_size(word->outer, word->outer_close) + d_match_bytes(word->outer.match) + 1;
    if (XCI_RARE(word->inner.match != 0))
        size += word->right_first - word->inner.anchor +
                d_head_size(word->inner, word->inner_close) + d_match_bytes(word->inner.match) + 1 +
                word->left_end - word->first;
    return size;
}

__device__ __forceinline__ uint32_t d_put_bytes(xci_sink sink, uint32_t at, uint64_t mask,
                                                uint32_t first, uint32_t end) {
    while (end > first) {
        --end;
        d_put(sink, at++, (uint32_t)(mask >> end * 8) & 0xff);
    }
    return at;
}

/* The lane's bytes, from `at` on: right of the inner run, then, where there is one, left of it. A
 * whole warp. */
__device__ __forceinline__ void d_put_word(xci_sink sink, uint32_t at, const xci_word *word,
                                           bool active) {
    uint32_t gap = word->gap, first = word->right_first, end = word->end;
    xci_run run = word->outer;
    xci_close close = word->outer_close;
    bool right = true;
#pragma unroll 1
    while (__any_sync(XCI_ALL, active)) {
        xci_fill fills[2] = {{0, 0}, {0, 0}};
        if (active) {
            at = d_put_zeros(sink, at, gap);
            if (run.match != 0 && close.match != 0)
                at = d_put_head(sink, at, close.end - run.anchor, close.match, &fills[0]);
            if (run.match != 0)
                at = d_put_match(sink, at, run.match, &fills[1]);
            at = d_put_bytes(sink, at, word->mask, first - word->offset, end - word->offset);
        }
        if (XCI_RARE(__any_sync(XCI_ALL, (fills[0].count | fills[1].count) != 0))) {
            d_put_fills(sink, &fills[0]);
            d_put_fills(sink, &fills[1]);
        }
        active = active && right && word->inner.match != 0;
        right = false;
        gap = word->right_first - word->inner.anchor;
        first = word->first;
        end = word->left_end;
        run = word->inner;
        close = word->inner_close;
    }
    __syncwarp();
}

/* The gaps between words, and what closes each run: the nearest run to the right, in an earlier
 * lane or batch. Hands out the lanes that have a run, and each lane's own close. */
__device__ __forceinline__ uint32_t d_join_words(xci_word *word, const xci_piece_state *piece,
                                                 bool active, uint32_t bytes, xci_close *own_out) {
    uint32_t next = __shfl_up_sync(XCI_ALL, word->first, 1);
    next = d_lane() == 0 ? piece->first : next;
    const bool has_next = active && (d_lane() > 0 || piece->end != 0);
    word->outer = d_run(word->end, has_next ? next : word->end, bytes);
    word->gap = !has_next                ? 0
                : word->outer.match != 0 ? next - word->outer.anchor
                                         : next - word->end;
    own_out->end = (word->inner.match != 0 ? word->left_end : word->end) + 1;
    own_out->match = word->inner.match != 0 ? word->inner.match : word->outer.match;
    const uint32_t runs = __ballot_sync(XCI_ALL, active && own_out->match != 0);
    const uint32_t before = runs & ((1u << d_lane()) - 1);
    const uint32_t lane = before != 0 ? d_highest(before) : 0;
    xci_close close;
    close.end = __shfl_sync(XCI_ALL, own_out->end, lane);
    close.match = __shfl_sync(XCI_ALL, own_out->match, lane);
    if (before == 0)
        close = piece->close;
    word->outer_close = word->inner_close = close;
    if (word->outer.match != 0) {
        word->inner_close.end = word->end + 1;
        word->inner_close.match = word->outer.match;
    }
    return runs;
}

/* The first run of a piece: literals up to it are the tail, and no token is written for them. */
__device__ __forceinline__ void d_note_tail(xci_piece_state *piece, const xci_word *word,
                                            uint32_t at, uint32_t lane) {
    const bool outer = word->outer.match != 0;
    const uint32_t anchor = outer ? word->outer.anchor : word->inner.anchor;
    const uint32_t right = outer ? 0 : word->end - word->inner.anchor;
    piece->tail_anchor = __shfl_sync(XCI_ALL, anchor, lane);
    piece->tail_size = __shfl_sync(XCI_ALL, at + word->gap + right, lane);
}

/* Adds the lane's word to its tally. */
__device__ __forceinline__ void d_tally_listed(const xci_piece_work *work, uint32_t place) {
    xci_list *list = d_list(work);
    xci_cuda_tally tally = {0, 0, 0, 0, 0};
    d_tally_word(&tally, &d_job(work)->keys, list->offsets[place], list->olds[place],
                 list->masks[place], d_element_tops(d_job(work)->element_bytes));
    list->counts[0][d_lane()] += tally.bits;
    list->counts[1][d_lane()] += tally.bytes;
    list->counts[2][d_lane()] += tally.elements;
    list->sums[0][d_lane()] += tally.low;
    list->sums[1][d_lane()] += tally.high;
}

/* Words [first, first + count) of the list, at most 32, to the tally and the piece. */
__device__ __forceinline__ void d_encode_batch(const xci_piece_work *work, uint32_t first,
                                               uint32_t count, bool lz4) {
    const uint32_t bytes = d_job(work)->bytes, last = count - 1, place = first + d_lane();
    const bool active = d_lane() < count;
    if (active)
        d_tally_listed(work, place);
    xci_piece_state piece = d_piece(work)->state;
    xci_word word = d_look_at_word(d_list(work), place, active, bytes);
    const uint32_t piece_end = __shfl_sync(XCI_ALL, word.end, 0);
    if (lz4) {
        xci_close own;
        const uint32_t runs = d_join_words(&word, &piece, active, bytes, &own);
        const uint32_t size = active ? d_word_size(&word) : 0, sum = d_scan(size);
        const uint32_t at = piece.size + sum - size;
        if (runs != 0) {
            if (XCI_RARE(piece.close.match == 0))
                d_note_tail(&piece, &word, at, (uint32_t)__ffs((int)runs) - 1);
            const uint32_t lane = d_highest(runs);
            piece.close.end = __shfl_sync(XCI_ALL, own.end, lane);
            piece.close.match = __shfl_sync(XCI_ALL, own.match, lane);
        }
        const xci_sink sink = {d_near(work->ring_at), XCI_RING - 1};
        d_put_word(sink, at, &word, active);
        piece.size += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
        piece.flushed = d_flush(work, piece.size, piece.flushed, work->ring_limit);
    }
    piece.end = piece.end != 0 ? piece.end : piece_end;
    piece.first = __shfl_sync(XCI_ALL, word.first, last);
    __syncwarp();
    if (d_lane() == 0)
        d_piece(work)->state = piece;
    __syncwarp();
}

/* Moves words [first, first + count) of the list, fewer than 32, to its beginning. */
__device__ __forceinline__ void d_move_words(xci_list *list, uint32_t first, uint32_t count) {
    const uint32_t place = first + d_lane();
    uint64_t mask = 0, old_word = 0;
    uint32_t offset = 0;
    if (d_lane() < count) {
        mask = list->masks[place];
        old_word = list->olds[place];
        offset = list->offsets[place];
    }
    __syncwarp();
    if (d_lane() < count) {
        list->masks[d_lane()] = mask;
        list->olds[d_lane()] = old_word;
        list->offsets[d_lane()] = offset;
    }
    __syncwarp();
}

/* Full batches of the `count` words listed, or all of them, to the last, smaller batch. Returns
 * how many are left. */
__device__ __forceinline__ uint32_t d_encode_batches(const xci_piece_work *work, uint32_t count,
                                                     bool all, bool lz4) {
    uint32_t first = 0;
#pragma unroll 1
    while (count - first >= (all ? 1 : XCI_WARP)) {
        const uint32_t words = min(count - first, XCI_WARP);
        d_encode_batch(work, first, words, lz4);
        first += words;
    }
    if (first > 0 && first < count)
        d_move_words(d_list(work), first, count - first);
    return count - first;
}

__device__ __forceinline__ uint4 d_xor(uint4 a, uint4 b) {
    return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

__device__ __forceinline__ uint32_t d_any_bit(uint4 v) {
    return v.x | v.y | v.z | v.w;
}

/* Lists the words that differ of each lane's vector, those of higher lanes first. Returns how
 * many. */
__device__ __forceinline__ uint32_t d_list_words(xci_list *list, uint32_t place, uint4 mask,
                                                 uint4 old_part, uint32_t offset) {
    const uint64_t low = (uint64_t)mask.y << 32 | mask.x, high = (uint64_t)mask.w << 32 | mask.z;
    const uint32_t lows = __ballot_sync(XCI_ALL, low != 0);
    const uint32_t highs = __ballot_sync(XCI_ALL, high != 0);
    if ((lows | highs) == 0)
        return 0;
    const uint32_t above = 0xfffffffeu << d_lane();
    place += (uint32_t)(__popc(lows & above) + __popc(highs & above));
    if (high != 0) {
        const uint32_t i = place++;
        list->masks[i] = high;
        list->olds[i] = (uint64_t)old_part.w << 32 | old_part.z;
        list->offsets[i] = offset + 8;
    }
    if (low != 0) {
        const uint32_t i = place;
        list->masks[i] = low;
        list->olds[i] = (uint64_t)old_part.y << 32 | old_part.x;
        list->offsets[i] = offset;
    }
    return (uint32_t)(__popc(lows) + __popc(highs));
}

/* For raw blocks: the masks as they are, at their place in the chunk's slot. */
__device__ __forceinline__ void d_store_rows(uint8_t *slot, int32_t left, uint32_t bottom,
                                             uint32_t bytes, const uint4 *masks) {
#pragma unroll
    for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row) {
        const int32_t offset = left + (int32_t)(row * XCI_ROW + d_lane() * XCI_VECTOR);
        if (offset >= (int32_t)bottom && offset < (int32_t)bytes)
            *(uint4 *)(slot + offset) = masks[row];
    }
}

/* Where tiles may be loaded without looking at each vector. */
typedef struct xci_inside {
    int32_t lowest, highest;
    bool shifted; /* old, new or both do not lie aligned */
} xci_inside;

__device__ __forceinline__ xci_inside d_look_inside(const xci_chunk_job *job, uint32_t bottom) {
    const uint32_t olds = d_shift_of(job->old_at), news = d_shift_of(job->new_at);
    xci_inside inside;
    inside.lowest = (int32_t)max(bottom, max(olds, news));
    inside.highest = (int32_t)(job->bytes + min(olds, news));
    inside.shifted = (olds | news) != 0;
    return inside;
}

__device__ __forceinline__ xci_stream d_stream(const xci_piece_work *work, bool news) {
    const xci_chunk_job *job = d_job(work);
    xci_stream stream;
    stream.begin = news ? job->new_at : job->old_at;
    stream.bytes = job->bytes;
    stream.next = &d_list(work)->next[news];
    return stream;
}

/* Loads the rows of a tile, leaves their masks, and tells whether there are changes. */
__device__ __forceinline__ bool d_load_tile(const xci_piece_work *work, const xci_inside *inside,
                                            int32_t left, int32_t bottom, uint4 *old_rows,
                                            uint4 *masks) {
    const xci_stream olds = d_stream(work, false), news = d_stream(work, true);
    if (XCI_USUAL(left >= inside->lowest &&
                  left + (int32_t)(XCI_TILE_ROWS * XCI_ROW) <= inside->highest)) {
        d_load_rows<XCI_TILE_ROWS>(olds.begin, left, old_rows);
        d_load_rows<XCI_TILE_ROWS>(news.begin, left, masks);
    } else {
        d_load_edge_rows<XCI_TILE_ROWS>(&olds, left, bottom, old_rows);
        d_load_edge_rows<XCI_TILE_ROWS>(&news, left, bottom, masks);
    }
    if (XCI_RARE(inside->shifted)) {
        d_shift_rows<XCI_TILE_ROWS>(&olds, left, bottom, old_rows);
        d_shift_rows<XCI_TILE_ROWS>(&news, left, bottom, masks);
    }
    uint32_t any = 0;
#pragma unroll
    for (uint32_t row = 0; row < XCI_TILE_ROWS; ++row) {
        masks[row] = d_xor(masks[row], old_rows[row]);
        any |= d_any_bit(masks[row]);
    }
    return __any_sync(XCI_ALL, any != 0);
}

/* Bytes [bottom, top) of the chunk; top may lie behind its end. Batches are worked on where no
 * rows are held in registers, and in one place, because they are long. */
__device__ __forceinline__ void d_encode_piece(const xci_piece_work *work, uint32_t bottom,
                                               uint32_t top, bool lz4) {
    const xci_inside inside = d_look_inside(d_job(work), bottom);
    if (XCI_RARE(inside.shifted)) {
        const xci_stream olds = d_stream(work, false), news = d_stream(work, true);
        d_stream_begin(&olds, top);
        d_stream_begin(&news, top);
    }
    uint32_t words = 0;
    int32_t left = (int32_t)top;
    bool last;
#pragma unroll 1
    do {
        left -= (int32_t)(XCI_TILE_ROWS * XCI_ROW);
        last = left <= (int32_t)bottom;
        uint4 old_rows[XCI_TILE_ROWS], masks[XCI_TILE_ROWS];
        const bool any = d_load_tile(work, &inside, left, (int32_t)bottom, old_rows, masks);
        if (XCI_RARE(!lz4))
            d_store_rows(d_job(work)->slot, left, bottom, d_job(work)->bytes, masks);
        if (any) {
#pragma unroll
            for (uint32_t row = XCI_TILE_ROWS; row-- > 0;) {
                const uint32_t offset = (uint32_t)left + row * XCI_ROW + d_lane() * XCI_VECTOR;
                words += d_list_words(d_list(work), words, masks[row], old_rows[row], offset);
            }
            __syncwarp();
        }
        if (words >= (last ? 1 : XCI_WARP))
            words = d_encode_batches(work, words, last, lz4);
    } while (!last);
    if (lz4)
        d_flush(work, d_piece(work)->state.size, d_piece(work)->state.flushed, 0);
}

#endif
