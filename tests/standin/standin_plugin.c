/* The stand-in device as a plug-in under the name of the real one, libxorcast_cuda.so in a folder
 * of its own: with XORCAST_PLUGIN_PATH, whole programs run on it. XORCAST_TEST_FAIL_CALL=N,
 * XORCAST_TEST_FAIL_MEMORY=N and XORCAST_TEST_FAIL_WORK=N make it fail as fake_device.h says, from
 * when it is loaded. */
#include "support/fake_device.h"

#include "backend/device.h"

#include <stdlib.h>

static void fail_as_asked(const char *name, void (*fail)(int64_t n)) {
    const char *number = getenv(name);
    if (number != NULL)
        fail(strtoll(number, NULL, 10));
}

XORCAST_API const xci_device_ops *xorcast_device_plugin(void);
const xci_device_ops *xorcast_device_plugin(void) {
    static xci_device_ops table;
    table = *fake_device_ops();
    table.name = "cuda";
    fail_as_asked("XORCAST_TEST_FAIL_CALL", fake_device_fail_call);
    fail_as_asked("XORCAST_TEST_FAIL_MEMORY", fake_device_fail_memory);
    fail_as_asked("XORCAST_TEST_FAIL_WORK", fake_device_fail_work);
    return &table;
}
