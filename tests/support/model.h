/* A small model for tests: tensors of many shapes in memory, random bytes, steps that change some
 * of them. Owns its memory; two models of one seed are equal. */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "xorcast.h"

#define MODEL_TENSORS_MAX 64u

typedef struct model_tensor {
    char name[64];
    const char *dtype;
    uint64_t shape[3];
    uint32_t rank;
    uint64_t bytes;
    uint8_t *data; /* NULL where it lies in boxes */
    xorcast_box boxes[2];
    uint32_t box_count;
} model_tensor;

typedef struct model {
    model_tensor tensors[MODEL_TENSORS_MAX];
    uint32_t count;
    uint64_t random;
    uint32_t memory_kind; /* of the data: xorcast_memory_kind */
} model;

uint64_t model_random(uint64_t *state);

/* Adds a tensor of random bytes, of rank 0 to 2, to a model that began as zeros with a seed in
 * `random`. */
void model_add(model *m, const char *name, const char *dtype, uint32_t width, uint32_t rank,
               uint64_t a, uint64_t b);
/* Whole and small tensors, 0-d, empty, odd-sized ones, of all element widths. */
void model_create(model *m, uint64_t seed);
void model_free(model *m);
void model_copy(model *to, const model *from); /* same layout: bytes only */
bool model_equal(const model *a, const model *b);
/* Changes about `per_million` of the bytes; 0: one bit of one tensor. */
void model_step(model *m, uint64_t seed, uint32_t per_million);
/* The tensor as a bundle takes it, in host memory. Its boxes are the model's. */
xorcast_tensor model_describe(const model_tensor *t);
/* A sealed bundle over the model's memory; tensors are added in an order that depends on `seed`. */
xorcast_bundle *model_bundle(xorcast_context *context, const model *m, uint64_t chunk_bytes,
                             uint64_t seed);
/* The same, with what seal reports. */
xorcast_bundle *model_bundle_layout(xorcast_context *context, const model *m, uint64_t chunk_bytes,
                                    uint64_t seed, xorcast_layout *layout_out);

xorcast_context *test_context(uint32_t threads);

/* Memory as sink and source. */
typedef struct test_bytes {
    uint8_t *bytes;
    uint64_t count, capacity;
} test_bytes;
xorcast_sink test_sink(test_bytes *bytes);
xorcast_source test_source(const test_bytes *bytes);
void test_bytes_free(test_bytes *bytes);

#endif
