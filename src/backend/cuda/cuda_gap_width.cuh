/* The width of elements, by the first changed words of each chunk. The choice is that of
 * codec/gap_plan.c. Chunks with few words, which most are, are looked at together. */
#ifndef XCI_CUDA_GAP_WIDTH_CUH
#define XCI_CUDA_GAP_WIDTH_CUH

#include "backend/cuda/cuda_gap_plan.cuh"

/* Where the symbols of a width begin among those of all, with their finest heads. */
__device__ __forceinline__ uint32_t d_sample_at(uint32_t width) {
    return width == 0 ? 0 : width == 1 ? 16 : width == 2 ? 272 : width == 3 ? 976 : 1872;
}

/* ---- Words ---- */

/* By width, a lane's share: changes that were looked at, and elements among which they are. */
typedef struct xci_gap_sampled {
    uint32_t changes[XCI_GAP_WIDTHS];
    uint64_t elements[XCI_GAP_WIDTHS];
} xci_gap_sampled;

/* Symbols of the words' marked elements, with the finest head. */
__device__ __forceinline__ void d_sample_words(uint32_t *counts, uint64_t mask, uint64_t marks,
                                               uint32_t width) {
    const uint32_t head = xci_gap_head_max(width);
    d_each_mark(marks, [&](bool active, uint32_t shift) {
        const uint64_t value = mask >> shift & d_element_ones(width);
        uint32_t tail_bits;
        d_tally(counts, d_symbol(value, head, &tail_bits), active);
    });
}

/* Adds the lanes' words; some masks may be 0. `last`: the lane's is the last one that is looked at
 * of a chunk that has more. */
__device__ __forceinline__ void d_add_words(xci_gap_planner *planner, xci_gap_sampled *sampled,
                                            uint32_t word, uint64_t mask, bool last) {
    uint64_t marks = d_marks(mask, 0);
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        marks = width == 0 ? marks : d_wider_marks(marks, width);
        d_sample_words(planner->for_now.sample.counts + d_sample_at(width), mask, marks, width);
        sampled->changes[width] += (uint32_t)__popcll(marks);
        if (last)
            sampled->elements[width] +=
                (word << (4 - width)) + ((63 - xci_zeros_above64(mask)) >> (2 + width)) + 1;
    }
}

/* All elements of the lane's chunk. */
__device__ __forceinline__ void d_add_elements(xci_gap_sampled *sampled, uint32_t bytes) {
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width)
        sampled->elements[width] += xci_gap_element_count(width, bytes);
}

__device__ __forceinline__ void d_end_sample(xci_gap_planner *planner,
                                             const xci_gap_sampled *sampled) {
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        const uint32_t changes = d_sum(sampled->changes[width]);
        const uint64_t elements = d_sum64(sampled->elements[width]);
        if (d_lane() != 0 || elements == 0)
            continue;
        d_add64(&planner->changes[width], changes);
        d_add64(&planner->elements[width], elements);
    }
}

/* ---- Chunks ---- */

#define XCI_SAMPLED_AT_ONCE 8u

/* A warp's chunks, a lane's among the first: their words that are looked at lie behind each other.
 * A chunk with a unit that is not listed has none here. */
typedef struct xci_gap_sampling {
    const xci_gap_unit *units;
    uint32_t begin, total;
    bool more, listed;
} xci_gap_sampling;

__device__ __forceinline__ xci_gap_sampling d_begin_sampling(const xci_gap_work *work, uint32_t c,
                                                             bool here) {
    const uint32_t per_chunk = work->scratch->units_per_chunk;
    xci_gap_sampling s = {work->scratch->units + (work->first + c) * per_chunk, 0, 0, false, here};
    uint32_t words = 0;
    for (uint32_t u = 0; here && u < per_chunk && s.listed && words <= XCI_GAP_SAMPLE_WORDS; ++u) {
        const uint32_t count = s.units[u].count;
        s.listed = count != XCI_NOT_LISTED;
        words += count;
    }
    s.more = s.listed && words > XCI_GAP_SAMPLE_WORDS;
    words = s.listed ? min(words, XCI_GAP_SAMPLE_WORDS) : 0;
    const uint32_t sum = d_scan(words);
    s.begin = sum - words;
    s.total = __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    return s;
}

/* Word `at` of all of them, or none. */
__device__ __forceinline__ xci_gap_word d_sampled_word(const xci_gap_sampling *s, uint32_t at,
                                                       bool *last_out) {
    const uint32_t owner = d_owner_of(s->begin, at);
    const xci_gap_unit *unit =
        (const xci_gap_unit *)__shfl_sync(XCI_ALL, (uint64_t)(uintptr_t)s->units, owner);
    uint32_t i = at - __shfl_sync(XCI_ALL, s->begin, owner);
    *last_out = __shfl_sync(XCI_ALL, (uint32_t)s->more, owner) != 0 && at < s->total &&
                i + 1 == XCI_GAP_SAMPLE_WORDS;
    xci_gap_word word = {0, 0, 0, 0};
    if (at >= s->total)
        return word;
    for (; i >= unit->count; ++unit)
        i -= unit->count;
    d_take_entry(unit, i, &word.word, &word.mask);
    return word;
}

/* The first changed words of a chunk, one a lane; whether there are more. */
__device__ __forceinline__ bool d_take_sample(xci_gap_source source, xci_gap_sample *sample,
                                              uint32_t *word_out, uint64_t *mask_out) {
    uint32_t word, have = 0;
    uint64_t mask;
    __syncwarp();
    while (have <= XCI_GAP_SAMPLE_WORDS && d_next_words(&source, &word, &mask)) {
        const uint32_t changed = __ballot_sync(XCI_ALL, mask != 0);
        const uint32_t at = have + (uint32_t)__popc(changed & ((1u << d_lane()) - 1));
        if (mask != 0 && at < XCI_GAP_SAMPLE_WORDS) {
            sample->words[d_warp()][at] = word;
            sample->masks[d_warp()][at] = mask;
        }
        have += (uint32_t)__popc(changed);
    }
    __syncwarp();
    *word_out = d_lane() < have ? sample->words[d_warp()][d_lane()] : 0;
    *mask_out = d_lane() < have ? sample->masks[d_warp()][d_lane()] : 0;
    return have > XCI_GAP_SAMPLE_WORDS;
}

/* A chunk that is not listed, by itself. */
__device__ __forceinline__ void d_sample_unlisted(const xci_gap_work *work,
                                                  xci_gap_planner *planner,
                                                  xci_gap_sampled *sampled, uint32_t c) {
    const xci_gap_source source = d_source_in(work, c);
    uint32_t word;
    uint64_t mask;
    const bool more = d_take_sample(source, &planner->for_now.sample, &word, &mask);
    d_add_words(planner, sampled, word, mask, more && d_lane() + 1 == XCI_GAP_SAMPLE_WORDS);
    if (!more && d_lane() == 0)
        d_add_elements(sampled, source.bytes);
}

/* Chunks from `first` on. */
__device__ __forceinline__ void d_sample_chunks(const xci_gap_work *work, xci_gap_planner *planner,
                                                xci_gap_sampled *sampled, uint32_t first,
                                                uint32_t kind, bool thick) {
    const uint32_t c = first + d_lane();
    const bool here = d_lane() < XCI_SAMPLED_AT_ONCE && c < work->count &&
                      d_is_of_kind(work, c, kind) && d_is_thick(work, c) == thick;
    const xci_gap_sampling s = d_begin_sampling(work, c, here);
    if (s.listed && !s.more)
        d_add_elements(sampled, d_chunk_of(work, c)->bytes);
#pragma unroll 1
    for (uint32_t at = 0; at < s.total; at += XCI_WARP) {
        bool last;
        const xci_gap_word word = d_sampled_word(&s, at + d_lane(), &last);
        d_add_words(planner, sampled, word.word, word.mask, last);
    }
    uint32_t others = __ballot_sync(XCI_ALL, here && !s.listed);
#pragma unroll 1
    for (; others != 0; others &= others - 1)
        d_sample_unlisted(work, planner, sampled, first + (uint32_t)__ffs((int)others) - 1);
}

__device__ __forceinline__ void d_sample_all(const xci_gap_work *work, xci_gap_planner *planner,
                                             uint32_t kind, bool thick) {
    xci_gap_sampled sampled = {};
    for (uint32_t first = d_warp() * XCI_SAMPLED_AT_ONCE; first < work->count;
         first += XCI_PLAN_WARPS * XCI_SAMPLED_AT_ONCE)
        d_sample_chunks(work, planner, &sampled, first, kind, thick);
    d_end_sample(planner, &sampled);
}

/* ---- Width ---- */

__device__ __forceinline__ uint64_t d_cost_of_width(xci_gap_planner *planner, uint32_t width) {
    uint32_t *counts = planner->for_now.sample.counts + d_sample_at(width);
    const uint32_t head = xci_gap_head_max(width), end = xci_gap_symbol_count(width, head);
    const uint64_t elements = planner->elements[width], changes = planner->changes[width];
    const bool sparse = 2 * changes <= elements;
    if (changes == 0)
        return 0;
    if (!sparse && d_lane() == 0)
        counts[0] += (uint32_t)(elements - changes);
    __syncwarp();
    return d_cost(counts, end, head) + (sparse ? xci_gap_gaps_cost(elements, changes) : 0);
}

/* Adds what thin chunks, or thick ones, of a kind cost with each width. */
__device__ __forceinline__ void d_add_costs(const xci_gap_work *work, xci_gap_planner *planner,
                                            uint32_t kind, bool thick) {
    __syncthreads();
    d_clear_words(planner->for_now.sample.counts, XCI_SAMPLE_SYMBOLS);
    if (threadIdx.x < XCI_GAP_WIDTHS)
        planner->changes[threadIdx.x] = planner->elements[threadIdx.x] = 0;
    __syncthreads();
    d_sample_all(work, planner, kind, thick);
    __syncthreads();
    for (uint32_t width = d_warp(); width < XCI_GAP_WIDTHS; width += XCI_PLAN_WARPS) {
        const uint64_t cost = d_cost_of_width(planner, width);
        if (d_lane() == 0)
            planner->costs[width] += cost;
    }
}

/* The width that chunks of elements of 1 << kind bytes are cut into. */
__device__ __forceinline__ uint32_t d_choose_width(const xci_gap_work *work,
                                                   xci_gap_planner *planner, uint32_t kind) {
    __syncthreads();
    if (threadIdx.x < XCI_GAP_WIDTHS)
        planner->costs[threadIdx.x] = 0;
#pragma unroll 1
    for (uint32_t thick = 0; thick < 2; ++thick)
        if ((planner->kinds & d_kind_mark(1u << kind, thick != 0)) != 0)
            d_add_costs(work, planner, kind, thick != 0);
    __syncthreads();
    uint32_t best = kind + 1;
    uint64_t least = planner->costs[best];
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        if (planner->costs[width] < least) {
            least = planner->costs[width];
            best = width;
        }
    }
    __syncthreads();
    return best;
}

#endif
