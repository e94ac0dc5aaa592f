/* Writing of blocks: see gap_encoder.h. A stream that reaches its limit is given up; the slack
 * behind the limit takes what was written by then. */
#include "codec/gap_input.h"

typedef struct writer {
    xci_bit_writer bits;
    xci_gap_window window;
    const xci_gap_code *code;
    const uint8_t *limit; /* a stream that reaches it is too long */
} writer;

static inline void put_value(writer *w, uint64_t value) {
    uint32_t tail_bits;
    const uint32_t symbol = xci_gap_symbol(value, w->code->head, &tail_bits);
    xci_put_symbol(&w->bits, &w->code->prefix, symbol);
    if (tail_bits != 0)
        xci_put_many_bits(&w->bits, xci_low_bits(value, tail_bits), tail_bits);
}

/* A change is at most 14 bytes long, so that one that begins before the limit stays in the
 * slack. */
static inline void put_change(writer *w, uint32_t position, uint64_t value) {
    const uint32_t gap = position - w->window.next, k = xci_gap_parameter(&w->window);
    const uint32_t ones = gap >> k;
    if (w->bits.at >= w->limit)
        return;
    if (ones < XCI_GAP_ONES) {
        const uint64_t low = xci_low_bits(gap, k) << 1 << ones;
        xci_put_bits(&w->bits, low | xci_low_bits(UINT64_MAX, ones), ones + 1 + k);
    } else {
        xci_put_bits(&w->bits,
                     (uint64_t)gap << XCI_GAP_ONES | xci_low_bits(UINT64_MAX, XCI_GAP_ONES),
                     XCI_GAP_ONES + XCI_GAP_PLAIN_BITS);
    }
    put_value(w, value);
    xci_gap_pass(&w->window, position);
}

static inline void visit_change(void *state, uint32_t position, uint64_t value, uint32_t width) {
    (void)width;
    put_change(state, position, value);
}

static writer begin_stream(const xci_gap_encoder *encoder, const xci_gap_draft *draft, uint32_t c,
                           uint8_t *at, const uint8_t *limit) {
    const xci_gap_class *of = &draft->shape.classes[c];
    return (writer){xci_bits_write(at), xci_gap_begin(of->prior), &encoder->codes[of->table],
                    limit};
}

/* The end of a stream, or NULL if it is too long. */
static uint8_t *end_stream(writer *w) {
    return w->bits.at >= w->limit ? NULL : xci_bits_end(&w->bits);
}

static uint32_t write_sparse(const xci_gap_encoder *encoder, const xci_gap_draft *draft,
                             const xci_gap_input *input, uint8_t *out, uint32_t limit) {
    writer w = begin_stream(encoder, draft, 0, out, out + limit);
    xci_gap_each(input, xci_gap_word_count(input), draft->shape.width, visit_change, &w);
    const uint8_t *end = end_stream(&w);
    return end != NULL && end < w.limit ? (uint32_t)(end - out) : XCI_GAP_TOO_LONG;
}

/* ---- Several streams ---- */

#define LENGTH_BYTES 3u /* of a stream below 2 MiB, at most */

/* Puts the length of the stream [begin, end) before it, at `at`, unless it is the last one. */
static uint8_t *close_up(uint8_t *at, const uint8_t *begin, const uint8_t *end, bool last) {
    const size_t bytes = (size_t)(end - begin);
    if (!last)
        at += xci_varint_put(at, bytes);
    memmove(at, begin, bytes);
    return at + bytes;
}

/* The value of element i, whose class is 0 if old weights are not known. */
XCI_GAP_INLINE uint64_t dense_value(const xci_gap_draft *draft, const xci_gap_input *input,
                                    const uint8_t *mask, uint32_t width, uint32_t i,
                                    uint32_t *class_out) {
    const uint64_t change = xci_gap_load(mask, input->bytes, width, i);
    *class_out = 0;
    if (input->old == NULL)
        return change;
    const uint64_t element = xci_gap_load(input->old, input->bytes, width, i);
    *class_out = draft->shape.class_of[xci_gap_key(element, width)];
    return xci_gap_step(element, element ^ change, width);
}

XCI_GAP_INLINE uint32_t write_dense(const xci_gap_encoder *encoder, const xci_gap_draft *draft,
                                    const xci_gap_input *input, const uint8_t *mask, uint8_t *out,
                                    uint32_t limit, uint32_t width) {
    const uint32_t count = xci_gap_element_count(width, input->bytes);
    uint8_t *at = out;
    for (uint32_t first = 0; first < count; first += XCI_GAP_SEGMENT) {
        const uint32_t end = (uint32_t)xci_min(count, first + XCI_GAP_SEGMENT);
        writer w = begin_stream(encoder, draft, 0, at + LENGTH_BYTES, out + limit);
        for (uint32_t i = first; i < end && w.bits.at < w.limit; i++) {
            uint32_t c;
            const uint64_t value = dense_value(draft, input, mask, width, i, &c);
            w.code = &encoder->codes[draft->shape.classes[c].table];
            put_value(&w, value);
        }
        const uint8_t *stream_end = end_stream(&w);
        if (stream_end == NULL)
            return XCI_GAP_TOO_LONG;
        at = close_up(at, at + LENGTH_BYTES, stream_end, end == count);
    }
    return at < out + limit ? (uint32_t)(at - out) : XCI_GAP_TOO_LONG;
}

static uint32_t write_dense_of_width(const xci_gap_encoder *encoder, const xci_gap_draft *draft,
                                     const xci_gap_input *input, const uint8_t *mask, uint8_t *out,
                                     uint32_t limit) {
    switch (draft->shape.width) {
    case 0:
        return write_dense(encoder, draft, input, mask, out, limit, 0);
    case 1:
        return write_dense(encoder, draft, input, mask, out, limit, 1);
    case 2:
        return write_dense(encoder, draft, input, mask, out, limit, 2);
    case 3:
        return write_dense(encoder, draft, input, mask, out, limit, 3);
    default:
        return write_dense(encoder, draft, input, mask, out, limit, 4);
    }
}

/* ---- Old weights ---- */

typedef struct old_writer {
    const xci_gap_shape *shape;
    const xci_gap_input *input;
    writer classes[XCI_GAP_CLASSES];
    uint32_t seen[XCI_GAP_CLASSES]; /* elements of each class before `next` */
    uint32_t next;
} old_writer;

/* Counts the elements before the change by class, then writes it as a step at its class's rank. */
static inline void visit_old(void *state, uint32_t position, uint64_t value, uint32_t width) {
    old_writer *w = state;
    const uint8_t *old = w->input->old;
    const uint32_t bytes = w->input->bytes;
    for (; w->next < position; w->next++)
        w->seen[w->shape->class_of[xci_gap_key(xci_gap_load(old, bytes, width, w->next), width)]]++;
    const uint64_t element = xci_gap_load(old, bytes, width, position);
    const uint32_t c = w->shape->class_of[xci_gap_key(element, width)];
    w->next++;
    put_change(&w->classes[c], w->seen[c]++, xci_gap_step(element, element ^ value, width));
}

/* Each class is written to room of its own first. */
static uint32_t write_old(const xci_gap_encoder *encoder, const xci_gap_draft *draft,
                          const xci_gap_input *input, uint8_t *scratch, uint8_t *out,
                          uint32_t limit) {
    const uint32_t class_count = draft->shape.class_count;
    old_writer w = {.shape = &draft->shape, .input = input};
    for (uint32_t c = 0; c < class_count; c++) {
        uint8_t *room = scratch + (size_t)c * (input->bytes + XCI_GAP_SLACK);
        w.classes[c] = begin_stream(encoder, draft, c, room, room + limit);
    }
    xci_gap_each(input, xci_gap_word_count(input), draft->shape.width, visit_old, &w);
    uint8_t *at = out;
    for (uint32_t c = 0; c < class_count; c++) {
        const uint8_t *room = scratch + (size_t)c * (input->bytes + XCI_GAP_SLACK);
        const uint8_t *end = end_stream(&w.classes[c]);
        if (end == NULL || end - room + at + LENGTH_BYTES >= out + limit)
            return XCI_GAP_TOO_LONG;
        at = close_up(at, room, end, c + 1 == class_count);
    }
    return (uint32_t)(at - out);
}

uint32_t xci_gap_write_block(const xci_gap_encoder *encoder, const xci_gap_input *input,
                             uint8_t *scratch, uint8_t *out, uint32_t limit) {
    const xci_gap_draft *draft = &encoder->drafts[input->draft];
    if (draft->shape.dense && input->raw)
        return write_dense_of_width(encoder, draft, input, input->block, out, limit);
    if (draft->shape.dense) {
        (void)xci_words_decode(input->block, input->block_bytes, scratch, input->bytes);
        return write_dense_of_width(encoder, draft, input, scratch, out, limit);
    }
    return input->old != NULL ? write_old(encoder, draft, input, scratch, out, limit)
                              : write_sparse(encoder, draft, input, out, limit);
}
