/* Exponential, softmax, RMS norm and SwiGLU with a fixed order of operations. */
#include "pointwise.h"

#include "parameters.h"

#include <math.h>
#include <string.h>

#define NORM_FLOOR 1e-5F

float exponential(float x) {
    if (x < -80.0F)
        return 0.0F;
    /* x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first exact when multiplied by n.
     */
    const float shifted = x * 1.44269504F + 0x1.8p23F;
    const float n = shifted - 0x1.8p23F;
    const float r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
    float sum = 1.0F / 720.0F;
    sum = sum * r + 1.0F / 120.0F;
    sum = sum * r + 1.0F / 24.0F;
    sum = sum * r + 1.0F / 6.0F;
    sum = sum * r + 0.5F;
    sum = sum * r + 1.0F;
    sum = sum * r + 1.0F;
    const uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

static float sigmoid(float x) {
    const float small = exponential(x < 0 ? x : -x);
    return (x < 0 ? small : 1.0F) / (1.0F + small);
}

void softmax(float *values, size_t count) {
    float largest = values[0];
    for (size_t i = 1; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    float sum = 0;
    for (size_t i = 0; i < count; i++) {
        values[i] = exponential(values[i] - largest);
        sum += values[i];
    }
    for (size_t i = 0; i < count; i++)
        values[i] /= sum;
}

void norm_forward(size_t rows, const float *x, const float *gain, float *out, float *inverse_rms) {
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * MODEL_HIDDEN;
        float sum = 0;
        for (size_t i = 0; i < MODEL_HIDDEN; i++)
            sum += from[i] * from[i];
        const float inverse = 1.0F / sqrtf(sum / (float)MODEL_HIDDEN + NORM_FLOOR);
        for (size_t i = 0; i < MODEL_HIDDEN; i++)
            out[row * MODEL_HIDDEN + i] = from[i] * inverse * gain[i];
        inverse_rms[row] = inverse;
    }
}

void norm_backward(size_t rows, const float *x, const float *gain, const float *inverse_rms,
                   const float *out_gradient, float *x_gradient, float *gain_gradient) {
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * MODEL_HIDDEN;
        const float *above = out_gradient + row * MODEL_HIDDEN;
        const float inverse = inverse_rms[row];
        float along = 0;
        for (size_t i = 0; i < MODEL_HIDDEN; i++) {
            along += above[i] * gain[i] * from[i];
            gain_gradient[i] += above[i] * from[i] * inverse;
        }
        const float pull = along * inverse * inverse * inverse / (float)MODEL_HIDDEN;
        for (size_t i = 0; i < MODEL_HIDDEN; i++)
            x_gradient[row * MODEL_HIDDEN + i] += above[i] * gain[i] * inverse - from[i] * pull;
    }
}

void swiglu_forward(size_t count, const float *gate, const float *up, float *out) {
    for (size_t i = 0; i < count; i++)
        out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

void swiglu_backward(size_t count, float *gate, float *up, const float *out_gradient) {
    for (size_t i = 0; i < count; i++) {
        const float s = sigmoid(gate[i]);
        const float silu = gate[i] * s;
        const float slope = s + silu * (1.0F - s);
        gate[i] = out_gradient[i] * up[i] * slope;
        up[i] = out_gradient[i] * silu;
    }
}
