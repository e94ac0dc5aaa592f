/* The two ends of the TCP link, as the entries of its table. A host and a peer share the bytes of
 * the wire (tcp_wire.h) and nothing else. */
#ifndef XCI_TCP_H
#define XCI_TCP_H

#include "ship/link.h"

xorcast_status xci_tcp_host_open(xorcast_context *context, const char *url,
                                 const xci_host_options *options, const xci_serve *serve,
                                 xci_host **host_out);
void xci_tcp_host_close(xci_host *host);
const char *xci_tcp_host_url(xci_host *host);
xorcast_status xci_tcp_host_put(xci_host *host, const char *name, xci_blob *blob);
void xci_tcp_host_drop(xci_host *host, const char *name);
void xci_tcp_host_announce(xci_host *host, uint64_t step);
void xci_tcp_host_stats(xci_host *host, xci_host_stats *stats_out);

xorcast_status xci_tcp_peer_open(xorcast_context *context, const char *url, bool insecure,
                                 uint64_t deadline_ns, xci_peer **peer_out);
void xci_tcp_peer_close(xci_peer *peer);
xorcast_status xci_tcp_peer_request(xci_peer *peer, const char *name, uint64_t limit_bytes,
                                    uint64_t deadline_ns);
xorcast_status xci_tcp_peer_receive(xci_peer *peer, uint64_t deadline_ns, xci_blob **blob_out);
xorcast_status xci_tcp_peer_newest(xci_peer *peer, uint64_t after, uint64_t deadline_ns,
                                   uint64_t *step_out);
xorcast_status xci_tcp_peer_acknowledge(xci_peer *peer, uint64_t step, uint64_t deadline_ns);

/* A peer over a stream socket that is connected already, non-blocking, and the peer's from now on,
 * whatever is returned. `address` is for its messages. */
xorcast_status xci_tcp_peer_adopt(xorcast_context *context, int fd, const char *address,
                                  uint64_t deadline_ns, xci_peer **peer_out);

#endif
