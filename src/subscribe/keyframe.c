/* Keyframes: see keyframe.h.
 *
 *     digests of all groups -> groups that differ, each with the step it is of -> the deltas since
 *     the oldest of these steps, applied to each group from its own step on -> one digest over all
 *
 * The publisher's shadow moves meanwhile, so groups come from different versions; if the log has
 * dropped a delta that an old one needs, another round compares again and fetches what differs. */
#include "subscribe/keyframe.h"

#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/pool.h"
#include "delta/group_apply.h"
#include "frame/delta_reader.h"
#include "subscribe/chain.h"
#include "subscribe/device_keyframe.h"

#define ROUNDS_MAX 32u /* only groups that still differ are fetched again: each is shorter */

/* Deltas of versions that appeared meanwhile may together be as large as the weights, or as this;
 * beyond that, fetching the groups again is cheaper. It bounds what their manifests take. */
#define CHAIN_BYTES_LEAST (UINT64_C(256) << 20)

typedef struct keyframe {
    xorcast_bundle *bundle;
    xci_feed *feed;
    xorcast_digest *chunk_digests;
    xci_apply_worker *workers;   /* of weights in host memory */
    xci_device_keyframe *devices; /* of weights in device memory: one for each share */
    uint32_t device_count;
    uint64_t *steps;  /* of each group */
    uint64_t *wanted; /* groups to fetch */
    uint64_t wanted_count, deadline_ns, fetched_bytes;
    /* What the publisher's digests of this round add up to, and the step they are all of; NO_STEP
     * if they are of several. */
    xorcast_digest their_sum;
    uint64_t their_step;
    const xci_part_records *records;
    uint64_t delta_step;
} keyframe;

/* ---- Which groups ---- */

static bool holds_group(const xorcast_bundle *bundle, uint64_t group) {
    for (uint64_t c = bundle->group_first[group]; c < bundle->group_first[group + 1]; c++)
        if (xci_bundle_holds(bundle, c))
            return true;
    return false;
}

static uint64_t range_count(const keyframe *k, uint64_t index) {
    return xci_min(XCI_DIGEST_GROUPS_MAX,
                   k->bundle->layout.group_count - index * XCI_DIGEST_GROUPS_MAX);
}

static void digests_name(void *user, uint64_t index, char name[XCI_OBJECT_NAME_BYTES]) {
    xci_name_digests(index * XCI_DIGEST_GROUPS_MAX, range_count(user, index), name);
}

static uint64_t digests_limit(void *user, uint64_t index) {
    return range_count(user, index) * XCI_DIGEST_ENTRY_BYTES;
}

static bool group_is_right(const keyframe *k, uint64_t group, const uint8_t *entry) {
    xorcast_digest sum = {{0, 0}};
    if (!k->bundle->complete)
        return false; /* the publisher's digest counts words that are not here */
    for (uint64_t c = k->bundle->group_first[group]; c < k->bundle->group_first[group + 1]; c++)
        xci_digest_merge(&sum, &k->chunk_digests[c]);
    return sum.lane[0] == xci_load64(entry + 8) && sum.lane[1] == xci_load64(entry + 16);
}

static xorcast_status take_digests(void *user, uint64_t index, xci_blob *blob) {
    keyframe *k = user;
    const uint64_t first = index * XCI_DIGEST_GROUPS_MAX, count = range_count(k, index);
    if (blob->size != count * XCI_DIGEST_ENTRY_BYTES)
        FAIL(k->bundle->context, XORCAST_DATA_CORRUPT,
             "the publisher sent %llu bytes of digests for %llu groups",
             (unsigned long long)blob->size, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = blob->bytes + i * XCI_DIGEST_ENTRY_BYTES;
        const xorcast_digest theirs = {{xci_load64(entry + 8), xci_load64(entry + 16)}};
        if (first + i == 0)
            k->their_step = xci_load64(entry);
        else if (k->their_step != xci_load64(entry))
            k->their_step = XORCAST_NO_STEP;
        xci_digest_merge(&k->their_sum, &theirs);
        k->steps[first + i] =
            holds_group(k->bundle, first + i) ? xci_load64(entry) : XORCAST_NO_STEP;
        if (k->steps[first + i] != XORCAST_NO_STEP && !group_is_right(k, first + i, entry))
            k->wanted[k->wanted_count++] = first + i;
    }
    return XORCAST_OK;
}

static xorcast_status compare_digests(keyframe *k) {
    const uint64_t ranges = xci_divide_up(k->bundle->layout.group_count, XCI_DIGEST_GROUPS_MAX);
    const xci_series series = {ranges, digests_name, digests_limit, take_digests, k};
    k->wanted_count = 0;
    k->their_sum = (xorcast_digest){{0, 0}};
    k->their_step = XORCAST_NO_STEP;
    return xci_feed_get_series(k->feed, &series, k->deadline_ns);
}

/* ---- Fetching them ---- */

static void group_name(void *user, uint64_t index, char name[XCI_OBJECT_NAME_BYTES]) {
    const keyframe *k = user;
    xci_name_group(k->wanted[index], name);
}

static uint64_t group_limit(void *user, uint64_t index) {
    const keyframe *k = user;
    return 8 + xci_bundle_group_size(k->bundle, k->wanted[index]);
}

typedef struct fresh_group {
    keyframe *k;
    uint64_t first_chunk;
    const uint8_t *bytes;
} fresh_group;

static xorcast_status write_group(keyframe *k, uint64_t group, const uint8_t *bytes) {
    xci_apply_worker *worker = &k->workers[0];
    for (uint64_t c = k->bundle->group_first[group]; c < k->bundle->group_first[group + 1]; c++) {
        xci_chunk chunk;
        xci_bundle_chunk_places(k->bundle, c, &chunk);
        if (xci_bundle_holds(k->bundle, c)) {
            xci_chunk_write(k->bundle, &chunk, bytes);
            TRY(xci_chunk_digest(k->bundle, c, worker->weights, worker->segments,
                                 &k->chunk_digests[c]));
        }
        bytes += chunk.bytes;
    }
    return XORCAST_OK;
}

/* Each device writes what it holds of the group, and adds its digests. */
static xorcast_status write_on_devices(keyframe *k, uint64_t group, const uint8_t *bytes) {
    const uint64_t first = k->bundle->group_first[group];
    memset(&k->chunk_digests[first], 0,
           (k->bundle->group_first[group + 1] - first) * sizeof *k->chunk_digests);
    for (uint32_t s = 0; s < k->device_count; s++)
        if (holds_group(k->bundle->shares[s], group))
            TRY(xci_device_keyframe_write(&k->devices[s], group, bytes));
    return XORCAST_OK;
}

static xorcast_status take_group(void *user, uint64_t index, xci_blob *blob) {
    keyframe *k = user;
    const uint64_t group = k->wanted[index];
    if (blob->size != group_limit(k, index))
        FAIL(k->bundle->context, XORCAST_DATA_TRUNCATED,
             "the publisher sent %llu bytes for group %llu; fetch the keyframe again",
             (unsigned long long)blob->size, (unsigned long long)group);
    k->steps[group] = xci_load64(blob->bytes);
    k->fetched_bytes += blob->size;
    if (k->devices != NULL)
        return write_on_devices(k, group, blob->bytes + 8);
    return write_group(k, group, blob->bytes + 8);
}

static xorcast_status fetch_groups(keyframe *k) {
    const xci_series series = {k->wanted_count, group_name, group_limit, take_group, k};
    return xci_feed_get_series(k->feed, &series, k->deadline_ns);
}

/* ---- What was published meanwhile ---- */

static bool needs(const keyframe *k, const xci_record *record) {
    const uint64_t step = k->steps[record->group];
    return step != XORCAST_NO_STEP && step < k->delta_step;
}

static xorcast_status apply_record(void *user, uint64_t index, uint32_t worker) {
    keyframe *k = user;
    const xci_record *record = &k->records->records[index];
    if (!needs(k, record))
        return XORCAST_OK;
    return xci_group_apply(&k->workers[worker], k->bundle, record, k->chunk_digests);
}

static xorcast_status apply_on_devices(keyframe *k, xci_part_records *records) {
    uint64_t wanted = 0;
    for (uint64_t i = 0; i < records->count; i++)
        if (needs(k, &records->records[i]))
            records->records[wanted++] = records->records[i];
    for (uint32_t s = 0; s < k->device_count; s++)
        TRY(xci_device_keyframe_apply(&k->devices[s], records->records, wanted));
    return XORCAST_OK;
}

typedef struct update {
    keyframe *k;
    const xci_manifest *manifest;
    xci_part_records records;
    uint64_t last_group;
} update;

static xorcast_status take_update(void *user, uint64_t part, xci_blob *blob) {
    update *u = user;
    keyframe *k = u->k;
    xorcast_context *context = k->bundle->context;
    TRY(xci_part_parse(context, u->manifest, part, blob->bytes, blob->size, u->last_group,
                       &u->records));
    TRY(xci_part_check(context, u->manifest, part, blob->bytes, blob->size));
    if (u->records.count > 0)
        u->last_group = u->records.records[u->records.count - 1].group;
    k->records = &u->records;
    k->delta_step = u->manifest->info.target.step;
    k->fetched_bytes += blob->size;
    if (k->devices != NULL)
        return apply_on_devices(k, &u->records);
    return xci_pool_run(context->shared->pool, u->records.count, apply_record, k);
}

static xorcast_status apply_chain(keyframe *k, xci_chain *chain) {
    for (uint64_t i = 0; i < chain->count; i++) {
        const xci_manifest *manifest = &chain->links[i].manifest;
        update u = {.k = k, .manifest = manifest, .last_group = UINT64_MAX};
        if (manifest->layout_group_count != k->bundle->layout.group_count ||
            memcmp(manifest->info.target_fingerprint, k->bundle->layout.fingerprint, 16) != 0)
            FAIL(k->bundle->context, XORCAST_LAYOUT_MISMATCH,
                 "version %llu is of another layout than these weights",
                 (unsigned long long)manifest->info.target.step);
        const xorcast_status status =
            xci_chain_fetch(chain, k->feed, i, k->deadline_ns, take_update, &u);
        xci_part_records_free(k->bundle->context, &u.records);
        TRY(status);
        for (uint64_t g = 0; g < k->bundle->layout.group_count; g++)
            if (k->steps[g] != XORCAST_NO_STEP)
                k->steps[g] = xci_max(k->steps[g], manifest->info.target.step);
    }
    return XORCAST_OK;
}

static void step_range(const keyframe *k, uint64_t *oldest_out, uint64_t *newest_out) {
    *oldest_out = XORCAST_NO_STEP;
    *newest_out = 0;
    for (uint64_t g = 0; g < k->bundle->layout.group_count; g++) {
        if (k->steps[g] == XORCAST_NO_STEP)
            continue;
        *oldest_out = xci_min(*oldest_out, k->steps[g]);
        *newest_out = xci_max(*newest_out, k->steps[g]);
    }
}

/* ---- The whole ---- */

static xorcast_status verify(keyframe *k, const xorcast_version *version) {
    xorcast_digest sum = {{0, 0}};
    for (uint64_t c = 0; c < k->bundle->layout.chunk_count; c++)
        xci_digest_merge(&sum, &k->chunk_digests[c]);
    if (k->bundle->complete &&
        (sum.lane[0] != version->digest.lane[0] || sum.lane[1] != version->digest.lane[1]))
        FAIL(k->bundle->context, XORCAST_WEIGHTS_WRONG,
             "the keyframe does not add up to version %llu; take another one",
             (unsigned long long)version->step);
    return XORCAST_OK;
}

static xorcast_status reach(keyframe *k, uint64_t oldest, uint64_t target,
                            xorcast_version *version_out) {
    xci_chain chain;
    const uint64_t bound = xci_max(k->bundle->layout.total_bytes, CHAIN_BYTES_LEAST);
    TRY(xci_chain_open(&chain, k->feed, oldest, target, bound, k->deadline_ns));
    const xorcast_status status = apply_chain(k, &chain);
    if (status == XORCAST_OK && chain.count > 0)
        *version_out = chain.links[chain.count - 1].manifest.info.target;
    xci_chain_close(&chain);
    return status;
}

/* All groups are of version `step`. Its digest is in the manifest that leads to it, or it is what
 * the publisher's digests add up to. VERSION_GONE: neither can be had any more; look again. */
static xorcast_status name_version(keyframe *k, uint64_t step, xorcast_version *version_out) {
    xci_manifest manifest;
    xci_blob *blob;
    version_out->step = step;
    version_out->digest = k->their_sum;
    if (step == k->their_step || k->bundle->layout.group_count == 0)
        return XORCAST_OK;
    TRY(xci_feed_manifest(k->feed, step, XCI_FORM_PLAIN, k->deadline_ns, &manifest, &blob));
    *version_out = manifest.info.target;
    xci_manifest_free(k->bundle->context, &manifest);
    xci_blob_drop(blob);
    return XORCAST_OK;
}

static xorcast_status run_round(keyframe *k, xorcast_version *version_out) {
    uint64_t oldest, newest;
    TRY(compare_digests(k));
    TRY(fetch_groups(k));
    step_range(k, &oldest, &newest);
    if (oldest == XORCAST_NO_STEP) /* no groups at all: whatever is newest */
        TRY(xci_feed_newest(k->feed, XORCAST_NO_STEP, k->deadline_ns, &newest));
    if (oldest >= newest)
        return name_version(k, newest, version_out);
    return reach(k, oldest, newest, version_out);
}

static xorcast_status run(keyframe *k, xorcast_version *version_out) {
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        const xorcast_status status = run_round(k, version_out);
        if (status != XORCAST_VERSION_GONE)
            return status;
    }
    FAIL(k->bundle->context, XORCAST_VERSION_GONE,
         "versions left the publisher's log faster than the keyframe arrived; raise log_bytes");
}

static xorcast_status allocate_all(keyframe *k) {
    xorcast_context *context = k->bundle->context;
    void *memory;
    TRY(xci_allocate_array(context, k->bundle->layout.group_count, sizeof(uint64_t), &memory));
    k->steps = memory;
    TRY(xci_allocate_array(context, k->bundle->layout.group_count, sizeof(uint64_t), &memory));
    k->wanted = memory;
    if (!k->bundle->on_device)
        return xci_apply_workers_open(k->bundle, &k->workers);
    TRY(xci_allocate_array(context, k->bundle->share_count, sizeof(xci_device_keyframe), &memory));
    k->devices = memory;
    for (; k->device_count < k->bundle->share_count; k->device_count++)
        TRY(xci_device_keyframe_open(&k->devices[k->device_count],
                                     k->bundle->shares[k->device_count], k->chunk_digests));
    return XORCAST_OK;
}

static void release_all(keyframe *k) {
    xorcast_context *context = k->bundle->context;
    xci_release(context, k->steps);
    xci_release(context, k->wanted);
    xci_apply_workers_close(context, k->workers);
    for (uint32_t s = 0; s < k->device_count; s++)
        xci_device_keyframe_close(&k->devices[s]);
    xci_release(context, k->devices);
}

xorcast_status xci_keyframe(xorcast_bundle *bundle, xci_feed *feed, xorcast_digest *chunk_digests,
                            uint64_t deadline_ns, xorcast_version *version_out,
                            uint64_t *fetched_out) {
    keyframe k = {
        .bundle = bundle, .feed = feed, .chunk_digests = chunk_digests, .deadline_ns = deadline_ns};
    xorcast_version version = {.step = XORCAST_NO_STEP};
    memcpy(version.run, feed->about.run, sizeof version.run);
    xorcast_status status = allocate_all(&k);
    if (status == XORCAST_OK)
        status = run(&k, &version);
    if (status == XORCAST_OK)
        status = verify(&k, &version);
    release_all(&k);
    *fetched_out = k.fetched_bytes;
    TRY(status);
    *version_out = version;
    return XORCAST_OK;
}
