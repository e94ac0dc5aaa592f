/* Weights at step 0: random words looked up in tables of quantiles, so that eight bytes cost two or
 * three multiplications and any word can be made by itself. Owns the tables. Knows no tensor but by
 * number, and no steps. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "gen/gen_tables.h"

static gen_tables tables;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

const char *gen_kind_dtype(gen_kind kind) {
    static const char *const names[GEN_KINDS] = {
        [GEN_ZERO] = "U8",       [GEN_RANDOM] = "U8", [GEN_BF16] = "BF16",
        [GEN_FP8] = "F8_E4M3",   [GEN_NVFP4] = "U8",  [GEN_FP8_SCALE] = "F8_E4M3",
        [GEN_F32_SCALE] = "F32",
    };
    return names[kind];
}

uint32_t gen_kind_element_bytes(gen_kind kind) {
    return kind == GEN_BF16 ? 2 : kind == GEN_F32_SCALE ? 4 : 1;
}

/* Quantile of the standard normal distribution, by bisection of the error function: slow, exact to
 * double precision, and only for tables. */
static double normal_quantile(double p) {
    double low = -9.0, high = 9.0;
    for (int i = 0; i < 50; i++) {
        const double middle = 0.5 * (low + high);
        if (0.5 * erfc(-middle * 0.70710678118654752440) < p) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return 0.5 * (low + high);
}

static uint16_t bf16_of(double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

static double e4m3_value(uint32_t code) {
    const int exponent = (int)(code >> 3) & 15, mantissa = (int)code & 7;
    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

static double e2m1_value(uint32_t code) {
    static const double values[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    return values[code & 7];
}

/* The nearest code to |value| of an ascending format, with the sign at `sign_bit`. */
static uint8_t nearest(double value, uint32_t top, uint32_t sign_bit,
                       double (*value_of)(uint32_t)) {
    const double size = fabs(value);
    uint32_t low = 0, high = top;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (0.5 * (value_of(middle) + value_of(middle + 1)) < size) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint8_t)(low | (value < 0 ? sign_bit : 0u));
}

static void make_tables(void) {
    uint8_t e2m1[256];
    for (uint32_t i = 0; i < 256; i++) {
        e2m1[i] = nearest(2.5 * normal_quantile((i + 0.5) / 256), 7, 8, e2m1_value);
    }
    for (uint32_t i = 0; i < GEN_TABLE; i++) {
        /* The upper half mirrors the lower, to the bit. */
        const uint32_t from = i < GEN_TABLE / 2 ? i : GEN_TABLE - 1 - i;
        const double q = normal_quantile((from + 0.5) / GEN_TABLE);
        const double normal = i < GEN_TABLE / 2 ? q : -q;
        tables.bf16[i] = bf16_of(0.02 * normal);
        tables.fp8[i] = nearest(100.0 * normal, 0x7E, 0x80, e4m3_value);
        tables.nvfp4[i] = (uint8_t)(e2m1[i & 255] | e2m1[i >> 8] << 4);
        tables.scale[i] = nearest(60.0 * exp(0.25 * normal), 0x7E, 0x80, e4m3_value);
    }
}

const gen_tables *gen_tables_get(void) {
    pthread_once(&tables_once, make_tables);
    return &tables;
}

static inline uint64_t word_of_bytes(const uint8_t *table, uint64_t key, uint64_t word) {
    const uint64_t a = gen_mix64(key + (2 * word + 1) * GEN_GOLDEN);
    const uint64_t b = gen_mix64(key + (2 * word + 2) * GEN_GOLDEN);
    const uint32_t low = (uint32_t)table[a & 0xFFFF] | (uint32_t)table[a >> 16 & 0xFFFF] << 8 |
                         (uint32_t)table[a >> 32 & 0xFFFF] << 16 | (uint32_t)table[a >> 48] << 24;
    const uint32_t high = (uint32_t)table[b & 0xFFFF] | (uint32_t)table[b >> 16 & 0xFFFF] << 8 |
                          (uint32_t)table[b >> 32 & 0xFFFF] << 16 | (uint32_t)table[b >> 48] << 24;
    return low | (uint64_t)high << 32;
}

static inline uint64_t word_of_bf16(const uint16_t *table, uint64_t key, uint64_t word) {
    const uint64_t a = gen_mix64(key + (word + 1) * GEN_GOLDEN);
    return (uint64_t)table[a & 0xFFFF] | (uint64_t)table[a >> 16 & 0xFFFF] << 16 |
           (uint64_t)table[a >> 32 & 0xFFFF] << 32 | (uint64_t)table[a >> 48] << 48;
}

static void fill(gen_kind kind, uint64_t key, uint64_t word, uint8_t *bytes, uint64_t words) {
    const gen_tables *t = gen_tables_get();
    const uint8_t *narrow = kind == GEN_FP8 ? t->fp8 : kind == GEN_NVFP4 ? t->nvfp4 : t->scale;
    for (uint64_t i = 0; i < words; i++, word++) {
        uint64_t value;
        switch (kind) {
        case GEN_BF16:
            value = word_of_bf16(t->bf16, key, word);
            break;
        case GEN_RANDOM:
            value = gen_mix64(key + (word + 1) * GEN_GOLDEN);
            break;
        case GEN_F32_SCALE: /* between 2^-11 and 2^-9 */
            value = (gen_mix64(key + (word + 1) * GEN_GOLDEN) & UINT64_C(0x00FFFFFF00FFFFFF)) |
                    UINT64_C(0x3A0000003A000000);
            break;
        default:
            value = word_of_bytes(narrow, key, word);
            break;
        }
        memcpy(bytes + 8 * i, &value, 8);
    }
}

void gen_weights(gen_kind kind, uint64_t seed, uint64_t tensor, uint64_t offset, void *bytes,
                 uint64_t count) {
    uint8_t *out = bytes;
    if (kind == GEN_ZERO) {
        memset(bytes, 0, count);
        return;
    }
    const uint64_t key = gen_key(seed, tensor, 0);
    if (offset % 8 != 0 && count > 0) {
        uint8_t word[8];
        const uint64_t head = count < 8 - offset % 8 ? count : 8 - offset % 8;
        fill(kind, key, offset / 8, word, 1);
        memcpy(out, word + offset % 8, head);
        out += head, offset += head, count -= head;
    }
    fill(kind, key, offset / 8, out, count / 8);
    if (count % 8 != 0) {
        uint8_t word[8];
        fill(kind, key, offset / 8 + count / 8, word, 1);
        memcpy(out + count / 8 * 8, word, count % 8);
    }
}
