/* Expected statuses: see expect_status.h. */
#include "support/expect_status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void check_status(xorcast_context *context, xorcast_status status, xorcast_status expected) {
    xorcast_error error;
    xorcast_last_error(context, &error);
    if (status != expected)
        print_message("%s: %s\n", xorcast_status_name(status), error.text);
    assert_int_equal(status, expected);
}

void must(xorcast_context *context, xorcast_status status) {
    check_status(context, status, XORCAST_OK);
}
