/* From records to a slot: see device_load_record.h. */
#include "delta/device_load_record.h"

#include <string.h>

#include "backend/transcode.h"
#include "base/bytes.h"
#include "codec/codec.h"
#include "delta/device_load_gap.h"
#include "delta/device_load_slot.h"

uint64_t xci_load_block_room(const xorcast_bundle *bundle) {
    return xci_round_up(bundle->layout.chunk_bytes + XCI_BLOCK_SLACK, XCI_LOAD_ALIGNMENT);
}

/* ---- One block ---- */

xorcast_status xci_load_bad_chunk(xorcast_bundle *bundle, uint64_t chunk, const char *what) {
    char words[300];
    const xci_place place = {xci_bundle_tensor_of(bundle, chunk), chunk, 0};
    FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT, place, "%s: %s; fetch the delta again",
            xci_chunk_words(bundle, chunk, words, sizeof words), what);
}

/* A mask must not touch the padding between the tensors of a packed chunk: nothing there could
 * take it. */
static bool padding_untouched(const xci_chunk *chunk, const uint8_t *mask) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < chunk->tensor_count; i++) {
        for (; at < chunk->places[i].offset; at++)
            if (mask[at] != 0)
                return false;
        at = chunk->places[i].offset + chunk->places[i].bytes;
    }
    return true;
}

/* Decodes block `index` of a record to a mask, at the beginning of the worker's scratch. The
 * weights are fetched for blocks that need them; only a whole chunk is what these were made
 * beside. */
static xorcast_status decode(xci_device_loader *loader, xci_load_worker *worker,
                             const xci_record *record, uint32_t index, const xci_chunk *chunk,
                             const uint8_t *bytes) {
    xorcast_bundle *bundle = loader->bundle;
    const xci_place place = {chunk->tensor, chunk->index, 0};
    const uint8_t *old = NULL;
    if (loader->beside_old_weights && bundle->complete)
        TRY(xci_chunk_read(bundle, chunk, worker->old, &old));
    const xorcast_status status = xci_block_decode(&worker->reader, place, record, index, bytes,
                                                   old, worker->scratch, chunk->bytes);
    if (status == XORCAST_DATA_CORRUPT)
        return xci_load_bad_chunk(bundle, chunk->index,
                                  "its block does not decode to the chunk's size");
    return status;
}

xorcast_status xci_load_make_ready(xci_load_worker *worker, xorcast_bundle *bundle,
                                   const xci_chunk *chunk, uint32_t codec, const uint8_t *bytes,
                                   uint32_t count, uint32_t *ready_bytes, uint32_t *ready_codec) {
    const xci_place place = {chunk->tensor, chunk->index, 0};
    const xorcast_status status =
        xci_transcode(bundle->context, place, bundle->context->shared->backend, codec, bytes, count,
                      chunk->bytes, worker->scratch, worker->ready, ready_bytes, ready_codec);
    if (status == XORCAST_DATA_CORRUPT)
        return xci_load_bad_chunk(bundle, chunk->index,
                                  "its block does not decode to the chunk's size");
    return status;
}

xorcast_status xci_load_skip(xci_load_slot *slot, xci_cuda_block *entry) {
    entry->chunk = XCI_LOAD_SKIPPED;
    atomic_fetch_add(&slot->skipped, 1);
    return XORCAST_OK;
}

static bool device_codec(uint32_t codec) {
    return codec == XORCAST_CODEC_RAW || codec == XORCAST_CODEC_LZ4;
}

/* Writes block `index` of a record to the payload, `at` from where the record's begins, and lists
 * it. */
static xorcast_status place_block(xci_device_loader *loader, xci_load_worker *worker,
                                  xci_load_slot *slot, const xci_load_item *item,
                                  const xci_chunk *chunk, uint32_t index, const uint8_t *bytes,
                                  uint64_t *at, xci_cuda_block *entry) {
    const xci_record *record = item->record;
    const xci_block *block = &record->blocks[index];
    uint32_t count = block->bytes, codec = block->codec;
    const bool pads = chunk->packed && loader->mode != XCI_LOAD_APPLY_OWN;
    if (block->element_bytes != chunk->element_bytes)
        return xci_load_bad_chunk(loader->bundle, chunk->index, "its elements have another width");
    if (pads || !device_codec(codec))
        TRY(decode(loader, worker, record, index, chunk, bytes));
    if (pads && !padding_untouched(chunk, worker->scratch))
        return xci_load_bad_chunk(loader->bundle, chunk->index, "it changes bytes between tensors");
    if (!device_codec(codec)) {
        xci_mask_to_ready(loader->context->shared->backend, chunk->bytes, worker->scratch,
                          worker->ready, &count, &codec);
        bytes = worker->ready;
        if (count == 0)
            return xci_load_skip(slot, entry);
    }
    memcpy(slot->pinned.at + item->at + *at, bytes, count);
    *entry = (xci_cuda_block){slot->payload_at + item->at + *at, count, codec, chunk->index};
    if (slot->engine.wanted)
        slot->engine.forms[entry - xci_load_table(slot)] = (uint8_t)xci_engine_form(
            &loader->engine, &slot->engine, codec, bytes, count, chunk->bytes);
    *at += xci_round_up(count, XCI_LOAD_ALIGNMENT);
    return XORCAST_OK;
}

/* A gap block that the device decodes. */
static xorcast_status place_gap(xci_device_loader *loader, xci_load_slot *slot,
                                const xci_block *block, uint32_t element_bytes, uint64_t chunk,
                                const uint8_t *bytes, uint64_t *at, xci_load_gap_list *list) {
    if (block->element_bytes != element_bytes)
        return xci_load_bad_chunk(loader->bundle, chunk, "its elements have another width");
    memcpy(slot->pinned.at + list->item->at + *at, bytes, block->bytes);
    xci_load_gap_add(slot, list, slot->payload_at + list->item->at + *at, block->bytes, chunk);
    *at += xci_round_up(block->bytes, XCI_LOAD_ALIGNMENT);
    return XORCAST_OK;
}

/* The parameters of a record, `bytes`, go behind its blocks. */
static void close_gap(xci_load_slot *slot, const xci_record *record, const uint8_t *bytes,
                      uint64_t at, const xci_load_gap_list *list) {
    memcpy(slot->pinned.at + list->item->at + at, bytes, record->params_bytes);
    xci_load_gap_close(slot, list, slot->payload_at + list->item->at + at,
                       (uint32_t)record->params_bytes, bytes[0]);
}

/* ---- One record ---- */

uint64_t xci_load_record_room(const xci_device_loader *loader, const xci_record *record,
                              bool *loose_out) {
    const xorcast_bundle *bundle = loader->bundle;
    const bool gap_here = xci_load_gap_here(loader, record);
    const uint32_t ready = 1u << XORCAST_CODEC_RAW | 1u << XORCAST_CODEC_LZ4;
    uint64_t room = 0;
    *loose_out = !bundle->complete && !gap_here;
    if (record->codecs != 0 && (record->codecs & ~ready) == 0)
        return record->aligned_bytes;
    for (uint32_t i = 0; i < record->block_count; i++) {
        const xci_block *block = &record->blocks[i];
        const bool as_is =
            device_codec(block->codec) || (gap_here && block->codec == XORCAST_CODEC_GAP);
        const uint64_t bytes = as_is ? block->bytes : xci_load_block_room(bundle);
        *loose_out = *loose_out || (!as_is && !gap_here);
        room += xci_round_up(bytes, XCI_LOAD_ALIGNMENT);
    }
    return room + (gap_here ? xci_round_up(record->params_bytes, XCI_LOAD_ALIGNMENT) : 0);
}

static xci_place place_of(const xorcast_bundle *bundle, uint64_t chunk) {
    return (xci_place){xci_bundle_tensor_of(bundle, chunk), chunk, 0};
}

static xorcast_status no_such_chunk(const xorcast_bundle *bundle, const xci_record *record,
                                    uint32_t index) {
    FAIL_AT(bundle->context, XORCAST_DATA_CORRUPT,
            place_of(bundle, bundle->group_first[record->group]),
            "group %llu has no chunk %u; fetch the delta again", (unsigned long long)record->group,
            record->blocks[index].chunk);
}

/* Lists the blocks of a record that come from another device, where they follow each other, as they
 * do here. */
static xorcast_status list_record(const xci_device_loader *loader, const xci_load_slot *slot,
                                  const xci_load_item *item) {
    xorcast_bundle *bundle = loader->bundle;
    const xci_record *record = item->record;
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    xci_cuda_block *entry = &xci_load_table(slot)[item->first];
    uint8_t *at = slot->payload_at + slot->pinned_bytes + item->at;
    item->move->to = at;
    uint64_t tensor_end = 0; /* chunks before it are of the same tensor */
    uint32_t element_bytes = 0;
    for (uint32_t i = 0; i < record->block_count; i++, entry++) {
        const xci_block *block = &record->blocks[i];
        const uint64_t c = first + block->chunk;
        if (c >= end)
            return no_such_chunk(bundle, record, i);
        if (c >= tensor_end) {
            const xci_tensor *tensor = &bundle->tensors[xci_bundle_tensor_of(bundle, c)];
            tensor_end = tensor->first_chunk +
                         xci_divide_up(tensor->bytes, UINT64_C(1) << bundle->chunk_log2);
            element_bytes = tensor->element_bytes;
        }
        if (block->element_bytes != element_bytes)
            return xci_load_bad_chunk(bundle, c, "its elements have another width");
        *entry = (xci_cuda_block){at, block->bytes, block->codec, c};
        at += xci_round_up(block->bytes, XCI_LOAD_ALIGNMENT);
    }
    return XORCAST_OK;
}

xorcast_status xci_load_record(xci_device_loader *loader, xci_load_slot *slot,
                               const xci_load_item *item, uint32_t worker_index) {
    if (item->move != NULL)
        return list_record(loader, slot, item);
    xorcast_bundle *bundle = loader->bundle;
    xci_load_worker *worker = &loader->workers[worker_index];
    const xci_record *record = item->record;
    const uint64_t first = bundle->group_first[record->group],
                   end = bundle->group_first[record->group + 1];
    uint64_t at = 0;
    const uint8_t *bytes;
    TRY(xci_group_read(&worker->reader, place_of(bundle, first), record, &bytes));
    const bool gap_here = xci_load_gap_here(loader, record);
    xci_load_gap_list gaps = {.item = item};
    xci_chunk chunk = {.index = UINT64_MAX};
    for (uint32_t i = 0; i < record->block_count; bytes += record->blocks[i++].bytes) {
        const uint64_t c = first + record->blocks[i].chunk;
        xci_cuda_block *entry = &xci_load_table(slot)[item->first + i];
        if (c >= end)
            return no_such_chunk(bundle, record, i);
        const bool gap = gap_here && record->blocks[i].codec == XORCAST_CODEC_GAP;
        gaps.ordinal += gap;
        if (!xci_bundle_holds(bundle, c)) {
            TRY(xci_load_skip(slot, entry));
            continue;
        }
        if (bundle->complete && c == chunk.index + 1 && i > 0)
            xci_bundle_next_chunk(bundle, NULL, &chunk);
        else
            xci_bundle_chunk_places(bundle, c, &chunk);
        if (!gap) {
            TRY(place_block(loader, worker, slot, item, &chunk, i, bytes, &at, entry));
            continue;
        }
        TRY(place_gap(loader, slot, &record->blocks[i], chunk.element_bytes, c, bytes, &at, &gaps));
        TRY(xci_load_skip(slot, entry));
    }
    if (gap_here)
        close_gap(slot, record, bytes, at, &gaps);
    return XORCAST_OK;
}
