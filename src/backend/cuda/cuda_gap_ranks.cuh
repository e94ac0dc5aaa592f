/* Changes of a chunk by the classes of their old elements: each one's class and its rank among the
 * elements of that class, found by a warp that goes through the old weights once, and kept in the
 * scratch as class << 21 | rank; then the changes of all classes with what stands before each. */
#ifndef XCI_CUDA_GAP_RANKS_CUH
#define XCI_CUDA_GAP_RANKS_CUH

#include "backend/cuda/cuda_gap_changes.cuh"
#include "backend/cuda/cuda_gap_rows.cuh"

#define XCI_RANK_BITS 21u
#define XCI_ENDS                                                                                   \
    64u /* of a class's last changes: those of a batch, and as many as a gap looks back */

/* A warp's, in shared memory. */
typedef struct xci_gap_streams {
    uint64_t row[2 * XCI_WARP]; /* masks of a row's words */
    uint32_t ends[XCI_GAP_CLASSES][XCI_ENDS];
} xci_gap_streams;

/* ---- Ranks ---- */

/* Words that are to be met in rising order. */
typedef struct xci_gap_queue {
    xci_gap_source source;
    uint32_t word;
    uint64_t mask; /* 0: the lane has none */
    bool done;
} xci_gap_queue;

/* Puts the masks of words [begin, begin + 64) into the row; whether there are any. */
__device__ __forceinline__ bool d_fetch_row(xci_gap_queue *queue, uint32_t begin, uint64_t *row) {
    bool any = false;
    for (;;) {
        const bool here = queue->mask != 0 && queue->word < begin + 2 * XCI_WARP;
        any = __any_sync(XCI_ALL, here) || any;
        if (here) {
            row[queue->word - begin] = queue->mask;
            queue->mask = 0;
        }
        if (queue->done || __any_sync(XCI_ALL, queue->mask != 0))
            break;
        queue->done = !d_next_words(&queue->source, &queue->word, &queue->mask);
    }
    __syncwarp();
    return any;
}

/* Marks of the lane's changed elements, as those of classes lie. */
__device__ __forceinline__ void d_mark_changes(uint32_t width, uint64_t low, uint64_t high,
                                               uint32_t *marks) {
    const uint64_t lows = d_marks(low, width), highs = d_marks(high, width);
    marks[0] = (uint32_t)lows;
    marks[1] = width == 4 ? (uint32_t)highs : (uint32_t)(lows >> 32);
    marks[2] = width == 4 ? 0 : (uint32_t)highs;
    marks[3] = width == 4 ? 0 : (uint32_t)(highs >> 32);
}

__device__ __forceinline__ uint32_t d_count_marks(const uint32_t *marks) {
    return (uint32_t)(__popc(marks[0]) + __popc(marks[1]) + __popc(marks[2]) + __popc(marks[3]));
}

/* Ranks of the row's changes of class `c`, of which the lane has `before` elements in earlier lanes
 * and rows. `at`: number of the lane's first change in the chunk. */
__device__ __forceinline__ void d_put_ranks(const uint32_t *changed, const uint32_t *marks,
                                            uint32_t c, uint32_t before, uint32_t at,
                                            uint32_t *ranks) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t bits = changed[i] & marks[i]; bits != 0; bits &= bits - 1) {
            const uint32_t below = (bits & (0u - bits)) - 1;
            ranks[at + (uint32_t)__popc(changed[i] & below)] =
                c << XCI_RANK_BITS | (before + (uint32_t)__popc(marks[i] & below));
        }
        before += (uint32_t)__popc(marks[i]);
        at += (uint32_t)__popc(changed[i]);
    }
}

__device__ __forceinline__ uint32_t d_rank_row(const xci_gap_scan *scan, const xci_gap_row *row,
                                               uint64_t low, uint64_t high, uint32_t first,
                                               uint32_t *ranks) {
    uint32_t changed[4];
    d_mark_changes(scan->fields.width, low, high, changed);
    const uint32_t mine = d_count_marks(changed), sum = d_scan(mine);
    for (uint32_t c = 0; c < scan->class_count; ++c) {
        uint32_t marks[4];
        const uint32_t elements = d_mark_class(scan, row, c, marks);
        const bool has = ((changed[0] & marks[0]) | (changed[1] & marks[1]) |
                          (changed[2] & marks[2]) | (changed[3] & marks[3])) != 0;
        if (!__any_sync(XCI_ALL, has))
            continue;
        const uint32_t before = d_scan(elements) - elements + __shfl_sync(XCI_ALL, scan->seen, c);
        if (has)
            d_put_ranks(changed, marks, c, before, first + sum - mine, ranks);
    }
    return __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
}

/* Writes class and rank of each change of a chunk with several classes. */
__device__ __forceinline__ void d_rank_changes(const xci_gap_source *source, uint32_t width,
                                               const uint32_t *first_keys, uint32_t class_count,
                                               xci_gap_streams *streams, uint32_t *ranks) {
    xci_gap_scan scan;
    xci_gap_queue queue = {*source, 0, 0, false};
    const uint32_t rows = (source->bytes + XCI_ROW_VECTORS * 16 - 1) / (XCI_ROW_VECTORS * 16);
    uint32_t changes = 0;
    d_begin_rows(&scan, width, class_count, first_keys, source->old_at, source->bytes);
    streams->row[d_lane()] = streams->row[d_lane() + XCI_WARP] = 0;
    __syncwarp();
    xci_gap_ahead ahead = d_begin_ahead(&scan);
#pragma unroll 1 /* the code is long: it must stay in the instruction cache */
    for (uint32_t r = 0; r < rows; ++r) {
        xci_gap_row row;
        row.old_part = d_next_row(&scan, &ahead);
        d_class_row(&scan, r, &row);
        if (d_fetch_row(&queue, r * 2 * XCI_WARP, streams->row)) {
            uint64_t *mine = &streams->row[2 * d_lane()];
            changes += d_rank_row(&scan, &row, mine[0], mine[1], changes, ranks);
            mine[0] = mine[1] = 0;
            __syncwarp();
        }
        scan.seen += d_row_total(&scan, &row);
    }
    __syncwarp();
}

/* ---- Changes by class ---- */

/* A change as the coder of its class sees it. */
typedef struct xci_gap_ranked {
    uint32_t of; /* its class */
    uint32_t rank, last_end, far_end, number;
    uint64_t value; /* the step */
} xci_gap_ranked;

__device__ __forceinline__ uint32_t d_ranked_parameter(const xci_gap_ranked *change,
                                                       uint32_t prior) {
    const uint32_t count = XCI_GAP_PRIOR + min(change->number, XCI_GAP_WINDOW);
    return xci_gap_parameter_of(count, prior + change->last_end - change->far_end);
}

__device__ __forceinline__ uint64_t d_step_of(const xci_gap_source *source, uint32_t width,
                                              uint32_t position, uint64_t mask) {
    const uint32_t shift = (position & ((1u << (4 - width)) - 1)) << (2 + width);
    const uint64_t word = d_word_at(source->old_at, position >> (4 - width), source->bytes);
    const uint64_t element = word >> shift & d_element_ones(width);
    return xci_gap_step(element, element ^ mask, width);
}

/* What stands before the lanes' changes in their classes. `seen`: changes so far of the lane's
 * class, of lanes below the number of classes. */
__device__ __forceinline__ void d_join_classes(xci_gap_streams *streams, uint32_t class_count,
                                               bool active, xci_gap_ranked *change,
                                               uint32_t *seen) {
    for (uint32_t c = 0; c < class_count; ++c) {
        const bool same = active && change->of == c;
        const uint32_t all = __ballot_sync(XCI_ALL, same);
        const uint32_t before = __shfl_sync(XCI_ALL, *seen, c);
        if (same) {
            change->number = before + (uint32_t)__popc(all & ((1u << d_lane()) - 1));
            streams->ends[c][change->number % XCI_ENDS] = change->rank + 1;
        }
        if (d_lane() == c)
            *seen += (uint32_t)__popc(all);
    }
    __syncwarp();
    if (active) {
        const uint32_t *ends = streams->ends[change->of], n = change->number;
        change->last_end = n > 0 ? ends[(n - 1) % XCI_ENDS] : 0;
        change->far_end = n >= XCI_FAR ? ends[(n - XCI_FAR) % XCI_ENDS] : 0;
    }
    __syncwarp();
}

/* Calls visit(active, change) for all changes of a chunk, 32 at a time, by the whole warp. `ranks`:
 * NULL where there is one class. */
template <typename Visit>
__device__ __forceinline__ void
d_each_ranked(const xci_gap_source *source, xci_gap_batch *batch, xci_gap_streams *streams,
              uint32_t width, uint32_t class_count, const uint32_t *ranks, Visit visit) {
    uint32_t seen = 0;
    d_each_change(*source, batch, width, [&](bool active, const xci_gap_change &at) {
        xci_gap_ranked change = {};
        if (active) {
            const uint32_t rank = ranks != NULL ? ranks[at.number] : at.position;
            change.of = ranks != NULL ? rank >> XCI_RANK_BITS : 0;
            change.rank = ranks != NULL ? rank & ((1u << XCI_RANK_BITS) - 1) : rank;
            change.value = d_step_of(source, width, at.position, at.value);
        }
        d_join_classes(streams, class_count, active, &change, &seen);
        visit(active, change);
    });
}

#endif
