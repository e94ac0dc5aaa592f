/* See cli_files.h. */
#include "cli_files.h"

#include "cli_stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ----------------------------------------------------------------------------------*/

static int read_piece(void *user, uint64_t offset, void *buffer, uint64_t count) {
    const cli_source *source = user;
    for (uint64_t done = 0; done < count;) {
        const ssize_t got =
            pread(source->fd, (char *)buffer + done, count - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : ENODATA; /* the file has become shorter */
        done += (uint64_t)got;
    }
    return 0;
}

xorcast_status cli_source_open(cli_session *session, const char *path, cli_source *source) {
    struct stat facts;
    memset(source, 0, sizeof *source);
    /* A pipe must not hang the command before it is seen that it is no file. */
    source->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (source->fd < 0)
        return cli_fail_os(session, errno, "open the delta", path);
    if (fstat(source->fd, &facts) != 0)
        facts.st_mode = 0;
    if (!S_ISREG(facts.st_mode)) {
        cli_source_close(source);
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.400s is %s; a delta is one regular file", path,
                        S_ISDIR(facts.st_mode) ? "a directory" : "no regular file");
    }
    source->source = (xorcast_source){
        .size = (uint64_t)facts.st_size, .read = read_piece, .user = source, .name = path};
    return XORCAST_OK;
}

void cli_source_close(cli_source *source) {
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
}

/* ---- Writing ----------------------------------------------------------------------------------*/

/* What a signal must remove. One output is open at a time. */
static char *volatile unfinished_file;

static void on_signal(int number) {
    if (unfinished_file != NULL)
        unlink(unfinished_file);
    raise(number); /* the handler is gone: this ends the process as the signal would have */
}

static void catch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    struct sigaction present;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &present) == 0 && present.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
}

static int write_piece(void *user, const void *bytes, uint64_t count) {
    const cli_output *output = user;
    for (uint64_t done = 0; done < count;) {
        const ssize_t put = write(output->fd, (const char *)bytes + done, count - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return errno;
        done += (uint64_t)put;
    }
    return 0;
}

bool cli_same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

static void forget_unfinished(cli_output *output) {
    unfinished_file = NULL;
    free(output->unfinished);
    output->unfinished = NULL;
}

/* The name is chosen here and known to the handlers before the file is there: no signal can come in
 * between. */
static xorcast_status open_unfinished(cli_output *output) {
    cli_session *session = output->session;
    if (asprintf(&output->unfinished, "%s.%ld-%llx", output->path, (long)getpid(),
                 (unsigned long long)cli_now_ns()) < 0) {
        output->unfinished = NULL;
        return cli_fail(session, XORCAST_NO_HOST_MEMORY, 0, "no memory for a file name");
    }
    unfinished_file = output->unfinished;
    if (!cli_stop_is_caught())
        catch_signals();
    output->fd = open(output->unfinished, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output->fd >= 0)
        return XORCAST_OK;
    const int error = errno;
    forget_unfinished(output);
    return cli_fail_os(session, error, "create", output->path);
}

/* To be freed; NULL if there is no memory. */
static char *parent_of(const char *path) {
    char *parent = strdup(path);
    for (size_t end = parent == NULL ? 0 : strlen(parent); end > 1 && parent[end - 1] == '/'; end--)
        parent[end - 1] = '\0';
    char *slash = parent == NULL ? NULL : strrchr(parent, '/');
    if (slash == NULL) {
        free(parent);
        return strdup(".");
    }
    slash[slash == parent ? 1 : 0] = '\0';
    return parent;
}

xorcast_status cli_output_place(cli_session *session, const char *path) {
    struct stat facts;
    char *parent = parent_of(path);
    xorcast_status status = XORCAST_OK;
    if (parent != NULL && stat(parent, &facts) != 0 && (errno == ENOENT || errno == ENOTDIR))
        status = cli_fail_os(session, errno, "write into", parent);
    free(parent);
    return status;
}

/* A file in the directory of a checkpoint would become a part of it. */
static bool is_input(const char *path, char *const *inputs, int input_count) {
    char *parent = parent_of(path);
    bool found = false;
    for (int i = 0; i < input_count && !found; i++)
        found =
            cli_same_file(path, inputs[i]) || (parent != NULL && cli_same_file(parent, inputs[i]));
    free(parent);
    return found;
}

xorcast_status cli_output_open(cli_session *session, const char *path, char *const *inputs,
                               int input_count, cli_output *output) {
    struct stat facts;
    *output =
        (cli_output){.session = session, .path = path, .fd = -1, .sink = {write_piece, output}};
    if (path == NULL)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "-o is missing: say where the delta is to be written");
    if (strcmp(path, "-") == 0) {
        output->fd = STDOUT_FILENO;
        if (isatty(STDOUT_FILENO) == 1)
            return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                            "a delta on a terminal helps nobody; send it to a file or a pipe");
        return XORCAST_OK;
    }
    if (is_input(path, inputs, input_count))
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.400s is, or lies in, what this command reads; choose another output",
                        path);
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.400s exists and is no file; choose another output", path);
    return open_unfinished(output);
}

/* The name is on disk only when its directory is. */
static int sync_parent(const char *path) {
    char *parent = parent_of(path);
    if (parent == NULL)
        return ENOMEM;
    const int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    if (fd < 0)
        return errno;
    const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    return error;
}

xorcast_status cli_output_finish(cli_output *output) {
    int error = 0;
    if (output->unfinished == NULL)
        return XORCAST_OK;
    if (fsync(output->fd) != 0 && errno != EINVAL)
        error = errno;
    if (close(output->fd) != 0 && error == 0)
        error = errno;
    output->fd = -1;
    if (error == 0 && rename(output->unfinished, output->path) != 0)
        error = errno;
    if (error == 0) {
        forget_unfinished(output);
        error = sync_parent(output->path);
    }
    cli_output_abandon(output);
    if (error != 0)
        return cli_fail_os(output->session, error, "finish", output->path);
    return XORCAST_OK;
}

void cli_output_abandon(cli_output *output) {
    if (output->unfinished == NULL)
        return;
    if (output->fd >= 0)
        close(output->fd);
    unlink(output->unfinished);
    forget_unfinished(output);
    output->fd = -1;
}
