/* Sums of what changed, for both sides of a delta. Owns nothing. */
#ifndef XCI_COUNTS_H
#define XCI_COUNTS_H

#include "xorcast.h"

static inline void xci_counts_add(xorcast_counts *sum, const xorcast_counts *more) {
    sum->bits_changed += more->bits_changed;
    sum->bytes_changed += more->bytes_changed;
    sum->elements_changed += more->elements_changed;
    sum->chunks_changed += more->chunks_changed;
    sum->bytes_covered += more->bytes_covered;
    sum->elements_covered += more->elements_covered;
}

#endif
