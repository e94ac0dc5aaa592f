/* What fuzz targets share: a statement that must hold, and a context that stays. */
#ifndef TEST_FUZZING_H
#define TEST_FUZZING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "xorcast.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static inline void must(bool holds) {
    if (!holds)
        abort();
}

/* One thread, errors only, at most 256 MiB: an input that asks for more is refused. Made once. */
static inline xorcast_context *the_context(void) {
    static xorcast_context *context;
    if (context == NULL) {
        xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
        options.threads = 1;
        options.log_level = XORCAST_LOG_ERROR;
        options.scratch_limit_bytes = UINT64_C(256) << 20;
        must(xorcast_context_create(&options, &context) == XORCAST_OK);
    }
    return context;
}

#endif
