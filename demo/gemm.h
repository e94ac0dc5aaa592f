/* Matrix products in FP32 with a fixed order of sums: every element of the result is made by the
 * same chain of operations whatever the number of rows, the CPU or the compiler. That makes a
 * rollout's probabilities the same bits in a sampler and in the trainer, and a run reproducible.
 *
 * Matrices are row-major and dense. `columns` and `depth` are multiples of 8. Must be compiled
 * without contraction of products and sums (-ffp-contract=off). */
#ifndef DEMO_GEMM_H
#define DEMO_GEMM_H

#include <stddef.h>

/* c[rows][columns] = a[rows][depth] * transposed b[columns][depth]. */
void gemm_times_transposed(size_t rows, size_t columns, size_t depth, const float *a,
                           const float *b, float *c);

/* c[rows][columns] += a[rows][depth] * b[depth][columns]. */
void gemm_add(size_t rows, size_t columns, size_t depth, const float *a, const float *b, float *c);

/* c[rows][columns] += transposed a[depth][rows] * b[depth][columns]. */
void gemm_add_transposed(size_t rows, size_t columns, size_t depth, const float *a, const float *b,
                         float *c);

#endif
