/* Parts: see parts.h. */
#include "publish/parts.h"

#include <string.h>

#include "base/pool.h"

static xorcast_context *context_of(const xci_parts *parts) {
    return xci_shadow_bundle(parts->shadow)->context;
}

xorcast_status xci_parts_open(xci_parts *parts, xci_shadow *shadow, xci_form form) {
    *parts = (xci_parts){.shadow = shadow, .form = form};
    return xci_shelf_open(context_of(parts), &parts->shelf);
}

static void drop_planned(xci_parts *parts) {
    for (uint64_t i = 0; i < parts->count; i++)
        xci_blob_drop(parts->planned[i].blob);
    parts->count = parts->filled = 0;
}

void xci_parts_close(xci_parts *parts) {
    if (parts->shadow == NULL)
        return;
    drop_planned(parts);
    xci_release(context_of(parts), parts->planned);
    xci_shelf_close(parts->shelf);
    *parts = (xci_parts){0};
}

void xci_parts_reset(xci_parts *parts) {
    if (parts->shadow == NULL)
        return;
    drop_planned(parts);
    xci_shelf_turn(parts->shelf);
    parts->open = (xci_planned_part){0};
    parts->next_group = 0;
}

/* ---- Planning ---- */

static xorcast_status close_open(xci_parts *parts) {
    void *memory = parts->planned;
    const xorcast_status status = xci_reserve(context_of(parts), &memory, &parts->capacity_bytes,
                                              (parts->count + 1) * sizeof(xci_planned_part));
    parts->planned = memory;
    TRY(status);
    parts->planned[parts->count++] = parts->open;
    parts->open = (xci_planned_part){.first = parts->open.end, .end = parts->open.end};
    return XORCAST_OK;
}

/* The same cuts as a delta writer makes of the records one by one. */
xorcast_status xci_parts_plan(xci_parts *parts, uint64_t end) {
    xci_planned_part *open = &parts->open;
    for (; parts->next_group < end; parts->next_group++) {
        const xci_ahead *ahead = xci_shadow_ahead(parts->shadow, parts->next_group);
        open->end = parts->next_group + 1;
        if (ahead->record.block_count == 0)
            continue;
        open->part.bytes += ahead->written[parts->form].count;
        open->part.group_count++;
        open->payload_bytes += ahead->written[parts->form].payload_bytes;
        if (open->part.bytes >= XCI_PART_BYTES)
            TRY(close_open(parts));
    }
    return XORCAST_OK;
}

/* ---- Filling ---- */

xorcast_status xci_parts_fill(xci_parts *parts, uint64_t index) {
    xci_planned_part *planned = &parts->planned[parts->filled + index];
    TRY(xci_shelf_blob(parts->shelf, context_of(parts), planned->part.bytes, &planned->blob));
    if (parts->side != NULL)
        planned->blob->side = xci_device_side_refer(parts->side);
    uint8_t *at = planned->blob->bytes;
    for (uint64_t g = planned->first; g < planned->end; g++) {
        const xci_ahead *ahead = xci_shadow_ahead(parts->shadow, g);
        if (ahead->record.block_count == 0)
            continue;
        const xci_written *written = &ahead->written[parts->form];
        memcpy(at, written->bytes, written->count);
        at += written->count;
    }
    planned->part.hash = xci_hash_of(planned->blob->bytes, planned->part.bytes);
    return XORCAST_OK;
}

static xorcast_status fill_item(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    return xci_parts_fill(user, index);
}

xorcast_status xci_parts_write(xci_parts *parts, xci_delta_writer *writer) {
    if (parts->open.part.bytes > 0)
        TRY(close_open(parts));
    TRY(xci_pool_run(context_of(parts)->shared->pool, parts->count - parts->filled, fill_item,
                     parts));
    parts->filled = parts->count;
    for (uint64_t i = 0; i < parts->count; i++)
        TRY(xci_delta_writer_add_part(writer, parts->planned[i].blob, &parts->planned[i].part,
                                      parts->planned[i].payload_bytes));
    return XORCAST_OK;
}
