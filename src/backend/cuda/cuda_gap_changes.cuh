/* The changes of a chunk, from its units, by a warp: words first, 32 at a time and in order, then
 * changed elements of a width, 32 at a time, each with what stands before it. */
#ifndef XCI_CUDA_GAP_CHANGES_CUH
#define XCI_CUDA_GAP_CHANGES_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "backend/cuda/cuda_gap_scratch.cuh"

/* ---- Words ---- */

typedef struct xci_gap_source {
    const xci_gap_unit *unit, *end;
    const uint8_t *old_at, *new_at;
    uint32_t bytes;
    uint32_t at;    /* in the unit: entry or word */
    uint32_t first; /* word of the chunk that the unit begins with */
} xci_gap_source;

__device__ __forceinline__ xci_gap_source d_source_of(const xci_cuda_gap_encode_call *call,
                                                      const xci_gap_scratch *scratch,
                                                      uint64_t index) {
    xci_gap_source source;
    source.bytes = call->grid.chunks[call->first + index].bytes;
    source.unit = scratch->units + index * scratch->units_per_chunk;
    source.end =
        source.unit + scratch->units_per_chunk; /* those behind the chunk's end are empty */
    source.old_at = call->old_at[call->first + index];
    source.new_at = call->new_at[call->first + index];
    source.at = source.first = 0;
    return source;
}

/* Word `word` of `bytes` at any address. */
__device__ __forceinline__ uint64_t d_word_at(const uint8_t *at, uint32_t word, uint32_t bytes) {
    const uint32_t left = bytes - word * 8;
    if (left >= 8 && (uintptr_t)at % 8 == 0)
        return *(const uint64_t *)(at + word * 8);
    uint64_t value = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < left && i < 8; ++i)
        value |= (uint64_t)at[word * 8 + i] << (8 * i);
    return value;
}

/* Sixteen bytes of the old weights, zeros behind the chunk's end. */
__device__ __forceinline__ uint4 d_vector_at(const xci_gap_source *source, uint32_t at) {
    if (XCI_USUAL(at + 16 <= source->bytes && (uintptr_t)source->old_at % 16 == 0))
        return *(const uint4 *)(source->old_at + at);
    const uint64_t low = at < source->bytes ? d_word_at(source->old_at, at / 8, source->bytes) : 0;
    const uint64_t high =
        at + 8 < source->bytes ? d_word_at(source->old_at, at / 8 + 1, source->bytes) : 0;
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

__device__ __forceinline__ void d_take_entry(const xci_gap_unit *unit, uint32_t i,
                                             uint32_t *word_out, uint64_t *mask_out) {
    const uint32_t *entry = unit->entries + i * 3;
    *word_out = entry[0];
    *mask_out = (uint64_t)entry[2] << 32 | entry[1];
}

/* The next two units at once, if both are listed and short; whether they are. */
__device__ __forceinline__ bool d_take_two_units(xci_gap_source *source, uint32_t *word_out,
                                                 uint64_t *mask_out) {
    const xci_gap_unit *units = source->unit;
    if (source->at != 0 || units + 1 >= source->end)
        return false;
    const uint32_t first = units[0].count, second = units[1].count;
    if (first > XCI_WARP || second > XCI_WARP - first)
        return false;
    if (d_lane() < first)
        d_take_entry(&units[0], d_lane(), word_out, mask_out);
    else if (d_lane() < first + second)
        d_take_entry(&units[1], d_lane() - first, word_out, mask_out);
    source->unit += 2;
    source->first += 2 * XCI_UNIT_BYTES / 8;
    return true;
}

/* The next words, one a lane, rising; their masks may be 0. False: there are none. */
__device__ __forceinline__ bool d_next_words(xci_gap_source *source, uint32_t *word_out,
                                             uint64_t *mask_out) {
    *mask_out = 0;
    *word_out = 0;
    while (source->unit != source->end) {
        if (d_take_two_units(source, word_out, mask_out))
            return true;
        const uint32_t listed = source->unit->count;
        const uint32_t count =
            listed != XCI_NOT_LISTED
                ? listed
                : min(XCI_UNIT_BYTES / 8, (source->bytes + 7) / 8 - source->first);
        if (source->at < count) {
            const uint32_t mine = source->at + d_lane();
            if (mine < count && listed != XCI_NOT_LISTED) {
                d_take_entry(source->unit, mine, word_out, mask_out);
            } else if (mine < count) {
                *word_out = source->first + mine;
                *mask_out = d_word_at(source->old_at, *word_out, source->bytes) ^
                            d_word_at(source->new_at, *word_out, source->bytes);
            }
            source->at += XCI_WARP;
            if (listed == XCI_NOT_LISTED && !__any_sync(XCI_ALL, *mask_out != 0))
                continue;
            return true;
        }
        source->at = 0;
        source->first += XCI_UNIT_BYTES / 8;
        ++source->unit;
    }
    return false;
}

/* ---- Elements of a word ---- */

/* The lowest bit of each element of a word that is not 0. */
__device__ __forceinline__ uint64_t d_marks(uint64_t mask, uint32_t width) {
    const uint64_t lowest = width == 0   ? UINT64_C(0x1111111111111111)
                            : width == 1 ? UINT64_C(0x0101010101010101)
                            : width == 2 ? UINT64_C(0x0001000100010001)
                            : width == 3 ? UINT64_C(0x0000000100000001)
                                         : 1;
    const uint32_t top = (4u << width) - 1;
    const uint64_t low = ~(lowest << top); /* a sum of these carries into an element's top bit */
    return ((((mask & low) + low) | mask) & ~low) >> top;
}

/* Of those of elements half as wide. */
__device__ __forceinline__ uint64_t d_wider_marks(uint64_t marks, uint32_t width) {
    const uint64_t lowest = width == 1   ? UINT64_C(0x0101010101010101)
                            : width == 2 ? UINT64_C(0x0001000100010001)
                            : width == 3 ? UINT64_C(0x0000000100000001)
                                         : 1;
    return (marks | marks >> (2u << width)) & lowest;
}

__device__ __forceinline__ uint64_t d_element_ones(uint32_t width) {
    return UINT64_MAX >> (64 - (4u << width));
}

/* Whether it is known how many elements of a width change in a chunk. */
__device__ __forceinline__ bool d_knows_changes(const xci_cuda_gap_encode_call *call,
                                                uint64_t index, uint32_t width) {
    return width < 2 || call->grid.chunks[call->first + index].element_bytes == 1u << width >> 1;
}

/* How many, where it is. */
__device__ __forceinline__ uint32_t d_known_changes(const xci_cuda_gap_encode_call *call,
                                                    const xci_gap_scratch *scratch, uint64_t index,
                                                    uint32_t width) {
    return width == 0   ? scratch->nibbles[index]
           : width == 1 ? call->results[index].bytes_changed
                        : call->results[index].elements_changed;
}

/* How many; a whole warp. */
__device__ __forceinline__ uint32_t d_count_changes(const xci_cuda_gap_encode_call *call,
                                                    const xci_gap_scratch *scratch, uint64_t index,
                                                    uint32_t width) {
    if (d_knows_changes(call, index, width))
        return d_known_changes(call, scratch, index, width);
    xci_gap_source source = d_source_of(call, scratch, index);
    uint32_t word, changes = 0;
    uint64_t mask;
    while (d_next_words(&source, &word, &mask))
        changes += (uint32_t)__popcll(d_marks(mask, width));
    return d_sum(changes);
}

/* Calls visit(active, shift) for the marked elements of the lanes' words: where each begins. */
template <typename Visit> __device__ __forceinline__ void d_each_mark(uint64_t marks, Visit visit) {
    for (; __any_sync(XCI_ALL, marks != 0); marks &= marks - 1)
        visit(marks != 0, xci_zeros_below64(marks | UINT64_C(1) << 63));
}

/* Adds one to the count that each active lane names: once for all that name the same one. */
__device__ __forceinline__ void d_tally(uint32_t *counts, uint32_t which, bool active) {
    const uint32_t same = __match_any_sync(XCI_ALL, active ? which : UINT32_MAX);
    if (active && d_lane() == d_highest(same))
        atomicAdd(&counts[which], (uint32_t)__popc(same));
}

/* As xci_gap_symbol; values of up to 32 bits are many. */
__device__ __forceinline__ uint32_t d_symbol(uint64_t value, uint32_t head, uint32_t *tail_bits) {
    if (XCI_RARE(value >> 32 != 0))
        return xci_gap_symbol(value, head, tail_bits);
    const uint32_t low = (uint32_t)value, bits = 32 - (uint32_t)__clz((int)(low | 1));
    const uint32_t tail = max(bits, head + 1) - (head + 1);
    *tail_bits = tail;
    return (tail << head) + (low >> tail);
}

/* ---- Changes ---- */

#define XCI_FAR (XCI_GAP_WINDOW + 1) /* changes that a gap's parameter looks back */

#define XCI_BATCH_MOST (XCI_WARP * 16u)

/* Changes of up to 32 words, by a warp, in shared memory. */
typedef struct xci_gap_batch {
    uint64_t masks[XCI_WARP];
    uint32_t ends[XCI_FAR + XCI_BATCH_MOST]; /* behind those of the last changes before, or 0 */
    uint16_t places[XCI_BATCH_MOST];         /* entry << 4 | element */
} xci_gap_batch;

/* A change as the coder sees it: its position, and the ends of changes before it. */
typedef struct xci_gap_change {
    uint32_t position, last_end, far_end; /* far: XCI_GAP_WINDOW changes before the last one */
    uint32_t number;                      /* of the change in its stream */
    uint64_t value;
} xci_gap_change;

__device__ __forceinline__ void d_begin_changes(xci_gap_batch *batch) {
    __syncwarp();
    if (d_lane() < XCI_FAR)
        batch->ends[d_lane()] = 0;
    __syncwarp();
}

/* Takes the lanes' words apart; returns how many changes there are. */
__device__ __forceinline__ uint32_t d_fill_batch(xci_gap_batch *batch, uint32_t word, uint64_t mask,
                                                 uint32_t width) {
    uint64_t marks = d_marks(mask, width);
    const uint32_t mine = (uint32_t)__popcll(marks), sum = d_scan(mine);
    const uint32_t first_end = (word << (4 - width)) + 1;
    __syncwarp();
    batch->masks[d_lane()] = mask;
    for (uint32_t at = sum - mine; marks != 0; marks &= marks - 1, ++at) {
        const uint32_t in_word = xci_zeros_below64(marks) >> (2 + width);
        batch->ends[XCI_FAR + at] = first_end + in_word;
        batch->places[at] = (uint16_t)(d_lane() << 4 | in_word);
    }
    __syncwarp();
    return __shfl_sync(XCI_ALL, sum, XCI_WARP - 1);
}

__device__ __forceinline__ uint32_t d_batch_position(const xci_gap_batch *batch, uint32_t k) {
    return batch->ends[XCI_FAR + k] - 1;
}

__device__ __forceinline__ uint64_t d_batch_value(const xci_gap_batch *batch, uint32_t k,
                                                  uint32_t width) {
    const uint32_t place = batch->places[k];
    return batch->masks[place >> 4] >> ((place & 15) << (2 + width)) & d_element_ones(width);
}

__device__ __forceinline__ xci_gap_change d_change_of(const xci_gap_batch *batch, uint32_t k,
                                                      uint32_t before, uint32_t width) {
    xci_gap_change change;
    change.position = d_batch_position(batch, k);
    change.last_end = batch->ends[XCI_FAR + k - 1];
    change.far_end = batch->ends[k];
    change.number = before + k;
    change.value = d_batch_value(batch, k, width);
    return change;
}

/* Leaves the ends of the last changes for the next batch. */
__device__ __forceinline__ void d_pass_batch(xci_gap_batch *batch, uint32_t count) {
    const uint32_t end = d_lane() < XCI_FAR ? batch->ends[count + d_lane()] : 0;
    __syncwarp();
    if (d_lane() < XCI_FAR)
        batch->ends[d_lane()] = end;
    __syncwarp();
}

/* Calls visit(active, change) for all changes of a chunk, 32 at a time, by the whole warp. The next
 * words are on their way while these are worked on. */
template <typename Visit>
__device__ __forceinline__ void d_each_change(xci_gap_source source, xci_gap_batch *batch,
                                              uint32_t width, Visit visit) {
    uint32_t word = 0, before = 0;
    uint64_t mask = 0;
    d_begin_changes(batch);
    for (bool more = true; more;) {
        uint32_t next_word;
        uint64_t next_mask;
        more = d_next_words(&source, &next_word, &next_mask);
        if (__any_sync(XCI_ALL, mask != 0)) {
            const uint32_t count = d_fill_batch(batch, word, mask, width);
            for (uint32_t first = 0; first < count; first += XCI_WARP) {
                const bool active = first + d_lane() < count;
                visit(active, d_change_of(batch, active ? first + d_lane() : 0, before, width));
            }
            d_pass_batch(batch, count);
            before += count;
        }
        word = next_word;
        mask = next_mask;
    }
}

/* The same with steps for values. */
template <typename Visit>
__device__ __forceinline__ void d_each_step(const xci_gap_source *source, xci_gap_batch *batch,
                                            uint32_t width, Visit visit) {
    d_each_change(*source, batch, width, [&](bool active, xci_gap_change change) {
        if (active) {
            const uint32_t in_word = change.position & ((1u << (4 - width)) - 1);
            const uint64_t word =
                d_word_at(source->old_at, change.position >> (4 - width), source->bytes);
            const uint64_t element = word >> (in_word << (2 + width)) & d_element_ones(width);
            change.value = xci_gap_step(element, element ^ change.value, width);
        }
        visit(active, change);
    });
}

/* ---- Bits of a change ---- */

__device__ __forceinline__ uint32_t d_parameter_of(const xci_gap_change *change, uint32_t prior) {
    const uint32_t count = XCI_GAP_PRIOR + min(change->number, XCI_GAP_WINDOW);
    return xci_gap_parameter_of(count, prior + change->last_end - change->far_end);
}

/* A gap as bits of a stream. */
__device__ __forceinline__ uint64_t d_gap_bits(uint32_t gap, uint32_t k, uint32_t *count_out) {
    const uint32_t ones = gap >> k;
    if (ones < XCI_GAP_ONES) {
        *count_out = ones + 1 + k;
        return ((uint64_t)(gap & ((1u << k) - 1)) << 1 << ones) | ((UINT64_C(1) << ones) - 1);
    }
    *count_out = XCI_GAP_ONES + XCI_GAP_PLAIN_BITS;
    return (uint64_t)gap << XCI_GAP_ONES | ((UINT64_C(1) << XCI_GAP_ONES) - 1);
}

/* Of a number below 2^21. */
__device__ __forceinline__ uint32_t d_varint_bytes(uint32_t value) {
    return value < 1u << 7 ? 1 : value < 1u << 14 ? 2 : 3;
}

/* ---- All elements of a chunk, for dense blocks ---- */

/* Where the entry of a word, or of the first behind it, lies in the list of a unit. */
__device__ __forceinline__ uint32_t d_find_entry(const xci_gap_unit *unit, uint32_t word) {
    uint32_t first = 0;
    for (uint32_t count = unit->count; count != 0;) {
        const uint32_t half = count / 2;
        if (unit->entries[(first + half) * 3] >= word) {
            count = half;
        } else {
            first += half + 1;
            count -= half + 1;
        }
    }
    return first;
}

/* The mask of any word of a chunk, of which `source` is at the beginning. */
__device__ __forceinline__ uint64_t d_mask_at(const xci_gap_source *source, uint32_t word) {
    const xci_gap_unit *unit = source->unit + word / (XCI_UNIT_BYTES / 8);
    if (unit->count == XCI_NOT_LISTED)
        return d_word_at(source->old_at, word, source->bytes) ^
               d_word_at(source->new_at, word, source->bytes);
    const uint32_t at = d_find_entry(unit, word);
    const uint32_t *entry = unit->entries + at * 3;
    return at < unit->count && entry[0] == word ? (uint64_t)entry[2] << 32 | entry[1] : 0;
}

__device__ __forceinline__ uint64_t d_element_at(const xci_gap_source *source, uint32_t position,
                                                 uint32_t width) {
    const uint32_t shift = (position & ((1u << (4 - width)) - 1)) << (2 + width);
    return d_mask_at(source, position >> (4 - width)) >> shift & d_element_ones(width);
}

#endif
