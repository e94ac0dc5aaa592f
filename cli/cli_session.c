/* See cli_session.h. */
#include "cli_session.h"

#include "cli_words.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

const cli_remedy cli_remedies[CLI_REMEDIES] = {
    {"FIX", "correct the command or what it names"},
    {"RETRY", "try again later, or with more memory, room or time"},
    {"REFETCH", "fetch or make again what the error names"},
    {"UPGRADE", "use the newest xorcast on both sides"},
    {"REFUSE", "do not use these bytes"},
    {"KEYFRAME", "use the right checkpoint, or fetch the weights whole"},
    {"RESTART", "restart the process"},
    {"FINISH_OR_UNDO", "run the command again: it finishes or undoes the change"},
    {"REPAIR", "fetch the weights whole"},
    {"REPORT", "report this defect"},
};

xorcast_status cli_fail(cli_session *session, xorcast_status status, int os_error,
                        const char *format, ...) {
    xorcast_error *failure = &session->failure;
    *failure = (xorcast_error){.status = status,
                               .os_error = os_error,
                               .tensor = XORCAST_NO_INDEX,
                               .chunk = XORCAST_NO_INDEX};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    return status;
}

xorcast_status cli_fail_os(cli_session *session, int os_error, const char *verb, const char *path) {
    const bool absent =
        os_error == ENOENT || os_error == ENOTDIR || os_error == ENAMETOOLONG || os_error == ELOOP;
    const bool forbidden = os_error == EACCES || os_error == EPERM || os_error == EROFS;
    return cli_fail(session,
                    absent      ? XORCAST_NOT_FOUND
                    : forbidden ? XORCAST_NO_PERMISSION
                                : XORCAST_IO_FAILED,
                    os_error, "cannot %s %.400s: %s%s", verb, path, strerror(os_error),
                    forbidden ? "; let this user, or choose another place" : "");
}

xorcast_status cli_refuse_inproc(cli_session *session, const char *url) {
    if (strncmp(url, "inproc:", 7) == 0)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.200s is within one process, no other can reach it; give tcp:HOST:PORT",
                        url);
    return XORCAST_OK;
}

xorcast_error cli_failure(cli_session *session, xorcast_status status) {
    xorcast_error error = session->failure;
    if (error.status != status && session->context != NULL)
        xorcast_last_error(session->context, &error);
    if (error.status != status) {
        error = (xorcast_error){
            .status = status, .tensor = XORCAST_NO_INDEX, .chunk = XORCAST_NO_INDEX};
        snprintf(error.text, sizeof error.text, "%s", xorcast_status_text(status));
    }
    return error;
}

/* Standard error is for machines too, if standard output is. */
void cli_log(const cli_session *session, const char *level, const char *text) {
    flockfile(stderr);
    if (session->options.json) {
        cli_json json = cli_json_begin(stderr);
        cli_json_open(&json, "log");
        cli_json_text(&json, "level", level);
        cli_json_text(&json, "text", text);
        cli_json_close(&json);
        cli_json_end(&json);
    } else {
        fprintf(stderr, "xorcast: %s: ", level);
        cli_put_plain(stderr, text);
        fputc('\n', stderr);
    }
    funlockfile(stderr);
}

void cli_warn(const cli_session *session, const char *text) {
    if (!session->options.quiet)
        cli_log(session, "warning", text);
}

static void put_index(cli_json *json, const char *key, uint64_t index) {
    if (index == XORCAST_NO_INDEX)
        cli_json_null(json, key);
    else
        cli_json_count(json, key, index);
}

static void report_json(const xorcast_error *error) {
    cli_json json = cli_json_begin(stderr);
    cli_json_open(&json, "error");
    cli_json_text(&json, "status", xorcast_status_name(error->status));
    cli_json_signed(&json, "code", error->status);
    cli_json_signed(&json, "exit_code", xorcast_status_exit_code(error->status));
    cli_json_text(&json, "remedy", xorcast_status_remedy(error->status));
    cli_json_text(&json, "text", error->text);
    put_index(&json, "tensor", error->tensor);
    put_index(&json, "chunk", error->chunk);
    if (error->os_error == 0)
        cli_json_null(&json, "os_error");
    else
        cli_json_signed(&json, "os_error", error->os_error);
    cli_json_close(&json);
    cli_json_end(&json);
}

void cli_report(cli_session *session, xorcast_status status) {
    const xorcast_error error = cli_failure(session, status);
    if (session->options.json) {
        report_json(&error);
        return;
    }
    const char *space = session->command[0] == '\0' ? "" : " ";
    fprintf(stderr, "xorcast%s%s: ", space, session->command);
    cli_put_plain(stderr, error.text);
    if (error.os_error != 0 && strstr(error.text, strerror(error.os_error)) == NULL)
        fprintf(stderr, " (%s)", strerror(error.os_error));
    fputc('\n', stderr);
    if (status == XORCAST_BAD_ARGUMENT || status == XORCAST_CANCELLED)
        return; /* the text says it all */
    /* What to do depends on more than the status: the text says it, where the cause is known. */
    fprintf(stderr, "xorcast%s%s: %s (exit code %d): %s\n", space, session->command,
            xorcast_status_name(status), xorcast_status_exit_code(status),
            xorcast_status_text(status));
}
