/* Old weights by tiles of 2 KiB, which come to shared memory ahead of the work, and how many
 * elements of each class the lanes have. A lane's piece of a tile is 64 bytes in one, so that
 * pieces follow each other as the elements do.
 *
 * Keys are counted four at a time, in bytes: keys of nibbles are turned into what they count for
 * by a table, others are compared with the first key of each class. */
#ifndef XCI_CUDA_GAP_TILES_CUH
#define XCI_CUDA_GAP_TILES_CUH

#include "backend/cuda/cuda_gap_class.cuh"

#define XCI_PIECE_VECTORS 4u /* a power of two; d_first_vector is made for it */
#define XCI_PIECE_WORDS (4u * XCI_PIECE_VECTORS)
#define XCI_TILE_VECTORS (XCI_WARP * XCI_PIECE_VECTORS)
#define XCI_TILE_BYTES (16u * XCI_TILE_VECTORS)
#define XCI_TILES 2u /* one is looked at while the others are on their way */

/* Counts of two classes in the halves of a word. */
#define XCI_CLASS_PAIRS (XCI_GAP_CLASSES / 2)

/* ---- Their way to shared memory ---- */

/* Sixteen of the chunk's bytes from `at` on; zeros behind its end. */
static __device__ __noinline__ uint4 d_tile_edge(const uint8_t *old_at, uint32_t bytes,
                                                 uint32_t at) {
    uint32_t words[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < 16 && at + i < bytes; ++i)
        words[i / 4] |= (uint32_t)old_at[at + i] << i % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Asks for a tile. Each call is one group of copies, also behind the end. */
__device__ __forceinline__ void d_ask_tile(const uint8_t *old_at, uint32_t bytes, uint32_t tile,
                                           uint4 *to) {
    const uint32_t begin = tile * XCI_TILE_BYTES, lane = d_lane();
    if (XCI_USUAL(begin + XCI_TILE_BYTES <= bytes && (uintptr_t)old_at % 16 == 0)) {
        const uint8_t *from = old_at + begin + 16 * lane;
#pragma unroll
        for (uint32_t i = 0; i < XCI_TILE_VECTORS; i += XCI_WARP)
            d_copy_async<true>(&to[lane + i], from + 16 * i);
    } else if (begin < bytes) {
#pragma unroll 1
        for (uint32_t v = lane; v < XCI_TILE_VECTORS; v += XCI_WARP)
            to[v] = d_tile_edge(old_at, bytes, begin + v * 16);
    }
    d_copy_async_group();
}

/* The lane's pieces are looked at from this vector on, whose number is XORed with 0, 1, 2, 3: by an
 * order of each lane's own, so that no two meet in a bank. */
__device__ __forceinline__ uint32_t d_first_vector(void) {
    return d_lane() * XCI_PIECE_VECTORS + d_lane() / 2 % XCI_PIECE_VECTORS;
}

/* ---- Keys ---- */

/* What keys are compared with, by pairs of classes: for the classes 1 and 2, 3 and 4, ... */
typedef struct xci_gap_bounds {
    uint32_t class_count;
    /* Nibbles: what each of the 8 keys counts for, in bytes: 1 if it is not below the first of the
     * pair, 128 if not below the second. Others: the lower 7 bits of each one's first key, four
     * times. */
    uint32_t low[XCI_CLASS_PAIRS], high[XCI_CLASS_PAIRS];
    uint32_t tops; /* bit c: the first key of class c has its highest bit set */
} xci_gap_bounds;

/* The first key of a class, above all keys if there is no such class. */
__device__ __forceinline__ uint32_t d_first_key(const uint32_t *first_keys, uint32_t class_count,
                                                uint32_t c) {
    return c < class_count ? first_keys[c] : XCI_GAP_KEYS;
}

__device__ __forceinline__ uint32_t d_nibble_table(uint32_t key, uint32_t first, uint32_t second) {
    uint32_t table = 0;
    for (uint32_t i = 0; i < 4; ++i, ++key)
        table |= ((key >= first ? 1u : 0) + (key >= second ? 128u : 0)) << 8 * i;
    return table;
}

template <uint32_t WIDTH>
__device__ __forceinline__ xci_gap_bounds d_bounds_of(const uint32_t *first_keys,
                                                      uint32_t class_count) {
    xci_gap_bounds bounds;
    bounds.class_count = class_count;
    bounds.tops = 0;
#pragma unroll
    for (uint32_t p = 0; p < XCI_CLASS_PAIRS; ++p) {
        const uint32_t first = d_first_key(first_keys, class_count, 2 * p + 1);
        const uint32_t second = d_first_key(first_keys, class_count, 2 * p + 2);
        bounds.low[p] = WIDTH == 0 ? d_nibble_table(0, first, second) : first % 128 * 0x01010101u;
        bounds.high[p] = WIDTH == 0 ? d_nibble_table(4, first, second) : second % 128 * 0x01010101u;
        bounds.tops |= first / 128 % 2 << (2 * p + 1) | second / 128 % 2 << (2 * p + 2);
    }
    return bounds;
}

/* Words of keys that a vector gives. */
template <uint32_t WIDTH> __device__ __forceinline__ constexpr uint32_t d_key_words(void) {
    return WIDTH < 2 ? 4 : WIDTH == 2 ? 2 : 1;
}

/* The keys of a vector's elements: in nibbles, or in bytes; 0 where there are none. */
template <uint32_t WIDTH> __device__ __forceinline__ void d_pack_keys(uint4 v, uint32_t *keys) {
    if (WIDTH < 2) {
        const uint32_t mask = WIDTH == 0 ? 0x77777777u : 0x7f7f7f7fu;
        keys[0] = v.x & mask, keys[1] = v.y & mask, keys[2] = v.z & mask, keys[3] = v.w & mask;
    } else if (WIDTH == 2) {
        keys[0] = d_pick_bytes(v.x << 1, v.y << 1, 0x7531);
        keys[1] = d_pick_bytes(v.z << 1, v.w << 1, 0x7531);
    } else if (WIDTH == 3) {
        keys[0] = d_pick_bytes(d_pick_bytes(v.x << 1, v.y << 1, 0x0073),
                               d_pick_bytes(v.z << 1, v.w << 1, 0x0073), 0x5410);
    } else {
        keys[0] = d_pick_bytes(v.y << 1, v.w << 1, 0x0073) & 0xffff;
    }
}

/* ---- Counts ---- */

#define XCI_BYTE_TOPS 0x80808080u
#define XCI_BYTE_ONES 0x01010101u

/* How many of the keys are not below the first of pair `p` (lower half), the second (upper). */
__device__ __forceinline__ uint32_t d_count_nibbles(const xci_gap_bounds &bounds, uint32_t p,
                                                    const uint32_t *keys) {
    uint32_t counts = 0;
#pragma unroll
    for (uint32_t part = 0; part < XCI_PIECE_WORDS; part += 8) { /* at most 64 of each */
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t i = part; i < part + 8; ++i) {
            sum = __dp4a(d_pick_bytes(bounds.low[p], bounds.high[p], keys[i]), XCI_BYTE_ONES, sum);
            sum = __dp4a(d_pick_bytes(bounds.low[p], bounds.high[p], keys[i] >> 16), XCI_BYTE_ONES,
                         sum);
        }
        counts += sum + (sum >> 7) * (65536 - 128);
    }
    return counts;
}

/* 128 for each key in bytes that is not below `bound`, which is below 128, or, with `top`, 128
 * above that. */
template <uint32_t WORDS>
__device__ __forceinline__ uint32_t d_count_bytes(const uint32_t *keys, uint32_t bound, bool top) {
    uint32_t sum = 0;
    if (top) {
#pragma unroll
        for (uint32_t i = 0; i < WORDS; ++i)
            sum = __dp4a(keys[i] & ((keys[i] | XCI_BYTE_TOPS) - bound) & XCI_BYTE_TOPS,
                         XCI_BYTE_ONES, sum);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < WORDS; ++i)
            sum = __dp4a((keys[i] | ((keys[i] | XCI_BYTE_TOPS) - bound)) & XCI_BYTE_TOPS,
                         XCI_BYTE_ONES, sum);
    }
    return sum;
}

/* For each pair: how many elements of the lane's piece are not below each of its classes. */
template <uint32_t WIDTH>
__device__ __forceinline__ void d_count_piece(const xci_gap_bounds &bounds, const uint4 *tile,
                                              uint32_t *counts) {
    constexpr uint32_t words = d_key_words<WIDTH>();
    uint32_t keys[words * XCI_PIECE_VECTORS];
    const uint32_t first = d_first_vector();
#pragma unroll
    for (uint32_t i = 0; i < XCI_PIECE_VECTORS; ++i)
        d_pack_keys<WIDTH>(tile[first ^ i], &keys[i * words]);
#pragma unroll
    for (uint32_t p = 0; p < XCI_CLASS_PAIRS; ++p) {
        counts[p] = 0;
        if (2 * p + 1 >= bounds.class_count)
            continue;
        if (WIDTH == 0) {
            counts[p] = d_count_nibbles(bounds, p, keys);
            continue;
        }
        counts[p] = d_count_bytes<words * XCI_PIECE_VECTORS>(
                        keys, bounds.low[p], WIDTH > 1 && (bounds.tops >> (2 * p + 1) & 1) != 0) >>
                    7;
        if (2 * p + 2 < bounds.class_count)
            counts[p] +=
                d_count_bytes<words * XCI_PIECE_VECTORS>(
                    keys, bounds.high[p], WIDTH > 1 && (bounds.tops >> (2 * p + 2) & 1) != 0)
                << 9;
    }
}

/* ---- Elements of a class ---- */

/* The keys of a class, as d_mark_keys compares them. */
typedef struct xci_gap_range {
    uint32_t low, high; /* nibbles: added; bytes: the lower 7 bits of the first key, and of
                                     the one behind the last, four times */
    uint32_t low_wide, high_wide; /* bytes: all ones if that has no eighth bit */
    uint32_t ends;                /* bytes: the highest bits if there are keys behind it, or 0 */
} xci_gap_range;

template <uint32_t WIDTH>
__device__ __forceinline__ xci_gap_range d_range_of(const uint32_t *first_keys,
                                                    uint32_t class_count, uint32_t c) {
    const uint32_t first = first_keys[c], end = d_first_key(first_keys, class_count, c + 1);
    xci_gap_range range = {};
    if (WIDTH == 0) {
        range.low = (8 - first) * 0x11111111u;
        range.high = end < 8 ? (8 - end) * 0x11111111u : 0;
        return range;
    }
    range.low = first % 128 * XCI_BYTE_ONES;
    range.high = end % 128 * XCI_BYTE_ONES;
    range.low_wide = first < 128 ? UINT32_MAX : 0;
    range.high_wide = end < 128 ? UINT32_MAX : 0;
    range.ends = end < XCI_GAP_KEYS ? XCI_BYTE_TOPS : 0;
    return range;
}

/* For each key in a byte, in its highest bit: whether it is not below a bound. */
__device__ __forceinline__ uint32_t d_byte_marks(uint32_t keys, uint32_t bound, uint32_t wide) {
    const uint32_t rest = (keys | XCI_BYTE_TOPS) - bound;
    return (keys & rest) | (wide & (keys | rest));
}

/* Those of a word of keys that are in a class, each by its highest bit. */
template <uint32_t WIDTH>
__device__ __forceinline__ uint32_t d_mark_keys(const xci_gap_range &range, uint32_t keys) {
    if (WIDTH == 0)
        return (keys + range.low) & ~(keys + range.high) & 0x88888888u;
    const uint32_t tops = WIDTH == 4 ? 0x8080u : XCI_BYTE_TOPS;
    return d_byte_marks(keys, range.low, range.low_wide) & tops &
           ~(d_byte_marks(keys, range.high, range.high_wide) & range.ends);
}

/* Which of a piece's elements is number `rank` of a class; there is one. */
template <uint32_t WIDTH>
__device__ __forceinline__ uint32_t d_find_element(const xci_gap_range &range, const uint4 *piece,
                                                   uint32_t rank) {
    constexpr uint32_t words = d_key_words<WIDTH>(), per_word = (32u >> WIDTH) / words;
    uint32_t marks[words], before = 0, word = 0;
#pragma unroll 1
    for (;; before += 32u >> WIDTH) {
        uint32_t keys[words], count = 0;
        d_pack_keys<WIDTH>(*piece++, keys);
#pragma unroll
        for (uint32_t w = 0; w < words; ++w) {
            marks[w] = d_mark_keys<WIDTH>(range, keys[w]);
            count += (uint32_t)__popc(marks[w]);
        }
        if (rank < count)
            break;
        rank -= count;
    }
    uint32_t bits = marks[0];
#pragma unroll
    for (uint32_t w = 1; w < words; ++w) { /* registers cannot be numbered */
        const uint32_t count = (uint32_t)__popc(bits);
        if (word == w - 1 && rank >= count) {
            rank -= count;
            bits = marks[w];
            word = w;
        }
    }
    for (; rank > 0; --rank)
        bits &= bits - 1;
    return before + word * per_word + (((uint32_t)__ffs((int)bits) - 1) >> (WIDTH == 0 ? 2 : 3));
}

#endif
