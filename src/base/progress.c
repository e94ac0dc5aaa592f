/* Progress: see progress.h. */
#include "base/progress.h"

#include "base/bytes.h"

void xci_progress_begin(xorcast_context *context, uint64_t total_bytes) {
    atomic_store(&context->shared->progress_done, 0);
    atomic_store(&context->shared->progress_total, total_bytes);
    atomic_store(&context->shared->called_off, 0);
}

/* Padding between small tensors is work too, but none of the whole. */
static bool tell(xorcast_context *context, uint64_t done, uint64_t total) {
    const xorcast_context_options *options = &context->shared->options;
    return options->progress == NULL || total == 0 ||
           options->progress(options->user, xci_min(done, total), total) == 0;
}

xorcast_status xci_progress_step(xorcast_context *context, uint32_t worker, uint64_t bytes) {
    const uint64_t total = atomic_load(&context->shared->progress_total);
    if (total == 0)
        return XORCAST_OK;
    const uint64_t done = bytes + atomic_fetch_add(&context->shared->progress_done, bytes);
    if (worker == 0 && !tell(context, done, total))
        atomic_store(&context->shared->called_off, 1);
    if (atomic_load(&context->shared->called_off) != 0)
        FAIL(context, XORCAST_CANCELLED, "the work was called off");
    return XORCAST_OK;
}

xorcast_status xci_progress_ask(xorcast_context *context) {
    return xci_progress_step(context, 0, 0);
}

void xci_progress_end(xorcast_context *context) {
    (void)tell(context, atomic_load(&context->shared->progress_done),
               atomic_load(&context->shared->progress_total));
    atomic_store(&context->shared->progress_total, 0);
}
