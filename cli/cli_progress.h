/* A progress bar on standard error, only if that is a terminal and nobody asked for quiet or JSON.
 * Owns one line of the terminal until it is ended. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdatomic.h>

#include "cli_session.h"

typedef struct cli_progress {
    bool shown;
    const char *label;
    uint64_t start_ns;
    _Atomic uint64_t next_ns; /* when to draw again */
    _Atomic bool drawn;
} cli_progress;

void cli_progress_begin(cli_progress *progress, const cli_session *session, const char *label);
/* As the progress call of xorcast_delta_options, `user` being the cli_progress: from any thread. */
void cli_progress_update(void *user, uint64_t done_bytes, uint64_t total_bytes);
/* Clears the line. */
void cli_progress_end(cli_progress *progress);

#endif
