/* Sparse gap blocks that know the old weights, by a warp each. Every class has a stream, which is
 * one lane's; the warp goes through the old weights row by row, counts the elements of each class,
 * and finds those that are next in the streams.
 *
 *     visit(word, low, high)   for each row that changes, by all lanes: the masks of the lane's
 *                              words `word` and `word` + 1; either may be 0 */
#ifndef XCI_CUDA_GAP_BESIDE_CUH
#define XCI_CUDA_GAP_BESIDE_CUH

#include "backend/cuda/cuda_gap_decode.cuh"
#include "backend/cuda/cuda_gap_rows.cuh"

#define XCI_NO_RANK UINT32_MAX

typedef struct xci_gap_beside {
    const xci_gap_shape *shape;
    xci_gap_scan scan;
    xci_gap_walk walk; /* of the lane's class; its position is a rank */
    bool bad;
} xci_gap_beside;

/* ---- Streams ---- */

__device__ __forceinline__ void d_advance(xci_gap_beside *beside) {
    if (!d_next_change(&beside->walk)) {
        beside->bad = beside->bad || beside->walk.bad;
        beside->walk.position = XCI_NO_RANK;
    }
}

/* Each lane below the number of classes takes up its stream. False: they are not there. */
__device__ __forceinline__ bool d_open_streams(xci_gap_beside *beside,
                                               const xci_gap_lookup *lookups, const uint8_t *block,
                                               uint32_t block_bytes, uint32_t *ends) {
    xci_reader at = {block, block + block_bytes, false};
    beside->walk.bits = d_bits_of(block, 0);
    beside->walk.position = XCI_NO_RANK;
    for (uint32_t c = 0; c < beside->scan.class_count; ++c) {
        xci_gap_bits bits;
        if (!d_next_segment(&at, c + 1 == beside->scan.class_count, &bits))
            return false;
        if (c == d_lane())
            beside->walk.bits = bits;
    }
    if (d_lane() < beside->scan.class_count) {
        const xci_gap_class of = beside->shape->classes[d_lane()];
        beside->walk.past.prior = of.prior;
        beside->walk.past.count = beside->walk.past.next = 0;
        beside->walk.past.ends = ends + d_lane();
        beside->walk.past.stride = XCI_GAP_CLASSES;
        beside->walk.lookup = &lookups[of.table];
        beside->walk.count = beside->scan.count;
        beside->walk.bad = false;
        d_advance(beside);
    }
    return true;
}

/* ---- Changes ---- */

typedef struct xci_gap_masks {
    uint64_t low, high;
} xci_gap_masks;

/* Element `index` of the lane's vector takes a step. */
__device__ __forceinline__ void d_step_element(xci_gap_beside *beside, const xci_gap_row *row,
                                               uint32_t first, uint32_t index, uint64_t value,
                                               xci_gap_masks *masks) {
    const uint32_t width = beside->scan.fields.width, per_word = 16u >> width;
    const bool upper = index >= per_word;
    const uint64_t word = upper ? (uint64_t)row->old_part.w << 32 | row->old_part.z
                                : (uint64_t)row->old_part.y << 32 | row->old_part.x;
    const uint32_t shift = (upper ? index - per_word : index) << (2 + width);
    const uint64_t element = word >> shift & xci_gap_mask_bits(width);
    const uint64_t mask = element ^ xci_gap_stepped(element, value, width);
    beside->bad = beside->bad || d_beyond(first + index, mask, width, beside->scan.bytes);
    masks->low |= upper ? 0 : mask << shift;
    masks->high |= upper ? mask << shift : 0;
}

/* The next change of class `c`, which lies in the row. */
__device__ __forceinline__ void d_place_change(xci_gap_beside *beside, const xci_gap_row *row,
                                               uint32_t row_number, uint32_t c,
                                               xci_gap_masks *masks) {
    uint32_t marks[4];
    const uint32_t mine = d_mark_class(&beside->scan, row, c, marks), sum = d_scan(mine);
    const uint32_t rank = __shfl_sync(XCI_ALL, beside->walk.position - beside->scan.seen, c);
    const uint64_t value = __shfl_sync(XCI_ALL, beside->walk.value, c);
    if (rank >= sum - mine && rank < sum) {
        const uint32_t index = d_select_mark(beside->scan.fields, marks, rank - (sum - mine));
        const uint32_t first =
            (row_number * XCI_ROW_VECTORS + d_lane()) * (32u >> beside->scan.fields.width);
        d_step_element(beside, row, first, index, value, masks);
    }
}

/* Whether a row has changes; they are added to the lane's masks. */
__device__ __forceinline__ bool d_change_row(xci_gap_beside *beside, const xci_gap_row *row,
                                             uint32_t row_number, xci_gap_masks *masks) {
    const uint32_t total = d_row_total(&beside->scan, row);
    bool any = false;
    for (;;) {
        const bool mine = beside->walk.position != XCI_NO_RANK &&
                          beside->walk.position - beside->scan.seen < total;
        uint32_t classes = __ballot_sync(XCI_ALL, mine);
        if (classes == 0)
            break;
        any = true;
        for (; classes != 0; classes &= classes - 1)
            d_place_change(beside, row, row_number, (uint32_t)__ffs((int)classes) - 1, masks);
        if (mine)
            d_advance(beside);
    }
    beside->scan.seen += total;
    return any;
}

/* ---- Blocks ---- */

/* False in all lanes if the block is damaged. `ends`: the warp's in shared memory,
 * XCI_GAP_WINDOW x XCI_GAP_CLASSES. */
template <typename Visit>
__device__ __forceinline__ bool
d_walk_beside(const xci_gap_shape *shape, const uint32_t *first_keys, const xci_gap_lookup *lookups,
              const uint8_t *block, uint32_t block_bytes, const uint8_t *old_at, uint32_t bytes,
              uint32_t *ends, Visit visit) {
    xci_gap_beside beside;
    beside.shape = shape;
    beside.bad = false;
    d_begin_rows(&beside.scan, shape->width, shape->class_count, first_keys, old_at, bytes);
    if (!d_open_streams(&beside, lookups, block, block_bytes, ends))
        return false;
    const uint32_t rows = (bytes + XCI_ROW_VECTORS * 16 - 1) / (XCI_ROW_VECTORS * 16);
    xci_gap_ahead ahead = d_begin_ahead(&beside.scan);
#pragma unroll 1 /* the code is long: it must stay in the instruction cache */
    for (uint32_t r = 0; r < rows; ++r) {
        xci_gap_row row;
        xci_gap_masks masks = {0, 0};
        row.old_part = d_next_row(&beside.scan, &ahead);
        d_class_row(&beside.scan, r, &row);
        if (d_change_row(&beside, &row, r, &masks))
            visit((r * XCI_ROW_VECTORS + d_lane()) * 2, masks.low, masks.high);
    }
    beside.bad = beside.bad || beside.walk.position != XCI_NO_RANK;
    return !__any_sync(XCI_ALL, beside.bad);
}

#endif
