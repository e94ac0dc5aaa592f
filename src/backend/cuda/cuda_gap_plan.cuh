/* What a group becomes in the gap codec: widths, drafts of shapes, counts. A block of threads has a
 * group. Every choice is the one of codec/gap_plan.c, made by many threads. */
#ifndef XCI_CUDA_GAP_PLAN_CUH
#define XCI_CUDA_GAP_PLAN_CUH

#include "backend/cuda/cuda_gap_changes.cuh"
#include "codec/gap_shape.h"

#define XCI_PLAN_THREADS 256u
#define XCI_PLAN_WARPS (XCI_PLAN_THREADS / XCI_WARP)
#define XCI_PLAN_BLOCKS 5 /* of a multiprocessor, at least: they wait for memory most of the time */
#define XCI_FOLDED_SYMBOLS 4096u

/* Where the symbols of a width begin among those of all, with their finest heads. */
#define XCI_SAMPLE_SYMBOLS 2848u
__device__ __forceinline__ uint32_t d_sample_at(uint32_t width) {
    return width == 0 ? 0 : width == 1 ? 16 : width == 2 ? 272 : width == 3 ? 976 : 1872;
}

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

/* The first changed words of a chunk, of each warp; and symbols of all widths. */
typedef struct xci_gap_sample {
    uint64_t masks[XCI_PLAN_WARPS][XCI_GAP_SAMPLE_WORDS];
    uint32_t words[XCI_PLAN_WARPS][XCI_GAP_SAMPLE_WORDS];
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
    unsigned long long costs[XCI_PREFIX_LONGEST], changes[XCI_GAP_WIDTHS], elements[XCI_GAP_WIDTHS];
    uint32_t limits[XCI_PREFIX_LONGEST + 1], starts[XCI_PREFIX_LONGEST + 1]; /* of codes */
    uint8_t *taken;
    uint32_t kinds, used_end, code_count, description_bytes;
    xci_gap_planner_old old; /* only where it is asked for */
} xci_gap_planner;

/* A group at work. */
typedef struct xci_gap_work {
    const xci_cuda_gap_encode_call *call;
    const xci_gap_scratch *scratch;
    uint64_t first;        /* chunk, counted from the call's first */
    uint32_t group, count; /* chunks */
} xci_gap_work;

__device__ __forceinline__ xci_gap_work d_work_of(const xci_cuda_gap_encode_call *call,
                                                  const xci_gap_scratch *scratch, uint32_t group) {
    xci_gap_work work;
    work.call = call;
    work.scratch = scratch;
    work.group = group;
    work.first = call->group_first[group] - call->first;
    work.count = (uint32_t)(call->group_first[group + 1] - call->group_first[group]);
    return work;
}

__device__ __forceinline__ uint32_t d_warp(void) {
    return threadIdx.x / XCI_WARP;
}

__device__ __forceinline__ void d_clear_words(uint32_t *at, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count; i += XCI_PLAN_THREADS)
        at[i] = 0;
}

__device__ __forceinline__ void d_add64(unsigned long long *sum, uint64_t value) {
    atomicAdd(sum, (unsigned long long)value);
}

__device__ __forceinline__ const xci_cuda_chunk *d_chunk_of(const xci_gap_work *work, uint32_t c) {
    return &work->call->grid.chunks[work->call->first + work->first + c];
}

__device__ __forceinline__ xci_cuda_result *d_result_of(const xci_gap_work *work, uint32_t c) {
    return &work->call->results[work->first + c];
}

__device__ __forceinline__ xci_gap_source d_source_in(const xci_gap_work *work, uint32_t c) {
    return d_source_of(work->call, work->scratch, work->first + c);
}

__device__ __forceinline__ uint32_t d_draft_mark(const xci_gap_work *work, uint32_t d) {
    return work->group << XCI_DRAFT_BITS | d;
}

__device__ __forceinline__ bool d_is_of_draft(const xci_gap_work *work, uint32_t c, uint32_t d) {
    return work->scratch->drafts[work->first + c] == d_draft_mark(work, d);
}

/* Bytes of the room, aligned to 16; one thread. NULL: there is too little, and the call fails. */
__device__ __forceinline__ uint8_t *d_take_room(const xci_gap_scratch *scratch, uint32_t bytes) {
    const unsigned long long whole = (bytes + 15) / 16 * 16;
    const unsigned long long at = atomicAdd(&scratch->counters[3], whole);
    if (at + whole <= scratch->room_bytes)
        return scratch->room + at;
    scratch->counters[2] = 1;
    return NULL;
}

/* Whether the chunk has changed, and has elements of 1 << kind bytes. */
__device__ __forceinline__ bool d_is_of_kind(const xci_gap_work *work, uint32_t c, uint32_t kind) {
    return d_result_of(work, c)->bytes_changed != 0 &&
           d_chunk_of(work, c)->element_bytes == 1u << kind;
}

/* ---- Width ---- */

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

/* Of the lane's width: changes that were looked at, and the elements among which they are. */
typedef struct xci_gap_sampled {
    uint64_t changes, elements;
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

/* A chunk's first words with elements of every width. */
__device__ __forceinline__ void d_sample_chunk(const xci_gap_work *work, xci_gap_planner *planner,
                                               uint32_t c, xci_gap_sampled *sampled) {
    const xci_gap_source source = d_source_in(work, c);
    uint32_t word;
    uint64_t mask;
    const bool more = d_take_sample(source, &planner->for_now.sample, &word, &mask);
    const uint32_t lanes = __ballot_sync(XCI_ALL, mask != 0), last = d_highest(lanes);
    const uint32_t last_word = __shfl_sync(XCI_ALL, word, last);
    const uint64_t last_mask = __shfl_sync(XCI_ALL, mask, last);
    uint64_t marks = d_marks(mask, 0);
#pragma unroll
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        marks = width == 0 ? marks : d_wider_marks(marks, width);
        d_sample_words(planner->for_now.sample.counts + d_sample_at(width), mask, marks, width);
        const uint32_t changes = d_sum((uint32_t)__popcll(marks));
        const uint32_t inside = (63 - xci_zeros_above64(last_mask)) >> (2 + width);
        const uint32_t end = (last_word << (4 - width)) + inside + 1;
        if (d_lane() == width) {
            sampled->changes += changes;
            sampled->elements += more ? end : xci_gap_element_count(width, source.bytes);
        }
    }
}

__device__ __forceinline__ void d_sample_chunks(const xci_gap_work *work, xci_gap_planner *planner,
                                                uint32_t kind) {
    xci_gap_sampled sampled = {0, 0};
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS)
        if (d_is_of_kind(work, c, kind))
            d_sample_chunk(work, planner, c, &sampled);
    if (d_lane() >= XCI_GAP_WIDTHS || sampled.elements == 0)
        return;
    d_add64(&planner->changes[d_lane()], sampled.changes);
    d_add64(&planner->elements[d_lane()], sampled.elements);
}

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

/* The width that chunks of elements of 1 << kind bytes are cut into. */
__device__ __forceinline__ uint32_t d_choose_width(const xci_gap_work *work,
                                                   xci_gap_planner *planner, uint32_t kind) {
    __syncthreads();
    d_clear_words(planner->for_now.sample.counts, XCI_SAMPLE_SYMBOLS);
    if (threadIdx.x < XCI_GAP_WIDTHS)
        planner->changes[threadIdx.x] = planner->elements[threadIdx.x] = 0;
    __syncthreads();
    d_sample_chunks(work, planner, kind);
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
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (!d_is_of_draft(work, c, d))
            continue;
        xci_gap_source source = d_source_in(work, c);
        uint32_t word;
        uint64_t mask;
        while (d_next_words(&source, &word, &mask))
            d_each_mark(d_marks(mask, width), [&](bool active, uint32_t shift) {
                const uint64_t value = mask >> shift & d_element_ones(width);
                uint32_t tail_bits;
                d_tally(planner->counts, d_symbol(value, head, &tail_bits), active);
            });
    }
    __syncthreads();
    if (threadIdx.x == 0 && draft->dense)
        planner->counts[0] = (uint32_t)(draft->elements - draft->changes);
    __syncthreads();
    d_end_counts(planner);
}

#endif
