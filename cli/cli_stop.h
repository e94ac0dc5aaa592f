/* SIGINT and SIGTERM as a question instead of an end, for commands that have something to finish,
 * publish and follow, or to remove, apply. A second signal ends the process, but not within a
 * second of the first: a wrapper such as timeout signals the child and its group, which is one
 * wish. Owns the handlers of these two signals, and of SIGHUP where something is removed. */
#ifndef CLI_STOP_H
#define CLI_STOP_H

#include <stdbool.h>
#include <stdint.h>

#include "cli_session.h"

xorcast_status cli_stop_catch(cli_session *session);
/* The same for a command that a signal ends: calls of the library are called off, and signals that
 * are ignored stay so. */
xorcast_status cli_stop_catch_to_end(cli_session *session);
/* Ends the process as the signal would have that was caught to end it, if one came. */
void cli_stop_end(const cli_session *session);
bool cli_stop_is_caught(void);
bool cli_stop_wanted(void);
/* CANCELLED once a signal has come, else OK. */
xorcast_status cli_stop_check(cli_session *session);
/* Sleeps; less when a signal comes. */
void cli_sleep_ms(uint64_t ms);
uint64_t cli_now_ns(void);

#endif
