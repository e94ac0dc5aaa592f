/* Exports the FP32 master weights as a checkpoint carries them, and reads single parameters back to
 * compute with.
 *
 *     bf16    every parameter as BF16
 *     fp8     matrices as F8_E4M3, a block of 64 along the row with one F32 `weight_scale_inv`
 *     nvfp4   matrices as U8 with two E2M1 each (the even element in the low bits), a block of 16
 * with one F8_E4M3 `weight_scale`, and one F32 `weight_scale_2` (rank 0) for the tensor f32 every
 * parameter as it is; for tests of the policy
 *
 * Norms, embeddings, router and head stay BF16 in fp8 and nvfp4. Owns the memory of the exported
 * tensors; publishing them is not its matter. */
#ifndef DEMO_EXPORT_H
#define DEMO_EXPORT_H

#include "parameters.h"

typedef enum export_format { EXPORT_BF16, EXPORT_FP8, EXPORT_NVFP4, EXPORT_F32 } export_format;

/* The format of that name, or false. */
bool export_format_find(const char *name, export_format *format_out);
const char *export_format_name(export_format format);

typedef struct export_tensor {
    char name[96];
    const char *dtype;
    uint64_t shape[2];
    uint32_t rank;
    size_t bytes;
    unsigned char *data;
} export_tensor;

/* Where the parts of one parameter are; scales only where the format has them. */
typedef struct export_parts {
    const export_tensor *weight, *block_scale, *tensor_scale;
} export_parts;

typedef struct exported {
    parameter_table table;
    export_format format;
    size_t tensor_count;
    export_tensor tensors[3 * PARAMETER_COUNT];
    export_parts parts[PARAMETER_COUNT];
    unsigned char *memory; /* of all tensors, each at a multiple of 64 */
    size_t memory_bytes;
    size_t total_bytes; /* of the tensors, without the gaps between them */
} exported;

/* Zeroed tensors, to be filled by export_write or by a subscriber. NULL: out of memory. */
exported *export_create(export_format format);
void export_destroy(exported *weights);

/* Rounds the flat master weights into the tensors. */
void export_write(exported *weights, const float *values);

/* One parameter as FP32, rows * columns values: exactly the numbers that the exported bytes stand
 * for. */
void export_read(const exported *weights, size_t index, float *values);

#endif
