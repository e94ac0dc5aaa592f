/* FP32 parameters to the tensors of a checkpoint and back; export.h describes the formats.
 *
 * Owns the rules for scales. A scale is the largest magnitude of its block over the largest of the
 * narrow format, and 1 for a block of zeros, so that nothing is ever divided by zero. */
#include "export.h"

#include "narrow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FP8_BLOCK 64
#define NVFP4_BLOCK 16
#define ALIGNMENT 64

static const char *const format_names[] = {
    [EXPORT_BF16] = "bf16", [EXPORT_FP8] = "fp8", [EXPORT_NVFP4] = "nvfp4", [EXPORT_F32] = "f32"};

bool export_format_find(const char *name, export_format *format_out) {
    for (size_t i = EXPORT_BF16; i <= EXPORT_NVFP4; i++) {
        if (strcmp(name, format_names[i]) == 0) {
            *format_out = (export_format)i;
            return true;
        }
    }
    return false;
}

const char *export_format_name(export_format format) {
    return format_names[format];
}

/* ---- Layout -----------------------------------------------------------------------------------*/

static const export_tensor *add_tensor(exported *weights, const parameter *item, const char *suffix,
                                       const char *dtype, size_t element_bytes, uint32_t rank,
                                       uint64_t rows, uint64_t columns) {
    export_tensor *tensor = &weights->tensors[weights->tensor_count++];
    (void)snprintf(tensor->name, sizeof tensor->name, "%s%s", item->name, suffix);
    tensor->dtype = dtype;
    tensor->rank = rank;
    tensor->shape[0] = rank == 1 ? columns : rows;
    tensor->shape[1] = columns;
    tensor->bytes = (size_t)(rows * columns) * element_bytes;
    return tensor;
}

static void describe(exported *weights, size_t index) {
    const parameter *item = &weights->table.items[index];
    export_parts *parts = &weights->parts[index];
    const uint32_t rank = item->vector ? 1 : 2;
    if (weights->format == EXPORT_F32) {
        parts->weight = add_tensor(weights, item, "", "F32", 4, rank, item->rows, item->columns);
    } else if (weights->format == EXPORT_BF16 || !item->quantised) {
        parts->weight = add_tensor(weights, item, "", "BF16", 2, rank, item->rows, item->columns);
    } else if (weights->format == EXPORT_FP8) {
        parts->weight = add_tensor(weights, item, "", "F8_E4M3", 1, 2, item->rows, item->columns);
        parts->block_scale = add_tensor(weights, item, "_scale_inv", "F32", 4, 2, item->rows,
                                        item->columns / FP8_BLOCK);
    } else {
        parts->weight = add_tensor(weights, item, "", "U8", 1, 2, item->rows, item->columns / 2);
        parts->block_scale = add_tensor(weights, item, "_scale", "F8_E4M3", 1, 2, item->rows,
                                        item->columns / NVFP4_BLOCK);
        parts->tensor_scale = add_tensor(weights, item, "_scale_2", "F32", 4, 0, 1, 1);
    }
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

exported *export_create(export_format format) {
    exported *weights = calloc(1, sizeof *weights);
    if (weights == NULL)
        return NULL;
    parameters_describe(&weights->table);
    weights->format = format;
    for (size_t i = 0; i < PARAMETER_COUNT; i++)
        describe(weights, i);

    size_t memory_bytes = 0;
    for (size_t i = 0; i < weights->tensor_count; i++) {
        memory_bytes += aligned(weights->tensors[i].bytes);
        weights->total_bytes += weights->tensors[i].bytes;
    }
    weights->memory = aligned_alloc(ALIGNMENT, memory_bytes);
    if (weights->memory == NULL) {
        free(weights);
        return NULL;
    }
    memset(weights->memory, 0, memory_bytes);
    weights->memory_bytes = memory_bytes;
    unsigned char *place = weights->memory;
    for (size_t i = 0; i < weights->tensor_count; i++) {
        weights->tensors[i].data = place;
        place += aligned(weights->tensors[i].bytes);
    }
    return weights;
}

void export_destroy(exported *weights) {
    if (weights == NULL)
        return;
    free(weights->memory);
    free(weights);
}

/* ---- Writing ----------------------------------------------------------------------------------*/

static float largest_magnitude(const float *values, size_t count) {
    float largest = 0;
    for (size_t i = 0; i < count; i++) {
        const float size = values[i] < 0 ? -values[i] : values[i];
        largest = size > largest ? size : largest;
    }
    return largest;
}

static void write_bf16(const float *values, size_t count, uint16_t *codes) {
    for (size_t i = 0; i < count; i++)
        codes[i] = bf16_from_float(values[i]);
}

static void write_fp8(const float *values, size_t count, uint8_t *codes, float *scales) {
    for (size_t block = 0; block * FP8_BLOCK < count; block++) {
        const float *from = values + block * FP8_BLOCK;
        const float largest = largest_magnitude(from, FP8_BLOCK);
        const float scale = largest > 0 ? largest / E4M3_LARGEST : 1.0F;
        scales[block] = scale;
        for (size_t i = 0; i < FP8_BLOCK; i++)
            codes[block * FP8_BLOCK + i] = e4m3_from_float(from[i] / scale);
    }
}

static void write_nvfp4(const float *values, size_t count, uint8_t *codes, uint8_t *scales,
                        float *tensor_scale) {
    const float largest = largest_magnitude(values, count);
    *tensor_scale = largest > 0 ? largest / (E4M3_LARGEST * E2M1_LARGEST) : 1.0F;
    for (size_t block = 0; block * NVFP4_BLOCK < count; block++) {
        const float *from = values + block * NVFP4_BLOCK;
        scales[block] =
            e4m3_from_float(largest_magnitude(from, NVFP4_BLOCK) / (E2M1_LARGEST * *tensor_scale));
        float scale = e4m3_to_float(scales[block]) * *tensor_scale;
        if (!(scale > 0)) /* a scale that rounded to zero makes every code of its block zero */
            scale = 1.0F;
        for (size_t i = 0; i < NVFP4_BLOCK; i += 2)
            codes[(block * NVFP4_BLOCK + i) / 2] =
                (uint8_t)(e2m1_from_float(from[i] / scale) | e2m1_from_float(from[i + 1] / scale)
                                                                 << 4);
    }
}

void export_write(exported *weights, const float *values) {
    for (size_t i = 0; i < PARAMETER_COUNT; i++) {
        const parameter *item = &weights->table.items[i];
        const export_parts *parts = &weights->parts[i];
        const float *from = values + item->offset;
        const size_t count = item->rows * item->columns;
        void *to = parts->weight->data;
        if (weights->format == EXPORT_F32)
            memcpy(to, from, count * sizeof *from);
        else if (weights->format == EXPORT_BF16 || !item->quantised)
            write_bf16(from, count, to);
        else if (weights->format == EXPORT_FP8)
            write_fp8(from, count, to, (float *)(void *)parts->block_scale->data);
        else
            write_nvfp4(from, count, to, parts->block_scale->data,
                        (float *)(void *)parts->tensor_scale->data);
    }
}

/* ---- Reading ----------------------------------------------------------------------------------*/

static void read_bf16(const uint16_t *codes, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)codes[i] << 16;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static void read_fp8(const uint8_t *codes, const float *scales, size_t count, float *values) {
    float sizes[256];
    for (size_t code = 0; code < 256; code++)
        sizes[code] = e4m3_to_float((uint8_t)code);
    for (size_t i = 0; i < count; i++)
        values[i] = sizes[codes[i]] * scales[i / FP8_BLOCK];
}

static void read_nvfp4(const uint8_t *codes, const uint8_t *scales, float tensor_scale,
                       size_t count, float *values) {
    float sizes[16];
    for (size_t code = 0; code < 16; code++)
        sizes[code] = e2m1_to_float((uint8_t)code);
    for (size_t block = 0; block * NVFP4_BLOCK < count; block++) {
        const float scale = e4m3_to_float(scales[block]) * tensor_scale;
        for (size_t i = block * NVFP4_BLOCK; i < (block + 1) * NVFP4_BLOCK; i += 2) {
            values[i] = sizes[codes[i / 2] & 15U] * scale;
            values[i + 1] = sizes[codes[i / 2] >> 4] * scale;
        }
    }
}

void export_read(const exported *weights, size_t index, float *values) {
    const parameter *item = &weights->table.items[index];
    const export_parts *parts = &weights->parts[index];
    const size_t count = item->rows * item->columns;
    const void *from = parts->weight->data;
    if (weights->format == EXPORT_F32)
        memcpy(values, from, count * sizeof *values);
    else if (weights->format == EXPORT_BF16 || !item->quantised)
        read_bf16(from, count, values);
    else if (weights->format == EXPORT_FP8)
        read_fp8(from, (const float *)(const void *)parts->block_scale->data, count, values);
    else
        read_nvfp4(from, parts->block_scale->data,
                   *(const float *)(const void *)parts->tensor_scale->data, count, values);
}
