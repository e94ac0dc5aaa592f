/* The kernel that plans groups: a block of threads each, one step after the other. */
#ifndef XCI_CUDA_GAP_GROUP_CUH
#define XCI_CUDA_GAP_GROUP_CUH

#include "backend/cuda/cuda_gap_finish.cuh"
#include "backend/cuda/cuda_gap_plan_old.cuh"

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
        planner->kinds = planner->kept_count = planner->table_count = 0;
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

template <bool BESIDE>
__device__ __forceinline__ void d_plan_draft(const xci_gap_work *work, uint32_t d) {
    if (BESIDE) {
        d_plan_classes(work, d);
        d_size_blocks_beside(work, d);
    } else {
        d_count_symbols(work, d);
        d_plan_code(work, d);
        d_size_blocks(work, d);
    }
}

template <bool BESIDE>
__device__ __forceinline__ void d_plan_group(const xci_gap_work *work, xci_cuda_gap_group *group) {
    xci_gap_planner *planner = work->planner;
    d_begin_group(work);
    for (uint32_t kind = 0; kind < 4; ++kind)
        if ((planner->kinds & 1u << kind) != 0)
            d_sort_chunks(work, kind, d_choose_width(work, kind));
    __syncthreads();
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; ++d)
        if (planner->drafts[d].chunk_count != 0)
            d_plan_draft<BESIDE>(work, d);
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
    work.room = scratch->rooms + xci_gap_room(group, work.first, call->beside);
    return work;
}

template <bool BESIDE>
__global__ void __launch_bounds__(XCI_PLAN_THREADS, BESIDE ? 2 : XCI_PLAN_BLOCKS)
    k_gap_plan(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const xci_gap_work work = d_work_of(&call, &scratch, blockIdx.x, (xci_gap_planner *)shared);
    d_plan_group<BESIDE>(&work, &call.groups[blockIdx.x]);
}

#endif
