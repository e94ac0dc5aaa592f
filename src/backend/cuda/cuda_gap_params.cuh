/* The parameters of a group in the gap codec, read by one warp from foreign bytes into shared
 * memory: shapes, and tables to decode values with. docs/format.md, "Gap", is the law;
 * codec/gap_group.c does the same on the host and takes the same bytes.
 *
 * All lanes read the same bytes, so that nothing is handed round; only where there is much to be
 * written each writes a part. What was written is looked at behind a __syncwarp: lanes need not be
 * at the same place. */
#ifndef XCI_CUDA_GAP_PARAMS_CUH
#define XCI_CUDA_GAP_PARAMS_CUH

#include "backend/cuda/cuda_encode_warp.cuh"
#include "codec/gap_shape.h"
#include "codec/prefix_items.h"

/* Codes of up to so many bits are found in one step. */
#define XCI_FAST_BITS 8u
#define XCI_FAST_ENTRIES (1u << XCI_FAST_BITS)
#define XCI_LONGER 0xffffu

/* The symbols that have a code in a record's tables: room for the next ones. */
typedef struct xci_gap_symbols {
    uint16_t *next;
    uint32_t left;
    bool lacking; /* there were more than room for them */
} xci_gap_symbols;

typedef struct xci_gap_lookup {
    /* By the next bits of the stream: symbol << 4 | length, or XCI_LONGER. */
    uint16_t fast[XCI_FAST_ENTRIES];
    /* For each length: the first code, filled up to 12 bits, first bit highest, behind those of
     * that length; and where its symbols begin in `sorted`. */
    uint32_t limits[XCI_PREFIX_LONGEST + 1], starts[XCI_PREFIX_LONGEST + 1];
    uint16_t *sorted;
    xci_gap_symbols *symbols; /* where there is room; set before the table is read */
    uint32_t width, head;
} xci_gap_lookup;

/* Symbols that parameters of so many bytes can give a code to, at most: two nibbles for 18. */
XCI_BOTH uint32_t xci_gap_symbols_in(uint32_t tables, uint32_t params_bytes) {
    const uint32_t most = XCI_PREFIX_REPEAT_BASE + 15, all = tables * XCI_PREFIX_SYMBOLS;
    return params_bytes < all / most ? params_bytes * most : all;
}

typedef struct xci_gap_record {
    xci_gap_shape shapes[XCI_GAP_SHAPES];
    uint32_t first_keys[XCI_GAP_SHAPES][XCI_GAP_CLASSES]; /* of each class */
    uint32_t table_count, shape_count, size_count;
    uint32_t shape_bits, place_bits; /* of a chunk's place: number of its shape, of its size */
    const uint8_t *sizes, *places, *end;
    bool good;
    uint8_t lengths[XCI_PREFIX_SYMBOLS];
} xci_gap_record;

/* ---- Codes ---- */

/* Lengths of symbols, until they are a complete code. Returns how many, 0: there is no such. */
__device__ __forceinline__ uint32_t d_read_lengths(xci_reader *bytes, uint32_t symbol_count,
                                                   uint8_t *lengths) {
    xci_nibble_reader reader = {bytes, 0, false};
    uint32_t at = 0, sum = 0, before = 0;
    while (sum < XCI_PREFIX_COMPLETE) {
        uint32_t run;
        const uint32_t length = xci_take_item(&reader, before, &run);
        if (bytes->bad || run > symbol_count - at)
            return 0;
        for (uint32_t i = d_lane(); i < run; i += XCI_WARP)
            lengths[at + i] = (uint8_t)length;
        at += run;
        sum += length != 0 ? run * (XCI_PREFIX_COMPLETE >> length) : 0;
        before = length;
    }
    __syncwarp();
    return sum == XCI_PREFIX_COMPLETE && (!reader.half || reader.byte >> 4 == 0) ? at : 0;
}

/* How many symbols have each length. */
__device__ __forceinline__ void d_count_lengths(const uint8_t *lengths, uint32_t count,
                                                uint32_t *used) {
#pragma unroll
    for (uint32_t length = 0; length <= XCI_PREFIX_LONGEST; ++length)
        used[length] = 0;
    for (uint32_t first = 0; first < count; first += XCI_WARP) {
        const uint32_t mine = first + d_lane() < count ? lengths[first + d_lane()] : 0;
#pragma unroll
        for (uint32_t length = 1; length <= XCI_PREFIX_LONGEST; ++length)
            used[length] += (uint32_t)__popc(__ballot_sync(XCI_ALL, mine == length));
    }
}

/* The number of a lane's symbol among those of its length; `seen` has those of earlier rounds. */
__device__ __forceinline__ uint32_t d_rank_length(uint32_t mine, uint32_t *seen) {
    uint32_t rank = 0;
#pragma unroll
    for (uint32_t length = 1; length <= XCI_PREFIX_LONGEST; ++length) {
        const uint32_t same = __ballot_sync(XCI_ALL, mine == length);
        if (mine == length)
            rank = seen[length] + (uint32_t)__popc(same & ((1u << d_lane()) - 1));
        seen[length] += (uint32_t)__popc(same);
    }
    return rank;
}

/* The lowest `count` bits, turned round. */
__device__ __forceinline__ uint32_t d_reverse(uint32_t bits, uint32_t count) {
    return __brev(bits) >> (32 - count);
}

__device__ __forceinline__ void d_fill_fast(xci_gap_lookup *lookup, uint32_t symbol,
                                            uint32_t length, uint32_t code) {
    const uint32_t first = d_reverse(code, XCI_PREFIX_LONGEST);
    if (length > XCI_FAST_BITS) {
        lookup->fast[first % XCI_FAST_ENTRIES] = XCI_LONGER;
        return;
    }
    for (uint32_t at = first; at < XCI_FAST_ENTRIES; at += 1u << length)
        lookup->fast[at] = (uint16_t)(symbol << 4 | length);
}

/* Where codes of each length begin: `limits` as in the lookup, and `starts`. */
__device__ __forceinline__ void d_lay_out_codes(const uint8_t *lengths, uint32_t count,
                                                uint32_t *limits, uint32_t *starts) {
    uint32_t used[XCI_PREFIX_LONGEST + 1];
    uint32_t limit = 0, start = 0;
    d_count_lengths(lengths, count, used);
#pragma unroll
    for (uint32_t length = 0; length <= XCI_PREFIX_LONGEST; ++length) {
        limit += used[length] << (XCI_PREFIX_LONGEST - length);
        if (d_lane() == 0) {
            limits[length] = limit;
            starts[length] = start;
        }
        start += used[length];
    }
    __syncwarp();
}

/* Calls visit(symbol, length, rank) for the lane's symbols that have a code: its number among
 * those of its length. */
template <typename Visit>
__device__ __forceinline__ void d_each_code(const uint8_t *lengths, uint32_t count, Visit visit) {
    uint32_t seen[XCI_PREFIX_LONGEST + 1] = {0};
    for (uint32_t first = 0; first < count; first += XCI_WARP) {
        const uint32_t symbol = first + d_lane();
        const uint32_t length = symbol < count ? lengths[symbol] : 0;
        const uint32_t rank = d_rank_length(length, seen);
        if (length != 0)
            visit(symbol, length, rank);
    }
    __syncwarp();
}

/* For the symbols of a code that is laid out. */
__device__ __forceinline__ bool d_take_room(xci_gap_lookup *lookup) {
    const uint32_t last = XCI_PREFIX_LONGEST;
    const uint32_t used = lookup->starts[last] + lookup->limits[last] - lookup->limits[last - 1];
    const xci_gap_symbols room = *lookup->symbols;
    const bool fits = used <= room.left;
    __syncwarp();
    if (d_lane() == 0) {
        lookup->sorted = room.next;
        if (fits)
            *lookup->symbols = {room.next + used, room.left - used, room.lacking};
        else
            lookup->symbols->lacking = true;
    }
    __syncwarp();
    return fits;
}

/* The lookup of the complete code whose first `count` symbols have these lengths. */
__device__ __forceinline__ void d_make_table(xci_gap_lookup *lookup, const uint8_t *lengths,
                                             uint32_t count) {
    d_lay_out_codes(lengths, count, lookup->limits, lookup->starts);
    if (!d_take_room(lookup))
        return;
    d_each_code(lengths, count, [&](uint32_t symbol, uint32_t length, uint32_t rank) {
        lookup->sorted[lookup->starts[length] + rank] = (uint16_t)symbol;
        d_fill_fast(lookup, symbol, length,
                    lookup->limits[length - 1] + (rank << (XCI_PREFIX_LONGEST - length)));
    });
}

/* That of a code of one symbol, which takes no bits. */
__device__ __forceinline__ void d_make_single(xci_gap_lookup *lookup, uint32_t symbol) {
    for (uint32_t i = d_lane(); i < XCI_FAST_ENTRIES; i += XCI_WARP)
        lookup->fast[i] = (uint16_t)(symbol << 4);
    __syncwarp();
}

template <typename Table>
__device__ __forceinline__ bool d_read_table(xci_reader *reader, uint8_t *lengths, Table *table) {
    const uint8_t kind = xci_read8(reader), mark = xci_read8(reader);
    const uint32_t width = kind & 7, head = kind >> 3;
    if (reader->bad || width >= XCI_GAP_WIDTHS || head > xci_gap_head_max(width) ||
        mark > XCI_PREFIX_SINGLE)
        return false;
    table->width = width;
    table->head = head;
    const uint32_t symbol_count = xci_gap_symbol_count(width, head);
    if (mark == XCI_PREFIX_SINGLE) {
        const uint64_t symbol = xci_read_varint(reader);
        d_make_single(table, (uint32_t)symbol);
        return !reader->bad && symbol < symbol_count;
    }
    const uint32_t count = d_read_lengths(reader, symbol_count, lengths);
    if (count == 0)
        return false;
    d_make_table(table, lengths, count);
    return true;
}

/* ---- The rest ---- */

template <typename Table>
__device__ __forceinline__ bool d_read_tables(xci_gap_record *record, xci_reader *reader,
                                              Table *tables, uint32_t room) {
    const uint64_t count = xci_read_varint(reader);
    if (count == 0 || count > XCI_GAP_TABLES || count > room)
        return false;
    record->table_count = (uint32_t)count;
    for (uint32_t t = 0; t < count; ++t)
        if (!d_read_table(reader, record->lengths, &tables[t]))
            return false;
    return true;
}

__device__ __forceinline__ void d_find_first_keys(const xci_gap_shape *shape,
                                                  uint32_t *first_keys) {
    __syncwarp();
    for (uint32_t key = d_lane(); key < xci_gap_key_count(shape->width); key += XCI_WARP)
        if (key == 0 || shape->class_of[key] != shape->class_of[key - 1])
            first_keys[shape->class_of[key]] = key;
    __syncwarp();
}

template <typename Table>
__device__ __forceinline__ bool d_read_shapes(xci_gap_record *record, xci_reader *reader,
                                              const Table *tables) {
    const uint64_t count = xci_read_varint(reader);
    if (count == 0 || count > XCI_GAP_SHAPES)
        return false;
    record->shape_count = (uint32_t)count;
    for (uint32_t s = 0; s < count; ++s) {
        xci_gap_shape *shape = &record->shapes[s];
        if (!xci_gap_read_shape(reader, shape))
            return false;
        __syncwarp();
        for (uint32_t c = 0; c < shape->class_count; ++c)
            if (shape->classes[c].table >= record->table_count ||
                tables[shape->classes[c].table].width != shape->width)
                return false;
        d_find_first_keys(shape, record->first_keys[s]);
    }
    return true;
}

/* Sizes stay where they are: there are one or two, as a rule. */
__device__ __forceinline__ bool d_read_sizes(xci_gap_record *record, xci_reader *reader,
                                             uint32_t gap_count) {
    const uint64_t count = xci_read_varint(reader);
    if (count == 0 || count > gap_count)
        return false;
    record->size_count = (uint32_t)count;
    record->sizes = reader->at;
    record->end = reader->end;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t size = xci_read_varint(reader);
        if (size == 0 || size > XCI_GAP_CHUNK_MAX)
            return false;
    }
    return !reader->bad;
}

typedef struct xci_gap_spot {
    uint32_t shape, size; /* numbers */
} xci_gap_spot;

/* Of the gap block with this number in its record. */
__device__ __forceinline__ xci_gap_spot d_spot_of(const xci_gap_record *record, uint32_t ordinal) {
    const uint64_t bit = (uint64_t)ordinal * record->place_bits;
    xci_bit_reader bits = xci_bits_read(record->places + bit / 8, record->end);
    (void)xci_take_bits(&bits, (uint32_t)(bit % 8));
    xci_gap_spot spot;
    spot.shape = (uint32_t)xci_take_bits(&bits, record->shape_bits);
    spot.size = (uint32_t)xci_take_bits(&bits, record->place_bits - record->shape_bits);
    return spot;
}

__device__ __forceinline__ uint32_t d_size_of(const xci_gap_record *record, xci_gap_spot spot) {
    xci_reader reader = {record->sizes, record->end, false};
    uint64_t size = 0;
    for (uint32_t i = 0; i <= spot.size; ++i)
        size = xci_read_varint(&reader);
    return (uint32_t)size;
}

/* All places, and that nothing follows them but the ones that fill the last byte. */
__device__ __forceinline__ bool d_check_places(xci_gap_record *record, const xci_reader *reader,
                                               uint32_t gap_count) {
    __syncwarp();
    const uint32_t shape_bits = xci_gap_bits_for(record->shape_count);
    const uint32_t place_bits = shape_bits + xci_gap_bits_for(record->size_count);
    record->places = reader->at;
    record->shape_bits = shape_bits;
    record->place_bits = place_bits;
    const uint64_t bits = (uint64_t)gap_count * place_bits;
    if (xci_divide_up(bits, 8) != xci_reader_left(reader))
        return false;
    const uint32_t rest = (uint32_t)(bits % 8);
    bool good = rest == 0 || reader->end[-1] >> rest == 0xff >> rest;
    __syncwarp();
    for (uint32_t i = d_lane(); i < gap_count; i += XCI_WARP) {
        const xci_gap_spot spot = d_spot_of(record, i);
        good = good && spot.shape < record->shape_count && spot.size < record->size_count;
    }
    return !__any_sync(XCI_ALL, !good);
}

/* Reads all of a record's parameters, of which `gap_count` blocks are of the codec. A whole warp;
 * the block's other threads must wait before they look at `record`. */
template <typename Table>
__device__ __forceinline__ void d_read_record(xci_gap_record *record, Table *tables, uint32_t room,
                                              const uint8_t *params, uint64_t params_bytes,
                                              uint32_t gap_count) {
    xci_reader reader = {params, params + params_bytes, false};
    const bool good =
        d_read_tables(record, &reader, tables, room) && d_read_shapes(record, &reader, tables) &&
        d_read_sizes(record, &reader, gap_count) && d_check_places(record, &reader, gap_count);
    __syncwarp();
    record->good = good;
}

#endif
