/* Adding tensors to a bundle: what is said of one is checked and copied, and where its bytes are is
 * written down as regions. Names, shapes and regions lie in the bundle's arena. */
#include "bundle/bundle.h"

#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "bundle/seal.h"

/* ---- What a tensor is ---- */

static xorcast_status check_names(xorcast_bundle *bundle, const xorcast_tensor *tensor) {
    xorcast_context *context = bundle->context;
    if (tensor == NULL || tensor->struct_size != sizeof *tensor)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "the tensor is not initialised; use XORCAST_TENSOR_INIT");
    if (bundle->sealed)
        FAIL(context, XORCAST_BAD_STATE, "the bundle is sealed; tensors are added before");
    if (tensor->name == NULL || tensor->name[0] == 0 ||
        strnlen(tensor->name, XCI_NAME_MAX + 1) > XCI_NAME_MAX)
        FAIL(context, XORCAST_BAD_ARGUMENT, "a tensor's name must have 1 to %u bytes",
             XCI_NAME_MAX);
    if (bundle->tensor_count + bundle->alias_count >= XCI_TENSORS_MAX)
        FAIL(context, XORCAST_BAD_ARGUMENT, "a bundle holds at most %llu tensors",
             (unsigned long long)XCI_TENSORS_MAX);
    return XORCAST_OK;
}

/* Number of elements by the shape; the width of one, or 1 where bytes are not a whole number of a
 * width that we count by (packed and complex types). */
static xorcast_status measure_shape(xorcast_bundle *bundle, const xorcast_tensor *tensor,
                                    uint32_t *element_out) {
    xorcast_context *context = bundle->context;
    if (tensor->rank > XCI_RANK_MAX || (tensor->rank > 0 && tensor->shape == NULL))
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "tensor %s: rank %u is more than %u, or there is no shape", tensor->name, tensor->rank,
             XCI_RANK_MAX);
    uint64_t elements = 1;
    bool empty = false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        empty = empty || tensor->shape[i] == 0;
    for (uint32_t i = 0; i < tensor->rank && !empty; i++)
        if (!xci_multiply(elements, tensor->shape[i], &elements))
            FAIL(context, XORCAST_BAD_ARGUMENT, "tensor %s: its shape has more than 2^64 elements",
                 tensor->name);
    if (empty != (tensor->bytes == 0))
        FAIL(context, XORCAST_BAD_ARGUMENT, "tensor %s: its shape and its %llu bytes do not agree",
             tensor->name, (unsigned long long)tensor->bytes);
    if (tensor->bytes > INT64_MAX)
        FAIL(context, XORCAST_BAD_ARGUMENT, "tensor %s: more than 2^63 bytes", tensor->name);
    const uint64_t width = empty || tensor->bytes % elements ? 1 : tensor->bytes / elements;
    *element_out = width == 2 || width == 4 || width == 8 ? (uint32_t)width : 1;
    return XORCAST_OK;
}

static uint64_t last_dimension_bytes(const xorcast_tensor *tensor) {
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < tensor->rank; i++)
        rows *= tensor->shape[i];
    return rows == 0 || tensor->bytes % rows ? tensor->bytes : tensor->bytes / rows;
}

static xorcast_status copy_tensor(xorcast_bundle *bundle, const xorcast_tensor *tensor,
                                  xci_tensor *copy) {
    void *name, *dtype, *shape;
    if (tensor->dtype == NULL || tensor->dtype[0] == 0 ||
        strnlen(tensor->dtype, XCI_DTYPE_MAX + 1) > XCI_DTYPE_MAX)
        FAIL(bundle->context, XORCAST_BAD_ARGUMENT, "tensor %s: its dtype must have 1 to %u bytes",
             tensor->name, XCI_DTYPE_MAX);
    TRY(measure_shape(bundle, tensor, &copy->element_bytes));
    TRY(xci_arena_copy(bundle->arena, tensor->name, strlen(tensor->name) + 1, &name));
    TRY(xci_arena_copy(bundle->arena, tensor->dtype, strlen(tensor->dtype) + 1, &dtype));
    TRY(xci_arena_copy(bundle->arena, tensor->shape, tensor->rank * sizeof(uint64_t), &shape));
    copy->name = name;
    copy->dtype = dtype;
    copy->shape = shape;
    copy->rank = tensor->rank;
    copy->bytes = tensor->bytes;
    copy->row_bytes = tensor->row_bytes ? tensor->row_bytes : last_dimension_bytes(tensor);
    if (tensor->bytes > 0 &&
        (copy->row_bytes > tensor->bytes || tensor->bytes % copy->row_bytes != 0))
        FAIL(bundle->context, XORCAST_BAD_ARGUMENT,
             "tensor %s: %llu bytes are no whole number of rows of %llu", tensor->name,
             (unsigned long long)tensor->bytes, (unsigned long long)copy->row_bytes);
    return XORCAST_OK;
}

/* ---- Where its bytes are ---- */

static bool at_word_or_end(uint64_t at, const xci_tensor *tensor) {
    return at % 8 == 0 || at == tensor->bytes;
}

/* Every row's piece must begin and end at a whole word, because a word is the unit of the
 * digest. */
static xorcast_status check_box(xorcast_bundle *bundle, const xci_tensor *tensor,
                                const xorcast_box *box) {
    xorcast_context *context = bundle->context;
    const uint64_t rows = tensor->bytes / tensor->row_bytes;
    uint64_t row_end, column_end, extent;
    if (!xci_add(box->row, box->row_count, &row_end) || row_end > rows || box->row_count == 0 ||
        !xci_add(box->column, box->column_bytes, &column_end) || column_end > tensor->row_bytes ||
        box->column_bytes == 0)
        FAIL(context, XORCAST_BAD_ARGUMENT,
             "tensor %s: a box is empty or reaches beyond the tensor's %llu rows of %llu bytes",
             tensor->name, (unsigned long long)rows, (unsigned long long)tensor->row_bytes);
    if (box->data == NULL || (box->row_count > 1 && box->pitch_bytes < box->column_bytes) ||
        !xci_multiply(box->row_count, box->pitch_bytes, &extent) || extent > INT64_MAX)
        FAIL(context, XORCAST_BAD_ARGUMENT, "tensor %s: a box has no memory, or rows that overlap",
             tensor->name);
    const bool full_rows = box->column == 0 && box->column_bytes == tensor->row_bytes;
    const bool edges_ok =
        full_rows ? at_word_or_end(box->row * tensor->row_bytes, tensor) &&
                        at_word_or_end(row_end * tensor->row_bytes, tensor)
                  : tensor->row_bytes % 8 == 0 && box->column % 8 == 0 && column_end % 8 == 0;
    if (!edges_ok)
        FAIL(context, XORCAST_UNSUPPORTED,
             "tensor %s: box edges must be multiples of 8 bytes or the tensor's end", tensor->name);
    return XORCAST_OK;
}

static xorcast_status take_regions(xorcast_bundle *bundle, xci_tensor *copy, uint32_t count) {
    void *memory;
    TRY(xci_arena_take(bundle->arena, count * sizeof(xci_region), &memory));
    memset(memory, 0, count * sizeof(xci_region));
    copy->regions = memory;
    copy->region_count = count;
    return XORCAST_OK;
}

static xci_region whole_region(const xci_tensor *tensor) {
    return (xci_region){.row_count = tensor->bytes / tensor->row_bytes,
                        .column_bytes = tensor->row_bytes,
                        .pitch_bytes = tensor->row_bytes};
}

static xci_kind kind_of(const xorcast_tensor *tensor) {
    return tensor->memory_kind == XORCAST_MEMORY_DEVICE ? XCI_KIND_DEVICE : XCI_KIND_HOST;
}

static bool boxes_cross(const xorcast_box *a, const xorcast_box *b) {
    return a->row < b->row + b->row_count && b->row < a->row + a->row_count &&
           a->column < b->column + b->column_bytes && b->column < a->column + a->column_bytes;
}

static xorcast_status add_boxes(xorcast_bundle *bundle, const xorcast_tensor *tensor,
                                xci_tensor *copy) {
    TRY(take_regions(bundle, copy, tensor->box_count));
    uint64_t counted = 0;
    for (uint32_t i = 0; i < tensor->box_count; i++) {
        const xorcast_box *box = &tensor->boxes[i];
        TRY(check_box(bundle, copy, box));
        const bool replica = (box->flags & XORCAST_BOX_REPLICA) != 0;
        for (uint32_t j = 0; j < i && !replica; j++)
            if (!(tensor->boxes[j].flags & XORCAST_BOX_REPLICA) &&
                boxes_cross(box, &tensor->boxes[j]))
                FAIL(bundle->context, XORCAST_BAD_ARGUMENT,
                     "tensor %s: two boxes hold the same bytes; mark one XORCAST_BOX_REPLICA",
                     tensor->name);
        copy->regions[i] = (xci_region){box->row,
                                        box->row_count,
                                        box->column,
                                        box->column_bytes,
                                        box->pitch_bytes,
                                        kind_of(tensor),
                                        replica,
                                        box->data,
                                        NULL,
                                        0,
                                        XCI_NO_DEVICE};
        if (!replica)
            counted += box->row_count * box->column_bytes;
    }
    copy->counted = counted == copy->bytes;
    const xci_region *only = &copy->regions[0];
    copy->simple = copy->region_count == 1 && copy->counted &&
                   (only->pitch_bytes == copy->row_bytes || only->row_count == 1);
    return XORCAST_OK;
}

/* What a device adds: its memory must be that of a device of the context's backend, and since a
 * word is read at once there, rows that do not follow each other must be whole words. */
static xorcast_status check_device(xorcast_bundle *bundle, const xci_tensor *copy) {
    xorcast_context *context = bundle->context;
    for (uint32_t i = 0; i < copy->region_count; i++) {
        xci_region *region = &copy->regions[i];
        TRY(xci_device_owner(context, &bundle->owned, region->data, &region->device));
        if (region->device == XCI_NO_DEVICE)
            FAIL(context, XORCAST_BAD_ARGUMENT,
                 "tensor %s does not lie in memory of a device of %s; use such memory, or "
                 "memory_kind XORCAST_MEMORY_HOST",
                 copy->name, context->shared->device->ops->name);
        if (region->row_count > 1 && region->pitch_bytes != region->column_bytes &&
            (copy->row_bytes % 8 != 0 || region->pitch_bytes % 8 != 0))
            FAIL(context, XORCAST_UNSUPPORTED,
                 "tensor %s: in device memory, rows of a box and their pitch must be multiples of "
                 "8 bytes",
                 copy->name);
    }
    return XORCAST_OK;
}

/* ---- Adding ---- */

/* Room for one more tensor, zeroed. */
static xorcast_status next_tensor(xorcast_bundle *bundle, xci_tensor **tensor_out) {
    TRY(xci_grow(bundle->context, &bundle->tensors, &bundle->tensors_capacity,
                 (bundle->tensor_count + 1) * sizeof(xci_tensor)));
    *tensor_out = &bundle->tensors[bundle->tensor_count];
    memset(*tensor_out, 0, sizeof **tensor_out);
    return XORCAST_OK;
}

static xorcast_status add_alias(xorcast_bundle *bundle, const xorcast_tensor *tensor) {
    void *name, *target;
    TRY(xci_arena_copy(bundle->arena, tensor->name, strlen(tensor->name) + 1, &name));
    TRY(xci_arena_copy(bundle->arena, tensor->alias_of, strlen(tensor->alias_of) + 1, &target));
    return xci_bundle_list_alias(bundle, name, target);
}

xorcast_status xorcast_bundle_add(xorcast_bundle *bundle, const xorcast_tensor *tensor) {
    TRY(check_names(bundle, tensor));
    if (tensor->memory_kind > XORCAST_MEMORY_DEVICE)
        FAIL(bundle->context, XORCAST_BAD_ARGUMENT, "tensor %s: there is no memory kind %u",
             tensor->name, tensor->memory_kind);
    if (tensor->memory_kind == XORCAST_MEMORY_DEVICE)
        TRY(xci_device_open(bundle->context));
    if (tensor->alias_of != NULL)
        return add_alias(bundle, tensor);
    xci_tensor *copy;
    TRY(next_tensor(bundle, &copy));
    TRY(copy_tensor(bundle, tensor, copy));
    if (tensor->bytes == 0) {
        copy->simple = copy->counted = true;
    } else if (tensor->box_count > 0) {
        if (tensor->boxes == NULL)
            FAIL(bundle->context, XORCAST_BAD_ARGUMENT, "tensor %s: boxes are NULL", tensor->name);
        TRY(add_boxes(bundle, tensor, copy));
    } else {
        if (tensor->data == NULL)
            FAIL(bundle->context, XORCAST_BAD_ARGUMENT, "tensor %s: data is NULL", tensor->name);
        TRY(take_regions(bundle, copy, 1));
        copy->regions[0] = whole_region(copy);
        copy->regions[0].data = tensor->data;
        copy->regions[0].kind = kind_of(tensor);
        copy->simple = copy->counted = true;
    }
    if (tensor->memory_kind == XORCAST_MEMORY_DEVICE)
        TRY(check_device(bundle, copy));
    bundle->tensor_count++;
    return XORCAST_OK;
}

xorcast_status xci_bundle_add_file(xorcast_bundle *bundle, const xorcast_tensor *tensor,
                                   struct xci_file *file, uint64_t offset) {
    TRY(check_names(bundle, tensor));
    xci_tensor *copy;
    TRY(next_tensor(bundle, &copy));
    TRY(copy_tensor(bundle, tensor, copy));
    if (tensor->bytes > 0) {
        TRY(take_regions(bundle, copy, 1));
        copy->regions[0] = whole_region(copy);
        copy->regions[0].kind = file == NULL ? XCI_KIND_ZERO : XCI_KIND_FILE;
        copy->regions[0].file = file;
        copy->regions[0].offset = offset;
    }
    copy->simple = copy->counted = true;
    bundle->tensor_count++;
    return XORCAST_OK;
}
