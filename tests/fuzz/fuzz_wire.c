/* Everything of the TCP link that reads foreign bytes. The first byte of the input picks the
 * reader: a host's session, a peer, or the parser of requests alone, whose result written again
 * must be the same bytes. The rest arrives over a socket pair that then ends, so nothing waits. */
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ship/tcp/tcp.h"
#include "ship/tcp/tcp_session.h"
#include "support/fuzzing.h"

#define LIMIT_BYTES 4096 /* of the object that the peer asks for */

/* *ours_out has the bytes to read, and then the end; false if they do not fit. */
static bool make_pair(const uint8_t *bytes, size_t count, int *theirs_out, int *ours_out) {
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    *theirs_out = fds[0];
    *ours_out = fds[1];
    const bool fits = send(fds[0], bytes, count, MSG_NOSIGNAL) == (ssize_t)count || count == 0;
    shutdown(fds[0], SHUT_WR);
    return fits;
}

static void drain(int fd) {
    uint8_t ignored[4096];
    while (recv(fd, ignored, sizeof ignored, 0) > 0)
        continue;
}

static void feed_session(const uint8_t *bytes, size_t count) {
    xorcast_context *context = the_context();
    xci_lobby lobby = {.context = context, .options = {1, 60000, false}, .newest = 7};
    xci_blob *blob;
    xci_session *session;
    int theirs, ours;
    must(pthread_mutex_init(&lobby.lock, NULL) == 0);
    must(xci_store_create(context, &lobby.store) == XORCAST_OK);
    must(xci_blob_copy(context, "object", 6, &blob) == XORCAST_OK);
    must(xci_store_put(lobby.store, "a", blob) == XORCAST_OK);
    xci_blob_drop(blob);
    make_pair(bytes, count, &theirs, &ours);
    must(xci_session_open(&lobby, ours, &session) == XORCAST_OK);
    while (xci_session_work(session) >= 0) {
        must(session->queue_count <= XCI_PIPELINE && session->input_bytes <= sizeof session->input);
        drain(theirs);
        session->readable = session->writable = true;
    }
    xci_session_close(session);
    must(lobby.peers == 0);
    close(theirs);
    xci_store_destroy(lobby.store);
    pthread_mutex_destroy(&lobby.lock);
}

static void feed_peer(const uint8_t *bytes, size_t count) {
    xci_peer *peer;
    int theirs, ours;
    if (!make_pair(bytes, count, &theirs, &ours)) {
        close(ours);
    } else if (xci_tcp_peer_adopt(the_context(), ours, "tcp:fuzz", xci_deadline(60000), &peer) >=
               0) {
        xci_blob *blob;
        uint64_t step = 0;
        while (xci_tcp_peer_request(peer, "a", LIMIT_BYTES, xci_deadline(60000)) >= 0) {
            if (xci_tcp_peer_receive(peer, xci_deadline(60000), &blob) >= 0) {
                must(blob->size <= LIMIT_BYTES);
                xci_blob_drop(blob);
            }
            if (xci_tcp_peer_newest(peer, 7, xci_deadline(0), &step) == XORCAST_OK)
                must(step > 7 && step != XORCAST_NO_STEP);
        }
        xci_tcp_peer_close(peer);
    }
    close(theirs);
}

static void feed_parser(const uint8_t *bytes, size_t count) {
    xci_wire_request request;
    size_t used = 1;
    for (size_t at = 0; used > 0; at += used) {
        uint8_t again[XCI_WIRE_REQUEST_BYTES];
        if (xci_wire_read_request(the_context(), bytes + at, count - at, &request, &used) < 0)
            return;
        must(used > 0 || count - at < XCI_WIRE_REQUEST_BYTES);
        must(used <= count - at && used <= sizeof again);
        if (used > 0)
            must(xci_wire_write_request(again, &request) == used &&
                 memcmp(again, bytes + at, used) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    static void (*const readers[])(const uint8_t *, size_t) = {feed_session, feed_peer,
                                                               feed_parser};
    if (count > 0)
        readers[bytes[0] % 3](bytes + 1, count - 1);
    return 0;
}
