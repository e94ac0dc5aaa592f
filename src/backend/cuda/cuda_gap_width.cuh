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

/* Adds the lanes' words, each to its chunk; some masks may be 0. `last`: the lane's is the last one
 * that is looked at of a chunk that has more. */
__device__ __forceinline__ void d_add_words(xci_gap_planner *planner, xci_gap_sampled *sampled,
                                            uint32_t word, uint64_t mask, bool last) {
    uint64_t marks = d_marks(mask, 0);
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        marks = width == 0 ? marks : d_wider_marks(marks, width);
        d_sample_words(planner->for_now.sample.counts + d_sample_at(width), mask, marks, width);
        if (marks != 0)
            atomicAdd(&sampled->changes[width], (uint32_t)__popcll(marks));
        if (last)
            sampled->ends[width] =
                (word << (4 - width)) + ((63 - xci_zeros_above64(mask)) >> (2 + width)) + 1;
    }
}

/* By width, a lane's share of what places cost. */
typedef struct xci_gap_places_costs {
    uint64_t of[XCI_GAP_WIDTHS];
} xci_gap_places_costs;

/* Of a chunk that was looked at; one lane. */
__device__ __forceinline__ void d_add_places(xci_gap_places_costs *costs,
                                             const xci_gap_sampled *sampled, uint32_t bytes,
                                             bool more) {
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width)
        costs->of[width] +=
            xci_gap_places_cost(more ? sampled->ends[width] : xci_gap_element_count(width, bytes),
                                sampled->changes[width]);
}

__device__ __forceinline__ void d_end_sample(xci_gap_planner *planner,
                                             const xci_gap_places_costs *costs) {
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        const uint64_t cost = d_sum64(costs->of[width]);
        if (d_lane() == 0 && cost != 0)
            d_add64(&planner->places[width], cost);
    }
}

/* The warp's chunks, forgotten. */
__device__ __forceinline__ xci_gap_sampled *d_clear_sampled(xci_gap_planner *planner) {
    xci_gap_sampled *mine = planner->for_now.sample.chunks[d_warp()];
    uint32_t *words = (uint32_t *)mine;
    __syncwarp();
    for (uint32_t i = d_lane(); i < XCI_SAMPLED_AT_ONCE * sizeof *mine / 4; i += XCI_WARP)
        words[i] = 0;
    __syncwarp();
    return mine;
}

/* ---- Chunks ---- */

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
                                                       uint32_t *owner_out, bool *last_out) {
    const uint32_t owner = d_owner_of(s->begin, at);
    *owner_out = owner % XCI_SAMPLED_AT_ONCE;
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
                                                  xci_gap_places_costs *costs, uint32_t c) {
    const xci_gap_source source = d_source_in(work, c);
    uint32_t word;
    uint64_t mask;
    xci_gap_sampled *sampled = d_clear_sampled(planner);
    const bool more = d_take_sample(source, &planner->for_now.sample, &word, &mask);
    d_add_words(planner, sampled, word, mask, more && d_lane() + 1 == XCI_GAP_SAMPLE_WORDS);
    __syncwarp();
    if (d_lane() == 0)
        d_add_places(costs, sampled, source.bytes, more);
}

/* Chunks from `first` on. */
__device__ __forceinline__ void d_sample_chunks(const xci_gap_work *work, xci_gap_planner *planner,
                                                xci_gap_places_costs *costs, uint32_t first,
                                                uint32_t kind) {
    const uint32_t c = first + d_lane();
    const bool here =
        d_lane() < XCI_SAMPLED_AT_ONCE && c < work->count && d_is_of_kind(work, c, kind);
    const xci_gap_sampling s = d_begin_sampling(work, c, here);
    xci_gap_sampled *sampled = d_clear_sampled(planner);
#pragma unroll 1
    for (uint32_t at = 0; at < s.total; at += XCI_WARP) {
        uint32_t owner;
        bool last;
        const xci_gap_word word = d_sampled_word(&s, at + d_lane(), &owner, &last);
        d_add_words(planner, &sampled[owner], word.word, word.mask, last);
    }
    __syncwarp();
    if (s.listed)
        d_add_places(costs, &sampled[d_lane()], d_chunk_of(work, c)->bytes, s.more);
    uint32_t others = __ballot_sync(XCI_ALL, here && !s.listed);
#pragma unroll 1
    for (; others != 0; others &= others - 1)
        d_sample_unlisted(work, planner, costs, first + (uint32_t)__ffs((int)others) - 1);
}

__device__ __forceinline__ void d_sample_all(const xci_gap_work *work, xci_gap_planner *planner,
                                             uint32_t kind) {
    xci_gap_places_costs costs = {};
    for (uint32_t first = d_warp() * XCI_SAMPLED_AT_ONCE; first < work->count;
         first += XCI_PLAN_WARPS * XCI_SAMPLED_AT_ONCE)
        d_sample_chunks(work, planner, &costs, first, kind);
    d_end_sample(planner, &costs);
}

/* ---- Width ---- */

__device__ __forceinline__ uint64_t d_cost_of_width(const xci_gap_planner *planner,
                                                    uint32_t width) {
    const uint32_t *counts = planner->for_now.sample.counts + d_sample_at(width);
    const uint32_t head = xci_gap_head_max(width);
    return d_cost(counts, xci_gap_symbol_count(width, head), head) + planner->places[width];
}

/* The width that chunks of elements of 1 << kind bytes are cut into. */
__device__ __forceinline__ uint32_t d_choose_width(const xci_gap_work *work,
                                                   xci_gap_planner *planner, uint32_t kind) {
    __syncthreads();
    d_clear_words(planner->for_now.sample.counts, XCI_SAMPLE_SYMBOLS);
    if (threadIdx.x < XCI_GAP_WIDTHS)
        planner->places[threadIdx.x] = 0;
    __syncthreads();
    d_sample_all(work, planner, kind);
    __syncthreads();
    for (uint32_t width = d_warp(); width < XCI_GAP_WIDTHS; width += XCI_PLAN_WARPS) {
        const uint64_t cost = d_cost_of_width(planner, width);
        if (d_lane() == 0)
            planner->costs[width] = cost;
    }
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
