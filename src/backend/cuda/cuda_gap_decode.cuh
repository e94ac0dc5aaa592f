/* From gap blocks to masks of words, which a visitor takes: visit(word, mask), words rising, masks
 * of a word complete. A sparse block is one thread's work; of a dense one each lane of a warp has
 * every 32nd segment. Whatever is found before a block turns out to be damaged has been visited.
 *
 * What a value means is a parameter too: the mask itself, or a step from the old element. */
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

/* False: the block is damaged. `ends` is the thread's in shared memory. mask_of(position, value)
 * gives the mask. */
template <typename MaskOf, typename Visit>
__device__ __forceinline__ bool d_walk_sparse(const xci_gap_shape *shape,
                                              const xci_gap_lookup *lookups, const uint8_t *block,
                                              uint32_t block_bytes, uint32_t bytes, uint32_t *ends,
                                              uint32_t stride, MaskOf mask_of, Visit visit) {
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
        const uint64_t mask = mask_of(walk.position, walk.value);
        if (d_beyond(walk.position, mask, shape->width, bytes))
            return false;
        d_add_change(&word, walk.position, mask, shape->width, visit);
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

/* Elements [first, end); take(bits, position) gives the mask of the next one. */
template <typename Take, typename Visit>
__device__ __forceinline__ bool d_walk_segment(xci_gap_bits *bits, uint32_t width, uint32_t bytes,
                                               uint32_t first, uint32_t end, Take take,
                                               Visit visit) {
    xci_gap_word word = {0, 0};
    for (uint32_t i = first; i < end; ++i) {
        const uint64_t mask = take(bits, i);
        if (bits->left < 0 || d_beyond(i, mask, width, bytes))
            return false;
        d_add_change(&word, i, mask, width, visit);
    }
    if (word.mask != 0)
        visit(word.number, word.mask);
    return d_at_end(bits);
}

/* A whole warp; false in all lanes if the block is damaged. */
template <typename Take, typename Visit>
__device__ __forceinline__ bool d_walk_dense(uint32_t width, const uint8_t *block,
                                             uint32_t block_bytes, uint32_t bytes, Take take,
                                             Visit visit) {
    const uint32_t count = xci_gap_element_count(width, bytes);
    const uint32_t segments = (count + XCI_GAP_SEGMENT - 1) / XCI_GAP_SEGMENT;
    xci_reader at = {block, block + block_bytes, false};
    bool good = true;
    for (uint32_t s = 0; good && s < segments; ++s) {
        xci_gap_bits bits;
        const uint32_t first = s * XCI_GAP_SEGMENT;
        good = d_next_segment(&at, s + 1 == segments, &bits);
        if (good && s % XCI_WARP == d_lane())
            good = d_walk_segment(&bits, width, bytes, first, min(count, first + XCI_GAP_SEGMENT),
                                  take, visit);
    }
    return !__any_sync(XCI_ALL, !good);
}

/* ---- Old elements ---- */

/* Element `position` of `bytes` at any address; what is cut off counts as 0. */
__device__ __forceinline__ uint64_t d_old_element(const uint8_t *at, uint32_t bytes, uint32_t width,
                                                  uint32_t position) {
    if (width == 0)
        return at[position / 2] >> position % 2 * 4 & 15;
    const uint32_t element_bytes = 1u << (width - 1), from = position * element_bytes;
    uint64_t element = 0;
    for (uint32_t i = 0; i < element_bytes && from + i < bytes; ++i)
        element |= (uint64_t)at[from + i] << (8 * i);
    return element;
}

#endif
