/* The delta between two checkpoints: their tensors through the encoder, their files as the
 * delta's attachment. Where layouts differ, OLD's tensors are laid out as NEW has them first,
 * with zeros for those it lacks. */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "publish/encode.h"

typedef struct diff {
    xorcast_context *context;
    xorcast_checkpoint *base, *target;
    xorcast_bundle *aligned; /* base as target has it; NULL if the layouts are equal */
    uint64_t whole_count;
    xci_identity identity;
    xci_buffer files;
} diff;

static xorcast_status align(diff *d) {
    const xorcast_layout *base = &d->base->bundle->layout, *target = &d->target->bundle->layout;
    if (memcmp(base->fingerprint, target->fingerprint, sizeof base->fingerprint) == 0)
        return XORCAST_OK;
    TRY(xci_listing_bundle(&d->target->listing, &d->base->listing, NULL, &d->aligned,
                           &d->whole_count));
    memcpy(d->identity.fingerprint, base->fingerprint, sizeof base->fingerprint);
    return xorcast_bundle_digest(d->base->bundle, &d->identity.digest);
}

static xorcast_status run(diff *d, const char *old_path, const char *new_path,
                          const xorcast_delta_options *options, const xorcast_sink *sink,
                          xorcast_delta_info *info_out) {
    TRY(xorcast_checkpoint_open(d->context, old_path, NULL, &d->base));
    TRY(xorcast_checkpoint_open(d->context, new_path, NULL, &d->target));
    TRY(align(d));
    TRY(xci_files_encode(&d->base->listing, &d->target->listing, d->whole_count, &d->files));
    return xci_delta_encode(d->aligned != NULL ? d->aligned : d->base->bundle, d->target->bundle,
                            options, d->aligned != NULL ? &d->identity : NULL, d->files.bytes,
                            d->files.size, sink, info_out);
}

xorcast_status xorcast_checkpoint_diff(xorcast_context *context, const char *old_path,
                                       const char *new_path, const xorcast_delta_options *options,
                                       const xorcast_sink *sink, xorcast_delta_info *info_out) {
    diff d = {.context = context, .files = {.context = context}};
    if (sink == NULL || sink->write == NULL)
        FAIL(context, XORCAST_BAD_ARGUMENT, "there is no sink to write the delta to");
    const xorcast_status status = run(&d, old_path, new_path, options, sink, info_out);
    xci_buffer_free(&d.files);
    xorcast_bundle_destroy(d.aligned);
    xorcast_checkpoint_close(d.target);
    xorcast_checkpoint_close(d.base);
    return status;
}
