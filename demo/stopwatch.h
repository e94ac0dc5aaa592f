/* Time that only goes forward, in nanoseconds. */
#ifndef DEMO_STOPWATCH_H
#define DEMO_STOPWATCH_H

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

#endif
