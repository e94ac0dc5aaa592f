/* Staging on a device: see device_stage.h. The loader (delta/device_load.h) does the work. */
#include "subscribe/device_stage.h"

#include <string.h>

#include "base/counts.h"
#include "base/digest.h"

static xorcast_status expect(void *user, uint64_t count) {
    xci_stage_share *share = user;
    TRY(xci_grow(share->bundle->context, &share->ready, &share->ready_capacity,
                 (share->ready_count + count) * sizeof(xci_ready)));
    share->ready_count += count;
    return XORCAST_OK;
}

/* A block of a shared chunk is checked by every share that holds any of the chunk, and each counts
 * all that it changes: the first one's counts. */
static bool counts_here(const xci_stage_share *share, uint64_t chunk) {
    const xorcast_bundle *bundle = share->of->stage->bundle;
    if (!xci_shared_chunk(bundle, chunk))
        return true;
    return (uint32_t)__builtin_ctzll(xci_shares_of_chunk(bundle, chunk)) == share->index;
}

/* Blocks that passed: what commit applies, and what it will change. */
static void take(void *user, uint64_t first, const xci_cuda_block *blocks,
                 const xci_cuda_result *results, uint64_t count, uint32_t worker) {
    const xci_stage_share *share = user;
    xci_ready *ready = &share->ready[first];
    xci_stage_sums sums = {.ready_bytes = 0};
    for (uint64_t i = 0; i < count; i++) {
        const xci_cuda_result *result = &results[i];
        ready[i] = (xci_ready){.chunk = blocks[i].chunk,
                               .block = blocks[i].bytes,
                               .block_bytes = blocks[i].block_bytes,
                               .block_codec = blocks[i].block_codec,
                               .change = result->change};
        sums.ready_bytes += blocks[i].block_bytes;
        xci_digest_merge(&sums.change, &result->change);
        if (!counts_here(share, blocks[i].chunk))
            continue;
        sums.counts.bits_changed += result->bits_changed;
        sums.counts.bytes_changed += result->bytes_changed;
        sums.counts.elements_changed += result->elements_changed;
        /* foreign blocks may be all zeros */
        sums.counts.chunks_changed += result->bytes_changed > 0;
    }
    xci_stage_sums *sum = &share->of->sums[worker];
    xci_counts_add(&sum->counts, &sums.counts);
    xci_digest_merge(&sum->change, &sums.change);
    sum->ready_bytes += sums.ready_bytes;
}

/* ---- Opening and closing ---- */

static xorcast_status list_groups(xci_device_stage *device) {
    const xorcast_bundle *bundle = device->stage->bundle;
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->layout.group_count, sizeof(uint64_t), &memory));
    device->group_shares = memory;
    for (uint64_t g = 0; g < bundle->layout.group_count; g++)
        for (uint64_t c = bundle->group_first[g]; c < bundle->group_first[g + 1]; c++)
            device->group_shares[g] |= xci_shares_of_chunk(bundle, c);
    return XORCAST_OK;
}

static uint64_t bytes_held(const xorcast_bundle *share) {
    uint64_t bytes = 0;
    for (uint64_t t = 0; t < share->tensor_count; t++)
        for (uint32_t i = 0; i < share->tensors[t].region_count; i++)
            bytes +=
                share->tensors[t].regions[i].row_count * share->tensors[t].regions[i].column_bytes;
    return bytes;
}

/* About how many of a delta's bytes a share will have. */
static uint64_t part_of(const xci_stage_share *share, uint64_t bytes) {
    const xci_device_stage *device = share->of;
    uint64_t all = 0;
    for (uint32_t s = 0; s < device->share_count; s++)
        all += device->shares[s].held_bytes;
    return device->share_count == 1
               ? bytes
               : (uint64_t)((double)bytes * ((double)share->held_bytes / (double)all));
}

static xorcast_status open_shares(xci_device_stage *device) {
    const xorcast_bundle *bundle = device->stage->bundle;
    void *memory;
    TRY(xci_allocate_array(bundle->context, bundle->share_count, sizeof(xci_stage_share), &memory));
    device->shares = memory;
    for (uint32_t s = 0; s < bundle->share_count; s++) {
        xci_stage_share *share = &device->shares[s];
        const xci_load_taker taker = {expect, take, share};
        share->of = device;
        share->bundle = bundle->shares[s];
        share->index = s;
        share->held_bytes = bytes_held(share->bundle);
        TRY(xci_device_loader_open(&share->loader, share->bundle, share->bundle->map, XCI_LOAD_KEEP,
                                   &taker));
        device->share_count++;
    }
    return bundle->share_count > 1 ? list_groups(device) : XORCAST_OK;
}

xorcast_status xci_device_stage_open(xci_stage *stage) {
    xorcast_context *context = stage->bundle->context;
    void *memory;
    TRY(xci_allocate_zeroed(context, sizeof(xci_device_stage), &memory));
    stage->device = memory;
    stage->device->stage = stage;
    TRY(xci_allocate_array(context, xci_context_threads(context), sizeof(xci_stage_sums), &memory));
    stage->device->sums = memory;
    return open_shares(stage->device);
}

void xci_device_stage_close(xci_stage *stage) {
    xorcast_context *context = stage->bundle->context;
    xci_device_stage *device = stage->device;
    if (device == NULL)
        return;
    for (uint32_t s = 0; s < device->share_count; s++) {
        xci_device_loader_close(&device->shares[s].loader);
        xci_release(context, device->shares[s].ready);
        xci_release(context, device->shares[s].records);
    }
    xci_release(context, device->shares);
    xci_release(context, device->sums);
    xci_release(context, device->group_shares);
    xci_release(context, device);
    stage->device = NULL;
}

void xci_device_stage_reset(xci_stage *stage) {
    for (uint32_t s = 0; stage->device != NULL && s < stage->device->share_count; s++) {
        xci_device_load_drop(&stage->device->shares[s].loader);
        stage->device->shares[s].ready_count = 0;
    }
}

/* ---- A delta ---- */

xorcast_status xci_device_stage_begin(xci_stage *stage) {
    xci_device_stage *device = stage->device;
    memset(device->sums, 0, xci_context_threads(stage->bundle->context) * sizeof *device->sums);
    for (uint32_t s = 0; s < device->share_count; s++) {
        xci_device_loader *loader = &device->shares[s].loader;
        loader->beside_old_weights = stage->info.needs_old_weights != 0;
        TRY(xci_device_load_begin(loader, stage->info.counts.chunks_changed,
                                  part_of(&device->shares[s], stage->info.chunk_encoded_bytes)));
    }
    return XORCAST_OK;
}

/* Lists the records that a share holds anything of. */
static xorcast_status pick_records(xci_stage_share *share) {
    const xci_stage *stage = share->of->stage;
    TRY(xci_grow(share->bundle->context, &share->records, &share->records_capacity,
                 stage->record_count * sizeof(xci_record)));
    share->record_count = 0;
    for (uint64_t i = 0; i < stage->record_count; i++)
        if (share->of->group_shares[stage->records[i].group] >> share->index & 1)
            share->records[share->record_count++] = stage->records[i];
    return XORCAST_OK;
}

xorcast_status xci_device_stage_records(xci_stage *stage, xci_device_side *side) {
    xci_device_stage *device = stage->device;
    if (device->share_count == 1)
        return xci_device_load(&device->shares[0].loader, stage->records, stage->record_count,
                               side);
    for (uint32_t s = 0; s < device->share_count; s++) {
        xci_stage_share *share = &device->shares[s];
        TRY(pick_records(share));
        TRY(xci_device_load(&share->loader, share->records, share->record_count, side));
    }
    return XORCAST_OK;
}

bool xci_device_stage_elsewhere(const xci_stage *stage, const xci_record *record) {
    const xci_device_stage *device = stage->device;
    for (uint32_t s = 0; s < device->share_count; s++)
        if ((device->group_shares == NULL || device->group_shares[record->group] >> s & 1) &&
            !xci_device_load_elsewhere(&device->shares[s].loader, record))
            return false;
    return true;
}

xorcast_status xci_device_stage_wait(xci_stage *stage) {
    for (uint32_t s = 0; s < stage->device->share_count; s++)
        TRY(xci_device_load_end(&stage->device->shares[s].loader));
    return XORCAST_OK;
}

xorcast_status xci_device_stage_finish(xci_stage *stage) {
    TRY(xci_device_stage_wait(stage));
    for (uint32_t i = 0; i < xci_context_threads(stage->bundle->context); i++) {
        const xci_stage_sums *sum = &stage->device->sums[i];
        xci_counts_add(&stage->counts, &sum->counts);
        xci_digest_merge(&stage->change, &sum->change);
        stage->ready_bytes += sum->ready_bytes;
    }
    return XORCAST_OK;
}

void xci_device_stage_decoding(const xci_stage *stage, xorcast_decoding *decoding_out) {
    for (uint32_t s = 0; stage->device != NULL && s < stage->device->share_count; s++) {
        const xorcast_decoding *one = xci_engine_decoding(&stage->device->shares[s].loader.engine);
        if (s == 0)
            *decoding_out = *one;
        else {
            decoding_out->engine_chunks += one->engine_chunks;
            decoding_out->kernel_chunks += one->kernel_chunks;
        }
    }
}
