/* Hostile ends of the TCP link, by raw sockets: peers that abuse a real host while an honest peer
 * goes on beside them, and hosts that lie to a real peer. The bytes are built here by hand, after
 * docs/protocol.md, so that a mistake in the library's own builder cannot hide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "ship/tcp/tcp.h"

#define PATIENCE_MS 60000 /* until a wait counts as a hang */
#define TIMEOUT_MS 150    /* the host's, for silent peers */
#define MIB (UINT64_C(1) << 20)

enum { HELLO = 1, WELCOME = 2, GET = 3, DATA = 4, NEWEST = 5, STEP = 6, ACK = 7, REFUSAL = 8 };

static uint64_t soon(void) { return xci_deadline(PATIENCE_MS); }

/* ---- Messages by hand -------------------------------------------------------------------------*/

typedef struct bytes {
    uint8_t at[4096];
    size_t count;
} bytes;

static void add_head(bytes *b, uint8_t version, uint8_t type, uint32_t id, int32_t status,
                     uint64_t length) {
    uint8_t *p = b->at + b->count;
    memcpy(p, "XCLK", 4);
    p[4] = version;
    p[5] = type;
    xci_store16(p + 6, 0);
    xci_store32(p + 8, id);
    xci_store32(p + 12, (uint32_t)status);
    xci_store64(p + 16, length);
    b->count += 24;
}

static void add32(bytes *b, uint32_t value) {
    xci_store32(b->at + b->count, value);
    b->count += 4;
}

static void add64(bytes *b, uint64_t value) {
    xci_store64(b->at + b->count, value);
    b->count += 8;
}

static void add_text(bytes *b, const char *text) {
    memcpy(b->at + b->count, text, strlen(text));
    b->count += strlen(text);
}

static void add_hello(bytes *b, uint8_t highest, uint32_t lowest) {
    add_head(b, highest, HELLO, 0, 0, 4);
    add32(b, lowest);
}

static void add_get(bytes *b, uint32_t id, const char *name) {
    add_head(b, 1, GET, id, 0, 8 + strlen(name));
    add64(b, UINT64_MAX);
    add_text(b, name);
}

static void add_newest(bytes *b, uint32_t id, uint64_t after, uint32_t wait_ms) {
    add_head(b, 1, NEWEST, id, 0, 12);
    add64(b, after);
    add32(b, wait_ms);
}

/* ---- Raw sockets ------------------------------------------------------------------------------*/

static void send_bytes(int fd, const void *from, size_t count) {
    const uint8_t *at = from;
    while (count > 0) {
        const ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
        if (sent < 0)
            return; /* the other end may have closed already, which is what many cases want */
        at += sent;
        count -= (size_t)sent;
    }
}

static void send_all(int fd, const bytes *b) { send_bytes(fd, b->at, b->count); }

/* Whether the other end closes; what it says before is ignored. */
static bool is_closed(int fd) {
    uint8_t ignored[4096];
    const struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (;;) {
        const ssize_t got = recv(fd, ignored, sizeof ignored, 0);
        if (got <= 0)
            return got == 0 || errno == ECONNRESET || errno == EPIPE;
    }
}

static bool read_exactly(int fd, void *to, size_t count) {
    return recv(fd, to, count, MSG_WAITALL) == (ssize_t)count;
}

static void reset(int fd) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* ---- A host, and an honest peer beside whoever abuses it --------------------------------------*/

typedef struct rig {
    xorcast_context *context;
    uint64_t context_bytes;
    xci_host *host;
    xci_peer *honest;
    uint16_t port;
} rig;

static uint64_t bytes_in_use(xorcast_context *context) {
    xorcast_memory memory;
    xorcast_context_memory(context, &memory);
    return memory.now_bytes;
}

static void put(rig *r, const char *name, uint64_t count) {
    xci_blob *blob;
    assert_int_equal(xci_blob_create(r->context, count, &blob), XORCAST_OK);
    memset(blob->bytes, 'x', count);
    assert_int_equal(xci_tcp_host_put(r->host, name, blob), XORCAST_OK);
    xci_blob_drop(blob);
}

static xorcast_context *make_context(void) {
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    xorcast_context *context;
    assert_int_equal(xorcast_context_create(&options, &context), XORCAST_OK);
    return context;
}

static int set_up(void **state) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->context = make_context();
    r->context_bytes = bytes_in_use(r->context);
    const xci_host_options options = {.max_peers = 4, .peer_timeout_ms = TIMEOUT_MS};
    assert_int_equal(xci_tcp_host_open(r->context, "tcp:127.0.0.1:0", &options, NULL, &r->host),
                     XORCAST_OK);
    r->port = (uint16_t)strtoul(strrchr(xci_tcp_host_url(r->host), ':') + 1, NULL, 10);
    assert_int_equal(xci_tcp_peer_open(r->context, xci_tcp_host_url(r->host), false, soon(),
                                       &r->honest),
                     XORCAST_OK);
    put(r, "small", 100);
    put(r, "large", 20 * MIB);
    *state = r;
    return 0;
}

static void assert_honest_is_served(rig *r) {
    xci_blob *blob;
    assert_int_equal(xci_tcp_peer_request(r->honest, "small", 100, soon()), XORCAST_OK);
    assert_int_equal(xci_tcp_peer_receive(r->honest, soon(), &blob), XORCAST_OK);
    assert_int_equal(blob->size, 100);
    xci_blob_drop(blob);
}

static int tear_down(void **state) {
    rig *r = *state;
    assert_honest_is_served(r);
    xci_tcp_peer_close(r->honest);
    xci_tcp_host_close(r->host);
    const bool even = bytes_in_use(r->context) == r->context_bytes;
    xorcast_context_destroy(r->context);
    free(r);
    return even ? 0 : -1;
}

static int connect_raw(const rig *r) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(r->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A raw peer that was welcomed. */
static int connect_welcomed(const rig *r) {
    bytes b = {.count = 0};
    uint8_t reply[24];
    const int fd = connect_raw(r);
    add_hello(&b, 1, 1);
    send_all(fd, &b);
    assert_true(read_exactly(fd, reply, sizeof reply));
    assert_memory_equal(reply, "XCLK\x01\x02\0\0", 8);
    return fd;
}

/* These bytes get a peer closed, whether it says hello before or not. */
static void assert_closes(rig *r, bool welcomed, const bytes *b) {
    const int fd = welcomed ? connect_welcomed(r) : connect_raw(r);
    send_all(fd, b);
    assert_true(is_closed(fd));
    close(fd);
    assert_honest_is_served(r);
}

static void test_garbage(void **state) {
    rig *r = *state;
    uint64_t x = 1;
    for (unsigned round = 0; round < 100; round++) {
        bytes b = {.count = 24 + round * 10};
        for (size_t i = 0; i < b.count; i++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
            b.at[i] = (uint8_t)(x >> 56);
        }
        assert_closes(r, round % 2 == 1, &b);
    }
    bytes http = {.count = 0};
    add_text(&http, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_closes(r, false, &http);
}

/* One field of a good message made bad. */
static void test_bad_fields(void **state) {
    rig *r = *state;
    const struct {
        uint8_t version, type;
        int32_t status;
        uint64_t length;
    } bad[] = {
        {1, 0, 0, 8},
        {1, 9, 0, 8},
        {1, 255, 0, 8},
        {1, WELCOME, 0, 0},
        {1, DATA, 0, 8},
        {1, STEP, 0, 8},
        {1, REFUSAL, -1, 8},
        {1, HELLO, 0, 4},
        {1, HELLO, 0, 5},
        {1, HELLO, 0, 0},
        {2, GET, 0, 9},
        {0, GET, 0, 9},
        {1, GET, 1, 9},
        {1, GET, -1, 9},
        {1, GET, 0, 8},
        {1, GET, 0, 0},
        {1, GET, 0, 264},
        {1, GET, 0, MIB},
        {1, GET, 0, UINT64_MAX},
        {1, GET, 0, UINT64_C(1) << 32},
        {1, NEWEST, 0, 11},
        {1, NEWEST, 0, 13},
        {1, ACK, 0, 7},
        {1, ACK, 0, 9},
        {1, ACK, 0, INT64_MAX},
        {2, NEWEST, 0, 12},
        {3, ACK, 0, 8},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes b = {.count = 0};
        add_head(&b, bad[i].version, bad[i].type, 7, bad[i].status, bad[i].length);
        memset(b.at + b.count, 'a', 300);
        b.count += bad[i].length < 300 ? (size_t)bad[i].length : 300;
        assert_closes(r, true, &b);
    }
    bytes b = {.count = 0};
    add_head(&b, 1, ACK, 7, 0, 8);
    add64(&b, 1);
    for (size_t at = 0; at < 8; at++) {
        if (at == 4 || at == 5)
            continue; /* version and type, which are above */
        b.at[at] ^= 0x40;
        assert_closes(r, true, &b);
        b.at[at] ^= 0x40;
    }
}

static void test_bad_names(void **state) {
    rig *r = *state;
    const char *const bad[] = {"A", "a b", "a_b", "\xff\xfe", "a\n", "small\r", "$(x)"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes b = {.count = 0};
        add_get(&b, 1, bad[i]);
        assert_closes(r, true, &b);
    }
    bytes zero = {.count = 0};
    add_get(&zero, 1, "small-");
    zero.at[zero.count - 1] = 0;
    assert_closes(r, true, &zero);
}

static void test_wrong_order(void **state) {
    rig *r = *state;
    bytes get = {.count = 0}, twice = {.count = 0};
    add_get(&get, 1, "small");
    assert_closes(r, false, &get);
    add_hello(&twice, 1, 1);
    add_hello(&twice, 1, 1);
    assert_closes(r, false, &twice);
}

/* A version that is not spoken here is told so, with a text, and closed. */
static void test_other_versions(void **state) {
    rig *r = *state;
    const struct {
        uint8_t highest;
        uint32_t lowest;
    } bad[] = {{5, 2}, {255, 255}, {0, 0}, {1, 2}, {1, UINT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes b = {.count = 0};
        uint8_t head[24], text[512];
        const int fd = connect_raw(r);
        add_hello(&b, bad[i].highest, bad[i].lowest);
        send_all(fd, &b);
        assert_true(read_exactly(fd, head, sizeof head));
        assert_memory_equal(head, "XCLK\x01\x08\0\0", 8);
        assert_int_equal((int32_t)xci_load32(head + 12), XORCAST_DATA_VERSION);
        const uint64_t length = xci_load64(head + 16);
        assert_true(length > 0 && length < sizeof text);
        assert_true(read_exactly(fd, text, (size_t)length));
        assert_true(is_closed(fd));
        close(fd);
    }
    /* A newer peer that still speaks version 1 is welcome. */
    bytes b = {.count = 0};
    uint8_t head[24];
    const int fd = connect_raw(r);
    add_hello(&b, 9, 1);
    send_all(fd, &b);
    assert_true(read_exactly(fd, head, sizeof head));
    assert_memory_equal(head, "XCLK\x01\x02\0\0", 8);
    close(fd);
}

/* Peers that fall silent: at once, in a head, in a body, byte by byte. */
static void test_silence(void **state) {
    rig *r = *state;
    bytes hello = {.count = 0}, get = {.count = 0};
    add_hello(&hello, 1, 1);
    add_get(&get, 1, "small");
    int fds[4];
    fds[0] = connect_raw(r);
    fds[1] = connect_raw(r);
    send_bytes(fds[1], hello.at, 12);
    fds[2] = connect_welcomed(r);
    send_bytes(fds[2], get.at, 12);
    fds[3] = connect_welcomed(r);
    send_bytes(fds[3], get.at, get.count - 1);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(is_closed(fds[i]));
        close(fds[i]);
    }
    /* A drip would go on for four times as long as a message may take. */
    const int fd = connect_raw(r);
    const uint64_t begin_ns = xci_now_ns();
    struct pollfd closed = {.fd = fd, .events = POLLIN | POLLRDHUP};
    size_t sent = 0;
    while (sent < hello.count && poll(&closed, 1, TIMEOUT_MS / 7) == 0)
        send_bytes(fd, hello.at + sent++, 1);
    assert_true(sent < hello.count);
    assert_true(xci_now_ns() - begin_ns >= (TIMEOUT_MS - 1) * UINT64_C(1000000));
    close(fd);
}

/* Silence between requests is no fault, however long compared with the timeout. */
static void test_idle_is_no_fault(void **state) {
    rig *r = *state;
    const int fd = connect_welcomed(r);
    const int half =
        connect_raw(r); /* is dropped for its silence: proof that the time has passed */
    assert_true(is_closed(half));
    close(half);
    bytes b = {.count = 0};
    uint8_t head[24], body[100];
    add_get(&b, 5, "small");
    send_all(fd, &b);
    assert_true(read_exactly(fd, head, sizeof head) && read_exactly(fd, body, sizeof body));
    assert_memory_equal(head, "XCLK\x01\x04\0\0\x05\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0", 24);
    close(fd);
}

static void test_never_reads(void **state) {
    rig *r = *state;
    bytes b = {.count = 0};
    const int fd = connect_welcomed(r);
    for (uint32_t i = 0; i < XCI_PIPELINE; i++)
        add_get(&b, i, "large");
    send_all(fd, &b);
    struct pollfd hung_up = {.fd = fd, .events = 0};
    int ready;
    while ((ready = poll(&hung_up, 1, 0)) == 0)
        assert_honest_is_served(r);
    assert_true(ready == 1 && (hung_up.revents & (POLLERR | POLLHUP)) != 0);
    close(fd);
}

static void test_too_many_requests(void **state) {
    rig *r = *state;
    bytes b = {.count = 0};
    add_newest(&b, 1, 5, 60000);
    for (uint32_t i = 0; i < XCI_PIPELINE; i++)
        add_get(&b, 2 + i, "small");
    assert_closes(r, true, &b);
}

/* Two floods that the protocol allows, acknowledgements and refused requests, beside honest work.
 */
static void test_floods(void **state) {
    rig *r = *state;
    bytes acks = {.count = 0}, gets = {.count = 0};
    while (acks.count + 32 <= sizeof acks.at) {
        add_head(&acks, 1, ACK, 0, 0, 8);
        add64(&acks, acks.count);
    }
    for (uint32_t i = 0; i < XCI_PIPELINE; i++)
        add_get(&gets, i, "nothing");
    const int first = connect_welcomed(r), second = connect_welcomed(r);
    for (unsigned i = 0; i < 200; i++) {
        (void)!send(first, acks.at, acks.count, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)!send(second, gets.at, gets.count, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_honest_is_served(r);
    }
    close(first);
    reset(second);
}

/* More connections than there are places, all silent: the host closes what it has no room for, and
 * all of them in time; then there is room again. */
static void test_storm_of_connections(void **state) {
    rig *r = *state;
    enum { STORM = 60 };
    int fds[STORM];
    for (unsigned i = 0; i < STORM; i++)
        fds[i] = connect_raw(r);
    assert_honest_is_served(r);
    for (unsigned i = 0; i < STORM; i++) {
        assert_true(is_closed(fds[i]));
        close(fds[i]);
    }
    xci_peer *peer;
    assert_int_equal(xci_tcp_peer_open(r->context, xci_tcp_host_url(r->host), false, soon(), &peer),
                     XORCAST_OK);
    xci_tcp_peer_close(peer);
}

/* A good conversation, cut after every byte, politely and not. */
static void test_leaving_anywhere(void **state) {
    rig *r = *state;
    bytes b = {.count = 0};
    add_hello(&b, 1, 1);
    add_newest(&b, 1, 0, 60000);
    add_get(&b, 2, "large");
    for (size_t cut = 0; cut <= b.count; cut++) {
        const int fd = connect_raw(r);
        send_bytes(fd, b.at, cut);
        if (cut % 2 == 0)
            close(fd);
        else
            reset(fd);
    }
    assert_honest_is_served(r);
    /* In the middle of a reply, which has begun. */
    bytes get = {.count = 0};
    uint8_t head[24];
    add_get(&get, 2, "large");
    for (unsigned i = 0; i < 20; i++) {
        /* Places free up when the host notices that a peer left. */
        int fd = connect_raw(r);
        bytes hello = {.count = 0};
        add_hello(&hello, 1, 1);
        send_all(fd, &hello);
        send_all(fd, &get);
        (void)!read_exactly(fd, head, sizeof head);
        if (i % 2 == 0)
            close(fd);
        else
            reset(fd);
    }
}

/* Slow but honest: every byte in a packet of its own. */
static void test_pieces(void **state) {
    rig *r = *state;
    bytes b = {.count = 0};
    uint8_t reply[24 + 24 + 100];
    add_hello(&b, 1, 1);
    add_get(&b, 9, "small");
    const int fd = connect_raw(r);
    for (size_t i = 0; i < b.count; i++)
        send_bytes(fd, b.at + i, 1);
    assert_true(read_exactly(fd, reply, sizeof reply));
    assert_memory_equal(reply + 24, "XCLK\x01\x04\0\0\x09", 9);
    close(fd);
}

/* ---- Lying hosts ------------------------------------------------------------------------------*/

/* A connected pair over TCP: what the script says lies in the peer's socket before it looks. */
static void make_pair(int *script_out, int *peer_out) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    *script_out = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(*script_out, (const struct sockaddr *)&address, sizeof address), 0);
    *peer_out = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(*peer_out >= 0);
    close(listener);
}

typedef enum ending { CLOSES, FALLS_SILENT } ending_kind;

/* What opening a peer comes to against a host that says these bytes and then closes or falls
 * silent. */
static xorcast_status greet(xorcast_context *context, const bytes *b, ending_kind ending) {
    int script, fd;
    xci_peer *peer = NULL;
    make_pair(&script, &fd);
    send_all(script, b);
    if (ending == CLOSES)
        shutdown(script, SHUT_WR);
    const xorcast_status status =
        xci_tcp_peer_adopt(context, fd, "tcp:liar", xci_deadline(TIMEOUT_MS), &peer);
    if (status >= 0)
        xci_tcp_peer_close(peer);
    else
        assert_null(peer);
    close(script);
    return status;
}

/* The same for a request of "a" with at most `limit_bytes`, after a good welcome. A failure that is
 * no refusal breaks the link. */
static xorcast_status fetch(xorcast_context *context, const bytes *b, uint64_t limit_bytes,
                            ending_kind ending) {
    int script, fd;
    xci_peer *peer;
    xci_blob *blob = NULL;
    bytes welcome = {.count = 0};
    make_pair(&script, &fd);
    add_head(&welcome, 1, WELCOME, 0, 0, 0);
    send_all(script, &welcome);
    send_all(script, b);
    if (ending == CLOSES)
        shutdown(script, SHUT_WR);
    assert_int_equal(xci_tcp_peer_adopt(context, fd, "tcp:liar", soon(), &peer), XORCAST_OK);
    assert_int_equal(xci_tcp_peer_request(peer, "a", limit_bytes, soon()), XORCAST_OK);
    const uint64_t deadline_ns = ending == CLOSES ? soon() : xci_deadline(TIMEOUT_MS);
    const xorcast_status status = xci_tcp_peer_receive(peer, deadline_ns, &blob);
    if (status >= 0)
        xci_blob_drop(blob);
    else
        assert_null(blob);
    if (status < 0 && status != XORCAST_NOT_FOUND) {
        assert_int_equal(xci_tcp_peer_receive(peer, soon(), &blob), XORCAST_LINK_DOWN);
        assert_int_equal(xci_tcp_peer_request(peer, "a", 1, soon()), XORCAST_LINK_DOWN);
    }
    xci_tcp_peer_close(peer);
    close(script);
    return status;
}

static void test_false_welcomes(void **state) {
    (void)state;
    xorcast_context *context = make_context();
    const uint64_t before_bytes = bytes_in_use(context);
    const struct {
        uint8_t version, type;
        uint32_t id;
        int32_t status;
        uint64_t length;
        xorcast_status expected;
    } cases[] = {
        {1, WELCOME, 0, 0, 0, XORCAST_OK},
        {0, WELCOME, 0, 0, 0, XORCAST_DATA_VERSION},
        {2, WELCOME, 0, 0, 0, XORCAST_DATA_VERSION},
        {255, WELCOME, 0, 0, 0, XORCAST_DATA_VERSION},
        {1, WELCOME, 1, 0, 0, XORCAST_DATA_CORRUPT},
        {1, WELCOME, 0, 1, 0, XORCAST_DATA_CORRUPT},
        {1, WELCOME, 0, -1, 0, XORCAST_DATA_CORRUPT},
        {1, WELCOME, 0, 0, 1, XORCAST_DATA_CORRUPT},
        {1, WELCOME, 0, 0, UINT64_MAX, XORCAST_DATA_CORRUPT},
        {1, HELLO, 0, 0, 4, XORCAST_DATA_CORRUPT},
        {1, DATA, 0, 0, 4, XORCAST_DATA_CORRUPT},
        {1, 0, 0, 0, 0, XORCAST_DATA_CORRUPT},
        {1, 77, 0, 0, 0, XORCAST_DATA_CORRUPT},
        {7, REFUSAL, 0, XORCAST_DATA_VERSION, 4, XORCAST_DATA_VERSION},
        {1, REFUSAL, 0, XORCAST_LINK_REFUSED, 0, XORCAST_LINK_REFUSED},
        {1, REFUSAL, 0, 0, 4, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, 1, 4, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, -12345, 4, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, XORCAST_WEIGHTS_MIXED, 4, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, XORCAST_WEIGHTS_WRONG, 4, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, XORCAST_NOT_FOUND, 512, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, XORCAST_NOT_FOUND, UINT64_MAX, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 0, XORCAST_NOT_FOUND, 5, XORCAST_LINK_DOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes b = {.count = 0};
        add_head(&b, cases[i].version, cases[i].type, cases[i].id, cases[i].status,
                 cases[i].length);
        if (cases[i].length == 4 || cases[i].length == 5)
            add_text(&b, "text");
        assert_int_equal(greet(context, &b, CLOSES), cases[i].expected);
    }
    bytes control = {.count = 0};
    add_head(&control, 1, REFUSAL, 0, XORCAST_NOT_FOUND, 4);
    add_text(&control, "a\033[m");
    assert_int_equal(greet(context, &control, CLOSES), XORCAST_DATA_CORRUPT);
    assert_int_equal(bytes_in_use(context), before_bytes);
    xorcast_context_destroy(context);
}

/* Every byte of a welcome that is missing, and every one of its magic that is wrong. */
static void test_broken_welcomes(void **state) {
    (void)state;
    xorcast_context *context = make_context();
    bytes whole = {.count = 0};
    add_head(&whole, 1, WELCOME, 0, 0, 0);
    for (size_t cut = 0; cut < whole.count; cut++) {
        bytes b = whole;
        b.count = cut;
        assert_int_equal(greet(context, &b, CLOSES), XORCAST_LINK_DOWN);
    }
    for (size_t at = 0; at < 8; at++) {
        bytes b = whole;
        b.at[at] ^= 0x20;
        assert_int_equal(greet(context, &b, CLOSES),
                         at == 4 ? XORCAST_DATA_VERSION : XORCAST_DATA_CORRUPT);
    }
    bytes half = whole;
    half.count = 12;
    assert_int_equal(greet(context, &half, FALLS_SILENT), XORCAST_TIMED_OUT);
    half.count = 0;
    assert_int_equal(greet(context, &half, FALLS_SILENT), XORCAST_TIMED_OUT);
    xorcast_context_destroy(context);
}

static void test_false_replies(void **state) {
    (void)state;
    xorcast_context *context = make_context();
    const uint64_t before_bytes = bytes_in_use(context);
    const struct {
        uint8_t version, type;
        uint32_t id;
        int32_t status;
        uint64_t length;
        ending_kind ending;
        xorcast_status expected;
    } cases[] = {
        {1, DATA, 1, 0, 4, CLOSES, XORCAST_OK},
        {1, DATA, 1, 0, 0, CLOSES, XORCAST_OK},
        {1, REFUSAL, 1, XORCAST_NOT_FOUND, 4, CLOSES, XORCAST_NOT_FOUND},
        {1, DATA, 1, 0, 5, CLOSES, XORCAST_LINK_DOWN},
        {1, DATA, 1, 0, 5, FALLS_SILENT, XORCAST_TIMED_OUT},
        {1, DATA, 1, 0, 1000, CLOSES, XORCAST_LINK_DOWN},
        {1, DATA, 1, 0, 1001, CLOSES, XORCAST_DATA_CORRUPT},
        {1, DATA, 1, 0, UINT64_MAX, CLOSES, XORCAST_DATA_CORRUPT},
        {1, DATA, 1, 0, UINT64_C(1) << 63, CLOSES, XORCAST_DATA_CORRUPT},
        {1, DATA, 0, 0, 4, CLOSES, XORCAST_DATA_CORRUPT},
        {1, DATA, 2, 0, 4, CLOSES, XORCAST_DATA_CORRUPT},
        {2, DATA, 1, 0, 4, CLOSES, XORCAST_DATA_VERSION},
        {1, DATA, 1, 1, 4, CLOSES, XORCAST_DATA_CORRUPT},
        {1, DATA, 1, -1, 4, CLOSES, XORCAST_DATA_CORRUPT},
        {1, STEP, 1, 0, 8, CLOSES, XORCAST_DATA_CORRUPT},
        {1, WELCOME, 1, 0, 0, CLOSES, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 1, XORCAST_WEIGHTS_WRONG, 4, CLOSES, XORCAST_DATA_CORRUPT},
        {1, REFUSAL, 1, XORCAST_NOT_FOUND, 600, CLOSES, XORCAST_DATA_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes b = {.count = 0};
        add_head(&b, cases[i].version, cases[i].type, cases[i].id, cases[i].status,
                 cases[i].length);
        if (cases[i].length > 0)
            add_text(&b, "text");
        assert_int_equal(fetch(context, &b, 1000, cases[i].ending), cases[i].expected);
    }
    assert_int_equal(bytes_in_use(context), before_bytes);
    xorcast_context_destroy(context);
}

typedef struct sender {
    pthread_t thread;
    int fd;
    uint64_t count;
} sender;

static void *send_much(void *user) {
    const sender *s = user;
    static uint8_t zeros[65536];
    for (uint64_t sent = 0; sent < s->count; sent += sizeof zeros)
        send_bytes(s->fd, zeros, sizeof zeros);
    shutdown(s->fd, SHUT_WR);
    return NULL;
}

/* A length that the caller would allow costs the peer 64 MiB of memory that it does not touch, and
 * then no more than nine times what really came. */
static void test_lying_length_costs_little(void **state) {
    (void)state;
    const struct {
        uint64_t sent_bytes, most_bytes;
    } cases[] = {{0, 64 * MIB}, {65536, 64 * MIB}, {65 * MIB, (64 + 512) * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xorcast_context *context = make_context();
        bytes b = {.count = 0};
        int fd;
        xci_peer *peer;
        xci_blob *blob;
        sender s = {.count = cases[i].sent_bytes};
        make_pair(&s.fd, &fd);
        add_head(&b, 1, WELCOME, 0, 0, 0);
        add_head(&b, 1, DATA, 1, 0, UINT64_C(1) << 40);
        send_all(s.fd, &b);
        assert_int_equal(pthread_create(&s.thread, NULL, send_much, &s), 0);
        assert_int_equal(xci_tcp_peer_adopt(context, fd, "tcp:liar", soon(), &peer), XORCAST_OK);
        assert_int_equal(xci_tcp_peer_request(peer, "a", UINT64_MAX, soon()), XORCAST_OK);
        assert_int_equal(xci_tcp_peer_receive(peer, soon(), &blob), XORCAST_LINK_DOWN);
        pthread_join(s.thread, NULL);
        xci_tcp_peer_close(peer);
        close(s.fd);
        xorcast_memory memory;
        xorcast_context_memory(context, &memory);
        assert_true(memory.high_water_bytes <= cases[i].most_bytes + 65536);
        xorcast_context_destroy(context);
    }
}

/* What a question for news comes to against a host that gives this answer, or none. */
static xorcast_status ask(xorcast_context *context, const bytes *b) {
    int script, fd;
    xci_peer *peer;
    uint64_t step = 4711;
    bytes welcome = {.count = 0};
    make_pair(&script, &fd);
    add_head(&welcome, 1, WELCOME, 0, 0, 0);
    send_all(script, &welcome);
    send_all(script, b);
    assert_int_equal(xci_tcp_peer_adopt(context, fd, "tcp:liar", soon(), &peer), XORCAST_OK);
    const xorcast_status status = xci_tcp_peer_newest(peer, 10, xci_deadline(0), &step);
    assert_int_equal(step, status == XORCAST_OK ? 11 : 4711);
    xci_tcp_peer_close(peer);
    close(script);
    return status;
}

static void test_false_news(void **state) {
    (void)state;
    xorcast_context *context = make_context();
    const struct {
        uint32_t id;
        int32_t status;
        uint64_t length, step;
        xorcast_status expected;
    } cases[] = {
        {1, 0, 8, 11, XORCAST_OK},
        {1, XORCAST_NOTHING_NEW, 0, 0, XORCAST_NOTHING_NEW},
        {1, 0, 8, 10, XORCAST_DATA_CORRUPT},
        {1, 0, 8, 0, XORCAST_DATA_CORRUPT},
        {1, 0, 8, XORCAST_NO_STEP, XORCAST_DATA_CORRUPT},
        {1, 0, 7, 11, XORCAST_DATA_CORRUPT},
        {1, 0, 9, 11, XORCAST_DATA_CORRUPT},
        {1, 0, 0, 11, XORCAST_DATA_CORRUPT},
        {1, XORCAST_NOTHING_NEW, 8, 11, XORCAST_DATA_CORRUPT},
        {1, XORCAST_IN_PROGRESS, 8, 11, XORCAST_DATA_CORRUPT},
        {2, 0, 8, 11, XORCAST_DATA_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes b = {.count = 0};
        add_head(&b, 1, STEP, cases[i].id, cases[i].status, cases[i].length);
        add64(&b, cases[i].step);
        assert_int_equal(ask(context, &b), cases[i].expected);
    }
    /* No answer at all: the only case that has to wait for XCI_ANSWER_MS. */
    const bytes nothing = {.count = 0};
    const uint64_t begin_ns = xci_now_ns();
    assert_int_equal(ask(context, &nothing), XORCAST_TIMED_OUT);
    assert_true(xci_now_ns() - begin_ns >= (XCI_ANSWER_MS - 1) * UINT64_C(1000000));
    xorcast_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_fields, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_idle_is_no_fault, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_never_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_many_requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_floods, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_storm_of_connections, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leaving_anywhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pieces, set_up, tear_down),
        cmocka_unit_test(test_false_welcomes),
        cmocka_unit_test(test_broken_welcomes),
        cmocka_unit_test(test_false_replies),
        cmocka_unit_test(test_lying_length_costs_little),
        cmocka_unit_test(test_false_news),
    };
    return cmocka_run_group_tests_name("tcp_hostile", tests, NULL, NULL);
}
