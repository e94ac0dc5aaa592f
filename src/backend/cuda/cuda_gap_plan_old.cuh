/* What planning a group beside its old weights takes more: classes, and a code for those that
 * deserve one. The choices are those of codec/gap_classes.c and gap_codes.c. */
#ifndef XCI_CUDA_GAP_PLAN_OLD_CUH
#define XCI_CUDA_GAP_PLAN_OLD_CUH

#include "backend/cuda/cuda_gap_codes.cuh"

/* ---- Keys ---- */

static_assert(XCI_GAP_KEY_STRETCH == XCI_WARP * 16, "a lane has a vector of a stretch");

/* Keys of the first `elements` of a vector of old weights, by all lanes. */
__device__ __forceinline__ void d_count_vector(uint4 v, uint32_t width, uint32_t elements,
                                               uint32_t *counts) {
    const uint64_t halves[2] = {(uint64_t)v.y << 32 | v.x, (uint64_t)v.w << 32 | v.z};
    const uint32_t per_half = 16u >> width;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half)
#pragma unroll 4
        for (uint32_t i = 0; i < per_half; ++i)
            d_tally(counts, xci_gap_key(halves[half] >> (i << (2 + width)), width),
                    half * per_half + i < elements);
}

/* Nibbles of vectors whose keys have both, the first of two, and so on: bit 2 of the key in a, 1 in
 * b, 0 in c. */
typedef struct xci_gap_nibbles {
    uint32_t all, a, b, c, ab, ac, bc, abc;
} xci_gap_nibbles;

/* One bit of each nibble of a vector. */
__device__ __forceinline__ uint32_t d_bits_of_nibbles(uint4 v, uint32_t bit) {
    const uint32_t ones = 0x11111111u;
    return (v.x >> bit & ones) | (v.y >> bit & ones) << 1 | (v.z >> bit & ones) << 2 |
           (v.w >> bit & ones) << 3;
}

__device__ __forceinline__ void d_add_nibbles(xci_gap_nibbles *n, uint4 v, uint32_t elements) {
    const uint32_t a = d_bits_of_nibbles(v, 2), b = d_bits_of_nibbles(v, 1);
    const uint32_t c = d_bits_of_nibbles(v, 0);
    n->all += elements;
    n->a += (uint32_t)__popc(a);
    n->b += (uint32_t)__popc(b);
    n->c += (uint32_t)__popc(c);
    n->ab += (uint32_t)__popc(a & b);
    n->ac += (uint32_t)__popc(a & c);
    n->bc += (uint32_t)__popc(b & c);
    n->abc += (uint32_t)__popc(a & b & c);
}

/* A whole warp's nibbles by key. */
__device__ __forceinline__ void d_count_nibbles(const xci_gap_nibbles *n, uint32_t *counts) {
    const uint32_t all = d_sum(n->all), abc = d_sum(n->abc);
    const uint32_t a = d_sum(n->a), b = d_sum(n->b), c = d_sum(n->c);
    const uint32_t ab = d_sum(n->ab), ac = d_sum(n->ac), bc = d_sum(n->bc);
    const uint32_t keys[XCI_GAP_CLASSES] = {all - a - b - c + ab + ac + bc - abc,
                                            c - ac - bc + abc,
                                            b - ab - bc + abc,
                                            bc - abc,
                                            a - ab - ac + abc,
                                            ac - abc,
                                            ab - abc,
                                            abc};
#pragma unroll
    for (uint32_t key = 0; key < XCI_GAP_CLASSES; ++key)
        if (d_lane() == key)
            atomicAdd(&counts[key], keys[key]);
}

/* The stretches of a chunk that are looked at: all of a dense one's. */
__device__ __forceinline__ void d_count_keys(const xci_gap_source *source, uint32_t width,
                                             bool dense, uint32_t *counts, xci_gap_nibbles *n) {
    const uint32_t count = xci_gap_element_count(width, source->bytes);
    const uint32_t step = dense ? XCI_GAP_KEY_STRETCH : XCI_GAP_KEY_STRETCH * XCI_GAP_KEY_STEP;
#pragma unroll 2
    for (uint32_t row = 0; row < source->bytes; row += step) {
        const uint32_t at = row + d_lane() * 16, before = at / 16 * (32u >> width);
        const uint4 v = d_vector_at(source, at);
        const uint32_t left = count > before ? count - before : 0;
        if (width == 0)
            d_add_nibbles(n, v, min(left, 32u));
        else
            d_count_vector(v, width, left, counts);
    }
    __syncwarp();
}

/* Calls visit(active, old element, mask), by whole warps, for all changes of a draft. */
template <typename Visit>
__device__ __forceinline__ void d_each_old_of(const xci_gap_work *work, uint32_t d, uint32_t width,
                                              Visit visit) {
    d_each_word_of<true>(work, d, [&](uint64_t old_word, uint64_t mask) {
        d_each_mark(d_marks(mask, width), [&](bool active, uint32_t shift) {
            visit(active, old_word >> shift & d_element_ones(width),
                  mask >> shift & d_element_ones(width));
        });
    });
}

__device__ __forceinline__ void d_count_all_keys(const xci_gap_work *work, xci_gap_planner *planner,
                                                 uint32_t d) {
    xci_gap_planner_old *old = &planner->old;
    const xci_gap_draft *draft = &planner->drafts[d];
    xci_gap_nibbles nibbles = {};
    const uint32_t width = draft->width;
    __syncthreads();
    d_clear_words(old->key_elements, XCI_GAP_KEYS);
    d_clear_words(old->key_changes, XCI_GAP_KEYS);
    __syncthreads();
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (!d_is_of_draft(work, c, d))
            continue;
        const xci_gap_source source = d_source_in(work, c);
        d_count_keys(&source, width, draft->dense != 0, old->key_elements, &nibbles);
    }
    if (width == 0)
        d_count_nibbles(&nibbles, old->key_elements);
    d_each_old_of(work, d, width, [&](bool active, uint64_t element, uint64_t) {
        d_tally(old->key_changes, xci_gap_key(element, width), active);
    });
    __syncthreads();
}

/* ---- Classes ---- */

/* Keys that occur, as ranges of one key each; a whole warp. */
__device__ __forceinline__ uint32_t d_list_ranges(const xci_gap_planner_old *old,
                                                  const xci_gap_draft *draft,
                                                  xci_gap_range *ranges) {
    uint32_t seen = 0, count = 0;
    for (uint32_t key = d_lane(); key < XCI_GAP_KEYS; key += XCI_WARP)
        seen += old->key_elements[key];
    seen = d_sum(seen);
    for (uint32_t first = 0; first < xci_gap_key_count(draft->width); first += XCI_WARP) {
        const uint32_t key = first + d_lane(); /* 8 keys: the others have no elements */
        xci_gap_range range = {key, old->key_elements[key], old->key_changes[key]};
        if (!draft->dense)
            range.elements = xci_gap_scale_key((uint32_t)range.elements, (uint32_t)range.changes,
                                               seen, draft->elements);
        const uint32_t all = __ballot_sync(XCI_ALL, range.elements != 0);
        if (range.elements != 0)
            ranges[count + (uint32_t)__popc(all & ((1u << d_lane()) - 1))] = range;
        count += (uint32_t)__popc(all);
    }
    __syncwarp();
    return count;
}

/* The pair of ranges whose joining gains most, the first of those; a whole warp. */
__device__ __forceinline__ uint32_t d_best_join(const xci_gap_range *ranges, uint32_t count,
                                                const xci_gap_draft *draft, int64_t *most_out) {
    int64_t most = INT64_MIN;
    uint32_t best = 0;
    for (uint32_t i = d_lane(); i + 1 < count; i += XCI_WARP) {
        const int64_t here =
            xci_gap_join_gain(&ranges[i], &ranges[i + 1], draft->dense != 0, draft->chunk_count);
        if (here > most) {
            most = here;
            best = i;
        }
    }
    for (uint32_t step = XCI_WARP / 2; step > 0; step /= 2) {
        const int64_t other = (int64_t)__shfl_xor_sync(XCI_ALL, (uint64_t)most, step);
        const uint32_t where = __shfl_xor_sync(XCI_ALL, best, step);
        if (other > most || (other == most && where < best)) {
            most = other;
            best = where;
        }
    }
    *most_out = most;
    return best;
}

/* Joins the ranges `at` and `at` + 1; a whole warp. */
__device__ __forceinline__ void d_join_ranges(xci_gap_range *ranges, uint32_t count, uint32_t at) {
    if (d_lane() == 0) {
        ranges[at].elements += ranges[at + 1].elements;
        ranges[at].changes += ranges[at + 1].changes;
    }
    for (uint32_t first = at + 1; first + 1 < count; first += XCI_WARP) {
        const uint32_t i = first + d_lane();
        xci_gap_range next = {};
        if (i + 1 < count)
            next = ranges[i + 1];
        __syncwarp();
        if (i + 1 < count)
            ranges[i] = next;
        __syncwarp();
    }
    __syncwarp();
}

/* The draft's classes; the first warp. */
__device__ __forceinline__ void d_choose_classes(xci_gap_planner *planner, xci_gap_draft *draft) {
    xci_gap_planner_old *old = &planner->old;
    xci_gap_range *ranges = planner->for_now.ranges;
    uint32_t count = d_list_ranges(old, draft, ranges);
    while (count > 1) {
        int64_t most;
        const uint32_t best = d_best_join(ranges, count, draft, &most);
        if (most <= 0 && count <= XCI_GAP_CLASSES)
            break;
        d_join_ranges(ranges, count--, best);
    }
    if (d_lane() < count) {
        const xci_gap_range range = ranges[d_lane()];
        draft->first_keys[d_lane()] = d_lane() == 0 ? 0 : range.first;
        draft->priors[d_lane()] = xci_gap_prior(range.elements, range.changes);
    }
    if (d_lane() == 0)
        draft->class_count = count;
    __syncwarp();
    for (uint32_t key = d_lane(); key < XCI_GAP_KEYS; key += XCI_WARP) {
        uint32_t of = 0;
        while (of + 1 < count && key >= draft->first_keys[of + 1])
            ++of;
        old->class_of[key] = (uint8_t)of;
    }
}

/* ---- Codes ---- */

/* Symbols of all steps by class, and all together. */
__device__ __forceinline__ void d_count_steps(const xci_gap_work *work, xci_gap_planner *planner,
                                              uint32_t d) {
    xci_gap_planner_old *old = &planner->old;
    const xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t width = draft->width, head = xci_gap_head_max(width);
    d_begin_counts(planner);
    d_clear_words(&old->counts[0][0], draft->class_count * XCI_PREFIX_SYMBOLS);
    __syncthreads();
    d_each_old_of(work, d, width, [&](bool active, uint64_t element, uint64_t mask) {
        uint32_t tail_bits;
        const uint32_t c = old->class_of[xci_gap_key(element, width)];
        const uint64_t step = xci_gap_step(element, element ^ mask, width);
        d_tally(&old->counts[0][0], c * XCI_PREFIX_SYMBOLS + d_symbol(step, head, &tail_bits),
                active);
    });
    __syncthreads();
    if (threadIdx.x < draft->class_count && draft->dense) {
        const xci_gap_range range = planner->for_now.ranges[threadIdx.x];
        old->counts[threadIdx.x][0] = (uint32_t)(range.elements - range.changes);
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < XCI_PREFIX_SYMBOLS; s += XCI_PLAN_THREADS)
        for (uint32_t c = 0; c < draft->class_count; ++c)
            planner->counts[s] += old->counts[c][s];
    __syncthreads();
    d_end_counts(planner);
}

/* The head that costs least; counts of classes are folded to it, too. */
__device__ __forceinline__ uint32_t d_choose_common_head(xci_gap_planner *planner,
                                                         const xci_gap_draft *draft) {
    const uint32_t finest = xci_gap_head_max(draft->width);
    const uint32_t head = d_choose_head(planner, draft->width), end = planner->used_end;
    const uint32_t room = min(XCI_FOLDED_SYMBOLS / end, XCI_PLAN_WARPS);
    uint32_t *folded = planner->for_now.folded + d_warp() * end;
    for (uint32_t c = d_warp(); c < draft->class_count && d_warp() < room; c += room) {
        uint32_t *counts = planner->old.counts[c];
        d_fold(counts, end, finest, head, folded);
        for (uint32_t s = d_lane(); s < end; s += XCI_WARP)
            counts[s] = folded[s];
    }
    __syncthreads();
    return head;
}

/* Bits of all symbols, by every warp for itself; whether there are any is in `any_out`. */
__device__ __forceinline__ uint64_t d_code_bits(const xci_gap_lengths *lengths,
                                                const uint32_t *counts, uint32_t end,
                                                bool *any_out) {
    uint64_t bits = 0;
    bool any = false;
    for (uint32_t s = d_lane(); s < end; s += XCI_WARP) {
        bits += (uint64_t)counts[s] * lengths->of[s];
        any = any || counts[s] != 0;
    }
    *any_out = __any_sync(XCI_ALL, any);
    return d_sum64(bits);
}

/* Whether a code of its own, which is the planner's then, makes class `c` shorter than the common
 * one does. */
__device__ __forceinline__ bool
d_deserves_code(xci_gap_planner *planner, const xci_gap_draft *draft, uint32_t c, uint32_t head) {
    const uint32_t *counts = planner->old.counts[c];
    const uint32_t end = planner->used_end;
    xci_gap_lengths *own = &planner->old.own;
    bool any;
    __syncthreads();
    const uint64_t common_bits = d_code_bits(&planner->lengths, counts, end, &any);
    if (planner->code_count >= XCI_GAP_OWN_TABLES || !any)
        return false;
    d_build_code(planner, counts, end, head, own);
    d_describe_code(planner, own, draft->width);
    const uint64_t bits = d_code_bits(own, counts, end, &any) + 8 * planner->description_bytes;
    return bits < common_bits;
}

/* The common code is for those classes that share it. */
__device__ __forceinline__ void d_share_code(xci_gap_planner *planner, const xci_gap_draft *draft,
                                             uint32_t head) {
    const uint32_t end = planner->used_end;
    bool any = false;
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < end; s += XCI_PLAN_THREADS) {
        uint32_t sum = 0;
        for (uint32_t c = 0; c < draft->class_count; ++c)
            sum += (planner->old.has_own >> c & 1) == 0 ? planner->old.counts[c][s] : 0;
        planner->counts[s] = sum;
        any = any || sum != 0;
    }
    if (!__syncthreads_or(any))
        return;
    d_build_code(planner, planner->counts, end, head, &planner->lengths);
}

/* Codes of a draft whose classes are chosen. */
__device__ __forceinline__ void d_plan_codes(const xci_gap_work *work, xci_gap_planner *planner,
                                             uint32_t d) {
    xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t head = d_choose_common_head(planner, draft), common = d_take_number(planner);
    d_build_code(planner, planner->counts, planner->used_end, head, &planner->lengths);
    if (threadIdx.x == 0)
        planner->old.has_own = 0;
    for (uint32_t c = 0; c < draft->class_count; ++c) {
        const bool own = draft->class_count > 1 && d_deserves_code(planner, draft, c, head);
        const uint32_t number = own ? d_take_number(planner) : common;
        if (own)
            d_keep_code(work, planner, &planner->old.own, number);
        if (threadIdx.x == 0) {
            draft->tables[c] = number;
            planner->old.has_own |= own ? 1u << c : 0;
        }
    }
    __syncthreads();
    if (draft->class_count > 1)
        d_share_code(planner, draft, head);
    d_describe_code(planner, &planner->lengths, draft->width);
    d_keep_code(work, planner, &planner->lengths, common);
}

__device__ __forceinline__ void d_plan_classes(const xci_gap_work *work, xci_gap_planner *planner,
                                               uint32_t d) {
    d_count_all_keys(work, planner, d);
    if (d_warp() == 0)
        d_choose_classes(planner, &planner->drafts[d]);
    __syncthreads();
    d_count_steps(work, planner, d);
    d_plan_codes(work, planner, d);
}

#endif
