/* Inside of xorcast bench: weights and changes from a seed, and the bound that reading memory
 * sets. Knows nothing of the library. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <stdint.h>

/* Numbers like those of a model in BF16: small, of both signs. `bytes` is a multiple of 8. */
void cli_bench_fill(void *memory, uint64_t bytes);

/* Steps the last place of some elements, so that about `density` of all bytes change. Returns how
 * many. */
uint64_t cli_bench_change(void *memory, uint64_t bytes, double density, uint64_t seed);

/* Reads both buffers once, compares, writes nothing; nanoseconds, with `threads` threads. 0 if
 * threads cannot be had. */
uint64_t cli_bench_read(const void *a, const void *b, uint64_t bytes, uint32_t threads);

#endif
