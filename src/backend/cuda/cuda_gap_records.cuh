/* Makes the records of chunks with several classes: a warp a chunk. The rank of a change among the
 * elements of its class is found by going through the old weights once, by tiles. In a tile each
 * lane counts a piece of its own, then pieces are added up.
 *
 * Classes are counted by table: for each byte that has an element's key (for nibbles, two of them)
 * it has a one in the field of its class, 8 bits of 64. */
#ifndef XCI_CUDA_GAP_RECORDS_CUH
#define XCI_CUDA_GAP_RECORDS_CUH

#include "backend/cuda/cuda_gap_chunk.cuh"
#include "backend/cuda/cuda_gap_class.cuh"

#define XCI_PIECE_VECTORS 8u /* of a lane: all but one have 224 elements at most, for a field */
#define XCI_VECTORS_AT_ONCE 4u
#define XCI_PIECE_BYTES (XCI_PIECE_VECTORS * 16u)
#define XCI_TILE_WORDS (XCI_WARP * XCI_PIECE_BYTES / 8u)
/* A warp's, in shared memory. */
typedef struct xci_gap_ranker {
    uint64_t ones[XCI_GAP_KEYS];                 /* by byte */
    uint64_t parts[XCI_PIECE_VECTORS][XCI_WARP]; /* before each vector of each lane's piece */
    uint32_t before[XCI_WARP + 1][XCI_GAP_CLASSES / 2]; /* each piece in the tile: see d_field_at */
    uint32_t seen[XCI_GAP_CLASSES];                     /* before the tile */
    uint32_t next[XCI_GAP_CLASSES];                     /* where the next record goes */
    uint32_t bounds[XCI_GAP_CLASSES + 1];               /* see d_key_bound */
    uint8_t class_of[XCI_GAP_KEYS];
} xci_gap_ranker;

/* ---- Classes ---- */

__device__ __forceinline__ uint64_t d_one_of(const xci_gap_ranker *ranker, uint32_t key) {
    return UINT64_C(1) << 8 * ranker->class_of[key];
}

__device__ __forceinline__ void d_begin_ranker(xci_gap_ranker *ranker, const xci_gap_draft *draft,
                                               const xci_gap_fields &fields) {
    const uint32_t keys = fields.above;
    for (uint32_t key = d_lane(); key < XCI_GAP_KEYS; key += XCI_WARP)
        ranker->class_of[key] = (uint8_t)d_class_of(draft, key);
    if (d_lane() <= XCI_GAP_CLASSES)
        ranker->bounds[d_lane()] =
            d_lane() < draft->class_count ? d_key_bound(fields, draft->first_keys[d_lane()]) : 0;
    if (d_lane() < XCI_GAP_CLASSES)
        ranker->seen[d_lane()] = ranker->next[d_lane()] = 0;
    __syncwarp();
    for (uint32_t byte = d_lane(); byte < XCI_GAP_KEYS; byte += XCI_WARP)
        ranker->ones[byte] = d_one_of(ranker, byte & (keys - 1)) +
                             (draft->width == 0 ? d_one_of(ranker, byte >> 4 & (keys - 1)) : 0);
    __syncwarp();
}

/* By the byte of a word that begins `shift` bits up. */
__device__ __forceinline__ uint64_t d_ones_at(const xci_gap_ranker *ranker, uint32_t word,
                                              uint32_t shift) {
    const uint32_t entry = (shift < 3 ? word << (3 - shift) : word >> (shift - 3)) & 0x7f8u;
    return *(const uint64_t *)((const uint8_t *)ranker->ones + entry);
}

/* Elements of a word of 4 bytes by class; of 8 bytes, it is the high one. */
__device__ __forceinline__ uint64_t d_ones_of(const xci_gap_ranker *ranker, uint32_t word,
                                              uint32_t width) {
    if (width == 2)
        return d_ones_at(ranker, word, 7) + d_ones_at(ranker, word, 23);
    if (width > 2)
        return d_ones_at(ranker, word, 23);
    return d_ones_at(ranker, word, 0) + d_ones_at(ranker, word, 8) + d_ones_at(ranker, word, 16) +
           d_ones_at(ranker, word, 24);
}

__device__ __forceinline__ uint64_t d_count_classes(const xci_gap_ranker *ranker, uint4 v,
                                                    uint32_t width) {
    const uint64_t high = d_ones_of(ranker, v.y, width) + d_ones_of(ranker, v.w, width);
    return width == 4 ? high : high + d_ones_of(ranker, v.x, width) + d_ones_of(ranker, v.z, width);
}

/* ---- Tiles ---- */

/* Where a class's field of 16 bits is: word and shift. */
__device__ __forceinline__ uint32_t d_field_at(const uint32_t *fields, uint32_t c) {
    return fields[(c >> 2 << 1) | (c & 1)] >> ((c >> 1 & 1) * 16) & 0xffff;
}

/* Counts the tile's elements before each vector. */
__device__ __forceinline__ void d_count_tile(xci_gap_ranker *ranker, const xci_gap_source *source,
                                             uint32_t first_word, uint32_t width) {
    const uint32_t at = first_word * 8 + d_lane() * XCI_PIECE_BYTES;
    uint64_t sum = 0, last = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < XCI_PIECE_VECTORS; i += XCI_VECTORS_AT_ONCE) {
        uint4 part[XCI_VECTORS_AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < XCI_VECTORS_AT_ONCE; ++k)
            part[k] = d_vector_at(source, at + (i + k) * 16);
#pragma unroll
        for (uint32_t k = 0; k < XCI_VECTORS_AT_ONCE; ++k) {
            sum += last;
            ranker->parts[i + k][d_lane()] = sum;
            last = d_count_classes(ranker, part[k], width);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < XCI_GAP_CLASSES / 2; ++i) {
        const uint32_t shift = i / 2 * 32 + i % 2 * 8;
        const uint32_t half =
            ((uint32_t)(sum >> shift) & 0xff00ffu) + ((uint32_t)(last >> shift) & 0xff00ffu);
        const uint32_t after = d_scan(half);
        ranker->before[d_lane()][i] = after - half;
        if (d_lane() == XCI_WARP - 1)
            ranker->before[XCI_WARP][i] = after;
    }
    __syncwarp();
}

/* ---- Records ---- */

/* The element of a batch's change, before and after, and where it is. */
typedef struct xci_gap_spotted {
    uint64_t element, mask;
    uint32_t word, in_vector; /* of the tile; of the vector */
    uint4 old_part;           /* the vector */
} xci_gap_spotted;

__device__ __forceinline__ xci_gap_spotted d_spot_change(const xci_gap_source *source,
                                                         const xci_gap_batch *batch, uint32_t k,
                                                         uint32_t first_word, uint32_t width) {
    const uint32_t position = d_batch_position(batch, k), word = position >> (4 - width);
    const uint32_t in_word = position & ((1u << (4 - width)) - 1);
    xci_gap_spotted spot;
    spot.old_part = d_vector_at(source, word / 2 * 16);
    const uint4 v = spot.old_part;
    const uint64_t old_word = word % 2 != 0 ? (uint64_t)v.w << 32 | v.z : (uint64_t)v.y << 32 | v.x;
    spot.element = old_word >> (in_word << (2 + width)) & d_element_ones(width);
    spot.mask = d_batch_value(batch, k, width);
    spot.word = word - first_word;
    spot.in_vector = (word % 2 << (4 - width)) + in_word;
    return spot;
}

/* Its rank among the elements of class `c`, to which it belongs. */
__device__ __forceinline__ uint32_t d_rank_of(const xci_gap_ranker *ranker,
                                              const xci_gap_fields &fields,
                                              const xci_gap_spotted *spot, uint32_t c) {
    const uint32_t piece = spot->word / (XCI_PIECE_BYTES / 8);
    const uint32_t part = spot->word / 2 % XCI_PIECE_VECTORS;
    const uint32_t low = ranker->bounds[c], high = ranker->bounds[c + 1];
    uint32_t keys[4], marks[4], sum = 0;
    d_keys_of(fields, spot->old_part, keys);
    d_keep_marks(fields, spot->in_vector, marks);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
        sum += marks[i] & d_not_below(fields, keys[i], low) & ~d_not_below(fields, keys[i], high);
    return ranker->seen[c] + d_field_at(ranker->before[piece], c) +
           ((uint32_t)(ranker->parts[part][piece] >> 8 * c) & 255) + d_sum_marks(fields, sum);
}

/* Records up to 32 changes of a batch, from `first` on. */
__device__ __forceinline__ void d_record_batch(xci_gap_ranker *ranker, const xci_gap_fields &fields,
                                               const xci_gap_source *source,
                                               const xci_gap_batch *batch, uint32_t k, bool active,
                                               uint32_t first_word, xci_gap_records records) {
    const uint32_t width = fields.width;
    const xci_gap_spotted spot = d_spot_change(source, batch, active ? k : 0, first_word, width);
    const uint32_t c = active ? ranker->class_of[xci_gap_key(spot.element, width)] : XCI_WARP;
    const uint32_t same = __match_any_sync(XCI_ALL, c);
    const uint32_t below = same & ((1u << d_lane()) - 1);
    const uint32_t to = active ? ranker->next[c] + (uint32_t)__popc(below) : 0;
    __syncwarp();
    if (active) {
        const uint64_t step = xci_gap_step(spot.element, spot.element ^ spot.mask, width);
        records.ranks[to] = d_rank_of(ranker, fields, &spot, c);
        records.lows[to] = (uint32_t)step;
        if (width == 4)
            records.highs[to] = (uint32_t)(step >> 32);
        if (d_lane() == d_highest(same))
            ranker->next[c] = to + 1;
    }
    __syncwarp();
}

/* Words that are to be met in rising order. */
typedef struct xci_gap_queue {
    xci_gap_source source;
    uint32_t word;
    uint64_t mask; /* 0: the lane has none */
    bool done;
} xci_gap_queue;

/* Calls visit(first, count) for the changes of words below `end`, a batch of words at a time. */
template <typename Visit>
__device__ __forceinline__ void d_each_batch_below(xci_gap_queue *queue, xci_gap_batch *batch,
                                                   uint32_t end, uint32_t width, Visit visit) {
    for (;;) {
        const bool here = queue->mask != 0 && queue->word < end;
        if (__any_sync(XCI_ALL, here)) {
            visit(d_fill_batch(batch, queue->word, here ? queue->mask : 0, width));
            queue->mask = here ? 0 : queue->mask;
        }
        if (queue->done || __any_sync(XCI_ALL, queue->mask != 0))
            return;
        queue->done = !d_next_words(&queue->source, &queue->word, &queue->mask);
    }
}

/* Counts changes by class and says where each class's records begin. */
__device__ __forceinline__ void d_begin_records(xci_gap_ranker *ranker,
                                                const xci_gap_source *source, uint32_t width,
                                                xci_gap_records records) {
    xci_gap_source words = *source;
    uint32_t word;
    uint64_t mask;
    while (d_next_words(&words, &word, &mask)) {
        const uint64_t old_word = mask != 0 ? d_word_at(source->old_at, word, source->bytes) : 0;
        d_each_mark(d_marks(mask, width), [&](bool active, uint32_t shift) {
            const uint32_t key = xci_gap_key(old_word >> shift, width);
            d_tally(ranker->next, ranker->class_of[key], active);
        });
    }
    __syncwarp();
    const uint32_t mine = d_lane() < XCI_GAP_CLASSES ? ranker->next[d_lane()] : 0;
    const uint32_t end = d_scan(mine);
    __syncwarp();
    if (d_lane() < XCI_GAP_CLASSES)
        ranker->next[d_lane()] = end - mine;
    if (d_lane() <= XCI_GAP_CLASSES)
        records.begins[d_lane()] = end - mine;
    __syncwarp();
}

/* Makes the records of a chunk. */
__device__ __forceinline__ void d_record_changes(xci_gap_ranker *ranker, xci_gap_batch *batch,
                                                 const xci_gap_source *source,
                                                 const xci_gap_draft *draft,
                                                 xci_gap_records records) {
    const uint32_t width = draft->width, words = (source->bytes + 7) / 8;
    const xci_gap_fields fields = d_fields_of(width);
    xci_gap_queue queue = {*source, 0, 0, false};
    d_begin_ranker(ranker, draft, fields);
    d_begin_records(ranker, source, width, records);
#pragma unroll 1
    for (uint32_t first_word = 0; first_word < words; first_word += XCI_TILE_WORDS) {
        d_count_tile(ranker, source, first_word, width);
        d_each_batch_below(&queue, batch, first_word + XCI_TILE_WORDS, width, [&](uint32_t count) {
#pragma unroll 1
            for (uint32_t first = 0; first < count; first += XCI_WARP)
                d_record_batch(ranker, fields, source, batch, first + d_lane(),
                               first + d_lane() < count, first_word, records);
        });
        if (d_lane() < XCI_GAP_CLASSES)
            ranker->seen[d_lane()] += d_field_at(ranker->before[XCI_WARP], d_lane());
        __syncwarp();
    }
}

/* ---- Chunks ---- */

/* Where the chunk's records are to be; false: there is no room, and the call fails. */
__device__ __forceinline__ bool d_take_records(const xci_gap_piece *piece,
                                               xci_gap_records *records_out) {
    const uint32_t changes = d_changes_of(piece);
    const uint32_t words = d_record_words(changes, piece->draft->width);
    unsigned long long at = 0;
    if (d_lane() == 0)
        at = atomicAdd(&piece->scratch->counters[1], (unsigned long long)words);
    at = __shfl_sync(XCI_ALL, at, 0);
    const bool fits = at + words <= piece->scratch->list_words;
    if (d_lane() == 0 && fits)
        piece->scratch->records[piece->index] = at;
    else if (d_lane() == 0)
        piece->scratch->counters[2] = 1;
    *records_out = d_records_at(piece->scratch->lists + at, changes);
    return fits;
}

/* What a warp has in shared memory. */
typedef struct xci_gap_recorder {
    xci_gap_batch batch;
    xci_gap_ranker ranker;
} xci_gap_recorder;

__global__ void __launch_bounds__(XCI_CHUNK_THREADS, 6)
    k_gap_record(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    xci_gap_recorder *recorder = (xci_gap_recorder *)shared + d_chunk_warp();
    xci_gap_piece piece;
    xci_gap_records records;
    if (scratch.counters[2] == 0 && d_take_piece(&call, &scratch, d_chunk_index(), &piece) &&
        d_has_records(&piece) && d_take_records(&piece, &records))
        d_record_changes(&recorder->ranker, &recorder->batch, &piece.source, piece.draft, records);
}

#endif
