/* Sparse gap blocks that know the old weights, by a warp each. Every class has a stream, which is
 * one lane's; the warp goes through the old weights row by row, counts the elements of each class,
 * and finds those that are next in the streams.
 *
 *     visit(word, low, high)   for each row that changes, by all lanes: the masks of the lane's
 *                              words `word` and `word` + 1; either may be 0 */
#ifndef XCI_CUDA_GAP_BESIDE_CUH
#define XCI_CUDA_GAP_BESIDE_CUH

#include "backend/cuda/cuda_gap_class.cuh"
#include "backend/cuda/cuda_gap_decode.cuh"

#define XCI_ROW_VECTORS XCI_WARP
#define XCI_OLD_AHEAD 4u /* rows that are on their way */
#define XCI_NO_RANK UINT32_MAX

typedef struct xci_gap_scan {
    const xci_gap_shape *shape;
    const uint8_t *old_at;
    uint32_t bytes, count, class_count;
    bool aligned;
    xci_gap_fields fields;
    uint32_t bounds[XCI_GAP_CLASSES + 1]; /* of class c: of keys that belong to it or a later one */
    xci_gap_walk walk;                    /* of the lane's class; its position is a rank */
    uint32_t seen;                        /* elements of that class before the row */
    bool bad;
} xci_gap_scan;

/* ---- Streams ---- */

__device__ __forceinline__ void d_advance(xci_gap_scan *scan) {
    if (!d_next_change(&scan->walk)) {
        scan->bad = scan->bad || scan->walk.bad;
        scan->walk.position = XCI_NO_RANK;
    }
}

/* Each lane below the number of classes takes up its stream. False: they are not there. */
__device__ __forceinline__ bool d_open_streams(xci_gap_scan *scan, const xci_gap_lookup *lookups,
                                               const uint8_t *block, uint32_t block_bytes,
                                               uint32_t *ends) {
    xci_reader at = {block, block + block_bytes, false};
    scan->walk.bits = d_bits_of(block, 0);
    scan->walk.position = XCI_NO_RANK;
    for (uint32_t c = 0; c < scan->class_count; ++c) {
        xci_gap_bits bits;
        if (!d_next_segment(&at, c + 1 == scan->class_count, &bits))
            return false;
        if (c == d_lane())
            scan->walk.bits = bits;
    }
    if (d_lane() < scan->class_count) {
        const xci_gap_class of = scan->shape->classes[d_lane()];
        scan->walk.past.prior = of.prior;
        scan->walk.past.count = scan->walk.past.next = 0;
        scan->walk.past.ends = ends + d_lane();
        scan->walk.past.stride = XCI_GAP_CLASSES;
        scan->walk.lookup = &lookups[of.table];
        scan->walk.count = scan->count;
        scan->walk.bad = false;
        d_advance(scan);
    }
    return true;
}

/* ---- Rows ---- */

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

/* ---- Changes ---- */

typedef struct xci_gap_masks {
    uint64_t low, high;
} xci_gap_masks;

/* Element `index` of the lane's vector takes a step. */
__device__ __forceinline__ void d_step_element(xci_gap_scan *scan, const xci_gap_row *row,
                                               uint32_t first, uint32_t index, uint64_t value,
                                               xci_gap_masks *masks) {
    const uint32_t width = scan->fields.width, per_word = 16u >> width;
    const bool upper = index >= per_word;
    const uint64_t word = upper ? (uint64_t)row->old_part.w << 32 | row->old_part.z
                                : (uint64_t)row->old_part.y << 32 | row->old_part.x;
    const uint32_t shift = (upper ? index - per_word : index) << (2 + width);
    const uint64_t element = word >> shift & xci_gap_mask_bits(width);
    const uint64_t mask = element ^ xci_gap_stepped(element, value, width);
    scan->bad = scan->bad || d_beyond(first + index, mask, width, scan->bytes);
    masks->low |= upper ? 0 : mask << shift;
    masks->high |= upper ? mask << shift : 0;
}

/* The next change of class `c`, which lies in the row. */
__device__ __forceinline__ void d_place_change(xci_gap_scan *scan, const xci_gap_row *row,
                                               uint32_t row_number, uint32_t c,
                                               xci_gap_masks *masks) {
    uint32_t marks[4];
    const uint32_t mine = d_mark_class(scan, row, c, marks), sum = d_scan(mine);
    const uint32_t rank = __shfl_sync(XCI_ALL, scan->walk.position - scan->seen, c);
    const uint64_t value = __shfl_sync(XCI_ALL, scan->walk.value, c);
    if (rank >= sum - mine && rank < sum) {
        const uint32_t index = d_select_mark(scan->fields, marks, rank - (sum - mine));
        const uint32_t first =
            (row_number * XCI_ROW_VECTORS + d_lane()) * (32u >> scan->fields.width);
        d_step_element(scan, row, first, index, value, masks);
    }
}

/* Whether a row has changes; they are added to the lane's masks. */
__device__ __forceinline__ bool d_change_row(xci_gap_scan *scan, const xci_gap_row *row,
                                             uint32_t row_number, xci_gap_masks *masks) {
    const uint32_t total = d_row_total(scan, row);
    bool any = false;
    for (;;) {
        const bool mine =
            scan->walk.position != XCI_NO_RANK && scan->walk.position - scan->seen < total;
        uint32_t classes = __ballot_sync(XCI_ALL, mine);
        if (classes == 0)
            break;
        any = true;
        for (; classes != 0; classes &= classes - 1)
            d_place_change(scan, row, row_number, (uint32_t)__ffs((int)classes) - 1, masks);
        if (mine)
            d_advance(scan);
    }
    scan->seen += total;
    return any;
}

/* ---- Blocks ---- */

__device__ __forceinline__ void d_begin_scan(xci_gap_scan *scan, const xci_gap_shape *shape,
                                             const uint32_t *first_keys, const uint8_t *old_at,
                                             uint32_t bytes) {
    scan->shape = shape;
    scan->old_at = old_at;
    scan->bytes = bytes;
    scan->count = xci_gap_element_count(shape->width, bytes);
    scan->class_count = shape->class_count;
    scan->aligned = (uintptr_t)old_at % 16 == 0;
    scan->fields = d_fields_of(shape->width);
    scan->seen = 0;
    scan->bad = false;
#pragma unroll
    for (uint32_t c = 0; c <= XCI_GAP_CLASSES; ++c)
        scan->bounds[c] = c < shape->class_count ? d_key_bound(scan->fields, first_keys[c]) : 0;
}

/* False in all lanes if the block is damaged. `ends`: the warp's in shared memory,
 * XCI_GAP_WINDOW x XCI_GAP_CLASSES. */
template <typename Visit>
__device__ __forceinline__ bool
d_walk_beside(const xci_gap_shape *shape, const uint32_t *first_keys, const xci_gap_lookup *lookups,
              const uint8_t *block, uint32_t block_bytes, const uint8_t *old_at, uint32_t bytes,
              uint32_t *ends, Visit visit) {
    xci_gap_scan scan;
    d_begin_scan(&scan, shape, first_keys, old_at, bytes);
    if (!d_open_streams(&scan, lookups, block, block_bytes, ends))
        return false;
    const uint32_t rows = (bytes + XCI_ROW_VECTORS * 16 - 1) / (XCI_ROW_VECTORS * 16);
    uint4 ahead[XCI_OLD_AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < XCI_OLD_AHEAD; ++i)
        ahead[i] = d_old_vector(&scan, i);
    for (uint32_t first = 0; first < rows; first += XCI_OLD_AHEAD) {
#pragma unroll
        for (uint32_t i = 0; i < XCI_OLD_AHEAD; ++i) {
            xci_gap_row row;
            xci_gap_masks masks = {0, 0};
            row.old_part = ahead[i];
            ahead[i] = d_old_vector(&scan, first + i + XCI_OLD_AHEAD);
            d_class_row(&scan, first + i, &row);
            if (d_change_row(&scan, &row, first + i, &masks))
                visit(((first + i) * XCI_ROW_VECTORS + d_lane()) * 2, masks.low, masks.high);
        }
    }
    scan.bad = scan.bad || scan.walk.position != XCI_NO_RANK;
    return !__any_sync(XCI_ALL, scan.bad);
}

#endif
