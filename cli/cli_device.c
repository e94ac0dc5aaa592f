/* The machine's GPU: see cli_device.h. */
#include "cli_device.h"

#include "cli_json.h"
#include "cli_words.h"

static const double second = 1e9;

static void line(const char *name) {
    printf("%-12s", name);
}

static cli_words per_second(uint64_t bytes) {
    return cli_rate((double)bytes, second);
}

void cli_device_json(cli_json *json, const xorcast_device *device,
                     const xorcast_device_rates *rates) {
    cli_json_text(json, "backend", device->backend);
    cli_json_signed(json, "number", device->number);
    cli_json_text(json, "name", device->name);
    cli_json_text(json, "architecture", device->architecture);
    cli_json_count(json, "processors", device->processors);
    cli_json_count(json, "driver_version", device->driver_version);
    cli_json_count(json, "memory_bytes", device->memory_bytes);
    cli_json_count(json, "free_bytes", device->free_bytes);
    cli_json_text(json, "pci", device->pci);
    cli_json_text(json, "pci_link", device->pci_link);
    cli_json_bool(json, "decompresses_lz4", (device->decompress_mask & 4) != 0);
    cli_json_count(json, "decompress_mask", device->decompress_mask);
    cli_json_count(json, "decompress_max_bytes", device->decompress_max_bytes);
    cli_json_text(json, "engine", device->engine);
    cli_json_count(json, "to_device_bytes_per_second", rates->to_device);
    cli_json_count(json, "from_device_bytes_per_second", rates->from_device);
    cli_json_count(json, "memory_bytes_per_second", rates->memory);
}

void cli_device_line(const xorcast_device *device, const xorcast_device_rates *rates) {
    printf("GPU %s (%s): memory %s read and written, bus %s to it, %s from it; engine: %s\n",
           device->name, device->architecture, per_second(rates->memory).text,
           per_second(rates->to_device).text, per_second(rates->from_device).text, device->engine);
}

static void print_device(const xorcast_device *device, const xorcast_device_rates *rates) {
    line("device");
    printf("%s %d, %s (%s), %u processors\n", device->backend, device->number, device->name,
           device->architecture, device->processors);
    line("memory");
    printf("%s, %s free; a copy reads and writes %s\n",
           cli_bytes((double)device->memory_bytes).text, cli_bytes((double)device->free_bytes).text,
           per_second(rates->memory).text);
    line("bus");
    printf("%s %s; %s to the device, %s from it\n", device->pci, device->pci_link,
           per_second(rates->to_device).text, per_second(rates->from_device).text);
    line("driver");
    printf("%u.%u\n", device->driver_version / 1000, device->driver_version % 1000 / 10);
    line("engine");
    printf("%s%s\n", device->engine,
           (device->decompress_mask & 4) != 0 ? "; whether it or kernels do is measured at stage"
                                              : ": kernels decode");
}

xorcast_status cli_device(cli_session *session) {
    xorcast_device device;
    xorcast_device_rates rates;
    CLI_TRY(xorcast_context_device(session->context, &device));
    CLI_TRY(xorcast_device_measure(session->context, &rates));
    if (session->options.json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "event", "device");
        cli_device_json(&json, &device, &rates);
        cli_json_end(&json);
    } else if (!session->options.quiet) {
        print_device(&device, &rates);
    }
    return XORCAST_OK;
}
