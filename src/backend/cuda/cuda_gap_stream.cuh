/* A stream of the gap codec, read by one thread from foreign bytes: bits, values, gaps. The same
 * streams are accepted as by codec/gap_elements.h. Reads the stream in aligned words of 4 bytes
 * that hold some of its bytes, and nothing else. */
#ifndef XCI_CUDA_GAP_STREAM_CUH
#define XCI_CUDA_GAP_STREAM_CUH

#include "backend/cuda/cuda_gap_params.cuh"

/* ---- Bits ---- */

/* Three words that begin before the next bit. The third is asked for long before it is needed. */
typedef struct xci_gap_bits {
    const uint32_t *next, *end;
    uint32_t words[3];
    uint32_t taken; /* bits of the first word, less than 32 */
    int32_t left;   /* of the stream; below 0: more was taken than there is */
} xci_gap_bits;

__device__ __forceinline__ uint32_t d_next_word(xci_gap_bits *bits) {
    const uint32_t word = bits->next < bits->end ? *bits->next : 0;
    ++bits->next;
    return word;
}

/* The next 32 bits, whatever they are behind the stream's end. */
__device__ __forceinline__ uint32_t d_window(const xci_gap_bits *bits) {
    return __funnelshift_r(bits->words[0], bits->words[1], bits->taken);
}

/* At most 32 bits. */
__device__ __forceinline__ void d_drop(xci_gap_bits *bits, uint32_t count) {
    bits->taken += count;
    bits->left -= (int32_t)count;
    if (bits->taken < 32)
        return;
    bits->taken -= 32;
    bits->words[0] = bits->words[1];
    bits->words[1] = bits->words[2];
    bits->words[2] = d_next_word(bits);
}

/* Up to 32 bits. */
__device__ __forceinline__ uint32_t d_take(xci_gap_bits *bits, uint32_t count) {
    const uint32_t window = d_window(bits);
    d_drop(bits, count);
    return count < 32 ? window & ((1u << count) - 1) : window;
}

__device__ __forceinline__ xci_gap_bits d_bits_of(const uint8_t *at, uint32_t bytes) {
    const uintptr_t address = (uintptr_t)at;
    xci_gap_bits bits;
    bits.next = (const uint32_t *)(address & ~(uintptr_t)3);
    bits.end = bytes != 0 ? (const uint32_t *)((address + bytes + 3) & ~(uintptr_t)3) : bits.next;
    bits.taken = (uint32_t)(address % 4 * 8);
    bits.left = (int32_t)(bytes * 8);
    bits.words[0] = d_next_word(&bits);
    bits.words[1] = d_next_word(&bits);
    bits.words[2] = d_next_word(&bits);
    return bits;
}

__device__ __forceinline__ bool d_at_end(const xci_gap_bits *bits) {
    if ((uint32_t)bits->left >= 8) /* below 0 too */
        return false;
    const uint32_t ones = (1u << bits->left) - 1;
    return (d_window(bits) & ones) == ones;
}

/* ---- Values ---- */

__device__ __forceinline__ uint32_t d_take_symbol(xci_gap_bits *bits,
                                                  const xci_gap_lookup *lookup) {
    const uint32_t window = d_window(bits);
    const uint32_t entry = lookup->fast[window % XCI_FAST_ENTRIES];
    if (XCI_USUAL(entry != XCI_LONGER)) {
        d_drop(bits, entry & 15);
        return entry >> 4;
    }
    const uint32_t code = d_reverse(window, 32) >> (32 - XCI_PREFIX_LONGEST);
    uint32_t length = XCI_FAST_BITS + 1;
    while (length < XCI_PREFIX_LONGEST && code >= lookup->limits[length])
        ++length;
    d_drop(bits, length);
    const uint32_t rank = (code - lookup->limits[length - 1]) >> (XCI_PREFIX_LONGEST - length);
    return lookup->sorted[lookup->starts[length] + rank];
}

__device__ __forceinline__ uint64_t d_take_value(xci_gap_bits *bits, const xci_gap_lookup *lookup) {
    const uint32_t symbol = d_take_symbol(bits, lookup);
    const uint32_t tail_bits = xci_gap_tail_bits(symbol, lookup->head);
    if (tail_bits == 0)
        return symbol;
    uint64_t tail = d_take(bits, min(tail_bits, 32u));
    if (tail_bits > 32)
        tail |= (uint64_t)d_take(bits, tail_bits - 32) << 32;
    return xci_gap_value(symbol, lookup->head, tail_bits, tail);
}

/* ---- Gaps ---- */

/* As xci_gap_window, with the ends in shared memory, `stride` apart. */
typedef struct xci_gap_past {
    uint32_t prior, count, next;
    uint32_t *ends;
    uint32_t stride;
} xci_gap_past;

__device__ __forceinline__ uint32_t d_parameter(const xci_gap_past *past) {
    const bool full = past->count >= XCI_GAP_WINDOW;
    const uint32_t from = full ? past->ends[past->count % XCI_GAP_WINDOW * past->stride] : 0;
    const uint32_t count = XCI_GAP_PRIOR + (full ? XCI_GAP_WINDOW : past->count);
    return xci_gap_parameter_of(count, past->prior + past->next - from);
}

__device__ __forceinline__ void d_pass(xci_gap_past *past, uint32_t position) {
    past->ends[past->count++ % XCI_GAP_WINDOW * past->stride] = past->next;
    past->next = position + 1;
}

/* The next gap. False: there is none of that kind. */
__device__ __forceinline__ bool d_take_gap(xci_gap_bits *bits, uint32_t k, uint32_t *gap_out) {
    const uint32_t window = d_window(bits);
    const uint32_t ones = (uint32_t)__ffs((int)(~window | 1u << XCI_GAP_ONES)) - 1;
    if (XCI_RARE(ones == XCI_GAP_ONES)) {
        d_drop(bits, XCI_GAP_ONES);
        *gap_out = d_take(bits, XCI_GAP_PLAIN_BITS);
        return *gap_out >> k >= XCI_GAP_ONES;
    }
    uint32_t low = window >> (ones + 1), dropped = ones + 1 + k;
    if (XCI_RARE(dropped > 32)) {
        d_drop(bits, ones + 1);
        low = d_window(bits);
        dropped = k;
    }
    d_drop(bits, dropped);
    *gap_out = ones << k | (low & ((1u << k) - 1));
    return true;
}

/* A sparse stream on its way. */
typedef struct xci_gap_walk {
    xci_gap_bits bits;
    xci_gap_past past;
    const xci_gap_lookup *lookup;
    uint32_t count;    /* positions */
    uint32_t position; /* of the change at hand, */
    uint64_t value;    /* which is not 0 */
    bool bad;
} xci_gap_walk;

/* Takes up the next change. False at the end, or where the stream is damaged. */
__device__ __forceinline__ bool d_next_change(xci_gap_walk *walk) {
    if (d_at_end(&walk->bits))
        return false;
    uint32_t gap;
    walk->bad = !d_take_gap(&walk->bits, d_parameter(&walk->past), &gap);
    if (walk->bits.left >= 0)
        walk->value = d_take_value(&walk->bits, walk->lookup);
    walk->bad = walk->bad || walk->bits.left < 0 || gap >= walk->count - walk->past.next ||
                walk->value == 0;
    if (walk->bad)
        return false;
    walk->position = walk->past.next + gap;
    d_pass(&walk->past, walk->position);
    return true;
}

#endif
