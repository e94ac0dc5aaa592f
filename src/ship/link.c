/* Finds a link by the scheme of a URL, and holds the rules that all links share: what a name is and
 * what the defaults are. Owns the list of links. Does not move any bytes. */
#include "ship/link.h"

#include <string.h>

#define DEFAULT_MAX_PEERS 256
#define DEFAULT_PEER_TIMEOUT_MS 30000

static const xci_link *const links[] = {&xci_link_inproc, &xci_link_tcp};

xorcast_status xci_link_find(xorcast_context *context, const char *url, const xci_link **link_out) {
    for (size_t i = 0; url != NULL && i < sizeof links / sizeof links[0]; i++) {
        if (strncmp(url, links[i]->scheme, strlen(links[i]->scheme)) == 0) {
            *link_out = links[i];
            return XORCAST_OK;
        }
    }
    FAIL(context, XORCAST_BAD_ARGUMENT,
         "\"%.200s\" is not an address of a link; write tcp:HOST:PORT or inproc:NAME",
         url == NULL ? "" : url);
}

bool xci_name_is_valid(const char *name) {
    if (name == NULL || name[0] == '\0')
        return false;
    size_t length = 0;
    for (; name[length] != '\0'; length++) {
        const char c = name[length];
        const bool allowed =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '/' || c == '.' || c == '-';
        if (!allowed || length + 1 >= XCI_NAME_BYTES)
            return false;
    }
    return true;
}

xorcast_status xci_name_check(xorcast_context *context, const char *name) {
    if (!xci_name_is_valid(name))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "\"%.255s\" cannot name an object; names are 1 to 255 bytes of a-z, 0-9, /, . and -",
             name == NULL ? "" : name);
    return XORCAST_OK;
}

xorcast_status xci_request_check(xorcast_context *context, const char *name, unsigned outstanding,
                                 const char *url) {
    TRY(xci_name_check(context, name));
    if (outstanding == XCI_PIPELINE)
        FAIL(context, XORCAST_BAD_STATE, "%d requests are outstanding at %s; receive a reply first",
             XCI_PIPELINE, url);
    return XORCAST_OK;
}

xci_host_options xci_host_options_or_defaults(const xci_host_options *options) {
    xci_host_options result = {0, 0, false};
    if (options != NULL)
        result = *options;
    if (result.max_peers == 0)
        result.max_peers = DEFAULT_MAX_PEERS;
    if (result.peer_timeout_ms == 0)
        result.peer_timeout_ms = DEFAULT_PEER_TIMEOUT_MS;
    return result;
}
