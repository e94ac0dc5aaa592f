/* Expected statuses of the public interface; where another came, the library's words for it. */
#ifndef TEST_EXPECT_STATUS_H
#define TEST_EXPECT_STATUS_H

#include "xorcast.h"

/* Fails the test unless `status`, the last of `context` in this thread, is `expected`. */
void check_status(xorcast_context *context, xorcast_status status, xorcast_status expected);
/* The same where only success will do. */
void must(xorcast_context *context, xorcast_status status);

#endif
