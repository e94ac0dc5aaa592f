/* Heads and prefix codes of the drafts: see gap_encoder.h. */
#include "codec/gap_encoder.h"

/* Counts of symbols whose head has one bit less. */
static void fold_counts(uint32_t *counts, uint32_t width, uint32_t head) {
    const uint32_t symbol_count = xci_gap_symbol_count(width, head);
    for (uint32_t s = 1u << head; s < symbol_count; s++) {
        const uint32_t tail_bits = xci_gap_tail_bits(s, head), lead = s - (tail_bits << head);
        const uint32_t count = counts[s];
        counts[s] = 0;
        counts[((tail_bits + 1) << (head - 1)) + lead / 2] += count; /* s or one before it */
    }
}

static void pool_counts(const xci_gap_draft *draft, uint32_t classes, uint32_t *pooled) {
    memset(pooled, 0, XCI_PREFIX_SYMBOLS * sizeof *pooled);
    for (uint32_t c = 0; c < draft->shape.class_count; c++)
        for (uint32_t s = 0; s < XCI_PREFIX_SYMBOLS && (classes >> c & 1) != 0; s++)
            pooled[s] += draft->counts[c][s];
}

/* The head that costs least, and all counts folded to it. */
static uint32_t choose_head(xci_gap_encoder *encoder, xci_gap_draft *draft) {
    const uint32_t width = draft->shape.width, finest = xci_gap_head_max(width);
    uint64_t least = UINT64_MAX;
    uint32_t best = finest;
    pool_counts(draft, UINT32_MAX, encoder->pooled);
    for (uint32_t head = finest;; head--) {
        const uint64_t cost = xci_gap_cost(encoder->pooled, width, head);
        if (cost < least) {
            least = cost;
            best = head;
        }
        if (head == 0)
            break;
        fold_counts(encoder->pooled, width, head);
    }
    for (uint32_t c = 0; c < draft->shape.class_count; c++)
        for (uint32_t head = finest; head > best; head--)
            fold_counts(draft->counts[c], width, head);
    return best;
}

static bool any(const uint32_t *counts) {
    for (uint32_t s = 0; s < XCI_PREFIX_SYMBOLS; s++)
        if (counts[s] != 0)
            return true;
    return false;
}

static void build(xci_gap_code *code, const uint32_t *counts, uint32_t width, uint32_t head) {
    code->width = width;
    code->head = head;
    xci_prefix_build(counts, xci_gap_symbol_count(width, head), &code->prefix);
}

/* Whether a code of its own makes a class shorter than the common one does. */
static bool deserves_code(xci_gap_encoder *encoder, const uint32_t *counts, uint32_t common,
                          uint32_t width, uint32_t head) {
    xci_gap_code *own = &encoder->codes[encoder->code_count];
    if (encoder->code_count >= XCI_GAP_OWN_TABLES || !any(counts))
        return false;
    build(own, counts, width, head);
    const uint64_t bits = 8 * (uint64_t)(1 + xci_prefix_write(&own->prefix, NULL));
    return bits + xci_prefix_bits(&own->prefix, counts) <
           xci_prefix_bits(&encoder->codes[common].prefix, counts);
}

void xci_gap_plan_codes(xci_gap_encoder *encoder, xci_gap_draft *draft) {
    const uint32_t width = draft->shape.width, head = choose_head(encoder, draft);
    const uint32_t common = encoder->code_count++;
    uint32_t sharing = 0;
    pool_counts(draft, UINT32_MAX, encoder->pooled);
    build(&encoder->codes[common], encoder->pooled, width, head);
    for (uint32_t c = 0; c < draft->shape.class_count; c++) {
        const bool own = draft->shape.class_count > 1 &&
                         deserves_code(encoder, draft->counts[c], common, width, head);
        draft->shape.classes[c].table = own ? encoder->code_count++ : common;
        sharing |= own ? 0 : 1u << c;
    }
    /* The common code is for those that share it. */
    pool_counts(draft, sharing, encoder->pooled);
    if (draft->shape.class_count > 1 && any(encoder->pooled))
        build(&encoder->codes[common], encoder->pooled, width, head);
}
