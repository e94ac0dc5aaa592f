/* Encoding a group in the gap codec. All changed chunks of the group are known first: how wide
 * their elements are, which shape each chunk has, and the codes of values follow from all of them
 * (gap_plan.c); then blocks (gap_write.c) and parameters (gap_params.c) are written. The same input
 * gives the same bytes on every machine: all decisions are made with whole numbers.
 *
 * Owns its tables. Does not own the chunks. */
#ifndef XCI_GAP_ENCODER_H
#define XCI_GAP_ENCODER_H

#include "codec/gap_cost.h"

/* A changed chunk: its mask, as a list of words (words_block.h) or raw. */
typedef struct xci_gap_input {
    const uint8_t *block;
    uint32_t block_bytes;
    bool raw;
    uint32_t bytes;         /* of the chunk */
    uint32_t element_bytes; /* of its dtype: chunks of one kind share shapes */
    const uint8_t *old;     /* the chunk before the change; NULL: the plain form is made */
    uint32_t draft;         /* set by the plan */
} xci_gap_input;

/* A shape in the making. There are two for each width of a dtype: one for sparse chunks, one for
 * dense ones. */
typedef struct xci_gap_draft {
    xci_gap_shape shape;
    uint32_t chunk_count;
    uint64_t elements, changes;
    uint32_t number; /* among the shapes that are written */
    /* with old weights, by key */
    uint32_t key_elements[XCI_GAP_KEYS], key_changes[XCI_GAP_KEYS];
    /* by class, and by symbol of the finest head */
    uint32_t counts[XCI_GAP_CLASSES][XCI_PREFIX_SYMBOLS];
} xci_gap_draft;

typedef struct xci_gap_code {
    uint32_t width, head;
    xci_prefix_code prefix;
} xci_gap_code;

/* Zeros at first. */
typedef struct xci_gap_encoder {
    xci_gap_draft drafts[XCI_GAP_SHAPES];
    xci_gap_code codes[XCI_GAP_TABLES];
    uint32_t code_count;
    uint32_t sizes[XCI_GAP_BLOCKS]; /* that chunks have, while parameters are written */
    uint32_t sample[XCI_PREFIX_SYMBOLS], folded[XCI_PREFIX_SYMBOLS], pooled[XCI_PREFIX_SYMBOLS];
} xci_gap_encoder;

/* Decides everything about the `count` changed chunks of a group. Either all have `old` or none. */
void xci_gap_plan(xci_gap_encoder *encoder, xci_gap_input *inputs, uint32_t count);
/* Chooses head and codes of a draft whose symbols are counted (gap_codes.c). */
void xci_gap_plan_codes(xci_gap_encoder *encoder, xci_gap_draft *draft);
/* Classes and counts of chunks that know their old weights (gap_classes.c). */
void xci_gap_count_old(xci_gap_encoder *encoder, const xci_gap_input *inputs, uint32_t count);
/* Bits of a best code for symbols of these counts, and their tails, times 256: an estimate. */
uint64_t xci_gap_cost(const uint32_t *counts, uint32_t width, uint32_t head);

/* The block of a planned chunk; XCI_GAP_TOO_LONG if it would have `limit` bytes or more, which
 * are no more than the chunk's. `out` has room for XCI_GAP_SLACK beyond them. */
#define XCI_GAP_TOO_LONG UINT32_MAX
#define XCI_GAP_SLACK 64u
#define XCI_GAP_SCRATCH(chunk_bytes) (XCI_GAP_CLASSES * ((uint64_t)(chunk_bytes) + XCI_GAP_SLACK))
uint32_t xci_gap_write_block(const xci_gap_encoder *encoder, const xci_gap_input *input,
                             uint8_t *scratch, uint8_t *out, uint32_t limit);

/* The group's parameters. `kept[i]`: chunk i is in this codec; at least one is. At most
 * XCI_GAP_PARAMS_BYTES(count). */
#define XCI_GAP_PARAMS_BYTES(count)                                                                \
    (XCI_GAP_TABLES * (XCI_PREFIX_BYTES + 1) + XCI_GAP_SHAPES * 64 + (uint64_t)(count)*8 + 64)
uint32_t xci_gap_write_params(xci_gap_encoder *encoder, const xci_gap_input *inputs,
                              const uint8_t *kept, uint32_t count, uint8_t *out);

#endif
