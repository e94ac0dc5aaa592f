/* Old weights by rows of 512 bytes, a vector a lane, and how many elements of each class a row has.
 * For whoever goes through a chunk in order: decoding beside the old weights, and encoding. */
#ifndef XCI_CUDA_GAP_ROWS_CUH
#define XCI_CUDA_GAP_ROWS_CUH

#include "backend/cuda/cuda_gap_class.cuh"

#define XCI_ROW_VECTORS XCI_WARP
#define XCI_ROW_BYTES (XCI_ROW_VECTORS * 16u)
#define XCI_OLD_AHEAD 4u /* rows that are on their way */

typedef struct xci_gap_scan {
    const uint8_t *old_at;
    uint32_t bytes, count, class_count;
    bool aligned;
    xci_gap_fields fields;
    uint32_t bounds[XCI_GAP_CLASSES + 1]; /* of class c: of keys that belong to it or a later one */
    uint32_t seen;                        /* elements of the lane's class before the row */
} xci_gap_scan;

__device__ __forceinline__ void d_begin_rows(xci_gap_scan *scan, uint32_t width,
                                             uint32_t class_count, const uint32_t *first_keys,
                                             const uint8_t *old_at, uint32_t bytes) {
    scan->old_at = old_at;
    scan->bytes = bytes;
    scan->count = xci_gap_element_count(width, bytes);
    scan->class_count = class_count;
    scan->aligned = (uintptr_t)old_at % 16 == 0;
    scan->fields = d_fields_of(width);
    scan->seen = 0;
#pragma unroll
    for (uint32_t c = 0; c <= XCI_GAP_CLASSES; ++c)
        scan->bounds[c] = c < class_count ? d_key_bound(scan->fields, first_keys[c]) : 0;
}

/* The lane's vector of a row; zeros behind the chunk's end. */
__device__ __forceinline__ uint4 d_old_vector(const xci_gap_scan *scan, uint32_t row) {
    const uint32_t at = (row * XCI_ROW_VECTORS + d_lane()) * 16;
    if (at + 16 <= scan->bytes && scan->aligned)
        return d_load_once((const uint4 *)(scan->old_at + at));
    uint64_t halves[2] = {0, 0};
    for (uint32_t i = 0; i < 16 && at + i < scan->bytes; ++i)
        halves[i / 8] |= (uint64_t)scan->old_at[at + i] << (i % 8 * 8);
    return make_uint4((uint32_t)halves[0], (uint32_t)(halves[0] >> 32), (uint32_t)halves[1],
                      (uint32_t)(halves[1] >> 32));
}

/* A row as the lane sees it: its vector, its elements' keys and marks, and how many of them belong
 * to class c or a later one. */
typedef struct xci_gap_row {
    uint4 old_part;
    uint32_t keys[4], kept[4];
    uint32_t counts[XCI_GAP_CLASSES + 1];
} xci_gap_row;

__device__ __forceinline__ void d_class_row(const xci_gap_scan *scan, uint32_t row_number,
                                            xci_gap_row *row) {
    const xci_gap_fields &f = scan->fields;
    const uint32_t per_vector = 32u >> f.width;
    const uint32_t before = (row_number * XCI_ROW_VECTORS + d_lane()) * per_vector;
    const uint32_t here = scan->count > before ? min(scan->count - before, per_vector) : 0;
    d_keys_of(f, row->old_part, row->keys);
    d_keep_marks(f, here, row->kept);
    row->counts[0] = here;
#pragma unroll
    for (uint32_t c = 1; c <= XCI_GAP_CLASSES; ++c) {
        row->counts[c] = 0;
        if (c >= scan->class_count)
            continue;
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            sum += d_not_below(f, row->keys[i], scan->bounds[c]) & row->kept[i];
        row->counts[c] = d_sum_marks(f, sum);
    }
}

/* Elements of the lane's class in the row. */
__device__ __forceinline__ uint32_t d_row_total(const xci_gap_scan *scan, const xci_gap_row *row) {
    uint32_t mine = 0, before = 0;
#pragma unroll
    for (uint32_t c = 0; c <= XCI_GAP_CLASSES; ++c) {
        const uint32_t total = c < scan->class_count ? d_sum(row->counts[c]) : 0;
        mine = c == d_lane() + 1 ? before - total : mine;
        before = total;
    }
    return mine;
}

/* The lane's elements of class `c`, marked. */
__device__ __forceinline__ uint32_t d_mark_class(const xci_gap_scan *scan, const xci_gap_row *row,
                                                 uint32_t c, uint32_t *marks) {
    uint32_t sum = 0, low = 0, high = 0;
#pragma unroll
    for (uint32_t k = 0; k <= XCI_GAP_CLASSES; ++k) { /* registers cannot be numbered */
        low = k == c ? scan->bounds[k] : low;
        high = k == c + 1 ? scan->bounds[k] : high;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        marks[i] = row->kept[i];
        if (c > 0)
            marks[i] &= d_not_below(scan->fields, row->keys[i], low);
        if (c + 1 < scan->class_count)
            marks[i] &= ~d_not_below(scan->fields, row->keys[i], high);
        sum += marks[i];
    }
    return d_sum_marks(scan->fields, sum);
}

/* Rows that are on their way, the next one first. */
typedef struct xci_gap_ahead {
    uint4 rows[XCI_OLD_AHEAD];
    uint32_t next; /* the row behind them */
} xci_gap_ahead;

__device__ __forceinline__ xci_gap_ahead d_begin_ahead(const xci_gap_scan *scan) {
    xci_gap_ahead ahead;
#pragma unroll
    for (uint32_t i = 0; i < XCI_OLD_AHEAD; ++i)
        ahead.rows[i] = d_old_vector(scan, i);
    ahead.next = XCI_OLD_AHEAD;
    return ahead;
}

/* The next row; another one is sent for. */
__device__ __forceinline__ uint4 d_next_row(const xci_gap_scan *scan, xci_gap_ahead *ahead) {
    const uint4 row = ahead->rows[0];
#pragma unroll
    for (uint32_t i = 0; i + 1 < XCI_OLD_AHEAD; ++i)
        ahead->rows[i] = ahead->rows[i + 1];
    ahead->rows[XCI_OLD_AHEAD - 1] = d_old_vector(scan, ahead->next++);
    return row;
}

#endif
