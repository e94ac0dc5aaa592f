/* LZ4 and Snappy blocks of a chunk whose changed words are known: sizes, and the blocks, byte for
 * byte those of backend/cpu/cpu_writer.h. A warp goes through the words from the chunk's end to its
 * beginning, one a lane, because what stands before literals says how many they are.
 *
 *     a lane's bytes:  the word's, from its first changed byte on; then, where the run of zeros to
 *                      the next word is copied: literal 0, the copy, the head of the literals
 *                      behind it, and what of the run is not copied; else these zeros
 *
 * A word may have a copied run inside, which parts it likewise. */
#ifndef XCI_CUDA_GAP_RUNS_CUH
#define XCI_CUDA_GAP_RUNS_CUH

#include "backend/cuda/cuda_gap_chunk.cuh"
#include "codec/lz4_block.h"
#include "codec/snappy_block.h"

/* ---- Words from the end ---- */

typedef struct xci_gap_back {
    xci_gap_source source;
    uint32_t units, left; /* to come: whole units, and words or entries of the one behind them */
} xci_gap_back;

__device__ __forceinline__ xci_gap_back d_from_end(const xci_gap_source *source) {
    xci_gap_back back;
    back.source = *source;
    back.units = (uint32_t)(source->end - source->unit);
    back.left = 0;
    return back;
}

__device__ __forceinline__ uint32_t d_words_of_unit(const xci_gap_source *source, uint32_t unit) {
    const uint32_t words = (source->bytes + 7) / 8, first = unit * (XCI_UNIT_BYTES / 8);
    if (source->unit[unit].count != XCI_NOT_LISTED)
        return source->unit[unit].count;
    return first < words ? min(XCI_UNIT_BYTES / 8, words - first) : 0;
}

/* The words before those that were had, one a lane, falling; their masks may be 0. False: there are
 * none. */
__device__ __forceinline__ bool d_previous_words(xci_gap_back *back, uint32_t *word_out,
                                                 uint64_t *mask_out) {
    const xci_gap_source *source = &back->source;
    *mask_out = 0;
    *word_out = 0;
    while (back->left == 0) {
        if (back->units == 0)
            return false;
        back->left = d_words_of_unit(source, --back->units);
    }
    const xci_gap_unit *unit = &source->unit[back->units];
    if (d_lane() < back->left) {
        const uint32_t at = back->left - 1 - d_lane();
        if (unit->count != XCI_NOT_LISTED) {
            d_take_entry(unit, at, word_out, mask_out);
        } else {
            *word_out = back->units * (XCI_UNIT_BYTES / 8) + at;
            *mask_out = d_word_at(source->old_at, *word_out, source->bytes) ^
                        d_word_at(source->new_at, *word_out, source->bytes);
        }
    }
    back->left -= min(back->left, XCI_WARP);
    return true;
}

/* ---- Rules of a codec ---- */

typedef struct xci_gap_runs {
    uint32_t bytes;    /* of the chunk */
    uint32_t zero_end; /* a run that begins here or later stays literal */
    uint32_t copy_end; /* no copy reaches beyond */
    bool snappy;
} xci_gap_runs;

__device__ __forceinline__ xci_gap_runs d_runs_of(uint32_t codec, uint32_t bytes) {
    xci_gap_runs runs = {bytes, bytes, bytes, codec == XORCAST_CODEC_SNAPPY};
    if (codec == XORCAST_CODEC_LZ4) {
        runs.zero_end = bytes > XCI_LZ4_LAST_MATCH_START ? bytes - XCI_LZ4_LAST_MATCH_START : 0;
        runs.copy_end = bytes - min(bytes, XCI_LZ4_LAST_LITERALS);
    }
    return runs;
}

/* How many bytes of the run of zeros [zero, end) are copied, behind a literal one. */
__device__ __forceinline__ uint32_t d_copied(const xci_gap_runs *runs, uint32_t zero,
                                             uint32_t end) {
    if (end - zero < 1 + XCI_LZ4_MIN_MATCH || zero >= runs->zero_end)
        return 0;
    return min(end, runs->copy_end) - zero - 1;
}

/* ---- What stands between literals ---- */

/* Bytes of a length of which a token's nibble holds 15. */
__device__ __forceinline__ uint32_t d_length_bytes(uint32_t length) {
    return length < XCI_LZ4_NIBBLE ? 0 : (length - XCI_LZ4_NIBBLE) / 255 + 1;
}

/* Before `literals`. */
__device__ __forceinline__ uint32_t d_head_bytes(const xci_gap_runs *runs, uint32_t literals) {
    if (!runs->snappy)
        return 1 + d_length_bytes(literals);
    return literals == 0         ? 0
           : literals <= 60      ? 1
           : literals <= 0x100   ? 2
           : literals <= 0x10000 ? 3
                                 : 4;
}

__device__ __forceinline__ uint32_t d_copy_bytes(const xci_gap_runs *runs, uint32_t copied) {
    if (!runs->snappy)
        return 2 + d_length_bytes(copied - XCI_LZ4_MIN_MATCH);
    const uint32_t rest = copied % XCI_SNAPPY_LONGEST_COPY;
    return copied / XCI_SNAPPY_LONGEST_COPY * 3 + (rest == 0 ? 0 : rest >= 4 && rest <= 11 ? 2 : 3);
}

__device__ __forceinline__ uint8_t *d_put_length_bytes(uint8_t *at, uint32_t length) {
    if (length < XCI_LZ4_NIBBLE)
        return at;
    uint32_t above = length - XCI_LZ4_NIBBLE;
    for (; above >= 255; above -= 255)
        *at++ = 255;
    *at++ = (uint8_t)above;
    return at;
}

/* Before `literals`, behind which `copied` bytes are copied; 0: the block ends. */
__device__ __forceinline__ uint8_t *d_put_head(const xci_gap_runs *runs, uint8_t *at,
                                               uint32_t literals, uint32_t copied) {
    if (runs->snappy)
        return literals == 0 ? at : xci_snappy_put_literal(at, literals);
    const uint32_t code = copied == 0 ? 0 : copied - XCI_LZ4_MIN_MATCH;
    *at++ = (uint8_t)(min(literals, XCI_LZ4_NIBBLE) << 4 | min(code, XCI_LZ4_NIBBLE));
    return d_put_length_bytes(at, literals);
}

__device__ __forceinline__ uint8_t *d_put_copy(const xci_gap_runs *runs, uint8_t *at,
                                               uint32_t copied) {
    if (!runs->snappy) {
        *at++ = 1;
        *at++ = 0;
        return d_put_length_bytes(at, copied - XCI_LZ4_MIN_MATCH);
    }
    for (; copied >= XCI_SNAPPY_LONGEST_COPY; copied -= XCI_SNAPPY_LONGEST_COPY)
        at = xci_snappy_put_zeros(at, XCI_SNAPPY_LONGEST_COPY);
    return copied == 0 ? at : xci_snappy_put_zeros(at, copied);
}

/* ---- Words ---- */

/* Where literals to the left end, and how many bytes are copied there; 0: the block ends. */
typedef struct xci_gap_close {
    uint32_t end, copied;
} xci_gap_close;

/* What is to the right of a batch. */
typedef struct xci_gap_right {
    uint32_t next; /* changed byte; the chunk's bytes if there is none */
    xci_gap_close close;
    uint32_t size; /* of the block so far */
} xci_gap_right;

/* A lane's bytes [first, next) of the mask, of which those from `end` on are zeros, and the run
 * [inner_zero, inner_end) inside the word if any of it is copied. */
typedef struct xci_gap_stretch {
    uint64_t mask;
    uint32_t word, first, end, next;
    uint32_t copied, inner, inner_zero, inner_end; /* bytes that are copied of each run */
    xci_gap_close close;                           /* of what is right of the runs */
} xci_gap_stretch;

__device__ __forceinline__ void d_look_inside(xci_gap_stretch *stretch, const xci_gap_runs *runs) {
    const uint32_t base = stretch->word * 8;
    stretch->inner = 0;
    if (stretch->end - stretch->first < 7 || (stretch->mask & UINT64_C(0xffffffff0000)) != 0)
        return;
    stretch->inner_zero = base + ((stretch->mask & 0xff00) != 0 ? 2 : 1);
    stretch->inner_end = base + ((stretch->mask >> 48 & 0xff) != 0 ? 6 : 7);
    stretch->inner = d_copied(runs, stretch->inner_zero, stretch->inner_end);
}

/* Takes a batch of words, falling; the lane's stretch is empty if its mask is 0. What is to the
 * right becomes what it is for the next batch, but for the size. */
__device__ __forceinline__ xci_gap_stretch d_stretch_of(const xci_gap_runs *runs,
                                                        xci_gap_right *right, uint32_t word,
                                                        uint64_t mask) {
    const uint32_t below = (1u << d_lane()) - 1;
    const uint32_t words = __ballot_sync(XCI_ALL, mask != 0);
    xci_gap_stretch stretch = {};
    stretch.mask = mask;
    stretch.word = word;
    if (mask != 0) {
        stretch.first = word * 8 + xci_zeros_below64(mask) / 8;
        stretch.end = word * 8 + 8 - (uint32_t)__clzll((long long)mask) / 8;
        d_look_inside(&stretch, runs);
    }
    const uint32_t before = words & below;
    const uint32_t next = __shfl_sync(XCI_ALL, stretch.first, before != 0 ? d_highest(before) : 0);
    stretch.next = before != 0 ? next : right->next;
    stretch.copied = mask != 0 ? d_copied(runs, stretch.end, stretch.next) : 0;
    const bool inside = stretch.inner != 0;
    const uint32_t own_end = (inside ? stretch.inner_zero : stretch.end) + 1;
    const uint32_t own_copied = inside ? stretch.inner : stretch.copied;
    const uint32_t runs_there = __ballot_sync(XCI_ALL, own_copied != 0);
    const uint32_t closing = runs_there & below;
    const uint32_t from = closing != 0 ? d_highest(closing) : 0;
    stretch.close.end = __shfl_sync(XCI_ALL, own_end, from);
    stretch.close.copied = __shfl_sync(XCI_ALL, own_copied, from);
    if (closing == 0)
        stretch.close = right->close;
    if (words != 0)
        right->next = __shfl_sync(XCI_ALL, stretch.first, d_highest(words));
    if (runs_there != 0) {
        right->close.end = __shfl_sync(XCI_ALL, own_end, d_highest(runs_there));
        right->close.copied = __shfl_sync(XCI_ALL, own_copied, d_highest(runs_there));
    }
    return stretch;
}

/* What closes the literals behind the run inside the word. */
__device__ __forceinline__ xci_gap_close d_inner_close(const xci_gap_stretch *stretch) {
    const xci_gap_close own = {stretch->end + 1, stretch->copied};
    return stretch->copied != 0 ? own : stretch->close;
}

/* Bytes of the block. */
__device__ __forceinline__ uint32_t d_stretch_bytes(const xci_gap_runs *runs,
                                                    const xci_gap_stretch *stretch) {
    if (stretch->mask == 0)
        return 0;
    uint32_t bytes = stretch->next - stretch->first - stretch->copied - stretch->inner;
    if (stretch->copied != 0)
        bytes += d_copy_bytes(runs, stretch->copied) +
                 d_head_bytes(runs, stretch->close.end - (stretch->end + 1 + stretch->copied));
    if (stretch->inner != 0)
        bytes += d_copy_bytes(runs, stretch->inner) +
                 d_head_bytes(runs, d_inner_close(stretch).end -
                                        (stretch->inner_zero + 1 + stretch->inner));
    return bytes;
}

__device__ __forceinline__ uint8_t *d_put_zeros(uint8_t *at, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
        *at++ = 0;
    return at;
}

/* Bytes [from, to) of the word's mask. */
__device__ __forceinline__ uint8_t *d_put_mask(const xci_gap_stretch *stretch, uint8_t *at,
                                               uint32_t from, uint32_t to) {
    uint64_t mask = stretch->mask >> 8 * (from - stretch->word * 8);
    for (; from < to; ++from, mask >>= 8)
        *at++ = (uint8_t)mask;
    return at;
}

/* A copied run from `zero` on, its literal zero, and the head of the literals behind it. */
__device__ __forceinline__ uint8_t *d_put_run(const xci_gap_runs *runs, uint8_t *at, uint32_t zero,
                                              uint32_t copied, xci_gap_close close) {
    *at++ = 0;
    at = d_put_copy(runs, at, copied);
    return d_put_head(runs, at, close.end - (zero + 1 + copied), close.copied);
}

__device__ __forceinline__ void d_put_stretch(const xci_gap_runs *runs,
                                              const xci_gap_stretch *stretch, uint8_t *at) {
    uint32_t from = stretch->first;
    if (stretch->mask == 0)
        return;
    if (stretch->inner != 0) {
        at = d_put_mask(stretch, at, from, stretch->inner_zero);
        at = d_put_run(runs, at, stretch->inner_zero, stretch->inner, d_inner_close(stretch));
        from = stretch->inner_zero + 1 + stretch->inner;
    }
    at = d_put_mask(stretch, at, from, stretch->end);
    if (stretch->copied == 0) {
        d_put_zeros(at, stretch->next - stretch->end);
        return;
    }
    at = d_put_run(runs, at, stretch->end, stretch->copied, stretch->close);
    d_put_zeros(at, stretch->next - (stretch->end + 1 + stretch->copied));
}

/* ---- Blocks ---- */

__device__ __forceinline__ xci_gap_right d_right_of_all(const xci_gap_runs *runs) {
    const xci_gap_right right = {runs->bytes, {runs->bytes, 0}, 0};
    return right;
}

/* What stands before the first changed byte: the head of the block, and zeros. */
__device__ __forceinline__ uint32_t d_begin_bytes(const xci_gap_runs *runs,
                                                  const xci_gap_right *right) {
    const uint32_t copied = d_copied(runs, 0, right->next);
    const uint32_t preamble = runs->snappy ? d_varint_bytes(runs->bytes) : 0;
    if (copied == 0)
        return preamble + d_head_bytes(runs, right->close.end) + right->next;
    return preamble + d_head_bytes(runs, 1) + right->next - copied + d_copy_bytes(runs, copied) +
           d_head_bytes(runs, right->close.end - (1 + copied));
}

/* One thread. */
__device__ __forceinline__ void d_put_begin(const xci_gap_runs *runs, const xci_gap_right *right,
                                            uint8_t *at) {
    const uint32_t copied = d_copied(runs, 0, right->next);
    if (runs->snappy)
        at += xci_varint_put(at, runs->bytes);
    if (copied == 0) {
        at = d_put_head(runs, at, right->close.end, right->close.copied);
        d_put_zeros(at, right->next);
        return;
    }
    at = d_put_head(runs, at, 1, copied);
    at = d_put_run(runs, at, 0, copied, right->close);
    d_put_zeros(at, right->next - (1 + copied));
}

/* Bytes of the block of a chunk that changes, raw or not; a whole warp. */
__device__ __forceinline__ uint32_t d_runs_bytes(const xci_gap_source *source, uint32_t codec) {
    const xci_gap_runs runs = d_runs_of(codec, source->bytes);
    xci_gap_right right = d_right_of_all(&runs);
    xci_gap_back back = d_from_end(source);
    uint32_t word;
    uint64_t mask;
    while (d_previous_words(&back, &word, &mask)) {
        const xci_gap_stretch stretch = d_stretch_of(&runs, &right, word, mask);
        right.size += d_stretch_bytes(&runs, &stretch);
    }
    return d_sum(right.size) + d_begin_bytes(&runs, &right);
}

/* Writes a block of `bytes`; a whole warp. */
__device__ __forceinline__ void d_write_runs(const xci_gap_source *source, uint32_t codec,
                                             uint8_t *at, uint32_t bytes) {
    const xci_gap_runs runs = d_runs_of(codec, source->bytes);
    xci_gap_right right = d_right_of_all(&runs);
    xci_gap_back back = d_from_end(source);
    uint32_t word;
    uint64_t mask;
    while (d_previous_words(&back, &word, &mask)) {
        const xci_gap_stretch stretch = d_stretch_of(&runs, &right, word, mask);
        const uint32_t sum = d_scan(d_stretch_bytes(&runs, &stretch));
        d_put_stretch(&runs, &stretch, at + (bytes - right.size - sum));
        right.size += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    }
    if (d_lane() == 0)
        d_put_begin(&runs, &right, at);
}

#endif
