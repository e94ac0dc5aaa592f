/* Classes of chunks that know their old weights: see gap_encoder.h. Keys next to each other whose
 * elements change about as often share a class. */
#include "codec/gap_input.h"

/* ---- Counting ---- */

/* Of dense chunks all elements: how many do not change must be right. */
XCI_GAP_INLINE void count_keys(xci_gap_draft *draft, const xci_gap_input *input, uint32_t width) {
    const uint32_t count = xci_gap_element_count(width, input->bytes);
    const uint32_t stretch = XCI_GAP_KEY_STRETCH * 8 / xci_gap_element_bits(width);
    const uint32_t step = draft->shape.dense ? stretch : stretch * XCI_GAP_KEY_STEP;
    for (uint32_t first = 0; first < count; first += step)
        for (uint32_t i = first; i < first + stretch && i < count; i++)
            draft->key_elements[xci_gap_key(xci_gap_load(input->old, input->bytes, width, i),
                                            width)]++;
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

static xci_gap_range joined(const xci_gap_range *a) {
    return (xci_gap_range){a[0].first, a[0].elements + a[1].elements, a[0].changes + a[1].changes};
}

static uint32_t join_ranges(const xci_gap_draft *draft, xci_gap_range *ranges, uint32_t count) {
    while (count > 1) {
        uint32_t best = 0;
        int64_t most = INT64_MIN;
        for (uint32_t i = 0; i + 1 < count; i++) {
            const int64_t here = xci_gap_join_gain(&ranges[i], &ranges[i + 1], draft->shape.dense,
                                                   draft->chunk_count);
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

static void scale_keys(xci_gap_draft *draft) {
    uint64_t all_seen = 0;
    for (uint32_t key = 0; key < XCI_GAP_KEYS; key++)
        all_seen += draft->key_elements[key];
    for (uint32_t key = 0; key < XCI_GAP_KEYS; key++)
        draft->key_elements[key] = xci_gap_scale_key(
            draft->key_elements[key], draft->key_changes[key], all_seen, draft->elements);
}

static void choose_classes(xci_gap_draft *draft) {
    xci_gap_range ranges[XCI_GAP_KEYS];
    uint32_t count = 0;
    const uint32_t key_count = xci_gap_key_count(draft->shape.width);
    if (!draft->shape.dense)
        scale_keys(draft);
    for (uint32_t key = 0; key < key_count; key++)
        if (draft->key_elements[key] != 0)
            ranges[count++] =
                (xci_gap_range){key, draft->key_elements[key], draft->key_changes[key]};
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
