/* The end of a group's plan, when its blocks have sizes: parameters, and where blocks begin. A warp
 * has a group, and looks at 32 chunks at a time. Then where the groups begin. */
#ifndef XCI_CUDA_GAP_FINISH_CUH
#define XCI_CUDA_GAP_FINISH_CUH

#include "backend/cuda/cuda_gap_plan.cuh"
#include "backend/cuda/cuda_gap_rival.cuh"

#define XCI_FINISH_THREADS 128u
#define XCI_FINISH_WARPS (XCI_FINISH_THREADS / XCI_WARP)

/* A warp's, in shared memory. */
typedef struct xci_gap_finisher {
    uint32_t first_kept[XCI_GAP_SHAPES]; /* chunk of each draft */
    uint32_t numbers[XCI_GAP_SHAPES];    /* of drafts among the shapes that are written */
    uint32_t order[XCI_GAP_SHAPES];      /* the drafts by these numbers */
    uint32_t code_of[XCI_GAP_TABLES];    /* numbers of codes among the tables that are written */
    uint32_t tables[XCI_GAP_TABLES];     /* the codes by these numbers */
    uint32_t shape_count, table_count;
} xci_gap_finisher;

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
    look.draft = work->scratch->drafts[work->first + c] % (1u << XCI_DRAFT_BITS);
    look.changed = result->bytes_changed != 0;
    look.kept = look.changed && result->block_codec == XORCAST_CODEC_GAP;
    return look;
}

/* Bytes of blocks, of their rivals, and of these in LZ4. */
typedef struct xci_gap_sums {
    uint64_t blocks, rivals, lz4;
} xci_gap_sums;

__device__ __forceinline__ void d_add_chunk(const xci_gap_work *work, const xci_gap_look *look,
                                            uint32_t c, xci_gap_sums *sums) {
    if (!look->changed)
        return;
    sums->blocks += d_result_of(work, c)->block_bytes;
    if (work->call->prices.wire == 0) {
        sums->rivals += look->bytes;
        return;
    }
    const xci_gap_rival *rival = &work->scratch->rivals[work->first + c];
    sums->rivals += rival->bytes;
    sums->lz4 += rival->lz4_bytes;
}

/* Finds the first kept chunk of each draft; returns how many are kept, and the group's sums. */
__device__ __forceinline__ uint32_t d_look_at_all(const xci_gap_work *work,
                                                  xci_gap_finisher *finisher,
                                                  xci_gap_sums *sums_out) {
    uint32_t kept = 0;
    xci_gap_sums sums = {};
    if (d_lane() < XCI_GAP_SHAPES)
        finisher->first_kept[d_lane()] = UINT32_MAX;
    __syncwarp();
    for (uint32_t first = 0; first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        kept += (uint32_t)__popc(__ballot_sync(XCI_ALL, look.kept));
        if (look.kept)
            atomicMin(&finisher->first_kept[look.draft], first + d_lane());
        d_add_chunk(work, &look, first + d_lane(), &sums);
    }
    sums_out->blocks = d_sum64(sums.blocks);
    sums_out->rivals = d_sum64(sums.rivals);
    sums_out->lz4 = d_sum64(sums.lz4);
    __syncwarp();
    return kept;
}

/* ---- Tables and shapes ---- */

/* Drafts that are used, in the order of their first chunks; one thread. */
__device__ __forceinline__ void d_number_drafts(xci_gap_finisher *finisher) {
    uint32_t count = 0;
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; ++d) {
        uint32_t number = 0;
        for (uint32_t other = 0; other < XCI_GAP_SHAPES; ++other)
            number += finisher->first_kept[other] < finisher->first_kept[d];
        finisher->numbers[d] = number;
        if (finisher->first_kept[d] == UINT32_MAX)
            continue;
        finisher->order[number] = d;
        ++count;
    }
    finisher->shape_count = count;
}

/* Codes that these use, in the order in which they do; one thread. */
__device__ __forceinline__ void d_number_codes_used(xci_gap_finisher *finisher,
                                                    const xci_gap_plan *plan) {
    uint32_t count = 0;
    for (uint32_t t = 0; t < XCI_GAP_TABLES; ++t)
        finisher->code_of[t] = XCI_GAP_TABLES;
    for (uint32_t i = 0; i < finisher->shape_count; ++i) {
        const xci_gap_draft *draft = &plan->drafts[finisher->order[i]];
        for (uint32_t c = 0; c < draft->class_count; ++c) {
            const uint32_t code = draft->tables[c];
            if (finisher->code_of[code] != XCI_GAP_TABLES)
                continue;
            finisher->code_of[code] = count;
            finisher->tables[count++] = code;
        }
    }
    finisher->table_count = count;
}

/* A number by lane 0; returns what is behind it. */
__device__ __forceinline__ uint8_t *d_put_number(uint8_t *at, uint32_t number) {
    if (d_lane() == 0)
        (void)xci_varint_put(at, number);
    return at + d_varint_bytes(number);
}

/* Descriptions of the tables; a whole warp. */
__device__ __forceinline__ uint8_t *d_write_tables(const xci_gap_finisher *finisher,
                                                   const xci_gap_plan *plan, uint8_t *at) {
    at = d_put_number(at, finisher->table_count);
    for (uint32_t t = 0; t < finisher->table_count; ++t) {
        const xci_gap_code *code = &plan->codes[finisher->tables[t]];
        for (uint32_t i = d_lane(); i < code->description_bytes; i += XCI_WARP)
            at[i] = code->description[i];
        at += code->description_bytes;
    }
    return at;
}

/* One thread. */
__device__ __forceinline__ uint8_t *d_write_shape(const xci_gap_draft *draft, bool knows_old,
                                                  const uint32_t *code_of, uint8_t *at) {
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
        *at++ = (uint8_t)code_of[draft->tables[c]];
    }
    return at;
}

__device__ __forceinline__ uint8_t *d_write_shapes(const xci_gap_work *work,
                                                   const xci_gap_finisher *finisher,
                                                   const xci_gap_plan *plan, uint8_t *at) {
    at = d_put_number(at, finisher->shape_count);
    uint32_t bytes = 0;
    if (d_lane() == 0) {
        uint8_t *end = at;
        for (uint32_t i = 0; i < finisher->shape_count; ++i)
            end = d_write_shape(&plan->drafts[finisher->order[i]], work->call->beside != 0,
                                finisher->code_of, end);
        bytes = (uint32_t)(end - at);
    }
    return at + __shfl_sync(XCI_ALL, bytes, 0);
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

/* Each chunk's shape and size. */
__device__ __forceinline__ uint8_t *d_write_spots(const xci_gap_work *work,
                                                  const xci_gap_finisher *finisher,
                                                  const uint32_t *sizes, uint32_t size_count,
                                                  uint8_t *at) {
    const uint32_t shape_bits = xci_gap_bits_for(finisher->shape_count);
    const uint32_t place_bits = shape_bits + xci_gap_bits_for(size_count);
    uint64_t held = 0;
    uint32_t held_bits = 0;
    for (uint32_t first = 0; place_bits != 0 && first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        uint32_t kept = __ballot_sync(XCI_ALL, look.kept);
        for (; kept != 0; kept &= kept - 1) {
            const uint32_t lane = (uint32_t)__ffs((int)kept) - 1;
            const uint32_t draft = __shfl_sync(XCI_ALL, look.draft, lane);
            const uint32_t bytes = __shfl_sync(XCI_ALL, look.bytes, lane);
            const uint64_t size = d_find_size(sizes, size_count, bytes);
            held |= (uint64_t)finisher->numbers[draft] << held_bits;
            held |= size << (held_bits + shape_bits);
            held_bits += place_bits;
            for (; held_bits >= 8; held_bits -= 8, held >>= 8, ++at)
                if (d_lane() == 0)
                    *at = (uint8_t)held;
        }
    }
    if (held_bits != 0 && d_lane() == 0)
        *at = (uint8_t)(held | 0xffu << held_bits);
    return at + (held_bits != 0);
}

/* Sizes, then each chunk's place. */
__device__ __forceinline__ uint8_t *d_write_places(const xci_gap_work *work,
                                                   const xci_gap_finisher *finisher, uint8_t *at) {
    uint32_t *sizes = work->scratch->sizes + work->first;
    const uint32_t size_count = d_list_sizes(work, sizes);
    at = d_put_number(at, size_count);
    for (uint32_t i = 0; i < size_count; ++i)
        at = d_put_number(at, sizes[i]);
    return d_write_spots(work, finisher, sizes, size_count, at);
}

/* ---- Parameters ---- */

/* Takes room for as many as there may be; NULL: there is none. */
__device__ __forceinline__ uint8_t *d_take_params(const xci_gap_work *work,
                                                  const xci_gap_finisher *finisher,
                                                  const xci_gap_plan *plan) {
    uint32_t bytes = 0;
    if (d_lane() < finisher->table_count)
        bytes = plan->codes[finisher->tables[d_lane()]].description_bytes;
    bytes = d_sum(bytes) + XCI_SHAPES_ROOM + work->count * XCI_CHUNK_ROOM;
    uint64_t at = 0;
    if (d_lane() == 0)
        at = (uint64_t)(uintptr_t)d_take_room(work->scratch, bytes);
    return (uint8_t *)(uintptr_t)__shfl_sync(XCI_ALL, at, 0);
}

/* Writes the parameters to the room; returns their bytes. */
__device__ __forceinline__ uint32_t d_write_params(const xci_gap_work *work,
                                                   xci_gap_finisher *finisher) {
    xci_gap_plan *plan = &work->scratch->plans[work->group];
    if (d_lane() == 0) {
        d_number_drafts(finisher);
        d_number_codes_used(finisher, plan);
    }
    __syncwarp();
    uint8_t *const begin = d_take_params(work, finisher, plan);
    if (begin == NULL)
        return 0;
    if (d_lane() == 0)
        plan->params = begin;
    uint8_t *at = d_write_tables(finisher, plan, begin);
    at = d_write_shapes(work, finisher, plan, at);
    return (uint32_t)(d_write_places(work, finisher, at) - begin);
}

/* ---- Blocks ---- */

/* Rivals everywhere, if blocks of this codec and their parameters are not smaller. */
__device__ __forceinline__ void d_take_rivals(const xci_gap_work *work) {
    for (uint32_t first = 0; first < work->count; first += XCI_WARP) {
        const xci_gap_look look = d_look_at_chunk(work, first);
        if (look.changed)
            d_take_rival(work->call, work->scratch, work->first + first + d_lane());
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

/* A whole warp. */
__device__ __forceinline__ void d_finish_group(const xci_gap_work *work, xci_gap_finisher *finisher,
                                               xci_cuda_gap_group *group) {
    xci_gap_sums sums;
    uint32_t params_bytes = 0;
    if (d_look_at_all(work, finisher, &sums) != 0)
        params_bytes = d_write_params(work, finisher);
    if (params_bytes != 0 && sums.blocks + params_bytes >= sums.rivals) {
        params_bytes = 0;
        d_take_rivals(work);
    }
    const uint32_t bytes = d_place_blocks(work);
    if (d_lane() == 0) {
        group->bytes = bytes + params_bytes;
        group->params_bytes = params_bytes;
        group->lz4_bytes = (uint32_t)sums.lz4;
    }
}

__global__ void __launch_bounds__(XCI_FINISH_THREADS)
    k_gap_finish(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const uint32_t group = blockIdx.x * XCI_FINISH_WARPS + d_warp();
    if (group >= call.group_count || scratch.counters[2] != 0)
        return;
    const xci_gap_work work = d_work_of(&call, &scratch, group);
    d_finish_group(&work, (xci_gap_finisher *)shared + d_warp(), &call.groups[group]);
}

/* ---- Groups ---- */

#define XCI_PLACE_THREADS 1024u

/* Where each group's payload begins: one block of threads. */
__global__ void __launch_bounds__(XCI_PLACE_THREADS)
    k_gap_place(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    uint64_t *sums = (uint64_t *)shared;
    const bool failed = scratch.counters[2] != 0;
    uint64_t before = 0;
    for (uint64_t first = 0; first < call.group_count; first += blockDim.x) {
        const uint64_t g = first + threadIdx.x;
        const uint64_t bytes = g < call.group_count ? call.groups[g].bytes : 0;
        const uint64_t sum = d_scan64(bytes);
        if (d_lane() == XCI_WARP - 1)
            sums[threadIdx.x / XCI_WARP] = sum;
        __syncthreads();
        uint64_t at = before + sum - bytes;
        for (uint32_t warp = 0; warp < blockDim.x / XCI_WARP; ++warp) {
            at += warp < threadIdx.x / XCI_WARP ? sums[warp] : 0;
            before += sums[warp];
        }
        if (g < call.group_count)
            call.groups[g].offset = at;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        call.used->bytes = failed ? UINT64_MAX : before;
        call.used->list_bytes = scratch.counters[1] * sizeof(uint32_t);
    }
}

#endif
