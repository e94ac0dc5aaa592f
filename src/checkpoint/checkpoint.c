/* Opening checkpoints, and loading them into a bundle in memory. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/progress.h"
#include "bundle/bundle.h"
#include "bundle/device_fill.h"

#define DEVICE_LANES 8u /* read at once: each has windows of pinned memory */

xorcast_status xorcast_checkpoint_open(xorcast_context *context, const char *path,
                                       const xorcast_bundle_options *options,
                                       xorcast_checkpoint **checkpoint_out) {
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xorcast_checkpoint), &memory));
    xorcast_checkpoint *checkpoint = memory;
    checkpoint->context = context;
    xorcast_status status = xci_listing_open(context, path, &checkpoint->listing);
    if (status == XORCAST_OK)
        status = xci_listing_bundle(&checkpoint->listing, NULL, options, &checkpoint->bundle, NULL);
    if (status < 0) {
        xorcast_checkpoint_close(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return XORCAST_OK;
}

void xorcast_checkpoint_close(xorcast_checkpoint *checkpoint) {
    if (checkpoint == NULL)
        return;
    xorcast_bundle_destroy(checkpoint->bundle);
    xci_listing_free(&checkpoint->listing);
    xci_release(checkpoint->context, checkpoint);
}

xorcast_bundle *xorcast_checkpoint_bundle(xorcast_checkpoint *checkpoint) {
    return checkpoint->bundle;
}

/* ---- Loading ---- */

/* Where each tensor of the bundle stands in the checkpoint. */
typedef struct load {
    xorcast_bundle *from, *to;
    const xorcast_bundle *part; /* of `to`, what is loaded now: all, or a share */
    uint64_t *places;
    xci_device_fill *fill;     /* into device memory: */
    atomic_uint_fast64_t next; /* tensor that no lane has taken */
} load;

static bool find(xorcast_bundle *bundle, const char *name, uint64_t *index_out) {
    const xci_tensor *tensors = bundle->tensors;
    uint64_t low = 0, high = bundle->tensor_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (strcmp(tensors[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *index_out = low;
    return low < bundle->tensor_count && strcmp(tensors[low].name, name) == 0;
}

/* A checkpoint may hold tied weights under either of their names. */
static xorcast_status find_source(const load *l, uint64_t tensor, uint64_t *index_out) {
    if (find(l->from, l->to->tensors[tensor].name, index_out))
        return XORCAST_OK;
    for (uint64_t a = 0; a < l->to->alias_count; a++)
        if (l->to->aliases[a].tensor == tensor && find(l->from, l->to->aliases[a].name, index_out))
            return XORCAST_OK;
    const xci_place place = {tensor, XORCAST_NO_INDEX, 0};
    FAIL_AT(l->to->context, XORCAST_LAYOUT_MISMATCH, place,
            "the checkpoint has no tensor %.300s; it is of another model",
            l->to->tensors[tensor].name);
}

static xorcast_status match(load *l) {
    for (uint64_t t = 0; t < l->to->tensor_count; t++) {
        const xci_tensor *to = &l->to->tensors[t];
        const xci_place place = {t, XORCAST_NO_INDEX, 0};
        TRY(find_source(l, t, &l->places[t]));
        const xci_tensor *from = &l->from->tensors[l->places[t]];
        if (strcmp(from->dtype, to->dtype) != 0 || from->bytes != to->bytes ||
            from->rank != to->rank ||
            (to->rank > 0 && memcmp(from->shape, to->shape, to->rank * sizeof *to->shape) != 0))
            FAIL_AT(l->to->context, XORCAST_LAYOUT_MISMATCH, place,
                    "tensor %.300s: the checkpoint holds %s with %llu bytes, the bundle expects %s "
                    "with %llu, or another shape",
                    to->name, from->dtype, (unsigned long long)from->bytes, to->dtype,
                    (unsigned long long)to->bytes);
        for (uint32_t i = 0; i < to->region_count; i++)
            if (to->regions[i].kind > XCI_KIND_DEVICE)
                FAIL_AT(l->to->context, XORCAST_UNSUPPORTED, place,
                        "tensor %.300s lies in a file; load into a bundle over memory", to->name);
    }
    return XORCAST_OK;
}

/* Bytes [begin, begin + count) of a tensor to one piece of memory. */
static xorcast_status load_piece(const load *l, uint32_t lane, uint64_t source, uint64_t begin,
                                 uint64_t count, uint8_t *to) {
    if (l->fill == NULL)
        return xci_tensor_read(l->from, source, begin, count, to);
    for (uint64_t done = 0; done < count;) {
        const uint64_t some = xci_min(XCI_FILL_WINDOW, count - done);
        uint8_t *room;
        TRY(xci_device_fill_room(l->fill, lane, to + done, some, &room));
        TRY(xci_tensor_read(l->from, source, begin + done, some, room));
        done += some;
    }
    return XORCAST_OK;
}

static xorcast_status load_region(const load *l, uint32_t lane, uint64_t source,
                                  const xci_tensor *to, const xci_region *region) {
    const uint64_t begin = region->row * to->row_bytes + region->column;
    const bool gapless = region->column_bytes == to->row_bytes &&
                         (region->pitch_bytes == to->row_bytes || region->row_count == 1);
    if (gapless)
        return load_piece(l, lane, source, begin, region->row_count * region->column_bytes,
                          region->data);
    for (uint64_t r = 0; r < region->row_count; r++)
        TRY(load_piece(l, lane, source, begin + r * to->row_bytes, region->column_bytes,
                       region->data + r * region->pitch_bytes));
    return XORCAST_OK;
}

static xorcast_status load_tensor(const load *l, uint64_t index, uint32_t lane, uint32_t worker) {
    const xci_tensor *to = &l->part->tensors[index];
    for (uint32_t i = 0; i < to->region_count; i++)
        TRY(load_region(l, lane, l->places[index], to, &to->regions[i]));
    return xci_progress_step(l->to->context, worker, to->bytes);
}

static xorcast_status load_to_host(void *user, uint64_t index, uint32_t worker) {
    return load_tensor(user, index, worker, worker);
}

/* A lane takes tensors until there are none, or one failed. */
static xorcast_status run_lane(void *user, uint64_t lane, uint32_t worker) {
    load *l = user;
    for (;;) {
        const uint64_t tensor = atomic_fetch_add(&l->next, 1);
        if (tensor >= l->to->tensor_count)
            return XORCAST_OK;
        const xorcast_status status = load_tensor(l, tensor, (uint32_t)lane, worker);
        if (status < 0) {
            atomic_store(&l->next, l->to->tensor_count);
            return status;
        }
    }
}

/* What of the tensors lies on one device. */
static xorcast_status load_share(load *l, xorcast_bundle *share) {
    const uint32_t lanes = (uint32_t)xci_min(DEVICE_LANES, xci_context_threads(share->context));
    l->part = share;
    atomic_store(&l->next, 0);
    TRY(xci_device_fill_open(share->context, lanes, &l->fill));
    xorcast_status status = xci_pool_run(share->context->shared->pool, lanes, run_lane, l);
    if (status == XORCAST_OK)
        status = xci_device_fill_finish(l->fill);
    xci_device_fill_close(l->fill);
    l->fill = NULL;
    return status;
}

static xorcast_status load_parts(load *l) {
    l->part = l->to;
    if (!l->to->on_device)
        return xci_pool_run(l->to->context->shared->pool, l->to->tensor_count, load_to_host, l);
    for (uint32_t s = 0; s < l->to->share_count; s++)
        TRY(load_share(l, l->to->shares[s]));
    return XORCAST_OK;
}

static xorcast_status load_all(load *l) {
    xorcast_context *context = l->to->context;
    TRY(match(l));
    const xorcast_status status = load_parts(l);
    if (status < 0) {
        xorcast_error cause;
        xorcast_last_error(l->from->context, &cause);
        if (cause.status != status) /* the device's, which is the bundle's */
            xorcast_last_error(context, &cause);
        const xci_place place = {cause.tensor, cause.chunk, cause.os_error};
        FAIL_AT(context, XORCAST_WEIGHTS_MIXED, place,
                "the weights are loaded in part (%.300s); load them again", cause.text);
    }
    return XORCAST_OK;
}

xorcast_status xorcast_checkpoint_load(xorcast_checkpoint *checkpoint, xorcast_bundle *bundle) {
    void *memory;
    TRY(xci_bundle_need_sealed(bundle));
    TRY(xci_allocate_array(bundle->context, bundle->tensor_count, sizeof(uint64_t), &memory));
    load l = {.from = checkpoint->bundle, .to = bundle, .places = memory};
    xci_progress_begin(bundle->context, bundle->layout.total_bytes);
    const xorcast_status status = load_all(&l);
    xci_progress_end(bundle->context);
    xci_release(bundle->context, memory);
    return status;
}
