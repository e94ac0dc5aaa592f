/* One run of the tool: the command, what was asked of it, the library's context, and what went
 * wrong.
 *
 * Commands return a status. Whoever knows a failure of the tool's own records it with cli_fail;
 * the library records its own. cli_main.c reports whichever it was, once, and makes the exit
 * code. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli_json.h"
#include "cli_options.h"

/* What cli_progress.c draws. */
typedef struct cli_bar {
    const char *label;          /* NULL: nothing is shown */
    uint64_t start_ns, next_ns; /* when to draw again */
    bool drawn;
} cli_bar;

typedef struct cli_session {
    const char *command;
    cli_options options;
    xorcast_context *context;
    xorcast_error failure; /* of the tool itself; status OK: none */
    cli_bar bar;
    bool signals_call_off; /* a signal ends what the library does, then the process */
} cli_session;

#define CLI_TRY(call)                                                                              \
    do {                                                                                           \
        const xorcast_status cli_try_ = (call);                                                    \
        if (cli_try_ < 0)                                                                          \
            return cli_try_;                                                                       \
    } while (0)

/* Records a failure of the tool and returns `status`. */
xorcast_status cli_fail(cli_session *session, xorcast_status status, int os_error,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same for what the system refused: "cannot VERB PATH", NOT_FOUND, NO_PERMISSION or
 * IO_FAILED. */
xorcast_status cli_fail_os(cli_session *session, int os_error, const char *verb, const char *path);

/* BAD_ARGUMENT for a URL that only this process could open. */
xorcast_status cli_refuse_inproc(cli_session *session, const char *url);

/* A line for people, or {"log":{...}}, on standard error; from any thread. */
void cli_log(const cli_session *session, const char *level, const char *text);
/* The same at level "warning", unless the command is to be quiet. */
void cli_warn(const cli_session *session, const char *text);

/* The words that xorcast_status_remedy gives, and what each means whatever the cause. */
typedef struct cli_remedy {
    const char *word, *text;
} cli_remedy;
enum { CLI_REMEDIES = 10 };
extern const cli_remedy cli_remedies[CLI_REMEDIES];

/* The failure that ended a call, wherever it was recorded. */
xorcast_error cli_failure(cli_session *session, xorcast_status status);

/* Prints it to standard error, for people or as {"error":{...}}: its text, which says what to do
 * where that is not plain, then the status. */
void cli_report(cli_session *session, xorcast_status status);

#endif
