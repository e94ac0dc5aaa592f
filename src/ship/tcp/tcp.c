/* The table of the TCP link: which function does what. The functions are in tcp_host.c and
 * tcp_peer.c. */
#include "ship/tcp/tcp.h"

const xci_link xci_link_tcp = {
    .scheme = "tcp:",
    .host_open = xci_tcp_host_open,
    .host_close = xci_tcp_host_close,
    .host_url = xci_tcp_host_url,
    .host_put = xci_tcp_host_put,
    .host_drop = xci_tcp_host_drop,
    .host_announce = xci_tcp_host_announce,
    .host_stats = xci_tcp_host_stats,
    .peer_open = xci_tcp_peer_open,
    .peer_close = xci_tcp_peer_close,
    .peer_request = xci_tcp_peer_request,
    .peer_receive = xci_tcp_peer_receive,
    .peer_newest = xci_tcp_peer_newest,
    .peer_acknowledge = xci_tcp_peer_acknowledge,
};
