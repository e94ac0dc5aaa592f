/* What planning a group beside its old weights takes more: classes, a code for those that deserve
 * one, sizes of blocks with several streams. The choices are those of codec/gap_classes.c,
 * gap_codes.c and gap_write.c. */
#ifndef XCI_CUDA_GAP_PLAN_OLD_CUH
#define XCI_CUDA_GAP_PLAN_OLD_CUH

#include "backend/cuda/cuda_gap_plan.cuh"

/* ---- Keys ---- */

/* Keys of the elements of a vector of old weights. */
__device__ __forceinline__ void d_count_vector(uint4 v, uint32_t width, uint32_t elements,
                                               uint32_t *counts) {
    const uint64_t halves[2] = {(uint64_t)v.y << 32 | v.x, (uint64_t)v.w << 32 | v.z};
    const uint32_t per_half = 16u >> width;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t i = 0; i < per_half && half * per_half + i < elements; ++i)
            atomicAdd(&counts[xci_gap_key(
                          halves[half] >> (i << (2 + width)) & d_element_ones(width), width)],
                      1u);
}

/* Nibbles are many: they are counted by 8 classes of one key each. */
__device__ __forceinline__ void d_count_nibbles(const xci_gap_row *row, uint32_t *counts) {
    uint32_t before = 0;
#pragma unroll
    for (uint32_t c = XCI_GAP_CLASSES; c-- > 0;) {
        const uint32_t total = d_sum(row->counts[c]);
        if (d_lane() == 0)
            atomicAdd(&counts[c], total - before);
        before = total;
    }
}

static_assert(XCI_GAP_KEY_STRETCH == XCI_ROW_BYTES, "a stretch is a row");

/* The stretches of a chunk that are looked at: all of a dense one's. */
__device__ __forceinline__ void d_count_keys(const xci_gap_source *source, uint32_t width,
                                             bool dense, uint32_t *counts) {
    const uint32_t rows = (source->bytes + XCI_ROW_BYTES - 1) / XCI_ROW_BYTES;
    const uint32_t count = xci_gap_element_count(width, source->bytes);
    const uint32_t keys[XCI_GAP_CLASSES] = {0, 1, 2, 3, 4, 5, 6, 7};
    xci_gap_scan scan;
    d_begin_rows(&scan, width, XCI_GAP_CLASSES, keys, source->old_at, source->bytes);
    for (uint32_t r = 0; r < rows; r += dense ? 1 : XCI_GAP_KEY_STEP) {
        xci_gap_row row;
        row.old_part = d_old_vector(&scan, r);
        if (width == 0) {
            d_class_row(&scan, r, &row);
            d_count_nibbles(&row, counts);
            continue;
        }
        const uint32_t first = (r * XCI_WARP + d_lane()) * (32u >> width);
        d_count_vector(row.old_part, width, count > first ? count - first : 0, counts);
    }
}

/* Calls visit(old element, mask) for each changed element of the lane's word. */
template <typename Visit>
__device__ __forceinline__ void d_each_old(const xci_gap_source *source, uint32_t word,
                                           uint64_t mask, uint32_t width, Visit visit) {
    if (mask == 0)
        return;
    const uint64_t old_word = d_word_at(source->old_at, word, source->bytes);
    for (uint64_t marks = d_marks(mask, width); marks != 0; marks &= marks - 1) {
        const uint32_t shift = xci_zeros_below64(marks);
        visit(old_word >> shift & d_element_ones(width), mask >> shift & d_element_ones(width));
    }
}

/* Calls visit(old element, mask) for all changes of a draft. */
template <typename Visit>
__device__ __forceinline__ void d_each_old_of(const xci_gap_work *work, uint32_t d, Visit visit) {
    const uint32_t width = work->planner->drafts[d].width;
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (work->scratch->drafts[work->first + c] != d)
            continue;
        const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
        xci_gap_source words = source;
        uint32_t word;
        uint64_t mask;
        while (d_next_words(&words, &word, &mask))
            d_each_old(&source, word, mask, width, visit);
    }
}

__device__ __forceinline__ void d_count_all_keys(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner_old *old = &work->planner->old;
    const xci_gap_draft *draft = &work->planner->drafts[d];
    const uint32_t width = draft->width;
    __syncthreads();
    d_clear_words(old->key_elements, XCI_GAP_KEYS);
    d_clear_words(old->key_changes, XCI_GAP_KEYS);
    __syncthreads();
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (work->scratch->drafts[work->first + c] != d)
            continue;
        const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
        d_count_keys(&source, width, draft->dense != 0, old->key_elements);
    }
    d_each_old_of(work, d, [&](uint64_t element, uint64_t) {
        atomicAdd(&old->key_changes[xci_gap_key(element, width)], 1u);
    });
    __syncthreads();
}

/* ---- Classes ---- */

/* Keys that occur, as ranges of one key each; a whole warp. */
__device__ __forceinline__ uint32_t d_list_ranges(xci_gap_planner_old *old,
                                                  const xci_gap_draft *draft) {
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
            old->ranges[count + (uint32_t)__popc(all & ((1u << d_lane()) - 1))] = range;
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
__device__ __forceinline__ void d_choose_classes(xci_gap_planner_old *old, xci_gap_draft *draft) {
    uint32_t count = d_list_ranges(old, draft);
    while (count > 1) {
        int64_t most;
        const uint32_t best = d_best_join(old->ranges, count, draft, &most);
        if (most <= 0 && count <= XCI_GAP_CLASSES)
            break;
        d_join_ranges(old->ranges, count--, best);
    }
    if (d_lane() < count) {
        const xci_gap_range range = old->ranges[d_lane()];
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

/* Symbols of all steps, with the finest head. */
__device__ __forceinline__ void d_count_steps(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    const xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t width = draft->width, head = xci_gap_head_max(width);
    d_clear_words(planner->counts, XCI_PREFIX_SYMBOLS);
    planner->used_end = 0;
    __syncthreads();
    d_each_old_of(work, d, [&](uint64_t element, uint64_t mask) {
        uint32_t tail_bits;
        const uint64_t step = xci_gap_step(element, element ^ mask, width);
        atomicAdd(&planner->counts[xci_gap_symbol(step, head, &tail_bits)], 1u);
    });
    __syncthreads();
    if (threadIdx.x == 0 && draft->dense)
        planner->counts[0] = (uint32_t)(draft->elements - draft->changes);
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < XCI_PREFIX_SYMBOLS; s += XCI_PLAN_THREADS)
        if (planner->counts[s] != 0)
            atomicMax(&planner->used_end, s + 1);
    __syncthreads();
}

/* The same by class, with a head. */
__device__ __forceinline__ void d_count_class_steps(const xci_gap_work *work, uint32_t d,
                                                    uint32_t head) {
    xci_gap_planner_old *old = &work->planner->old;
    const xci_gap_draft *draft = &work->planner->drafts[d];
    const uint32_t width = draft->width;
    d_clear_words(&old->counts[0][0], draft->class_count * XCI_PREFIX_SYMBOLS);
    __syncthreads();
    d_each_old_of(work, d, [&](uint64_t element, uint64_t mask) {
        uint32_t tail_bits;
        const uint32_t c = old->class_of[xci_gap_key(element, width)];
        const uint64_t step = xci_gap_step(element, element ^ mask, width);
        atomicAdd(&old->counts[c][xci_gap_symbol(step, head, &tail_bits)], 1u);
    });
    __syncthreads();
    if (threadIdx.x < draft->class_count && draft->dense) {
        const xci_gap_range range = old->ranges[threadIdx.x];
        old->counts[threadIdx.x][0] = (uint32_t)(range.elements - range.changes);
    }
    __syncthreads();
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

/* Whether a code of its own makes class `c` shorter than the common one does; then it has a
 * table. */
__device__ __forceinline__ bool d_deserves_code(const xci_gap_work *work, uint32_t d, uint32_t c,
                                                uint32_t head) {
    xci_gap_planner *planner = work->planner;
    const uint32_t *counts = planner->old.counts[c];
    const uint32_t end = planner->used_end, table = planner->table_count;
    xci_gap_lengths *own = &planner->old.own[c];
    bool any;
    __syncthreads();
    const uint64_t common_bits = d_code_bits(&planner->lengths, counts, end, &any);
    if (table >= XCI_GAP_OWN_TABLES || !any)
        return false;
    d_build_code(planner, counts, end, head, own);
    d_describe_code(work, own, planner->drafts[d].width, table);
    const uint64_t bits = d_code_bits(own, counts, end, &any) + 8 * planner->table_bytes[table];
    return bits < common_bits;
}

/* The common code is for those classes that share it. */
__device__ __forceinline__ void d_share_code(const xci_gap_work *work, uint32_t d, uint32_t head) {
    xci_gap_planner *planner = work->planner;
    const xci_gap_draft *draft = &planner->drafts[d];
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
__device__ __forceinline__ void d_plan_codes(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    xci_gap_draft *draft = &planner->drafts[d];
    const uint32_t head = d_choose_head(planner, draft->width), common = d_take_table(planner);
    d_build_code(planner, planner->counts, planner->used_end, head, &planner->lengths);
    d_count_class_steps(work, d, head);
    if (threadIdx.x == 0)
        planner->old.has_own = 0;
    for (uint32_t c = 0; c < draft->class_count; ++c) {
        const bool own = draft->class_count > 1 && d_deserves_code(work, d, c, head);
        const uint32_t table = own ? d_take_table(planner) : common;
        if (threadIdx.x == 0) {
            draft->tables[c] = table;
            planner->old.has_own |= own ? 1u << c : 0;
        }
    }
    __syncthreads();
    if (draft->class_count > 1)
        d_share_code(work, d, head);
    d_describe_code(work, &planner->lengths, draft->width, common);
}

__device__ __forceinline__ void d_plan_classes(const xci_gap_work *work, uint32_t d) {
    xci_gap_planner *planner = work->planner;
    d_count_all_keys(work, d);
    if (d_warp() == 0)
        d_choose_classes(&planner->old, &planner->drafts[d]);
    __syncthreads();
    d_count_steps(work, d);
    d_plan_codes(work, d);
}

/* ---- Sizes ---- */

__device__ __forceinline__ const xci_gap_lengths *d_lengths_of(const xci_gap_planner *planner,
                                                               uint32_t c) {
    return (planner->old.has_own >> c & 1) != 0 ? &planner->old.own[c] : &planner->lengths;
}

/* Room for a chunk's ranks; NULL: there is none, and the call fails. */
__device__ __forceinline__ uint32_t *d_take_ranks(const xci_gap_work *work, uint32_t c,
                                                  uint32_t changes) {
    unsigned long long at = 0;
    if (d_lane() == 0)
        at = atomicAdd(&work->scratch->counters[1], (unsigned long long)changes);
    at = __shfl_sync(XCI_ALL, at, 0);
    if (at + changes > work->scratch->list_words) {
        if (d_lane() == 0)
            work->scratch->counters[2] = 1;
        return NULL;
    }
    if (d_lane() == 0)
        work->scratch->ranks[work->first + c] = at;
    return work->scratch->lists + at;
}

/* Bytes of a sparse block, or XCI_GAP_CHUNK_MAX as soon as a stream is known to be too long: where
 * the host's writer gives up. */
__device__ __forceinline__ uint32_t d_classes_bytes(const uint64_t *bits, uint32_t class_count,
                                                    uint32_t limit) {
    uint32_t at = 0;
    for (uint32_t c = 0; c < class_count; ++c) {
        const uint64_t bytes = (bits[c] + 7) / 8;
        if (bits[c] / 8 >= limit || bytes + at + XCI_STREAM_LENGTH >= limit)
            return XCI_GAP_CHUNK_MAX;
        at += (uint32_t)bytes + (c + 1 == class_count ? 0 : d_varint_bytes((uint32_t)bytes));
    }
    return at;
}

__device__ __forceinline__ uint32_t d_sparse_bytes_beside(const xci_gap_work *work, uint32_t c,
                                                          const xci_gap_draft *draft) {
    xci_gap_planner *planner = work->planner;
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    xci_gap_streams *streams = &planner->old.streams[d_warp()];
    const uint32_t *ranks = NULL;
    uint64_t bits[XCI_GAP_CLASSES] = {0};
    if (draft->class_count > 1) {
        uint32_t *room = d_take_ranks(work, c, d_draft_changes(work, c, draft->width));
        if (room == NULL)
            return XCI_GAP_CHUNK_MAX;
        d_rank_changes(&source, draft->width, draft->first_keys, draft->class_count, streams, room);
        ranks = room;
    }
    d_each_ranked(&source, &planner->batches[d_warp()], streams, draft->width, draft->class_count,
                  ranks, [&](bool active, const xci_gap_ranked &change) {
                      uint32_t mine = 0;
                      if (active) {
                          (void)d_gap_bits(change.rank - change.last_end,
                                           d_ranked_parameter(&change, draft->priors[change.of]),
                                           &mine);
                          mine += d_value_bits(d_lengths_of(planner, change.of), change.value);
                      }
#pragma unroll
                      for (uint32_t k = 0; k < XCI_GAP_CLASSES; ++k)
                          bits[k] += active && change.of == k ? mine : 0;
                  });
#pragma unroll
    for (uint32_t k = 0; k < XCI_GAP_CLASSES; ++k)
        bits[k] = d_sum64(bits[k]);
    return d_classes_bytes(bits, draft->class_count, source.bytes);
}

/* The step of any element, 0 where it does not change, and its class. */
__device__ __forceinline__ uint64_t d_dense_step(const xci_gap_source *source, uint32_t position,
                                                 uint32_t width, const uint8_t *class_of,
                                                 uint32_t *class_out) {
    const uint32_t shift = (position & ((1u << (4 - width)) - 1)) << (2 + width);
    const uint64_t word = d_word_at(source->old_at, position >> (4 - width), source->bytes);
    const uint64_t element = word >> shift & d_element_ones(width);
    *class_out = class_of[xci_gap_key(element, width)];
    return xci_gap_step(element, element ^ d_element_at(source, position, width), width);
}

__device__ __forceinline__ uint32_t d_dense_bytes_beside(const xci_gap_work *work, uint32_t c,
                                                         const xci_gap_draft *draft) {
    const xci_gap_planner *planner = work->planner;
    const xci_gap_source source = d_source_of(work->call, work->scratch, work->first + c);
    return d_sum_segments(source.bytes, draft->width, [&](uint32_t position) {
        uint32_t of;
        const uint64_t step =
            d_dense_step(&source, position, draft->width, planner->old.class_of, &of);
        return d_value_bits(d_lengths_of(planner, of), step);
    });
}

/* Sizes of the blocks of a draft, or that they are raw. */
__device__ __forceinline__ void d_size_blocks_beside(const xci_gap_work *work, uint32_t d) {
    xci_gap_draft *draft = &work->planner->drafts[d];
    __syncthreads();
    for (uint32_t c = d_warp(); c < work->count; c += XCI_PLAN_WARPS) {
        if (work->scratch->drafts[work->first + c] != d)
            continue;
        d_keep_block(work, draft, c,
                     draft->dense ? d_dense_bytes_beside(work, c, draft)
                                  : d_sparse_bytes_beside(work, c, draft));
    }
    __syncthreads();
}

#endif
