/* Masks: which elements change in a step, and by what. Changes are drawn block by block of 4 KiB
 * with geometric gaps, so that a sparse mask costs what its changes cost and any range can be made
 * alone. Owns nothing. Does not know what a tensor is beyond its number. */
#include <math.h>
#include <string.h>

#include "gen/gen_tables.h"

/* Sequences of a mask stand apart from those of weights (second key 0) and of other steps. */
static uint64_t mask_key(const gen_mask *mask) {
    return gen_key(mask->seed ^ UINT64_C(0x5DEECE66D), mask->tensor, mask->step + 1);
}

/* The XOR of one changed element; never 0. Counting r up by one flips its trailing ones and the
 * zero above them; two units in 32 changes. */
static uint32_t mask_value(gen_kind kind, uint64_t random) {
    const uint32_t r = (uint32_t)random;
    const uint32_t step = (random >> 59) == 0 ? 2u : 1u;
    const uint32_t ulp = r ^ (r + step);
    switch (kind) {
    case GEN_BF16:
        return ulp & 0xFFFFu;
    case GEN_NVFP4: { /* one of the two numbers; the sign stays */
        const uint32_t nibble = (r ^ (r + 1)) & 7u;
        return (random >> 40 & 1) != 0 ? nibble << 4 : nibble;
    }
    case GEN_F32_SCALE: /* a scale follows the largest of its block: its low bits are noise */
        return ((random >> 40 & 3) == 0 ? r & 0xFFFFu : r & 0xFFu) | 1u;
    case GEN_ZERO:
    case GEN_RANDOM:
        return 1u + r % 255u;
    default:
        return ulp & 0x7Fu;
    }
}

/* Elements skipped before the next change: geometric with parameter p; log_keep = log(1 - p). */
static uint64_t gap(uint64_t random, double log_keep) {
    if (log_keep == -INFINITY) {
        return 0;
    }
    const double uniform = ((double)(random >> 11) + 1.0) * 0x1p-53;
    const double skipped = log(uniform) / log_keep;
    return skipped < 1e9 ? (uint64_t)skipped : UINT64_C(1000000000);
}

typedef struct range {
    uint8_t *bytes;
    uint64_t offset, end; /* of the tensor */
    uint64_t changed;
} range;

/* XORs the bytes of one element that fall into the range. */
static inline void xor_element(range *r, uint64_t at, uint32_t size, uint32_t value) {
    for (uint32_t i = 0; i < size; i++, at++, value >>= 8) {
        if ((value & 0xFF) != 0 && at >= r->offset && at < r->end) {
            r->bytes[at - r->offset] ^= (uint8_t)value;
            r->changed++;
        }
    }
}

uint64_t gen_mask_xor(const gen_mask *mask, uint64_t offset, void *bytes, uint64_t count) {
    range r = {bytes, offset, offset + count, 0};
    const uint32_t size = gen_kind_element_bytes(mask->kind);
    const uint64_t key = mask_key(mask);
    const double p = mask->clustered ? mask->density / GEN_CLUSTER_SHARE : mask->density;
    if (count == 0 || !(p > 0)) {
        return 0;
    }
    const double log_keep = p < 1 ? log1p(-p) : -INFINITY;
    const uint64_t active = (uint64_t)(GEN_CLUSTER_SHARE * 0x1p32);
    for (uint64_t block = offset / GEN_BLOCK_BYTES; block <= (r.end - 1) / GEN_BLOCK_BYTES;
         block++) {
        uint64_t state = gen_mix64(key + (block + 1) * GEN_GOLDEN);
        if (mask->clustered && gen_next(&state) >> 32 >= active) {
            continue;
        }
        const uint64_t elements = GEN_BLOCK_BYTES / size;
        for (uint64_t e = gap(gen_next(&state), log_keep); e < elements;
             e += 1 + gap(gen_next(&state), log_keep)) {
            const uint64_t at = block * GEN_BLOCK_BYTES + e * size;
            if (at >= r.end) {
                break;
            }
            xor_element(&r, at, size, mask_value(mask->kind, gen_next(&state)));
        }
    }
    return r.changed;
}

double gen_density_of_bytes(gen_kind kind, double share_of_bytes) {
    double density = share_of_bytes;
    if (kind ==
        GEN_BF16) { /* the carry reaches the high byte once in 2^8, or 2^7 for a step of two */
        density = 2 * share_of_bytes / (1 + 31.0 / 32 / 256 + 1.0 / 32 / 128);
    } else if (kind == GEN_F32_SCALE) {
        density = 4 * share_of_bytes / (1 + 0.25 * 255 / 256);
    }
    return density < 1 ? density : 1;
}

/* ---- Updates that look at the weights ---------------------------------------------------------*/

/* How a format counts: its codes without sign, and how fine the last place is at each. */
typedef struct grid {
    uint32_t sign, top;      /* sign bit; largest finite code */
    uint32_t threshold[256]; /* chance of a change, of 2^32, by code class */
} grid;

/* Codes with equal exponent share a class. */
static inline uint32_t class_of(gen_kind kind, uint32_t code) {
    return kind == GEN_BF16 ? code >> 7 & 0xFF : kind == GEN_NVFP4 ? code & 7 : code >> 3 & 15;
}

/* Relative chance of a step in a class: the inverse of its last place. */
static double class_weight(gen_kind kind, uint32_t class) {
    static const double e2m1[8] = {4, 4, 4, 3, 2, 1.5, 1, 1};
    return kind == GEN_NVFP4 ? e2m1[class]
                             : ldexp(1, -(int)(kind == GEN_BF16 && class < 96 ? 96 : class));
}

/* Finds the thresholds at which `density` of all numbers change, none more often than every second
 * time. */
static void grid_make(gen_kind kind, double density, grid *g) {
    const gen_tables *t = gen_tables_get();
    double share[256] = {0};
    for (uint32_t i = 0; i < GEN_TABLE; i++) {
        const uint32_t code = kind == GEN_BF16    ? t->bf16[i]
                              : kind == GEN_FP8   ? t->fp8[i]
                              : kind == GEN_NVFP4 ? t->nvfp4[i]
                                                  : t->scale[i];
        share[class_of(kind, code)] += 1.0 / GEN_TABLE;
    }
    double low = -60, high = 200; /* logarithm of the common factor */
    for (int i = 0; i < 60; i++) {
        const double middle = 0.5 * (low + high);
        double sum = 0;
        for (uint32_t c = 0; c < 256; c++) {
            sum += share[c] > 0 ? share[c] * fmin(0.5, exp2(middle) * class_weight(kind, c)) : 0;
        }
        if (sum < density) {
            low = middle;
        } else {
            high = middle;
        }
    }
    for (uint32_t c = 0; c < 256; c++) {
        const double chance = class_weight(kind, c & (kind == GEN_NVFP4 ? 7 : 255)) * exp2(low);
        g->threshold[c] = (uint32_t)(fmin(0.5, chance) * 0x1p32);
    }
    g->sign = kind == GEN_BF16 ? 0x8000 : kind == GEN_NVFP4 ? 8 : 0x80;
    g->top = kind == GEN_BF16 ? 0x7F7F : kind == GEN_NVFP4 ? 7 : 0x7E;
}

/* One number after its chance to step. `random` has 64 bits: 32 for whether, the rest for how. */
static inline uint32_t stepped(gen_kind kind, const grid *g, uint32_t code, uint64_t random) {
    if ((uint32_t)random >= g->threshold[class_of(kind, code)]) {
        return code;
    }
    const uint32_t by = (random >> 59) == 0 && g->top > 7 ? 2u : 1u;
    const uint32_t size = code & (g->sign - 1);
    const bool up = size < by || ((random >> 58 & 1) != 0 && size + by <= g->top);
    return (code & g->sign) | (up ? size + by : size - by);
}

/* One code after its chance to step; a byte of NVFP4 holds two. */
static inline uint32_t updated(gen_kind kind, const grid *g, uint32_t code, uint64_t random) {
    if (kind == GEN_NVFP4) {
        return stepped(kind, g, code & 15, random) | stepped(kind, g, code >> 4, gen_mix64(random))
                                                         << 4;
    }
    return stepped(kind, g, code, random);
}

/* Always inlined with a constant kind, which folds all questions about it out of the loop. */
static inline uint64_t update_range(gen_kind kind, const gen_mask *mask, uint64_t offset,
                                    uint8_t *bytes, uint64_t count) {
    const uint64_t key = mask_key(mask);
    const uint32_t size = kind == GEN_BF16 ? 2 : 1;
    uint64_t changed = 0;
    grid g;
    grid_make(kind, kind == GEN_NVFP4 ? mask->density / 2 : mask->density, &g);
    for (uint64_t i = 0; i + size <= count; i += size) {
        const uint64_t random = gen_mix64(key + ((offset + i) / size + 1) * GEN_GOLDEN);
        uint16_t code = 0;
        memcpy(&code, bytes + i, size);
        const uint16_t now = (uint16_t)updated(kind, &g, code, random);
        if (now != code) {
            changed += ((now ^ code) & 0xFF) != 0;
            changed += (now ^ code) >> 8 != 0;
            memcpy(bytes + i, &now, size);
        }
    }
    return changed;
}

uint64_t gen_update(const gen_mask *mask, uint64_t offset, void *bytes, uint64_t count) {
    if (!(mask->density > 0)) {
        return 0;
    }
    switch (mask->clustered ? GEN_RANDOM : mask->kind) {
    case GEN_BF16:
        return update_range(GEN_BF16, mask, offset, bytes, count);
    case GEN_FP8:
        return update_range(GEN_FP8, mask, offset, bytes, count);
    case GEN_NVFP4:
        return update_range(GEN_NVFP4, mask, offset, bytes, count);
    case GEN_FP8_SCALE:
        return update_range(GEN_FP8_SCALE, mask, offset, bytes, count);
    default:
        return gen_mask_xor(mask, offset, bytes, count);
    }
}
