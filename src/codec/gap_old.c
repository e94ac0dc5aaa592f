/* Decoding of blocks that know the old weights: see gap_group.h. Each element's class follows from
 * its old bytes; a change is a step from them.
 *
 * Changed elements are found by their ranks within their classes: elements are counted by class,
 * 32 at a time in the eight bytes of a word, and looked at one by one only where a change is
 * among them. */
#include "codec/gap_elements.h"

#define RUN 32u
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
    uint32_t seen[XCI_GAP_CLASSES]; /* elements of each class before the run */
    uint64_t lanes[XCI_GAP_KEYS];   /* for each key, a one in the byte of its class */
} scan;

XCI_GAP_INLINE uint64_t step_mask(uint64_t old_element, uint64_t value, uint32_t width) {
    return old_element ^ xci_gap_stepped(old_element, value, width);
}

/* Looks at elements [first, end). */
XCI_GAP_INLINE bool change_some(scan *s, uint32_t first, uint32_t end, uint32_t width) {
    for (uint32_t i = first; i < end; i++) {
        const uint64_t element = xci_gap_load(s->old, s->bytes, width, i);
        const uint32_t c = s->shape->class_of[xci_gap_key(element, width)];
        stream *of_class = &s->streams[c];
        if (s->seen[c]++ != of_class->rank)
            continue;
        const uint64_t change = step_mask(element, of_class->value, width);
        if (!xci_gap_change(s->mask, s->bytes, width, i, change) || !advance(of_class, s->count))
            return false;
    }
    return true;
}

XCI_GAP_INLINE bool decode_sparse(scan *s, uint32_t width) {
    const uint32_t class_count = s->shape->class_count;
    uint32_t first = 0;
    for (; first + RUN < s->count; first += RUN) {
        uint64_t counts = 0;
        bool changes = false;
        for (uint32_t i = 0; i < RUN; i++)
            counts +=
                s->lanes[xci_gap_key(xci_gap_load(s->old, s->bytes, width, first + i), width)];
        for (uint32_t c = 0; c < class_count; c++)
            changes |= s->streams[c].rank - s->seen[c] < (counts >> 8 * c & 255);
        if (changes) {
            if (!change_some(s, first, first + RUN, width))
                return false;
            continue;
        }
        for (uint32_t c = 0; c < class_count; c++)
            s->seen[c] += counts >> 8 * c & 255;
    }
    if (!change_some(s, first, s->count, width))
        return false;
    for (uint32_t c = 0; c < class_count; c++)
        if (s->streams[c].rank != NO_RANK)
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
    for (uint32_t key = 0; key < xci_gap_key_count(width); key++)
        s->lanes[key] = UINT64_C(1) << 8 * s->shape->class_of[key];
    return open_streams(group, s->shape, block, s->count, s->streams) && decode_sparse(s, width);
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
