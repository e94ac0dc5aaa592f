/* The exported weights as an xorcast bundle, in this machine's memory or on its GPU: what trainer
 * and samplers must describe alike. The policy computes on the host, so weights on a GPU have a
 * copy there: `store` and `load` keep the two alike. */
#ifndef DEMO_WEIGHTS_BUNDLE_H
#define DEMO_WEIGHTS_BUNDLE_H

#include "messages.h"

#include <xorcast.h>

typedef struct weights_bundle {
    xorcast_context *context;
    xorcast_bundle *bundle;
    const exported *weights;
    unsigned char *on_gpu; /* all tensors, laid out as in exported.memory; NULL: there is no copy */
    xorcast_device device; /* if there is one */
} weights_bundle;

/* Which backend a run without --backend takes: "cuda" if this machine has a GPU that the library
 * can use, else "cpu", and `why_not` says what was missing. */
const char *weights_backend(char *why_not, size_t why_not_bytes);

/* Makes a context of one thread and a sealed bundle over the exported tensors, which must outlive
 * it, or over a copy of them on the GPU if `backend` is "cuda". On failure nothing is left and
 * `why` holds the library's own words. */
xorcast_status weights_bundle_create(weights_bundle *self, const exported *weights,
                                     const char *backend, char *why, size_t why_bytes);
void weights_bundle_destroy(weights_bundle *self);

/* The host's bytes to the GPU, and back. Nothing to do where there is none. */
xorcast_status weights_bundle_store(const weights_bundle *self);
xorcast_status weights_bundle_load(const weights_bundle *self);

/* "WHAT failed: STATUS: TEXT", from the last error of the context. */
void weights_bundle_explain(const weights_bundle *self, const char *what, xorcast_status status,
                            char *why, size_t why_bytes);

stamp weights_stamp(const xorcast_version *version);
bool stamps_equal(const stamp *a, const stamp *b);

#endif
