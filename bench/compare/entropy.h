/* Entropy bounds of a step from old to new bytes, tensor by tensor: what an ideal coder would need
 * that knows nothing but counts, and what it needs once it has paid for learning these counts.
 *
 * order 0      Which places changed, and the XOR values there. Places are bytes; byte planes, each
 *              by itself, in elements of 4 or 8 bytes; nibbles where two numbers share a byte (U8,
 *              F4). The ideal figure is the library's own (`xorcast diff --bound`).
 * conditional  Given the old bytes: for each class of elements with the same old exponent, which
 *              of them changed, and by how many steps, up or down. Classes are the exponent of
 *              BF16, F16, F32, F64 (eight exponents to a class) and FP8 E4M3 or E5M2; the code
 *              without its sign of packed E2M1 (U8, F4); one class for everything else. A step is
 *              the difference of the codes without sign, positive away from zero; through zero it
 *              counts the zeros of both signs. Of integers it is their difference. Steps of 16 and
 *              more are counted by their length in bits, and the bits below the first are taken to
 *              be even.
 *
 * ideal        Empirical entropy: the counts are free. Small tensors look better than they are.
 * charged      The same counts learnt on the way: every binary decision costs what the estimator
 *              of Krichevsky and Trofimov makes of it, about half a logarithm of the number of
 *              decisions for each probability. Values are found bit by bit, first bit first; steps
 *              of 1 to 15 one by one. Conditional: the cheaper of one probability of change for
 *              all classes and one for each, the same for steps, and a bit for each choice.
 *
 * Works on memory of the caller and allocates only its counters. Knows nothing of files and of
 * xorcast. */
#ifndef ENTROPY_H
#define ENTROPY_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes, not whole ones. */
typedef struct compare_bounds {
    double order0, order0_charged;
    double conditional, conditional_charged;
} compare_bounds;

typedef struct compare_counts compare_counts;

/* Counters for tensors of one dtype, empty. NULL: no memory. `element_bytes` of a packed dtype
 * is 1. */
compare_counts *compare_counts_new(const char *dtype, uint32_t element_bytes);
void compare_counts_free(compare_counts *counts); /* NULL is allowed */

/* Empties them, for another dtype. */
void compare_counts_begin(compare_counts *counts, const char *dtype, uint32_t element_bytes);
/* Counts `bytes` of a tensor; the bytes of a last element that is not whole are left out of the
 * conditional bound and counted in the other. `from` begins at an element. */
void compare_counts_add(compare_counts *counts, const void *from, const void *to, uint64_t bytes);
/* Adds the counts of `more`, which must be of the same dtype. */
void compare_counts_merge(compare_counts *counts, const compare_counts *more);

uint64_t compare_counts_elements(const compare_counts *counts);
uint64_t compare_counts_changed(const compare_counts *counts); /* elements; a nibble is one */
bool compare_counts_same(const compare_counts *counts);        /* no byte changed */
compare_bounds compare_counts_bounds(const compare_counts *counts);

/* Bits of learning and coding `a` decisions of one kind and `b` of the other. */
double compare_adaptive_bits(uint64_t a, uint64_t b);

#endif
