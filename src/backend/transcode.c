/* A mask is the change from zeros to itself, so that the backend's encode needs no second entry. */
#include "backend/transcode.h"

#include <string.h>

#include "codec/codec.h"

void xci_mask_to_ready(const xci_backend *backend, uint32_t bytes, uint8_t *scratch, uint8_t *ready,
                       uint32_t *ready_bytes_out, uint32_t *ready_codec_out) {
    uint8_t *mask = scratch, *zeros = scratch + bytes;
    memset(zeros, 0, bytes);
    const xci_segment whole = {.bytes = bytes};
    xci_encode_job job = {
        .old_bytes = zeros,
        .new_bytes = mask,
        .bytes = bytes,
        .element_bytes = 1,
        .codec = XORCAST_CODEC_LZ4,
        .segment_count = 1,
        .segments = &whole,
        .block = ready,
    };
    backend->encode(&job, 1);
    *ready_bytes_out = job.block_bytes;
    *ready_codec_out = job.block_codec;
}

xorcast_status xci_transcode(xorcast_context *context, xci_place place, const xci_backend *backend,
                             uint32_t codec, const uint8_t *block, uint64_t block_bytes,
                             uint32_t bytes, uint8_t *scratch, uint8_t *ready,
                             uint32_t *ready_bytes_out, uint32_t *ready_codec_out) {
    TRY(xci_codec_decode(context, place, codec, block, block_bytes, scratch, bytes));
    xci_mask_to_ready(backend, bytes, scratch, ready, ready_bytes_out, ready_codec_out);
    return XORCAST_OK;
}
