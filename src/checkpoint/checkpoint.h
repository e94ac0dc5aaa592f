/* Checkpoints on disk as objects of the public interface. The work is done by the files beside
 * this one. */
#ifndef XCI_CHECKPOINT_H
#define XCI_CHECKPOINT_H

#include "checkpoint/listing.h"

struct xorcast_checkpoint {
    xorcast_context *context;
    xci_listing listing;
    xorcast_bundle *bundle; /* reads from the listing's files */
};

#endif
