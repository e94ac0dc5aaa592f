/* Framed messages over a stream socket: a type, a size, a body. */
#include "messages.h"

#include "settings.h"
#include "stopwatch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define NS_PER_MS UINT64_C(1000000)

typedef struct head {
    uint64_t type, bytes;
} head;

static bool wait_ready(int socket, short event, uint64_t deadline, char *why, size_t why_bytes) {
    for (;;) {
        const uint64_t now = now_ns();
        const uint64_t left_ms = now < deadline ? (deadline - now) / NS_PER_MS + 1 : 0;
        struct pollfd entry = {socket, event, 0};
        const int found = left_ms == 0 ? 0 : poll(&entry, 1, (int)left_ms);
        if (found > 0)
            return true;
        if (found == 0) {
            (void)snprintf(why, why_bytes, "no answer within %d seconds", DEADLINE_MS / 1000);
            return false;
        }
        if (errno != EINTR) {
            (void)snprintf(why, why_bytes, "waiting failed: %s", strerror(errno));
            return false;
        }
    }
}

static bool send_all(int socket, const void *bytes, size_t count, uint64_t deadline, char *why,
                     size_t why_bytes) {
    const unsigned char *from = bytes;
    while (count > 0) {
        if (!wait_ready(socket, POLLOUT, deadline, why, why_bytes))
            return false;
        const ssize_t sent = send(socket, from, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EINTR && errno != EAGAIN) {
            (void)snprintf(why, why_bytes, "the other process is gone (%s)", strerror(errno));
            return false;
        }
        if (sent > 0) {
            from += sent;
            count -= (size_t)sent;
        }
    }
    return true;
}

static bool receive_all(int socket, void *bytes, size_t count, uint64_t deadline, char *why,
                        size_t why_bytes) {
    unsigned char *to = bytes;
    while (count > 0) {
        if (!wait_ready(socket, POLLIN, deadline, why, why_bytes))
            return false;
        const ssize_t got = recv(socket, to, count, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            (void)snprintf(why, why_bytes, "the other process is gone");
            return false;
        }
        if (got > 0) {
            to += got;
            count -= (size_t)got;
        }
    }
    return true;
}

bool message_send(int socket, message_type type, const void *body, size_t bytes, char *why,
                  size_t why_bytes) {
    const head start = {(uint64_t)type, bytes};
    const uint64_t deadline = now_ns() + DEADLINE_MS * NS_PER_MS;
    return send_all(socket, &start, sizeof start, deadline, why, why_bytes) &&
           send_all(socket, body, bytes, deadline, why, why_bytes);
}

bool message_receive(int socket, message_type type, void *body, size_t bytes, char *why,
                     size_t why_bytes) {
    head start;
    const uint64_t deadline = now_ns() + DEADLINE_MS * NS_PER_MS;
    if (!receive_all(socket, &start, sizeof start, deadline, why, why_bytes))
        return false;
    if (start.type == MESSAGE_FAILED) {
        char text[1024] = "";
        char lost[64];
        const size_t length = start.bytes < sizeof text ? (size_t)start.bytes : sizeof text - 1;
        if (!receive_all(socket, text, length, deadline, lost, sizeof lost))
            (void)snprintf(text, sizeof text, "failed, and its reason was lost");
        (void)snprintf(why, why_bytes, "%s", text);
        return false;
    }
    if (start.type != (uint64_t)type || start.bytes != bytes) {
        (void)snprintf(why, why_bytes, "message %u of %zu bytes was expected, not %llu of %llu",
                       (unsigned)type, bytes, (unsigned long long)start.type,
                       (unsigned long long)start.bytes);
        return false;
    }
    return receive_all(socket, body, bytes, deadline, why, why_bytes);
}
