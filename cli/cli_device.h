/* What this machine's GPU is and can do, in words and as JSON: for inspect --device and bench. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include "cli_session.h"

/* inspect --device: describes the GPU and measures its rates. */
xorcast_status cli_device(cli_session *session);

/* Fields of the device, or of why there is none, into an object that is open. */
void cli_device_json(cli_json *json, const xorcast_device *device,
                     const xorcast_device_rates *rates);

/* One line: its name, memory rate, bus rates, engine. */
void cli_device_line(const xorcast_device *device, const xorcast_device_rates *rates);

#endif
