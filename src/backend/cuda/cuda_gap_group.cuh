/* The kernel that plans groups: a block of threads each, one step after the other. */
#ifndef XCI_CUDA_GAP_GROUP_CUH
#define XCI_CUDA_GAP_GROUP_CUH

#include "backend/cuda/cuda_gap_plan_old.cuh"
#include "backend/cuda/cuda_gap_width.cuh"

/* Forgets what was before; finds out which kinds of chunks have changed. */
__device__ __forceinline__ void d_begin_group(const xci_gap_work *work, xci_gap_planner *planner) {
    if (threadIdx.x < XCI_GAP_SHAPES) {
        const xci_gap_draft draft = {};
        planner->drafts[threadIdx.x] = draft;
    }
    if (threadIdx.x == 0)
        planner->kinds = planner->code_count = 0;
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < work->count; c += XCI_PLAN_THREADS) {
        work->scratch->drafts[work->first + c] = d_draft_mark(work, XCI_NO_DRAFT);
        if (d_result_of(work, c)->bytes_changed != 0)
            atomicOr(&planner->kinds, d_chunk_of(work, c)->element_bytes);
    }
    __syncthreads();
}

template <bool BESIDE>
__device__ __forceinline__ void d_plan_group(const xci_gap_work *work, xci_gap_planner *planner) {
    d_begin_group(work, planner);
#pragma unroll 1
    for (uint32_t kind = 0; kind < 4; ++kind)
        if ((planner->kinds & 1u << kind) != 0)
            d_sort_chunks(work, planner, kind, d_choose_width(work, planner, kind));
    __syncthreads();
#pragma unroll 1
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; ++d) {
        if (planner->drafts[d].chunk_count == 0)
            continue;
        if (BESIDE) {
            d_plan_classes(work, planner, d);
        } else {
            d_count_symbols(work, planner, d);
            d_plan_code(work, planner, d);
        }
    }
    xci_gap_plan *plan = &work->scratch->plans[work->group];
    __syncthreads();
    if (threadIdx.x < XCI_GAP_SHAPES)
        plan->drafts[threadIdx.x] = planner->drafts[threadIdx.x];
}

template <bool BESIDE>
__global__ void __launch_bounds__(XCI_PLAN_THREADS, BESIDE ? XCI_PLAN_OLD_BLOCKS : XCI_PLAN_BLOCKS)
    k_gap_plan(xci_cuda_gap_encode_call call, xci_gap_scratch scratch) {
    XCI_SHARED_MEMORY(shared);
    const xci_gap_work work = d_work_of(&call, &scratch, blockIdx.x);
    d_plan_group<BESIDE>(&work, (xci_gap_planner *)shared);
}

#endif
