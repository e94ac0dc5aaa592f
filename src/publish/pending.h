/* The version that is being put together: which tensors have come, what their groups encoded to.
 * A group whose chunks have all been seen becomes a record at once; the rest waits in pieces.
 * Both are kept by the shadow, which moves along (ahead.h).
 *
 * Does not own weights: tensors are read during put and never again, except small ones, which
 * share chunks and are copied until their chunk is whole. */
#ifndef XCI_PENDING_H
#define XCI_PENDING_H

#include "publish/encode.h"
#include "publish/shadow.h"

typedef struct xci_pending {
    xorcast_bundle *bundle;   /* the publisher's, for tensors read from their own memory */
    xci_shadow *shadow;
    xorcast_bundle *incoming; /* a twin: where each tensor's new bytes are, during put */
    uint8_t *small;           /* copies of small tensors */
    uint32_t *small_left;     /* for each packed chunk, tensors that have not come yet */
    uint8_t *seen;            /* for each tensor */
    uint64_t seen_count;
    uint64_t *chunks_left; /* of each group; the shadow's lock guards it */
    pthread_mutex_t lock;  /* guards sums and the bound */
    xci_encode_worker *workers;
    struct xci_bound *bound;  /* or NULL */
    xorcast_counts counts;
    uint64_t encoded_bytes[2]; /* of each form */
    uint64_t put_ns;                        /* of put, by the clock */
    uint64_t encode_ns, frame_ns, bound_ns; /* what the workers did then, summed over them */
} xci_pending;

xorcast_status xci_pending_open(xci_pending *pending, xorcast_bundle *bundle, xci_shadow *shadow,
                                const xorcast_encoding *encoding, bool measure_bound);
void xci_pending_close(xci_pending *pending);

/* The next version begins; the shadow is not ahead. */
void xci_pending_reset(xci_pending *pending);
/* As xorcast_publisher_put; `keep`: the tensors are unchanged and not read. BAD_ARGUMENT leaves
 * the version as it was, other failures leave it unusable. */
xorcast_status xci_pending_put(xci_pending *pending, uint64_t count, const uint64_t *indices,
                               const void *const *data, bool keep);
/* BAD_STATE that names a tensor which has not come, or OK. */
xorcast_status xci_pending_check(xci_pending *pending);

#endif
