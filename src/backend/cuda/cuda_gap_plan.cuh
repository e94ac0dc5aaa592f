/* What a group becomes in the gap codec: width, shapes, codes, sizes of blocks, parameters. A block
 * of threads has a group. Every choice is the one of codec/gap_plan.c, gap_codes.c and
 * prefix_code.c, made by many threads. */
#ifndef XCI_CUDA_GAP_PLAN_CUH
#define XCI_CUDA_GAP_PLAN_CUH

#include "backend/cuda/cuda_gap_changes.cuh"
#include "codec/gap_shape.h"
#include "codec/prefix_items.h"

#define XCI_PLAN_THREADS 128u
#define XCI_PLAN_WARPS (XCI_PLAN_THREADS / XCI_WARP)
#define XCI_NO_DRAFT UINT32_MAX

/* A code in the making. */
typedef struct xci_gap_tree {
    uint32_t weights[2 * XCI_PREFIX_SYMBOLS];
    uint16_t up[2 * XCI_PREFIX_SYMBOLS];
    uint16_t used[XCI_PREFIX_SYMBOLS], leaves[XCI_PREFIX_SYMBOLS]; /* symbols, these by weight */
    uint8_t depths[2 * XCI_PREFIX_SYMBOLS];
} xci_gap_tree;

typedef struct xci_gap_draft {
    uint32_t width, dense, chunk_count, prior;
    unsigned long long elements, changes;
    uint32_t table_bytes; /* of its description */
    uint32_t first_kept;  /* chunk */
    uint32_t number;      /* among the shapes that are written */
} xci_gap_draft;

/* A code as the coder needs it. */
typedef struct xci_gap_lengths {
    uint32_t head, leaf_count;
    uint8_t of[XCI_PREFIX_SYMBOLS];
} xci_gap_lengths;

typedef struct xci_gap_planner {
    uint32_t counts[XCI_PREFIX_SYMBOLS]; /* by symbol */
    union {
        uint32_t sample[XCI_GAP_WIDTHS][XCI_PREFIX_SYMBOLS];
        uint32_t folded[XCI_PLAN_WARPS][XCI_PREFIX_SYMBOLS];
        xci_gap_tree tree;
        uint8_t description[XCI_TABLE_ROOM];
    } for_now;
    xci_gap_batch batches[XCI_PLAN_WARPS];
    xci_gap_lengths lengths;
    xci_gap_draft drafts[XCI_GAP_SHAPES];
    unsigned long long costs[XCI_PREFIX_LONGEST], changes[XCI_GAP_WIDTHS], elements[XCI_GAP_WIDTHS];
    unsigned long long bytes, chunk_bytes; /* of all blocks; of changed chunks */
    uint32_t kinds, used_end, kept_count, changed_count;
} xci_gap_planner;

/* A group at work. */
typedef struct xci_gap_work {
    const xci_cuda_gap_encode_call *call;
    const xci_gap_scratch *scratch;
    xci_gap_planner *planner;
    uint64_t first; /* chunk, counted from the call's first */
    uint32_t count; /* chunks */
    uint8_t *room;
} xci_gap_work;

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

/* ---- Width ---- */

/* The first changed words of a chunk, one a lane; whether there are more. */
__device__ __forceinline__ bool d_take_sample(xci_gap_source source, xci_gap_batch *batch,
                                              uint32_t *word_out, uint64_t *mask_out) {
    uint32_t word, have = 0;
    uint64_t mask;
    __syncwarp();
    while (have <= XCI_GAP_SAMPLE_WORDS && d_next_words(&source, &word, &mask)) {
        const uint32_t changed = __ballot_sync(XCI_ALL, mask != 0);
        const uint32_t at = have + (uint32_t)__popc(changed & ((1u << d_lane()) - 1));
        if (mask != 0 && at < XCI_GAP_SAMPLE_WORDS) {
            batch->words[at] = word;
            batch->masks[at] = mask;
        }
        have += (uint32_t)__popc(changed);
    }
    __syncwarp();
    *word_out = d_lane() < have ? batch->words[d_lane()] : 0;
    *mask_out = d_lane() < have ? batch->masks[d_lane()] : 0;
    return have > XCI_GAP_SAMPLE_WORDS;
}

/* A chunk's first words with elements of every width. */
__device__ __forceinline__ void d_sample_chunk(const xci_gap_work *work, uint32_t c) {
    xci_gap_planner *planner = work->planner;
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    uint32_t word;
    uint64_t mask;
    const bool more = d_take_sample(source, &planner->batches[d_warp()], &word, &mask);
    const uint32_t lanes = __ballot_sync(XCI_ALL, mask != 0), last = d_highest(lanes);
    const uint32_t last_word = __shfl_sync(XCI_ALL, word, last);
    const uint64_t last_mask = __shfl_sync(XCI_ALL, mask, last);
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; ++width) {
        uint32_t *counts = planner->for_now.sample[width];
        uint32_t tail_bits;
        d_each_value(mask, width, [&](uint64_t value) {
            atomicAdd(&counts[xci_gap_symbol(value, xci_gap_head_max(width), &tail_bits)], 1u);
        });
        const uint32_t changes = d_sum((uint32_t)__popcll(d_marks(mask, width)));
        const uint32_t inside = (63 - xci_zeros_above64(last_mask)) >> (2 + width);
        const uint32_t end = (last_word << (4 - width)) + inside + 1;
        if (d_lane() == 0) {
            d_add64(&planner->changes[width], changes);
            d_add64(&planner->elements[width],
                    more ? end : xci_gap_element_count(width, source.bytes));
        }
    }
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
    uint32_t *counts = planner->for_now.sample[width];
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
__device__ __forceinline__ uint32_t d_choose_width(const xci_gap_work *work, uint32_t kind) {
    xci_gap_planner *planner = work->planner;
    __syncthreads();
    d_clear_words(&planner->for_now.sample[0][0], XCI_GAP_WIDTHS * XCI_PREFIX_SYMBOLS);
    if (threadIdx.x < XCI_GAP_WIDTHS)
        planner->changes[threadIdx.x] = planner->elements[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS)
        if (d_result_of(work, c)->bytes_changed != 0 &&
            d_chunk_of(work, c)->element_bytes == 1u << kind)
            d_sample_chunk(work, c);
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

/* Changed elements of a width; a whole warp. */
__device__ __forceinline__ uint32_t d_count_changes(const xci_gap_work *work, uint32_t c,
                                                    uint32_t kind, uint32_t width) {
    if (width == kind + 1)
        return d_result_of(work, c)->elements_changed;
    if (width == 1)
        return d_result_of(work, c)->bytes_changed;
    xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    uint32_t word, changes = 0;
    uint64_t mask;
    while (d_next_words(&source, &word, &mask))
        changes += (uint32_t)__popcll(d_marks(mask, width));
    return d_sum(changes);
}

/* Every chunk goes to the sparse or the dense draft of its dtype's width. */
__device__ __forceinline__ void d_sort_chunks(const xci_gap_work *work, uint32_t kind,
                                              uint32_t width) {
    for (uint32_t d = 0; d < 2; ++d) {
        xci_gap_draft *draft = &work->planner->drafts[2 * kind + d];
        if (threadIdx.x == 0) {
            draft->width = width;
            draft->dense = d;
        }
    }
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        const xci_cuda_chunk *chunk = d_chunk_of(work, c);
        if (d_result_of(work, c)->bytes_changed == 0 || chunk->element_bytes != 1u << kind)
            continue;
        const uint32_t elements = xci_gap_element_count(width, chunk->bytes);
        const uint32_t changes = d_count_changes(work, c, kind, width);
        const uint32_t dense = 2 * (uint64_t)changes > elements;
        xci_gap_draft *draft = &work->planner->drafts[2 * kind + dense];
        if (d_lane() == 0) {
            work->scratch->drafts[work->first + c] = 2 * kind + dense;
            atomicAdd(&draft->chunk_count, 1u);
            d_add64(&draft->elements, elements);
            d_add64(&draft->changes, changes);
        }
    }
}

/* Symbols of all changes of a draft, with the finest head. */
__device__ __forceinline__ void d_count_symbols(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    const xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t width = draft->width, head = xci_gap_head_max(width);
    __syncthreads();
    d_clear_words(planner->counts, XCI_PREFIX_SYMBOLS);
    planner->used_end = 0;
    __syncthreads();
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (work->scratch->drafts[work->first + c] != d)
            continue;
        xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
        uint32_t word;
        uint64_t mask;
        while (d_next_words(&source, &word, &mask))
            d_each_value(mask, width, [&](uint64_t value) {
                uint32_t tail_bits;
                atomicAdd(&planner->counts[xci_gap_symbol(value, head, &tail_bits)], 1u);
            });
    }
    __syncthreads();
    if (threadIdx.x == 0 && draft->dense)
        planner->counts[0] = (uint32_t)(draft->elements - draft->changes);
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < XCI_PREFIX_SYMBOLS; s += XCI_PLAN_THREADS)
        if (planner->counts[s] != 0)
            atomicMax(&planner->used_end, s + 1);
    __syncthreads();
}

/* ---- Codes ---- */

/* The symbol of the same values with a smaller head. */
__device__ __forceinline__ uint32_t d_fold_symbol(uint32_t symbol, uint32_t finest, uint32_t head) {
    const uint32_t tail = xci_gap_tail_bits(symbol, finest);
    uint32_t tail_bits;
    return xci_gap_symbol(xci_gap_value(symbol, finest, tail, 0), head, &tail_bits);
}

/* Counts folded to a head; a whole warp. */
__device__ __forceinline__ void d_fold(const uint32_t *counts, uint32_t end, uint32_t finest,
                                       uint32_t head, uint32_t *folded) {
    __syncwarp();
    for (uint32_t s = d_lane(); s < end; s += XCI_WARP)
        folded[s] = 0;
    __syncwarp();
    for (uint32_t s = d_lane(); s < end; s += XCI_WARP)
        if (counts[s] != 0)
            atomicAdd(&folded[d_fold_symbol(s, finest, head)], counts[s]);
    __syncwarp();
}

/* The head that costs least; counts are folded to it. */
__device__ __forceinline__ uint32_t d_choose_head(xci_gap_planner *planner, uint32_t width) {
    const uint32_t finest = xci_gap_head_max(width), end = planner->used_end;
    uint32_t *folded = planner->for_now.folded[d_warp()];
    for (uint32_t head = d_warp(); head <= finest; head += XCI_PLAN_WARPS) {
        d_fold(planner->counts, end, finest, head, folded);
        const uint64_t cost = d_cost(folded, end, head);
        if (d_lane() == 0)
            planner->costs[head] = cost;
    }
    __syncthreads();
    uint32_t best = finest;
    for (uint32_t head = finest; head-- > 0;)
        if (planner->costs[head] < planner->costs[best])
            best = head;
    if (d_warp() == 0)
        d_fold(planner->counts, end, finest, best, folded);
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < end; s += XCI_PLAN_THREADS)
        planner->counts[s] = planner->for_now.folded[0][s];
    __syncthreads();
    return best;
}

/* Symbols that occur, lightest first, lower ones first among equals. Returns how many. */
__device__ __forceinline__ uint32_t d_list_leaves(xci_gap_planner *planner) {
    xci_gap_tree *tree = &planner->for_now.tree;
    uint32_t count = 0;
    for (uint32_t first = 0; first < planner->used_end; first += XCI_WARP) {
        const uint32_t s = first + d_lane();
        const bool used = s < planner->used_end && planner->counts[s] != 0;
        const uint32_t all = __ballot_sync(XCI_ALL, used);
        if (used)
            tree->used[count + (uint32_t)__popc(all & ((1u << d_lane()) - 1))] = (uint16_t)s;
        count += (uint32_t)__popc(all);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += XCI_PLAN_THREADS) {
        const uint32_t symbol = tree->used[i], weight = planner->counts[symbol];
        uint32_t rank = 0;
        for (uint32_t k = 0; k < count; ++k) {
            const uint32_t other = planner->counts[tree->used[k]];
            rank += other < weight || (other == weight && k < i);
        }
        tree->leaves[rank] = (uint16_t)symbol;
        tree->weights[rank] = weight;
    }
    __syncthreads();
    return count;
}

/* Joins the two lightest nodes again and again, a leaf before an inner node of its weight. Returns
 * the depth of the deepest leaf. One thread. */
__device__ __forceinline__ uint32_t d_grow_tree(xci_gap_tree *tree, uint32_t leaves) {
    const uint32_t root = 2 * leaves - 2;
    uint32_t leaf = 0, inner = leaves;
    for (uint32_t next = leaves; next <= root; ++next) {
        uint32_t sum = 0;
        for (uint32_t side = 0; side < 2; ++side) {
            const bool take_leaf =
                leaf < leaves && (inner == next || tree->weights[leaf] <= tree->weights[inner]);
            const uint32_t taken = take_leaf ? leaf++ : inner++;
            sum += tree->weights[taken];
            tree->up[taken] = (uint16_t)next;
        }
        tree->weights[next] = sum;
    }
    uint32_t deepest = 0;
    tree->depths[root] = 0;
    for (uint32_t node = root; node-- > 0;) {
        const uint32_t depth = min(tree->depths[tree->up[node]] + 1u, 255u);
        tree->depths[node] = (uint8_t)depth;
        deepest = node < leaves ? max(deepest, depth) : deepest;
    }
    return deepest;
}

/* Lengths of the code that makes the counted symbols shortest. */
__device__ __forceinline__ void d_build_code(xci_gap_planner *planner) {
    xci_gap_tree *tree = &planner->for_now.tree;
    xci_gap_lengths *lengths = &planner->lengths;
    for (uint32_t s = threadIdx.x; s < XCI_PREFIX_SYMBOLS; s += XCI_PLAN_THREADS)
        lengths->of[s] = 0;
    const uint32_t leaves = d_list_leaves(planner);
    if (threadIdx.x == 0) {
        lengths->leaf_count = leaves;
        while (leaves > 1 && d_grow_tree(tree, leaves) > XCI_PREFIX_LONGEST)
            for (uint32_t i = 0; i < leaves; ++i)
                tree->weights[i] = tree->weights[i] / 2 | 1;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; leaves > 1 && i < leaves; i += XCI_PLAN_THREADS)
        lengths->of[tree->leaves[i]] = tree->depths[i];
    __syncthreads();
}

/* Describes the code in the group's room. */
__device__ __forceinline__ void d_describe_code(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    xci_gap_draft *draft = &planner->drafts[d];
    uint8_t *to = planner->for_now.description;
    const xci_gap_lengths *lengths = &planner->lengths;
    if (threadIdx.x == 0) {
        const bool single = lengths->leaf_count == 1;
        to[0] = (uint8_t)(draft->width | lengths->head << 3);
        to[1] = single ? XCI_PREFIX_SINGLE : 0;
        uint32_t bytes = 2;
        if (single) {
            bytes += xci_varint_put(to + 2, planner->used_end);
        } else {
            xci_nibble_writer list = {to + 2, 0};
            uint32_t sum = 0;
            for (uint32_t at = 0; sum < XCI_PREFIX_COMPLETE;) {
                const uint32_t length = lengths->of[at];
                const uint32_t run = xci_put_item(
                    &list, lengths->of, xci_gap_symbol_count(draft->width, lengths->head), at);
                sum += length != 0 ? run * (XCI_PREFIX_COMPLETE >> length) : 0;
                at += run;
            }
            bytes += (list.count + 1) / 2;
        }
        draft->table_bytes = bytes;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < draft->table_bytes; i += XCI_PLAN_THREADS)
        work->room[d * XCI_TABLE_ROOM + i] = to[i];
    __syncthreads();
}

__device__ __forceinline__ void d_plan_code(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    const uint32_t head = d_choose_head(planner, planner->drafts[d].width);
    if (threadIdx.x == 0)
        planner->lengths.head = head;
    d_build_code(planner);
    /* The only symbol of a code takes the place of the number that is not needed any more. */
    if (threadIdx.x == 0 && planner->lengths.leaf_count == 1)
        planner->used_end = planner->for_now.tree.leaves[0];
    __syncthreads();
    d_describe_code(work, d);
}

/* ---- Sizes ---- */

__device__ __forceinline__ uint32_t d_value_bits(const xci_gap_lengths *lengths, uint64_t value) {
    uint32_t tail_bits;
    const uint32_t symbol = xci_gap_symbol(value, lengths->head, &tail_bits);
    return lengths->of[symbol] + tail_bits;
}

/* Bits of a sparse block. */
__device__ __forceinline__ uint64_t d_sparse_bits(const xci_gap_work *work, uint32_t c,
                                                  const xci_gap_draft *draft) {
    const xci_gap_lengths *lengths = &work->planner->lengths;
    const uint32_t prior = draft->prior;
    uint64_t bits = 0;
    d_each_change(d_source_of(work->call, work->scratch, work->first + c),
                  &work->planner->batches[d_warp()], draft->width,
                  [&](bool active, const xci_gap_change &change) {
                      if (!active)
                          return;
                      uint32_t gap_bits;
                      (void)d_gap_bits(change.position - change.last_end,
                                       d_parameter_of(&change, prior), &gap_bits);
                      bits += gap_bits + d_value_bits(lengths, change.value);
                  });
    return d_sum64(bits);
}

#define XCI_STREAM_LENGTH 3u /* bytes of a stream's length at most */

__device__ __forceinline__ uint32_t d_varint_bytes(uint32_t value) {
    return value < 1u << 7 ? 1 : value < 1u << 14 ? 2 : 3;
}

/* Bytes of a dense block, or XCI_GAP_CHUNK_MAX, which is never below a limit, as soon as a stream
 * is known to be too long: where the host's writer, which leaves room for its length, gives up. */
__device__ __forceinline__ uint32_t d_dense_bytes(const xci_gap_work *work, uint32_t c,
                                                  const xci_gap_draft *draft, uint32_t limit) {
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    const uint32_t count = xci_gap_element_count(draft->width, source.bytes);
    uint32_t at = 0;
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = min(count, first + XCI_GAP_SEGMENT);
        uint32_t bits = 0;
        for (uint32_t i = first + d_lane(); i < end; i += XCI_WARP)
            bits += d_value_bits(&work->planner->lengths, d_element_at(&source, i, draft->width));
        bits = d_sum(bits);
        const uint32_t bytes = (bits + 7) / 8;
        if (at + XCI_STREAM_LENGTH + bits / 8 >= limit)
            return XCI_GAP_CHUNK_MAX;
        at += bytes + (end == count ? 0 : d_varint_bytes(bytes));
    }
    return at;
}

/* Sizes of the blocks of a draft, or that they are raw. */
__device__ __forceinline__ void d_size_blocks(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    xci_gap_draft *draft = &planner->drafts[d];
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (work->scratch->drafts[work->first + c] != d)
            continue;
        const uint32_t limit = d_chunk_of(work, c)->bytes;
        const uint64_t bytes = draft->dense ? d_dense_bytes(work, c, draft, limit)
                                            : (d_sparse_bits(work, c, draft) + 7) / 8;
        const bool kept = bytes < limit;
        if (d_lane() != 0)
            continue;
        xci_cuda_result *result = d_result_of(work, c);
        result->block_codec = kept ? XORCAST_CODEC_GAP : XORCAST_CODEC_RAW;
        result->block_bytes = kept ? (uint32_t)bytes : limit;
        d_add64(&planner->bytes, result->block_bytes);
        if (kept) {
            atomicMin(&draft->first_kept, c);
            atomicAdd(&planner->kept_count, 1u);
        }
    }
    __syncthreads();
}

/* ---- Parameters ---- */

/* Numbers the drafts that are used in the order of their first chunks. Returns how many; one
 * thread. */
__device__ __forceinline__ uint32_t d_number_drafts(xci_gap_planner *planner, uint32_t *order) {
    uint32_t count = 0;
    for (;;) {
        uint32_t best = XCI_GAP_SHAPES;
        for (uint32_t d = 0; d < XCI_GAP_SHAPES; ++d)
            if (planner->drafts[d].number == XCI_NO_DRAFT &&
                planner->drafts[d].first_kept != UINT32_MAX &&
                (best == XCI_GAP_SHAPES ||
                 planner->drafts[d].first_kept < planner->drafts[best].first_kept))
                best = d;
        if (best == XCI_GAP_SHAPES)
            return count;
        planner->drafts[best].number = count;
        order[count++] = best;
    }
}

/* Tables and shapes; a shape's table has its number. The first warp, of which lane 0 writes. */
__device__ __forceinline__ uint8_t *d_write_shapes(const xci_gap_work *work, uint8_t *at,
                                                   uint32_t *shape_count_out) {
    xci_gap_planner *planner = work->planner;
    uint32_t order[XCI_GAP_SHAPES];
    const uint32_t count = d_number_drafts(planner, order);
    at += xci_varint_put(at, count);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t bytes = planner->drafts[order[i]].table_bytes;
        for (uint32_t k = 0; k < bytes; ++k)
            *at++ = work->room[order[i] * XCI_TABLE_ROOM + k];
    }
    at += xci_varint_put(at, count);
    for (uint32_t i = 0; i < count; ++i) {
        const xci_gap_draft *draft = &planner->drafts[order[i]];
        *at++ = (uint8_t)(draft->width | (draft->dense ? XCI_GAP_SHAPE_DENSE : 0));
        if (!draft->dense)
            at += xci_varint_put(at, draft->prior);
        *at++ = (uint8_t)i;
    }
    *shape_count_out = count;
    return at;
}

/* The number of a size among `count`, or `count`; a whole warp. */
__device__ __forceinline__ uint32_t d_find_size(const uint32_t *sizes, uint32_t count,
                                                uint32_t size) {
    for (uint32_t first = 0; first < count; first += XCI_WARP) {
        const uint32_t i = first + d_lane();
        const uint32_t found = __ballot_sync(XCI_ALL, i < count && sizes[i] == size);
        if (found != 0)
            return first + (uint32_t)__ffs((int)found) - 1;
    }
    return count;
}

__device__ __forceinline__ bool d_is_kept(const xci_gap_work *work, uint32_t c) {
    const xci_cuda_result *result = d_result_of(work, c);
    return result->bytes_changed != 0 && result->block_codec == XORCAST_CODEC_GAP;
}

/* Distinct sizes of chunks, in the order in which they come; a whole warp. */
__device__ __forceinline__ uint32_t d_list_sizes(const xci_gap_work *work, uint32_t *sizes) {
    uint32_t count = 0;
    for (uint32_t c = 0; c < work->count; ++c) {
        const uint32_t bytes = d_chunk_of(work, c)->bytes;
        if (!d_is_kept(work, c) || d_find_size(sizes, count, bytes) != count)
            continue;
        __syncwarp();
        if (d_lane() == 0)
            sizes[count] = bytes;
        ++count;
        __syncwarp();
    }
    return count;
}

/* Sizes, then each chunk's place; a whole warp, of which lane 0 writes. */
__device__ __forceinline__ uint8_t *d_write_places(const xci_gap_work *work, uint8_t *at,
                                                   uint32_t shape_count) {
    uint32_t *sizes = work->scratch->sizes + work->first;
    const uint32_t size_count = d_list_sizes(work, sizes);
    const uint32_t shape_bits = xci_gap_bits_for(shape_count);
    const uint32_t size_bits = xci_gap_bits_for(size_count);
    if (d_lane() == 0) {
        at += xci_varint_put(at, size_count);
        for (uint32_t i = 0; i < size_count; ++i)
            at += xci_varint_put(at, sizes[i]);
    }
    uint64_t held = 0;
    uint32_t held_bits = 0;
    for (uint32_t c = 0; c < work->count; ++c) {
        if (!d_is_kept(work, c))
            continue;
        const uint32_t draft = work->scratch->drafts[work->first + c];
        const uint32_t size = d_find_size(sizes, size_count, d_chunk_of(work, c)->bytes);
        held |= (uint64_t)work->planner->drafts[draft].number << held_bits;
        held |= (uint64_t)size << (held_bits + shape_bits);
        held_bits += shape_bits + size_bits;
        for (; held_bits >= 8; held_bits -= 8, held >>= 8)
            if (d_lane() == 0)
                *at++ = (uint8_t)held;
    }
    if (held_bits != 0 && d_lane() == 0)
        *at++ = (uint8_t)(held | 0xffu << held_bits);
    return at;
}

/* Writes the parameters to the group's room; returns their bytes. The first warp. */
__device__ __forceinline__ uint32_t d_write_params(const xci_gap_work *work) {
    uint8_t *const begin = work->room + XCI_PLAIN_TABLES * XCI_TABLE_ROOM;
    uint8_t *at = begin;
    uint32_t shape_count = 0;
    if (d_lane() == 0)
        at = d_write_shapes(work, begin, &shape_count);
    shape_count = __shfl_sync(XCI_ALL, shape_count, 0);
    __syncwarp();
    at = d_write_places(work, at, shape_count);
    return __shfl_sync(XCI_ALL, (uint32_t)(at - begin), 0);
}

/* ---- The group ---- */

/* Raw blocks everywhere, if those of this codec and their parameters are not smaller. */
__device__ __forceinline__ void d_make_raw(const xci_gap_work *work) {
    for (uint32_t c = d_lane(); c < work->count; c += XCI_WARP) {
        if (d_result_of(work, c)->bytes_changed == 0)
            continue;
        d_result_of(work, c)->block_codec = XORCAST_CODEC_RAW;
        d_result_of(work, c)->block_bytes = d_chunk_of(work, c)->bytes;
    }
    __syncwarp();
}

/* Where blocks begin in the group; returns where the last one ends. */
__device__ __forceinline__ uint32_t d_place_blocks(const xci_gap_work *work) {
    uint32_t at = 0;
    for (uint32_t first = 0; first < work->count; first += XCI_WARP) {
        const uint32_t c = first + d_lane();
        const bool changed = c < work->count && d_result_of(work, c)->bytes_changed != 0;
        const uint32_t bytes = changed ? d_result_of(work, c)->block_bytes : 0;
        const uint32_t sum = d_scan(bytes);
        if (c < work->count)
            d_result_of(work, c)->block_offset = at + sum - bytes;
        at += __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
    }
    return at;
}

/* What is left when all blocks have their size; the first warp. */
__device__ __forceinline__ void d_finish_group(const xci_gap_work *work,
                                               xci_cuda_gap_group *group) {
    const xci_gap_planner *planner = work->planner;
    uint32_t params_bytes = 0;
    if (planner->kept_count != 0)
        params_bytes = d_write_params(work);
    if (params_bytes != 0 && planner->bytes + params_bytes >= planner->chunk_bytes) {
        params_bytes = 0;
        d_make_raw(work);
    }
    const uint32_t bytes = d_place_blocks(work);
    if (d_lane() == 0) {
        group->bytes = bytes + params_bytes;
        group->params_bytes = params_bytes;
    }
}

/* Forgets what was before; finds out which kinds of chunks have changed. */
__device__ __forceinline__ void d_begin_group(const xci_gap_work *work) {
    xci_gap_planner *planner = work->planner;
    if (threadIdx.x < XCI_GAP_SHAPES) {
        xci_gap_draft draft = {};
        draft.first_kept = UINT32_MAX;
        draft.number = XCI_NO_DRAFT;
        planner->drafts[threadIdx.x] = draft;
    }
    if (threadIdx.x == 0) {
        planner->bytes = planner->chunk_bytes = 0;
        planner->kinds = planner->kept_count = planner->changed_count = 0;
    }
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < work->count; c += XCI_PLAN_THREADS) {
        work->scratch->drafts[work->first + c] = XCI_NO_DRAFT;
        if (d_result_of(work, c)->bytes_changed == 0)
            continue;
        atomicOr(&planner->kinds, d_chunk_of(work, c)->element_bytes);
        d_add64(&planner->chunk_bytes, d_chunk_of(work, c)->bytes);
    }
    __syncthreads();
}

__device__ __forceinline__ void d_plan_group(const xci_gap_work *work, xci_cuda_gap_group *group) {
    xci_gap_planner *planner = work->planner;
    d_begin_group(work);
    for (uint32_t kind = 0; kind < 4; ++kind)
        if ((planner->kinds & 1u << kind) != 0)
            d_sort_chunks(work, kind, d_choose_width(work, kind));
    __syncthreads();
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; ++d) {
        xci_gap_draft *draft = &planner->drafts[d];
        if (draft->chunk_count == 0)
            continue;
        d_count_symbols(work, d);
        if (threadIdx.x == 0)
            draft->prior = xci_gap_prior(draft->elements, draft->changes);
        d_plan_code(work, d);
        d_size_blocks(work, d);
    }
    if (d_warp() == 0)
        d_finish_group(work, group);
}

__device__ __forceinline__ xci_gap_work d_work_of(const xci_cuda_gap_encode_call *call,
                                                  const xci_gap_scratch *scratch, uint64_t group,
                                                  xci_gap_planner *planner) {
    xci_gap_work work;
    work.call = call;
    work.scratch = scratch;
    work.planner = planner;
    work.first = call->group_first[group] - call->first;
    work.count = (uint32_t)(call->group_first[group + 1] - call->group_first[group]);
    work.room = scratch->rooms + xci_gap_room(group, work.first);
    return work;
}

__global__ void __launch_bounds__(XCI_PLAN_THREADS)
    k_gap_plan(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const xci_gap_work work = d_work_of(&call, &scratch, blockIdx.x, (xci_gap_planner *)shared);
    d_plan_group(&work, &call.groups[blockIdx.x]);
}

#endif
