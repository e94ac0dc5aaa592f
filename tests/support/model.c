/* The test model: see model.h. */
#include "support/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t model_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

void model_add(model *m, const char *name, const char *dtype, uint32_t width, uint32_t rank,
               uint64_t a, uint64_t b) {
    model_tensor *t = &m->tensors[m->count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dtype = dtype;
    t->rank = rank;
    t->shape[0] = a;
    t->shape[1] = b;
    t->bytes = width * (rank > 0 ? a : 1) * (rank > 1 ? b : 1);
    t->data = malloc(t->bytes + 1);
    assert_non_null(t->data);
    for (uint64_t i = 0; i < t->bytes; i++)
        t->data[i] = (uint8_t)model_random(&m->random);
}

void model_create(model *m, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->random = seed;
    model_add(m, "embed.weight", "BF16", 2, 2, 1024, 130);
    model_add(m, "layers.0.w", "BF16", 2, 2, 700, 301);
    model_add(m, "layers.0.scale", "F32", 4, 2, 70, 31);
    model_add(m, "layers.0.packed", "U8", 1, 2, 1000, 333);
    model_add(m, "layers.0.packed_scale", "F8_E4M3", 1, 2, 100, 33);
    model_add(m, "layers.0.packed_scale_2", "F32", 4, 0, 0, 0);
    model_add(m, "layers.0.norm", "BF16", 2, 1, 257, 0);
    model_add(m, "layers.1.w", "BF16", 2, 2, 900, 513);
    model_add(m, "layers.1.packed_scale_2", "F32", 4, 0, 0, 0);
    model_add(m, "layers.1.norm", "BF16", 2, 1, 1, 0);
    model_add(m, "layers.1.bias64", "F64", 8, 1, 333, 0);
    model_add(m, "layers.1.empty", "BF16", 2, 2, 0, 7);
    model_add(m, "router.bias", "F32", 4, 1, 1023, 0);
    model_add(m, "router.odd", "U8", 1, 1, 4095, 0);
    model_add(m, "router.edge", "U8", 1, 1, 4096, 0);
    model_add(m, "router.above", "U8", 1, 1, 65537, 0);
    model_add(m, "one", "I8", 1, 1, 1, 0);
    model_add(m, "seventeen", "U8", 1, 1, 17, 0);
}

void model_free(model *m) {
    for (uint32_t i = 0; i < m->count; i++)
        free(m->tensors[i].data);
    m->count = 0;
}

void model_copy(model *to, const model *from) {
    for (uint32_t i = 0; i < from->count; i++)
        memcpy(to->tensors[i].data, from->tensors[i].data, from->tensors[i].bytes);
}

bool model_equal(const model *a, const model *b) {
    for (uint32_t i = 0; i < a->count; i++)
        if (memcmp(a->tensors[i].data, b->tensors[i].data, a->tensors[i].bytes) != 0)
            return false;
    return true;
}

void model_step(model *m, uint64_t seed, uint32_t per_million) {
    uint64_t random = seed;
    if (per_million == 0) {
        model_tensor *t = &m->tensors[model_random(&random) % m->count];
        if (t->bytes > 0)
            t->data[model_random(&random) % t->bytes] ^= 1;
        return;
    }
    for (uint32_t i = 0; i < m->count; i++)
        for (uint64_t j = 0; j < m->tensors[i].bytes; j++)
            if (model_random(&random) % 1000000 < per_million)
                m->tensors[i].data[j] ^= (uint8_t)(1 + model_random(&random) % 255);
}

xorcast_context *test_context(uint32_t threads) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    xorcast_context *context;
    options.threads = threads;
    options.log_level = XORCAST_LOG_ERROR;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    return context;
}

xorcast_tensor model_describe(const model_tensor *t) {
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = t->name;
    tensor.dtype = t->dtype;
    tensor.shape = t->shape;
    tensor.rank = t->rank;
    tensor.bytes = t->bytes;
    tensor.data = t->data;
    tensor.boxes = t->boxes;
    tensor.box_count = t->box_count;
    return tensor;
}

xorcast_bundle *model_bundle_layout(xorcast_context *context, const model *m, uint64_t chunk_bytes,
                                    uint64_t seed, xorcast_layout *layout_out) {
    xorcast_bundle_options options = XORCAST_BUNDLE_OPTIONS_INIT;
    xorcast_bundle *bundle;
    uint32_t order[MODEL_TENSORS_MAX];
    options.chunk_bytes = chunk_bytes;
    options.group_bytes = 1 << 20;
    for (uint32_t i = 0; i < m->count; i++) {
        const uint32_t j = (uint32_t)(model_random(&seed) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    assert_int_equal(xorcast_bundle_create(context, &options, &bundle), XORCAST_OK);
    for (uint32_t i = 0; i < m->count; i++) {
        xorcast_tensor tensor = model_describe(&m->tensors[order[i]]);
        tensor.memory_kind = m->memory_kind;
        assert_int_equal(xorcast_bundle_add(bundle, &tensor), XORCAST_OK);
    }
    assert_int_equal(xorcast_bundle_seal(bundle, layout_out), XORCAST_OK);
    return bundle;
}

xorcast_bundle *model_bundle(xorcast_context *context, const model *m, uint64_t chunk_bytes,
                             uint64_t seed) {
    return model_bundle_layout(context, m, chunk_bytes, seed, NULL);
}

static int append(void *user, const void *bytes, uint64_t count) {
    test_bytes *to = user;
    if (to->count + count > to->capacity) {
        to->capacity = 2 * (to->count + count);
        to->bytes = realloc(to->bytes, to->capacity);
        assert_non_null(to->bytes);
    }
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    return 0;
}

xorcast_sink test_sink(test_bytes *bytes) { return (xorcast_sink){append, bytes}; }
xorcast_source test_source(const test_bytes *bytes) {
    return (xorcast_source){.bytes = bytes->bytes, .size = bytes->count};
}

void test_bytes_free(test_bytes *bytes) {
    free(bytes->bytes);
    *bytes = (test_bytes){NULL, 0, 0};
}
