/* One peer of a TCP host: see tcp_session.h. */
#include "ship/tcp/tcp_session.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"

/* A turn: what one peer gets before the others do. 2 MiB is half a millisecond of copying; shorter
 * turns cost more system calls and gained nothing in the slow-reader test. */
#define TURN_BYTES (UINT64_C(2) << 20)
#define TURN_READS 4

xorcast_status xci_session_open(xci_lobby *lobby, int fd, xci_session **session_out) {
    void *memory;
    TRY(xci_allocate_zeroed(lobby->context, sizeof(xci_session), &memory));
    xci_session *session = memory;
    session->lobby = lobby;
    session->fd = fd;
    session->acknowledged = XORCAST_NO_STEP;
    session->readable = session->writable = true;
    session->input_deadline = xci_deadline(lobby->options.peer_timeout_ms);
    *session_out = session;
    return XORCAST_OK;
}

void xci_session_close(xci_session *session) {
    xci_lobby *lobby = session->lobby;
    if (session->welcomed) {
        pthread_mutex_lock(&lobby->lock);
        lobby->peers--;
        pthread_mutex_unlock(&lobby->lock);
    }
    close(session->fd);
    xci_blob_drop(session->body);
    xci_release(lobby->context, session);
}

/* ---- Replies ----------------------------------------------------------------------------------*/

static uint64_t reply_bytes(const xci_session *session) {
    return session->head_bytes + (session->body == NULL ? 0 : session->body->size);
}

/* Starts a reply whose body, if any, is `small_bytes` long and already behind the head, or is
 * `body`, whose reference the session takes over. */
static void begin_reply(xci_session *session, uint8_t type, uint32_t id, int32_t status,
                        size_t small_bytes, xci_blob *body) {
    const uint64_t length = body == NULL ? small_bytes : body->size;
    const xci_wire_head head = {session->version, type, id, status, length};
    xci_wire_write_head(session->head, &head);
    session->head_bytes = XCI_WIRE_HEAD_BYTES + small_bytes;
    session->body = body;
    session->sent_bytes = 0;
    session->reply_deadline = xci_deadline(session->lobby->options.peer_timeout_ms);
}

/* A refusal with the text that the lobby's context recorded last, which has no control
 * characters. */
static void begin_refusal(xci_session *session, uint32_t id, xorcast_status status) {
    xorcast_error error;
    xorcast_last_error(session->lobby->context, &error);
    const size_t length = strnlen(error.text, XCI_WIRE_TEXT_BYTES);
    memcpy(session->head + XCI_WIRE_HEAD_BYTES, error.text, length);
    begin_reply(session, XCI_WIRE_REFUSAL, id,
                xci_wire_may_refuse(status) ? status : XORCAST_INTERNAL, length, NULL);
}

static xorcast_status find_object(xci_lobby *lobby, const xci_wire_request *get,
                                  xci_blob **blob_out) {
    xci_blob *blob = xci_store_find(lobby->store, get->name);
    if (blob == NULL && lobby->serve.get != NULL)
        TRY(lobby->serve.get(lobby->serve.user, lobby->context, get->name, &blob));
    if (blob == NULL)
        FAIL(lobby->context, XORCAST_NOT_FOUND, "the publisher has no object %s", get->name);
    if (blob->size > get->number) {
        const uint64_t size = blob->size;
        xci_blob_drop(blob);
        FAIL(lobby->context, XORCAST_DATA_LIMIT,
             "object %s has %llu bytes, and at most %llu were asked for", get->name,
             (unsigned long long)size, (unsigned long long)get->number);
    }
    *blob_out = blob;
    return XORCAST_OK;
}

static void answer_get(xci_session *session, const xci_wire_request *get) {
    xci_blob *blob = NULL;
    const xorcast_status status = find_object(session->lobby, get, &blob);
    if (status < 0)
        begin_refusal(session, get->id, status);
    else
        begin_reply(session, XCI_WIRE_DATA, get->id, XORCAST_OK, 0, blob);
}

/* false: nothing to say yet. */
static bool answer_newest(xci_session *session, const xci_wire_request *question) {
    xci_lobby *lobby = session->lobby;
    pthread_mutex_lock(&lobby->lock);
    const uint64_t newest = lobby->newest;
    pthread_mutex_unlock(&lobby->lock);
    if (newest != XORCAST_NO_STEP &&
        (question->number == XORCAST_NO_STEP || newest > question->number)) {
        xci_store64(session->head + XCI_WIRE_HEAD_BYTES, newest);
        begin_reply(session, XCI_WIRE_STEP, question->id, XORCAST_OK, XCI_WIRE_STEP_BYTES, NULL);
        return true;
    }
    if (session->wait_deadline == 0)
        session->wait_deadline = xci_deadline(question->wait_ms);
    if (xci_now_ns() < session->wait_deadline)
        return false;
    begin_reply(session, XCI_WIRE_STEP, question->id, XORCAST_NOTHING_NEW, 0, NULL);
    return true;
}

/* Takes the oldest request and begins its reply, if there is one and it can be answered. */
static void answer_next(xci_session *session) {
    if (session->queue_count == 0)
        return;
    const xci_wire_request *request = &session->queue[session->queue_first];
    if (request->type == XCI_WIRE_GET)
        answer_get(session, request);
    else if (!answer_newest(session, request))
        return;
    session->wait_deadline = 0;
    session->queue_first = (session->queue_first + 1) % XCI_PIPELINE;
    session->queue_count--;
}

/* Sends a piece of the reply under way. *sent_out 0: the socket takes no more. */
static xorcast_status send_piece(xci_session *session, uint64_t *sent_out) {
    struct iovec pieces[2];
    size_t count = 0;
    uint64_t body_sent = 0;
    if (session->sent_bytes < session->head_bytes) {
        pieces[count].iov_base = session->head + session->sent_bytes;
        pieces[count++].iov_len = session->head_bytes - (size_t)session->sent_bytes;
    } else {
        body_sent = session->sent_bytes - session->head_bytes;
    }
    if (session->body != NULL && session->body->size > body_sent) {
        pieces[count].iov_base = session->body->bytes + body_sent;
        pieces[count++].iov_len = (size_t)xci_min(session->body->size - body_sent, TURN_BYTES);
    }
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    ssize_t sent;
    do
        sent = sendmsg(session->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    *sent_out = 0;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        session->writable = false;
        return XORCAST_OK;
    }
    if (sent < 0)
        FAIL_AT(session->lobby->context, XORCAST_LINK_DOWN,
                ((xci_place){XORCAST_NO_INDEX, XORCAST_NO_INDEX, errno}),
                "it left in the middle of a reply (%s)", strerror(errno));
    *sent_out = (uint64_t)sent;
    return XORCAST_OK;
}

static xorcast_status send_replies(xci_session *session) {
    uint64_t turn_bytes = 0;
    while (session->writable && turn_bytes < TURN_BYTES) {
        if (session->head_bytes == 0)
            answer_next(session);
        if (session->head_bytes == 0)
            break;
        uint64_t sent;
        TRY(send_piece(session, &sent));
        if (sent == 0)
            break;
        turn_bytes += sent;
        session->sent_bytes += sent;
        session->reply_deadline = xci_deadline(session->lobby->options.peer_timeout_ms);
        if (session->sent_bytes < reply_bytes(session))
            continue;
        xci_blob_drop(session->body);
        session->body = NULL;
        session->head_bytes = 0;
        if (session->last_reply)
            FAIL(session->lobby->context, XORCAST_LINK_REFUSED, "it was told that it is refused");
    }
    if (turn_bytes > 0) {
        pthread_mutex_lock(&session->lobby->lock);
        session->lobby->sent_bytes += turn_bytes;
        pthread_mutex_unlock(&session->lobby->lock);
    }
    return XORCAST_OK;
}

/* ---- Requests ---------------------------------------------------------------------------------*/

static xorcast_status take_place(xci_lobby *lobby) {
    pthread_mutex_lock(&lobby->lock);
    const bool room = lobby->peers < lobby->options.max_peers;
    if (room)
        lobby->peers++;
    pthread_mutex_unlock(&lobby->lock);
    if (!room)
        FAIL(lobby->context, XORCAST_LINK_REFUSED,
             "the publisher has %u peers already; close one or raise its max_peers",
             lobby->options.max_peers);
    return XORCAST_OK;
}

static xorcast_status agree_version(xci_session *session, const xci_wire_request *hello) {
    if (hello->lowest_version > XCI_WIRE_HIGHEST || hello->version < XCI_WIRE_LOWEST ||
        hello->version < hello->lowest_version)
        FAIL(session->lobby->context, XORCAST_DATA_VERSION,
             "the publisher speaks versions %d to %d of the protocol, and this subscriber %u to "
             "%u; use the same "
             "release of xorcast on both sides",
             XCI_WIRE_LOWEST, XCI_WIRE_HIGHEST, hello->lowest_version, hello->version);
    session->version = hello->version < XCI_WIRE_HIGHEST ? hello->version : XCI_WIRE_HIGHEST;
    return XORCAST_OK;
}

static xorcast_status take_hello(xci_session *session, const xci_wire_request *hello) {
    xci_lobby *lobby = session->lobby;
    if (session->last_reply || hello->type != XCI_WIRE_HELLO)
        FAIL(lobby->context, XORCAST_DATA_CORRUPT, "it sent a message of type %u instead of HELLO",
             hello->type);
    session->version = XCI_WIRE_HIGHEST;
    xorcast_status status = agree_version(session, hello);
    if (status >= 0)
        status = take_place(lobby);
    if (status < 0) {
        session->last_reply = true;
        begin_refusal(session, hello->id, status);
        return XORCAST_OK;
    }
    session->welcomed = true;
    begin_reply(session, XCI_WIRE_WELCOME, hello->id, XORCAST_OK, 0, NULL);
    return XORCAST_OK;
}

static xorcast_status take_request(xci_session *session, const xci_wire_request *request) {
    xci_lobby *lobby = session->lobby;
    if (!session->welcomed)
        return take_hello(session, request);
    if (request->type == XCI_WIRE_HELLO)
        FAIL(lobby->context, XORCAST_DATA_CORRUPT, "it sent HELLO twice");
    if (request->version != session->version)
        FAIL(lobby->context, XORCAST_DATA_VERSION,
             "it sent a message of version %u after version %u was agreed", request->version,
             session->version);
    if (request->type == XCI_WIRE_ACK) {
        pthread_mutex_lock(&lobby->lock);
        session->acknowledged = request->number;
        pthread_mutex_unlock(&lobby->lock);
        return XORCAST_OK;
    }
    if (session->queue_count == XCI_PIPELINE)
        FAIL(lobby->context, XORCAST_DATA_LIMIT, "it has more than %d requests outstanding",
             XCI_PIPELINE);
    session->queue[(session->queue_first + session->queue_count) % XCI_PIPELINE] = *request;
    session->queue_count++;
    return XORCAST_OK;
}

/* Takes all whole requests off the input. */
static xorcast_status take_input(xci_session *session) {
    size_t at = 0;
    for (size_t used = 1; used > 0; at += used) {
        xci_wire_request request;
        TRY(xci_wire_read_request(session->lobby->context, session->input + at,
                                  session->input_bytes - at, &request, &used));
        if (used > 0)
            TRY(take_request(session, &request));
    }
    const bool had_part = session->input_deadline != XCI_FOREVER;
    session->input_bytes -= at;
    memmove(session->input, session->input + at, session->input_bytes);
    /* The clock of a message runs from its first byte, so that a drip of bytes does not hold a
     * place. */
    if (session->input_bytes == 0 && session->welcomed)
        session->input_deadline = XCI_FOREVER;
    else if (session->welcomed && (at > 0 || !had_part))
        session->input_deadline = xci_deadline(session->lobby->options.peer_timeout_ms);
    return XORCAST_OK;
}

static xorcast_status read_requests(xci_session *session) {
    for (int reads = 0; session->readable && reads < TURN_READS; reads++) {
        const size_t room = sizeof session->input - session->input_bytes;
        const ssize_t got =
            recv(session->fd, session->input + session->input_bytes, room, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            session->readable = false;
            break;
        }
        if (got <= 0)
            FAIL(session->lobby->context, XORCAST_LINK_DOWN, "it left");
        session->input_bytes += (size_t)got;
        TRY(take_input(session));
    }
    return XORCAST_OK;
}

/* ---- Turns ------------------------------------------------------------------------------------*/

/* Nobody reads what a silent peer has not taken yet: closing must not leave it in the kernel, which
 * would keep it for minutes. */
static void forget_unsent(const xci_session *session) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(session->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static xorcast_status check_silence(const xci_session *session) {
    xorcast_context *context = session->lobby->context;
    const uint64_t now = xci_now_ns();
    if (now >= session->input_deadline)
        FAIL(context, XORCAST_TIMED_OUT, "it fell silent %s",
             session->welcomed ? "inside a message" : "before HELLO");
    if (session->head_bytes > 0 && now >= session->reply_deadline)
        FAIL(context, XORCAST_TIMED_OUT, "it stopped reading in the middle of a reply");
    return XORCAST_OK;
}

xorcast_status xci_session_work(xci_session *session) {
    TRY(read_requests(session));
    TRY(send_replies(session));
    const xorcast_status status = check_silence(session);
    if (status < 0)
        forget_unsent(session);
    return status;
}

uint64_t xci_session_due(const xci_session *session) {
    if (session->readable)
        return 0;
    if (session->writable &&
        (session->head_bytes > 0 || (session->queue_count > 0 && session->wait_deadline == 0)))
        return 0;
    uint64_t due = session->input_deadline;
    if (session->head_bytes > 0)
        due = xci_min(due, session->reply_deadline);
    else if (session->wait_deadline > 0)
        due = xci_min(due, session->wait_deadline);
    return due;
}
