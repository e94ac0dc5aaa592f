/* Delta files: read in pieces with pread, written under another name and renamed when whole. Owns
 * the descriptors and the unfinished file, which goes away on failure and on signals that end the
 * tool. Does not know what is in a delta; checkpoints are the library's to read and write. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "cli_session.h"

typedef struct cli_source {
    int fd;
    xorcast_source source; /* what the library reads through; valid where this struct stands */
} cli_source;

/* Opens a delta, which failures call by `path`. NOT_FOUND, NO_PERMISSION, IO_FAILED; BAD_ARGUMENT
 * if it is no regular file. */
xorcast_status cli_source_open(cli_session *session, const char *path, cli_source *source);
void cli_source_close(cli_source *source);

typedef struct cli_output {
    cli_session *session;
    const char *path; /* "-": standard output */
    char *unfinished; /* the name until it is whole; NULL for standard output */
    int fd;
    xorcast_sink sink; /* what the library writes through; valid where this struct stands */
} cli_output;

/* Starts writing `path`, which must be none of the `inputs` nor in one of them, and no terminal
 * if it is "-". */
xorcast_status cli_output_open(cli_session *session, const char *path, char *const *inputs,
                               int input_count, cli_output *output);
/* Puts the file in its place, whole and on disk. The output is closed in any case. */
xorcast_status cli_output_finish(cli_output *output);
/* Removes what was written. Nothing to do after finish. */
void cli_output_abandon(cli_output *output);

/* Is there a directory for `path` to be made in? NOT_FOUND that names it; of a parent that cannot
 * be looked at, whoever writes there says what is wrong. */
xorcast_status cli_output_place(cli_session *session, const char *path);

/* Are both the same existing file? */
bool cli_same_file(const char *a, const char *b);

#endif
