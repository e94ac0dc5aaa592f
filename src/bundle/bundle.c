/* A bundle's life: made, sealed (seal.h has the steps), asked, destroyed. Tensors are added by
 * add.c. Owns the copies of names and shapes; the caller keeps the bytes of tensors. */
#include "bundle/bundle.h"

#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "bundle/seal.h"
#include "bundle/shares.h"

static bool power_of_two_in(uint64_t value, uint64_t low, uint64_t high) {
    return value >= low && value <= high && (value & (value - 1)) == 0;
}

xorcast_status xorcast_bundle_create(xorcast_context *context,
                                     const xorcast_bundle_options *options,
                                     xorcast_bundle **bundle_out) {
    static const xorcast_bundle_options defaults = XORCAST_BUNDLE_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    if (options->struct_size != sizeof *options)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "bundle options are not initialised; use XORCAST_BUNDLE_OPTIONS_INIT");
    const uint64_t chunk_bytes =
        options->chunk_bytes ? options->chunk_bytes : XCI_CHUNK_BYTES_DEFAULT;
    const uint64_t group_bytes =
        options->group_bytes ? options->group_bytes : XCI_GROUP_BYTES_DEFAULT;
    if (!power_of_two_in(chunk_bytes, XCI_CHUNK_BYTES_MIN, XCI_CHUNK_BYTES_MAX))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "chunk_bytes %llu is not a power of two from 16 KiB to 1 MiB",
             (unsigned long long)chunk_bytes);
    if (!power_of_two_in(group_bytes, XCI_GROUP_BYTES_MIN, XCI_GROUP_BYTES_MAX))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "group_bytes %llu is not a power of two from 1 MiB to 64 MiB",
             (unsigned long long)group_bytes);
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xorcast_bundle), &memory));
    xorcast_bundle *bundle = memory;
    const xorcast_status status = xci_arena_create(context, &bundle->arena);
    if (status < 0) {
        xci_release(context, bundle);
        return status;
    }
    bundle->context = context;
    bundle->chunk_log2 = (uint32_t)__builtin_ctzll(chunk_bytes);
    bundle->group_bytes = group_bytes;
    *bundle_out = bundle;
    return XORCAST_OK;
}

void xorcast_bundle_destroy(xorcast_bundle *bundle) {
    if (bundle == NULL)
        return;
    xorcast_context *context = bundle->context;
    if (bundle->twin != NULL) {
        xci_release(context, bundle->tensors);
        xci_release(context, bundle->regions);
        xci_release(context, bundle);
        return;
    }
    void *const parts[] = {bundle->tensors, bundle->aliases,  bundle->whole,        bundle->packed,
                           bundle->segments, bundle->packed_first, bundle->group_first};
    xci_shares_close(bundle);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        xci_release(context, parts[i]);
    xci_arena_destroy(bundle->arena);
    xci_release(context, bundle);
}

xorcast_status xci_bundle_need_sealed(xorcast_bundle *bundle) {
    if (!bundle->sealed)
        FAIL(bundle->context, XORCAST_BAD_STATE,
             "the bundle is not sealed; call xorcast_bundle_seal first");
    return XORCAST_OK;
}

/* ---- Sealing ---- */

static void sum_up(xorcast_bundle *bundle) {
    xorcast_layout *layout = &bundle->layout;
    bundle->complete = true;
    for (uint64_t t = 0; t < bundle->tensor_count; t++) {
        xci_tensor *tensor = &bundle->tensors[t];
        tensor->key = xci_digest_key(t);
        layout->total_bytes += tensor->bytes;
        bundle->complete = bundle->complete && tensor->counted;
        for (uint32_t i = 0; i < tensor->region_count; i++)
            if (!tensor->regions[i].replica)
                layout->covered_bytes +=
                    tensor->regions[i].row_count * tensor->regions[i].column_bytes;
    }
    layout->tensor_count = bundle->tensor_count;
    layout->chunk_bytes = UINT64_C(1) << bundle->chunk_log2;
    layout->group_bytes = bundle->group_bytes;
}

/* Work on a bundle is done where it lies, by one device or by the CPU. */
static xorcast_status find_memory(xorcast_bundle *bundle) {
    const char *first[2] = {NULL, NULL}; /* of the tensors elsewhere, and on the device */
    for (uint64_t t = 0; t < bundle->tensor_count; t++)
        if (bundle->tensors[t].region_count > 0)
            first[bundle->tensors[t].regions[0].kind == XCI_KIND_DEVICE] = bundle->tensors[t].name;
    if (first[0] != NULL && first[1] != NULL)
        FAIL(bundle->context, XORCAST_UNSUPPORTED,
             "tensor %s lies in host memory and %s on a device; make a bundle, with a publisher of "
             "its own, for each",
             first[0], first[1]);
    bundle->on_device = first[1] != NULL;
    return XORCAST_OK;
}

xorcast_status xorcast_bundle_seal(xorcast_bundle *bundle, xorcast_layout *layout_out) {
    if (bundle->sealed)
        FAIL(bundle->context, XORCAST_BAD_STATE, "the bundle is sealed already");
    TRY(find_memory(bundle));
    TRY(xci_seal_names(bundle));
    TRY(xci_seal_overlaps(bundle));
    memset(&bundle->layout, 0, sizeof bundle->layout);
    sum_up(bundle);
    TRY(xci_seal_grid(bundle));
    TRY(xci_seal_fingerprint(bundle));
    xci_seal_costs(bundle);
    if (bundle->on_device) {
        TRY(xci_shares_open(bundle));
        xci_seal_device_costs(bundle);
    }
    bundle->sealed = true;
    if (layout_out != NULL)
        *layout_out = bundle->layout;
    return XORCAST_OK;
}

/* ---- Asking ---- */

xorcast_status xorcast_bundle_find(xorcast_bundle *bundle, const char *name, uint64_t *index_out) {
    TRY(xci_bundle_need_sealed(bundle));
    const xci_tensor *found = xci_tensor_named(bundle, name);
    if (found != NULL) {
        *index_out = (uint64_t)(found - bundle->tensors);
        return XORCAST_OK;
    }
    const xci_alias *alias = xci_alias_named(bundle, name);
    if (alias == NULL)
        FAIL(bundle->context, XORCAST_NOT_FOUND, "the bundle has no tensor %.200s", name);
    *index_out = alias->tensor;
    return XORCAST_OK;
}

xorcast_status xorcast_bundle_name(xorcast_bundle *bundle, uint64_t index, const char **name_out) {
    TRY(xci_bundle_need_sealed(bundle));
    if (index >= bundle->tensor_count)
        FAIL(bundle->context, XORCAST_NOT_FOUND,
             "the bundle has %llu tensors, none with index %llu",
             (unsigned long long)bundle->tensor_count, (unsigned long long)index);
    *name_out = bundle->tensors[index].name;
    return XORCAST_OK;
}

xorcast_status xorcast_bundle_describe(xorcast_bundle *bundle, uint64_t index,
                                       xorcast_tensor *tensor_out) {
    const char *name;
    TRY(xorcast_bundle_name(bundle, index, &name));
    const xci_tensor *from = &bundle->tensors[index];
    const bool direct = from->simple && from->bytes > 0 && from->regions[0].kind <= XCI_KIND_DEVICE;
    xorcast_tensor tensor = XORCAST_TENSOR_INIT;
    tensor.name = name;
    tensor.dtype = from->dtype;
    tensor.shape = from->shape;
    tensor.rank = from->rank;
    tensor.bytes = from->bytes;
    tensor.row_bytes = from->row_bytes;
    tensor.data = direct ? from->regions[0].data : NULL;
    tensor.memory_kind = bundle->on_device ? XORCAST_MEMORY_DEVICE : XORCAST_MEMORY_HOST;
    *tensor_out = tensor;
    return XORCAST_OK;
}
