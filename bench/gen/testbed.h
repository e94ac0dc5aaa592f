/* A plan's tensors in memory, as a xorcast bundle, for benchmarks that go through the public API.
 * Owns nothing that it returns. A failure ends the program with the library's own words: a
 * benchmark has nothing to clean up and must not report half a row. */
#ifndef TESTBED_H
#define TESTBED_H

#include "gen/gen.h"
#include "xorcast.h"

/* Ends the program unless the status is OK. */
void testbed_must(xorcast_context *context, xorcast_status status, const char *what);

xorcast_context *testbed_context(uint32_t threads);

/* Where each tensor lies in one block of memory, at multiples of 64, and the size of the block. */
uint64_t *testbed_offsets(const gen_plan *plan, uint64_t *bytes_out);

/* Adds one tensor at `data` to an unsealed bundle. */
void testbed_add(xorcast_context *context, xorcast_bundle *bundle, const gen_tensor *tensor,
                 uint8_t *data);

/* A bundle over such a block, not sealed yet. */
xorcast_bundle *testbed_bundle(xorcast_context *context, const gen_plan *plan,
                               const uint64_t *offsets, uint8_t *memory);

/* The weights at step 0; and the step from step - 1 to `step`, with the bytes that it changed. */
void testbed_fill(const gen_run *run, const uint64_t *offsets, uint8_t *memory);
uint64_t testbed_advance(const gen_run *run, const uint64_t *offsets, uint64_t step,
                         uint8_t *memory);

/* A number from an options list that measure_size understands, or the end of the program. */
uint64_t testbed_size(const char *text);

#endif
