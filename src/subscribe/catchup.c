/* Catching up: see catchup.h. */
#include "subscribe/catchup.h"

#include <errno.h>
#include <string.h>

#include "backend/device.h"
#include "delta/fold.h"
#include "subscribe/chain.h"

#define WAIT_NS UINT64_C(50000) /* a part that takes longer to come is not in memory here */

/* Parts on their way to the stage, which takes some at a time. */
typedef struct direct {
    xci_stage *stage;
    const xci_feed *feed;
    const xci_manifest *manifest;
    uint64_t waited_ns; /* for parts before this one */
    xci_blob *held[XCI_STAGE_PARTS];
    uint64_t first, count;
} direct;

static void drop_held(direct *d) {
    for (uint64_t i = 0; i < d->count; i++)
        xci_blob_drop(d->held[i]);
    d->first += d->count;
    d->count = 0;
}

static xorcast_status stage_held(direct *d) {
    xci_part_bytes parts[XCI_STAGE_PARTS];
    for (uint64_t i = 0; i < d->count; i++)
        parts[i] = (xci_part_bytes){d->held[i]->bytes, d->held[i]->size, d->held[i]};
    const xorcast_status status = xci_stage_parts(d->stage, d->manifest, d->first, d->count, parts);
    drop_held(d);
    return status;
}

static xorcast_status take_part(void *user, uint64_t part, xci_blob *blob) {
    direct *d = user;
    d->held[d->count++] = xci_blob_hold(blob);
    const bool full = d->count == d->stage->parts_at_a_time;
    const bool last = part + 1 == d->manifest->info.part_count;
    /* What a link takes time for comes while the parts before it are staged. */
    const bool slow = !d->stage->bundle->on_device && d->feed->waited_ns - d->waited_ns > WAIT_NS;
    d->waited_ns = d->feed->waited_ns;
    return full || last || slow ? stage_held(d) : XORCAST_OK;
}

/* Whether the old weights are where blocks are decoded: on a device only if it has all of them and
 * decodes them. */
static bool has_old_weights(const xorcast_bundle *bundle) {
    return bundle->complete && bundle->share_count <= 1 &&
           (!bundle->on_device || bundle->context->shared->device->ops->gap_check != NULL);
}

static xorcast_status stage_one(xci_stage *stage, xci_feed *feed, xci_chain *chain,
                                const xorcast_version *from, uint64_t deadline_ns) {
    direct d = {.stage = stage, .feed = feed, .manifest = &chain->links[0].manifest};
    if (d.manifest->info.offers_old_weights && has_old_weights(stage->bundle))
        TRY(xci_chain_take_beside(chain, feed, deadline_ns));
    TRY(xci_stage_begin(stage, d.manifest, &from->digest));
    d.waited_ns = feed->waited_ns;
    const xorcast_status fetched = xci_chain_fetch(chain, feed, 0, deadline_ns, take_part, &d);
    drop_held(&d);
    TRY(fetched);
    return xci_stage_finish(stage, d.manifest);
}

/* ---- Folding ---- */

typedef struct memory_sink {
    xorcast_context *context;
    void *bytes;
    uint64_t count, capacity;
} memory_sink;

static int write_memory(void *user, const void *bytes, uint64_t count) {
    memory_sink *sink = user;
    if (xci_grow(sink->context, &sink->bytes, &sink->capacity, sink->count + count) < 0)
        return ENOMEM;
    memcpy((uint8_t *)sink->bytes + sink->count, bytes, count);
    sink->count += count;
    return 0;
}

static xorcast_status fold_chain(xci_chain *chain, memory_sink *folded) {
    xorcast_delta_options options = XORCAST_DELTA_OPTIONS_INIT;
    const xorcast_sink sink = {write_memory, folded};
    void *memory;
    options.encoding.second_pass = 1; /* it does not travel: a second pass would only cost time */
    TRY(xci_allocate_array(chain->context, chain->count, sizeof(xorcast_source), &memory));
    xorcast_source *sources = memory;
    for (uint64_t i = 0; i < chain->count; i++)
        sources[i] = xci_chain_source(&chain->links[i]);
    const xorcast_status status =
        xci_delta_fold_within(chain->context, sources, chain->count, &options, &sink);
    xci_release(chain->context, memory);
    return status;
}

static xorcast_status stage_folded(xci_stage *stage, xci_feed *feed, xci_chain *chain,
                                   const xorcast_version *from, uint64_t deadline_ns) {
    memory_sink folded = {.context = chain->context};
    for (uint64_t i = 0; i < chain->count; i++)
        TRY(xci_chain_fetch(chain, feed, i, deadline_ns, NULL, NULL));
    xorcast_status status = fold_chain(chain, &folded);
    if (status == XORCAST_OK) {
        const xorcast_source source = {.bytes = folded.bytes, .size = folded.count};
        status = xci_stage_source(stage, &source, &from->digest);
    }
    xci_release(chain->context, folded.bytes);
    return status;
}

xorcast_status xci_catchup(xci_stage *stage, xci_feed *feed, const xorcast_version *from,
                           uint64_t to_step, uint64_t bound_bytes, uint64_t deadline_ns,
                           uint64_t *deltas_out) {
    xci_chain chain;
    TRY(xci_chain_open(&chain, feed, from->step, to_step, bound_bytes, deadline_ns));
    const xorcast_status status = chain.count == 1
                                      ? stage_one(stage, feed, &chain, from, deadline_ns)
                                      : stage_folded(stage, feed, &chain, from, deadline_ns);
    *deltas_out = chain.count;
    xci_chain_close(&chain);
    if (status < 0)
        xci_stage_reset(stage);
    return status;
}
