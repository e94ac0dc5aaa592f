/* What a group becomes in the gap codec: drafts of shapes, counts. A block of threads has a group.
 * Every choice is the one of codec/gap_plan.c, made by many threads. */
#ifndef XCI_CUDA_GAP_PLAN_CUH
#define XCI_CUDA_GAP_PLAN_CUH

#include "backend/cuda/cuda_gap_words.cuh"
#include "codec/gap_shape.h"

/* Blocks of a multiprocessor, at least, without and with classes: they wait for memory mostly. */
#define XCI_PLAN_BLOCKS 4
#define XCI_PLAN_OLD_BLOCKS 3
#define XCI_FOLDED_SYMBOLS 4096u

#define XCI_SAMPLE_SYMBOLS 2848u /* of all widths, with their finest heads */

/* A code in the making. */
typedef struct xci_gap_tree {
    uint32_t weights[2 * XCI_PREFIX_SYMBOLS];
    uint16_t up[2 * XCI_PREFIX_SYMBOLS];
    uint16_t used[XCI_PREFIX_SYMBOLS], leaves[XCI_PREFIX_SYMBOLS]; /* symbols, these by weight */
    uint8_t depths[2 * XCI_PREFIX_SYMBOLS];
} xci_gap_tree;

/* A code as sizes need it. */
typedef struct xci_gap_lengths {
    uint32_t head, leaf_count, single;
    uint8_t of[XCI_PREFIX_SYMBOLS];
} xci_gap_lengths;

/* What only classes need. */
typedef struct xci_gap_planner_old {
    uint32_t key_elements[XCI_GAP_KEYS], key_changes[XCI_GAP_KEYS];
    uint8_t class_of[XCI_GAP_KEYS];
    uint32_t counts[XCI_GAP_CLASSES][XCI_PREFIX_SYMBOLS]; /* by symbol */
    xci_gap_lengths own;
    uint32_t has_own; /* a bit for each class */
} xci_gap_planner_old;

#define XCI_SAMPLED_AT_ONCE 8u /* chunks of a warp */

/* By width: changes of a chunk that were looked at, and where the last one is. */
typedef struct xci_gap_sampled {
    uint32_t changes[XCI_GAP_WIDTHS], ends[XCI_GAP_WIDTHS];
} xci_gap_sampled;

/* The first changed words of a chunk, of each warp, which has several at a time; and symbols of all
 * widths. */
typedef struct xci_gap_sample {
    uint64_t masks[XCI_PLAN_WARPS][XCI_GAP_SAMPLE_WORDS];
    uint32_t words[XCI_PLAN_WARPS][XCI_GAP_SAMPLE_WORDS];
    xci_gap_sampled chunks[XCI_PLAN_WARPS][XCI_SAMPLED_AT_ONCE];
    uint32_t counts[XCI_SAMPLE_SYMBOLS];
} xci_gap_sample;

typedef struct xci_gap_planner {
    uint32_t counts[XCI_PREFIX_SYMBOLS]; /* by symbol */
    union {
        xci_gap_sample sample;
        xci_gap_range ranges[XCI_GAP_KEYS];
        uint32_t folded[XCI_FOLDED_SYMBOLS]; /* to several heads */
        xci_gap_tree tree;
        uint8_t description[XCI_DESCRIPTION];
    } for_now;
    xci_gap_lengths lengths; /* of the code that is not one class's own */
    xci_gap_draft drafts[XCI_GAP_SHAPES];
    unsigned long long costs[XCI_PREFIX_LONGEST], places[XCI_GAP_WIDTHS];
    uint32_t limits[XCI_PREFIX_LONGEST + 1], starts[XCI_PREFIX_LONGEST + 1]; /* of codes */
    uint8_t *taken;
    uint32_t kinds, used_end, code_count, description_bytes;
    xci_gap_planner_old old; /* only where it is asked for */
} xci_gap_planner;

__device__ __forceinline__ void d_clear_words(uint32_t *at, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count; i += XCI_PLAN_THREADS)
        at[i] = 0;
}

/* ---- Drafts ---- */

/* The lane's chunk, or none, goes to the sparse or the dense draft of its dtype's width. */
__device__ __forceinline__ void d_sort_chunk(const xci_gap_work *work, xci_gap_planner *planner,
                                             uint32_t c, bool here, uint32_t kind,
                                             uint32_t changes) {
    const uint32_t width = planner->drafts[2 * kind].width;
    const uint32_t elements = here ? xci_gap_element_count(width, d_chunk_of(work, c)->bytes) : 0;
    const bool dense = 2 * (uint64_t)changes > elements;
    if (here)
        work->scratch->drafts[work->first + c] = d_draft_mark(work, 2 * kind + dense);
#pragma unroll
    for (uint32_t d = 0; d < 2; ++d) {
        xci_gap_draft *draft = &planner->drafts[2 * kind + d];
        const bool mine = here && dense == (d != 0);
        const uint32_t count = (uint32_t)__popc(__ballot_sync(XCI_ALL, mine));
        const uint32_t all = d_sum(mine ? elements : 0), changed = d_sum(mine ? changes : 0);
        if (d_lane() != 0 || count == 0)
            continue;
        atomicAdd(&draft->chunk_count, count);
        d_add64(&draft->elements, all);
        d_add64(&draft->changes, changed);
    }
}

/* A lane a chunk. */
__device__ __forceinline__ void d_sort_chunks(const xci_gap_work *work, xci_gap_planner *planner,
                                              uint32_t kind, uint32_t width) {
    if (threadIdx.x < 2) {
        planner->drafts[2 * kind + threadIdx.x].width = width;
        planner->drafts[2 * kind + threadIdx.x].dense = threadIdx.x;
    }
    __syncthreads();
    for (uint32_t first = d_warp() * XCI_WARP; first < work->count; first += XCI_PLAN_THREADS) {
        const uint32_t c = first + d_lane();
        const bool here = c < work->count && d_is_of_kind(work, c, kind);
        const bool known = here && d_knows_changes(work->call, work->first + c, width);
        uint32_t changes =
            known ? d_known_changes(work->call, work->scratch, work->first + c, width) : 0;
        uint32_t others = __ballot_sync(XCI_ALL, here && !known);
        for (; others != 0; others &= others - 1) {
            const uint32_t lane = (uint32_t)__ffs((int)others) - 1;
            const uint32_t found =
                d_count_changes(work->call, work->scratch, work->first + first + lane, width);
            changes = d_lane() == lane ? found : changes;
        }
        d_sort_chunk(work, planner, c, here, kind, changes);
    }
}

/* ---- Counts ---- */

/* Cost of symbols of these counts, the first `end` of them, in units of 1/256 bit; a whole warp. */
__device__ __forceinline__ uint64_t d_cost(const uint32_t *counts, uint32_t end, uint32_t head) {
    uint32_t total = 0;
    uint64_t cost = 0;
    for (uint32_t s = d_lane(); s < end; s += XCI_WARP)
        total += counts[s];
    total = d_sum(total);
    if (total == 0)
        return 0;
    const uint64_t log2_total = xci_gap_log2(total);
    for (uint32_t s = d_lane(); s < end; s += XCI_WARP)
        if (counts[s] != 0)
            cost += xci_gap_symbol_cost(counts[s], log2_total, xci_gap_tail_bits(s, head));
    return d_sum64(cost);
}

/* Forgets counts of symbols, to be counted with the finest head. */
__device__ __forceinline__ void d_begin_counts(xci_gap_planner *planner) {
    __syncthreads();
    d_clear_words(planner->counts, XCI_PREFIX_SYMBOLS);
    planner->used_end = 0;
    __syncthreads();
}

/* Finds the last symbol that was counted. */
__device__ __forceinline__ void d_end_counts(xci_gap_planner *planner) {
    for (uint32_t s = threadIdx.x; s < XCI_PREFIX_SYMBOLS; s += XCI_PLAN_THREADS)
        if (planner->counts[s] != 0)
            atomicMax(&planner->used_end, s + 1);
    __syncthreads();
}

/* Symbols of all changes of a draft. */
__device__ __forceinline__ void d_count_symbols(const xci_gap_work *work, xci_gap_planner *planner,
                                                uint32_t d) {
    const xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t width = draft->width, head = xci_gap_head_max(width);
    d_begin_counts(planner);
    d_each_word_of<false>(work, d, [&](uint64_t, uint64_t mask) {
        d_each_mark(d_marks(mask, width), [&](bool active, uint32_t shift) {
            const uint64_t value = mask >> shift & d_element_ones(width);
            uint32_t tail_bits;
            d_tally(planner->counts, d_symbol(value, head, &tail_bits), active);
        });
    });
    __syncthreads();
    if (threadIdx.x == 0 && draft->dense)
        planner->counts[0] = (uint32_t)(draft->elements - draft->changes);
    __syncthreads();
    d_end_counts(planner);
}

#endif
