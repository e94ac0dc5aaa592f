/* One peer of a TCP host: a small state machine over a non-blocking socket, run by the host's
 * thread alone.
 *
 *     socket -> input -> queue of requests -> one reply at a time -> socket
 *
 * Owns the socket, the requests it has read and a reference to the object that it is sending. Does
 * not wait, does not know the other sessions, and never disturbs them: whatever is wrong with a
 * peer ends its session with a status and nothing else. */
#ifndef XCI_TCP_SESSION_H
#define XCI_TCP_SESSION_H

#include "ship/store.h"
#include "ship/tcp/tcp_wire.h"

/* What the sessions of a host have in common. */
typedef struct xci_lobby {
    xorcast_context *context; /* of the host's thread */
    xci_store *store;
    xci_serve serve;
    xci_host_options options;
    pthread_mutex_t lock; /* guards what follows: other threads announce and ask for statistics */
    uint64_t newest;      /* announced step, or XORCAST_NO_STEP */
    uint64_t peers;       /* sessions that were welcomed */
    uint64_t sent_bytes;
} xci_lobby;

typedef struct xci_session {
    xci_lobby *lobby;
    int fd;
    bool readable, writable; /* until the socket says EAGAIN; the host sets them from epoll */
    bool welcomed;
    bool last_reply; /* close once the reply under way is sent */
    uint8_t version;
    uint64_t acknowledged; /* guarded by the lobby's lock */

    uint8_t input[2 * XCI_WIRE_REQUEST_BYTES];
    size_t input_bytes;
    uint64_t input_deadline; /* for the rest of a message, or for the first one */

    xci_wire_request queue[XCI_PIPELINE];
    unsigned queue_first, queue_count;
    uint64_t wait_deadline; /* of the NEWEST at the head of the queue; 0: not begun */

    uint8_t head[XCI_WIRE_HEAD_BYTES +
                 XCI_WIRE_TEXT_BYTES]; /* of the reply under way, and a small body */
    size_t head_bytes;                 /* 0: no reply is under way */
    xci_blob *body;                    /* or NULL */
    uint64_t sent_bytes;               /* of head and body */
    uint64_t reply_deadline;           /* moves on with every byte the peer takes */
} xci_session;

/* The socket is the session's when this returns OK. */
xorcast_status xci_session_open(xci_lobby *lobby, int fd, xci_session **session_out);
void xci_session_close(xci_session *session);

/* Does what can be done without waiting, up to a share that is fair to the other peers. A failure
 * ends the session: close it. LINK_DOWN: the peer left. */
xorcast_status xci_session_work(xci_session *session);
/* When to call work again though the socket is silent: 0 for at once. A step that is announced is a
 * reason too. */
uint64_t xci_session_due(const xci_session *session);

#endif
