/* What the codec `auto` minimises: bytes, or the time from encoded to committed on a link and a
 * receiver that the caller names. Owns the prices; the choosing is auto_group_writer.c's. */
#ifndef XCI_CHOICE_H
#define XCI_CHOICE_H

#include "base/context.h"

/* Prices in picoseconds; in bytes, if bytes are minimised: then only the wire has one. */
typedef struct xci_prices {
    uint64_t wire;        /* of a byte that travels */
    uint64_t weights[5];  /* of making a chunk ready, for each of its bytes, by codec */
    uint64_t old_weights; /* the same for a gap block beside the old weights */
    uint64_t second_pass; /* of undoing it, for each byte that comes out */
} xci_prices;

/* Of checked settings. */
xci_prices xci_prices_of(const xorcast_encoding *encoding);

#endif
