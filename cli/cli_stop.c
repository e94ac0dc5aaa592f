/* See cli_stop.h. */
#include "cli_stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REPEAT_NS UINT64_C(1000000000) /* a signal this soon after the first is its echo */

/* The handler may run on any thread; the pipe wakes the one that sleeps. */
static volatile sig_atomic_t stop_wanted; /* the signal's number */
static _Atomic uint64_t first_ns; /* when the first signal came; 0: none yet */
static int stop_pipe[2] = {-1, -1};

static void on_signal(int number) {
    const int saved = errno;
    const uint64_t now = cli_now_ns();
    uint64_t first = 0;
    if (!atomic_compare_exchange_strong(&first_ns, &first, now) && now >= first + REPEAT_NS) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this handler returns */
    }
    stop_wanted = number;
    if (write(stop_pipe[1], "", 1) < 0)
        errno = 0; /* the flag is set all the same */
    errno = saved;
}

static bool catch_signal(int number, bool even_ignored) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, present;
    sigemptyset(&action.sa_mask);
    return sigaction(number, NULL, &present) == 0 &&
           ((present.sa_handler == SIG_IGN && !even_ignored) ||
            sigaction(number, &action, NULL) == 0);
}

static xorcast_status catch_signals(cli_session *session, bool to_end) {
    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) != 0 || !catch_signal(SIGINT, !to_end) ||
        !catch_signal(SIGTERM, !to_end) || (to_end && !catch_signal(SIGHUP, false)))
        return cli_fail(session, XORCAST_INTERNAL, errno, "signals cannot be caught");
    session->signals_call_off = to_end;
    return XORCAST_OK;
}

xorcast_status cli_stop_catch(cli_session *session) {
    return catch_signals(session, false);
}

xorcast_status cli_stop_catch_to_end(cli_session *session) {
    return catch_signals(session, true);
}

void cli_stop_end(const cli_session *session) {
    const int number = stop_wanted;
    if (!session->signals_call_off || number == 0)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

bool cli_stop_is_caught(void) {
    return stop_pipe[0] >= 0;
}

bool cli_stop_wanted(void) {
    return stop_wanted != 0;
}

xorcast_status cli_stop_check(cli_session *session) {
    if (stop_wanted)
        return cli_fail(session, XORCAST_CANCELLED, 0,
                        "stopped by a signal; what was done is whole");
    return XORCAST_OK;
}

void cli_sleep_ms(uint64_t ms) {
    const uint64_t end = cli_now_ns() + ms * 1000000;
    for (uint64_t now = cli_now_ns(); now < end && !stop_wanted; now = cli_now_ns()) {
        struct pollfd wake = {.fd = stop_pipe[0], .events = POLLIN};
        const uint64_t left = (end - now + 999999) / 1000000;
        if (poll(&wake, 1, left > 60000 ? 60000 : (int)left) < 0 && errno != EINTR)
            return;
    }
}

uint64_t cli_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
