/* The words of a chunk that differ: listed with two ballots a row, and worked on 32 at a time, one
 * a lane. A batch counts them, and writes their LZ4 sequences to the ring.
 *
 *     a lane's bytes:  word (up to 8), then, where a copied run of zeros follows,
 *                      literal 0, offset 1 0, match length, token and literal length of what
 *                      follows the run; else the zeros up to the next word
 *
 * A word may have a copied run inside: its bytes are then the bytes left of it, literal 0, offset,
 * token, bytes right of it: no more than eight, but for a long literal length. */
#ifndef XCI_CUDA_ENCODE_WORDS_CUH
#define XCI_CUDA_ENCODE_WORDS_CUH

#include "backend/cuda/cuda_encode_feed.cuh"
#include "backend/cuda/cuda_encode_lz4.cuh"

#define XCI_LIST (32u + XCI_TILE_ROWS * 64u) /* at most 31 words wait, and a row adds 64 */

/* What a batch can add to the ring, without the 255s of lengths, which grow with the chunk: 32
 * words with their gaps, 64 sequences of four bytes, 17 literal lengths and 32 match lengths. */
#define XCI_BATCH_BYTES (32 * 8 + 32 * 4 + 16 + 64 * 4 + 17 + 32)

typedef struct xci_list {
    uint64_t masks[XCI_LIST], olds[XCI_LIST];
    uint32_t offsets[XCI_LIST];
} xci_list;

/* A block in the making. */
typedef struct xci_block_state {
    uint32_t first;  /* changed byte so far; the chunk's bytes if there is none */
    uint32_t size;   /* bytes */
    xci_close close; /* of the literals to the left */
} xci_block_state;

/* A row of 16-byte vectors, one a lane: masks, and which lanes' words differ. */
typedef struct xci_row {
    uint4 mask;
    uint32_t lows, highs;
} xci_row;

__device__ __forceinline__ xci_row d_compare(uint4 olds, uint4 news) {
    xci_row row;
    row.mask = d_xor(olds, news);
    row.lows = __ballot_sync(XCI_ALL, (row.mask.x | row.mask.y) != 0);
    row.highs = __ballot_sync(XCI_ALL, (row.mask.z | row.mask.w) != 0);
    return row;
}

__device__ __forceinline__ void d_list_word(xci_list *list, uint32_t place, uint32_t mask_low,
                                            uint32_t mask_high, uint32_t old_low, uint32_t old_high,
                                            uint32_t offset) {
    list->masks[place] = (uint64_t)mask_high << 32 | mask_low;
    list->olds[place] = (uint64_t)old_high << 32 | old_low;
    list->offsets[place] = offset;
}

/* Lists the words that differ, those of higher lanes first, behind the `listed` ones; `offset` is
 * of the lane's vector. Returns how many are listed then. */
__device__ __forceinline__ uint32_t d_list_words(xci_list *list, uint32_t listed,
                                                 const xci_row *row, uint4 olds, uint32_t offset) {
    const uint32_t above = 0xfffffffeu << d_lane();
    const bool low = (row->mask.x | row->mask.y) != 0, high = (row->mask.z | row->mask.w) != 0;
    const uint32_t place =
        listed + (uint32_t)(__popc(row->lows & above) + __popc(row->highs & above));
    if (high)
        d_list_word(list, place, row->mask.z, row->mask.w, olds.z, olds.w, offset + 8);
    if (low)
        d_list_word(list, place + high, row->mask.x, row->mask.y, olds.x, olds.y, offset);
    return listed + (uint32_t)(__popc(row->lows) + __popc(row->highs));
}

/* Moves the words from `first` on, fewer than 32, to the list's beginning. */
__device__ __forceinline__ void d_move_words(xci_list *list, uint32_t first) {
    const uint32_t from = first + d_lane();
    const uint64_t mask = list->masks[from], old_word = list->olds[from];
    const uint32_t offset = list->offsets[from];
    __syncwarp();
    list->masks[d_lane()] = mask;
    list->olds[d_lane()] = old_word;
    list->offsets[d_lane()] = offset;
    __syncwarp();
}

/* A lane's word: bytes [first, end) of the chunk, and the run inside that is copied, if any. */
typedef struct xci_word {
    uint64_t mask;
    uint32_t offset, first, end, left_end;
    xci_run inner;
} xci_word;

/* `changed`: a bit for each of its bytes. */
__device__ __forceinline__ xci_word d_look_at_word(uint64_t mask, uint32_t changed, uint32_t offset,
                                                   uint32_t bytes) {
    xci_word word;
    word.mask = mask;
    word.offset = offset;
    word.first = offset + (uint32_t)__ffs((int)changed) - 1;
    word.end = offset + XCI_WARP - (uint32_t)__clz((int)changed);
    word.left_end = word.end;
    word.inner.match = word.inner.anchor = 0;
    if (XCI_RARE((changed & 0x3c) == 0 && (changed & 0x03) != 0 && (changed & 0xc0) != 0)) {
        const uint32_t left_end = offset + ((changed & 0x02) != 0 ? 2 : 1);
        const xci_run run = d_run(left_end, offset + ((changed & 0x40) != 0 ? 6 : 7), bytes);
        if (run.match != 0) {
            word.inner = run;
            word.left_end = left_end;
        }
    }
    return word;
}

/* Up to eight bytes of a word, given by their complement. */
typedef struct xci_bytes {
    uint64_t inverse;
    uint32_t count;
} xci_bytes;

__device__ __forceinline__ xci_bytes d_word_bytes(const xci_word *word, uint32_t from,
                                                  uint32_t to) {
    xci_bytes bytes;
    bytes.count = to - from;
    bytes.inverse = ~(word->mask >> (from - word->offset) * 8) & d_ones(bytes.count);
    return bytes;
}

/* What lies to the right of a lane's word: the run of zeros to the next word, and what closes the
 * literals behind that: the nearest run that is copied, in a lower lane or an earlier batch. */
typedef struct xci_join {
    xci_run run;
    xci_close close;
    uint32_t next;
} xci_join;

/* Hands out the lanes that have copied runs, and what each lane's runs close. */
__device__ __forceinline__ xci_join d_join_words(const xci_block_state *state, const xci_word *word,
                                                 bool active, uint32_t bytes, uint32_t *runs_out,
                                                 xci_close *own_out) {
    xci_join join;
    join.next = __shfl_up_sync(XCI_ALL, word->first, 1);
    join.next = d_lane() == 0 ? state->first : join.next;
    join.run = d_run(word->end, join.next, bytes);
    const uint32_t code = d_match_code(word->inner.match != 0 ? word->inner.match : join.run.match);
    *own_out = d_close(word->left_end + 1, code);
    *runs_out = __ballot_sync(XCI_ALL, active && code != 0);
    const uint32_t before = *runs_out & ((1u << d_lane()) - 1);
    join.close = __shfl_sync(XCI_ALL, *own_out, before != 0 ? d_highest(before) : 0);
    join.close = before != 0 ? join.close : state->close;
    return join;
}

#define XCI_INVERSE_COPY 0xfffeffu /* of literal 0 and offset 1 */

/* A lane's part of the block, from left to right: of a word with a run inside, the bytes left of
 * that, literal 0, offset and token, and the length of the literals behind; the word's bytes;
 * literal 0 and offset of a copied run, or up to four zeros; the run's length, the token behind
 * it, the length of the literals there; more zeros, at most 12. */
typedef struct xci_part {
    xci_bytes left, own;
    uint32_t left_token, tail, tail_count; /* tail: by the complement */
    xci_length left_literals, match, literals;
    uint32_t token;
    uint32_t lengths; /* bytes of the run's length, token and literal length; 0 without a copy */
    uint32_t zeros;
} xci_part;

__device__ __forceinline__ void d_split_word(xci_part *part, const xci_word *word,
                                             const xci_join *join) {
    const bool ends = join->run.match != 0;
    const uint32_t end = ends ? word->end + 1 : d_close_end(join->close);
    part->left = d_word_bytes(word, word->first, word->left_end);
    part->left_literals = d_length(end - word->inner.anchor);
    /* A run inside a word has no length bytes: the token is that of what lies right of it. */
    part->left_token =
        d_token(part->left_literals, ends ? d_match_code(join->run.match) : join->close);
}

__device__ __forceinline__ xci_part d_plan_word(const xci_word *word, const xci_join *join) {
    const bool copied = join->run.match != 0, split = word->inner.match != 0;
    const uint32_t zeros = join->next - (copied ? join->run.anchor : word->end);
    const uint32_t few = min(zeros, 4u);
    xci_part part;
    part.match = d_match_length(join->run.match);
    part.literals = d_length(d_close_end(join->close) - join->run.anchor);
    part.token = d_token(part.literals, join->close);
    part.lengths = copied ? part.match.count + 1 + part.literals.count : 0;
    part.zeros = copied ? zeros : zeros - few;
    part.own = d_word_bytes(word, split ? word->inner.anchor : word->first, word->end);
    part.tail = copied ? XCI_INVERSE_COPY : (uint32_t)d_ones(few);
    part.tail_count = copied ? 3 : few;
    part.left.count = part.left_literals.count = 0;
    if (XCI_RARE(split))
        d_split_word(&part, word, join);
    return part;
}

/* Of what a run inside the word puts left of it. */
__device__ __forceinline__ uint32_t d_left_part(const xci_part *part) {
    return part->left.count != 0 ? part->left.count + 4 + part->left_literals.count : 0;
}

__device__ __forceinline__ uint32_t d_part_size(const xci_part *part) {
    return d_left_part(part) + part->own.count + part->tail_count + part->lengths + part->zeros;
}

/* Writes a part whose first byte has distance ~at. The 255s of lengths are there already. */
__device__ __forceinline__ void d_put_part(const xci_ring *ring, uint32_t at,
                                           const xci_part *part) {
    if (XCI_RARE(part->left.count != 0)) {
        d_put(ring, at, part->left.inverse);
        d_put_few(ring, at + part->left.count, XCI_INVERSE_COPY | (~part->left_token & 0xff) << 24);
        at += d_left_part(part);
        if (part->left_literals.count != 0)
            d_put_byte(ring, at - 1, part->left_literals.last);
    }
    d_put(ring, at, part->own.inverse);
    at += part->own.count;
    d_put_few(ring, at, part->tail);
    at += part->tail_count;
    if (part->lengths != 0) {
        const bool longer = part->match.count != 0;
        const uint32_t two = longer ? part->match.last | part->token << 8 : part->token;
        d_put_few(ring, at + part->match.count - longer, ~two & (longer ? 0xffff : 0xff));
        at += part->lengths;
        if (XCI_RARE(part->literals.count != 0))
            d_put_byte(ring, at - 1, part->literals.last);
    }
    if (XCI_RARE(part->zeros != 0))
        d_put_zeros(ring, at, part->zeros);
}

/* The words of a batch to the ring. */
__device__ __forceinline__ void d_write_words(const xci_ring *ring, xci_block_state *state,
                                              const xci_word *word, uint32_t count,
                                              uint32_t bytes) {
    const bool active = d_lane() < count;
    uint32_t runs;
    xci_close own;
    const xci_join join = d_join_words(state, word, active, bytes, &runs, &own);
    const xci_part part = d_plan_word(word, &join);
    const uint32_t sum = d_scan(active ? d_part_size(&part) : 0);
    if (active)
        d_put_part(ring, 0u - (state->size + sum), &part);
    state->size += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    if (runs != 0)
        state->close = __shfl_sync(XCI_ALL, own, d_highest(runs));
}

#endif
