/* The stand-in device as a plug-in, libxorcast_fake.so: for programs that know the library from
 * outside, as the tool with --backend fake. */
#include "support/fake_inside.h"

/* What the library looks for (backend/plugin.c). */
XORCAST_API const xci_device_ops *xorcast_device_plugin(void);
const xci_device_ops *xorcast_device_plugin(void) {
    return fake_table();
}
