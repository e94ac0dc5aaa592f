/* Entropy bounds: see entropy.h. */
#include "compare/entropy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLANES 8u
#define VALUES 256u
#define CLASSES 256u
#define EXACT 15u       /* steps counted one by one */
#define LENGTH_BITS 6u  /* of the length in bits of a larger step, less FIRST_LENGTH */
#define FIRST_LENGTH 5u /* of 16, the first such step */
#define BUCKETS (EXACT + (1u << LENGTH_BITS))

/* How the elements of a dtype count. */
typedef struct form {
    uint32_t bits; /* 4: two to a byte */
    bool sign;     /* sign and size; else an integer */
    uint32_t class_shift, class_count;
} form;

typedef struct steps {
    uint64_t sign[2][BUCKETS];
} steps;

struct compare_counts {
    form form;
    uint64_t bytes, bytes_changed;
    uint64_t values[PLANES][VALUES]; /* XOR values; [0] counts what did not change */
    uint64_t elements[CLASSES];
    steps steps[CLASSES];
    uint64_t even_bits; /* of large steps, below their first bit */
};

static form form_of(const char *dtype, uint32_t element_bytes) {
    static const struct {
        const char *dtype;
        form form;
    } known[] = {
        {"BF16", {16, true, 7, 256}}, {"F16", {16, true, 10, 32}},   {"F32", {32, true, 23, 256}},
        {"F64", {64, true, 55, 256}}, {"F8_E4M3", {8, true, 3, 16}}, {"F8_E5M2", {8, true, 2, 32}},
        {"U8", {4, true, 0, 8}},      {"F4", {4, true, 0, 8}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].dtype, dtype) == 0)
            return known[i].form;
    const bool whole = element_bytes == 2 || element_bytes == 4 || element_bytes == 8;
    return (form){whole ? 8 * element_bytes : 8, false, 0, 1};
}

void compare_counts_begin(compare_counts *counts, const char *dtype, uint32_t element_bytes) {
    memset(counts, 0, sizeof *counts);
    counts->form = form_of(dtype, element_bytes);
}

compare_counts *compare_counts_new(const char *dtype, uint32_t element_bytes) {
    compare_counts *counts = malloc(sizeof *counts);
    if (counts != NULL)
        compare_counts_begin(counts, dtype, element_bytes);
    return counts;
}

void compare_counts_free(compare_counts *counts) {
    free(counts);
}

/* ---- Counting ---------------------------------------------------------------------------------*/

static uint32_t planes_of(const form *f) {
    return f->bits >= 32 ? f->bits / 8 : 1;
}

static void count_values(compare_counts *counts, const uint8_t *from, const uint8_t *to,
                         uint64_t bytes) {
    const uint32_t planes = planes_of(&counts->form);
    const bool nibbles = counts->form.bits == 4;
    for (uint64_t i = 0; i < bytes; i++) {
        const uint8_t change = from[i] ^ to[i];
        uint64_t *plane = counts->values[i % planes];
        counts->bytes_changed += change != 0;
        plane[nibbles ? change & 15 : change]++;
        if (nibbles)
            plane[change >> 4]++;
    }
}

/* Steps from one code to another: how many, and whether down. */
static inline uint64_t distance(const form *f, uint64_t from, uint64_t to, bool *down_out) {
    if (!f->sign) {
        const uint64_t all = UINT64_MAX >> (64 - f->bits), up = (to - from) & all;
        *down_out = up > all / 2;
        return *down_out ? (from - to) & all : up;
    }
    const uint64_t sign = UINT64_C(1) << (f->bits - 1);
    const uint64_t a = from & (sign - 1), b = to & (sign - 1);
    if (((from ^ to) & sign) != 0) {
        *down_out = true;
        return a + b + 1;
    }
    *down_out = b < a;
    return b < a ? a - b : b - a;
}

static inline void count_element(compare_counts *counts, const form *f, uint64_t from,
                                 uint64_t to) {
    const uint64_t class = from >> f->class_shift & (f->class_count - 1);
    counts->elements[class]++;
    if (from == to)
        return;
    bool down;
    const uint64_t size = distance(f, from, to, &down);
    uint64_t bucket = size - 1;
    if (size > EXACT) {
        const uint32_t length = 64 - (uint32_t)__builtin_clzll(size);
        bucket = EXACT + length - FIRST_LENGTH;
        counts->even_bits += length - 1;
    }
    counts->steps[class].sign[down][bucket]++;
}

/* Always inlined with a constant width. */
static inline void count_elements(compare_counts *counts, const uint8_t *from, const uint8_t *to,
                                  uint64_t bytes, uint32_t width) {
    const form f = counts->form;
    for (uint64_t i = 0; i + width <= bytes; i += width) {
        uint64_t a = 0, b = 0;
        memcpy(&a, from + i, width);
        memcpy(&b, to + i, width);
        if (f.bits == 4) {
            count_element(counts, &f, a & 15, b & 15);
            count_element(counts, &f, a >> 4, b >> 4);
        } else {
            count_element(counts, &f, a, b);
        }
    }
}

void compare_counts_add(compare_counts *counts, const void *from, const void *to, uint64_t bytes) {
    counts->bytes += bytes;
    count_values(counts, from, to, bytes);
    switch (counts->form.bits) {
    case 16:
        count_elements(counts, from, to, bytes, 2);
        break;
    case 32:
        count_elements(counts, from, to, bytes, 4);
        break;
    case 64:
        count_elements(counts, from, to, bytes, 8);
        break;
    default:
        count_elements(counts, from, to, bytes, 1);
        break;
    }
}

static void add_all(uint64_t *to, const uint64_t *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        to[i] += from[i];
}

void compare_counts_merge(compare_counts *counts, const compare_counts *more) {
    counts->bytes += more->bytes;
    counts->bytes_changed += more->bytes_changed;
    counts->even_bits += more->even_bits;
    add_all(counts->values[0], more->values[0], PLANES * VALUES);
    add_all(counts->elements, more->elements, CLASSES);
    for (uint32_t c = 0; c < CLASSES; c++)
        add_all(counts->steps[c].sign[0], more->steps[c].sign[0], 2 * BUCKETS);
}

static uint64_t sum(const uint64_t *counts, uint64_t count) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < count; i++)
        all += counts[i];
    return all;
}

uint64_t compare_counts_elements(const compare_counts *counts) {
    return sum(counts->elements, CLASSES);
}

uint64_t compare_counts_changed(const compare_counts *counts) {
    uint64_t all = 0;
    for (uint32_t c = 0; c < CLASSES; c++)
        all += sum(counts->steps[c].sign[0], 2 * BUCKETS);
    return all;
}

bool compare_counts_same(const compare_counts *counts) {
    return counts->bytes_changed == 0;
}

/* ---- Bits -------------------------------------------------------------------------------------*/

double compare_adaptive_bits(uint64_t a, uint64_t b) {
    if (a == 0 && b == 0)
        return 0;
    const double x = (double)a, y = (double)b;
    int sign;
    return (lgamma_r(x + y + 1, &sign) + log(M_PI) - lgamma_r(x + 0.5, &sign) -
            lgamma_r(y + 0.5, &sign)) /
           M_LN2;
}

static double part_bits(uint64_t count, uint64_t total) {
    return count > 0 ? (double)count * log2((double)total / (double)count) : 0;
}

static double ideal_bits(const uint64_t *counts, uint64_t count) {
    const uint64_t total = sum(counts, count);
    double bits = 0;
    for (uint64_t i = 0; i < count; i++)
        bits += part_bits(counts[i], total);
    return bits;
}

static double ideal_choice(uint64_t a, uint64_t b) {
    return part_bits(a, a + b) + part_bits(b, a + b);
}

/* Values of `levels` bits learnt and coded from the first bit on. */
static double tree_bits(const uint64_t *counts, uint32_t levels) {
    double bits = 0;
    for (uint32_t level = 0; level < levels; level++) {
        const uint64_t half = UINT64_C(1) << (levels - level - 1);
        for (uint64_t at = 0; at < UINT64_C(1) << levels; at += 2 * half)
            bits += compare_adaptive_bits(sum(counts + at, half), sum(counts + at + half, half));
    }
    return bits;
}

static void order0(const compare_counts *counts, compare_bounds *bounds) {
    const uint32_t levels = counts->form.bits == 4 ? 4 : 8;
    for (uint32_t p = 0; p < planes_of(&counts->form); p++) {
        uint64_t values[VALUES];
        memcpy(values, counts->values[p], sizeof values);
        const uint64_t same = values[0], changed = sum(values + 1, VALUES - 1);
        values[0] = 0;
        bounds->order0 += (ideal_choice(same, changed) + ideal_bits(values, VALUES)) / 8;
        bounds->order0_charged +=
            (compare_adaptive_bits(same, changed) + tree_bits(values, levels)) / 8;
    }
}

/* A step: its sign, then one after another "is it more than 1, 2, ... 15", then its length. */
static double learnt_steps(const steps *s) {
    uint64_t sizes[BUCKETS];
    for (uint32_t b = 0; b < BUCKETS; b++)
        sizes[b] = s->sign[0][b] + s->sign[1][b];
    double bits = compare_adaptive_bits(sum(s->sign[0], BUCKETS), sum(s->sign[1], BUCKETS));
    uint64_t left = sum(sizes, BUCKETS);
    for (uint32_t b = 0; b < EXACT; b++) {
        left -= sizes[b];
        bits += compare_adaptive_bits(sizes[b], left);
    }
    return bits + tree_bits(sizes + EXACT, LENGTH_BITS);
}

static void conditional(const compare_counts *counts, compare_bounds *bounds) {
    static const steps none;
    steps all = none;
    uint64_t elements = 0, changed = 0;
    double ideal = 0, flags = 0, sizes = 0;
    for (uint32_t c = 0; c < CLASSES; c++) {
        const steps *s = &counts->steps[c];
        const uint64_t here = sum(s->sign[0], 2 * BUCKETS), same = counts->elements[c] - here;
        ideal += ideal_choice(same, here) + ideal_bits(s->sign[0], 2 * BUCKETS);
        flags += compare_adaptive_bits(same, here);
        sizes += learnt_steps(s);
        add_all(all.sign[0], s->sign[0], 2 * BUCKETS);
        elements += counts->elements[c];
        changed += here;
    }
    const double even = (double)counts->even_bits;
    bounds->conditional = (ideal + even) / 8;
    bounds->conditional_charged = (fmin(flags, compare_adaptive_bits(elements - changed, changed)) +
                                   fmin(sizes, learnt_steps(&all)) + even + 2) /
                                  8;
}

compare_bounds compare_counts_bounds(const compare_counts *counts) {
    compare_bounds bounds = {0, 0, 0, 0};
    if (compare_counts_same(counts))
        return bounds;
    order0(counts, &bounds);
    conditional(counts, &bounds);
    return bounds;
}
