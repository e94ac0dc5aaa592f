/* Lists of words from a device's blocks: see device_lists.h. */
#include "publish/device_lists.h"

#include <string.h>

#include "bundle/shares.h"
#include "codec/codec.h"
#include "codec/words_block.h"

void xci_device_lists_close(xorcast_context *context, xci_device_lists *lists) {
    xci_release(context, lists->mask);
    xci_release(context, lists->payload);
    xci_release(context, lists->old_bytes);
    xci_release(context, lists->blocks);
    xci_release(context, lists->old);
    *lists = (xci_device_lists){0};
}

/* A mask as a list of its words, or as it is where that is not longer; as the backend does it. */
static void list_mask(const uint8_t *mask, xci_block *block, uint8_t *out) {
    uint8_t *at = out;
    const uint8_t *const limit = out + block->chunk_bytes;
    for (uint32_t word = 0; word * 8 < block->chunk_bytes; word++) {
        const uint32_t left = block->chunk_bytes - word * 8;
        uint64_t value = 0;
        memcpy(&value, mask + (size_t)word * 8, xci_min(8, left));
        if (value != 0 && at + XCI_WORDS_ENTRY < limit)
            at = xci_words_put(at, word, value);
        else if (value != 0)
            at = NULL;
        if (at == NULL)
            break;
    }
    block->codec = at != NULL ? XCI_CODEC_WORDS : XORCAST_CODEC_RAW;
    block->bytes = at != NULL ? (uint32_t)(at - out) : block->chunk_bytes;
    if (at == NULL)
        memcpy(out, mask, block->chunk_bytes);
}

xorcast_status xci_device_lists_make(xci_device_lists *lists, xorcast_context *context,
                                     const xci_record *record, xci_record *listed_out) {
    uint64_t bytes = 0, most = 0;
    for (uint32_t i = 0; i < record->block_count; i++) {
        bytes += record->blocks[i].chunk_bytes;
        most = xci_max(most, record->blocks[i].chunk_bytes);
    }
    TRY(xci_grow(context, &lists->mask, &lists->mask_capacity, most));
    TRY(xci_grow(context, &lists->payload, &lists->payload_capacity, bytes));
    TRY(xci_grow(context, &lists->blocks, &lists->blocks_capacity,
                 record->block_count * sizeof(xci_block)));
    const uint8_t *from = record->payload;
    uint8_t *at = lists->payload;
    for (uint32_t i = 0; i < record->block_count; i++) {
        xci_block *block = &lists->blocks[i];
        *block = record->blocks[i];
        TRY(xci_codec_decode(context, XCI_NOWHERE, block->codec, from, block->bytes, lists->mask,
                             block->chunk_bytes));
        from += block->bytes;
        list_mask(lists->mask, block, at);
        at += block->bytes;
    }
    *listed_out = *record;
    listed_out->blocks = lists->blocks;
    listed_out->payload = lists->payload;
    listed_out->raw_bytes = (uint64_t)(at - lists->payload);
    return XORCAST_OK;
}

/* The chunk before a change that has been made already. */
static void take_back(const xci_block *block, const uint8_t *mask, uint8_t *bytes) {
    if (block->codec == XCI_CODEC_WORDS)
        xci_words_xor(mask, block->bytes, bytes, block->chunk_bytes);
    else
        for (uint32_t i = 0; i < block->chunk_bytes; i++)
            bytes[i] ^= mask[i];
}

xorcast_status xci_device_lists_old(xci_device_lists *lists, xorcast_context *context,
                                    const xorcast_bundle *bundle, xci_device_shadow *shadow,
                                    const xci_record *listed, const xci_local_span *unmoved,
                                    const uint8_t *const **old_out) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < listed->block_count; i++)
        bytes += listed->blocks[i].chunk_bytes;
    TRY(xci_grow(context, &lists->old_bytes, &lists->old_bytes_capacity, bytes));
    TRY(xci_grow(context, &lists->old, &lists->old_capacity,
                 listed->block_count * sizeof *lists->old));
    const uint8_t *mask = listed->payload;
    uint8_t *at = lists->old_bytes;
    for (uint32_t i = 0; i < listed->block_count; i++) {
        const xci_block *block = &listed->blocks[i];
        const uint64_t c = bundle->group_first[listed->group] + block->chunk;
        TRY(xci_device_shadow_read(shadow, context, c, block->chunk_bytes, at));
        const xci_local_span *as_it_was = &unmoved[xci_home(bundle, c)];
        if (xci_local(bundle, c) - as_it_was->first >= as_it_was->count)
            take_back(block, mask, at);
        lists->old[i] = at;
        at += block->chunk_bytes;
        mask += block->bytes;
    }
    *old_out = lists->old;
    return XORCAST_OK;
}
