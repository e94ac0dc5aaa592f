/* A checkpoint's weights in memory of this process, or of its device, as a trainer or sampler has
 * them. Owns the memory and the bundle over it. */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H

#include "cli_session.h"

typedef struct cli_weights {
    xorcast_context *context;
    xorcast_bundle *bundle;
    void *memory;
    bool on_device;
    uint64_t memory_bytes;
    xorcast_layout layout;
} cli_weights;

/* Brings the checkpoint at `path` into new memory, of the device if a backend for one was asked
 * for. */
xorcast_status cli_weights_open(cli_session *session, const char *path, cli_weights *weights);
void cli_weights_close(cli_weights *weights);

/* Overwrites the weights with another checkpoint of the same tensors. LAYOUT_MISMATCH if it has
 * others. */
xorcast_status cli_weights_load(cli_session *session, const char *path, cli_weights *weights);

/* Writes the weights as a checkpoint whose files and headers are those of `like`, which has the
 * same tensors; `path` may be `like` itself. */
xorcast_status cli_weights_save(cli_session *session, const cli_weights *weights, const char *like,
                                const char *path);

/* Pages for weights, zeroed, or NULL. */
void *cli_memory_take(uint64_t bytes);
void cli_memory_drop(void *memory, uint64_t bytes);

#endif
