/* xorcast fold: consecutive delta files as one, without any weights. */
#include "cli_commands.h"
#include "cli_files.h"
#include "cli_info.h"
#include "cli_progress.h"

#include <stdlib.h>
#include <string.h>

typedef struct fold {
    cli_session *session;
    cli_source *files;
    xorcast_source *sources; /* of the files, as the library wants them */
    int open_count;
    cli_output output;
} fold;

static xorcast_status open_all(fold *f) {
    const cli_options *o = &f->session->options;
    const size_t count = (size_t)o->operand_count;
    f->files = calloc(count, sizeof *f->files);
    f->sources = calloc(count, sizeof *f->sources);
    if (f->files == NULL || f->sources == NULL)
        return cli_fail(f->session, XORCAST_NO_HOST_MEMORY, 0, "no memory for %zu deltas", count);
    for (; f->open_count < o->operand_count; f->open_count++) {
        cli_source *file = &f->files[f->open_count];
        CLI_TRY(cli_source_open(f->session, o->operands[f->open_count], file));
        f->sources[f->open_count] = file->source;
    }
    return cli_output_open(f->session, o->output, o->operands, o->operand_count, &f->output);
}

static xorcast_status write_folded(fold *f, xorcast_delta_info *info_out) {
    const cli_options *o = &f->session->options;
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    cli_progress_begin(f->session, "folding");
    options.encoding = o->encoding;
    options.run = o->run;
    const xorcast_status status =
        xorcast_delta_fold(f->session->context, f->sources, (uint64_t)o->operand_count, &options,
                           &f->output.sink, info_out);
    cli_progress_end(f->session);
    return status == XORCAST_OK ? cli_output_finish(&f->output) : status;
}

xorcast_status cli_fold(cli_session *session) {
    fold f = {.session = session};
    xorcast_delta_info info;
    xorcast_status status = open_all(&f);
    if (status == XORCAST_OK)
        status = write_folded(&f, &info);
    cli_output_abandon(&f.output);
    for (int i = 0; i < f.open_count; i++)
        cli_source_close(&f.files[i]);
    free(f.sources);
    free(f.files);
    if (status == XORCAST_OK)
        cli_info_result(session, strcmp(session->options.output, "-") == 0 ? stderr : stdout,
                        "fold", "folded", &info);
    return status;
}
