/* The bytes of the TCP link's messages: docs/protocol.md is the law, this is its only
 * implementation. Turns structs into bytes and foreign bytes into structs, with every check that
 * needs no connection. Does not read or write sockets. */
#ifndef XCI_TCP_WIRE_H
#define XCI_TCP_WIRE_H

#include "base/context.h"
#include "ship/link.h"

/* Versions of the protocol spoken here. */
#define XCI_WIRE_LOWEST 1
#define XCI_WIRE_HIGHEST 1

#define XCI_WIRE_HEAD_BYTES 24
#define XCI_WIRE_REQUEST_BYTES \
    (XCI_WIRE_HEAD_BYTES + 8 + XCI_NAME_BYTES - 1) /* the largest request: GET */
#define XCI_WIRE_STEP_BYTES 8
#define XCI_WIRE_TEXT_BYTES 511 /* of a refusal; no terminating zero travels */

typedef enum xci_wire_type {
    XCI_WIRE_HELLO = 1,   /* peer: lowest version; its head carries the highest */
    XCI_WIRE_WELCOME = 2, /* host: its head carries the version that both speak from now on */
    XCI_WIRE_GET = 3,     /* peer: limit, name */
    XCI_WIRE_DATA = 4,    /* host: the object */
    XCI_WIRE_NEWEST = 5,  /* peer: after, how long to wait */
    XCI_WIRE_STEP = 6,    /* host: the newest step, or status NOTHING_NEW and no body */
    XCI_WIRE_ACK = 7,     /* peer: the step of its weights; not answered */
    XCI_WIRE_REFUSAL = 8  /* host: status and text */
} xci_wire_type;

typedef struct xci_wire_head {
    uint8_t version;
    uint8_t type;
    uint32_t id; /* of the request; a reply repeats it */
    int32_t status;
    uint64_t length; /* of the body that follows */
} xci_wire_head;

void xci_wire_write_head(uint8_t bytes[XCI_WIRE_HEAD_BYTES], const xci_wire_head *head);
/* DATA_CORRUPT for what is not the head of a message of this protocol. */
xorcast_status xci_wire_read_head(xorcast_context *context,
                                  const uint8_t bytes[XCI_WIRE_HEAD_BYTES],
                                  xci_wire_head *head_out);

/* What a peer asks. Fields that its type has not are 0. */
typedef struct xci_wire_request {
    uint8_t version, type;
    uint32_t id;
    uint32_t lowest_version; /* HELLO */
    uint32_t wait_ms;        /* NEWEST */
    uint64_t number;         /* GET: limit; NEWEST: after; ACK: step */
    char name[XCI_NAME_BYTES];
} xci_wire_request;

/* Returns how many bytes were written. The request must be valid. */
size_t xci_wire_write_request(uint8_t bytes[XCI_WIRE_REQUEST_BYTES],
                              const xci_wire_request *request);
/* Takes one request off the front of `bytes`. OK with *used_out 0: more bytes are needed, and
 * XCI_WIRE_REQUEST_BYTES always suffice. DATA_CORRUPT or DATA_LIMIT: no request of this protocol.
 */
xorcast_status xci_wire_read_request(xorcast_context *context, const uint8_t *bytes, size_t count,
                                     xci_wire_request *request_out, size_t *used_out);

/* Whether a host may refuse with this status: any failure except one that speaks of the peer's
 * weights. */
bool xci_wire_may_refuse(int32_t status);

#endif
