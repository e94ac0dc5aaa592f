/* BF16, FP8 E4M3 and FP4 E2M1, by integer arithmetic on the bits of an FP32 value.
 *
 * All three narrow by adding just under half of the last place kept, plus one if that place is odd:
 * the carry does the rounding, ties to even, and runs into the exponent where it must. */
#include "narrow.h"

#include <string.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t bf16_from_float(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U)
        return (uint16_t)(bits >> 16 | 0x40U); /* a NaN stays one, quiet, whatever is cut off */
    return (uint16_t)((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

float bf16_to_float(uint16_t code) {
    return float_of((uint32_t)code << 16);
}

uint8_t e4m3_from_float(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = bits >> 24 & 0x80U;
    const uint32_t size = bits & 0x7FFFFFFFU;
    if (size > 0x7F800000U)
        return (uint8_t)(sign | 0x7FU);
    if (float_of(size) > E4M3_LARGEST)
        return (uint8_t)(sign | 0x7EU);
    if (size < 0x3C800000U) { /* below 2^-6 codes are multiples of 2^-9: let an FP32 sum round */
        const float steps = float_of(size) * 0x1p9F + 0x1p23F;
        return (uint8_t)(sign | (bits_of(steps) & 0xFU));
    }
    const uint32_t rounded = size + 0x7FFFFU + (size >> 20 & 1U);
    return (uint8_t)(sign | ((rounded >> 20) - (120U << 3)));
}

float e4m3_to_float(uint8_t code) {
    const uint32_t sign = (uint32_t)(code & 0x80U) << 24;
    const uint32_t rest = code & 0x7FU;
    if (rest == 0x7FU)
        return float_of(sign | 0x7FC00000U);
    if (rest < 8)
        return float_of(sign | bits_of((float)rest * 0x1p-9F));
    return float_of(sign | ((rest + (120U << 3)) << 20));
}

uint8_t e2m1_from_float(float value) {
    /* Points half way between codes; one belongs to the even code beside it. */
    static const float half_way[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
    const uint32_t bits = bits_of(value);
    const float size = float_of(bits & 0x7FFFFFFFU);
    uint32_t code = 0;
    for (uint32_t i = 0; i < 7; i++)
        code += (uint32_t)(i % 2 == 0 ? size > half_way[i] : size >= half_way[i]);
    return (uint8_t)(bits >> 28 & 8U) | (uint8_t)code;
}

float e2m1_to_float(uint8_t code) {
    static const float sizes[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    const float size = sizes[code & 7U];
    return (code & 8U) != 0 ? -size : size;
}
