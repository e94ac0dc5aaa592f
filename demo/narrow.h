/* The narrow number formats that checkpoints carry: BF16, FP8 E4M3 (finite, with NaN, without
 * infinity) and FP4 E2M1. To narrow is to round to the nearest, ties to the even code; E4M3 and
 * E2M1 saturate at their largest value. Scales are not this file's matter. */
#ifndef DEMO_NARROW_H
#define DEMO_NARROW_H

#include <stdint.h>

#define E4M3_LARGEST 448.0F
#define E2M1_LARGEST 6.0F

uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t code);

uint8_t e4m3_from_float(float value);
float e4m3_to_float(uint8_t code);

uint8_t e2m1_from_float(float value); /* 4 bits: sign and a code of 0 to 7; NaN is not expected */
float e2m1_to_float(uint8_t code);

#endif
