/* From gap blocks to masks of words, which a visitor takes: visit(word, mask), words rising, masks
 * of a word complete. A sparse block is one thread's work; of a dense one each lane of a warp has
 * the segments that begin with its number. Whatever is found before a block turns out to be
 * damaged has been visited. */
#ifndef XCI_CUDA_GAP_DECODE_CUH
#define XCI_CUDA_GAP_DECODE_CUH

#include "backend/cuda/cuda_gap_stream.cuh"

/* Changes of one word, until those of another come. */
typedef struct xci_gap_word {
    uint32_t number;
    uint64_t mask;
} xci_gap_word;

/* Where element `position` lies: 8-byte word and bits in it. */
__device__ __forceinline__ uint32_t d_word_of(uint32_t position, uint32_t width) {
    return position >> (4 - width);
}
__device__ __forceinline__ uint32_t d_shift_in_word(uint32_t position, uint32_t width) {
    return (position & ((1u << (4 - width)) - 1)) << (2 + width);
}

/* Whether the value reaches beyond the end of a chunk of `bytes`. */
__device__ __forceinline__ bool d_beyond(uint32_t position, uint64_t value, uint32_t width,
                                         uint32_t bytes) {
    if (width < 2)
        return false;
    const uint32_t element_bytes = 1u << (width - 1), room = bytes - position * element_bytes;
    return XCI_RARE(room < element_bytes) && value >> (8 * room) != 0;
}

template <typename Visit>
__device__ __forceinline__ void d_add_change(xci_gap_word *word, uint32_t position, uint64_t value,
                                             uint32_t width, Visit visit) {
    const uint32_t number = d_word_of(position, width);
    if (number != word->number) {
        if (word->mask != 0)
            visit(word->number, word->mask);
        word->number = number;
        word->mask = 0;
    }
    word->mask |= value << d_shift_in_word(position, width);
}

/* False: the block is damaged. `ends` is the thread's in shared memory. */
template <typename Visit>
__device__ __forceinline__ bool
d_walk_sparse(const xci_gap_shape *shape, const xci_gap_lookup *lookups, const uint8_t *block,
              uint32_t block_bytes, uint32_t bytes, uint32_t *ends, uint32_t stride, Visit visit) {
    xci_gap_walk walk;
    walk.bits = d_bits_of(block, block_bytes);
    walk.past.prior = shape->classes[0].prior;
    walk.past.count = walk.past.next = 0;
    walk.past.ends = ends;
    walk.past.stride = stride;
    walk.lookup = &lookups[shape->classes[0].table];
    walk.count = xci_gap_element_count(shape->width, bytes);
    walk.bad = false;
    xci_gap_word word = {0, 0};
    while (d_next_change(&walk)) {
        if (d_beyond(walk.position, walk.value, shape->width, bytes))
            return false;
        d_add_change(&word, walk.position, walk.value, shape->width, visit);
    }
    if (word.mask != 0)
        visit(word.number, word.mask);
    return !walk.bad;
}

/* ---- Dense blocks ---- */

/* Moves `at` behind one stream and gives its place; the last stream is all that is left. False:
 * there is none. */
__device__ __forceinline__ bool d_next_segment(xci_reader *at, bool last, xci_gap_bits *bits_out) {
    const uint64_t bytes = last ? xci_reader_left(at) : xci_read_varint(at);
    const uint8_t *begin = xci_read_bytes(at, bytes);
    if (at->bad)
        return false;
    *bits_out = d_bits_of(begin, (uint32_t)bytes);
    return true;
}

/* The values of elements [first, end). */
template <typename Visit>
__device__ __forceinline__ bool d_walk_segment(xci_gap_bits *bits, const xci_gap_lookup *lookup,
                                               uint32_t width, uint32_t bytes, uint32_t first,
                                               uint32_t end, Visit visit) {
    xci_gap_word word = {0, 0};
    for (uint32_t i = first; i < end; ++i) {
        const uint64_t value = d_take_value(bits, lookup);
        if (bits->left < 0 || d_beyond(i, value, width, bytes))
            return false;
        d_add_change(&word, i, value, width, visit);
    }
    if (word.mask != 0)
        visit(word.number, word.mask);
    return d_at_end(bits);
}

/* A whole warp; false in all lanes if the block is damaged. */
template <typename Visit>
__device__ __forceinline__ bool d_walk_dense(const xci_gap_shape *shape,
                                             const xci_gap_lookup *lookups, const uint8_t *block,
                                             uint32_t block_bytes, uint32_t bytes, Visit visit) {
    const uint32_t width = shape->width, count = xci_gap_element_count(width, bytes);
    const xci_gap_lookup *lookup = &lookups[shape->classes[0].table];
    const uint32_t segments = (count + XCI_GAP_SEGMENT - 1) / XCI_GAP_SEGMENT;
    xci_reader at = {block, block + block_bytes, false};
    bool good = true;
    for (uint32_t s = 0; good && s < segments; ++s) {
        xci_gap_bits bits;
        const uint32_t first = s * XCI_GAP_SEGMENT;
        good = d_next_segment(&at, s + 1 == segments, &bits);
        if (good && s % XCI_WARP == d_lane())
            good = d_walk_segment(&bits, lookup, width, bytes, first,
                                  min(count, first + XCI_GAP_SEGMENT), visit);
    }
    return !__any_sync(XCI_ALL, !good);
}

#endif
