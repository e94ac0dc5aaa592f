/* Monotonic time and deadlines. */
#include "base/clock.h"

#include <time.h>

uint64_t xci_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t xci_deadline(uint64_t timeout_ms) {
    const uint64_t now = xci_now_ns();
    return timeout_ms > (XCI_FOREVER - now) / 1000000 ? XCI_FOREVER : now + timeout_ms * 1000000;
}

int xci_deadline_left_ms(uint64_t deadline_ns) {
    const uint64_t now = xci_now_ns();
    if (now >= deadline_ns)
        return 0;
    const uint64_t left_ms = (deadline_ns - now - 1) / 1000000 + 1;
    return left_ms > 60000 ? 60000 : (int)left_ms;
}
