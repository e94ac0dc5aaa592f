/* The commands, each in a file of its own. They print their results and return a status; a failure
 * is printed by cli_main.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli_session.h"

xorcast_status cli_diff(cli_session *session);
xorcast_status cli_apply(cli_session *session);
xorcast_status cli_check(cli_session *session);
xorcast_status cli_inspect(cli_session *session);
xorcast_status cli_fold(cli_session *session);
xorcast_status cli_publish(cli_session *session);
xorcast_status cli_follow(cli_session *session);
xorcast_status cli_bench(cli_session *session);
xorcast_status cli_bench_codecs(cli_session *session);

#endif
