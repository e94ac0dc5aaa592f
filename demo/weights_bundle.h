/* The exported weights as an xorcast bundle: what trainer and samplers must describe alike. */
#ifndef DEMO_WEIGHTS_BUNDLE_H
#define DEMO_WEIGHTS_BUNDLE_H

#include "messages.h"

#include <xorcast.h>

typedef struct weights_bundle {
    xorcast_context *context;
    xorcast_bundle *bundle;
} weights_bundle;

/* Makes a context of one thread and a sealed bundle over the exported tensors, which must outlive
 * it. On failure nothing is left and `why` holds the library's own words. */
xorcast_status weights_bundle_create(weights_bundle *self, const exported *weights, char *why,
                                     size_t why_bytes);
void weights_bundle_destroy(weights_bundle *self);

/* "WHAT failed: STATUS: TEXT", from the last error of the context. */
void weights_bundle_explain(const weights_bundle *self, const char *what, xorcast_status status,
                            char *why, size_t why_bytes);

stamp weights_stamp(const xorcast_version *version);
bool stamps_equal(const stamp *a, const stamp *b);

#endif
