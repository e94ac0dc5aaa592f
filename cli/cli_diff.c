/* xorcast diff: the delta between two checkpoints on disk, as a file. */
#include "cli_commands.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_progress.h"

#include <string.h>

xorcast_status cli_diff(cli_session *session) {
    const cli_options *o = &session->options;
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    xorcast_delta_info info;
    cli_output output;
    CLI_TRY(cli_output_open(session, o->output, o->operands, o->operand_count, &output));
    cli_progress_begin(session, "comparing");
    options.measure_bound = o->bound;
    options.encoding = o->encoding;
    options.run = o->run;
    options.base_step = o->base_step;
    options.target_step = o->target_step;
    xorcast_status status = xorcast_checkpoint_diff(session->context, o->operands[0],
                                                    o->operands[1], &options, &output.sink, &info);
    cli_progress_end(session);
    if (status == XORCAST_OK)
        status = cli_output_finish(&output);
    cli_output_abandon(&output);
    if (status == XORCAST_OK)
        cli_info_result(session, strcmp(o->output, "-") == 0 ? stderr : stdout, "diff", "compared",
                        &info);
    return status;
}
