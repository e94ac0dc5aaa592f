/* Parts: see parts.h. */
#include "publish/parts.h"

#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"

#define COPY_RUN UINT64_C(4) /* groups that one worker copies at a time */

static xorcast_context *context_of(const xci_parts *parts) {
    return xci_shadow_bundle(parts->shadow)->context;
}

xorcast_status xci_parts_open(xci_parts *parts, xci_shadow *shadow, xci_form form,
                              xci_buffers *buffers) {
    const uint64_t group_count = xci_shadow_bundle(shadow)->layout.group_count;
    void *memory;
    *parts = (xci_parts){.shadow = shadow, .form = form, .buffers = buffers};
    pthread_mutex_init(&parts->lock, NULL);
    TRY(xci_allocate_array(context_of(parts), group_count, sizeof *parts->places, &memory));
    parts->places = memory;
    TRY(xci_allocate_array(context_of(parts), group_count, sizeof *parts->whole, &memory));
    parts->whole = memory;
    return XORCAST_OK;
}

static void drop_blobs(xci_parts *parts) {
    for (uint64_t i = 0; i < parts->count; i++)
        xci_blob_drop(parts->planned[i].blob);
    xci_blob_drop(parts->open.blob);
    parts->open = (xci_planned_part){0};
    parts->open_room = parts->open_first = parts->count = parts->hashed = 0;
    parts->copying = 0;
    parts->copied = parts->next_group = parts->whole_end = parts->whole_bytes = 0;
    if (parts->whole != NULL)
        memset(parts->whole, 0, xci_shadow_bundle(parts->shadow)->layout.group_count);
}

void xci_parts_close(xci_parts *parts) {
    if (parts->shadow == NULL)
        return;
    drop_blobs(parts);
    xci_release(context_of(parts), parts->planned);
    xci_release(context_of(parts), parts->places);
    xci_release(context_of(parts), parts->whole);
    pthread_mutex_destroy(&parts->lock);
    *parts = (xci_parts){0};
}

void xci_parts_reset(xci_parts *parts) {
    if (parts->shadow == NULL)
        return;
    drop_blobs(parts);
}

/* ---- Planning ---- */

static xorcast_status close_open(xci_parts *parts) {
    TRY(xci_grow(context_of(parts), &parts->planned, &parts->capacity_bytes,
                 (parts->count + 1) * sizeof(xci_planned_part)));
    const uint64_t first = parts->count > 0 ? parts->planned[parts->count - 1].end : 0;
    parts->open.blob->size = parts->open.part.bytes;
    parts->open.to_copy = parts->open.end - first;
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
        if (g < parts->copied) {
            xci_shadow_lock(parts->shadow, g);
            xci_ahead_moved(xci_shadow_ahead(parts->shadow, g), parts->form, place);
            xci_shadow_unlock(parts->shadow, g);
        }
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
    /* Parts of a version that fills some have room for as much, the last one too: more may come
     * than is known, and memory of one size is soon used again. */
    const uint64_t likely = parts->count > 0 ? XCI_PART_ROOM : open->part.bytes + expected;
    const uint64_t room = xci_max(needed, xci_min(likely, XCI_PART_ROOM));
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
        open->end = parts->next_group + 1;
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

static void copy_groups(xci_parts *parts, uint64_t first, uint64_t end) {
    for (uint64_t g = first; g < end; g++) {
        if (parts->places[g] == NULL)
            continue;
        xci_shadow_lock(parts->shadow, g);
        xci_ahead_copy(xci_shadow_ahead(parts->shadow, g), parts->form, parts->places[g],
                       parts->buffers);
        xci_shadow_unlock(parts->shadow, g);
    }
}

static xorcast_status copy_item(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    xci_parts *parts = user;
    const uint64_t first = parts->copied + index * COPY_RUN;
    copy_groups(parts, first, xci_min(first + COPY_RUN, parts->next_group));
    return XORCAST_OK;
}

xorcast_status xci_parts_copy(xci_parts *parts) {
    TRY(xci_pool_run(context_of(parts)->shared->pool,
                     xci_divide_up(parts->next_group - parts->copied, COPY_RUN), copy_item, parts));
    parts->copied = parts->next_group;
    return XORCAST_OK;
}

static xci_hash hash_of(const xci_planned_part *planned) {
    return xci_hash_of(planned->blob->bytes, planned->part.bytes);
}

void xci_parts_hash(xci_parts *parts, uint64_t index) {
    xci_planned_part *planned = &parts->planned[parts->hashed + index];
    planned->part.hash = hash_of(planned);
}

/* ---- Following a loop ---- */

/* Groups of a part that is planned, for one worker to copy. */
typedef struct copy_run {
    uint64_t part, first, end;
} copy_run;

/* The next of them; false: there are none yet. With the lock. */
static bool take_run(xci_parts *parts, copy_run *run_out) {
    if (parts->count == 0 || parts->copied == parts->planned[parts->count - 1].end)
        return false;
    while (parts->planned[parts->copying].end == parts->copied)
        parts->copying++;
    const uint64_t end = parts->planned[parts->copying].end;
    *run_out = (copy_run){parts->copying, parts->copied, xci_min(parts->copied + COPY_RUN, end)};
    parts->copied = run_out->end;
    return true;
}

/* Whoever copies the last of a part hashes it. */
static void work_run(xci_parts *parts, const copy_run *run) {
    copy_groups(parts, run->first, run->end);
    pthread_mutex_lock(&parts->lock);
    xci_planned_part *planned = &parts->planned[run->part];
    planned->to_copy -= run->end - run->first;
    const xci_planned_part whole = *planned; /* others may move the list */
    pthread_mutex_unlock(&parts->lock);
    if (whole.to_copy > 0)
        return;
    const xci_hash hash = hash_of(&whole);
    pthread_mutex_lock(&parts->lock);
    parts->planned[run->part].part.hash = hash;
    pthread_mutex_unlock(&parts->lock);
}

/* Plans parts that whole groups fill: nothing of them is open, or would move. With the lock. */
static xorcast_status plan_full(xci_parts *parts) {
    const uint64_t group_count = xci_shadow_bundle(parts->shadow)->layout.group_count;
    while (parts->whole_end < group_count && parts->whole[parts->whole_end]) {
        const xci_written *written = written_of(parts, parts->whole_end++);
        parts->whole_bytes += written != NULL ? written->count : 0;
        if (parts->whole_bytes < XCI_PART_BYTES)
            continue;
        TRY(xci_parts_plan(parts, parts->whole_end));
        parts->whole_bytes = 0;
    }
    return XORCAST_OK;
}

xorcast_status xci_parts_follow(xci_parts *parts, uint64_t group) {
    copy_run run;
    pthread_mutex_lock(&parts->lock);
    parts->whole[group] = 1;
    const xorcast_status status = plan_full(parts);
    const bool taken = status == XORCAST_OK && take_run(parts, &run);
    pthread_mutex_unlock(&parts->lock);
    if (taken)
        work_run(parts, &run);
    return status;
}

void xci_parts_catch_up(xci_parts *parts) {
    for (;;) {
        copy_run run;
        pthread_mutex_lock(&parts->lock);
        const bool taken = take_run(parts, &run);
        pthread_mutex_unlock(&parts->lock);
        if (!taken)
            return;
        work_run(parts, &run);
    }
}

/* ---- Handing over ---- */

static xorcast_status hash_item(void *user, uint64_t index, uint32_t worker) {
    (void)worker;
    xci_parts_hash(user, index);
    return XORCAST_OK;
}

xorcast_status xci_parts_write(xci_parts *parts, xci_delta_writer *writer) {
    if (parts->open.part.bytes > 0)
        TRY(close_open(parts));
    TRY(xci_parts_copy(parts));
    while (parts->hashed < parts->count && parts->planned[parts->hashed].to_copy == 0)
        parts->hashed++;
    TRY(xci_pool_run(context_of(parts)->shared->pool, parts->count - parts->hashed, hash_item,
                     parts));
    parts->hashed = parts->count;
    for (uint64_t i = 0; i < parts->count; i++)
        TRY(xci_delta_writer_add_part(writer, parts->planned[i].blob, &parts->planned[i].part,
                                      parts->planned[i].payload_bytes));
    return XORCAST_OK;
}
