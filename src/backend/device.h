/* Devices: memory, streams and batched operations of a GPU, as one table of C functions without any
 * type of a vendor. A plug-in fills the table (backend/cuda/cuda_device.c; plugin.c loads it at run
 * time), a test may bring a stand-in of its own. A context owns at most one open device
 * and the account of what was allocated there; for more devices there are contexts beside it
 * (base/context.h).
 *
 * Rules of the table:
 *   result      Every call that can fail returns 0 or the device's own number. xci_device_result
 *               makes a status of it: NO_DEVICE_MEMORY or DEVICE_FAILED, with the number in the
 *               error record. Once a call has failed, others may report it late and again.
 *   streams     Calls with a stream put work on it and return. NULL is the device's default stream,
 *               which is where callers work who have none. Memory that the work touches must stay
 *               as it is until an event or a wait says that the work is done.
 *   addresses   Device addresses are valid on the host too, as numbers: host code never reads
 *               through them. Pinned host memory can be read by both sides.
 *   threads     Any thread, also several at once, except for one stream or one event. */
#ifndef XCI_DEVICE_H
#define XCI_DEVICE_H

#include "backend/cuda/cuda_kernels.h"
#include "base/context.h"

#define XCI_DEVICE_ABI 5u /* of the table and of the structures that go through it */

typedef struct xci_device_about {
    char name[64];
    char architecture[16]; /* "sm_90" */
    char pci[16];          /* "0000:1b:00.0"; empty: not on a bus */
    uint32_t processors;   /* multiprocessors */
    uint32_t driver_version, runtime_version; /* 13000 is 13.0 */
    uint64_t memory_bytes, free_bytes;
    /* Decompression Engine: bits of what it decodes (1 Deflate, 2 Snappy, 4 LZ4) and the longest
     * operation; 0: there is none. */
    uint32_t decompress_mask;
    uint64_t decompress_max_bytes;
} xci_device_about;

/* One block for the Decompression Engine, laid out as drivers take it. `algorithm` is one of the
 * bits of decompress_mask. Block, mask and actual_bytes are memory that the engine reaches. What it
 * does with a block that is damaged, or longer than it says, nobody promises: `mask_bytes` is no
 * bound. */
typedef struct xci_decompress_job {
    uint64_t block_bytes, mask_bytes;
    uint32_t *actual_bytes; /* becomes what was written; 4-byte aligned */
    const uint8_t *block;
    uint8_t *mask;
    uint32_t algorithm;
    uint8_t zero[20];
} xci_decompress_job;
#define XCI_DECOMPRESS_LZ4 4u
#define XCI_ENGINE_DRIVER 12080u /* drivers before it do not know the engine */

#define XCI_NO_DEVICE (-1)

typedef struct xci_device_ops {
    uint32_t abi, table_bytes; /* XCI_DEVICE_ABI, sizeof(xci_device_ops): checked when loaded */
    const char *name;          /* of the backend: "cuda" */
    const char *(*error_text)(int error); /* static */
    bool (*error_is_memory)(int error);

    int (*count)(uint32_t *count_out);
    int (*open)(int ordinal, void **device_out);
    void (*close)(void *device);
    int (*describe)(void *device, xci_device_about *about_out);
    /* Whose memory an address is, of any device of the table: its number, or XCI_NO_DEVICE, and
     * how many bytes the allocation has from there on. */
    int (*owner)(void *device, const void *address, int32_t *ordinal_out, uint64_t *bytes_out);

    /* 256-byte aligned, uninitialised. Release waits for work that uses it. */
    int (*allocate)(void *device, uint64_t bytes, void **memory_out);
    int (*release)(void *device, void *memory);
    /* As allocate; of a kind that the Decompression Engine can be asked to work on. */
    int (*allocate_engine)(void *device, uint64_t bytes, void **memory_out);
    int (*engine_reaches)(void *device, const void *address, bool *reaches_out);
    int (*allocate_pinned)(void *device, uint64_t bytes, void **memory_out);
    int (*release_pinned)(void *device, void *memory);

    /* The host waits until the device has nothing to do. */
    int (*quiet)(void *device);
    int (*stream_open)(void *device, void **stream_out);
    int (*stream_close)(void *device, void *stream);
    int (*stream_wait)(void *device, void *stream);               /* the host waits */
    int (*stream_after)(void *device, void *stream, void *event); /* the stream waits */
    /* Whether what is put on the stream now would go into a graph in place of running, or would
     * spoil one that is being captured beside it. */
    int (*stream_captured)(void *device, void *stream, bool *captured_out);
    int (*event_open)(void *device, void **event_out);
    int (*event_close)(void *device, void *event);
    int (*event_record)(void *device, void *event, void *stream);
    int (*event_done)(void *device, void *event, bool *done_out);
    int (*event_wait)(void *device, void *event); /* the host waits */
    int (*event_elapsed)(void *device, void *from, void *to, double *milliseconds_out);

    /* Device or pinned memory on either side. */
    int (*copy)(void *device, void *to, const void *from, uint64_t bytes, void *stream);
    /* Any memory on either side; the bytes are there when it returns. Does not wait for other
     * streams. */
    int (*copy_now)(void *device, void *to, const void *from, uint64_t bytes);
    /* From memory of another device of the same table, or of this one; `stream` is of `device`. All
     * addresses and sizes are multiples of 16. `moves` lie in pinned memory, and stay as they are
     * until the work is done. Each has threads of its own, few: long stretches come in pieces of
     * some 32 KiB. */
    int (*copy_peer_many)(void *device, void *from_device, const xci_cuda_move *moves,
                          uint64_t count, void *stream);
    /* The same of memory of this device alone: what is moved is XORed into what is there. */
    int (*join_many)(void *device, const xci_cuda_move *moves, uint64_t count, void *stream);
    int (*fill)(void *device, void *to, uint8_t value, uint64_t bytes, void *stream);

    /* One batch for the Decompression Engine. `jobs` stay as they are until the work is done. After
     * a failure nothing is on the stream, and *bad_out, if it was written, is the job that was
     * wrong. */
    int (*decompress)(void *device, xci_decompress_job *jobs, uint64_t count, uint64_t *bad_out,
                      void *stream);

    /* Operations over a grid that is resident on the device: cuda_kernels.h. */
    uint64_t (*encode_scratch)(void *device, uint64_t count, uint32_t chunk_bytes);
    int (*encode)(void *device, const xci_cuda_encode_call *call, void *stream);
    int (*check)(void *device, const xci_cuda_block_call *call, void *stream);
    int (*prepare)(void *device, const xci_cuda_block_call *call, void *stream);
    int (*check_masks)(void *device, const xci_cuda_mask_call *call, void *stream);
    int (*apply)(void *device, const xci_cuda_block_call *call, void *stream);
    /* NULL, all five: the device does not know the gap codec. */
    uint64_t (*gap_scratch)(uint64_t count, uint64_t group_count, uint32_t chunk_bytes);
    int (*gap_encode)(void *device, const xci_cuda_gap_encode_call *call, void *stream);
    int (*gap_move)(void *device, const xci_cuda_gap_encode_call *call, void *stream);
    int (*gap_check)(void *device, const xci_cuda_gap_call *call, void *stream);
    int (*gap_ready)(void *device, const xci_cuda_gap_call *call, void *stream);
    int (*digest)(void *device, const xci_cuda_digest_call *call, void *stream);
    int (*gather)(void *device, const xci_cuda_copy_call *call, void *stream);
    int (*scatter)(void *device, const xci_cuda_copy_call *call, void *stream);
    int (*copy_many)(void *device, const xci_cuda_move *moves, uint64_t count, void *stream);
} xci_device_ops;

/* An open device, one for each context. */
typedef struct xci_device {
    const xci_device_ops *ops;
    void *handle;
    int32_t ordinal;
    xci_device_about about; /* as it was when it was opened */
} xci_device;

/* The table of a backend: one that a test registered, or the plug-in of that name, loaded once for
 * the process. UNSUPPORTED says what is missing (plugin.c). */
xorcast_status xci_plugin_find(xorcast_context *context, const char *name,
                               const xci_device_ops **ops_out);
/* Test hook: the table is found under its name before any plug-in. NULL: none any more. */
void xci_plugin_register(const xci_device_ops *ops);

/* Opens the context's device if it is not open yet. UNSUPPORTED: no plug-in, driver or GPU. */
xorcast_status xci_device_open(xorcast_context *context);
void xci_device_close(xorcast_context *context); /* if it is open */

/* A status for the result of a call of the table; `what` says what could not be done: "copy a
 * table". */
xorcast_status xci_device_result(xorcast_context *context, int result, const char *what);
/* As TRY for a call of the table. */
#define XCI_DEVICE(context, what, call) TRY(xci_device_result((context), (call), (what)))

/* Memory with its size, for the account. `at` NULL: none. */
typedef struct xci_device_memory {
    uint8_t *at;
    uint64_t bytes;
} xci_device_memory;

/* Of the context's device, which must be open. Device memory counts against device_limit_bytes,
 * pinned host memory against scratch_limit_bytes. 0 bytes give none. */
xorcast_status xci_device_allocate(xorcast_context *context, uint64_t bytes,
                                   xci_device_memory *memory_out);
void xci_device_release(xorcast_context *context, xci_device_memory *memory);
/* The same of memory for the Decompression Engine. */
xorcast_status xci_engine_allocate(xorcast_context *context, uint64_t bytes,
                                   xci_device_memory *memory_out);
xorcast_status xci_pinned_allocate(xorcast_context *context, uint64_t bytes,
                                   xci_device_memory *memory_out);
void xci_pinned_release(xorcast_context *context, xci_device_memory *memory);
/* Makes sure of `bytes`; contents are lost when it grows. */
xorcast_status xci_device_reserve(xorcast_context *context, xci_device_memory *memory,
                                  uint64_t bytes);

/* Why the Decompression Engine cannot decode LZ4 here, in words, or what it can; true: it can. */
bool xci_engine_words(const xci_device_about *about, char *words, size_t bytes);

/* A stretch of memory whose device is known; zeroed: none yet. Tensors that lie beside each other
 * are looked up once. */
typedef struct xci_device_stretch {
    uintptr_t begin;
    uint64_t bytes;
    int32_t ordinal;
} xci_device_stretch;
/* As `owner` of the table, which every context with an open device can ask. */
xorcast_status xci_device_owner(xorcast_context *context, xci_device_stretch *known,
                                const void *address, int32_t *ordinal_out);

/* Both close what is open and set it to NULL; a stream is waited for. */
void xci_stream_close(xorcast_context *context, void **stream);
void xci_event_close(xorcast_context *context, void **event);
/* BAD_STATE if work on the stream would be captured into a graph: a delta is applied once, and what
 * is replayed later would be applied again. */
xorcast_status xci_stream_need_free(xorcast_context *context, void *stream);
/* Makes `stream` wait for what is on `other` now, through `event`. BAD_STATE as above, of
 * `other`. */
xorcast_status xci_stream_follow(xorcast_context *context, void *stream, void *other, void *event);

#endif
