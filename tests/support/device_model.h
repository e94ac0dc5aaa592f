/* The test model in device memory: of the stand-in device, or of the real one that
 * XORCAST_TEST_DEVICE names ("cuda"). */
#ifndef TEST_DEVICE_MODEL_H
#define TEST_DEVICE_MODEL_H

#include "support/model.h"

/* The name of the backend under test; the stand-in is registered. */
const char *test_device_name(void);
bool test_device_is_fake(void);
/* A context with its device open. */
xorcast_context *test_device_context(uint32_t threads);
xorcast_context *test_device_context_with(const xorcast_context_options *options);

/* A model of the same names and shapes whose data are device addresses; the bytes of `from`. */
void device_model_create(xorcast_context *context, model *to, const model *from);
void device_model_free(xorcast_context *context, model *m);
/* Bytes to the device and back. */
void device_model_put(xorcast_context *context, model *to, const model *from);
void device_model_get(xorcast_context *context, const model *from, model *to);
/* Whether the device holds the bytes of `host`. */
bool device_model_equal(xorcast_context *context, const model *device, const model *host);

/* Tests of weights wherever they lie: on the host, or, with XORCAST_TEST_DEVICE, in memory of that
 * device, as copies of a model on the host. */
bool test_on_device(void);
xorcast_context *test_weights_context(uint32_t threads);
typedef struct placed_model {
    model *host, device;
    xorcast_bundle *bundle;
} placed_model;
void placed_open(xorcast_context *context, placed_model *placed, model *m, uint64_t chunk_bytes,
                 uint64_t seed);
/* The weights as they are now, into the model on the host. */
void placed_get(xorcast_context *context, placed_model *placed);
void placed_close(xorcast_context *context, placed_model *placed);

/* Memory of the context's device. XORCAST_TEST_SPREAD puts it on another device too: "turns", every
 * other time; "halves", of eight times four; "all". With "columns", matrices of models lie with
 * half of their columns here and half there. */
void *device_memory(xorcast_context *context, uint64_t bytes);
/* Whether models lie on two devices then. */
bool test_device_spread(xorcast_context *context);
uint32_t test_device_count(xorcast_context *context);
/* On the context's device, whatever that says. */
void *device_memory_on(xorcast_context *context, uint64_t bytes);
/* The same, for tensor `number` of a model. */
void *device_memory_at(xorcast_context *context, uint64_t bytes, uint64_t number);
void device_memory_free(xorcast_context *context, void *memory);
void device_put(xorcast_context *context, void *to, const void *from, uint64_t bytes);
void device_get(xorcast_context *context, void *to, const void *from, uint64_t bytes);

#endif
