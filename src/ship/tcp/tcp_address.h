/* Addresses of the TCP link: from a URL to socket addresses and back, and the rule that only
 * loopback is spoken to unless the caller says otherwise. Does not open sockets. */
#ifndef XCI_TCP_ADDRESS_H
#define XCI_TCP_ADDRESS_H

#include <netdb.h>
#include <sys/socket.h>

#include "base/context.h"

#define XCI_ADDRESS_TEXT 96 /* "tcp:[IPv6 with a scope]:PORT" */

/* The addresses that `url` (tcp:HOST:PORT or tcp://HOST:PORT; HOST a name, IPv4 or [IPv6]) stands
 * for, in the resolver's order; free with freeaddrinfo. Port 0 only if `listening`. A name waits
 * for the system's resolver, which has time limits of its own. BAD_ARGUMENT, NOT_FOUND. */
xorcast_status xci_address_resolve(xorcast_context *context, const char *url, bool listening,
                                   struct addrinfo **list_out);

bool xci_address_is_loopback(const struct sockaddr *address);
/* Records that `url` is no loopback address and may not be used; LINK_REFUSED. */
xorcast_status xci_address_refused(xorcast_context *context, const char *url);

/* "tcp:127.0.0.1:4711" */
void xci_address_text(const struct sockaddr *address, socklen_t length,
                      char text_out[XCI_ADDRESS_TEXT]);

#endif
