/* Classes of chunks that know their old weights: see gap_encoder.h. Keys next to each other whose
 * elements change about as often share a class. */
#include "codec/gap_input.h"

/* A class costs its line among the parameters and, in each sparse chunk, the length and the last
 * bits of its stream. */
#define CLASS_BITS 48u
#define STREAM_BITS 12u
#define DENSE_ELEMENTS 512u /* fewer are no reason for a class */

/* ---- Counting ---- */

XCI_GAP_INLINE void count_keys(xci_gap_draft *draft, const xci_gap_input *input, uint32_t width) {
    const uint32_t count = xci_gap_element_count(width, input->bytes);
    for (uint32_t i = 0; i < count; i++)
        draft->key_elements[xci_gap_key(xci_gap_load(input->old, input->bytes, width, i), width)]++;
}

static void count_keys_of_width(xci_gap_draft *draft, const xci_gap_input *input) {
    switch (draft->shape.width) {
    case 0:
        count_keys(draft, input, 0);
        return;
    case 1:
        count_keys(draft, input, 1);
        return;
    case 2:
        count_keys(draft, input, 2);
        return;
    case 3:
        count_keys(draft, input, 3);
        return;
    default:
        count_keys(draft, input, 4);
        return;
    }
}

typedef struct counter {
    xci_gap_draft *draft;
    const xci_gap_input *input;
} counter;

static inline void count_key(void *state, uint32_t position, uint64_t value, uint32_t width) {
    const counter *c = state;
    (void)value;
    c->draft->key_changes[xci_gap_key(xci_gap_load(c->input->old, c->input->bytes, width, position),
                                      width)]++;
}

static inline void count_step(void *state, uint32_t position, uint64_t value, uint32_t width) {
    const counter *c = state;
    const uint64_t element = xci_gap_load(c->input->old, c->input->bytes, width, position);
    const uint32_t of = c->draft->shape.class_of[xci_gap_key(element, width)];
    const uint64_t step = xci_gap_step(element, element ^ value, width);
    uint32_t tail_bits;
    c->draft->counts[of][xci_gap_symbol(step, xci_gap_head_max(width), &tail_bits)]++;
}

/* ---- Classes ---- */

/* Keys [first, the next class's first). */
typedef struct range {
    uint32_t first;
    uint64_t elements, changes;
} range;

/* About, in bits times 256. */
static uint64_t cost(const xci_gap_draft *draft, const range *r) {
    const uint64_t fixed = CLASS_BITS + (uint64_t)STREAM_BITS * draft->chunk_count;
    if (r->changes == 0)
        return fixed * 256;
    const uint64_t gaps = xci_gap_gaps_cost(r->elements, r->changes);
    return fixed * 256 + xci_min(gaps, r->elements * 256);
}

static range joined(const range *a) {
    return (range){a[0].first, a[0].elements + a[1].elements, a[0].changes + a[1].changes};
}

/* What joining the ranges a[0] and a[1] gains; below 0 it costs. */
static int64_t gain(const xci_gap_draft *draft, const range *a) {
    if (draft->shape.dense)
        return (int64_t)DENSE_ELEMENTS - (int64_t)xci_min(a[0].elements, a[1].elements);
    const range both = joined(a);
    return (int64_t)(cost(draft, &a[0]) + cost(draft, &a[1])) - (int64_t)cost(draft, &both);
}

static uint32_t join_ranges(const xci_gap_draft *draft, range *ranges, uint32_t count) {
    while (count > 1) {
        uint32_t best = 0;
        int64_t most = INT64_MIN;
        for (uint32_t i = 0; i + 1 < count; i++) {
            const int64_t here = gain(draft, &ranges[i]);
            if (here > most) {
                most = here;
                best = i;
            }
        }
        if (most <= 0 && count <= XCI_GAP_CLASSES)
            return count;
        ranges[best] = joined(&ranges[best]);
        memmove(&ranges[best + 1], &ranges[best + 2], (count - best - 2) * sizeof *ranges);
        count--;
    }
    return count;
}

static void choose_classes(xci_gap_draft *draft) {
    range ranges[XCI_GAP_KEYS];
    uint32_t count = 0;
    const uint32_t key_count = xci_gap_key_count(draft->shape.width);
    for (uint32_t key = 0; key < key_count; key++)
        if (draft->key_elements[key] != 0)
            ranges[count++] = (range){key, draft->key_elements[key], draft->key_changes[key]};
    count = join_ranges(draft, ranges, count);
    draft->shape.class_count = count;
    for (uint32_t c = 0; c < count; c++) {
        const uint32_t first = c == 0 ? 0 : ranges[c].first;
        const uint32_t end = c + 1 < count ? ranges[c + 1].first : key_count;
        memset(draft->shape.class_of + first, (int)c, end - first);
        draft->shape.classes[c].prior = xci_gap_prior(ranges[c].elements, ranges[c].changes);
        if (draft->shape.dense)
            draft->counts[c][0] = (uint32_t)(ranges[c].elements - ranges[c].changes);
    }
}

void xci_gap_count_old(xci_gap_encoder *encoder, const xci_gap_input *inputs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        counter c = {&encoder->drafts[inputs[i].draft], &inputs[i]};
        count_keys_of_width(c.draft, c.input);
        xci_gap_each(c.input, xci_gap_word_count(c.input), c.draft->shape.width, count_key, &c);
    }
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; d++)
        if (encoder->drafts[d].chunk_count > 0)
            choose_classes(&encoder->drafts[d]);
    for (uint32_t i = 0; i < count; i++) {
        counter c = {&encoder->drafts[inputs[i].draft], &inputs[i]};
        xci_gap_each(c.input, xci_gap_word_count(c.input), c.draft->shape.width, count_step, &c);
    }
}
