/* A stand-in for a GPU: fills the table of backend/device.h on the host, with the CPU backend's
 * functions, under the name "fake". It is stricter than a GPU, so that mistakes show without one:
 *   addresses   Device memory cannot be read or written through its addresses (PROT_NONE; the
 *               device itself sees it elsewhere). Every access is checked against live
 *               allocations; one outside, or work of one device on memory of another that is no
 *               copy between the two, ends the process with a text.
 *   streams     Nothing runs before someone waits for it, so that a missing wait or order is seen.
 *               What a queued copy reads is read then.
 *   failures    The n-th call, or the n-th piece of queued work, can be made to fail. */
#ifndef TEST_FAKE_DEVICE_H
#define TEST_FAKE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the backend "fake" known. Devices 0 and 1. */
void fake_device_register(void);
/* Its table, without making it known. */
const struct xci_device_ops *fake_device_ops(void);

#define FAKE_ERROR 719
#define FAKE_NO_MEMORY 2
/* The n-th call from now (0: the next) that can fail does nothing and gives FAKE_ERROR; or only
 * calls for memory are counted, and it gives FAKE_NO_MEMORY. Negative: none. */
void fake_device_fail_call(int64_t n);
void fake_device_fail_memory(int64_t n);
/* The n-th piece of queued work from now fails; from then on the device is dead: every call says
 * so, until this is called again. */
void fake_device_fail_work(int64_t n);
/* Whether a failure has been made since the last call of one of these. */
bool fake_device_failed(void);
/* The Decompression Engine. XORCAST_TEST_ENGINE=1 gives every test one that does all it can. */
typedef struct fake_engine {
    uint32_t mask; /* as in xci_device_about; 0: there is none, and calls give 801 */
    uint64_t max_bytes;
    int64_t short_job;    /* the n-th job writes half of its mask, and says so; negative: none */
    int64_t fail_call;    /* the n-th batch is refused; negative: none */
    bool reaches_nothing; /* no memory is such that it can work on it */
    /* Time that passes by the device's clock for a byte of mask, decoded or checked by kernels. */
    double engine_ns_per_byte, kernel_ns_per_byte;
} fake_engine;
#define FAKE_ENGINE_NONE ((fake_engine){.short_job = -1, .fail_call = -1})
#define FAKE_ENGINE_GOOD                                                                           \
    ((fake_engine){.mask = 4, .max_bytes = 4 << 20, .short_job = -1, .fail_call = -1})
/* Before the context is made that is to see it: a context asks its device once. */
void fake_device_engine(const fake_engine *config);
uint64_t fake_device_engine_jobs(void); /* done since then */
#define FAKE_NOT_SUPPORTED 801
#define FAKE_INVALID 1

/* Groups of more chunks in all find no room beside the old weights, as if so much of them changed;
 * UINT64_MAX: all do. */
void fake_device_gap_room(uint64_t chunks);

/* Whether a stream of `device`, the table's, is being captured: work that is put there then ends
 * the process. */
void fake_stream_capture(void *device, void *stream, bool captured);

/* What was asked of the device since fake_device_count. */
typedef struct fake_counts {
    uint64_t allocations, releases; /* of device and pinned memory, streams, events */
    uint64_t waits;                 /* of the host; asking whether an event is done is none */
    uint64_t put, put_elsewhere;    /* pieces of work on `stream`, and on others */
} fake_counts;
void fake_device_count(void *stream);
fake_counts fake_device_counted(void);

/* Bytes that were copied from one device to another, or to another context of the same. */
uint64_t fake_device_peer_bytes(void);
/* Allocations, pinned ones, streams and events that are open. */
uint64_t fake_device_open_things(void);

#endif
