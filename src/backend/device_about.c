/* What a context's device is, for people and for choosing: xorcast_context_device. What the bus
 * gives is read where the kernel says it, because device toolkits do not. */
#include <stdio.h>
#include <string.h>

#include "backend/device.h"

/* The first line of a file of the device's folder in sysfs; empty if there is none. */
static void read_line(const char *pci, const char *name, char *line, size_t bytes) {
    char path[128];
    line[0] = 0;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", pci, name);
    for (char *c = path; *c != 0; c++) /* toolkits write the bus in capitals */
        if (*c >= 'A' && *c <= 'F')
            *c = (char)(*c - 'A' + 'a');
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(line, (int)bytes, file) == NULL)
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    fclose(file);
}

static void describe_link(const char *pci, char *link, size_t bytes) {
    char speed[24], width[8];
    read_line(pci, "current_link_speed", speed, sizeof speed);
    read_line(pci, "current_link_width", width, sizeof width);
    link[0] = 0;
    if (speed[0] != 0 && width[0] != 0)
        snprintf(link, bytes, "%s x%s", speed, width);
}

bool xci_engine_words(const xci_device_about *about, char *words, size_t bytes) {
    if (about->driver_version < XCI_ENGINE_DRIVER)
        snprintf(words, bytes, "not asked for: driver %u.%u is older than %u.%u",
                 about->driver_version / 1000, about->driver_version % 1000 / 10,
                 XCI_ENGINE_DRIVER / 1000, XCI_ENGINE_DRIVER % 1000 / 10);
    else if (about->decompress_mask == 0)
        snprintf(words, bytes, "this GPU has none");
    else if ((about->decompress_mask & XCI_DECOMPRESS_LZ4) == 0)
        snprintf(words, bytes, "it does not decode LZ4 (mask %u)", about->decompress_mask);
    else
        snprintf(words, bytes, "decodes LZ4, up to %llu bytes at once",
                 (unsigned long long)about->decompress_max_bytes);
    return about->driver_version >= XCI_ENGINE_DRIVER &&
           (about->decompress_mask & XCI_DECOMPRESS_LZ4) != 0;
}

xorcast_status xorcast_context_device(xorcast_context *context, xorcast_device *device_out) {
    xci_device_about about;
    TRY(xci_device_open(context));
    const xci_device *device = context->shared->device;
    XCI_DEVICE(context, "say what it is", device->ops->describe(device->handle, &about));
    xorcast_device found = {.number = device->ordinal,
                            .processors = about.processors,
                            .driver_version = about.driver_version,
                            .memory_bytes = about.memory_bytes,
                            .free_bytes = about.free_bytes,
                            .decompress_mask = about.decompress_mask,
                            .decompress_max_bytes = about.decompress_max_bytes};
    snprintf(found.backend, sizeof found.backend, "%s", device->ops->name);
    snprintf(found.name, sizeof found.name, "%s", about.name);
    snprintf(found.architecture, sizeof found.architecture, "%s", about.architecture);
    snprintf(found.pci, sizeof found.pci, "%s", about.pci);
    (void)xci_engine_words(&about, found.engine, sizeof found.engine);
    describe_link(about.pci, found.pci_link, sizeof found.pci_link);
    *device_out = found;
    return XORCAST_OK;
}
