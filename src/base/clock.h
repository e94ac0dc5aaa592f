/* Monotonic time. A deadline is a point in it; XCI_FOREVER never comes. */
#ifndef XCI_CLOCK_H
#define XCI_CLOCK_H

#include <stdint.h>

#define XCI_FOREVER UINT64_MAX

uint64_t xci_now_ns(void);
uint64_t xci_deadline(uint64_t timeout_ms);
/* Milliseconds left, rounded up, for poll(2): 0 when it has passed, at most one minute. */
int xci_deadline_left_ms(uint64_t deadline_ns);

#endif
