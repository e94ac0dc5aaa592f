/* See cli_weights.h. */
#include "cli_weights.h"

#include "cli_progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PLACE_BYTES 256u /* alignment of each tensor: of cache lines, and as devices like it */

void *cli_memory_take(uint64_t bytes) {
    void *memory = mmap(NULL, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* faster where it is to be had */
    return memory;
}

void cli_memory_drop(void *memory, uint64_t bytes) {
    if (memory != NULL)
        munmap(memory, bytes == 0 ? 1 : bytes);
}

static uint64_t place_bytes(uint64_t bytes) {
    return (bytes + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

/* How many tensors a bundle has is how many it describes. */
static xorcast_status measure(xorcast_bundle *from, uint64_t *count_out, uint64_t *bytes_out) {
    xorcast_tensor tensor;
    uint64_t count = 0, bytes = 0;
    xorcast_status status;
    while ((status = xorcast_bundle_describe(from, count, &tensor)) == XORCAST_OK) {
        bytes += place_bytes(tensor.bytes);
        count++;
    }
    *count_out = count;
    *bytes_out = bytes;
    return status == XORCAST_NOT_FOUND ? XORCAST_OK : status;
}

static xorcast_status take_memory(cli_session *session, cli_weights *weights) {
    const char *backend = session->options.backend;
    weights->context = session->context;
    weights->on_device = backend != NULL && strcmp(backend, "cpu") != 0;
    if (weights->on_device)
        return weights->memory_bytes == 0
                   ? XORCAST_OK
                   : xorcast_device_allocate(session->context, weights->memory_bytes,
                                             &weights->memory);
    weights->memory = cli_memory_take(weights->memory_bytes);
    if (weights->memory == NULL)
        return cli_fail(session, XORCAST_NO_HOST_MEMORY, errno,
                        "no memory for %llu bytes of weights",
                        (unsigned long long)weights->memory_bytes);
    return XORCAST_OK;
}

static xorcast_status build(cli_session *session, xorcast_bundle *from, cli_weights *weights) {
    uint64_t count;
    CLI_TRY(measure(from, &count, &weights->memory_bytes));
    CLI_TRY(take_memory(session, weights));
    CLI_TRY(xorcast_bundle_create(session->context, NULL, &weights->bundle));
    uint8_t *at = weights->memory;
    for (uint64_t i = 0; i < count; i++) {
        xorcast_tensor tensor;
        CLI_TRY(xorcast_bundle_describe(from, i, &tensor));
        tensor.data = at;
        tensor.memory_kind = weights->on_device ? XORCAST_MEMORY_DEVICE : XORCAST_MEMORY_HOST;
        CLI_TRY(xorcast_bundle_add(weights->bundle, &tensor));
        at += place_bytes(tensor.bytes);
    }
    return xorcast_bundle_seal(weights->bundle, &weights->layout);
}

static xorcast_status load(cli_session *session, xorcast_checkpoint *checkpoint,
                           const cli_weights *weights) {
    cli_progress_begin(session, "loading");
    const xorcast_status status = xorcast_checkpoint_load(checkpoint, weights->bundle);
    cli_progress_end(session);
    return status;
}

xorcast_status cli_weights_open(cli_session *session, const char *path, cli_weights *weights) {
    xorcast_checkpoint *checkpoint;
    memset(weights, 0, sizeof *weights);
    CLI_TRY(xorcast_checkpoint_open(session->context, path, NULL, &checkpoint));
    xorcast_status status = build(session, xorcast_checkpoint_bundle(checkpoint), weights);
    if (status == XORCAST_OK)
        status = load(session, checkpoint, weights);
    xorcast_checkpoint_close(checkpoint);
    if (status < 0)
        cli_weights_close(weights);
    return status;
}

void cli_weights_close(cli_weights *weights) {
    xorcast_bundle_destroy(weights->bundle);
    if (weights->on_device)
        xorcast_device_release(weights->context, weights->memory);
    else
        cli_memory_drop(weights->memory, weights->memory_bytes);
    memset(weights, 0, sizeof *weights);
}

/* A tensor that only the checkpoint has would be left out in silence by loading. */
static xorcast_status refuse_more_tensors(cli_session *session, xorcast_checkpoint *checkpoint,
                                          const char *path, const cli_weights *weights) {
    xorcast_bundle *bundle = xorcast_checkpoint_bundle(checkpoint);
    const char *name;
    if (xorcast_bundle_name(bundle, weights->layout.tensor_count, &name) != XORCAST_OK)
        return XORCAST_OK;
    for (uint64_t i = 0, at; xorcast_bundle_name(bundle, i, &name) == XORCAST_OK; i++)
        if (xorcast_bundle_find(weights->bundle, name, &at) != XORCAST_OK)
            break;
    return cli_fail(session, XORCAST_LAYOUT_MISMATCH, 0,
                    "%.200s has a tensor %.200s that the steps before lack; start a new run", path,
                    name);
}

/* The library knows a checkpoint and not its place. */
static xorcast_status say_where(cli_session *session, const char *path, xorcast_status status) {
    if (status != XORCAST_LAYOUT_MISMATCH)
        return status;
    const xorcast_error failure = cli_failure(session, status);
    return cli_fail(session, status, 0, "%.300s: %.600s", path, failure.text);
}

xorcast_status cli_weights_load(cli_session *session, const char *path, cli_weights *weights) {
    xorcast_checkpoint *checkpoint;
    CLI_TRY(xorcast_checkpoint_open(session->context, path, NULL, &checkpoint));
    xorcast_status status = refuse_more_tensors(session, checkpoint, path, weights);
    if (status == XORCAST_OK)
        status = say_where(session, path, load(session, checkpoint, weights));
    xorcast_checkpoint_close(checkpoint);
    return status;
}

/* ---- Saving -----------------------------------------------------------------------------------*/

/* A delta in memory: from the files of `like` to the weights. */
typedef struct delta_bytes {
    uint8_t *bytes;
    uint64_t count, room;
} delta_bytes;

static int append(void *user, const void *bytes, uint64_t count) {
    delta_bytes *delta = user;
    if (count > delta->room - delta->count) {
        const uint64_t room = 2 * delta->room + count;
        uint8_t *moved = realloc(delta->bytes, room);
        if (moved == NULL)
            return ENOMEM;
        delta->bytes = moved;
        delta->room = room;
    }
    if (count > 0)
        memcpy(delta->bytes + delta->count, bytes, count);
    delta->count += count;
    return 0;
}

static xorcast_status encode_from(cli_session *session, const cli_weights *weights,
                                  const char *like, delta_bytes *delta) {
    xorcast_checkpoint *checkpoint;
    xorcast_delta_info info;
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = {append, delta};
    options.encoding.second_pass = 1; /* it is applied at once and never sent */
    CLI_TRY(xorcast_checkpoint_open(session->context, like, NULL, &checkpoint));
    const xorcast_status status = xorcast_delta_encode(xorcast_checkpoint_bundle(checkpoint),
                                                       weights->bundle, &options, &sink, &info);
    xorcast_checkpoint_close(checkpoint);
    return status;
}

xorcast_status cli_weights_save(cli_session *session, const cli_weights *weights, const char *like,
                                const char *path) {
    delta_bytes delta = {NULL, 0, 0};
    cli_progress_begin(session, "comparing");
    xorcast_status status = encode_from(session, weights, like, &delta);
    cli_progress_end(session);
    if (status == XORCAST_OK) {
        const xorcast_source source = {.bytes = delta.bytes, .size = delta.count};
        cli_progress_begin(session, "writing");
        status = xorcast_checkpoint_apply(session->context, like, &source, path, NULL);
        cli_progress_end(session);
    }
    free(delta.bytes);
    return status;
}
