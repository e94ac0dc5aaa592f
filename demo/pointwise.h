/* The pieces of the policy that are not matrix products: exponential, softmax, RMS norm, SwiGLU.
 * Only additions, products, divisions and square roots, which IEEE fixes to the last bit, so that
 * results do not depend on the machine's libm. */
#ifndef DEMO_POINTWISE_H
#define DEMO_POINTWISE_H

#include <stddef.h>

/* Within 2e-7 of e^x for x <= 0; below -80 it is 0. */
float exponential(float x);

/* In place; `count` is at least 1. */
void softmax(float *values, size_t count);

/* out = x * gain / rms(x), row by row; the inverse of the rms is kept for backward. */
void norm_forward(size_t rows, const float *x, const float *gain, float *out, float *inverse_rms);
/* Adds to x_gradient and to gain_gradient. */
void norm_backward(size_t rows, const float *x, const float *gain, const float *inverse_rms,
                   const float *out_gradient, float *x_gradient, float *gain_gradient);

/* out = silu(gate) * up; backward overwrites gate and up with their gradients. */
void swiglu_forward(size_t count, const float *gate, const float *up, float *out);
void swiglu_backward(size_t count, float *gate, float *up, const float *out_gradient);

#endif
