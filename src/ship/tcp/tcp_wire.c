/* Messages of the TCP link: see tcp_wire.h. */
#include "ship/tcp/tcp_wire.h"

#include <string.h>

#include "base/bytes.h"

#define MAGIC UINT32_C(0x4b4c4358) /* "XCLK" */

void xci_wire_write_head(uint8_t bytes[XCI_WIRE_HEAD_BYTES], const xci_wire_head *head) {
    xci_store32(bytes, MAGIC);
    bytes[4] = head->version;
    bytes[5] = head->type;
    xci_store16(bytes + 6, 0);
    xci_store32(bytes + 8, head->id);
    xci_store32(bytes + 12, (uint32_t)head->status);
    xci_store64(bytes + 16, head->length);
}

xorcast_status xci_wire_read_head(xorcast_context *context,
                                  const uint8_t bytes[XCI_WIRE_HEAD_BYTES],
                                  xci_wire_head *head_out) {
    if (xci_load32(bytes) != MAGIC)
        FAIL(context, XORCAST_DATA_CORRUPT,
             "a message begins with %02x %02x %02x %02x: the other side does not speak xorcast; "
             "check the address",
             bytes[0], bytes[1], bytes[2], bytes[3]);
    if (bytes[5] < XCI_WIRE_HELLO || bytes[5] > XCI_WIRE_REFUSAL)
        FAIL(context, XORCAST_DATA_CORRUPT, "a message has type %u, which does not exist",
             bytes[5]);
    if (xci_load16(bytes + 6) != 0)
        FAIL(context, XORCAST_DATA_CORRUPT, "a message has something in its reserved bytes");
    *head_out = (xci_wire_head){
        .version = bytes[4],
        .type = bytes[5],
        .id = xci_load32(bytes + 8),
        .status = (int32_t)xci_load32(bytes + 12),
        .length = xci_load64(bytes + 16),
    };
    return XORCAST_OK;
}

/* The lengths that the body of a request may have; false for what no peer sends. */
static bool request_lengths(uint8_t type, uint64_t *lowest_out, uint64_t *highest_out) {
    *lowest_out = *highest_out = 0;
    switch (type) {
    case XCI_WIRE_HELLO:
        *lowest_out = *highest_out = 4;
        return true;
    case XCI_WIRE_GET:
        *lowest_out = 8 + 1;
        *highest_out = 8 + XCI_NAME_BYTES - 1;
        return true;
    case XCI_WIRE_NEWEST:
        *lowest_out = *highest_out = 12;
        return true;
    case XCI_WIRE_ACK:
        *lowest_out = *highest_out = 8;
        return true;
    default:
        return false;
    }
}

size_t xci_wire_write_request(uint8_t bytes[XCI_WIRE_REQUEST_BYTES],
                              const xci_wire_request *request) {
    uint8_t *body = bytes + XCI_WIRE_HEAD_BYTES;
    uint64_t length = 0;
    if (request->type == XCI_WIRE_HELLO) {
        xci_store32(body, request->lowest_version);
        length = 4;
    } else {
        xci_store64(body, request->number);
        length = 8;
    }
    if (request->type == XCI_WIRE_NEWEST) {
        xci_store32(body + 8, request->wait_ms);
        length = 12;
    } else if (request->type == XCI_WIRE_GET) {
        const size_t name_bytes = strlen(request->name);
        memcpy(body + 8, request->name, name_bytes);
        length = 8 + name_bytes;
    }
    const xci_wire_head head = {request->version, request->type, request->id, 0, length};
    xci_wire_write_head(bytes, &head);
    return XCI_WIRE_HEAD_BYTES + (size_t)length;
}

static xorcast_status read_name(xorcast_context *context, const uint8_t *bytes, size_t count,
                                char *name_out) {
    if (memchr(bytes, 0, count) != NULL)
        FAIL(context, XORCAST_DATA_CORRUPT, "a name of an object has a zero in it");
    memcpy(name_out, bytes, count);
    name_out[count] = '\0';
    if (!xci_name_is_valid(name_out))
        FAIL(context, XORCAST_DATA_CORRUPT,
             "a name of an object has other characters than a-z, 0-9, /, . and -");
    return XORCAST_OK;
}

xorcast_status xci_wire_read_request(xorcast_context *context, const uint8_t *bytes, size_t count,
                                     xci_wire_request *request_out, size_t *used_out) {
    *used_out = 0;
    if (count < XCI_WIRE_HEAD_BYTES)
        return XORCAST_OK;
    xci_wire_head head;
    TRY(xci_wire_read_head(context, bytes, &head));
    uint64_t lowest, highest;
    if (!request_lengths(head.type, &lowest, &highest))
        FAIL(context, XORCAST_DATA_CORRUPT,
             "a peer sent a message of type %u, which only a host sends", head.type);
    if (head.length < lowest || head.length > highest)
        FAIL(context, XORCAST_DATA_LIMIT,
             "a request of type %u has a body of %llu bytes; %llu to %llu are allowed", head.type,
             (unsigned long long)head.length, (unsigned long long)lowest,
             (unsigned long long)highest);
    if (head.status != 0)
        FAIL(context, XORCAST_DATA_CORRUPT, "a request of type %u carries status %d", head.type,
             head.status);
    if (count - XCI_WIRE_HEAD_BYTES < head.length)
        return XORCAST_OK;

    const uint8_t *body = bytes + XCI_WIRE_HEAD_BYTES;
    const size_t length = (size_t)head.length;
    *request_out = (xci_wire_request){.version = head.version, .type = head.type, .id = head.id};
    if (head.type == XCI_WIRE_HELLO)
        request_out->lowest_version = xci_load32(body);
    else
        request_out->number = xci_load64(body);
    if (head.type == XCI_WIRE_NEWEST)
        request_out->wait_ms = xci_load32(body + 8);
    if (head.type == XCI_WIRE_GET)
        TRY(read_name(context, body + 8, length - 8, request_out->name));
    *used_out = XCI_WIRE_HEAD_BYTES + length;
    return XORCAST_OK;
}

bool xci_wire_may_refuse(int32_t status) {
    if (status <= XORCAST_WEIGHTS_MIXED && status > -800)
        return false;
#define KNOWN(name, value, remedy, code, text) \
    if (status == (value))                     \
        return (value) < 0;
    XORCAST_STATUS_LIST(KNOWN)
#undef KNOWN
    return false;
}
