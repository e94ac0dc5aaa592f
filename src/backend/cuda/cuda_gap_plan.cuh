/* What a group becomes in the gap codec: width, shapes, codes, sizes of blocks, parameters. A block
 * of threads has a group. Every choice is the one of codec/gap_plan.c, gap_codes.c and
 * prefix_code.c, made by many threads. */
#ifndef XCI_CUDA_GAP_PLAN_CUH
#define XCI_CUDA_GAP_PLAN_CUH

#include "backend/cuda/cuda_gap_ranks.cuh"
#include "codec/gap_shape.h"
#include "codec/prefix_items.h"

#define XCI_PLAN_THREADS 256u
#define XCI_PLAN_WARPS (XCI_PLAN_THREADS / XCI_WARP)
#define XCI_PLAN_BLOCKS 5 /* of a multiprocessor, at least: they wait for memory most of the time */
#define XCI_NO_DRAFT UINT32_MAX
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

/* A shape in the making; classes as in xci_gap_shape, with the first key of each. */
typedef struct xci_gap_draft {
    uint32_t width, dense, chunk_count, class_count;
    unsigned long long elements, changes;
    uint32_t priors[XCI_GAP_CLASSES], tables[XCI_GAP_CLASSES], first_keys[XCI_GAP_CLASSES];
    uint32_t first_kept; /* chunk */
    uint32_t number;     /* among the shapes that are written */
} xci_gap_draft;

/* A code as sizes need it. */
typedef struct xci_gap_lengths {
    uint32_t head, leaf_count, single;
    uint8_t of[XCI_PREFIX_SYMBOLS];
} xci_gap_lengths;

/* What only classes need. */
typedef struct xci_gap_planner_old {
    uint32_t key_elements[XCI_GAP_KEYS], key_changes[XCI_GAP_KEYS];
    xci_gap_range ranges[XCI_GAP_KEYS];
    uint8_t class_of[XCI_GAP_KEYS];
    uint32_t counts[XCI_GAP_CLASSES][XCI_PREFIX_SYMBOLS]; /* by symbol */
    xci_gap_lengths own[XCI_GAP_CLASSES];
    uint32_t has_own; /* a bit for each class */
    uint32_t range_count;
    xci_gap_streams streams[XCI_PLAN_WARPS];
} xci_gap_planner_old;

typedef struct xci_gap_planner {
    uint32_t counts[XCI_PREFIX_SYMBOLS]; /* by symbol */
    union {
        uint32_t sample[XCI_SAMPLE_SYMBOLS]; /* of all widths */
        uint32_t folded[XCI_FOLDED_SYMBOLS]; /* to several heads */
        xci_gap_tree tree;
        uint8_t description[XCI_TABLE_ROOM];
    } for_now;
    xci_gap_batch batches[XCI_PLAN_WARPS];
    xci_gap_lengths lengths; /* of the code that is not one class's own */
    xci_gap_draft drafts[XCI_GAP_SHAPES];
    uint32_t table_bytes[XCI_GAP_TABLES]; /* of descriptions */
    unsigned long long costs[XCI_PREFIX_LONGEST], changes[XCI_GAP_WIDTHS], elements[XCI_GAP_WIDTHS];
    unsigned long long bytes, chunk_bytes; /* of all blocks; of changed chunks */
    uint32_t kinds, used_end, kept_count, table_count;
    xci_gap_planner_old old; /* only where it is asked for */
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
        uint32_t *counts = planner->for_now.sample + d_sample_at(width);
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
    uint32_t *counts = planner->for_now.sample + d_sample_at(width);
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
    d_clear_words(planner->for_now.sample, XCI_SAMPLE_SYMBOLS);
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
__device__ __forceinline__ uint32_t d_draft_changes(const xci_gap_work *work, uint32_t c,
                                                    uint32_t width) {
    if (d_chunk_of(work, c)->element_bytes == 1u << width >> 1)
        return d_result_of(work, c)->elements_changed;
    if (width == 1)
        return d_result_of(work, c)->bytes_changed;
    if (width == 0)
        return work->scratch->nibbles[work->first + c];
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
        const uint32_t changes = d_draft_changes(work, c, width);
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

/* The head that costs least; counts are folded to it. As many heads at a time as there is room
 * for, a warp each. */
__device__ __forceinline__ uint32_t d_choose_head(xci_gap_planner *planner, uint32_t width) {
    const uint32_t finest = xci_gap_head_max(width), end = planner->used_end;
    const uint32_t room = min(XCI_FOLDED_SYMBOLS / end, XCI_PLAN_WARPS);
    uint32_t *folded = planner->for_now.folded + d_warp() * end;
    for (uint32_t head = d_warp(); head <= finest && d_warp() < room; head += room) {
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
        planner->counts[s] = planner->for_now.folded[s];
    __syncthreads();
    return best;
}

/* Symbols that occur, lightest first, lower ones first among equals. Returns how many. */
__device__ __forceinline__ uint32_t d_list_leaves(xci_gap_tree *tree, const uint32_t *counts,
                                                  uint32_t end) {
    uint32_t count = 0;
    for (uint32_t first = 0; first < end; first += XCI_WARP) { /* every warp writes the same */
        const uint32_t s = first + d_lane();
        const bool used = s < end && counts[s] != 0;
        const uint32_t all = __ballot_sync(XCI_ALL, used);
        if (used)
            tree->used[count + (uint32_t)__popc(all & ((1u << d_lane()) - 1))] = (uint16_t)s;
        count += (uint32_t)__popc(all);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += XCI_PLAN_THREADS) {
        const uint32_t symbol = tree->used[i], weight = counts[symbol];
        uint32_t rank = 0;
        for (uint32_t k = 0; k < count; ++k) {
            const uint32_t other = counts[tree->used[k]];
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

/* Lengths of the code that makes symbols of these counts shortest; the first `end` of them. */
__device__ __forceinline__ void d_build_code(xci_gap_planner *planner, const uint32_t *counts,
                                             uint32_t end, uint32_t head,
                                             xci_gap_lengths *lengths) {
    xci_gap_tree *tree = &planner->for_now.tree;
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < XCI_PREFIX_SYMBOLS; s += XCI_PLAN_THREADS)
        lengths->of[s] = 0;
    const uint32_t leaves = d_list_leaves(tree, counts, end);
    if (threadIdx.x == 0) {
        lengths->head = head;
        lengths->leaf_count = leaves;
        lengths->single = tree->leaves[0];
        while (leaves > 1 && d_grow_tree(tree, leaves) > XCI_PREFIX_LONGEST)
            for (uint32_t i = 0; i < leaves; ++i)
                tree->weights[i] = tree->weights[i] / 2 | 1;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; leaves > 1 && i < leaves; i += XCI_PLAN_THREADS)
        lengths->of[tree->leaves[i]] = tree->depths[i];
    __syncthreads();
}

/* One thread. */
__device__ __forceinline__ uint32_t d_put_description(const xci_gap_lengths *lengths,
                                                      uint32_t width, uint8_t *to) {
    to[0] = (uint8_t)(width | lengths->head << 3);
    to[1] = lengths->leaf_count == 1 ? XCI_PREFIX_SINGLE : 0;
    if (lengths->leaf_count == 1)
        return 2 + xci_varint_put(to + 2, lengths->single);
    xci_nibble_writer list = {to + 2, 0};
    uint32_t sum = 0;
    for (uint32_t at = 0; sum < XCI_PREFIX_COMPLETE;) {
        const uint32_t length = lengths->of[at];
        const uint32_t run =
            xci_put_item(&list, lengths->of, xci_gap_symbol_count(width, lengths->head), at);
        sum += length != 0 ? run * (XCI_PREFIX_COMPLETE >> length) : 0;
        at += run;
    }
    return 2 + (list.count + 1) / 2;
}

/* Describes a code in the group's room, as that of a table. */
__device__ __forceinline__ void d_describe_code(const xci_gap_work *work,
                                                const xci_gap_lengths *lengths, uint32_t width,
                                                uint32_t table) {
    xci_gap_planner *planner = work->planner;
    __syncthreads();
    if (threadIdx.x == 0)
        planner->table_bytes[table] =
            d_put_description(lengths, width, planner->for_now.description);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < planner->table_bytes[table]; i += XCI_PLAN_THREADS)
        work->room[table * XCI_TABLE_ROOM + i] = planner->for_now.description[i];
    __syncthreads();
}

/* The next table's number; the same for all threads. */
__device__ __forceinline__ uint32_t d_take_table(xci_gap_planner *planner) {
    __syncthreads();
    const uint32_t table = planner->table_count;
    __syncthreads();
    if (threadIdx.x == 0)
        planner->table_count = table + 1;
    __syncthreads();
    return table;
}

/* The code of a draft without classes. */
__device__ __forceinline__ void d_plan_code(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t head = d_choose_head(planner, draft->width), table = d_take_table(planner);
    d_build_code(planner, planner->counts, planner->used_end, head, &planner->lengths);
    d_describe_code(work, &planner->lengths, draft->width, table);
    if (threadIdx.x == 0) {
        draft->class_count = 1;
        draft->priors[0] = xci_gap_prior(draft->elements, draft->changes);
        draft->tables[0] = table;
        draft->first_keys[0] = 0;
    }
    __syncthreads();
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
    const uint32_t prior = draft->priors[0];
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

/* Bytes of the dense block of a chunk of `bytes`, or XCI_GAP_CHUNK_MAX, which is never below a
 * limit, as soon as a stream is known to be too long: where the host's writer, which leaves room
 * for its length, gives up. bits_of(position) gives the bits of an element. */
template <typename BitsOf>
__device__ __forceinline__ uint32_t d_sum_segments(uint32_t bytes, uint32_t width, BitsOf bits_of) {
    const uint32_t count = xci_gap_element_count(width, bytes);
    uint32_t at = 0;
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = min(count, first + XCI_GAP_SEGMENT);
        uint32_t bits = 0;
        for (uint32_t i = first + d_lane(); i < end; i += XCI_WARP)
            bits += bits_of(i);
        bits = d_sum(bits);
        if (at + XCI_STREAM_LENGTH + bits / 8 >= bytes)
            return XCI_GAP_CHUNK_MAX;
        at += (bits + 7) / 8 + (end == count ? 0 : d_varint_bytes((bits + 7) / 8));
    }
    return at;
}

__device__ __forceinline__ uint32_t d_dense_bytes(const xci_gap_work *work, uint32_t c,
                                                  const xci_gap_draft *draft) {
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    return d_sum_segments(source.bytes, draft->width, [&](uint32_t position) {
        return d_value_bits(&work->planner->lengths, d_element_at(&source, position, draft->width));
    });
}

/* A block of so many bytes, or a raw one if that is not smaller. */
__device__ __forceinline__ void d_keep_block(const xci_gap_work *work, xci_gap_draft *draft,
                                             uint32_t c, uint64_t bytes) {
    const uint32_t limit = d_chunk_of(work, c)->bytes;
    const bool kept = bytes < limit;
    xci_cuda_result *result = d_result_of(work, c);
    if (d_lane() != 0)
        return;
    result->block_codec = kept ? XORCAST_CODEC_GAP : XORCAST_CODEC_RAW;
    result->block_bytes = kept ? (uint32_t)bytes : limit;
    d_add64(&work->planner->bytes, result->block_bytes);
    if (kept) {
        atomicMin(&draft->first_kept, c);
        atomicAdd(&work->planner->kept_count, 1u);
    }
}

/* Sizes of the blocks of a draft without classes, or that they are raw. */
__device__ __forceinline__ void d_size_blocks(const xci_gap_work *work, uint32_t d) {
    xci_gap_draft *draft = &work->planner->drafts[d];
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (work->scratch->drafts[work->first + c] != d)
            continue;
        d_keep_block(work, draft, c,
                     draft->dense ? d_dense_bytes(work, c, draft)
                                  : (d_sparse_bits(work, c, draft) + 7) / 8);
    }
    __syncthreads();
}

#endif
