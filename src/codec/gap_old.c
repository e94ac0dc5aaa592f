/* Decoding of blocks that know the old weights: see gap_group.h. Each element's class follows from
 * its old bytes; a change is a step from them.
 *
 * Changed elements are found by their ranks within their classes. Elements are classed 64 at a
 * time, a byte each; a class that has a change among them is looked through eight elements at a
 * time. */
#include "codec/gap_elements.h"

#define RUN 64u
#define VECTOR 16u
#define VECTORS (RUN / VECTOR)
#define NO_RANK UINT32_MAX

typedef struct stream {
    xci_bit_reader reader;
    xci_gap_window window;
    const xci_gap_table *table;
    uint32_t rank;  /* of the next change among the elements of the class; NO_RANK: none is left */
    uint64_t value; /* its step */
} stream;

/* False: the stream is damaged. */
static bool advance(stream *s, uint32_t count) {
    s->rank = NO_RANK;
    if (xci_bits_at_end(&s->reader))
        return true;
    const uint32_t gap = xci_gap_take(&s->reader, &s->window);
    s->value = xci_gap_take_value(&s->reader, s->table);
    if (s->reader.bad || gap >= count - s->window.next || s->value == 0)
        return false;
    s->rank = s->window.next + gap;
    xci_gap_pass(&s->window, s->rank);
    return true;
}

static bool open_streams(const xci_gap_group *group, const xci_gap_shape *shape, xci_reader *block,
                         uint32_t count, stream *streams) {
    for (uint32_t c = 0; c < shape->class_count; c++) {
        streams[c].reader = xci_gap_take_stream(block, c + 1 == shape->class_count);
        streams[c].window = xci_gap_begin(shape->classes[c].prior);
        streams[c].table = &group->tables[shape->classes[c].table];
        if (block->bad || !advance(&streams[c], count))
            return false;
    }
    return true;
}

typedef struct scan {
    const xci_gap_shape *shape;
    stream *streams;
    const uint8_t *old;
    uint8_t *mask;
    uint32_t bytes, count;
    uint8_t first_keys[XCI_GAP_CLASSES]; /* of each class */
    uint32_t seen[XCI_GAP_CLASSES];      /* elements of each class before the run */
} scan;

XCI_GAP_INLINE uint64_t step_mask(uint64_t old_element, uint64_t value, uint32_t width) {
    return old_element ^ xci_gap_stepped(old_element, value, width);
}

/* The next change of a class is element `index`. */
XCI_GAP_INLINE bool change_next(const scan *s, stream *of_class, uint32_t index, uint32_t width) {
    const uint64_t element = xci_gap_load(s->old, s->bytes, width, index);
    return xci_gap_change(s->mask, s->bytes, width, index,
                          step_mask(element, of_class->value, width)) &&
           advance(of_class, s->count);
}

/* ---- Runs ---- */

typedef uint8_t vector __attribute__((vector_size(VECTOR)));

/* Each element of a run: its key, then its class. */
typedef union run {
    vector vectors[VECTORS];
    uint64_t words[RUN / 8];
    uint8_t bytes[RUN];
} run;

/* The run's elements are whole. */
XCI_GAP_INLINE void load_keys(const uint8_t *old, uint32_t first, uint32_t width, run *keys) {
    if (width == 0) {
        for (uint32_t i = 0; i < RUN; i++)
            keys->bytes[i] = (uint8_t)xci_gap_key(old[(first + i) / 2] >> i % 2 * 4, width);
        return;
    }
    const uint8_t *at = old + ((size_t)first << (width - 1));
    for (uint32_t i = 0; i < RUN; i++) {
        uint64_t element = width == 1   ? at[i]
                           : width == 2 ? xci_load16(at + 2 * (size_t)i)
                           : width == 3 ? xci_load32(at + 4 * (size_t)i)
                                        : xci_load64(at + 8 * (size_t)i);
        keys->bytes[i] = (uint8_t)xci_gap_key(element, width);
    }
}

/* Sum of the bytes of a vector, each 4 at most. */
XCI_GAP_INLINE uint32_t sum_of(vector v) {
    uint64_t halves[2];
    memcpy(halves, &v, sizeof halves);
    return (uint32_t)((halves[0] + halves[1]) * UINT64_C(0x0101010101010101) >> 56);
}

/* Keys become classes; counts[c] are the elements of class c or a later one. */
XCI_GAP_INLINE void classify(const scan *s, run *r, uint32_t counts[XCI_GAP_CLASSES + 1]) {
    run keys = *r;
    memset(r, 0, sizeof *r);
    counts[0] = RUN;
    for (uint32_t c = 1; c < s->shape->class_count; c++) {
        const uint8_t first = s->first_keys[c];
        const vector limit = {first, first, first, first, first, first, first, first,
                              first, first, first, first, first, first, first, first};
        vector sum = {0};
        for (uint32_t v = 0; v < VECTORS; v++) {
            const vector at_least = (vector)(keys.vectors[v] >= limit); /* 255 or 0 */
            r->vectors[v] -= at_least;
            sum -= at_least;
        }
        counts[c] = sum_of(sum);
    }
    counts[s->shape->class_count] = 0;
}

/* Where the element of class `c` is that has `rank` others before it; there is one. */
XCI_GAP_INLINE uint32_t select_in(const run *classes, uint32_t c, uint32_t rank) {
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    for (uint32_t w = 0;; w++) {
        const uint64_t other = classes->words[w] ^ c * ones;
        /* the top bit of each byte that is 0; classes are below 128 */
        uint64_t same = ~(other + (high - ones)) & high;
        const uint32_t count = (uint32_t)((same >> 7) * ones >> 56);
        if (rank >= count) {
            rank -= count;
            continue;
        }
        for (; rank > 0; rank--)
            same &= same - 1;
        return 8 * w + (uint32_t)__builtin_ctzll(same) / 8;
    }
}

XCI_GAP_INLINE bool change_run(scan *s, uint32_t first, uint32_t width) {
    run classes;
    uint32_t counts[XCI_GAP_CLASSES + 1];
    load_keys(s->old, first, width, &classes);
    classify(s, &classes, counts);
    for (uint32_t c = 0; c < s->shape->class_count; c++) {
        const uint32_t count = counts[c] - counts[c + 1];
        stream *of_class = &s->streams[c];
        while (of_class->rank - s->seen[c] < count) {
            const uint32_t at = select_in(&classes, c, of_class->rank - s->seen[c]);
            if (!change_next(s, of_class, first + at, width))
                return false;
        }
        s->seen[c] += count;
    }
    return true;
}

/* Elements from `first` to the end, one by one. */
XCI_GAP_INLINE bool change_rest(scan *s, uint32_t first, uint32_t width) {
    for (uint32_t i = first; i < s->count; i++) {
        const uint64_t element = xci_gap_load(s->old, s->bytes, width, i);
        const uint32_t c = s->shape->class_of[xci_gap_key(element, width)];
        if (s->seen[c]++ == s->streams[c].rank && !change_next(s, &s->streams[c], i, width))
            return false;
    }
    return true;
}

XCI_GAP_INLINE bool decode_sparse(scan *s, uint32_t width) {
    uint32_t first = 0;
    for (uint32_t key = xci_gap_key_count(width); key-- > 0;)
        s->first_keys[s->shape->class_of[key]] = (uint8_t)key;
    for (; first + RUN < s->count; first += RUN)
        if (!change_run(s, first, width))
            return false;
    if (!change_rest(s, first, width))
        return false;
    for (uint32_t c = 0; c < s->shape->class_count; c++)
        if (s->streams[c].rank != NO_RANK)
            return false;
    return true;
}

/* A rank is a position where there is one class. */
XCI_GAP_INLINE bool decode_one_class(const scan *s, uint32_t width) {
    while (s->streams[0].rank != NO_RANK)
        if (!change_next(s, &s->streams[0], s->streams[0].rank, width))
            return false;
    return true;
}

XCI_GAP_INLINE bool decode_dense(const xci_gap_group *group, const scan *s, xci_reader *block,
                                 uint32_t width) {
    const xci_gap_shape *shape = s->shape;
    for (uint32_t first = 0; first < s->count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = (uint32_t)xci_min(s->count, first + XCI_GAP_SEGMENT);
        xci_bit_reader reader = xci_gap_take_stream(block, end == s->count);
        if (block->bad)
            return false;
        for (uint32_t i = first; i < end; i++) {
            const uint64_t element = xci_gap_load(s->old, s->bytes, width, i);
            const uint32_t c = shape->class_of[xci_gap_key(element, width)];
            const uint64_t value =
                xci_gap_take_value(&reader, &group->tables[shape->classes[c].table]);
            if (!xci_gap_change(s->mask, s->bytes, width, i, step_mask(element, value, width)))
                return false;
        }
        if (reader.bad || !xci_bits_at_end(&reader))
            return false;
    }
    return true;
}

XCI_GAP_INLINE bool decode(const xci_gap_group *group, scan *s, xci_reader *block, uint32_t width) {
    if (s->shape->dense)
        return decode_dense(group, s, block, width);
    if (!open_streams(group, s->shape, block, s->count, s->streams))
        return false;
    return s->shape->class_count == 1 ? decode_one_class(s, width) : decode_sparse(s, width);
}

bool xci_gap_decode_old(const xci_gap_group *group, const xci_gap_shape *shape, xci_reader *block,
                        const uint8_t *old, uint8_t *mask, uint32_t bytes) {
    stream streams[XCI_GAP_CLASSES];
    scan s = {.shape = shape,
              .streams = streams,
              .old = old,
              .mask = mask,
              .bytes = bytes,
              .count = xci_gap_element_count(shape->width, bytes)};
    switch (shape->width) {
    case 0:
        return decode(group, &s, block, 0);
    case 1:
        return decode(group, &s, block, 1);
    case 2:
        return decode(group, &s, block, 2);
    case 3:
        return decode(group, &s, block, 3);
    default:
        return decode(group, &s, block, 4);
    }
}
