/* Folding as a part of other work: what xorcast_delta_fold does, but the context's progress call
 * is not told, so it cannot call off what it does not know of. */
#ifndef XCI_FOLD_H
#define XCI_FOLD_H

#include "base/context.h"

xorcast_status xci_delta_fold_within(xorcast_context *context, const xorcast_source *sources,
                                     uint64_t count, const xorcast_delta_options *options,
                                     const xorcast_sink *sink);

#endif
