/* The link inside one process: peers find the host by its name and get references to its very
 * objects, no bytes move. Owns the register of open hosts. Has no thread: a peer that waits sleeps
 * on the host's condition, and `serve` runs on the thread of the peer that asks, one at a time.
 *
 * A host that is closed lives on as an empty shell until its last peer has closed too. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "ship/link.h"
#include "ship/store.h"

#define URL_BYTES 256

struct xci_host {
    xci_host *next;           /* in the register */
    xorcast_context *context; /* its own, so that the shell may outlive the publisher's */
    char url[URL_BYTES];
    xci_host_options options;
    xci_serve serve;
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* a step was announced, `serve` is free, the host closed */
    unsigned references;    /* the publisher's and one for each peer */
    bool closed;
    bool serving;     /* a peer's thread is inside `serve` or the store */
    xci_store *store; /* NULL once closed */
    uint64_t newest;  /* announced step, or XORCAST_NO_STEP */
    uint64_t sent_bytes;
    xci_peer *peers;
};

struct xci_peer {
    xci_peer *next; /* in the host's list */
    xorcast_context *context;
    xci_host *host;
    uint64_t acknowledged;
    struct {
        char name[XCI_NAME_BYTES];
        uint64_t limit_bytes;
    } asked[XCI_PIPELINE];
    unsigned asked_first, asked_count;
    bool broken; /* by a wait that timed out */
};

static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;
static xci_host *register_first;

/* The link that points at the host of that URL, or at the end. With the register's lock. */
static xci_host **find_host(const char *url) {
    xci_host **place = &register_first;
    while (*place != NULL && strcmp((*place)->url, url) != 0)
        place = &(*place)->next;
    return place;
}

static xorcast_status check_url(xorcast_context *context, const char *url) {
    if (url == NULL || strlen(url) <= strlen("inproc:") || strlen(url) >= URL_BYTES)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "\"%.200s\" has no name; write inproc:NAME, at most %d bytes in all",
             url == NULL ? "" : url, URL_BYTES - 1);
    return XORCAST_OK;
}

/* Waits for the condition until the deadline; false: it has passed. */
static bool wait_for_change(xci_host *host, uint64_t deadline_ns) {
    if (deadline_ns == XCI_FOREVER) {
        pthread_cond_wait(&host->changed, &host->lock);
        return true;
    }
    const struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / 1000000000),
        .tv_nsec = (long)(deadline_ns % 1000000000),
    };
    return pthread_cond_timedwait(&host->changed, &host->lock, &until) == 0;
}

/* ---- Host -------------------------------------------------------------------------------------*/

static bool make_lock(xci_host *host) {
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return false;
    const bool have_condition = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                                pthread_cond_init(&host->changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    if (!have_condition)
        return false;
    if (pthread_mutex_init(&host->lock, NULL) == 0)
        return true;
    pthread_cond_destroy(&host->changed);
    return false;
}

/* Gives up one reference; the last one frees the shell. Called with the host's lock, which is
 * released. */
static void leave_host(xci_host *host) {
    const bool last = --host->references == 0;
    pthread_mutex_unlock(&host->lock);
    if (!last)
        return;
    xorcast_context *context = host->context;
    pthread_cond_destroy(&host->changed);
    pthread_mutex_destroy(&host->lock);
    xci_release(context, host);
    xorcast_context_destroy(context);
}

static xorcast_status make_host(xorcast_context *context, const char *url, xci_host **host_out) {
    xorcast_context *fork;
    TRY(xci_context_fork(context, &fork));
    void *memory;
    xorcast_status status = xci_allocate_zeroed(fork, sizeof(xci_host), &memory);
    if (status < 0)
        goto destroy_fork;
    xci_host *host = memory;
    if (!make_lock(host)) {
        status = xci_fail(fork, XORCAST_NO_HOST_MEMORY, XCI_NOWHERE,
                          "no resources for a lock of %.200s", url);
        goto release_host;
    }
    host->context = fork;
    host->references = 1;
    host->newest = XORCAST_NO_STEP;
    memcpy(host->url, url, strlen(url) + 1);
    *host_out = host;
    return XORCAST_OK;

release_host:
    xci_release(fork, host);
destroy_fork:
    xci_error_copy(context, fork);
    xorcast_context_destroy(fork);
    return status;
}

/* false: the name is taken. */
static bool register_host(xci_host *host) {
    pthread_mutex_lock(&register_lock);
    xci_host **place = find_host(host->url);
    const bool is_free = *place == NULL;
    if (is_free)
        *place = host;
    pthread_mutex_unlock(&register_lock);
    return is_free;
}

static void unregister_host(xci_host *host) {
    pthread_mutex_lock(&register_lock);
    xci_host **place = find_host(host->url);
    if (*place == host)
        *place = host->next;
    pthread_mutex_unlock(&register_lock);
}

static void host_close(xci_host *host) {
    if (host == NULL)
        return;
    unregister_host(host);
    pthread_mutex_lock(&host->lock);
    host->closed = true;
    pthread_cond_broadcast(&host->changed);
    while (host->serving)
        wait_for_change(host, XCI_FOREVER);
    xci_store *store = host->store;
    host->store = NULL;
    leave_host(host);
    xci_store_destroy(store);
}

static xorcast_status host_open(xorcast_context *context, const char *url,
                                const xci_host_options *options, const xci_serve *serve,
                                xci_host **host_out) {
    TRY(check_url(context, url));
    xci_host *host = NULL;
    TRY(make_host(context, url, &host));
    host->options = xci_host_options_or_defaults(options);
    if (serve != NULL)
        host->serve = *serve;
    /* Over the caller's context: who puts and fails is the caller. */
    xorcast_status status = xci_store_create(context, &host->store);
    if (status >= 0 && !register_host(host))
        status =
            xci_fail(context, XORCAST_LINK_REFUSED, XCI_NOWHERE,
                     "%s is taken by another publisher of this process; choose another name", url);
    if (status < 0) {
        host_close(host);
        return status;
    }
    *host_out = host;
    return XORCAST_OK;
}

static const char *host_url(xci_host *host) { return host->url; }

static xorcast_status host_put(xci_host *host, const char *name, xci_blob *blob) {
    return xci_store_put(host->store, name, blob);
}

static void host_drop(xci_host *host, const char *name) { xci_store_drop(host->store, name); }

static void host_announce(xci_host *host, uint64_t step) {
    pthread_mutex_lock(&host->lock);
    host->newest = step;
    pthread_cond_broadcast(&host->changed);
    pthread_mutex_unlock(&host->lock);
}

static void host_stats(xci_host *host, xci_host_stats *stats_out) {
    *stats_out = (xci_host_stats){0};
    pthread_mutex_lock(&host->lock);
    stats_out->sent_bytes = host->sent_bytes;
    for (const xci_peer *peer = host->peers; peer != NULL; peer = peer->next) {
        stats_out->peers++;
        stats_out->peers_current +=
            host->newest != XORCAST_NO_STEP && peer->acknowledged == host->newest;
    }
    pthread_mutex_unlock(&host->lock);
}

/* ---- Peer -------------------------------------------------------------------------------------*/

/* Adds the peer to the host's list, with a reference. With the register's lock, so that the host is
 * open. */
static xorcast_status join_host(xci_peer *peer, const char *url) {
    xci_host *host = *find_host(url);
    if (host == NULL)
        FAIL(peer->context, XORCAST_LINK_REFUSED,
             "no publisher is open at %s in this process; start it or check the name", url);
    pthread_mutex_lock(&host->lock);
    uint64_t count = 0;
    for (const xci_peer *other = host->peers; other != NULL; other = other->next)
        count++;
    const bool room = count < host->options.max_peers;
    if (room) {
        peer->host = host;
        peer->next = host->peers;
        host->peers = peer;
        host->references++;
    }
    pthread_mutex_unlock(&host->lock);
    if (!room)
        FAIL(peer->context, XORCAST_LINK_REFUSED,
             "%s has %u peers already; close one or raise its max_peers", url,
             host->options.max_peers);
    return XORCAST_OK;
}

static xorcast_status peer_open(xorcast_context *context, const char *url, bool insecure,
                                uint64_t deadline_ns, xci_peer **peer_out) {
    (void)insecure;    /* nothing leaves the process */
    (void)deadline_ns; /* and nothing is waited for */
    TRY(check_url(context, url));
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_peer), &memory));
    xci_peer *peer = memory;
    peer->context = context;
    peer->acknowledged = XORCAST_NO_STEP;
    pthread_mutex_lock(&register_lock);
    const xorcast_status status = join_host(peer, url);
    pthread_mutex_unlock(&register_lock);
    if (status < 0) {
        xci_release(context, peer);
        return status;
    }
    *peer_out = peer;
    return XORCAST_OK;
}

static void peer_close(xci_peer *peer) {
    if (peer == NULL)
        return;
    xci_host *host = peer->host;
    pthread_mutex_lock(&host->lock);
    xci_peer **place = &host->peers;
    while (*place != peer)
        place = &(*place)->next;
    *place = peer->next;
    leave_host(host);
    xci_release(peer->context, peer);
}

static xorcast_status link_is_down(xci_peer *peer) {
    FAIL(peer->context, XORCAST_LINK_DOWN,
         "the link to %s is down (%s); open it again when the publisher is back", peer->host->url,
         peer->broken ? "an earlier call failed" : "the publisher closed");
}

static xorcast_status peer_request(xci_peer *peer, const char *name, uint64_t limit_bytes,
                                   uint64_t deadline_ns) {
    (void)deadline_ns; /* asking waits for nothing */
    TRY(xci_request_check(peer->context, name, peer->asked_count, peer->host->url));
    pthread_mutex_lock(&peer->host->lock);
    const bool closed = peer->host->closed;
    pthread_mutex_unlock(&peer->host->lock);
    if (closed || peer->broken)
        return link_is_down(peer);
    const unsigned at = (peer->asked_first + peer->asked_count++) % XCI_PIPELINE;
    memcpy(peer->asked[at].name, name, strlen(name) + 1);
    peer->asked[at].limit_bytes = limit_bytes;
    return XORCAST_OK;
}

/* Takes the only place inside `serve` and the store, which keeps the host from closing. */
static xorcast_status begin_serving(xci_peer *peer, uint64_t deadline_ns) {
    xci_host *host = peer->host;
    pthread_mutex_lock(&host->lock);
    bool in_time = true;
    while (host->serving && !host->closed && in_time)
        in_time = wait_for_change(host, deadline_ns);
    const bool closed = host->closed || peer->broken, begun = !closed && !host->serving;
    host->serving |= begun;
    peer->broken |= !closed && !begun;
    pthread_mutex_unlock(&host->lock);
    if (closed)
        return link_is_down(peer);
    if (!begun)
        FAIL(peer->context, XORCAST_TIMED_OUT,
             "%s did not answer in time; it is busy with other peers", host->url);
    return XORCAST_OK;
}

static void end_serving(xci_host *host, uint64_t sent_bytes) {
    pthread_mutex_lock(&host->lock);
    host->serving = false;
    host->sent_bytes += sent_bytes;
    pthread_cond_broadcast(&host->changed);
    pthread_mutex_unlock(&host->lock);
}

static xorcast_status find_object(xci_peer *peer, const char *name, uint64_t limit_bytes,
                                  xci_blob **blob_out) {
    xci_host *host = peer->host;
    xci_blob *blob = xci_store_find(host->store, name);
    if (blob == NULL && host->serve.get != NULL) {
        const xorcast_status status = host->serve.get(host->serve.user, host->context, name, &blob);
        if (status < 0) {
            xci_error_copy(peer->context, host->context);
            return status;
        }
    }
    if (blob == NULL)
        FAIL(peer->context, XORCAST_NOT_FOUND, "the publisher at %s has no object %s", host->url,
             name);
    if (blob->size > limit_bytes) {
        const uint64_t size = blob->size;
        xci_blob_drop(blob);
        FAIL(peer->context, XORCAST_DATA_LIMIT,
             "object %s has %llu bytes, and at most %llu were asked for", name,
             (unsigned long long)size, (unsigned long long)limit_bytes);
    }
    *blob_out = blob;
    return XORCAST_OK;
}

static xorcast_status peer_receive(xci_peer *peer, uint64_t deadline_ns, xci_blob **blob_out) {
    if (peer->asked_count == 0)
        FAIL(peer->context, XORCAST_BAD_STATE, "nothing was requested from %s", peer->host->url);
    TRY(begin_serving(peer, deadline_ns));
    const unsigned at = peer->asked_first;
    peer->asked_first = (at + 1) % XCI_PIPELINE;
    peer->asked_count--;
    xci_blob *blob = NULL;
    const xorcast_status status =
        find_object(peer, peer->asked[at].name, peer->asked[at].limit_bytes, &blob);
    end_serving(peer->host, status < 0 ? 0 : blob->size);
    TRY(status);
    *blob_out = blob;
    return XORCAST_OK;
}

static bool is_newer(uint64_t newest, uint64_t after) {
    return newest != XORCAST_NO_STEP && (after == XORCAST_NO_STEP || newest > after);
}

static xorcast_status peer_newest(xci_peer *peer, uint64_t after, uint64_t deadline_ns,
                                  uint64_t *step_out) {
    xci_host *host = peer->host;
    if (peer->asked_count > 0)
        FAIL(peer->context, XORCAST_BAD_STATE,
             "%u requests are outstanding at %s; receive their replies first", peer->asked_count,
             host->url);
    pthread_mutex_lock(&host->lock);
    bool in_time = true;
    while (!host->closed && !is_newer(host->newest, after) && in_time)
        in_time = wait_for_change(host, deadline_ns);
    const bool closed = host->closed || peer->broken;
    const uint64_t newest = host->newest;
    pthread_mutex_unlock(&host->lock);
    if (closed)
        return link_is_down(peer);
    if (!is_newer(newest, after))
        return XORCAST_NOTHING_NEW;
    *step_out = newest;
    return XORCAST_OK;
}

static xorcast_status peer_acknowledge(xci_peer *peer, uint64_t step, uint64_t deadline_ns) {
    (void)deadline_ns; /* telling waits for nothing */
    pthread_mutex_lock(&peer->host->lock);
    const bool closed = peer->host->closed || peer->broken;
    if (!closed)
        peer->acknowledged = step;
    pthread_mutex_unlock(&peer->host->lock);
    return closed ? link_is_down(peer) : XORCAST_OK;
}

const xci_link xci_link_inproc = {
    .scheme = "inproc:",
    .one_process = true,
    .host_open = host_open,
    .host_close = host_close,
    .host_url = host_url,
    .host_put = host_put,
    .host_drop = host_drop,
    .host_announce = host_announce,
    .host_stats = host_stats,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .peer_request = peer_request,
    .peer_receive = peer_receive,
    .peer_newest = peer_newest,
    .peer_acknowledge = peer_acknowledge,
};
