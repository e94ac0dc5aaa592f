/* Encoders of several devices: see device_encoders.h. */
#include "publish/device_encoders.h"

#include <string.h>

#include "bundle/shares.h"
#include "publish/device_book.h"
#include "publish/device_lists.h"
#include "publish/device_shadow.h"

#define KEPT_SHARE                                                                                 \
    16u /* of the weights, as much may be kept of a version's blocks on the devices */

struct xci_device_encoders {
    xorcast_context *context;
    xci_pending *pending;
    bool keep_blocks;
    xci_device_side *side;   /* where they stay until the next version; NULL: nowhere */
    void *stream, *ready;    /* the caller's, and an event behind what was on it when a put began */
    xci_device_lists *lists; /* one for each worker, where the host writes from lists; or NULL */
    uint32_t count;          /* of the encoders */
    xci_device_encoder *all[]; /* one for each share of the bundle */
};

static const xorcast_encoding *encoding_of(const xci_device_encoders *encoders) {
    return &encoders->pending->workers[0].writer.encoding;
}

static xorcast_status open_all(xci_device_encoders *encoders) {
    xorcast_context *context = encoders->context;
    void *memory;
    const xci_device *device = context->shared->device;
    const xci_device_encoder *const *siblings = (const xci_device_encoder *const *)encoders->all;
    XCI_DEVICE(context, "make an event", device->ops->event_open(device->handle, &encoders->ready));
    for (uint32_t s = 0; s < encoders->pending->bundle->share_count; s++) {
        TRY(xci_device_encoder_open(encoders->pending, s, siblings, &encoders->all[s]));
        encoders->count++;
    }
    if (encoding_of(encoders)->codec <= XORCAST_CODEC_LZ4)
        return XORCAST_OK;
    TRY(xci_allocate_array(context, xci_context_threads(context), sizeof *encoders->lists,
                           &memory));
    encoders->lists = memory;
    return XORCAST_OK;
}

xorcast_status xci_device_encoders_open(xci_pending *pending, void *stream, bool keep_blocks,
                                        xci_device_encoders **encoders_out) {
    xorcast_context *context = pending->bundle->context;
    const uint32_t count = pending->bundle->share_count;
    void *memory;
    TRY(xci_allocate_zeroed(
        context, sizeof(xci_device_encoders) + count * sizeof(xci_device_encoder *), &memory));
    xci_device_encoders *encoders = memory;
    encoders->context = context;
    encoders->pending = pending;
    encoders->stream = stream;
    encoders->keep_blocks = keep_blocks &&
                            xci_device_shadow_on_device(xci_shadow_device(pending->shadow)) &&
                            encoding_of(encoders)->codec <= XORCAST_CODEC_LZ4;
    const xorcast_status status = open_all(encoders);
    if (status < 0) {
        xci_device_encoders_close(encoders);
        return status;
    }
    *encoders_out = encoders;
    return XORCAST_OK;
}

void xci_device_encoders_close(xci_device_encoders *encoders) {
    if (encoders == NULL)
        return;
    for (uint32_t s = 0; s < encoders->count; s++)
        xci_device_encoder_close(encoders->all[s]);
    xci_device_side_close(encoders->side);
    for (uint32_t i = 0; encoders->lists != NULL && i < xci_context_threads(encoders->context); i++)
        xci_device_lists_close(encoders->context, &encoders->lists[i]);
    xci_release(encoders->context, encoders->lists);
    xci_event_close(encoders->context, &encoders->ready);
    xci_release(encoders->context, encoders);
}

static xorcast_status open_side(xci_device_encoders *encoders) {
    const xorcast_bundle *bundle = encoders->pending->bundle;
    xci_device_side *before = encoders->side;
    xorcast_context *contexts[XCI_SHARES_MAX];
    uint64_t limit = bundle->layout.total_bytes / KEPT_SHARE;
    for (uint32_t s = 0; s < encoders->count; s++) {
        contexts[s] = bundle->shares[s]->context;
        limit += xci_device_encoder_room(encoders->all[s]);
    }
    encoders->side = NULL; /* given away */
    return xci_device_side_open(contexts, encoders->count, bundle->layout.group_count, limit,
                                before, &encoders->side);
}

xorcast_status xci_device_encoders_begin(xci_device_encoders *encoders) {
    if (encoders->keep_blocks)
        TRY(open_side(encoders));
    encoders->pending->parts[XCI_FORM_PLAIN].side = encoders->side;
    for (uint32_t s = 0; s < encoders->count; s++)
        xci_device_encoder_begin(encoders->all[s], encoders->side);
    return XORCAST_OK;
}

/* ---- Tensors ---- */

static xorcast_status check_place(xci_device_encoders *encoders, xci_device_stretch *known,
                                  uint64_t t, const void *data) {
    const xorcast_bundle *bundle = encoders->pending->bundle;
    const xci_place place = {t, XORCAST_NO_INDEX, 0};
    bool several;
    const uint32_t s = xci_share_of(bundle, t, &several);
    const int32_t wanted = bundle->shares[s]->context->shared->device->ordinal;
    int32_t ordinal;
    TRY(xci_device_owner(encoders->context, known, data, &ordinal));
    if (several)
        FAIL_AT(encoders->context, XORCAST_BAD_ARGUMENT, place,
                "tensor %s lies on several devices: it is put from there, with data NULL",
                bundle->tensors[t].name);
    if (ordinal != wanted)
        FAIL_AT(encoders->context, XORCAST_BAD_ARGUMENT, place,
                "the new bytes of tensor %s do not lie in memory of device %d, where the bundle's "
                "tensor does",
                bundle->tensors[t].name, wanted);
    return XORCAST_OK;
}

xorcast_status xci_device_encoders_check(xci_device_encoders *encoders, uint64_t count,
                                         const uint64_t *indices, const void *const *data) {
    const xorcast_bundle *bundle = encoders->pending->bundle;
    xci_device_stretch known = {0};
    for (uint64_t i = 0; i < count && data != NULL; i++) {
        const uint64_t t = indices != NULL ? indices[i] : i;
        if (t < bundle->tensor_count && bundle->tensors[t].bytes > 0 && data[i] != NULL)
            TRY(check_place(encoders, &known, t, data[i]));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_encoders_take(xci_device_encoders *encoders, uint64_t tensor,
                                        const void *data, bool kept) {
    const xorcast_bundle *bundle = encoders->pending->bundle;
    for (uint32_t s = 0; s < encoders->count; s++)
        if (bundle->shares[s]->tensors[tensor].region_count > 0)
            TRY(xci_device_encoder_take(encoders->all[s], tensor, data, kept));
    return XORCAST_OK;
}

xorcast_status xci_device_encoders_take_all(xci_device_encoders *encoders) {
    for (uint32_t s = 0; s < encoders->count; s++)
        TRY(xci_device_encoder_take_all(encoders->all[s]));
    return XORCAST_OK;
}

/* ---- Ranges by their homes ---- */

/* Where the chunks that have the home of a range's chunk `first`, and follow it there, end. */
static uint64_t home_end(const xorcast_bundle *bundle, uint64_t first, uint64_t end) {
    const uint32_t home = xci_home(bundle, first);
    uint64_t at = first + 1;
    if (xci_home(bundle, end - 1) == home &&
        xci_local(bundle, end - 1) - xci_local(bundle, first) == end - 1 - first)
        return end; /* all of them, as almost always */
    while (at < end && xci_home(bundle, at) == home)
        at++;
    return at;
}

static uint64_t count_homes(const xorcast_bundle *bundle, const xci_put_range *range) {
    uint64_t count = 0;
    for (uint64_t at = range->first; at < range->end; count++)
        at = home_end(bundle, at, range->end);
    return count;
}

/* Adds what is at home in share `s` to a list; returns how many there are now. */
static uint64_t add_homes(const xorcast_bundle *bundle, const xci_put_range *range, uint32_t s,
                          xci_put_range *list, uint64_t count) {
    for (uint64_t at = range->first, end; at < range->end; at = end) {
        end = home_end(bundle, at, range->end);
        if (xci_home(bundle, at) == s)
            list[count++] = (xci_put_range){range->group, at, end};
    }
    return count;
}

/* The ranges of each share, one share behind the other. */
typedef struct home_ranges {
    xci_put_range *list;
    uint64_t end[XCI_SHARES_MAX];
} home_ranges;

static xorcast_status sort_ranges(const xorcast_bundle *bundle, const xci_put_range *ranges,
                                  uint64_t count, home_ranges *sorted) {
    uint64_t pieces = 0, used = 0;
    void *memory;
    for (uint64_t i = 0; i < count; i++)
        pieces += count_homes(bundle, &ranges[i]);
    TRY(xci_allocate_array(bundle->context, pieces, sizeof *sorted->list, &memory));
    sorted->list = memory;
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        for (uint64_t i = 0; i < count; i++)
            used = add_homes(bundle, &ranges[i], s, sorted->list, used);
        sorted->end[s] = used;
    }
    return XORCAST_OK;
}

/* ---- A put ---- */

/* An event behind what is on the caller's stream now. */
static xorcast_status mark_stream(const xci_device_encoders *encoders) {
    const xci_device *device = encoders->context->shared->device;
    TRY(xci_stream_need_free(encoders->context, encoders->stream));
    return xci_device_result(
        encoders->context,
        device->ops->event_record(device->handle, encoders->ready, encoders->stream),
        "mark a stream");
}

static xorcast_status start_all(xci_device_encoders *encoders, const home_ranges *sorted,
                                bool all) {
    uint64_t first = 0;
    TRY(mark_stream(encoders));
    for (uint32_t s = 0; s < encoders->count; first = sorted->end[s++])
        TRY(xci_device_encoder_start(encoders->all[s], encoders->ready, sorted->list, first,
                                     sorted->end[s], all));
    return XORCAST_OK;
}

static xorcast_status launch_all(const xci_device_encoders *encoders) {
    for (uint32_t s = 0; s < encoders->count; s++)
        TRY(xci_device_encoder_launch(encoders->all[s]));
    return XORCAST_OK;
}

/* All devices have work, and copies are under way, while the host books what each of them has done
 * before: a piece of each at a time, which is as many loops of the pool as for one of them, and
 * groups that take turns on the devices are whole then. */
static xorcast_status run_pieces(xci_device_encoders *encoders) {
    xci_device_encoder *busy[XCI_SHARES_MAX];
    for (;;) {
        uint32_t count = 0;
        TRY(launch_all(encoders));
        for (uint32_t s = 0; s < encoders->count; s++)
            if (xci_device_encoder_busy(encoders->all[s]))
                busy[count++] = encoders->all[s];
        if (count == 0)
            return XORCAST_OK;
        for (uint32_t i = 0; i < count; i++)
            TRY(xci_device_encoder_await(busy[i]));
        TRY(xci_device_book(encoders->pending, busy, count));
    }
}

static xorcast_status run_sorted(xci_device_encoders *encoders, const home_ranges *sorted,
                                 bool all) {
    xci_shadow *shadow = encoders->pending->shadow;
    xci_shadow_lock_all(shadow);
    xorcast_status status = start_all(encoders, sorted, all);
    if (status == XORCAST_OK)
        status = run_pieces(encoders);
    for (uint32_t s = 0; s < encoders->count; s++) {
        const xorcast_status rested = xci_device_encoder_rest(encoders->all[s], status < 0);
        status = status < 0 ? status : rested;
    }
    xci_shadow_unlock_all(shadow);
    return status;
}

xorcast_status xci_device_encoders_run(xci_device_encoders *encoders, const xci_put_range *ranges,
                                       uint64_t first, uint64_t end, bool all) {
    home_ranges sorted;
    if (first < end)
        ranges += first;
    TRY(sort_ranges(encoders->pending->bundle, ranges, end - first, &sorted));
    const xorcast_status status = run_sorted(encoders, &sorted, all);
    xci_release(encoders->context, sorted.list);
    return status;
}

/* ---- For groups that the host writes ---- */

xorcast_status xci_device_encoders_list(xci_device_encoders *encoders, uint32_t worker,
                                        const xci_record *record, bool joined,
                                        xci_record *listed_out, const uint8_t *const **old_out) {
    const xci_pending *pending = encoders->pending;
    xci_local_span unmoved[XCI_SHARES_MAX];
    *old_out = NULL;
    *listed_out = *record;
    if (encoders->lists == NULL || record->encoded)
        return XORCAST_OK;
    TRY(xci_device_lists_make(&encoders->lists[worker], encoders->context, record, listed_out));
    if (encoding_of(encoders)->old_weights == 0)
        return XORCAST_OK;
    for (uint32_t s = 0; s < encoders->count; s++)
        unmoved[s] = xci_device_unmoved(encoders->all[s], joined);
    return xci_device_lists_old(&encoders->lists[worker], encoders->context, pending->bundle,
                                xci_shadow_device(pending->shadow), listed_out, unmoved, old_out);
}

xorcast_status xci_device_encoders_beside(xci_device_encoders *encoders, uint32_t worker,
                                          const xci_record *plain, xci_record *beside_out) {
    const xorcast_bundle *bundle = encoders->pending->bundle;
    const uint32_t home = xci_home(bundle, bundle->group_first[plain->group]);
    xci_device_lists *lists = &encoders->lists[worker];
    TRY(xci_grow(encoders->context, &lists->blocks, &lists->blocks_capacity,
                 plain->block_count * sizeof(xci_block)));
    memcpy(lists->blocks, plain->blocks, plain->block_count * sizeof *plain->blocks);
    *beside_out = *plain;
    beside_out->blocks = lists->blocks;
    xci_device_take_beside(encoders->all[home], beside_out);
    return XORCAST_OK;
}
