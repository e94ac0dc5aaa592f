/* A progress bar on standard error, only if that is a terminal and nobody asked for quiet or JSON.
 * Owns one line of the terminal from the first drawing until it is ended. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli_session.h"

void cli_progress_begin(cli_session *session, const char *label);
/* The context's progress call, `user` being the session: draws what was begun. Calls the work off
 * once a signal has come, if the session's command wants that. */
int cli_progress_update(void *user, uint64_t done_bytes, uint64_t total_bytes);
/* Clears the line. */
void cli_progress_end(cli_session *session);

#endif
