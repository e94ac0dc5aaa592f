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
    parts->open_room = parts->count = parts->hashed = 0;
    parts->copying = parts->runs = 0;
    parts->copied = parts->next_group = 0;
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
    const uint64_t first_bytes = parts->count > 0 ? parts->planned[0].part.bytes : 0;
    parts->likely_bytes = parts->count > 1 ? XCI_PART_ROOM : first_bytes + first_bytes / 8;
    drop_blobs(parts);
}

/* ---- Planning ---- */

/* The first group that part `index` may have. */
static uint64_t first_of(const xci_parts *parts, uint64_t index) {
    return index > 0 ? parts->planned[index - 1].end : 0;
}

static xorcast_status reserve_part(xci_parts *parts) {
    return xci_grow(context_of(parts), &parts->planned, &parts->capacity_bytes,
                    (parts->count + 1) * sizeof(xci_planned_part));
}

/* A place for it is reserved. */
static void close_open(xci_parts *parts) {
    parts->open.blob->size = parts->open.part.bytes;
    parts->open.to_copy += parts->open.end - first_of(parts, parts->count);
    parts->planned[parts->count++] = parts->open;
    parts->open = (xci_planned_part){0};
    parts->open_room = 0;
}

/* The open part's groups have moved to another blob. */
static void move_records(const xci_parts *parts, const uint8_t *from, uint8_t *to) {
    for (uint64_t g = first_of(parts, parts->count); g < parts->next_group; g++) {
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
    uint64_t likely = xci_max(open->part.bytes + expected, 2 * parts->open_room);
    likely = parts->count > 0 ? XCI_PART_ROOM : xci_max(likely, parts->likely_bytes);
    uint64_t room = xci_max(needed, xci_min(likely, XCI_PART_ROOM));
    if (xci_blob_create(context_of(parts), room, &blob) < 0) {
        room = needed; /* no version fails for what is only likely */
        TRY(xci_blob_create(context_of(parts), room, &blob));
    }
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

/* Gives the next group its place; cuts as a delta writer does that gets one record at a time. */
static xorcast_status plan_group(xci_parts *parts, uint64_t expected) {
    const xci_written *written = written_of(parts, parts->next_group);
    xci_planned_part *open = &parts->open;
    parts->places[parts->next_group] = NULL;
    if (written != NULL) {
        TRY(reserve_part(parts));
        TRY(make_room(parts, written->count, expected));
        parts->places[parts->next_group] = open->blob->bytes + open->part.bytes;
        open->part.bytes += written->count;
        open->part.group_count++;
        open->end = parts->next_group + 1;
        open->payload_bytes += written->payload_bytes;
        if (open->part.bytes >= XCI_PART_BYTES)
            close_open(parts);
    }
    parts->next_group++;
    return XORCAST_OK;
}

static uint64_t bytes_of(const xci_parts *parts, uint64_t group) {
    const xci_written *written = written_of(parts, group);
    return written != NULL ? written->count : 0;
}

xorcast_status xci_parts_plan(xci_parts *parts, uint64_t end) {
    uint64_t expected = 0;
    for (uint64_t g = parts->next_group; g < end; g++)
        expected += bytes_of(parts, g);
    while (parts->next_group < end) {
        const uint64_t bytes = bytes_of(parts, parts->next_group);
        TRY(plan_group(parts, expected));
        expected -= bytes;
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

static void hash_part(xci_planned_part *planned) {
    planned->part.hash = xci_hash_of(planned->blob->bytes, planned->part.bytes);
    planned->hashed = true;
}

void xci_parts_hash(xci_parts *parts, uint64_t index) {
    hash_part(&parts->planned[parts->hashed + index]);
}

/* ---- Following a loop ---- */

/* Groups of one part that have places, for one worker to copy. */
typedef struct copy_run {
    uint64_t part, first, end;
} copy_run;

/* Of a part, or of the one that is still open. */
static xci_planned_part *part_at(xci_parts *parts, uint64_t index) {
    return index < parts->count ? &parts->planned[index] : &parts->open;
}

/* Gives places to groups that are whole. What is being copied must stay where it is: an open part
 * that has to move waits until nobody copies. With the lock. */
static xorcast_status plan_whole(xci_parts *parts) {
    const uint64_t group_count = xci_shadow_bundle(parts->shadow)->layout.group_count;
    while (parts->next_group < group_count && parts->whole[parts->next_group]) {
        const uint64_t bytes = bytes_of(parts, parts->next_group);
        if (parts->runs > 0 && parts->open.blob != NULL &&
            parts->open.part.bytes + bytes > parts->open_room)
            return XORCAST_OK;
        TRY(plan_group(parts, bytes));
    }
    return XORCAST_OK;
}

/* The next run; false: there is none yet. With the lock. */
static bool take_run(xci_parts *parts, copy_run *run_out) {
    if (parts->copied == parts->next_group)
        return false;
    while (parts->copying < parts->count && parts->planned[parts->copying].end == parts->copied)
        parts->copying++;
    const uint64_t end =
        parts->copying < parts->count ? parts->planned[parts->copying].end : parts->next_group;
    *run_out = (copy_run){parts->copying, parts->copied, xci_min(parts->copied + COPY_RUN, end)};
    parts->copied = run_out->end;
    parts->runs++;
    return true;
}

/* Whoever copies the last of a part hashes it. */
static void work_run(xci_parts *parts, const copy_run *run) {
    copy_groups(parts, run->first, run->end);
    pthread_mutex_lock(&parts->lock);
    parts->runs--;
    xci_planned_part *part = part_at(parts, run->part);
    part->to_copy -= run->end - run->first;
    xci_planned_part whole = *part; /* others may move the list */
    const bool last = run->part < parts->count && part->to_copy == 0;
    pthread_mutex_unlock(&parts->lock);
    if (!last)
        return;
    hash_part(&whole);
    pthread_mutex_lock(&parts->lock);
    parts->planned[run->part] = whole;
    pthread_mutex_unlock(&parts->lock);
}

xorcast_status xci_parts_follow(xci_parts *parts, uint64_t group) {
    copy_run run;
    pthread_mutex_lock(&parts->lock);
    parts->whole[group] = 1;
    const xorcast_status status = plan_whole(parts);
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
        close_open(parts);
    TRY(xci_parts_copy(parts));
    while (parts->hashed < parts->count && parts->planned[parts->hashed].hashed)
        parts->hashed++;
    TRY(xci_pool_run(context_of(parts)->shared->pool, parts->count - parts->hashed, hash_item,
                     parts));
    parts->hashed = parts->count;
    for (uint64_t i = 0; i < parts->count; i++)
        TRY(xci_delta_writer_add_part(writer, parts->planned[i].blob, &parts->planned[i].part,
                                      parts->planned[i].payload_bytes));
    return XORCAST_OK;
}
