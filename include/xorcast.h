/* xorcast: keeps the weights of RL samplers bit-identical to the trainer's.
 *
 * The trainer publishes versions of a bundle of named tensors; each version travels as a delta,
 * the compressed XOR of the new bytes with the bytes published before. A sampler stages a delta
 * while it keeps generating and commits it in place, in milliseconds. Bytes are never
 * interpreted: any dtype, any value, bit for bit.
 *
 *     trainer:  publisher_open -> { begin -> put ... -> finish } -> publisher_close
 *     sampler:  subscriber_open -> { poll -> stage -> commit -> wait } -> subscriber_close
 *
 * Rules that hold for every call unless its own text says otherwise:
 *
 * status      Negative is a failure, 0 is success, positive is "not now". Outputs (last, named
 *               ..._out) are written only on XORCAST_OK. After a failure the object stays usable
 *               and weights are bit-identical to what they were, except for a status
 *               XORCAST_WEIGHTS_...
 * ownership   What the caller passes stays the caller's; it may be freed when the call returns,
 *               except the memory of tensors, which a bundle refers to until it is destroyed.
 * threads     One thread at a time per context and what was made from it. Different contexts are
 *               independent. The library never calls exit, abort or a signal function.
 * options     Begin every options struct with its ..._INIT macro; a zero field means the default.
 * sizes       Bytes, 64 bit, unless the name ends in another unit. / */
#ifndef XORCAST_H
#define XORCAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XORCAST_VERSION_MAJOR 0
#define XORCAST_VERSION_MINOR 1
#define XORCAST_VERSION_PATCH 0
#define XORCAST_VERSION_NUMBER \
    (XORCAST_VERSION_MAJOR * 10000 + XORCAST_VERSION_MINOR * 100 + XORCAST_VERSION_PATCH)

#if defined(__GNUC__)
#define XORCAST_API __attribute__((visibility("default")))
#define XORCAST_MUST_USE __attribute__((warn_unused_result))
#else
#define XORCAST_API
#define XORCAST_MUST_USE
#endif

/* ---- Status ------------------------------------------------------------------------------------
 * X(name, value, remedy, exit code of the CLI, text). The hundreds say what is wrong, the remedy
 * says what to do. Values are never reused. */
#define XORCAST_STATUS_LIST(X)                                                                     \
    X(NOTHING_NEW, 1, "WAIT", 0, "there is no newer version yet")                                  \
    X(IN_PROGRESS, 2, "WAIT", 0, "the work goes on; call again")                                   \
    X(OK, 0, "NONE", 0, "done")                                                                    \
    X(BAD_ARGUMENT, -101, "FIX", 2, "an argument is wrong")                                        \
    X(BAD_STATE, -102, "FIX", 2, "the call does not fit the state of the object")                  \
    X(BUFFER_TOO_SMALL, -103, "FIX", 2, "the caller's buffer is too small")                        \
    X(UNSUPPORTED, -104, "FIX", 3, "this cannot be done here")                                     \
    X(NO_HOST_MEMORY, -201, "RETRY", 10, "host memory or the scratch limit is exhausted")          \
    X(NO_DEVICE_MEMORY, -202, "RETRY", 10, "device memory is exhausted")                           \
    X(TIMED_OUT, -203, "RETRY", 11, "the deadline passed")                                         \
    X(CANCELLED, -204, "RETRY", 12, "the work was cancelled")                                      \
    X(IO_FAILED, -205, "RETRY", 13, "a file could not be read or written")                         \
    X(NO_PERMISSION, -206, "FIX", 14, "this user may not read or write a file")                    \
    X(DATA_TRUNCATED, -301, "REFETCH", 20, "the bytes end too early")                              \
    X(DATA_CORRUPT, -302, "REFETCH", 21, "the bytes are damaged or were made by something else")   \
    X(DATA_VERSION, -303, "UPGRADE", 22, "the bytes are in a format this library does not know")   \
    X(DATA_LIMIT, -304, "REFUSE", 23, "the bytes ask for more than the limits allow")              \
    X(BASE_MISMATCH, -401, "KEYFRAME", 30, "the weights are not this delta's base")                \
    X(RUN_MISMATCH, -402, "FIX", 31, "the versions belong to different runs")                      \
    X(VERSION_ORDER, -403, "FIX", 32, "the versions do not follow each other")                     \
    X(LAYOUT_MISMATCH, -404, "FIX", 33, "names, dtypes or shapes differ")                          \
    X(VERSION_GONE, -405, "KEYFRAME", 34, "the version is no longer, or not yet, to be had")       \
    X(LINK_DOWN, -501, "RETRY", 40, "the connection was lost")                                     \
    X(LINK_REFUSED, -502, "FIX", 41, "an address cannot be used, or the other side refused")       \
    X(NOT_FOUND, -503, "FIX", 42, "no such file, address or object")                               \
    X(DEVICE_FAILED, -601, "RESTART", 50, "the device failed")                                     \
    X(WEIGHTS_MIXED, -701, "FINISH_OR_UNDO", 60, "the weights are partly old and partly new")      \
    X(WEIGHTS_WRONG, -702, "REPAIR", 61, "the weights are not what this version should be")        \
    X(INTERNAL, -901, "REPORT", 70, "a defect in xorcast")

typedef enum xorcast_status {
#define XORCAST_STATUS_ENUM_(name, value, remedy, code, text) XORCAST_##name = (value),
    XORCAST_STATUS_LIST(XORCAST_STATUS_ENUM_)
#undef XORCAST_STATUS_ENUM_
} xorcast_status;

/* Number of the loaded library, as XORCAST_VERSION_NUMBER. Never fails; any thread. */
XORCAST_API uint32_t xorcast_library_version(void);

/* The parts of the status table for one status: "BASE_MISMATCH", "KEYFRAME", the text, the CLI's
 * exit code. Unknown values give "UNKNOWN", "REPORT", a text, 70. Static strings; any thread. */
XORCAST_API const char *xorcast_status_name(xorcast_status status);
XORCAST_API const char *xorcast_status_remedy(xorcast_status status);
XORCAST_API const char *xorcast_status_text(xorcast_status status);
XORCAST_API int xorcast_status_exit_code(xorcast_status status);

/* ---- Context -------------------------------------------------------------------------------- */

typedef struct xorcast_context xorcast_context;
typedef struct xorcast_bundle xorcast_bundle;
typedef struct xorcast_checkpoint xorcast_checkpoint;
typedef struct xorcast_publisher xorcast_publisher;
typedef struct xorcast_subscriber xorcast_subscriber;

typedef enum xorcast_log_level {
    XORCAST_LOG_ERROR = 1,   /* someone's work failed and xorcast could not help it */
    XORCAST_LOG_WARNING = 2, /* something unexpected was handled */
    XORCAST_LOG_INFO = 3,    /* a few lines for each version */
    XORCAST_LOG_DEBUG = 4
} xorcast_log_level;

/* Who decodes LZ4 blocks for weights in device memory, while a sampler stages them. */
typedef enum xorcast_engine_use {
    /* Decompression Engine or kernels, whichever took less time for the first large batches */
    XORCAST_ENGINE_MEASURED = 0,
    XORCAST_ENGINE_ALWAYS = 1, /* the engine, for all that it can do */
    XORCAST_ENGINE_NEVER = 2
} xorcast_engine_use;

typedef struct xorcast_context_options {
    uint32_t struct_size;
    uint32_t threads;             /* worker threads, the caller's included; 0: one for each CPU */
    /* For tensors in device memory: "cuda", which must be there then; "cpu": host memory only;
     * NULL: "cuda" once a tensor lies on a device. Host memory is always the CPU's work. */
    const char *backend;
    /* which GPU: streams are of it, and memory that the context allocates; tensors may lie on
     * others too. The CPU has only 0 */
    int32_t device;
    uint32_t log_level;           /* xorcast_log_level; 0: warnings and errors */
    /* bound on the host memory that the context allocates in all, pinned too; 0: none */
    uint64_t scratch_limit_bytes;
    void *(*allocate)(void *user, size_t bytes); /* both or neither; must align to 64 bytes */
    void (*release)(void *user, void *memory);
    /* of one line, without control characters; NULL: standard error */
    void (*log)(void *user, xorcast_log_level level, const char *text);
    /* handed to the three calls above, from any thread, and to `progress`; all must stay valid
     * until this context and those of subscribers inside the process that follow its publishers are
     * destroyed */
    void *user;
    uint64_t device_limit_bytes;  /* as the scratch limit, for device memory */
    uint32_t engine;              /* xorcast_engine_use; a GPU without an engine has kernels */
    uint32_t reserved;
    /* Now and then from the thread that called, while it encodes or folds a delta, or diffs,
     * checks, applies or loads a checkpoint, not for publishers and subscribers; NULL: none. Must
     * not use the context. Returns 0; anything else calls the work off, which fails with CANCELLED,
     * a load with WEIGHTS_MIXED, as soon as it can, unless it is done before that. */
    int (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
} xorcast_context_options;
#define XORCAST_CONTEXT_OPTIONS_INIT                                                               \
    {                                                                                              \
        (uint32_t)sizeof(xorcast_context_options), 0, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, \
            0, NULL                                                                                \
    }

/* Makes a context: a backend, a thread pool and an allocator. `options` may be NULL.
 * Fails with BAD_ARGUMENT, UNSUPPORTED (no such backend, driver or GPU: the log says what is
 * missing), NO_HOST_MEMORY, DEVICE_FAILED. */
XORCAST_API xorcast_status xorcast_context_create(const xorcast_context_options *options,
                                                  xorcast_context **context_out) XORCAST_MUST_USE;
/* Frees the context. Everything made from it must be destroyed before. NULL is allowed. */
XORCAST_API void xorcast_context_destroy(xorcast_context *context);

#define XORCAST_NO_INDEX UINT64_MAX
typedef struct xorcast_error {
    xorcast_status status;
    int32_t os_error;        /* errno or 0 */
    int32_t device_error;    /* CUDA's number or 0 */
    uint64_t tensor;         /* index in the sealed bundle, or XORCAST_NO_INDEX */
    uint64_t chunk;          /* index in the bundle's grid, or XORCAST_NO_INDEX */
    char text[512];          /* one sentence: what, where, and what to do; no control characters */
} xorcast_error;

/* Copies the record of the last failure of any call on this context. Status OK if there was
 * none. */
XORCAST_API void xorcast_last_error(xorcast_context *context, xorcast_error *error_out);

typedef struct xorcast_memory {
    uint64_t now_bytes;        /* allocated by the context and all that was made from it */
    uint64_t high_water_bytes; /* the largest that ever was */
    /* The same of device memory; weights are the caller's and do not count. */
    uint64_t device_now_bytes, device_high_water_bytes;
} xorcast_memory;
XORCAST_API void xorcast_context_memory(xorcast_context *context, xorcast_memory *memory_out);

/* What the context's device is. Texts are empty where the system does not say. */
typedef struct xorcast_device {
    char backend[16], name[64], architecture[16]; /* "cuda", "NVIDIA H200", "sm_90" */
    char pci[16], pci_link[40]; /* "0000:1b:00.0", "32.0 GT/s PCIe x16" */
    int32_t number;
    uint32_t processors, driver_version; /* 13000 is 13.0 */
    uint64_t memory_bytes, free_bytes;
    /* Decompression Engine: 1 Deflate, 2 Snappy, 4 LZ4, and its longest operation; 0: none. */
    uint32_t decompress_mask;
    uint64_t decompress_max_bytes;
    char engine[96]; /* in words: what the engine can do for LZ4, or why it cannot */
} xorcast_device;

/* Opens the device if it is not open yet. UNSUPPORTED says what is missing: plug-in, driver or
 * GPU. */
XORCAST_API xorcast_status xorcast_context_device(xorcast_context *context,
                                                  xorcast_device *device_out) XORCAST_MUST_USE;

/* How many bytes the context's device moves in a second, measured: the best of several copies of
 * 256 MiB in its memory and 64 MiB over the bus; of less where two of the former would take more
 * than an eighth of what is free. */
typedef struct xorcast_device_rates {
    uint64_t to_device, from_device; /* from and to pinned host memory */
    uint64_t memory;                 /* read and written, by a copy from its memory to itself */
} xorcast_device_rates;
XORCAST_API xorcast_status xorcast_device_measure(xorcast_context *context,
                                                  xorcast_device_rates *rates_out) XORCAST_MUST_USE;

/* Memory of the context's device, for programs without a toolkit of their own; weights may as well
 * lie in what others allocated. It is the caller's: it counts against no limit, and is released
 * before the context is destroyed. 256-byte aligned, uninitialised. */
XORCAST_API xorcast_status xorcast_device_allocate(xorcast_context *context, uint64_t bytes,
                                                   void **memory_out) XORCAST_MUST_USE;
XORCAST_API void xorcast_device_release(xorcast_context *context, void *memory); /* or NULL */
/* Copies between device memory, host memory, or both; the bytes are there when it returns. Waits
 * for nothing else: work on `to` and `from` must be done. */
XORCAST_API xorcast_status xorcast_device_copy(xorcast_context *context, void *to, const void *from,
                                               uint64_t bytes) XORCAST_MUST_USE;

/* ---- Digests and versions ------------------------------------------------------------------- */

/* 128 bits over content: for every 8-byte word a keyed mix of (word, tensor, position), summed. It
 * can be updated from changed words alone, and digests of disjoint parts add up, lane by lane,
 * modulo 2^64. Finds accidents, not forgers. docs/format.md defines it. */
typedef struct xorcast_digest { uint64_t lane[2]; } xorcast_digest;

#define XORCAST_RUN_BYTES 64 /* a run's name, with its terminating zero */
typedef struct xorcast_version {
    char run[XORCAST_RUN_BYTES]; /* UTF-8; empty: not named */
    uint64_t step;               /* XORCAST_NO_STEP: not given */
    xorcast_digest digest;
} xorcast_version;
#define XORCAST_NO_STEP UINT64_MAX

/* ---- Bundles -----------------------------------------------------------------------------------
 * An ordered set of named tensors. Its order is the byte order of the names, so that both sides may
 * add in any order. Its layout (names, dtypes, shapes, sizes, chunk and group size) has a
 * fingerprint; only bundles of equal fingerprint exchange deltas. */

typedef enum xorcast_memory_kind {
    XORCAST_MEMORY_HOST = 0,
    /* Of any device of the context's backend. All tensors of a bundle lie in memory of one kind. */
    XORCAST_MEMORY_DEVICE = 1
} xorcast_memory_kind;

#define XORCAST_BOX_REPLICA                                                                        \
    1u /* bytes that another box or rank counts: written, left out of digests */

/* A rectangle of a tensor seen as rows of `row_bytes` (bytes of its last dimension unless the
 * tensor says otherwise): rows [row, row + row_count), bytes [column, column + column_bytes) of
 * each, living at data + r * pitch for r = 0, 1, ... Columns begin and end at multiples of 8 bytes
 * of the tensor or at its end. */
typedef struct xorcast_box {
    uint64_t row, row_count;
    uint64_t column, column_bytes;
    void *data;
    uint64_t pitch_bytes; /* at least column_bytes */
    uint32_t flags;       /* XORCAST_BOX_... */
} xorcast_box;

typedef struct xorcast_tensor {
    uint32_t struct_size;
    uint32_t memory_kind;  /* xorcast_memory_kind */
    const char *name;      /* UTF-8, 1 to 1023 bytes, unique in the bundle */
    /* 1 to 15 bytes, compared but never interpreted; "BF16", "F8_E4M3", ... */
    const char *dtype;
    const uint64_t *shape; /* `rank` numbers; a zero makes the tensor empty */
    uint32_t rank;         /* 0 to 16 */
    uint32_t box_count;    /* 0: the whole tensor lies at `data`, without gaps */
    uint64_t bytes;        /* of the whole tensor */
    void *data;            /* not NULL unless bytes is 0 or boxes are given */
    const xorcast_box *boxes;
    uint64_t row_bytes;    /* of the rows that boxes are cut from; 0: the last dimension */
    /* another tensor of the bundle with the same memory (tied weights), else NULL */
    const char *alias_of;
} xorcast_tensor;
#define XORCAST_TENSOR_INIT                                                                        \
    { (uint32_t)sizeof(xorcast_tensor), 0, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, 0, NULL }

typedef struct xorcast_bundle_options {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t chunk_bytes; /* power of two, 16 KiB to 1 MiB; 0: 64 KiB */
    uint64_t group_bytes; /* power of two, 1 MiB to 64 MiB; 0: 4 MiB */
} xorcast_bundle_options;
#define XORCAST_BUNDLE_OPTIONS_INIT {(uint32_t)sizeof(xorcast_bundle_options), 0, 0, 0}

typedef struct xorcast_layout {
    uint8_t fingerprint[16];
    uint64_t tensor_count;      /* without aliases */
    uint64_t chunk_count, group_count;
    uint64_t chunk_bytes, group_bytes;
    uint64_t total_bytes;       /* of all tensors, tied ones once */
    uint64_t covered_bytes;     /* of those, what this bundle's boxes count in its digest */
    uint64_t delta_bound_bytes; /* no delta of this layout is larger */
    /* what a publisher allocates at most, besides log and delta in flight */
    uint64_t publisher_bytes;
    uint64_t subscriber_bytes;  /* what a subscriber allocates at most, besides staged deltas */
    /* The same in device memory, the bundle's tables included, if the tensors lie there; the shadow
     * counts, also if it is to lie in host memory. */
    uint64_t publisher_device_bytes, subscriber_device_bytes;
} xorcast_layout;

XORCAST_API xorcast_status xorcast_bundle_create(xorcast_context *context,
                                                 const xorcast_bundle_options *options,
                                                 xorcast_bundle **bundle_out) XORCAST_MUST_USE;
XORCAST_API void xorcast_bundle_destroy(xorcast_bundle *bundle);

/* Adds one tensor; `tensor` and its strings are copied. Tensors may be added in any order, an
 * alias before its original too. Fails with BAD_ARGUMENT (what and which tensor), UNSUPPORTED
 * (box edges). */
XORCAST_API xorcast_status xorcast_bundle_add(xorcast_bundle *bundle,
                                              const xorcast_tensor *tensor) XORCAST_MUST_USE;

/* Checks and freezes the bundle and says what working with it costs. Two names for exactly the
 * same memory become aliases; a name twice, or memory that overlaps otherwise, is BAD_ARGUMENT. */
XORCAST_API xorcast_status xorcast_bundle_seal(xorcast_bundle *bundle,
                                               xorcast_layout *layout_out) XORCAST_MUST_USE;

/* Index of a tensor by name (of its original, for an alias), and the reverse; names stay valid
 * until the bundle is destroyed. NOT_FOUND, or BAD_STATE before seal. */
XORCAST_API xorcast_status xorcast_bundle_find(xorcast_bundle *bundle, const char *name,
                                               uint64_t *index_out) XORCAST_MUST_USE;
XORCAST_API xorcast_status xorcast_bundle_name(xorcast_bundle *bundle, uint64_t index,
                                               const char **name_out) XORCAST_MUST_USE;

/* What stands at an index, as it was added: of a checkpoint's bundle, how much memory to bring for
 * whom. `data` is NULL unless the tensor lies whole and without gaps in host or device memory;
 * boxes are left out. Name, dtype and shape stay valid until the bundle is destroyed. NOT_FOUND, or
 * BAD_STATE before seal. */
XORCAST_API xorcast_status xorcast_bundle_describe(xorcast_bundle *bundle, uint64_t index,
                                                   xorcast_tensor *tensor_out) XORCAST_MUST_USE;

/* Digest of the bytes that the bundle counts, from a full read. */
XORCAST_API xorcast_status xorcast_bundle_digest(xorcast_bundle *bundle,
                                                 xorcast_digest *digest_out) XORCAST_MUST_USE;

/* ---- Deltas --------------------------------------------------------------------------------- */

typedef enum xorcast_codec {
    XORCAST_CODEC_RAW = 1,
    XORCAST_CODEC_LZ4 = 2,
    XORCAST_CODEC_SNAPPY = 3,
    XORCAST_CODEC_GAP = 4,
    XORCAST_CODEC_AUTO = 5 /* each chunk in the one of these that is best for it; only asked for */
} xorcast_codec;

/* Who undoes what the codecs did: the weakest of those that follow. */
typedef enum xorcast_receiver {
    XORCAST_RECEIVER_CPU = 0,
    XORCAST_RECEIVER_GPU = 1,
    XORCAST_RECEIVER_ENGINE = 2 /* a GPU with a decompression engine for LZ4 and Snappy */
} xorcast_receiver;

typedef struct xorcast_encoding {
    uint32_t struct_size;
    uint32_t codec;        /* xorcast_codec; 0: LZ4. A chunk is raw wherever that is not larger */
    uint32_t second_pass;  /* 0: zstd over each group where it helps; 1: none */
    int32_t zstd_level;    /* 0: 1 */
    /* 1, with gap or auto: chunks are encoded for receivers that hold the weights before the
     * change whole, which takes up to a third off. A publisher offers the plain form beside it, for
     * ranks with boxes and for samplers that are several versions behind. 0: the plain form
     * only. */
    uint32_t old_weights;
    /* With auto. A rate: the time from encoded to committed is minimised, on a link of so many
     * bytes a second and for the weakest receiver, by prices that the library knows. 0: bytes
     * are. */
    uint64_t link_bytes_per_second;
    uint32_t receiver; /* xorcast_receiver */
} xorcast_encoding;
#define XORCAST_ENCODING_INIT                                                                      \
    { (uint32_t)sizeof(xorcast_encoding), 0, 0, 0, 0, 0, 0 }

typedef struct xorcast_counts {
    uint64_t bits_changed, bytes_changed, elements_changed;
    uint64_t chunks_changed;
    uint64_t bytes_covered; /* looked at, changed or not */
    uint64_t elements_covered;
} xorcast_counts;

/* What a checkpoint was before a delta was applied to it. */
typedef enum xorcast_already {
    XORCAST_ALREADY_NOT = 0,   /* the delta's base */
    XORCAST_ALREADY_THERE = 1, /* the target stood where it goes: nothing was written */
    XORCAST_ALREADY_COPIED = 2 /* the target itself: it was copied to `out_path` */
} xorcast_already;

typedef struct xorcast_delta_info {
    uint32_t format_version;
    uint32_t has_files; /* made from checkpoint files, and carries their structure */
    /* 1: its blocks can be decoded only beside the base's weights, whole; it cannot be folded */
    uint32_t needs_old_weights;
    uint32_t offers_old_weights; /* 1: the publisher has such a form of this version too */
    xorcast_version base, target;
    uint8_t base_fingerprint[16], target_fingerprint[16];
    xorcast_counts counts;
    uint64_t chunk_bytes, group_bytes;
    uint64_t group_count, part_count; /* groups with changes; parts that hold them */
    uint64_t delta_bytes;   /* the whole delta */
    uint64_t payload_bytes; /* of that, encoded chunks as stored */
    uint64_t chunk_encoded_bytes; /* encoded chunks before the second pass */
    xorcast_encoding asked;       /* what the encoder was told */
    /* order-0 bound of positions and XOR bytes, by tensor; 0: not measured */
    double entropy_bound_bytes;
    uint32_t already; /* xorcast_already; of checkpoint_apply and checkpoint_check, else 0 */
    uint32_t reserved;
} xorcast_delta_info;

/* Where bytes go to and come from. `write` and `read` return 0, or an errno value. */
typedef struct xorcast_sink {
    int (*write)(void *user, const void *bytes, uint64_t count);
    void *user;
} xorcast_sink;
typedef struct xorcast_source {
    const void *bytes;  /* in memory, or NULL and `read` fills [offset, offset + count) */
    uint64_t size;
    int (*read)(void *user, uint64_t offset, void *buffer, uint64_t count);
    void *user;
    const char *name; /* what failures call it, as the path of its file; or NULL */
} xorcast_source;

typedef struct xorcast_delta_options {
    uint32_t struct_size;
    uint32_t measure_bound; /* 1: also compute entropy_bound_bytes */
    xorcast_encoding encoding;
    const char *run;        /* NULL: not named */
    uint64_t base_step, target_step;
} xorcast_delta_options;
#define XORCAST_DELTA_OPTIONS_INIT                                                                 \
    {                                                                                              \
        (uint32_t)sizeof(xorcast_delta_options), 0, XORCAST_ENCODING_INIT, NULL, XORCAST_NO_STEP,  \
            XORCAST_NO_STEP                                                                        \
    }

/* What became of the chunks of a delta, by codec: index an xorcast_codec. */
typedef struct xorcast_delta_choices {
    uint64_t chunks[5];                             /* how many are in it */
    uint64_t encoded[5];                            /* their bytes before the second pass */
    uint64_t gap_dense, gap_old_weights;            /* of the gap chunks, how many */
    uint64_t params_bytes;                          /* of groups that have gap chunks */
    uint64_t second_pass_groups, second_pass_bytes; /* groups that went through it; what it saved */
} xorcast_delta_choices;

/* Counts from the bytes of a whole delta; no weights are needed. Fails as reading it does. */
XORCAST_API xorcast_status
xorcast_delta_explain(xorcast_context *context, const xorcast_source *source,
                      xorcast_delta_choices *choices_out) XORCAST_MUST_USE;

/* Writes the delta that turns `old_bundle`'s bytes into `new_bundle`'s to `sink`, in order, in
 * pieces. Same bytes and options, same delta, for any thread count and CPU. LAYOUT_MISMATCH if the
 * layouts differ; IO_FAILED if the sink refuses. */
XORCAST_API xorcast_status xorcast_delta_encode(xorcast_bundle *old_bundle,
                                                xorcast_bundle *new_bundle,
                                                const xorcast_delta_options *options,
                                                const xorcast_sink *sink,
                                                xorcast_delta_info *info_out) XORCAST_MUST_USE;

/* Identity and sizes of a delta; reads and checks its manifest only. */
XORCAST_API xorcast_status xorcast_delta_inspect(xorcast_context *context,
                                                 const xorcast_source *source,
                                                 xorcast_delta_info *info_out) XORCAST_MUST_USE;

/* Everything apply would check, and nothing changed: every byte of the delta, and that it starts
 * from the bundle's present bytes. `info_out` may be NULL, here and below. */
XORCAST_API xorcast_status xorcast_delta_check(xorcast_bundle *bundle, const xorcast_source *source,
                                               xorcast_delta_info *info_out) XORCAST_MUST_USE;

/* Check, then apply in place. The weights are the old version unless this returns OK. */
XORCAST_API xorcast_status xorcast_delta_apply(xorcast_bundle *bundle, const xorcast_source *source,
                                               xorcast_delta_info *info_out) XORCAST_MUST_USE;

/* One delta from `count` consecutive ones (oldest first), without weights. RUN_MISMATCH or
 * VERSION_ORDER if they do not follow each other; UNSUPPORTED if one that is not
 * the first changes the layout, or if only some have checkpoint files. */
XORCAST_API xorcast_status xorcast_delta_fold(xorcast_context *context,
                                              const xorcast_source *sources, uint64_t count,
                                              const xorcast_delta_options *options,
                                              const xorcast_sink *sink,
                                              xorcast_delta_info *info_out) XORCAST_MUST_USE;

/* ---- Checkpoints on disk -----------------------------------------------------------------------
 * A safetensors file, or a directory of them with whatever small files lie beside them. */

/* Opens a checkpoint for reading and seals a bundle over it, read in windows: memory does not grow
 * with the checkpoint. The bundle belongs to the checkpoint. */
XORCAST_API xorcast_status xorcast_checkpoint_open(
    xorcast_context *context, const char *path, const xorcast_bundle_options *options,
    xorcast_checkpoint **checkpoint_out) XORCAST_MUST_USE;
XORCAST_API void xorcast_checkpoint_close(xorcast_checkpoint *checkpoint);
XORCAST_API xorcast_bundle *xorcast_checkpoint_bundle(xorcast_checkpoint *checkpoint);

/* Writes the bundle's bytes as a safetensors file (atomically: temporary file, fsync, rename), or
 * as a directory of shards of at most `shard_bytes` with an index; 0: one file. */
XORCAST_API xorcast_status xorcast_checkpoint_write(xorcast_bundle *bundle, const char *path,
                                                    uint64_t shard_bytes) XORCAST_MUST_USE;

/* Copies the bundle's tensors, by name, from a checkpoint into the memory of `bundle`, on a device
 * too: through windows of pinned memory there, 8 MiB a thread and 64 MiB at most, after what is on
 * the default stream. LAYOUT_MISMATCH before anything is copied; a failure in the
 * middle is WEIGHTS_MIXED: load again. */
XORCAST_API xorcast_status xorcast_checkpoint_load(xorcast_checkpoint *checkpoint,
                                                   xorcast_bundle *bundle) XORCAST_MUST_USE;

/* The delta between two checkpoints, their files and headers included: tensors that were added,
 * renamed or resized are sent whole, and apply gives NEW file for file. */
XORCAST_API xorcast_status xorcast_checkpoint_diff(xorcast_context *context, const char *old_path,
                                                   const char *new_path,
                                                   const xorcast_delta_options *options,
                                                   const xorcast_sink *sink,
                                                   xorcast_delta_info *info_out) XORCAST_MUST_USE;
/* What xorcast_checkpoint_apply without `out_path` would say, and nothing written. The delta is
 * read whole also where the target is there already. */
XORCAST_API xorcast_status xorcast_checkpoint_check(xorcast_context *context, const char *path,
                                                    const xorcast_source *source,
                                                    xorcast_delta_info *info_out) XORCAST_MUST_USE;
/* Writes the target checkpoint to `out_path`, or over `path` if it is NULL; the replacement is
 * atomic, and an interrupted one is finished or discarded by the next call on that path, with a
 * warning in the log. One that is called off (`progress`) leaves nothing; from the moment on that
 * decides for the new checkpoint, it cannot be.
 *
 * May be repeated: a checkpoint whose weights are the target's already is OK and stays as it is,
 * and so is `out_path` if it is the target file for file; `info_out` says so. Weights are compared
 * by layout and digest, of all bytes; of the delta, only the manifest is read then. If only `path`
 * is the target, it is copied to `out_path`. */
XORCAST_API xorcast_status xorcast_checkpoint_apply(xorcast_context *context, const char *path,
                                                    const xorcast_source *source,
                                                    const char *out_path,
                                                    xorcast_delta_info *info_out) XORCAST_MUST_USE;

/* ---- Publisher ------------------------------------------------------------------------------ */

typedef struct xorcast_publisher_options {
    uint32_t struct_size;
    uint32_t max_peers;        /* 0: 256 */
    const char *run;           /* the run's name; NULL: a random one */
    uint64_t step;             /* of the bytes that the bundle holds now */
    /* Deltas kept for samplers that fall behind, with 1 KiB for each of their objects; 0: a quarter
     * of the weights */
    uint64_t log_bytes;
    uint64_t peer_timeout_ms;  /* a peer that is silent in the middle of something; 0: 30 s */
    xorcast_encoding encoding;
    uint32_t insecure;         /* 1: listen on other addresses than loopback, unencrypted */
    /* 1: entropy_bound_bytes in the statistics; reads each delta once more */
    uint32_t measure_bound;
    /* Weights in device memory. 1: the shadow lies in pinned host memory, not beside them. */
    uint32_t shadow_in_host;
    uint32_t reserved;
    /* The stream that writes them (a CUDA stream of the context's device; NULL: the default one):
     * put waits for what is queued there, and on the default streams of other devices that they lie
     * on. */
    void *stream;
} xorcast_publisher_options;
#define XORCAST_PUBLISHER_OPTIONS_INIT                                                             \
    {                                                                                              \
        (uint32_t)sizeof(xorcast_publisher_options), 0, NULL, 0, 0, 0, XORCAST_ENCODING_INIT, 0,   \
            0, 0, 0, NULL                                                                          \
    }

typedef struct xorcast_publisher_stats {
    xorcast_version version;      /* published last */
    xorcast_delta_info delta;     /* that led to it */
    /* By the clock: diff, encode and the shadow's update; second pass, checksums, parts. */
    uint64_t encode_ns, frame_ns;
    uint64_t log_bytes, log_versions, oldest_step;
    uint64_t sent_bytes;          /* to all peers, since open */
    uint64_t peers;               /* connected now */
    uint64_t peers_current;       /* of these, how many acknowledged `version` */
    xorcast_memory memory;
} xorcast_publisher_stats;

/* Opens a publisher at `url` ("tcp:127.0.0.1:0", "inproc:NAME") for the bundle's layout. The
 * bundle's present bytes become the version `options->step`; they are copied (the shadow) and
 * digested. The bundle must stay alive. Whole tensors only: no boxes that leave holes. */
XORCAST_API xorcast_status xorcast_publisher_open(
    xorcast_bundle *bundle, const char *url, const xorcast_publisher_options *options,
    xorcast_publisher **publisher_out) XORCAST_MUST_USE;
/* Stops serving and frees. Peers see LINK_DOWN. NULL is allowed. */
XORCAST_API void xorcast_publisher_close(xorcast_publisher *publisher);

/* The address that subscribers open, with the port that was really taken. Valid until close. */
XORCAST_API const char *xorcast_publisher_url(xorcast_publisher *publisher);

/* Starts version `step`, which must be larger than the last one. VERSION_ORDER, BAD_STATE. */
XORCAST_API xorcast_status xorcast_publisher_begin(xorcast_publisher *publisher,
                                                   uint64_t step) XORCAST_MUST_USE;

/* Hands over the new bytes of tensors, in any order, once each; they are encoded against the shadow
 * before the call returns and the memory is the caller's again. They lie in memory of the bundle's
 * kind, on the device that the bundle's tensor lies on; one that lies on several is put from the
 * bundle's own memory. `data` NULL: that memory, of all. `indices` NULL: all tensors. BAD_ARGUMENT
 * if a tensor comes twice. */
XORCAST_API xorcast_status xorcast_publisher_put(xorcast_publisher *publisher, uint64_t count,
                                                 const uint64_t *indices,
                                                 const void *const *data) XORCAST_MUST_USE;
/* Declares tensors unchanged in this version without reading them. */
XORCAST_API xorcast_status xorcast_publisher_keep(xorcast_publisher *publisher, uint64_t count,
                                                  const uint64_t *indices) XORCAST_MUST_USE;
/* Publishes the version: samplers see it from now on. Every tensor must have been put or kept,
 * else BAD_STATE names one that was not, and the version stays open. On other failures it is
 * dropped as by abort. `stats_out` may be NULL. */
XORCAST_API xorcast_status xorcast_publisher_finish(
    xorcast_publisher *publisher, xorcast_publisher_stats *stats_out) XORCAST_MUST_USE;
/* Drops the open version; the next one is encoded against the last published. */
XORCAST_API void xorcast_publisher_abort(xorcast_publisher *publisher);

XORCAST_API void xorcast_publisher_get_stats(xorcast_publisher *publisher,
                                             xorcast_publisher_stats *stats_out);

/* ---- Subscriber ----------------------------------------------------------------------------- */

typedef struct xorcast_subscriber_options {
    uint32_t struct_size;
    uint32_t insecure;         /* 1: connect to other addresses than loopback, unencrypted */
    /* of every call that waits and has no deadline of its own; 0: 30 s */
    uint64_t timeout_ms;
    /* For weights that outlive the process (mapped files): where commit keeps its progress; NULL:
     * none. */
    const char *journal_path;
    /* From wait and from keyframe, once the weights are `version`; or NULL. */
    void (*after_commit)(void *user, const xorcast_version *version);
    void *user;
    /* Several deltas with more bytes than this are not fetched: stage says VERSION_GONE, a
     * keyframe is cheaper. One delta always is. 0: the size of the weights. */
    uint64_t log_bound_bytes;
} xorcast_subscriber_options;
#define XORCAST_SUBSCRIBER_OPTIONS_INIT \
    {(uint32_t)sizeof(xorcast_subscriber_options), 0, 0, NULL, NULL, NULL, 0}

/* How the changed chunks of what was staged last got ready, for weights in device memory. */
typedef struct xorcast_decoding {
    uint64_t engine_chunks, kernel_chunks;
    /* Weights decoded, checked and made ready in a second of device time, in the best of the
     * batches that were large enough to be measured; 0: none was. */
    uint64_t engine_bytes_per_second, kernel_bytes_per_second;
    char why[160]; /* what the choice, or the fallback from the engine to kernels, rests on */
} xorcast_decoding;

typedef struct xorcast_subscriber_stats {
    xorcast_version version;       /* of the weights; step XORCAST_NO_STEP: none yet */
    xorcast_counts counts;         /* of the last commit */
    uint64_t deltas_folded;        /* into the last commit; 1: no catching up */
    uint64_t wire_bytes;           /* received for it */
    uint64_t ship_ns, stage_ns, commit_ns; /* waiting for bytes; checking and decoding; the pause */
    uint64_t commits, keyframes, keyframe_bytes;
    /* of this rank's counted words; ranks' digests add up to the version's */
    xorcast_digest digest;
    xorcast_memory memory;
    xorcast_decoding decoding;
} xorcast_subscriber_stats;

/* Connects, compares layouts, scans the weights and asks the publisher which version they are. OK
 * also when they are none it knows: then `current` says NO_STEP and a keyframe is needed. An
 * interrupted commit found in the journal is finished first. LAYOUT_MISMATCH, LINK_DOWN,
 * NOT_FOUND, LINK_REFUSED, TIMED_OUT, DATA_VERSION. */
XORCAST_API xorcast_status xorcast_subscriber_open(
    xorcast_bundle *bundle, const char *url, const xorcast_subscriber_options *options,
    xorcast_subscriber **subscriber_out) XORCAST_MUST_USE;
XORCAST_API void xorcast_subscriber_close(xorcast_subscriber *subscriber);

/* For a sampler whose weights are spread over several ranks, each with boxes of the tensors: the
 * ranks add up the digests that their statistics show, and each hands in the sum. If the publisher
 * knows a version of that digest, the weights are that version. VERSION_GONE: a keyframe is
 * needed. */
XORCAST_API xorcast_status xorcast_subscriber_adopt(xorcast_subscriber *subscriber,
                                                    const xorcast_digest *digest) XORCAST_MUST_USE;

/* Waits up to `timeout_ms` for a version newer than the weights'. NOTHING_NEW if there is none;
 * reconnects by itself after LINK_DOWN. */
XORCAST_API xorcast_status xorcast_subscriber_poll(xorcast_subscriber *subscriber,
                                                   uint64_t timeout_ms,
                                                   uint64_t *step_out) XORCAST_MUST_USE;

/* Fetches what leads from the weights' version to `step`, folds it if it is more than one delta,
 * checks every byte and the old words at changed positions, and makes it ready. Generation goes
 * on: the weights are only read. Anything staged before is dropped. VERSION_GONE or
 * BASE_MISMATCH: a keyframe is needed. */
XORCAST_API xorcast_status xorcast_subscriber_stage(xorcast_subscriber *subscriber, uint64_t step,
                                                    uint64_t timeout_ms) XORCAST_MUST_USE;

/* The pause: XOR in place what was staged. Nothing must read the weights until wait. A failure is
 * WEIGHTS_MIXED: call commit again to finish, or undo. Weights in device memory: puts the work on
 * `stream` (a CUDA stream of the context's device; NULL: the default one) and returns; work behind
 * it on that stream may read the weights, replayed CUDA graphs too. On other devices that they lie
 * on, it is put on the default stream, after what is on `stream`; that goes on after it.
 * DEVICE_FAILED, and nothing is changed, if the device does not take it; BAD_STATE likewise if the
 * stream is being captured into a graph, each replay of which would XOR again. Allocates nothing
 * and waits for nothing. In host memory `stream` is NULL. */
XORCAST_API xorcast_status xorcast_subscriber_commit(xorcast_subscriber *subscriber,
                                                     void *stream) XORCAST_MUST_USE;

/* Waits for the commit and stamps the version. On a device: TIMED_OUT if the stream has not come to
 * it yet; WEIGHTS_MIXED if the device failed meanwhile. */
XORCAST_API xorcast_status xorcast_subscriber_wait(xorcast_subscriber *subscriber,
                                                   uint64_t timeout_ms) XORCAST_MUST_USE;

/* Back to the version before: an interrupted commit, or the last one if nothing was staged
 * since. */
XORCAST_API xorcast_status xorcast_subscriber_undo(xorcast_subscriber *subscriber) XORCAST_MUST_USE;

/* Makes the weights the newest version whatever they are now: compares digests group by group,
 * fetches the groups that differ, then the versions that appeared meanwhile, and verifies.
 * Overwrites in place: once the first byte is overwritten there is no valid version until OK, and
 * a failure is WEIGHTS_WRONG; before, it is the cause and nothing is changed. Also the repair of a
 * bad audit. */
XORCAST_API xorcast_status xorcast_subscriber_keyframe(xorcast_subscriber *subscriber,
                                                       uint64_t timeout_ms) XORCAST_MUST_USE;

/* Which version the weights are. step XORCAST_NO_STEP: none. */
XORCAST_API void xorcast_subscriber_current(xorcast_subscriber *subscriber,
                                            xorcast_version *version_out);

/* Reads weights for about `budget_ms` (0: all of them) from where the last audit stopped and
 * compares each chunk with its digest. OK: a whole round is complete and good. IN_PROGRESS: good
 * so far. WEIGHTS_WRONG: the error record names tensor and chunk; the weights have no valid
 * version until a keyframe. */
XORCAST_API xorcast_status xorcast_subscriber_audit(xorcast_subscriber *subscriber,
                                                    uint64_t budget_ms) XORCAST_MUST_USE;

XORCAST_API void xorcast_subscriber_get_stats(xorcast_subscriber *subscriber,
                                              xorcast_subscriber_stats *stats_out);

#ifdef __cplusplus
}
#endif
#endif
