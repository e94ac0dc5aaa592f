/* Parts: see parts.h. */
#include "publish/parts.h"

#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"

#define PART_ROOM (XCI_PART_BYTES + (UINT64_C(256) << 10)) /* the record that closes a part too */
#define COPY_RUN UINT64_C(4) /* groups that one worker copies at a time */

static xorcast_context *context_of(const xci_parts *parts) {
    return xci_shadow_bundle(parts->shadow)->context;
}

xorcast_status xci_parts_open(xci_parts *parts, xci_shadow *shadow, xci_form form) {
    void *memory;
    *parts = (xci_parts){.shadow = shadow, .form = form};
    TRY(xci_allocate_array(context_of(parts), xci_shadow_bundle(shadow)->layout.group_count,
                           sizeof *parts->places, &memory));
    parts->places = memory;
    return XORCAST_OK;
}

static void drop_blobs(xci_parts *parts) {
    for (uint64_t i = 0; i < parts->count; i++)
        xci_blob_drop(parts->planned[i].blob);
    xci_blob_drop(parts->open.blob);
    parts->open = (xci_planned_part){0};
    parts->open_room = parts->open_first = parts->count = parts->hashed = 0;
    parts->copied = parts->next_group = 0;
}

void xci_parts_close(xci_parts *parts) {
    if (parts->shadow == NULL)
        return;
    drop_blobs(parts);
    xci_release(context_of(parts), parts->planned);
    xci_release(context_of(parts), parts->places);
    *parts = (xci_parts){0};
}

void xci_parts_reset(xci_parts *parts) {
    if (parts->shadow == NULL)
        return;
    drop_blobs(parts);
}

/* ---- Planning ---- */

static xorcast_status close_open(xci_parts *parts) {
    void *memory = parts->planned;
    const xorcast_status status = xci_reserve(context_of(parts), &memory, &parts->capacity_bytes,
                                              (parts->count + 1) * sizeof(xci_planned_part));
    parts->planned = memory;
    TRY(status);
    parts->open.blob->size = parts->open.part.bytes;
    parts->planned[parts->count++] = parts->open;
    parts->open = (xci_planned_part){0};
    parts->open_room = 0;
    return XORCAST_OK;
}

/* The open part's groups have moved to another blob. */
static void move_records(const xci_parts *parts, const uint8_t *from, uint8_t *to) {
    for (uint64_t g = parts->open_first; g < parts->next_group; g++) {
        if (parts->places[g] == NULL)
            continue;
        uint8_t *place = to + (parts->places[g] - from);
        if (g < parts->copied)
            xci_ahead_moved(xci_shadow_ahead(parts->shadow, g), parts->form, parts->places[g],
                            place);
        parts->places[g] = place;
    }
}

/* Room for a record in the open part; `expected` bytes, it among them, are known to come. */
static xorcast_status make_room(xci_parts *parts, uint64_t bytes, uint64_t expected) {
    xci_planned_part *open = &parts->open;
    const uint64_t needed = open->part.bytes + bytes;
    xci_blob *blob;
    if (needed <= parts->open_room)
        return XORCAST_OK;
    /* Of a version that has filled parts, more is likely to come than is known. */
    const uint64_t likely = parts->count > 0 ? PART_ROOM : open->part.bytes + expected;
    const uint64_t room = xci_max(needed, xci_min(likely, PART_ROOM));
    TRY(xci_blob_create(context_of(parts), room, &blob));
    if (parts->side != NULL)
        blob->side = xci_device_side_refer(parts->side);
    if (open->blob != NULL) {
        memcpy(blob->bytes, open->blob->bytes, open->part.bytes);
        move_records(parts, open->blob->bytes, blob->bytes);
        xci_blob_drop(open->blob);
    }
    open->blob = blob;
    parts->open_room = room;
    return XORCAST_OK;
}

static const xci_written *written_of(const xci_parts *parts, uint64_t group) {
    const xci_ahead *ahead = xci_shadow_ahead(parts->shadow, group);
    return ahead->record.block_count > 0 ? &ahead->written[parts->form] : NULL;
}

/* The same cuts as a delta writer makes of the records one by one. */
xorcast_status xci_parts_plan(xci_parts *parts, uint64_t end) {
    xci_planned_part *open = &parts->open;
    uint64_t expected = 0;
    for (uint64_t g = parts->next_group; g < end; g++)
        expected += written_of(parts, g) != NULL ? written_of(parts, g)->count : 0;
    for (; parts->next_group < end; parts->next_group++) {
        const xci_written *written = written_of(parts, parts->next_group);
        parts->places[parts->next_group] = NULL;
        if (written == NULL)
            continue;
        TRY(make_room(parts, written->count, expected));
        parts->places[parts->next_group] = open->blob->bytes + open->part.bytes;
        open->part.bytes += written->count;
        open->part.group_count++;
        open->payload_bytes += written->payload_bytes;
        expected -= written->count;
        if (open->part.bytes < XCI_PART_BYTES)
            continue;
        TRY(close_open(parts));
        parts->open_first = parts->next_group + 1;
    }
    return XORCAST_OK;
}

/* ---- Filling ---- */

static xorcast_status copy_run(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    xci_parts *parts = user;
    const uint64_t first = parts->copied + index * COPY_RUN;
    for (uint64_t g = first; g < xci_min(first + COPY_RUN, parts->next_group); g++)
        if (parts->places[g] != NULL)
            xci_ahead_copy(xci_shadow_ahead(parts->shadow, g), parts->form, parts->places[g]);
    return XORCAST_OK;
}

xorcast_status xci_parts_copy(xci_parts *parts) {
    TRY(xci_pool_run(context_of(parts)->shared->pool,
                     xci_divide_up(parts->next_group - parts->copied, COPY_RUN), copy_run, parts));
    parts->copied = parts->next_group;
    return XORCAST_OK;
}

void xci_parts_hash(xci_parts *parts, uint64_t index) {
    xci_planned_part *planned = &parts->planned[parts->hashed + index];
    planned->part.hash = xci_hash_of(planned->blob->bytes, planned->part.bytes);
}

static xorcast_status hash_item(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    xci_parts_hash(user, index);
    return XORCAST_OK;
}

xorcast_status xci_parts_write(xci_parts *parts, xci_delta_writer *writer) {
    if (parts->open.part.bytes > 0)
        TRY(close_open(parts));
    TRY(xci_parts_copy(parts));
    TRY(xci_pool_run(context_of(parts)->shared->pool, parts->count - parts->hashed, hash_item,
                     parts));
    parts->hashed = parts->count;
    for (uint64_t i = 0; i < parts->count; i++)
        TRY(xci_delta_writer_add_part(writer, parts->planned[i].blob, &parts->planned[i].part,
                                      parts->planned[i].payload_bytes));
    return XORCAST_OK;
}
