/* Where the bytes of a part of a tensor live: one span for each piece of a row of a box. */
#ifndef XCI_SPANS_H
#define XCI_SPANS_H

#include "bundle/bundle.h"

typedef struct xci_span {
    const xci_region *region;
    uint64_t offset, bytes; /* in the part asked for */
    uint64_t at;            /* in the region's memory: from data, or from the file's offset */
} xci_span;

typedef void (*xci_span_visit)(void *user, const xci_span *span);

/* Visits the spans of tensor bytes [offset, offset + bytes), region by region. */
void xci_spans(const xci_tensor *tensor, uint64_t offset, uint64_t bytes, xci_span_visit visit,
               void *user);

#endif
