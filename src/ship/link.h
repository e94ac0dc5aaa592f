/* Links move named byte strings between one publisher and many subscribers. They know no tensors
 * and no versions' contents; a link is picked by the scheme of its URL ("inproc:NAME",
 * "tcp:HOST:PORT").
 *
 * Publisher side: objects are put under names and dropped again; what has no object is asked of
 * `serve` (keyframe groups, digests: made on demand). `announce` tells waiting subscribers the
 * newest step. Subscriber side: request names in a pipeline, receive them in the same order.
 *
 * A host may be used by several threads at once; a peer by one at a time. Every wait has a
 * deadline. Names are 1 to 255 bytes of [a-z0-9/.-]. Links own connections and their threads; they
 * do not own the objects (blobs are reference counted) and never retry: who opened a link decides
 * when to open it again. */
#ifndef XCI_LINK_H
#define XCI_LINK_H

#include "base/blob.h"
#include "base/context.h"

/* Makes an object that was never put. Called from a thread of the link, one call at a time, so that
 * other peers may wait for it: keep it short. A failure reaches the subscriber as a refusal, with
 * its status and the text that `context` recorded. `get` NULL: there are no objects but those that
 * were put. */
typedef struct xci_serve {
    xorcast_status (*get)(void *user, xorcast_context *context, const char *name,
                          xci_blob **blob_out);
    void *user;
} xci_serve;

typedef struct xci_host_options {
    uint32_t max_peers;       /* one more is refused; 0: 256 */
    uint64_t peer_timeout_ms; /* silence in the middle of a message or of a reply; 0: 30 s */
    bool insecure;            /* other addresses than loopback */
} xci_host_options;

typedef struct xci_host_stats {
    uint64_t sent_bytes;
    uint64_t peers;         /* connected now */
    uint64_t peers_current; /* of these, acknowledged the announced step */
} xci_host_stats;

typedef struct xci_host xci_host; /* each link's own */
typedef struct xci_peer xci_peer;

#define XCI_NAME_BYTES 256 /* with the terminating zero */
#define XCI_PIPELINE 16    /* requests that may be outstanding */
#define XCI_ANSWER_MS 5000 /* how long after its deadline the answer to `newest` may come in */

typedef struct xci_link {
    const char *scheme; /* with its colon */
    bool one_process;   /* subscribers get the very blobs that were put, with their sides */

    /* LINK_REFUSED: the address or name is taken, or is not loopback and `insecure` is not set.
     * `serve` is copied, NULL as one without `get`. */
    xorcast_status (*host_open)(xorcast_context *context, const char *url,
                                const xci_host_options *options, const xci_serve *serve,
                                xci_host **host_out);
    /* Refuses new work, waits until no thread of the link runs, frees. Peers see LINK_DOWN. NULL is
     * allowed. */
    void (*host_close)(xci_host *host);
    /* What peers open, with the port that was really taken. Valid until close. */
    const char *(*host_url)(xci_host *host);
    /* Takes a reference of its own. A name that exists is replaced. */
    xorcast_status (*host_put)(xci_host *host, const char *name, xci_blob *blob);
    void (*host_drop)(xci_host *host, const char *name);
    void (*host_announce)(xci_host *host, uint64_t step);
    void (*host_stats)(xci_host *host, xci_host_stats *stats_out);

    /* LINK_REFUSED: nothing listens there, the publisher has too many peers, or as for host_open;
     * NOT_FOUND: no such host name; DATA_VERSION: the two sides speak no common protocol;
     * TIMED_OUT; LINK_DOWN. */
    xorcast_status (*peer_open)(xorcast_context *context, const char *url, bool insecure,
                                uint64_t deadline_ns, xci_peer **peer_out);
    void (*peer_close)(xci_peer *peer); /* NULL is allowed */
    /* Asks for an object of at most `limit_bytes`. BAD_STATE when XCI_PIPELINE requests are
     * outstanding. */
    xorcast_status (*peer_request)(xci_peer *peer, const char *name, uint64_t limit_bytes,
                                   uint64_t deadline_ns);
    /* The reply to the oldest request; the blob is the caller's. A refusal by the publisher
     * (NOT_FOUND, VERSION_GONE, DATA_LIMIT for an object larger than the limit, or what `serve`
     * said) consumes that request and leaves the link usable. Any other failure breaks it: whatever
     * follows is LINK_DOWN; close and open again. Calls that do not fit (BAD_ARGUMENT, BAD_STATE)
     * change nothing. */
    xorcast_status (*peer_receive)(xci_peer *peer, uint64_t deadline_ns, xci_blob **blob_out);
    /* The newest announced step once it is larger than `after` (XORCAST_NO_STEP: any), or
     * NOTHING_NEW at the deadline. No request may be outstanding (BAD_STATE). A publisher that does
     * not even answer that there is nothing new, XCI_ANSWER_MS after the deadline, is TIMED_OUT and
     * breaks the link. */
    xorcast_status (*peer_newest)(xci_peer *peer, uint64_t after, uint64_t deadline_ns,
                                  uint64_t *step_out);
    /* Tells the publisher which step this subscriber's weights are. Not answered. */
    xorcast_status (*peer_acknowledge)(xci_peer *peer, uint64_t step, uint64_t deadline_ns);
} xci_link;

/* By URL. BAD_ARGUMENT lists the schemes there are. */
xorcast_status xci_link_find(xorcast_context *context, const char *url, const xci_link **link_out);

/* Whether a string is a name of an object. */
bool xci_name_is_valid(const char *name);
/* BAD_ARGUMENT that says what a name is, or OK. */
xorcast_status xci_name_check(xorcast_context *context, const char *name);
/* Whether a peer of the host at `url` that waits for so many replies may ask for this one. */
xorcast_status xci_request_check(xorcast_context *context, const char *name, unsigned outstanding,
                                 const char *url);
/* Options with defaults in place of zeros. */
xci_host_options xci_host_options_or_defaults(const xci_host_options *options);

extern const xci_link xci_link_inproc;
extern const xci_link xci_link_tcp;

#endif
