/* Memory of exactly so many bytes, so that the address sanitizer sees one byte too many. */
#ifndef TEST_EXACT_H
#define TEST_EXACT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* To be freed. Ends the program where there is no memory. */
static inline uint8_t *exact_copy(const void *bytes, size_t count) {
    uint8_t *copy = malloc(count > 0 ? count : 1);
    if (copy == NULL)
        abort();
    if (count > 0)
        memcpy(copy, bytes, count);
    return copy;
}

#endif
