/* Parts: see parts.h. */
#include "publish/parts.h"

#include <string.h>

#include "base/pool.h"

/* Groups [first, end) of the layout, those among them that changed. */
typedef struct planned_part {
    uint64_t first, end, payload_bytes;
    xci_part part;
    xci_blob *blob;
} planned_part;

typedef struct plan {
    xci_shadow *shadow;
    xci_form form;
    planned_part *parts;
    uint64_t count, capacity_bytes;
} plan;

static xorcast_status add_planned(plan *p, const planned_part *part) {
    void *memory = p->parts;
    const xorcast_status status =
        xci_reserve(xci_shadow_bundle(p->shadow)->context, &memory, &p->capacity_bytes,
                    (p->count + 1) * sizeof(planned_part));
    p->parts = memory;
    TRY(status);
    p->parts[p->count++] = *part;
    return XORCAST_OK;
}

/* The same cuts as a delta writer makes of the records one by one. */
static xorcast_status make_plan(plan *p) {
    const uint64_t group_count = xci_shadow_bundle(p->shadow)->layout.group_count;
    planned_part open = {0};
    for (uint64_t g = 0; g < group_count; g++) {
        const xci_ahead *ahead = xci_shadow_ahead(p->shadow, g);
        if (ahead->record.block_count == 0)
            continue;
        open.part.bytes += ahead->written[p->form].count;
        open.part.group_count++;
        open.payload_bytes += ahead->written[p->form].payload_bytes;
        open.end = g + 1;
        if (open.part.bytes < XCI_PART_BYTES)
            continue;
        TRY(add_planned(p, &open));
        open = (planned_part){.first = g + 1};
    }
    return open.part.bytes > 0 ? add_planned(p, &open) : XORCAST_OK;
}

static xorcast_status fill_part(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    plan *p = user;
    planned_part *planned = &p->parts[index];
    xorcast_context *context = xci_shadow_bundle(p->shadow)->context;
    TRY(xci_blob_create(context, planned->part.bytes, &planned->blob));
    uint8_t *at = planned->blob->bytes;
    for (uint64_t g = planned->first; g < planned->end; g++) {
        const xci_ahead *ahead = xci_shadow_ahead(p->shadow, g);
        if (ahead->record.block_count == 0)
            continue;
        const xci_written *written = &ahead->written[p->form];
        memcpy(at, written->bytes, written->count);
        at += written->count;
    }
    planned->part.hash = xci_hash_of(planned->blob->bytes, planned->part.bytes);
    return XORCAST_OK;
}

static xorcast_status write_parts(plan *p, xci_delta_writer *writer) {
    TRY(make_plan(p));
    TRY(xci_pool_run(xci_shadow_bundle(p->shadow)->context->shared->pool, p->count, fill_part, p));
    for (uint64_t i = 0; i < p->count; i++)
        TRY(xci_delta_writer_add_part(writer, p->parts[i].blob, &p->parts[i].part,
                                      p->parts[i].payload_bytes));
    return XORCAST_OK;
}

xorcast_status xci_parts_write(xci_shadow *shadow, xci_form form, xci_delta_writer *writer) {
    plan p = {.shadow = shadow, .form = form};
    const xorcast_status status = write_parts(&p, writer);
    for (uint64_t i = 0; i < p.count; i++)
        xci_blob_drop(p.parts[i].blob);
    xci_release(xci_shadow_bundle(shadow)->context, p.parts);
    return status;
}
