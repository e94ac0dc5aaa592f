/* Codecs of chunks: their names, and the decoding of any valid block into a mask. Owns what
 * makes a block device-ready, the only form that weights are changed from: raw, or LZ4 of the
 * zero-run profile. Does not own encoding, which the backend fuses with the diff, nor the second
 * pass (second_pass.h). */
#ifndef XCI_CODEC_H
#define XCI_CODEC_H

#include "base/context.h"

/* "raw", "lz4", "snappy"; NULL for a codec that does not exist. */
const char *xci_codec_name(uint32_t codec);
/* False if there is no codec of that name. */
bool xci_codec_find(const char *name, uint32_t *codec_out);

/* Whether backends take the block as it is. A block that is not may be of another kind or damaged:
 * xci_codec_decode tells. Reads every token. */
bool xci_codec_is_ready(uint32_t codec, const uint8_t *block, uint64_t block_bytes, uint32_t bytes);

/* Decodes a block into the `bytes` (1 .. 1 MiB) of a chunk's mask: raw, any LZ4 block, any
 * Snappy block. Fails with DATA_CORRUPT (`place` names the chunk), also if it would give more or
 * fewer bytes; the mask is rubbish then. DATA_VERSION: no such codec. */
xorcast_status xci_codec_decode(xorcast_context *context, xci_place place, uint32_t codec,
                                const uint8_t *block, uint64_t block_bytes, uint8_t *mask_out,
                                uint32_t bytes);

#endif
