/* The end of a group's plan: its parameters, and where its blocks begin. Mostly one warp's work,
 * which looks at 32 chunks at a time. */
#ifndef XCI_CUDA_GAP_FINISH_CUH
#define XCI_CUDA_GAP_FINISH_CUH

#include "backend/cuda/cuda_gap_plan.cuh"

/* Where a group's parameters begin in its room. */
__device__ __forceinline__ uint8_t *d_params_of(const xci_gap_work *work) {
    return work->room + xci_gap_tables(work->call->beside) * XCI_TABLE_ROOM;
}

/* ---- Tables and shapes ---- */

/* Drafts that are used, in the order of their first chunks. Returns how many; one thread. */
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

/* Copies the descriptions of the tables that the drafts use, and numbers them. */
__device__ __forceinline__ uint8_t *d_write_tables(const xci_gap_work *work, const uint32_t *order,
                                                   uint32_t count, uint32_t *table_of,
                                                   uint8_t *at) {
    const xci_gap_planner *planner = work->planner;
    uint32_t tables[XCI_GAP_TABLES], table_count = 0;
    for (uint32_t t = 0; t < XCI_GAP_TABLES; ++t)
        table_of[t] = XCI_GAP_TABLES;
    for (uint32_t i = 0; i < count; ++i) {
        const xci_gap_draft *draft = &planner->drafts[order[i]];
        for (uint32_t c = 0; c < draft->class_count; ++c) {
            if (table_of[draft->tables[c]] != XCI_GAP_TABLES)
                continue;
            table_of[draft->tables[c]] = table_count;
            tables[table_count++] = draft->tables[c];
        }
    }
    at += xci_varint_put(at, table_count);
    for (uint32_t t = 0; t < table_count; ++t)
        for (uint32_t k = 0; k < planner->table_bytes[tables[t]]; ++k)
            *at++ = work->room[tables[t] * XCI_TABLE_ROOM + k];
    return at;
}

__device__ __forceinline__ uint8_t *d_write_shape(const xci_gap_draft *draft, bool knows_old,
                                                  const uint32_t *table_of, uint8_t *at) {
    *at++ = (uint8_t)(draft->width | (draft->dense ? XCI_GAP_SHAPE_DENSE : 0) |
                      (knows_old ? XCI_GAP_SHAPE_KNOWS_OLD : 0));
    if (knows_old)
        at += xci_varint_put(at, draft->class_count);
    for (uint32_t c = 0; knows_old && c < draft->class_count; ++c) {
        const uint32_t end =
            c + 1 < draft->class_count ? draft->first_keys[c + 1] : xci_gap_key_count(draft->width);
        at += xci_varint_put(at, end - draft->first_keys[c]);
    }
    for (uint32_t c = 0; c < draft->class_count; ++c) {
        if (!draft->dense)
            at += xci_varint_put(at, draft->priors[c]);
        *at++ = (uint8_t)table_of[draft->tables[c]];
    }
    return at;
}

/* Tables and shapes; one thread. */
__device__ __forceinline__ uint8_t *d_write_shapes(const xci_gap_work *work, uint8_t *at,
                                                   uint32_t *shape_count_out) {
    uint32_t order[XCI_GAP_SHAPES], table_of[XCI_GAP_TABLES];
    const uint32_t count = d_number_drafts(work->planner, order);
    at = d_write_tables(work, order, count, table_of, at);
    at += xci_varint_put(at, count);
    for (uint32_t i = 0; i < count; ++i)
        at = d_write_shape(&work->planner->drafts[order[i]], work->call->beside != 0, table_of, at);
    *shape_count_out = count;
    return at;
}

/* ---- Chunks, 32 at a time ---- */

typedef struct xci_gap_look {
    uint32_t bytes, draft;
    bool changed, kept;
} xci_gap_look;

/* The lane's of the chunks from `first` on. */
__device__ __forceinline__ xci_gap_look d_look_at_chunk(const xci_gap_work *work, uint32_t first) {
    const uint32_t c = first + d_lane();
    xci_gap_look look = {0, 0, false, false};
    if (c >= work->count)
        return look;
    const xci_cuda_result *result = d_result_of(work, c);
    look.bytes = d_chunk_of(work, c)->bytes;
    look.draft = work->scratch->drafts[work->first + c];
    look.changed = result->bytes_changed != 0;
    look.kept = look.changed && result->block_codec == XORCAST_CODEC_GAP;
    return look;
}

/* ---- Places ---- */

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

/* Distinct sizes of chunks, in the order in which they come; a whole warp. */
__device__ __forceinline__ uint32_t d_list_sizes(const xci_gap_work *work, uint32_t *sizes) {
    uint32_t count = 0, last = 0; /* the last one that was found: most are the same */
    for (uint32_t first = 0; first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        uint32_t others = __ballot_sync(XCI_ALL, look.kept && look.bytes != last);
        while (others != 0) {
            last = __shfl_sync(XCI_ALL, look.bytes, (uint32_t)__ffs((int)others) - 1);
            if (d_find_size(sizes, count, last) == count) {
                __syncwarp();
                if (d_lane() == 0)
                    sizes[count] = last;
                ++count;
                __syncwarp();
            }
            others &= __ballot_sync(XCI_ALL, look.kept && look.bytes != last);
        }
    }
    return count;
}

/* Sizes, then each chunk's place; a whole warp, of which lane 0 writes. */
__device__ __forceinline__ uint8_t *d_write_places(const xci_gap_work *work, uint8_t *at,
                                                   uint32_t shape_count) {
    uint32_t *sizes = work->scratch->sizes + work->first;
    const uint32_t size_count = d_list_sizes(work, sizes);
    const uint32_t shape_bits = xci_gap_bits_for(shape_count);
    const uint32_t place_bits = shape_bits + xci_gap_bits_for(size_count);
    if (d_lane() == 0) {
        at += xci_varint_put(at, size_count);
        for (uint32_t i = 0; i < size_count; ++i)
            at += xci_varint_put(at, sizes[i]);
    }
    uint64_t held = 0;
    uint32_t held_bits = 0;
    for (uint32_t first = 0; place_bits != 0 && first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        uint32_t kept = __ballot_sync(XCI_ALL, look.kept);
        for (; kept != 0; kept &= kept - 1) {
            const uint32_t lane = (uint32_t)__ffs((int)kept) - 1;
            const uint32_t draft = __shfl_sync(XCI_ALL, look.draft, lane);
            const uint32_t bytes = __shfl_sync(XCI_ALL, look.bytes, lane);
            const uint32_t size = d_find_size(sizes, size_count, bytes);
            held |= (uint64_t)work->planner->drafts[draft].number << held_bits;
            held |= (uint64_t)size << (held_bits + shape_bits);
            held_bits += place_bits;
            for (; held_bits >= 8; held_bits -= 8, held >>= 8)
                if (d_lane() == 0)
                    *at++ = (uint8_t)held;
        }
    }
    if (held_bits != 0 && d_lane() == 0)
        *at++ = (uint8_t)(held | 0xffu << held_bits);
    return at;
}

/* Writes the parameters to the group's room; returns their bytes. A whole warp. */
__device__ __forceinline__ uint32_t d_write_params(const xci_gap_work *work) {
    uint8_t *const begin = d_params_of(work);
    uint8_t *at = begin;
    uint32_t shape_count = 0;
    if (d_lane() == 0)
        at = d_write_shapes(work, begin, &shape_count);
    shape_count = __shfl_sync(XCI_ALL, shape_count, 0);
    __syncwarp();
    at = d_write_places(work, at, shape_count);
    return __shfl_sync(XCI_ALL, (uint32_t)(at - begin), 0);
}

/* ---- Blocks ---- */

/* Raw blocks everywhere, if those of this codec and their parameters are not smaller. */
__device__ __forceinline__ void d_make_raw(const xci_gap_work *work) {
    for (uint32_t first = 0; first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        if (!look.changed)
            continue;
        d_result_of(work, first + d_lane())->block_codec = XORCAST_CODEC_RAW;
        d_result_of(work, first + d_lane())->block_bytes = look.bytes;
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

/* What is left when all blocks have their size; a whole warp. */
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

#endif
