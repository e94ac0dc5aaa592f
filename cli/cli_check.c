/* xorcast check: would this delta apply to this checkpoint? Reads both whole, changes nothing. */
#include "cli_commands.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_progress.h"

xorcast_status cli_check(cli_session *session) {
    const cli_options *o = &session->options;
    xorcast_delta_info info;
    cli_source source;
    CLI_TRY(cli_source_open(session, o->operands[1], &source));
    cli_progress_begin(session, "checking");
    const xorcast_status status =
        xorcast_checkpoint_check(session->context, o->operands[0], &source.source, &info);
    cli_progress_end(session);
    cli_source_close(&source);
    if (status == XORCAST_OK)
        cli_info_applied(session, "check", "good, it applies", o->operands[0], &info);
    return status;
}
