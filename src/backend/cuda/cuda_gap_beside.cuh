/* Sparse gap blocks that know the old weights, by a warp each. Every class has a stream, which one
 * lane reads ahead into a queue. The warp goes through the old weights tile by tile and counts the
 * elements of each class; where some are next in the queues, each lane finds one of them.
 *
 *     visit(active, word, mask, old)   up to 32 changed words of the chunk, one a lane in rising
 *                                      order, by all lanes; bytes behind the chunk's end count as
 *                                      0 in `old` */
#ifndef XCI_CUDA_GAP_BESIDE_CUH
#define XCI_CUDA_GAP_BESIDE_CUH

#include "backend/cuda/cuda_gap_decode.cuh"
#include "backend/cuda/cuda_gap_tiles.cuh"

#define XCI_QUEUE 16u /* changes of a class; a power of two */
#define XCI_SHARE (XCI_WARP / XCI_GAP_CLASSES) /* of them that are looked for at a time */
#define XCI_TAKEN (2u * XCI_WARP)              /* changed words that a tile gives at a time */
#define XCI_WORDS (XCI_WARP + XCI_TAKEN)

/* A warp's part of shared memory. */
typedef struct xci_gap_desk {
    uint4 tiles[XCI_TILES][XCI_TILE_VECTORS];
    uint4 masks[XCI_TILE_VECTORS]; /* of a tile; all 0 between two */
    uint64_t values[XCI_GAP_CLASSES][XCI_QUEUE];
    uint64_t word_masks[XCI_WORDS], word_olds[XCI_WORDS];
    uint32_t ranks[XCI_GAP_CLASSES][XCI_QUEUE];
    uint32_t ends[XCI_GAP_WINDOW * XCI_GAP_CLASSES];
    uint32_t words[XCI_WORDS];
    xci_gap_walk walks[XCI_GAP_CLASSES];           /* of the streams; their positions are ranks */
    uint16_t passed[XCI_CLASS_PAIRS][XCI_WARP][2]; /* elements of a class up to a lane's end */
} xci_gap_desk;

/* A block on its way. What is said of "the lane's class" concerns the lanes below the number of
 * classes. */
typedef struct xci_gap_beside {
    xci_gap_desk *desk;
    const uint8_t *old_at;
    const uint32_t *first_keys;
    uint32_t bytes, count, class_count; /* count: of elements */
    bool open;                          /* there may be more in the stream of the lane's class */
    bool bad;
    uint32_t head, tail; /* of the class's queue */
    uint32_t seen;       /* its elements before the tile */
    uint32_t waiting;    /* changed words, in all lanes */
} xci_gap_beside;

/* ---- Streams ---- */

/* Each lane below the number of classes takes up its stream. False: they are not there. */
__device__ __forceinline__ bool d_open_streams(xci_gap_beside *beside, const xci_gap_shape *shape,
                                               const xci_gap_lookup *lookups, const uint8_t *block,
                                               uint32_t block_bytes) {
    xci_reader at = {block, block + block_bytes, false};
    for (uint32_t c = 0; c < beside->class_count; ++c) {
        xci_gap_walk walk;
        if (!d_next_segment(&at, c + 1 == beside->class_count, &walk.bits))
            return false;
        walk.past.prior = shape->classes[c].prior;
        walk.past.count = walk.past.next = 0;
        walk.past.ends = beside->desk->ends + c;
        walk.past.stride = XCI_GAP_CLASSES;
        walk.lookup = &lookups[shape->classes[c].table];
        walk.count = beside->count;
        walk.bad = false;
        if (c == d_lane())
            beside->desk->walks[c] = walk;
    }
    beside->open = d_lane() < beside->class_count;
    beside->head = beside->tail = beside->seen = 0;
    return true;
}

/* Fills all queues, if one of them might have too little for a look. */
__device__ __forceinline__ void d_fill_queues(xci_gap_beside *beside) {
    xci_gap_desk *desk = beside->desk;
    if (!__any_sync(XCI_ALL, beside->open && beside->tail - beside->head < XCI_SHARE))
        return;
    if (beside->open) {
        xci_gap_walk walk = desk->walks[d_lane()];
        while (beside->tail - beside->head < XCI_QUEUE && d_next_change(&walk)) {
            desk->ranks[d_lane()][beside->tail % XCI_QUEUE] = walk.position;
            desk->values[d_lane()][beside->tail % XCI_QUEUE] = walk.value;
            ++beside->tail;
        }
        beside->open = beside->tail - beside->head == XCI_QUEUE;
        beside->bad = beside->bad || walk.bad;
        desk->walks[d_lane()] = walk;
    }
    __syncwarp();
}

/* Whether the next change of the lane's class is among its next `total` elements. */
__device__ __forceinline__ bool d_is_next(const xci_gap_beside *beside, uint32_t total) {
    return beside->head != beside->tail &&
           beside->desk->ranks[d_lane()][beside->head % XCI_QUEUE] - beside->seen < total;
}

/* ---- Counts ---- */

/* Elements of the lane's piece of a tile that has so many. */
template <uint32_t WIDTH> __device__ __forceinline__ uint32_t d_piece_count(uint32_t tile_count) {
    const uint32_t most = XCI_PIECE_WORDS * 8 >> WIDTH, before = d_lane() * most;
    return tile_count > before ? min(tile_count - before, most) : 0;
}

/* Elements of the lane's class in a tile of `all`. `counts` as from d_count_piece. */
__device__ __forceinline__ uint32_t d_tile_total(uint32_t class_count, const uint32_t *counts,
                                                 uint32_t all) {
    uint32_t mine = 0;
#pragma unroll
    for (uint32_t p = 0; p < XCI_CLASS_PAIRS; ++p) {
        if (2 * p + 1 >= class_count)
            continue;
        const uint32_t total = d_sum(counts[p]);
        mine = (d_lane() - 1) / 2 == p ? total : mine;
    }
    mine = d_lane() % 2 != 0 ? mine & 0xffff : mine >> 16;
    mine = d_lane() == 0 ? all : mine;
    return mine - __shfl_down_sync(XCI_ALL, mine, 1);
}

/* Notes how many elements of each class stand up to each lane's end. */
__device__ __forceinline__ void d_note_passed(const xci_gap_beside *beside, const uint32_t *counts,
                                              uint32_t here) {
    uint32_t before = here;
#pragma unroll
    for (uint32_t p = 0; p < XCI_CLASS_PAIRS; ++p) {
        if (2 * p < beside->class_count) {
            const uint32_t passed = d_scan(before + (counts[p] << 16) - counts[p]);
            beside->desk->passed[p][d_lane()][0] = (uint16_t)passed;
            beside->desk->passed[p][d_lane()][1] = (uint16_t)(passed >> 16);
        }
        before = counts[p] >> 16;
    }
    __syncwarp();
}

/* ---- Changes ---- */

/* A change that a lane has to find: of a class, with its rank in the tile. */
typedef struct xci_gap_quest {
    uint32_t of, rank;
    uint64_t value;
} xci_gap_quest;

/* In whose piece it is; takes the elements before it from the rank. */
__device__ __forceinline__ uint32_t d_find_piece(const xci_gap_desk *desk, xci_gap_quest *quest) {
    const uint16_t(*passed)[2] = desk->passed[quest->of / 2];
    const uint32_t half = quest->of % 2;
    uint32_t piece = 0;
#pragma unroll
    for (uint32_t step = XCI_WARP / 2; step > 0; step /= 2)
        piece += passed[piece + step - 1][half] <= quest->rank ? step : 0;
    quest->rank -= piece > 0 ? passed[piece - 1][half] : 0;
    return piece;
}

/* Puts the change's mask where the tile's are. */
template <uint32_t WIDTH>
__device__ __forceinline__ void d_place_change(xci_gap_beside *beside, const uint4 *tile,
                                               uint32_t number, xci_gap_quest quest) {
    const uint32_t *words = (const uint32_t *)tile;
    uint32_t *masks = (uint32_t *)beside->desk->masks;
    const uint32_t piece = d_find_piece(beside->desk, &quest);
    const uint32_t index =
        piece * (XCI_PIECE_WORDS * 8 >> WIDTH) +
        d_find_element<WIDTH>(d_range_of<WIDTH>(beside->first_keys, beside->class_count, quest.of),
                              tile + piece * XCI_PIECE_VECTORS, quest.rank);
    const uint32_t word = WIDTH == 4 ? 2 * index : index >> (3 - WIDTH);
    const uint32_t shift = WIDTH >= 3 ? 0 : index % (8u >> WIDTH) * (4u << WIDTH);
    uint64_t element = words[word] >> shift;
    if (WIDTH == 4)
        element |= (uint64_t)words[word + 1] << 32;
    element &= xci_gap_mask_bits(WIDTH);
    const uint64_t mask = element ^ xci_gap_stepped(element, quest.value, WIDTH);
    const uint32_t before = number * (XCI_TILE_BYTES * 2 >> WIDTH);
    beside->bad = beside->bad || d_beyond(before + index, mask, WIDTH, beside->bytes);
    atomicOr(&masks[word], (uint32_t)mask << shift);
    if (WIDTH == 4)
        atomicOr(&masks[word + 1], (uint32_t)(mask >> 32));
}

/* Looks for the next few changes of each class, one a lane. */
template <uint32_t WIDTH>
__device__ __forceinline__ void d_place_changes(xci_gap_beside *beside, const uint4 *tile,
                                                uint32_t number, uint32_t total) {
    const xci_gap_desk *desk = beside->desk;
    const uint32_t c = d_lane() / XCI_SHARE, place = d_lane() % XCI_SHARE;
    const uint32_t head = __shfl_sync(XCI_ALL, beside->head, c);
    const uint32_t queued = __shfl_sync(XCI_ALL, beside->tail, c) - head;
    const uint32_t seen = __shfl_sync(XCI_ALL, beside->seen, c);
    const uint32_t in_tile = __shfl_sync(XCI_ALL, total, c), at = (head + place) % XCI_QUEUE;
    const xci_gap_quest quest = {c, desk->ranks[c][at] - seen, desk->values[c][at]};
    const bool active = place < queued && quest.rank < in_tile;
    if (active)
        d_place_change<WIDTH>(beside, tile, number, quest);
    const uint32_t placed = __ballot_sync(XCI_ALL, active);
    if (d_lane() < XCI_GAP_CLASSES)
        beside->head += (uint32_t)__popc(placed >> d_lane() * XCI_SHARE & ((1u << XCI_SHARE) - 1));
}

/* ---- Words ---- */

/* Hands on up to 32 words that wait. */
template <typename Visit>
__device__ __forceinline__ void d_hand_words(xci_gap_beside *beside, Visit visit) {
    xci_gap_desk *desk = beside->desk;
    const uint32_t i = d_lane(), count = min(beside->waiting, XCI_WARP);
    visit(i < count, desk->words[i], desk->word_masks[i], desk->word_olds[i]);
    beside->waiting -= count;
#pragma unroll
    for (uint32_t to = i; to < 2 * XCI_WARP; to += XCI_WARP) { /* the others move up */
        const uint32_t from = to + XCI_WARP;
        const uint32_t word = desk->words[from];
        const uint64_t mask = desk->word_masks[from], old = desk->word_olds[from];
        __syncwarp();
        desk->words[to] = word;
        desk->word_masks[to] = mask;
        desk->word_olds[to] = old;
        __syncwarp();
    }
}

/* Which words of the lane's piece have a mask. */
__device__ __forceinline__ uint32_t d_changed_words(const uint4 *masks) {
    const uint32_t first = d_first_vector();
    uint32_t changed = 0;
#pragma unroll
    for (uint32_t i = 0; i < XCI_PIECE_VECTORS; ++i) {
        const uint4 v = masks[first ^ i];
        const uint32_t two = ((v.x | v.y) != 0 ? 1u : 0) | ((v.z | v.w) != 0 ? 2u : 0);
        changed |= two << (first ^ i) % XCI_PIECE_VECTORS * 2;
    }
    return changed;
}

/* Takes the masks of a tile's words, clears them, and hands them on, but for the last few. */
template <typename Visit>
__device__ __forceinline__ void d_take_tile(xci_gap_beside *beside, const uint4 *tile,
                                            uint32_t number, Visit visit) {
    xci_gap_desk *desk = beside->desk;
    const uint64_t *olds = (const uint64_t *)tile;
    uint64_t *masks = (uint64_t *)desk->masks;
    __syncwarp();
    uint32_t changed = d_changed_words(desk->masks);
    const uint32_t mine = (uint32_t)__popc(changed), sum = d_scan(mine);
    const uint32_t count = __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    uint32_t next = sum - mine;
    for (uint32_t begin = 0; begin < count; begin += XCI_TAKEN) {
        for (; changed != 0 && next < begin + XCI_TAKEN; changed &= changed - 1, ++next) {
            const uint32_t at = beside->waiting + next - begin;
            const uint32_t word =
                d_lane() * (2 * XCI_PIECE_VECTORS) + (uint32_t)__ffs((int)changed) - 1;
            desk->words[at] = number * (2 * XCI_TILE_VECTORS) + word;
            desk->word_masks[at] = masks[word];
            desk->word_olds[at] = olds[word];
            masks[word] = 0;
        }
        beside->waiting += min(count - begin, XCI_TAKEN);
        __syncwarp();
        while (beside->waiting >= XCI_WARP)
            d_hand_words(beside, visit);
    }
}

/* ---- Blocks ---- */

template <uint32_t WIDTH, typename Visit>
__device__ __forceinline__ void d_walk_tile(xci_gap_beside *beside, const xci_gap_bounds &bounds,
                                            const uint4 *tile, uint32_t number, Visit visit) {
    const uint32_t most = XCI_TILE_BYTES * 2 >> WIDTH;
    const uint32_t all = min(beside->count - number * most, most);
    uint32_t counts[XCI_CLASS_PAIRS];
    d_count_piece<WIDTH>(bounds, tile, counts);
    const uint32_t total = d_tile_total(beside->class_count, counts, all);
    bool noted = false;
    for (;;) {
        d_fill_queues(beside);
        if (!__any_sync(XCI_ALL, d_is_next(beside, total)))
            break;
        if (!noted)
            d_note_passed(beside, counts, d_piece_count<WIDTH>(all));
        noted = true;
        d_place_changes<WIDTH>(beside, tile, number, total);
    }
    beside->seen += total;
    if (noted)
        d_take_tile(beside, tile, number, visit);
}

template <uint32_t WIDTH, typename Visit>
__device__ __forceinline__ bool d_walk_tiles(xci_gap_beside *beside, Visit visit) {
    xci_gap_desk *desk = beside->desk;
    const xci_gap_bounds bounds = d_bounds_of<WIDTH>(beside->first_keys, beside->class_count);
    const uint32_t count = (beside->bytes + XCI_TILE_BYTES - 1) / XCI_TILE_BYTES;
    for (uint32_t t = 0; t < XCI_TILES; ++t)
        d_ask_tile(beside->old_at, beside->bytes, t, desk->tiles[t]);
#pragma unroll 1 /* the code is long: it must stay in the instruction cache */
    for (uint32_t t = 0; t < count; ++t) {
        uint4 *const tile = desk->tiles[t % XCI_TILES];
        d_copy_async_wait<XCI_TILES - 1>();
        __syncwarp();
        d_walk_tile<WIDTH>(beside, bounds, tile, t, visit);
        if (!__any_sync(XCI_ALL, beside->open || beside->head != beside->tail))
            break;
        d_ask_tile(beside->old_at, beside->bytes, t + XCI_TILES, tile);
    }
    d_copy_async_wait<0>();
    __syncwarp();
    while (beside->waiting != 0)
        d_hand_words(beside, visit);
    beside->bad = beside->bad || beside->open || beside->head != beside->tail;
    return !__any_sync(XCI_ALL, beside->bad);
}

/* All masks of the warp's desk to 0, before its first block. */
__device__ __forceinline__ void d_clear_desk(xci_gap_desk *desk) {
    for (uint32_t v = d_lane(); v < XCI_TILE_VECTORS; v += XCI_WARP)
        desk->masks[v] = make_uint4(0, 0, 0, 0);
    __syncwarp();
}

/* False in all lanes if the block is damaged. */
template <typename Visit>
__device__ __forceinline__ bool
d_walk_beside(const xci_gap_shape *shape, const uint32_t *first_keys, const xci_gap_lookup *lookups,
              const uint8_t *block, uint32_t block_bytes, const uint8_t *old_at, uint32_t bytes,
              xci_gap_desk *desk, Visit visit) {
    xci_gap_beside beside;
    beside.desk = desk;
    beside.old_at = old_at;
    beside.first_keys = first_keys;
    beside.bytes = bytes;
    beside.count = xci_gap_element_count(shape->width, bytes);
    beside.class_count = shape->class_count;
    beside.bad = false;
    beside.waiting = 0;
    if (!d_open_streams(&beside, shape, lookups, block, block_bytes))
        return false;
    switch (shape->width) {
    case 0:
        return d_walk_tiles<0>(&beside, visit);
    case 1:
        return d_walk_tiles<1>(&beside, visit);
    case 2:
        return d_walk_tiles<2>(&beside, visit);
    case 3:
        return d_walk_tiles<3>(&beside, visit);
    default:
        return d_walk_tiles<4>(&beside, visit);
    }
}

#endif
