/* The publisher's end of the TCP link: a listening socket and one thread that serves all peers.
 *
 *     epoll: listener, wake-up, one socket a session      -> mark what can go on
 *     every session that can go on or whose time has come -> work, or close it
 *
 * Sockets are edge-triggered and never waited for, so one peer cannot hold up another; only `serve`
 * can hold up all of them. Owns the thread, the sockets and the store; sessions own what belongs to
 * one peer. Does not know what a peer asks (tcp_session.c). */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "ship/tcp/tcp.h"
#include "ship/tcp/tcp_address.h"
#include "ship/tcp/tcp_session.h"

#define BACKLOG 128
#define EVENTS 64
#define ACCEPTS 16 /* in one turn, so that a storm of connections does not stop the replies */
/* Sessions beyond max_peers: those who are being told that there is no room. */
#define DOORSTEP 16
/* On loopback the bytes in flight stay in the processor's cache if the system is kept from growing
 * the buffer to its usual 4 MiB: 4.6 to 5.8 GB/s in bench/kernels/link_speed.c, against 2.5 to 2.8
 * GB/s. A network needs the growth to fill its delay. */
#define LOOPBACK_SEND_BYTES (512 * 1024)
#define ACCEPT_RETRY_MS 100 /* after the process ran out of descriptors or memory */

struct xci_host {
    xci_lobby lobby;
    char url[XCI_ADDRESS_TEXT];
    int listener, epoll, wake;
    pthread_t thread;
    atomic_bool stop;
    /* Of the thread, except that the array changes and is read by others under the lobby's lock. */
    xci_session **sessions;
    uint32_t session_count, session_capacity;
    bool acceptable; /* the listener has not said EAGAIN */
    uint64_t accept_due;
};

static xci_place os_error(void) { return (xci_place){XORCAST_NO_INDEX, XORCAST_NO_INDEX, errno}; }

/* ---- The thread -------------------------------------------------------------------------------*/

/* Long silence between requests is normal (a training step may take an hour), so a peer whose
 * machine is gone is found by keepalive, after about two minutes. Nagle's delay would only slow
 * small replies. */
static bool set_options(int fd, bool loopback) {
    const int send_bytes = LOOPBACK_SEND_BYTES;
    if (loopback && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes) != 0)
        return false;
    const int on = 1, idle_s = 60, interval_s = 15, probes = 4;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) == 0;
}

/* Makes a session of a socket, or closes it. */
static void admit(xci_host *host, int fd, bool loopback) {
    xci_session *session;
    if (host->session_count == host->session_capacity || !set_options(fd, loopback) ||
        xci_session_open(&host->lobby, fd, &session) < 0) {
        close(fd);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = session};
    if (epoll_ctl(host->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        xci_session_close(session);
        return;
    }
    pthread_mutex_lock(&host->lobby.lock);
    host->sessions[host->session_count++] = session;
    pthread_mutex_unlock(&host->lobby.lock);
}

static void accept_peers(xci_host *host) {
    host->accept_due = 0;
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t length = sizeof from;
        const int fd = accept4(host->listener, (struct sockaddr *)&from, &length,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(host, fd, xci_address_is_loopback((const struct sockaddr *)&from));
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue; /* that one peer went away before it was accepted */
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            host->acceptable = false;
        else
            host->accept_due = xci_deadline(ACCEPT_RETRY_MS);
        return;
    }
}

static void drop_session(xci_host *host, uint32_t index) {
    xci_session *session = host->sessions[index];
    pthread_mutex_lock(&host->lobby.lock);
    host->sessions[index] = host->sessions[--host->session_count];
    pthread_mutex_unlock(&host->lobby.lock);
    xci_session_close(session);
}

/* Marks what can go on. */
static void wait_for_events(xci_host *host, uint64_t due, bool *woken_out) {
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(host->epoll, events, EVENTS, xci_deadline_left_ms(due));
    *woken_out = false;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == &host->listener) {
            host->acceptable = true;
        } else if (events[i].data.ptr == &host->wake) {
            uint64_t ignored;
            *woken_out = read(host->wake, &ignored, sizeof ignored) > 0;
        } else {
            xci_session *session = events[i].data.ptr;
            session->readable |= (events[i].events & ~(uint32_t)EPOLLOUT) != 0;
            session->writable |= (events[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0;
        }
    }
}

/* Lets every session go on that can; returns when the next one is due. Looking at all of them costs
 * less than a system call: there are a few hundred at most. */
static uint64_t work_sessions(xci_host *host, bool all) {
    uint64_t due = XCI_FOREVER;
    const uint64_t now = xci_now_ns();
    for (uint32_t i = 0; i < host->session_count;) {
        xci_session *session = host->sessions[i];
        if (all || xci_session_due(session) <= now) {
            const xorcast_status status = xci_session_work(session);
            if (status < 0) {
                xorcast_error error;
                xorcast_last_error(host->lobby.context, &error);
                xci_log(host->lobby.context,
                        status == XORCAST_LINK_DOWN ? XORCAST_LOG_DEBUG : XORCAST_LOG_INFO,
                        "%s closed a peer: %s", host->url, error.text);
                drop_session(host, i);
                continue;
            }
        }
        due = xci_min(due, xci_session_due(session));
        i++;
    }
    return due;
}

static void *serve_peers(void *user) {
    xci_host *host = user;
    uint64_t due = XCI_FOREVER;
    while (!atomic_load(&host->stop)) {
        bool woken;
        if (host->acceptable)
            due = xci_min(due, host->accept_due);
        wait_for_events(host, due, &woken);
        if (host->acceptable && xci_now_ns() >= host->accept_due)
            accept_peers(host);
        due = work_sessions(host, woken);
    }
    while (host->session_count > 0)
        drop_session(host, host->session_count - 1);
    return NULL;
}

static void wake(xci_host *host) {
    const uint64_t one = 1;
    /* It fails only when 2^64 - 1 wake-ups are waiting, and then the thread is awake. */
    if (write(host->wake, &one, sizeof one) < 0)
        return;
}

/* ---- Open and close ---------------------------------------------------------------------------*/

static xorcast_status fail_listen(xorcast_context *context, const char *url, int error) {
    const xci_place place = {XORCAST_NO_INDEX, XORCAST_NO_INDEX, error};
    const char *advice =
        error == EADDRINUSE ? "another process has this port: choose another, or 0 for any free one"
        : error == EADDRNOTAVAIL ? "the address is none of this machine's"
        : error == EACCES        ? "choose a port from 1024 on"
                                 : "choose another address";
    FAIL_AT(context, XORCAST_LINK_REFUSED, place, "cannot listen at %.200s: %s; %s", url,
            strerror(error), advice);
}

static xorcast_status listen_at(xci_host *host, const char *url, const struct addrinfo *at) {
    xorcast_context *context = host->lobby.context;
    const int on = 1;
    host->listener = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (host->listener < 0)
        FAIL_AT(context, XORCAST_LINK_REFUSED, os_error(), "cannot make a socket for %.200s: %s",
                url, strerror(errno));
    if (setsockopt(host->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        FAIL_AT(context, XORCAST_INTERNAL, os_error(), "cannot set up a socket for %.200s: %s", url,
                strerror(errno));
    if (bind(host->listener, at->ai_addr, at->ai_addrlen) != 0 ||
        listen(host->listener, BACKLOG) != 0)
        return fail_listen(context, url, errno);
    struct sockaddr_storage real;
    socklen_t length = sizeof real;
    if (getsockname(host->listener, (struct sockaddr *)&real, &length) != 0)
        FAIL_AT(context, XORCAST_INTERNAL, os_error(), "the socket for %.200s has no address: %s",
                url, strerror(errno));
    xci_address_text((const struct sockaddr *)&real, length, host->url);
    return XORCAST_OK;
}

static xorcast_status open_listener(xci_host *host, const char *url) {
    struct addrinfo *list;
    TRY(xci_address_resolve(host->lobby.context, url, true, &list));
    const struct addrinfo *at = list;
    while (at != NULL && !host->lobby.options.insecure && !xci_address_is_loopback(at->ai_addr))
        at = at->ai_next;
    const xorcast_status status =
        at == NULL ? xci_address_refused(host->lobby.context, url) : listen_at(host, url, at);
    freeaddrinfo(list);
    return status;
}

static xorcast_status open_events(xci_host *host) {
    xorcast_context *context = host->lobby.context;
    host->epoll = epoll_create1(EPOLL_CLOEXEC);
    host->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event listener = {.events = EPOLLIN | EPOLLET, .data.ptr = &host->listener};
    struct epoll_event woken = {.events = EPOLLIN, .data.ptr = &host->wake};
    if (host->epoll < 0 || host->wake < 0 ||
        epoll_ctl(host->epoll, EPOLL_CTL_ADD, host->listener, &listener) != 0 ||
        epoll_ctl(host->epoll, EPOLL_CTL_ADD, host->wake, &woken) != 0)
        FAIL_AT(context, XORCAST_NO_HOST_MEMORY, os_error(),
                "the system gives no events for %s: %s", host->url, strerror(errno));
    return XORCAST_OK;
}

/* The array is sized once: a session never waits for memory of its host. */
static xorcast_status open_parts(xci_host *host, const char *url) {
    void *memory;
    TRY(open_listener(host, url));
    TRY(open_events(host));
    TRY(xci_allocate_array(host->lobby.context, host->session_capacity, sizeof(xci_session *),
                           &memory));
    host->sessions = memory;
    return XORCAST_OK;
}

static void free_host(xci_host *host) {
    xorcast_context *context = host->lobby.context;
    if (host->listener >= 0)
        close(host->listener);
    if (host->epoll >= 0)
        close(host->epoll);
    if (host->wake >= 0)
        close(host->wake);
    xci_store_destroy(host->lobby.store);
    xci_release(context, host->sessions);
    pthread_mutex_destroy(&host->lobby.lock);
    xci_release(context, host);
    xorcast_context_destroy(context);
}

/* An empty host over its own context, for the thread records failures there. */
static xorcast_status make_host(xorcast_context *context, const xci_host_options *options,
                                const xci_serve *serve, xci_host **host_out) {
    xorcast_context *fork;
    TRY(xci_context_fork(context, &fork));
    void *memory;
    xorcast_status status = xci_allocate_zeroed(fork, sizeof(xci_host), &memory);
    if (status < 0)
        goto destroy_fork;
    xci_host *host = memory;
    host->lobby.context = fork;
    host->lobby.options = xci_host_options_or_defaults(options);
    if (serve != NULL)
        host->lobby.serve = *serve;
    host->lobby.newest = XORCAST_NO_STEP;
    host->listener = host->epoll = host->wake = -1;
    atomic_init(&host->stop, false);
    if (host->lobby.options.max_peers > UINT32_MAX - DOORSTEP ||
        pthread_mutex_init(&host->lobby.lock, NULL) != 0) {
        status = xci_fail(fork, XORCAST_NO_HOST_MEMORY, XCI_NOWHERE, "no resources for %u peers",
                          host->lobby.options.max_peers);
        goto release_host;
    }
    host->session_capacity = host->lobby.options.max_peers + DOORSTEP;
    *host_out = host;
    return XORCAST_OK;

release_host:
    xci_release(fork, host);
destroy_fork:
    xci_error_copy(context, fork);
    xorcast_context_destroy(fork);
    return status;
}

xorcast_status xci_tcp_host_open(xorcast_context *context, const char *url,
                                 const xci_host_options *options, const xci_serve *serve,
                                 xci_host **host_out) {
    xci_host *host = NULL;
    TRY(make_host(context, options, serve, &host));
    xorcast_status status = open_parts(host, url);
    if (status < 0)
        xci_error_copy(context, host->lobby.context);
    else /* over the caller's context: who puts and fails is the caller */
        status = xci_store_create(context, &host->lobby.store);
    if (status >= 0) {
        const int error = pthread_create(&host->thread, NULL, serve_peers, host);
        if (error != 0)
            status =
                xci_fail(context, XORCAST_NO_HOST_MEMORY, XCI_NOWHERE,
                         "the system gives no thread to serve %s: %s", host->url, strerror(error));
    }
    if (status < 0) {
        free_host(host);
        return status;
    }
    *host_out = host;
    return XORCAST_OK;
}

void xci_tcp_host_close(xci_host *host) {
    if (host == NULL)
        return;
    atomic_store(&host->stop, true);
    wake(host);
    pthread_join(host->thread, NULL);
    free_host(host);
}

/* ---- For the publisher's threads --------------------------------------------------------------*/

const char *xci_tcp_host_url(xci_host *host) { return host->url; }

xorcast_status xci_tcp_host_put(xci_host *host, const char *name, xci_blob *blob) {
    return xci_store_put(host->lobby.store, name, blob);
}

void xci_tcp_host_drop(xci_host *host, const char *name) {
    xci_store_drop(host->lobby.store, name);
}

void xci_tcp_host_announce(xci_host *host, uint64_t step) {
    pthread_mutex_lock(&host->lobby.lock);
    host->lobby.newest = step;
    pthread_mutex_unlock(&host->lobby.lock);
    wake(host);
}

void xci_tcp_host_stats(xci_host *host, xci_host_stats *stats_out) {
    *stats_out = (xci_host_stats){0};
    pthread_mutex_lock(&host->lobby.lock);
    stats_out->sent_bytes = host->lobby.sent_bytes;
    stats_out->peers = host->lobby.peers;
    for (uint32_t i = 0; i < host->session_count; i++)
        if (host->lobby.newest != XORCAST_NO_STEP &&
            host->sessions[i]->acknowledged == host->lobby.newest)
            stats_out->peers_current++;
    pthread_mutex_unlock(&host->lobby.lock);
}
