/* xorcast apply: the checkpoint that a delta leads to, over the old one or elsewhere. */
#include "cli_commands.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_progress.h"
#include "cli_stop.h"

xorcast_status cli_apply(cli_session *session) {
    const cli_options *o = &session->options;
    const char *checkpoint = o->operands[0], *delta = o->operands[1];
    xorcast_delta_info info;
    cli_source source;
    if (o->output != NULL && cli_same_file(o->output, delta))
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.400s is the delta that is read; choose another output", o->output);
    CLI_TRY(cli_stop_catch_to_end(session));
    CLI_TRY(cli_source_open(session, delta, &source));
    cli_progress_begin(session, "applying");
    const xorcast_status status =
        xorcast_checkpoint_apply(session->context, checkpoint, &source.source, o->output, &info);
    cli_progress_end(session);
    cli_source_close(&source);
    /* Who waits for another process is not asked: the signal came, whatever ended the wait. */
    if (status == XORCAST_CANCELLED || (status == XORCAST_TIMED_OUT && cli_stop_wanted()))
        return cli_fail(session, XORCAST_CANCELLED, 0, "stopped by a signal; nothing was changed");
    if (status == XORCAST_OK)
        cli_info_applied(session, "apply", "applied",
                         info.already == XORCAST_ALREADY_COPIED || o->output == NULL ? checkpoint
                                                                                     : o->output,
                         &info);
    return status;
}
