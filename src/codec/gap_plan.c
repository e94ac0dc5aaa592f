/* What a group of chunks becomes: see gap_encoder.h. */
#include "codec/gap_input.h"

uint64_t xci_gap_cost(const uint32_t *counts, uint32_t width, uint32_t head) {
    const uint32_t symbol_count = xci_gap_symbol_count(width, head);
    uint64_t total = 0, cost = 0;
    for (uint32_t s = 0; s < symbol_count; s++)
        total += counts[s];
    if (total == 0)
        return 0;
    const uint64_t log2_total = xci_gap_log2(total);
    for (uint32_t s = 0; s < symbol_count; s++)
        if (counts[s] != 0)
            cost += xci_gap_symbol_cost(counts[s], log2_total, xci_gap_tail_bits(s, head));
    return cost;
}

/* ---- Width ---- */

typedef struct sample {
    uint32_t *counts;
    uint32_t end; /* of the chunk: behind the last change that was looked at */
    uint64_t changes;
} sample;

static inline void sample_change(void *state, uint32_t position, uint64_t value, uint32_t width) {
    sample *s = state;
    uint32_t tail_bits;
    s->counts[xci_gap_symbol(value, xci_gap_head_max(width), &tail_bits)]++;
    s->changes++;
    s->end = position + 1;
}

/* Entries that hold the first XCI_GAP_SAMPLE_WORDS changed words; `more_out`: there are others. */
static uint32_t entries_to_sample(const xci_gap_input *input, bool *more_out) {
    const uint32_t count = xci_gap_word_count(input);
    uint32_t words = 0, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word;
        if (xci_gap_word(input, i, &word) == 0)
            continue;
        *more_out = words == XCI_GAP_SAMPLE_WORDS;
        if (*more_out)
            return end;
        words++;
        end = i + 1;
    }
    return end;
}

/* Cost of the first words of all chunks of a dtype's width, with elements of another width. Places
 * are those of each chunk by itself, since some may change everywhere and others hardly. */
static uint64_t cost_of_width(xci_gap_encoder *encoder, const xci_gap_input *inputs, uint32_t count,
                              uint32_t element_bytes, uint32_t width) {
    uint64_t places = 0;
    sample s = {.counts = encoder->sample};
    memset(encoder->sample, 0, sizeof encoder->sample);
    for (uint32_t i = 0; i < count; i++) {
        bool more = false;
        if (inputs[i].element_bytes != element_bytes)
            continue;
        const uint32_t end = entries_to_sample(&inputs[i], &more);
        s.changes = 0;
        xci_gap_each(&inputs[i], end, width, sample_change, &s);
        places += xci_gap_places_cost(more ? s.end : xci_gap_element_count(width, inputs[i].bytes),
                                      s.changes);
    }
    return xci_gap_cost(encoder->sample, width, xci_gap_head_max(width)) + places;
}

static uint32_t choose_width(xci_gap_encoder *encoder, const xci_gap_input *inputs, uint32_t count,
                             uint32_t element_bytes) {
    /* The dtype's own width first: another one must be better. */
    uint32_t best = 1 + (uint32_t)__builtin_ctz(element_bytes);
    uint64_t least = cost_of_width(encoder, inputs, count, element_bytes, best);
    const uint32_t own = best;
    for (uint32_t width = 0; width < XCI_GAP_WIDTHS; width++) {
        const uint64_t cost =
            width == own ? least : cost_of_width(encoder, inputs, count, element_bytes, width);
        if (cost < least) {
            least = cost;
            best = width;
        }
    }
    return best;
}

/* ---- Drafts ---- */

/* Elements of a word that are not 0. */
static uint32_t count_in_word(uint64_t mask, uint32_t width) {
    static const uint64_t lowest[XCI_GAP_WIDTHS] = {
        UINT64_C(0x1111111111111111), UINT64_C(0x0101010101010101), UINT64_C(0x0001000100010001),
        UINT64_C(0x0000000100000001), 1};
    for (uint32_t shift = 1; shift < 4u << width; shift *= 2)
        mask |= mask >> shift;
    return (uint32_t)__builtin_popcountll(mask & lowest[width]);
}

static uint32_t count_changes(const xci_gap_input *input, uint32_t width) {
    const uint32_t words = xci_gap_word_count(input);
    uint32_t changes = 0, word;
    for (uint32_t i = 0; i < words; i++)
        changes += count_in_word(xci_gap_word(input, i, &word), width);
    return changes;
}

/* Every chunk goes to the sparse or the dense draft of its dtype's width. */
static void sort_chunks(xci_gap_encoder *encoder, xci_gap_input *inputs, uint32_t count,
                        uint32_t kind, uint32_t width) {
    xci_gap_draft *drafts = &encoder->drafts[2 * kind];
    for (uint32_t d = 0; d < 2; d++)
        drafts[d].shape = (xci_gap_shape){
            .width = width, .dense = d == 1, .knows_old = inputs[0].old != NULL, .class_count = 1};
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i].element_bytes != 1u << kind)
            continue;
        const uint32_t elements = xci_gap_element_count(width, inputs[i].bytes);
        const uint32_t changes = count_changes(&inputs[i], width);
        const uint32_t dense = 2 * (uint64_t)changes > elements;
        inputs[i].draft = 2 * kind + dense;
        drafts[dense].chunk_count++;
        drafts[dense].elements += elements;
        drafts[dense].changes += changes;
    }
}

static inline void count_symbol(void *state, uint32_t position, uint64_t value, uint32_t width) {
    uint32_t *counts = state, tail_bits;
    (void)position;
    counts[xci_gap_symbol(value, xci_gap_head_max(width), &tail_bits)]++;
}

static void count_plain(xci_gap_encoder *encoder, const xci_gap_input *inputs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        xci_gap_draft *draft = &encoder->drafts[inputs[i].draft];
        xci_gap_each(&inputs[i], xci_gap_word_count(&inputs[i]), draft->shape.width, count_symbol,
                     draft->counts[0]);
    }
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; d++) {
        xci_gap_draft *draft = &encoder->drafts[d];
        if (draft->chunk_count == 0)
            continue;
        if (draft->shape.dense)
            draft->counts[0][0] = (uint32_t)(draft->elements - draft->changes);
        draft->shape.classes[0].prior = xci_gap_prior(draft->elements, draft->changes);
    }
}

/* Drafts without chunks are zeros already. */
static void clear(xci_gap_encoder *encoder) {
    encoder->code_count = 0;
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; d++)
        if (encoder->drafts[d].chunk_count > 0)
            memset(&encoder->drafts[d], 0, sizeof encoder->drafts[d]);
}

void xci_gap_plan(xci_gap_encoder *encoder, xci_gap_input *inputs, uint32_t count) {
    uint32_t kinds = 0;
    clear(encoder);
    for (uint32_t i = 0; i < count; i++)
        kinds |= inputs[i].element_bytes;
    for (uint32_t kind = 0; kind < 4; kind++)
        if ((kinds & 1u << kind) != 0)
            sort_chunks(encoder, inputs, count, kind,
                        choose_width(encoder, inputs, count, 1u << kind));
    if (count > 0 && inputs[0].old != NULL)
        xci_gap_count_old(encoder, inputs, count);
    else
        count_plain(encoder, inputs, count);
    for (uint32_t d = 0; d < XCI_GAP_SHAPES; d++)
        if (encoder->drafts[d].chunk_count > 0)
            xci_gap_plan_codes(encoder, &encoder->drafts[d]);
}
