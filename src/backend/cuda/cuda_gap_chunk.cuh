/* A chunk whose group is planned, at work by a warp; and the records of one with several classes:
 * changes of one class after those of another, each with its rank among the elements of its class
 * and its step. They lie in the scratch, in words of 4 bytes:
 *
 *     where the changes of each class begin, and end | bytes of each class's stream |
 *     ranks | steps' low words | with elements of 8 bytes their high words */
#ifndef XCI_CUDA_GAP_CHUNK_CUH
#define XCI_CUDA_GAP_CHUNK_CUH

#include "backend/cuda/cuda_gap_changes.cuh"

#define XCI_CHUNK_THREADS 128u
#define XCI_CHUNK_WARPS (XCI_CHUNK_THREADS / XCI_WARP)

/* ---- Chunks ---- */

__device__ __forceinline__ uint32_t d_chunk_warp(void) {
    return threadIdx.x / XCI_WARP;
}

/* Of the warp's chunk in the call. */
__device__ __forceinline__ uint64_t d_chunk_index(void) {
    return (uint64_t)blockIdx.x * XCI_CHUNK_WARPS + d_chunk_warp();
}

/* A chunk at work. */
typedef struct xci_gap_piece {
    const xci_cuda_gap_encode_call *call;
    const xci_gap_scratch *scratch;
    uint64_t index; /* counted from the call's first */
    const xci_gap_plan *plan;
    const xci_gap_draft *draft;
    xci_gap_source source;
} xci_gap_piece;

__device__ __forceinline__ xci_gap_piece d_piece_of(const xci_cuda_gap_encode_call *call,
                                                    const xci_gap_scratch *scratch, uint64_t index,
                                                    uint32_t mark) {
    xci_gap_piece piece;
    piece.call = call;
    piece.scratch = scratch;
    piece.index = index;
    piece.plan = &scratch->plans[mark >> XCI_DRAFT_BITS];
    piece.draft = &piece.plan->drafts[mark % (1u << XCI_DRAFT_BITS)];
    piece.source = d_source_of(call, scratch, index);
    return piece;
}

/* False: there is no such chunk, or it has not changed. */
__device__ __forceinline__ bool d_take_piece(const xci_cuda_gap_encode_call *call,
                                             const xci_gap_scratch *scratch, uint64_t index,
                                             xci_gap_piece *piece_out) {
    const uint32_t mark = index < call->count ? scratch->drafts[index] : XCI_NO_DRAFT;
    if (mark % (1u << XCI_DRAFT_BITS) == XCI_NO_DRAFT)
        return false;
    *piece_out = d_piece_of(call, scratch, index, mark);
    return true;
}

__device__ __forceinline__ bool d_has_records(const xci_gap_piece *piece) {
    return piece->draft->dense == 0 && piece->draft->class_count > 1;
}

__device__ __forceinline__ uint32_t d_class_of(const xci_gap_draft *draft, uint32_t key) {
    uint32_t of = 0;
    for (uint32_t c = 1; c < draft->class_count; ++c)
        of += key >= draft->first_keys[c];
    return of;
}

/* Changed elements of the chunk's width. */
__device__ __forceinline__ uint32_t d_changes_of(const xci_gap_piece *piece) {
    return d_count_changes(piece->call, piece->scratch, piece->index, piece->draft->width);
}

/* ---- Records ---- */

#define XCI_RECORD_HEAD (2u * XCI_GAP_CLASSES + 1u)

typedef struct xci_gap_records {
    uint32_t *begins, *bytes; /* XCI_GAP_CLASSES + 1; XCI_GAP_CLASSES */
    uint32_t *ranks, *lows, *highs;
} xci_gap_records;

__device__ __forceinline__ uint32_t d_record_words(uint32_t changes, uint32_t width) {
    return XCI_RECORD_HEAD + changes * (width == 4 ? 3 : 2);
}

__device__ __forceinline__ xci_gap_records d_records_at(uint32_t *at, uint32_t changes) {
    xci_gap_records records;
    records.begins = at;
    records.bytes = at + XCI_GAP_CLASSES + 1;
    records.ranks = at + XCI_RECORD_HEAD;
    records.lows = records.ranks + changes;
    records.highs = records.lows + changes;
    return records;
}

/* Those that were made. */
__device__ __forceinline__ xci_gap_records d_records_of(const xci_gap_piece *piece) {
    return d_records_at(piece->scratch->lists + piece->scratch->records[piece->index],
                        d_changes_of(piece));
}

/* Calls visit(active, change) for all changes of a class, 32 at a time, by the whole warp. */
template <typename Visit>
__device__ __forceinline__ void d_each_record(xci_gap_records records, uint32_t c, uint32_t width,
                                              Visit visit) {
    const uint32_t begin = records.begins[c], count = records.begins[c + 1] - begin;
    const uint32_t *ranks = records.ranks + begin;
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += XCI_WARP) {
        const uint32_t i = first + d_lane();
        xci_gap_change change = {};
        if (i < count) {
            change.number = i;
            change.position = ranks[i];
            change.last_end = i > 0 ? ranks[i - 1] + 1 : 0;
            change.far_end = i >= XCI_FAR ? ranks[i - XCI_FAR] + 1 : 0;
            change.value = records.lows[begin + i];
            if (width == 4)
                change.value |= (uint64_t)records.highs[begin + i] << 32;
        }
        visit(i < count, change);
    }
}

#endif
