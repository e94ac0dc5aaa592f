/* Addresses of the TCP link: see tcp_address.h. */
#include "ship/tcp/tcp_address.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define HOST_BYTES 256
#define FORM "write tcp:HOST:PORT, an IPv6 address in brackets"

/* Splits the URL into host and port. */
static xorcast_status split(xorcast_context *context, const char *url, char host_out[HOST_BYTES],
                            char port_out[6]) {
    const char *at = strncmp(url, "tcp:", 4) == 0 ? url + 4 : url;
    if (strncmp(at, "//", 2) == 0)
        at += 2;
    const char *host = at, *host_end, *colon;
    if (*at == '[') {
        host = at + 1;
        host_end = strchr(host, ']');
        colon = host_end == NULL ? NULL : host_end + 1;
    } else {
        host_end = colon = strchr(at, ':');
    }
    if (colon == NULL || *colon != ':' || host_end == host || host_end - host >= HOST_BYTES)
        FAIL(context, XORCAST_BAD_ARGUMENT, "\"%.200s\" has no host and port; " FORM, url);
    const char *port = colon + 1;
    const size_t port_bytes = strlen(port);
    if (port_bytes == 0 || port_bytes > 5 || strspn(port, "0123456789") != port_bytes)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "\"%.200s\" does not end in a port of 0 to 65535; " FORM, url);
    memcpy(host_out, host, (size_t)(host_end - host));
    host_out[host_end - host] = '\0';
    memcpy(port_out, port, port_bytes + 1);
    return XORCAST_OK;
}

static unsigned port_number(const char *digits) {
    unsigned number = 0;
    for (; *digits != '\0'; digits++)
        number = number * 10 + (unsigned)(*digits - '0');
    return number;
}

xorcast_status xci_address_resolve(xorcast_context *context, const char *url, bool listening,
                                   struct addrinfo **list_out) {
    char host[HOST_BYTES], port[6];
    TRY(split(context, url, host, port));
    if (port_number(port) > 65535 || (port_number(port) == 0 && !listening))
        FAIL(context, XORCAST_BAD_ARGUMENT, "\"%.200s\" names port %s; %s", url, port,
             listening ? "give one from 1 to 65535, or 0 for any free one"
                       : "give the port that the publisher reports");
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const int error = getaddrinfo(host, port, &hints, list_out);
    if (error == EAI_MEMORY)
        FAIL(context, XORCAST_NO_HOST_MEMORY,
             "no memory to look up %.200s; free some and try again", host);
    if (error != 0)
        FAIL(context, XORCAST_NOT_FOUND,
             "the host name %.200s has no address (%s); check the address", host,
             gai_strerror(error));
    return XORCAST_OK;
}

bool xci_address_is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 =
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return false;
}

xorcast_status xci_address_refused(xorcast_context *context, const char *url) {
    FAIL(context, XORCAST_LINK_REFUSED,
         "%.200s is not an address of this machine's loopback, and there is no TLS yet: whoever is "
         "on the network could read and change the weights; use 127.0.0.1, or say --insecure "
         "(option insecure = 1)",
         url);
}

void xci_address_text(const struct sockaddr *address, socklen_t length,
                      char text_out[XCI_ADDRESS_TEXT]) {
    char host[64], port[8];
    if (getnameinfo(address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(text_out, XCI_ADDRESS_TEXT, "tcp:?");
        return;
    }
    const bool brackets = strchr(host, ':') != NULL;
    snprintf(text_out, XCI_ADDRESS_TEXT, brackets ? "tcp:[%s]:%s" : "tcp:%s:%s", host, port);
}
