/* The stand-in device as a plug-in under the name of the real one, libxorcast_cuda.so in a folder
 * of its own: with XORCAST_PLUGIN_PATH, whole programs run on it. */
#include "support/fake_device.h"

#include "backend/device.h"

XORCAST_API const xci_device_ops *xorcast_device_plugin(void);
const xci_device_ops *xorcast_device_plugin(void) {
    static xci_device_ops table;
    table = *fake_device_ops();
    table.name = "cuda";
    return &table;
}
