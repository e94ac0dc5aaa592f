/* Shadows of device weights: see device_shadow.h. */
#include "publish/device_shadow.h"

#include <string.h>

#include "base/digest.h"
#include "delta/device_load.h"
#include "delta/device_scan.h"
#include "publish/device_join.h"
#include "publish/shadow_share.h"

typedef struct shadow_home {
    xci_shadow_share share;
    xci_device_loader loader; /* on the device: takes back */
} shadow_home;

struct xci_device_shadow {
    xorcast_context *context;
    xorcast_bundle *twin, *bundle;
    bool in_host;
    xci_device_memory pinned; /* of the weights, if they lie in host memory */
    shadow_home *homes;       /* one for each share of the bundle */
    atomic_bool lost;
};

static xorcast_status place(xci_device_shadow *shadow) {
    xorcast_context *context = shadow->context;
    if (shadow->in_host) {
        TRY(xci_pinned_allocate(context, xci_twin_bytes(shadow->twin, false), &shadow->pinned));
        xci_twin_place(shadow->twin, false, shadow->pinned.at);
    }
    shadow->twin->on_device = !shadow->in_host;
    for (uint32_t s = 0; s < shadow->bundle->share_count; s++) {
        shadow_home *home = &shadow->homes[s];
        TRY(xci_shadow_share_open(&home->share, shadow->bundle, shadow->twin, s, shadow->in_host));
        if (!shadow->in_host)
            TRY(xci_device_loader_open(&home->loader, home->share.part, home->share.map,
                                       XCI_LOAD_APPLY_OWN, NULL));
    }
    return XORCAST_OK;
}

/* ---- The first version ---- */

/* Chunks that lie in one piece at home, [first, end): from their place in the bundle to their place
 * in the shadow. */
static xorcast_status copy_run(xci_device_shadow *shadow, uint32_t s, uint64_t first,
                               uint64_t end) {
    const xorcast_bundle *share = shadow->bundle->shares[s];
    const xci_device *device = share->context->shared->device;
    const xci_cuda_copy_call call = {share->map->grid, share->map->places, first, end - first,
                                     shadow->homes[s].share.map->places.direct + first};
    return xci_device_result(share->context, device->ops->gather(device->handle, &call, NULL),
                             "copy weights");
}

/* Where chunks end whose places in the shadow follow chunk `first` there without a gap. */
static uint64_t run_end(const xci_device_shadow *shadow, uint32_t s, uint64_t first, uint64_t end) {
    uint8_t *const *direct = shadow->homes[s].share.map->direct;
    uint64_t c = first + 1;
    while (c < end && direct[c] == direct[c - 1] + (UINT64_C(1) << shadow->bundle->chunk_log2))
        c++;
    return c;
}

/* Joined chunks, as many as the bounce buffer takes at most. */
static xorcast_status copy_joined(xci_device_shadow *shadow, xci_device_join *join, uint32_t s,
                                  uint64_t first, uint64_t end, const xci_join_source *sources) {
    xorcast_context *context = join->home->context;
    const xci_device *device = context->shared->device;
    const xci_join_lot lot = {0, first};
    TRY(xci_device_join_reserve(join));
    TRY(xci_device_join_run(join, &lot, first, end - first, sources));
    for (uint64_t c = first, next; c < end; c = next) {
        next = run_end(shadow, s, c, end);
        const uint64_t bytes = ((next - 1 - c) << shadow->bundle->chunk_log2) +
                               xci_bundle_chunk_bytes(shadow->bundle, next - 1);
        XCI_DEVICE(context, "copy weights",
                   device->ops->copy(device->handle, shadow->homes[s].share.map->direct[c],
                                     xci_device_join_place(join, &lot, c), bytes, NULL));
    }
    return xci_device_result(context, device->ops->stream_wait(device->handle, NULL),
                             "copy weights");
}

static xorcast_status copy_home(xci_device_shadow *shadow, xci_device_join *join, uint32_t s,
                                const xci_join_source *sources) {
    const xorcast_bundle *bundle = shadow->bundle;
    const uint64_t chunk_count = bundle->layout.chunk_count;
    for (uint64_t c = 0, end; c < chunk_count; c = end) {
        end = c + 1;
        if (xci_home(bundle, c) != s)
            continue;
        const bool joined = xci_joined(bundle, c);
        const uint64_t limit = joined ? xci_min(c + join->most_chunks, chunk_count) : chunk_count;
        while (end < limit && xci_home(bundle, end) == s && xci_joined(bundle, end) == joined)
            end++;
        TRY(joined ? copy_joined(shadow, join, s, c, end, sources) : copy_run(shadow, s, c, end));
    }
    return XORCAST_OK;
}

static xorcast_status copy_all(xci_device_shadow *shadow) {
    const xorcast_bundle *bundle = shadow->bundle;
    const xci_join_source sources[XCI_SHARES_MAX] = {{0}}; /* on the default streams */
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        xci_device_join join;
        xorcast_status status = xci_device_join_open(&join, shadow->bundle, s);
        if (status == XORCAST_OK)
            status = copy_home(shadow, &join, s, sources);
        xci_device_join_close(&join);
        TRY(status);
    }
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        const xci_device *device = bundle->shares[s]->context->shared->device;
        XCI_DEVICE(bundle->shares[s]->context, "copy weights",
                   device->ops->stream_wait(device->handle, NULL));
    }
    return XORCAST_OK;
}

typedef struct group_sums {
    const uint64_t *group_first;
    xorcast_digest *const *digests;
    uint64_t group; /* of the chunk that was taken last */
} group_sums;

static xorcast_status take_digests(void *user, uint64_t first, uint64_t count,
                                   const xorcast_digest *digests) {
    group_sums *sums = user;
    for (uint64_t i = 0; i < count; i++) {
        while (sums->group_first[sums->group + 1] <= first + i)
            sums->group++;
        xci_digest_merge(sums->digests[sums->group], &digests[i]);
    }
    return XORCAST_OK;
}

static xorcast_status digest_home(xci_device_shadow *shadow, const xci_shadow_share *share,
                                  xorcast_digest *const *group_digests) {
    const uint64_t chunk_count = shadow->twin->layout.chunk_count;
    group_sums sums = {shadow->twin->group_first, group_digests, 0};
    xci_device_scanner scanner;
    TRY(xci_device_scanner_open(&scanner, share->context, chunk_count));
    const xorcast_status status =
        xci_device_scan(&scanner, share->map, 0, chunk_count, XCI_FOREVER, take_digests, &sums);
    xci_device_scanner_close(&scanner);
    return status;
}

/* In host memory any of the devices reads all chunks; on devices each those that are there. */
static xorcast_status digest_all(xci_device_shadow *shadow, xorcast_digest *const *group_digests) {
    const uint32_t count = shadow->in_host ? 1 : shadow->bundle->share_count;
    for (uint32_t s = 0; s < count; s++)
        TRY(digest_home(shadow, &shadow->homes[s].share, group_digests));
    return XORCAST_OK;
}

xorcast_status xci_device_shadow_open(xorcast_bundle *twin, xorcast_bundle *bundle, bool in_host,
                                      xorcast_digest *const *group_digests,
                                      xci_device_shadow **shadow_out) {
    void *memory;
    TRY(xci_allocate_zeroed(twin->context, sizeof(xci_device_shadow), &memory));
    xci_device_shadow *shadow = memory;
    shadow->context = twin->context;
    shadow->twin = twin;
    shadow->bundle = bundle;
    shadow->in_host = in_host;
    atomic_init(&shadow->lost, false);
    xorcast_status status =
        xci_allocate_array(twin->context, bundle->share_count, sizeof(shadow_home), &memory);
    if (status == XORCAST_OK) {
        shadow->homes = memory;
        status = place(shadow);
    }
    if (status == XORCAST_OK)
        status = copy_all(shadow);
    if (status == XORCAST_OK)
        status = digest_all(shadow, group_digests);
    if (status < 0) {
        xci_device_shadow_close(shadow);
        return status;
    }
    *shadow_out = shadow;
    return XORCAST_OK;
}

void xci_device_shadow_close(xci_device_shadow *shadow) {
    if (shadow == NULL)
        return;
    for (uint32_t s = 0; shadow->homes != NULL && s < shadow->bundle->share_count; s++) {
        xci_device_loader_close(&shadow->homes[s].loader);
        xci_shadow_share_close(&shadow->homes[s].share);
    }
    xci_pinned_release(shadow->context, &shadow->pinned);
    xci_release(shadow->context, shadow->homes);
    xci_release(shadow->context, shadow);
}

bool xci_device_shadow_on_device(const xci_device_shadow *shadow) {
    return !shadow->in_host;
}

const xci_device_map *xci_device_shadow_map(const xci_device_shadow *shadow, uint32_t share) {
    return shadow->homes[share].share.map;
}

const xci_device_map *xci_device_shadow_home(const xci_device_shadow *shadow, uint32_t share) {
    return shadow->homes[share].share.home;
}

xorcast_status xci_device_shadow_read(xci_device_shadow *shadow, xorcast_context *context,
                                      uint64_t chunk, uint32_t bytes, uint8_t *out) {
    const xci_shadow_share *share = &shadow->homes[xci_home(shadow->bundle, chunk)].share;
    const xci_device *device = share->context->shared->device;
    if (shadow->in_host) {
        memcpy(out, share->map->direct[chunk], bytes);
        return XORCAST_OK;
    }
    TRY(xci_device_shadow_check(shadow, context));
    return xci_device_result(
        context, device->ops->copy_now(device->handle, out, share->map->direct[chunk], bytes),
        "copy a group to the host");
}

/* ---- Back ---- */

static bool has_home(const xorcast_bundle *bundle, const xci_record *record, uint32_t s) {
    const uint64_t first = bundle->group_first[record->group];
    for (uint32_t i = 0; i < record->block_count; i++)
        if (xci_home(bundle, first + record->blocks[i].chunk) == s)
            return true;
    return false;
}

/* Each share takes the blocks of its own chunks. */
xorcast_status xci_device_shadow_undo_record(xci_device_shadow *shadow, const xci_record *record) {
    for (uint32_t s = 0; s < shadow->bundle->share_count; s++)
        if (has_home(shadow->bundle, record, s))
            TRY(xci_device_load(&shadow->homes[s].loader, record, 1, NULL));
    return XORCAST_OK;
}

xorcast_status xci_device_shadow_undo(xci_device_shadow *shadow, const xci_ahead *ahead,
                                      uint64_t group) {
    if (ahead->record.block_count > 0)
        TRY(xci_device_shadow_undo_record(shadow, &ahead->record));
    for (const xci_ahead_piece *piece = ahead->pieces; piece != NULL; piece = piece->next) {
        const xci_record record = xci_ahead_record(piece, group);
        TRY(xci_device_shadow_undo_record(shadow, &record));
    }
    return XORCAST_OK;
}

xorcast_status xci_device_shadow_undone(xci_device_shadow *shadow) {
    xorcast_status status = XORCAST_OK;
    for (uint32_t s = 0; s < shadow->bundle->share_count; s++) {
        const xorcast_status one = xci_device_load_end(&shadow->homes[s].loader);
        if (one < 0)
            xci_device_load_drop(&shadow->homes[s].loader);
        status = status < 0 ? status : one;
    }
    return status;
}

void xci_device_shadow_lose(xci_device_shadow *shadow) {
    atomic_store(&shadow->lost, true);
}

xorcast_status xci_device_shadow_check(xci_device_shadow *shadow, xorcast_context *context) {
    if (atomic_load(&shadow->lost))
        FAIL(context, XORCAST_DEVICE_FAILED,
             "the device failed while this publisher's shadow moved; open another publisher");
    return XORCAST_OK;
}
