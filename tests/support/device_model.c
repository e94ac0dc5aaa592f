/* Models in device memory: see device_model.h. */
#include "support/device_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/device.h"
#include "support/fake_device.h"

const char *test_device_name(void) {
    const char *name = getenv("XORCAST_TEST_DEVICE");
    fake_device_register();
    return name != NULL && name[0] != 0 ? name : "fake";
}

bool test_device_is_fake(void) {
    return strcmp(test_device_name(), "fake") == 0;
}

xorcast_context *test_device_context_with(const xorcast_context_options *options) {
    xorcast_context_options with = *options;
    xorcast_context *context;
    const char *engine = getenv("XORCAST_TEST_ENGINE");
    with.backend = test_device_name();
    if (engine != NULL && engine[0] == '1')
        with.engine = XORCAST_ENGINE_ALWAYS;
    assert_int_equal(xorcast_context_create(&with, &context), XORCAST_OK);
    return context;
}

xorcast_context *test_device_context(uint32_t threads) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = threads;
    options.log_level = XORCAST_LOG_ERROR;
    return test_device_context_with(&options);
}

#define DEVICES 16

/* A device beside the context's, open until the process ends: its memory is released through the
 * context's. */
static void *other_device(const xci_device *device) {
    static void *handles[DEVICES];
    uint32_t count;
    assert_int_equal(device->ops->count(&count), 0);
    /* of one device: itself */
    const int32_t ordinal = (device->ordinal + 1) % (int32_t)(count < DEVICES ? count : DEVICES);
    if (handles[ordinal] == NULL)
        assert_int_equal(device->ops->open(ordinal, &handles[ordinal]), 0);
    return handles[ordinal];
}

static bool is_elsewhere(uint64_t number) {
    const char *spread = getenv("XORCAST_TEST_SPREAD");
    if (spread == NULL || strcmp(spread, "0") == 0 || strcmp(spread, "columns") == 0)
        return false;
    if (strcmp(spread, "all") == 0)
        return true;
    return strcmp(spread, "halves") == 0 ? number % 8 >= 4 : number % 2 == 1;
}

/* Boxes end at multiples of 8 bytes. */
static bool is_split(const model_tensor *t) {
    const char *spread = getenv("XORCAST_TEST_SPREAD");
    return spread != NULL && strcmp(spread, "columns") == 0 && t->rank == 2 && t->bytes > 0 &&
           t->bytes / t->shape[0] % 8 == 0;
}

uint32_t test_device_count(xorcast_context *context) {
    uint32_t count;
    assert_int_equal(context->shared->device->ops->count(&count), 0);
    return count;
}

bool test_device_spread(xorcast_context *context) {
    return is_elsewhere(0) != is_elsewhere(5) && test_device_count(context) > 1;
}

void *device_memory_on(xorcast_context *context, uint64_t bytes) {
    const xci_device *device = context->shared->device;
    void *memory;
    assert_int_equal(device->ops->allocate(device->handle, bytes, &memory), 0);
    return memory;
}

void *device_memory_at(xorcast_context *context, uint64_t bytes, uint64_t number) {
    const xci_device *device = context->shared->device;
    void *const handle = is_elsewhere(number) ? other_device(device) : device->handle;
    void *memory;
    assert_int_equal(device->ops->allocate(handle, bytes, &memory), 0);
    return memory;
}

void *device_memory(xorcast_context *context, uint64_t bytes) {
    static uint64_t number;
    return device_memory_at(context, bytes, number++);
}

void device_memory_free(xorcast_context *context, void *memory) {
    const xci_device *device = context->shared->device;
    assert_int_equal(device->ops->release(device->handle, memory), 0);
}

void device_put(xorcast_context *context, void *to, const void *from, uint64_t bytes) {
    const xci_device *device = context->shared->device;
    if (bytes > 0)
        assert_int_equal(device->ops->copy_now(device->handle, to, from, bytes), 0);
}

void device_get(xorcast_context *context, void *to, const void *from, uint64_t bytes) {
    device_put(context, to, from, bytes);
}

/* Half of the columns on the context's device, half on another: as nearly as boxes may end. */
static void split_columns(xorcast_context *context, model_tensor *t) {
    const xci_device *device = context->shared->device;
    const uint64_t rows = t->shape[0], row_bytes = t->bytes / rows, left = row_bytes / 16 * 8,
                   right = row_bytes - left;
    t->data = NULL;
    t->box_count = 2;
    t->boxes[0] = (xorcast_box){0, rows, 0, left, device_memory_on(context, rows * left), left, 0};
    t->boxes[1] = (xorcast_box){0, rows, left, right, NULL, right, 0};
    assert_int_equal(device->ops->allocate(other_device(device), rows * right, &t->boxes[1].data),
                     0);
}

/* Between a tensor there and its bytes here. */
static void copy_tensor(xorcast_context *context, const model_tensor *there, uint8_t *here,
                        bool to_device) {
    const xorcast_box whole = {0, 1, 0, there->bytes, there->data, there->bytes, 0};
    const uint64_t row_bytes = there->box_count > 0 ? there->bytes / there->shape[0] : 0;
    for (uint32_t b = 0; b < (there->box_count > 0 ? there->box_count : 1); b++) {
        const xorcast_box *box = there->box_count > 0 ? &there->boxes[b] : &whole;
        for (uint64_t r = 0; r < box->row_count; r++) {
            uint8_t *inside = here + r * row_bytes + box->column,
                    *outside = (uint8_t *)box->data + r * box->pitch_bytes;
            device_put(context, to_device ? outside : inside, to_device ? inside : outside,
                       box->column_bytes);
        }
    }
}

void device_model_create(xorcast_context *context, model *to, const model *from) {
    *to = *from;
    to->memory_kind = XORCAST_MEMORY_DEVICE;
    for (uint32_t i = 0; i < to->count; i++)
        if (is_split(&to->tensors[i]))
            split_columns(context, &to->tensors[i]);
        else
            to->tensors[i].data = device_memory_at(context, to->tensors[i].bytes + 1, i);
    device_model_put(context, to, from);
}

void device_model_free(xorcast_context *context, model *m) {
    for (uint32_t i = 0; i < m->count; i++) {
        for (uint32_t b = 0; b < m->tensors[i].box_count; b++)
            device_memory_free(context, m->tensors[i].boxes[b].data);
        if (m->tensors[i].box_count == 0)
            device_memory_free(context, m->tensors[i].data);
    }
    m->count = 0;
}

void device_model_put(xorcast_context *context, model *to, const model *from) {
    for (uint32_t i = 0; i < to->count; i++)
        copy_tensor(context, &to->tensors[i], from->tensors[i].data, true);
}

void device_model_get(xorcast_context *context, const model *from, model *to) {
    for (uint32_t i = 0; i < to->count; i++)
        copy_tensor(context, &from->tensors[i], to->tensors[i].data, false);
}

bool device_model_equal(xorcast_context *context, const model *device, const model *host) {
    bool equal = true;
    for (uint32_t i = 0; i < host->count && equal; i++) {
        const uint64_t bytes = host->tensors[i].bytes;
        uint8_t *copy = malloc(bytes + 1);
        assert_non_null(copy);
        copy_tensor(context, &device->tensors[i], copy, false);
        equal = memcmp(copy, host->tensors[i].data, bytes) == 0;
        free(copy);
    }
    return equal;
}

bool test_on_device(void) {
    return getenv("XORCAST_TEST_DEVICE") != NULL;
}

xorcast_context *test_weights_context(uint32_t threads) {
    return test_on_device() ? test_device_context(threads) : test_context(threads);
}

void placed_open(xorcast_context *context, placed_model *placed, model *m, uint64_t chunk_bytes,
                 uint64_t seed) {
    placed->host = m;
    if (test_on_device())
        device_model_create(context, &placed->device, m);
    placed->bundle =
        model_bundle(context, test_on_device() ? &placed->device : m, chunk_bytes, seed);
}

void placed_get(xorcast_context *context, placed_model *placed) {
    if (test_on_device())
        device_model_get(context, &placed->device, placed->host);
}

void placed_close(xorcast_context *context, placed_model *placed) {
    xorcast_bundle_destroy(placed->bundle);
    if (test_on_device())
        device_model_free(context, &placed->device);
}
