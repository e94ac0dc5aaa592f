/* The subscriber's end of the TCP link: one connection, used by one thread, with no thread of its
 * own. Every wait is a poll with a deadline. Objects are received straight into their blobs.
 *
 * A host is not trusted: replies must be the ones that are due, their lengths are checked against
 * what was asked for before anything is allocated, and memory is taken in steps, so that a length
 * alone takes little of it. What does not fit breaks the link; it never
 * resynchronises. */
#include <errno.h>
#include <poll.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "ship/tcp/tcp.h"
#include "ship/tcp/tcp_address.h"
#include "ship/tcp/tcp_wire.h"

/* Memory for an object is taken at once up to here, untouched until bytes come in, and then eight
 * times as much whenever it is full: at most one byte in seven is copied once more. With 8 MiB the
 * copies and fresh pages of a 64 MiB object, the largest of usual size, cost a tenth to a quarter
 * of its speed. */
#define FIRST_STEP_BYTES (UINT64_C(64) << 20)
#define STEP_FACTOR 8

struct xci_peer {
    xorcast_context *context;
    int fd; /* -1: the link is broken */
    char address[XCI_ADDRESS_TEXT];
    uint8_t version;
    uint32_t next_id;
    struct {
        uint32_t id;
        uint64_t limit_bytes;
    } asked[XCI_PIPELINE];
    unsigned asked_first, asked_count;
};

static xci_place os_error(int error) {
    return (xci_place){XORCAST_NO_INDEX, XORCAST_NO_INDEX, error};
}

/* ---- Bytes ------------------------------------------------------------------------------------*/

static xorcast_status wait_for(xci_peer *peer, short events, uint64_t deadline_ns) {
    for (;;) {
        struct pollfd poll_fd = {.fd = peer->fd, .events = events};
        const int left_ms = xci_deadline_left_ms(deadline_ns);
        const int ready = poll(&poll_fd, 1, left_ms);
        if (ready > 0)
            return XORCAST_OK;
        if (ready < 0 && errno != EINTR)
            FAIL_AT(peer->context, XORCAST_INTERNAL, os_error(errno),
                    "poll failed on the link to %s: %s", peer->address, strerror(errno));
        if (left_ms == 0)
            FAIL(peer->context, XORCAST_TIMED_OUT,
                 "%s did not answer in time; check that the publisher is alive, or allow more time",
                 peer->address);
    }
}

static xorcast_status lost(xci_peer *peer, int error) {
    FAIL_AT(peer->context, XORCAST_LINK_DOWN, os_error(error),
            "the link to %s was lost (%s); open it again when the publisher is back", peer->address,
            error == 0 ? "closed by the other side" : strerror(error));
}

static xorcast_status send_all(xci_peer *peer, const uint8_t *bytes, size_t count,
                               uint64_t deadline_ns) {
    while (count > 0) {
        const ssize_t sent = send(peer->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            bytes += sent;
            count -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            TRY(wait_for(peer, POLLOUT, deadline_ns));
        } else if (errno != EINTR) {
            return lost(peer, errno);
        }
    }
    return XORCAST_OK;
}

static xorcast_status receive_all(xci_peer *peer, uint8_t *bytes, uint64_t count,
                                  uint64_t deadline_ns) {
    while (count > 0) {
        const ssize_t got = recv(peer->fd, bytes, (size_t)count, MSG_DONTWAIT);
        if (got > 0) {
            bytes += got;
            count -= (uint64_t)got;
        } else if (got == 0) {
            return lost(peer, 0);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            TRY(wait_for(peer, POLLIN, deadline_ns));
        } else if (errno != EINTR) {
            return lost(peer, errno);
        }
    }
    return XORCAST_OK;
}

/* ---- Messages ---------------------------------------------------------------------------------*/

static xorcast_status send_request(xci_peer *peer, xci_wire_request *request,
                                   uint64_t deadline_ns) {
    uint8_t bytes[XCI_WIRE_REQUEST_BYTES];
    request->id = peer->next_id++;
    const size_t count = xci_wire_write_request(bytes, request);
    return send_all(peer, bytes, count, deadline_ns);
}

/* A refusal becomes the peer's own failure, with its status and text. *refused_out says that it was
 * whole, so that the link can be used on. */
static xorcast_status receive_refusal(xci_peer *peer, const xci_wire_head *head,
                                      uint64_t deadline_ns, bool *refused_out) {
    char text[XCI_WIRE_TEXT_BYTES + 1];
    if (head->length > XCI_WIRE_TEXT_BYTES || !xci_wire_may_refuse(head->status))
        FAIL(peer->context, XORCAST_DATA_CORRUPT,
             "%s refused with status %d and %llu bytes of text: not a publisher?", peer->address,
             head->status, (unsigned long long)head->length);
    TRY(receive_all(peer, (uint8_t *)text, head->length, deadline_ns));
    text[head->length] = '\0';
    for (uint64_t i = 0; i < head->length; i++)
        if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
            FAIL(peer->context, XORCAST_DATA_CORRUPT, "%s refused with a text that is no text",
                 peer->address);
    *refused_out = true;
    FAIL(peer->context, (xorcast_status)head->status, "%s: %s", peer->address, text);
}

/* The head of the reply to request `id`, which must be of this type. */
static xorcast_status receive_head(xci_peer *peer, uint8_t type, uint32_t id, uint64_t deadline_ns,
                                   xci_wire_head *head_out, bool *refused_out) {
    uint8_t bytes[XCI_WIRE_HEAD_BYTES];
    TRY(receive_all(peer, bytes, sizeof bytes, deadline_ns));
    TRY(xci_wire_read_head(peer->context, bytes, head_out));
    /* A refusal of HELLO comes in the host's own version: none was agreed. */
    if (head_out->version != peer->version && type != XCI_WIRE_WELCOME)
        FAIL(peer->context, XORCAST_DATA_VERSION,
             "%s sent a message of version %u after version %u was agreed", peer->address,
             head_out->version, peer->version);
    if (head_out->id != id || (head_out->type != type && head_out->type != XCI_WIRE_REFUSAL))
        FAIL(peer->context, XORCAST_DATA_CORRUPT,
             "%s sent reply %u of type %u where reply %u of type %u was due", peer->address,
             head_out->id, head_out->type, id, type);
    if (head_out->type == XCI_WIRE_REFUSAL)
        return receive_refusal(peer, head_out, deadline_ns, refused_out);
    const bool may_have_status = type == XCI_WIRE_STEP && head_out->status == XORCAST_NOTHING_NEW;
    if (head_out->status != 0 && !may_have_status)
        FAIL(peer->context, XORCAST_DATA_CORRUPT, "%s sent a reply of type %u with status %d",
             peer->address, type, head_out->status);
    return XORCAST_OK;
}

/* Moves what `*blob` holds to a larger one. */
static xorcast_status widen(xci_peer *peer, xci_blob **blob, uint64_t size) {
    xci_blob *wider;
    TRY(xci_blob_create(peer->context, size, &wider));
    memcpy(wider->bytes, (*blob)->bytes, (*blob)->size);
    xci_blob_drop(*blob);
    *blob = wider;
    return XORCAST_OK;
}

static xorcast_status receive_into(xci_peer *peer, xci_blob **blob, uint64_t length,
                                   uint64_t deadline_ns) {
    for (uint64_t have = 0;;) {
        TRY(receive_all(peer, (*blob)->bytes + have, (*blob)->size - have, deadline_ns));
        have = (*blob)->size;
        if (have == length)
            return XORCAST_OK;
        TRY(widen(peer, blob, length / STEP_FACTOR > have ? have * STEP_FACTOR : length));
    }
}

static xorcast_status receive_object(xci_peer *peer, const xci_wire_head *head,
                                     uint64_t limit_bytes, uint64_t deadline_ns,
                                     xci_blob **blob_out) {
    if (head->length > limit_bytes)
        FAIL(peer->context, XORCAST_DATA_CORRUPT,
             "%s announced an object of %llu bytes where %llu are allowed", peer->address,
             (unsigned long long)head->length, (unsigned long long)limit_bytes);
    xci_blob *blob;
    TRY(xci_blob_create(peer->context, xci_min(head->length, FIRST_STEP_BYTES), &blob));
    const xorcast_status status = receive_into(peer, &blob, head->length, deadline_ns);
    if (status < 0) {
        xci_blob_drop(blob);
        return status;
    }
    *blob_out = blob;
    return XORCAST_OK;
}

/* ---- Open and close ---------------------------------------------------------------------------*/

static void break_link(xci_peer *peer) {
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
}

static xorcast_status check_usable(xci_peer *peer) {
    if (peer->fd < 0)
        FAIL(peer->context, XORCAST_LINK_DOWN,
             "the link to %s broke in an earlier call; close it and open it again", peer->address);
    return XORCAST_OK;
}

static xorcast_status greet(xci_peer *peer, uint64_t deadline_ns) {
    xci_wire_request hello = {.version = XCI_WIRE_HIGHEST,
                              .type = XCI_WIRE_HELLO,
                              .lowest_version = XCI_WIRE_LOWEST};
    TRY(send_request(peer, &hello, deadline_ns));
    xci_wire_head head;
    bool refused = false;
    TRY(receive_head(peer, XCI_WIRE_WELCOME, hello.id, deadline_ns, &head, &refused));
    if (head.version < XCI_WIRE_LOWEST || head.version > XCI_WIRE_HIGHEST)
        FAIL(peer->context, XORCAST_DATA_VERSION,
             "%s chose version %u of the protocol, which was not offered", peer->address,
             head.version);
    if (head.length != 0)
        FAIL(peer->context, XORCAST_DATA_CORRUPT, "%s welcomed with %llu bytes too many",
             peer->address, (unsigned long long)head.length);
    peer->version = head.version;
    return XORCAST_OK;
}

/* A peer without a connection. */
static xorcast_status make_peer(xorcast_context *context, const char *address,
                                xci_peer **peer_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_peer), &memory));
    xci_peer *peer = memory;
    peer->context = context;
    peer->fd = -1;
    snprintf(peer->address, sizeof peer->address, "%s", address);
    *peer_out = peer;
    return XORCAST_OK;
}

void xci_tcp_peer_close(xci_peer *peer) {
    if (peer == NULL)
        return;
    break_link(peer);
    xci_release(peer->context, peer);
}

xorcast_status xci_tcp_peer_adopt(xorcast_context *context, int fd, const char *address,
                                  uint64_t deadline_ns, xci_peer **peer_out) {
    xci_peer *peer;
    xorcast_status status = make_peer(context, address, &peer);
    if (status < 0) {
        close(fd);
        return status;
    }
    peer->fd = fd;
    status = greet(peer, deadline_ns);
    if (status < 0) {
        xci_tcp_peer_close(peer);
        return status;
    }
    *peer_out = peer;
    return XORCAST_OK;
}

static xorcast_status connect_failed(xorcast_context *context, int error, const char *address) {
    if (error == ECONNREFUSED)
        FAIL_AT(context, XORCAST_LINK_REFUSED, os_error(error),
                "nothing listens at %s; start the publisher or check the address", address);
    FAIL_AT(context, XORCAST_LINK_DOWN, os_error(error),
            "cannot connect to %s: %s; check the address and the network", address,
            strerror(error));
}

/* Waits for a connection that is being made. */
static xorcast_status finish_connect(xorcast_context *context, int fd, const char *address,
                                     uint64_t deadline_ns) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int left_ms;
    do {
        left_ms = xci_deadline_left_ms(deadline_ns);
        const int ready = poll(&poll_fd, 1, left_ms);
        if (ready > 0) {
            int error = 0;
            socklen_t length = sizeof error;
            if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
                error = errno;
            return error == 0 ? XORCAST_OK : connect_failed(context, error, address);
        }
        if (ready < 0 && errno != EINTR)
            return connect_failed(context, errno, address);
    } while (left_ms > 0);
    FAIL(context, XORCAST_TIMED_OUT,
         "%s did not take the connection in time; check the address and the network", address);
}

static xorcast_status connect_to(xorcast_context *context, const struct addrinfo *at,
                                 uint64_t deadline_ns, const char *address, int *fd_out) {
    const int on = 1;
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return connect_failed(context, errno, address);
    xorcast_status status = XORCAST_OK;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        status = connect_failed(context, errno, address);
    else if (connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        status = errno == EINPROGRESS ? finish_connect(context, fd, address, deadline_ns)
                                      : connect_failed(context, errno, address);
    if (status < 0) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return XORCAST_OK;
}

/* Tries the addresses of a name one after the other; the last failure is the one that is told. */
static xorcast_status connect_any(xorcast_context *context, const struct addrinfo *list,
                                  const char *url, bool insecure, uint64_t deadline_ns,
                                  char address_out[XCI_ADDRESS_TEXT], int *fd_out) {
    xorcast_status status = XORCAST_OK;
    bool tried = false;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        if (!insecure && !xci_address_is_loopback(at->ai_addr))
            continue;
        tried = true;
        xci_address_text(at->ai_addr, at->ai_addrlen, address_out);
        status = connect_to(context, at, deadline_ns, address_out, fd_out);
        if (status >= 0)
            return XORCAST_OK;
    }
    return tried ? status : xci_address_refused(context, url);
}

xorcast_status xci_tcp_peer_open(xorcast_context *context, const char *url, bool insecure,
                                 uint64_t deadline_ns, xci_peer **peer_out) {
    struct addrinfo *list;
    char address[XCI_ADDRESS_TEXT];
    int fd = -1;
    TRY(xci_address_resolve(context, url, false, &list));
    const xorcast_status status =
        connect_any(context, list, url, insecure, deadline_ns, address, &fd);
    freeaddrinfo(list);
    TRY(status);
    return xci_tcp_peer_adopt(context, fd, address, deadline_ns, peer_out);
}

/* ---- Requests ---------------------------------------------------------------------------------*/

xorcast_status xci_tcp_peer_request(xci_peer *peer, const char *name, uint64_t limit_bytes,
                                    uint64_t deadline_ns) {
    TRY(check_usable(peer));
    TRY(xci_request_check(peer->context, name, peer->asked_count, peer->address));
    xci_wire_request get = {.version = peer->version, .type = XCI_WIRE_GET, .number = limit_bytes};
    memcpy(get.name, name, strlen(name) + 1);
    const xorcast_status status = send_request(peer, &get, deadline_ns);
    if (status < 0) {
        break_link(peer);
        return status;
    }
    const unsigned at = (peer->asked_first + peer->asked_count++) % XCI_PIPELINE;
    peer->asked[at].id = get.id;
    peer->asked[at].limit_bytes = limit_bytes;
    return XORCAST_OK;
}

xorcast_status xci_tcp_peer_receive(xci_peer *peer, uint64_t deadline_ns, xci_blob **blob_out) {
    TRY(check_usable(peer));
    if (peer->asked_count == 0)
        FAIL(peer->context, XORCAST_BAD_STATE, "nothing was requested from %s", peer->address);
    const uint32_t id = peer->asked[peer->asked_first].id;
    const uint64_t limit_bytes = peer->asked[peer->asked_first].limit_bytes;
    peer->asked_first = (peer->asked_first + 1) % XCI_PIPELINE;
    peer->asked_count--;

    xci_wire_head head;
    bool refused = false;
    xorcast_status status = receive_head(peer, XCI_WIRE_DATA, id, deadline_ns, &head, &refused);
    if (status >= 0)
        status = receive_object(peer, &head, limit_bytes, deadline_ns, blob_out);
    if (status < 0 && !refused)
        break_link(peer);
    return status;
}

static xorcast_status ask_newest(xci_peer *peer, uint64_t after, uint64_t deadline_ns,
                                 uint64_t *step_out) {
    /* The host's clock for this question stops with ours, and then it must say so. */
    const int wait_ms = xci_deadline_left_ms(deadline_ns);
    const uint64_t answer_deadline = xci_deadline((uint64_t)wait_ms + XCI_ANSWER_MS);
    xci_wire_request newest = {.version = peer->version,
                               .type = XCI_WIRE_NEWEST,
                               .number = after,
                               .wait_ms = (uint32_t)wait_ms};
    TRY(send_request(peer, &newest, answer_deadline));
    xci_wire_head head;
    bool refused = false;
    TRY(receive_head(peer, XCI_WIRE_STEP, newest.id, answer_deadline, &head, &refused));
    if (head.length != (head.status == XORCAST_OK ? XCI_WIRE_STEP_BYTES : 0))
        FAIL(peer->context, XORCAST_DATA_CORRUPT, "%s told its newest step in %llu bytes",
             peer->address, (unsigned long long)head.length);
    if (head.status == XORCAST_NOTHING_NEW)
        return XORCAST_NOTHING_NEW;
    uint8_t bytes[XCI_WIRE_STEP_BYTES];
    TRY(receive_all(peer, bytes, sizeof bytes, answer_deadline));
    const uint64_t step = xci_load64(bytes);
    if (step == XORCAST_NO_STEP || (after != XORCAST_NO_STEP && step <= after))
        FAIL(peer->context, XORCAST_DATA_CORRUPT, "%s called step %llu newer than %llu",
             peer->address, (unsigned long long)step, (unsigned long long)after);
    *step_out = step;
    return XORCAST_OK;
}

xorcast_status xci_tcp_peer_newest(xci_peer *peer, uint64_t after, uint64_t deadline_ns,
                                   uint64_t *step_out) {
    TRY(check_usable(peer));
    if (peer->asked_count > 0)
        FAIL(peer->context, XORCAST_BAD_STATE,
             "%u requests are outstanding at %s; receive their replies first", peer->asked_count,
             peer->address);
    xorcast_status status;
    do /* one question waits a minute at most */
        status = ask_newest(peer, after, deadline_ns, step_out);
    while (status == XORCAST_NOTHING_NEW && xci_now_ns() < deadline_ns);
    if (status < 0)
        break_link(peer);
    return status;
}

xorcast_status xci_tcp_peer_acknowledge(xci_peer *peer, uint64_t step, uint64_t deadline_ns) {
    TRY(check_usable(peer));
    xci_wire_request ack = {.version = peer->version, .type = XCI_WIRE_ACK, .number = step};
    const xorcast_status status = send_request(peer, &ack, deadline_ns);
    if (status < 0)
        break_link(peer);
    return status;
}
