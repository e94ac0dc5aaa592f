/* Context: what every object is made from. Owns the allocator with its accounting, the record of
 * the last failure, the log, the thread pool and the backend. Does not own the objects made from
 * it.
 *
 * Every internal call that can fail takes a context and returns a status. The first function that
 * knows a failure records it with FAIL; callers pass the status up with TRY and add nothing. */
#ifndef XCI_CONTEXT_H
#define XCI_CONTEXT_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/kept.h"
#include "xorcast.h"

struct xci_pool;
struct xci_backend;
struct xci_device;

/* Shared by a context and its forks. */
typedef struct xci_shared {
    struct xci_shared *account; /* whose counters and kept blocks count: its own, or another's */
    xorcast_context_options options;
    atomic_uint_fast64_t now_bytes, high_water_bytes;
    xci_kept kept; /* released large blocks, counted in now_bytes */
    struct xci_pool *pool;
    const struct xci_backend *backend; /* for work on host memory */
    /* For device memory: opened when a tensor that lies there is added, or at once if the backend
     * was asked for by name; NULL before, and always for the backend "cpu". */
    const char *device_backend;
    struct xci_device *device;
    atomic_uint_fast64_t device_now_bytes, device_high_water_bytes;
    atomic_uint_fast64_t progress_done, progress_total; /* base/progress.h */
    atomic_uint called_off;                             /* 1: by the progress call */
    atomic_uint references;
} xci_shared;

struct xorcast_context {
    xci_shared *shared;
    xorcast_context *reports_to; /* NULL: it has a failure record of its own */
    pthread_mutex_t lock; /* guards `error`: pool workers record failures too */
    xorcast_error error;
};

/* A second context over the same allocator, pool, log and backend with a failure record of its
 * own, for a thread of the library. Freed by xorcast_context_destroy. */
xorcast_status xci_context_fork(xorcast_context *context, xorcast_context **fork_out);

/* A context for another device of the same backend: allocator, pool, log and account are those of
 * `context`, which its failures are recorded in, and which outlives it. It opens its device at
 * once. */
xorcast_status xci_context_beside(xorcast_context *context, int32_t device,
                                  xorcast_context **beside_out);

uint32_t xci_context_threads(const xorcast_context *context);

/* Where a failure is: FAIL_AT's first argument. */
typedef struct xci_place { uint64_t tensor, chunk; int os_error; } xci_place;
#define XCI_NOWHERE ((xci_place){XORCAST_NO_INDEX, XORCAST_NO_INDEX, 0})

/* Records a failure, logs it at debug level and returns `status`. */
xorcast_status xci_fail(xorcast_context *context, xorcast_status status, xci_place place,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* As xci_fail for a failure that a device reported with a number of its own. */
xorcast_status xci_fail_device(xorcast_context *context, xorcast_status status, int device_error,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));
/* As xci_fail for what follows from another failure: place and numbers are the cause's. */
xorcast_status xci_fail_from(xorcast_context *context, xorcast_status status,
                             const xorcast_error *cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What this thread recorded last, and where: other threads may have recorded on the same context
 * since. */
typedef struct xci_failure { xorcast_context *context; xorcast_error error; } xci_failure;
const xci_failure *xci_thread_failure(void);
/* Makes a failure its context's record once more, and this thread's; one without a context is
 * none. */
void xci_record_again(const xci_failure *failure);

/* Copies the record of `from` (a fork) to `to`, for a failure that a library thread met on its
 * behalf. */
void xci_error_copy(xorcast_context *to, xorcast_context *from);

void xci_log(xorcast_context *context, xorcast_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Both return the status itself, not what xci_fail returns: the compiler then sees that a failing
 * path is one and does not warn of outputs that only success writes. */
#define FAIL(context, status, ...) FAIL_AT(context, status, XCI_NOWHERE, __VA_ARGS__)
#define FAIL_AT(context, status, place, ...)                              \
    do {                                                                  \
        const xorcast_status fail_status_ = (status);                     \
        (void)xci_fail((context), fail_status_, (place), __VA_ARGS__);    \
        return fail_status_;                                              \
    } while (0)
#define TRY(expression)                              \
    do {                                             \
        xorcast_status try_status_ = (expression);   \
        if (try_status_ < 0)                         \
            return try_status_;                      \
    } while (0)

/* Memory that counts against the scratch limit. 64-byte aligned. `*memory_out` is NULL and the
 * status OK for 0 bytes. xci_allocate_zeroed leaves untouched pages to the system (calloc) where
 * it can. */
xorcast_status xci_allocate(xorcast_context *context, uint64_t bytes, void **memory_out);
xorcast_status xci_allocate_zeroed(xorcast_context *context, uint64_t bytes, void **memory_out);
/* As allocate, for `count` items of `bytes`, product checked. */
xorcast_status xci_allocate_array(xorcast_context *context, uint64_t count, uint64_t bytes,
                                  void **memory_out);
/* Grows (never shrinks) a block to at least `bytes`, doubling. `pointer_to` is the address of a
 * pointer of any type to it; this and `*capacity`, in bytes, are updated. Contents are kept, and
 * after a failure all is as it was. */
xorcast_status xci_grow(xorcast_context *context, void *pointer_to, uint64_t *capacity,
                        uint64_t bytes);
void xci_release(xorcast_context *context, void *memory); /* NULL is allowed */
/* Lets `bytes` of large blocks that are released stay with the context, for large allocations to
 * come; frees what is kept beyond. For who releases and takes as much again and again: versions.
 * Shares add up; the holder keeps the number of its own, 0 at first, and gives it back with 0
 * bytes. */
void xci_keep(xorcast_context *context, uint64_t *share, uint64_t bytes);
/* Takes a block off the account: what others keep is theirs to count. Any number of times. */
void xci_disown(xorcast_context *context, void *memory);
/* For memory that others allocate on the context's behalf: counts it against the scratch limit. */
xorcast_status xci_account(xorcast_context *context, uint64_t bytes);
void xci_unaccount(xorcast_context *context, uint64_t bytes);
xorcast_status xci_copy_string(xorcast_context *context, const char *text, char **copy_out);

#endif
