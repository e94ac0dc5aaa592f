/* What benchmarks share: a clock, medians, sizes in words, the bound that reading memory sets, and
 * one JSON object a row. Owns no state but the row that is being printed. Knows nothing of
 * xorcast. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdbool.h>
#include <stdint.h>

double measure_now(void); /* seconds */

/* "7000000", "512k", "7m", "4g": powers of 1000. False if it is none. */
bool measure_size(const char *text, uint64_t *bytes_out);

/* Sorts `values` and returns the middle one. */
double measure_median(double *values, uint64_t count);

uint64_t measure_last_level_cache_bytes(void);
uint32_t measure_cpus(void);            /* that this process may use */
uint64_t measure_available_bytes(void); /* memory that can be had without swapping */

/* `bytes` of zeros on huge pages where the system gives them; NULL if there is no memory. */
void *measure_allocate(uint64_t bytes);
void measure_free(void *memory, uint64_t bytes);

/* Reads `bytes` of both buffers once with `threads` threads and compares them, the way the fastest
 * of a few plain loops does. Returns seconds. The bound of every diff: same memory, no other
 * work. */
double measure_two_stream_read(const void *a, const void *b, uint64_t bytes, uint32_t threads);

/* A row: measure_row("name") ... measure_row_end() prints {"row":"name","machine":...} in one
 * line. */
void measure_row(const char *name, int argc, char **argv);
void measure_text(const char *key, const char *value);
void measure_number(const char *key, double value);
void measure_count(const char *key, uint64_t value);
void measure_row_end(void);

#endif
