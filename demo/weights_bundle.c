/* Exported tensors, added to a bundle by name, dtype and shape, where they lie or where their copy
 * on the GPU does. */
#include "weights_bundle.h"

#include <stdio.h>
#include <string.h>

#define GPU "cuda"

const char *weights_backend(char *why_not, size_t why_not_bytes) {
    weights_bundle probe = {0};
    why_not[0] = 0;
    if (xorcast_context_create(NULL, &probe.context) != XORCAST_OK) {
        (void)snprintf(why_not, why_not_bytes, "no context");
        return "cpu";
    }
    const xorcast_status status = xorcast_context_device(probe.context, &probe.device);
    xorcast_error error;
    xorcast_last_error(probe.context, &error);
    if (status != XORCAST_OK)
        (void)snprintf(why_not, why_not_bytes, "%s", error.text);
    xorcast_context_destroy(probe.context);
    return status == XORCAST_OK ? GPU : "cpu";
}

static xorcast_status fill(const weights_bundle *self) {
    const exported *weights = self->weights;
    for (size_t i = 0; i < weights->tensor_count; i++) {
        const export_tensor *from = &weights->tensors[i];
        xorcast_tensor tensor = XORCAST_TENSOR_INIT;
        tensor.name = from->name;
        tensor.dtype = from->dtype;
        tensor.shape = from->shape;
        tensor.rank = from->rank;
        tensor.bytes = from->bytes;
        tensor.data = from->data;
        if (self->on_gpu != NULL) {
            tensor.memory_kind = XORCAST_MEMORY_DEVICE;
            tensor.data = self->on_gpu + (from->data - weights->memory);
        }
        const xorcast_status status = xorcast_bundle_add(self->bundle, &tensor);
        if (status != XORCAST_OK)
            return status;
    }
    return xorcast_bundle_seal(self->bundle, NULL);
}

static xorcast_status copy_to_gpu(weights_bundle *self) {
    void *memory = NULL;
    xorcast_status status = xorcast_context_device(self->context, &self->device);
    if (status == XORCAST_OK)
        status = xorcast_device_allocate(self->context, self->weights->memory_bytes, &memory);
    self->on_gpu = memory;
    return status == XORCAST_OK ? weights_bundle_store(self) : status;
}

xorcast_status weights_bundle_create(weights_bundle *self, const exported *weights,
                                     const char *backend, char *why, size_t why_bytes) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads =
        1; /* three processes share two cores, and most of both belongs to the policy */
    options.backend = backend;
    *self = (weights_bundle){.weights = weights};
    xorcast_status status = xorcast_context_create(&options, &self->context);
    if (status != XORCAST_OK) {
        (void)snprintf(why, why_bytes, "no context: %s", xorcast_status_text(status));
        return status;
    }
    if (strcmp(backend, GPU) == 0)
        status = copy_to_gpu(self);
    if (status == XORCAST_OK)
        status = xorcast_bundle_create(self->context, NULL, &self->bundle);
    if (status == XORCAST_OK)
        status = fill(self);
    if (status != XORCAST_OK) {
        weights_bundle_explain(self, "describing the weights", status, why, why_bytes);
        weights_bundle_destroy(self);
    }
    return status;
}

void weights_bundle_destroy(weights_bundle *self) {
    if (self->bundle != NULL)
        xorcast_bundle_destroy(self->bundle);
    if (self->on_gpu != NULL)
        xorcast_device_release(self->context, self->on_gpu);
    if (self->context != NULL)
        xorcast_context_destroy(self->context);
    self->bundle = NULL;
    self->on_gpu = NULL;
    self->context = NULL;
}

xorcast_status weights_bundle_store(const weights_bundle *self) {
    if (self->on_gpu == NULL)
        return XORCAST_OK;
    return xorcast_device_copy(self->context, self->on_gpu, self->weights->memory,
                               self->weights->memory_bytes);
}

xorcast_status weights_bundle_load(const weights_bundle *self) {
    if (self->on_gpu == NULL)
        return XORCAST_OK;
    return xorcast_device_copy(self->context, self->weights->memory, self->on_gpu,
                               self->weights->memory_bytes);
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
