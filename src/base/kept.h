/* Large blocks of memory that were released and wait for the next large allocation: memory taken
 * from the system anew costs more than filling it. Its limit is the sum of the shares of all that
 * asked for some, 0 at first. Owns what it holds until it is taken; does not know where it came
 * from. Any thread. */
#ifndef XCI_KEPT_H
#define XCI_KEPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Blocks of fewer bytes are not kept. */
#define XCI_KEPT_MIN_BYTES (UINT64_C(1) << 20)

typedef struct xci_kept_block {
    struct xci_kept_block *next;
    uint64_t bytes;
} xci_kept_block; /* stands in the block itself */

typedef struct xci_kept {
    pthread_mutex_t lock;
    xci_kept_block *first;
    uint64_t bytes, limit;
} xci_kept;

/* What to ask for in place of `bytes`, so that blocks of about one size fit each other's places: up
 * to a sixteenth more, nothing for what is never kept. */
uint64_t xci_kept_size(uint64_t bytes);
/* A limit for blocks that were made for `bytes` in all. */
static inline uint64_t xci_kept_total(uint64_t bytes) {
    return bytes + bytes / 8;
}
/* The smallest of at least `bytes` and at most a quarter more, or NULL. Of several the one that has
 * been kept longest: what a version's parts leave becomes the same parts of a later one, so that
 * the last, which is seldom full, finds memory that was as full. */
void *xci_kept_take(xci_kept *kept, uint64_t bytes);
/* False: it alone is more than the limit, and stays the caller's. Else the caller frees what is too
 * much now (shrink). */
bool xci_kept_put(xci_kept *kept, void *memory, uint64_t bytes);
/* Sets one holder's share of the limit; `*share` is what it was, 0 at first. */
void xci_kept_allow(xci_kept *kept, uint64_t *share, uint64_t bytes);
/* The block kept longest, for the caller to free: with `all`, or as long as more than the limit is
 * held. NULL: there is none. What nobody takes goes first: sizes change, and old ones would fill
 * the limit for ever. */
void *xci_kept_shrink(xci_kept *kept, bool all);

#endif
