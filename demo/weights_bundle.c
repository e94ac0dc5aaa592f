/* Exported tensors, added to a bundle by name, dtype and shape. */
#include "weights_bundle.h"

#include <stdio.h>

static xorcast_status fill(xorcast_bundle *bundle, const exported *weights) {
    for (size_t i = 0; i < weights->tensor_count; i++) {
        const export_tensor *from = &weights->tensors[i];
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = from->name;
        tensor.dtype = from->dtype;
        tensor.shape = from->shape;
        tensor.rank = from->rank;
        tensor.bytes = from->bytes;
        tensor.data = from->data;
        const xorcast_status status = xorcast_bundle_add(bundle, &tensor);
        if (status != XORCAST_OK)
            return status;
    }
    return xorcast_bundle_seal(bundle, NULL);
}

xorcast_status weights_bundle_create(weights_bundle *self, const exported *weights, char *why,
                                     size_t why_bytes) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads =
        1; /* three processes share two cores, and most of both belongs to the policy */
    self->context = NULL;
    self->bundle = NULL;
    xorcast_status status = xorcast_context_create(&options, &self->context);
    if (status != XORCAST_OK) {
        (void)snprintf(why, why_bytes, "no context: %s", xorcast_status_text(status));
        return status;
    }
    status = xorcast_bundle_create(self->context, NULL, &self->bundle);
    if (status == XORCAST_OK)
        status = fill(self->bundle, weights);
    if (status != XORCAST_OK) {
        weights_bundle_explain(self, "describing the weights", status, why, why_bytes);
        weights_bundle_destroy(self);
    }
    return status;
}

void weights_bundle_destroy(weights_bundle *self) {
    if (self->bundle != NULL)
        xorcast_bundle_destroy(self->bundle);
    if (self->context != NULL)
        xorcast_context_destroy(self->context);
    self->bundle = NULL;
    self->context = NULL;
}

void weights_bundle_explain(const weights_bundle *self, const char *what, xorcast_status status,
                            char *why, size_t why_bytes) {
    xorcast_error error;
    xorcast_last_error(self->context, &error);
    (void)snprintf(why, why_bytes, "%s: %s (%s), do: %s. %s", what, xorcast_status_name(status),
                   xorcast_status_text(status), xorcast_status_remedy(status),
                   error.status == status ? error.text : "");
}

stamp weights_stamp(const xorcast_version *version) {
    return (stamp){version->step, {version->digest.lane[0], version->digest.lane[1]}};
}

bool stamps_equal(const stamp *a, const stamp *b) {
    return a->step == b->step && a->digest[0] == b->digest[0] && a->digest[1] == b->digest[1];
}
