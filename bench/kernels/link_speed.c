/* Speed of the TCP link on loopback, one peer and objects in a pipeline, against plain send and
 * recv of as many bytes between two threads in the same run, taken in turns. One JSON object on
 * standard output.
 *
 *     link_speed [object MiB, 4] [total MiB, 4096] [rounds, 5]
 *
 * Nothing is compared or written by the receiver in either case: what is measured is the way. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ship/link.h"

#define MIB (UINT64_C(1) << 20)
#define MOST_ROUNDS 99

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "link_speed: %s failed\n", what);
        exit(1);
    }
}

typedef struct plain {
    int fd;
    uint8_t *bytes;
    uint64_t object_bytes, count;
} plain;

static void *send_plainly(void *user) {
    const plain *p = user;
    for (uint64_t i = 0; i < p->count; i++)
        for (uint64_t at = 0; at < p->object_bytes;) {
            const ssize_t sent = send(p->fd, p->bytes + at, p->object_bytes - at, MSG_NOSIGNAL);
            must(sent > 0, "send");
            at += (uint64_t)sent;
        }
    return NULL;
}

/* Bytes per second of plain sockets with the system's own settings. */
static double run_plain(uint8_t *bytes, uint8_t *room, uint64_t object_bytes, uint64_t count) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (const struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    const int to = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(to, (const struct sockaddr *)&address, sizeof address) == 0, "connect");
    const int from = accept(listener, NULL, NULL);
    must(from >= 0, "accept");
    plain p = {from, bytes, object_bytes, count};
    pthread_t thread;
    const uint64_t begin_ns = xci_now_ns();
    must(pthread_create(&thread, NULL, send_plainly, &p) == 0, "pthread_create");
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < object_bytes;) {
            const ssize_t got = recv(to, room + at, object_bytes - at, 0);
            must(got > 0, "recv");
            at += (uint64_t)got;
        }
    const double seconds = (double)(xci_now_ns() - begin_ns) * 1e-9;
    pthread_join(thread, NULL);
    close(listener);
    close(from);
    close(to);
    return (double)(object_bytes * count) / seconds;
}

static double run_link(xorcast_context *context, xci_peer *peer, uint64_t object_bytes,
                       uint64_t count) {
    const xci_link *link = &xci_link_tcp;
    uint64_t asked = 0;
    const uint64_t begin_ns = xci_now_ns();
    (void)context;
    for (uint64_t received = 0; received < count; received++) {
        for (; asked < count && asked < received + XCI_PIPELINE; asked++)
            must(link->peer_request(peer, "object", object_bytes, XCI_FOREVER) == XORCAST_OK,
                 "request");
        xci_blob *blob;
        must(link->peer_receive(peer, XCI_FOREVER, &blob) == XORCAST_OK, "receive");
        xci_blob_drop(blob);
    }
    return (double)(object_bytes * count) / ((double)(xci_now_ns() - begin_ns) * 1e-9);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

static uint64_t argument(int count, char **arguments, int index, uint64_t otherwise) {
    return index < count ? strtoull(arguments[index], NULL, 10) : otherwise;
}

int main(int argument_count, char **arguments) {
    const uint64_t object_bytes = argument(argument_count, arguments, 1, 4) * MIB;
    const uint64_t total_bytes = argument(argument_count, arguments, 2, 4096) * MIB;
    const uint64_t rounds = argument(argument_count, arguments, 3, 5);
    if (object_bytes == 0 || total_bytes < object_bytes || rounds == 0 || rounds > MOST_ROUNDS)
        return fprintf(stderr, "usage: link_speed [MIB OF AN OBJECT, 4 [MIB IN ALL, 4096 [ROUNDS, "
                               "5]]]\n"),
               2;
    const uint64_t count = total_bytes / object_bytes;
    const xci_link *link = &xci_link_tcp;
    double link_rates[MOST_ROUNDS], plain_rates[MOST_ROUNDS];
    xorcast_context *context;
    xci_host *host;
    xci_peer *peer;
    xci_blob *blob, *room;
    must(xorcast_context_create(NULL, &context) == XORCAST_OK, "context");
    must(xci_blob_create(context, object_bytes, &blob) == XORCAST_OK, "blob");
    must(xci_blob_create(context, object_bytes, &room) == XORCAST_OK, "blob");
    memset(blob->bytes, 0x5a, object_bytes);
    memset(room->bytes, 0, object_bytes);
    must(link->host_open(context, "tcp:127.0.0.1:0", NULL, NULL, &host) == XORCAST_OK, "host");
    must(link->host_put(host, "object", blob) == XORCAST_OK, "put");
    must(link->peer_open(context, link->host_url(host), false, XCI_FOREVER, &peer) == XORCAST_OK,
         "peer");
    for (uint64_t i = 0; i < rounds; i++) {
        plain_rates[i] = run_plain(blob->bytes, room->bytes, object_bytes, count);
        link_rates[i] = run_link(context, peer, object_bytes, count);
    }
    const double link_rate = median(link_rates, (unsigned)rounds);
    const double plain_rate = median(plain_rates, (unsigned)rounds);
    printf("{\"bench\": \"link_speed\", \"object_bytes\": %llu, \"total_bytes\": %llu, \"rounds\": "
           "%llu, "
           "\"link_gb_per_s\": %.3f, \"plain_gb_per_s\": %.3f, \"ratio\": %.3f}\n",
           (unsigned long long)object_bytes, (unsigned long long)(count * object_bytes),
           (unsigned long long)rounds, link_rate * 1e-9, plain_rate * 1e-9, link_rate / plain_rate);
    link->peer_close(peer);
    link->host_close(host);
    xci_blob_drop(blob);
    xci_blob_drop(room);
    xorcast_context_destroy(context);
    return 0;
}
