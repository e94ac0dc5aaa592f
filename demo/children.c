/* Starting, watching and ending sampler processes. */
#include "children.h"

#include "stopwatch.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SELF "/proc/self/exe"

extern char **environ;

static int spawn(pid_t *process, int socket, char *const *arguments) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawn_file_actions_adddup2(&actions, socket, CHILD_SOCKET);
    if (error == 0)
        error = posix_spawn(process, SELF, &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

bool child_start(child *sampler, const settings *run, uint64_t index, const char *url) {
    int ends[2];
    sampler->process = 0;
    sampler->socket = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        (void)fprintf(stderr, "demo: no socket pair for sampler %llu: %s\n",
                      (unsigned long long)index, strerror(errno));
        return false;
    }
    char name[32];
    char seed[32];
    char address[128];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)index);
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)run->seed);
    (void)snprintf(address, sizeof address, "%s", url);
    char format[8];
    (void)snprintf(format, sizeof format, "%s", export_format_name(run->format));
    char program[] = "xorcast-demo";
    char role[] = "--sampler";
    char seed_option[] = "--seed";
    char format_option[] = "--dtype";
    char url_option[] = "--url";
    char backend_option[] = "--backend";
    char backend[8];
    (void)snprintf(backend, sizeof backend, "%s", run->backend);
    char *const arguments[] = {program, role,       name,    seed_option,    seed,    format_option,
                               format,  url_option, address, backend_option, backend, NULL};
    const int error = spawn(&sampler->process, ends[1], arguments);
    (void)close(ends[1]);
    if (error != 0) {
        (void)close(ends[0]);
        sampler->process = 0;
        (void)fprintf(stderr, "demo: sampler %s could not be started: %s\n", name, strerror(error));
        return false;
    }
    sampler->socket = ends[0];
    return true;
}

static void forget(child *sampler) {
    if (sampler->socket >= 0)
        (void)close(sampler->socket);
    sampler->socket = -1;
    sampler->process = 0;
}

bool child_reap(child *sampler, char *how, size_t how_bytes) {
    const uint64_t deadline = now_ns() + DEADLINE_MS * UINT64_C(1000000);
    const struct timespec moment = {0, 1000000};
    int status = 0;
    pid_t found = 0;
    while ((found = waitpid(sampler->process, &status, WNOHANG)) == 0 && now_ns() < deadline)
        (void)nanosleep(&moment, NULL);
    if (found == 0) {
        child_kill(sampler);
        (void)snprintf(how, how_bytes, "did not end and was killed");
        return false;
    }
    forget(sampler);
    if (found > 0 && WIFSIGNALED(status))
        (void)snprintf(how, how_bytes, "was ended by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        (void)snprintf(how, how_bytes, "ended with code %d", WEXITSTATUS(status));
    return found > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void child_kill(child *sampler) {
    if (sampler->process > 0) {
        (void)kill(sampler->process, SIGKILL);
        (void)waitpid(sampler->process, NULL, 0);
    }
    forget(sampler);
}
