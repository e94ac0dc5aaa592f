/* Codes of a group, made by a block of threads: head, lengths, description, and the codes
 * themselves, which go to the scratch's room. The choices are those of codec/gap_codes.c and
 * prefix_code.c. */
#ifndef XCI_CUDA_GAP_CODES_CUH
#define XCI_CUDA_GAP_CODES_CUH

#include "backend/cuda/cuda_gap_params.cuh"
#include "backend/cuda/cuda_gap_plan.cuh"

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

/* ---- Lengths ---- */

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

/* ---- Codes ---- */

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

/* Describes a code, for now. */
__device__ __forceinline__ void d_describe_code(xci_gap_planner *planner,
                                                const xci_gap_lengths *lengths, uint32_t width) {
    __syncthreads();
    if (threadIdx.x == 0)
        planner->description_bytes =
            d_put_description(lengths, width, planner->for_now.description);
    __syncthreads();
}

/* Bits of each of the first `end` symbols; a whole warp. */
__device__ __forceinline__ void d_number_codes(xci_gap_planner *planner,
                                               const xci_gap_lengths *lengths, uint32_t end,
                                               uint16_t *codes) {
    for (uint32_t s = d_lane(); s < end; s += XCI_WARP)
        codes[s] = 0;
    __syncwarp();
    if (lengths->leaf_count == 1)
        return;
    d_lay_out_codes(lengths->of, end, planner->limits, planner->starts);
    d_each_code(lengths->of, end, [&](uint32_t symbol, uint32_t length, uint32_t rank) {
        const uint32_t code = planner->limits[length - 1] + (rank << (XCI_PREFIX_LONGEST - length));
        codes[symbol] = (uint16_t)(d_reverse(code, XCI_PREFIX_LONGEST) << 4 | length);
    });
}

/* Keeps the code that was described last, as that of a number. */
__device__ __forceinline__ void d_keep_code(const xci_gap_work *work, xci_gap_planner *planner,
                                            const xci_gap_lengths *lengths, uint32_t number) {
    const uint32_t end = planner->used_end, bytes = planner->description_bytes;
    if (threadIdx.x == 0) {
        uint8_t *const taken = d_take_room(work->scratch, end * 2 + bytes);
        const xci_gap_code code = {(const uint16_t *)taken, taken + end * 2, bytes, lengths->head};
        work->scratch->plans[work->group].codes[number] = code;
        planner->taken = taken;
    }
    __syncthreads();
    uint8_t *const taken = planner->taken;
    if (taken == NULL)
        return;
    for (uint32_t i = threadIdx.x; i < bytes; i += XCI_PLAN_THREADS)
        taken[end * 2 + i] = planner->for_now.description[i];
    if (d_warp() == 0)
        d_number_codes(planner, lengths, end, (uint16_t *)taken);
    __syncthreads();
}

/* The next code's number; the same for all threads. */
__device__ __forceinline__ uint32_t d_take_number(xci_gap_planner *planner) {
    __syncthreads();
    const uint32_t number = planner->code_count;
    __syncthreads();
    if (threadIdx.x == 0)
        planner->code_count = number + 1;
    __syncthreads();
    return number;
}

/* The code of a draft without classes. */
__device__ __forceinline__ void d_plan_code(const xci_gap_work *work, xci_gap_planner *planner,
                                            uint32_t d) {
    xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t head = d_choose_head(planner, draft->width), number = d_take_number(planner);
    d_build_code(planner, planner->counts, planner->used_end, head, &planner->lengths);
    d_describe_code(planner, &planner->lengths, draft->width);
    d_keep_code(work, planner, &planner->lengths, number);
    if (threadIdx.x == 0) {
        draft->class_count = 1;
        draft->priors[0] = xci_gap_prior(draft->elements, draft->changes);
        draft->tables[0] = number;
        draft->first_keys[0] = 0;
    }
    __syncthreads();
}

#endif
