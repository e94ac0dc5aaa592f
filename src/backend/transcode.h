/* Makes a block of any codec device-ready: decodes it into a mask and has the backend encode
 * that mask again. The only place where a mask exists; stage works on one chunk at a time,
 * commit never gets here. */
#ifndef XCI_TRANSCODE_H
#define XCI_TRANSCODE_H

#include "backend/backend.h"

/* Room for a mask and as many zeros. */
#define XCI_TRANSCODE_SCRATCH(bytes) (2 * (uint64_t)(bytes))

/* The same for a mask that lies at the beginning of `scratch`. */
void xci_mask_to_ready(const xci_backend *backend, uint32_t bytes, uint8_t *scratch, uint8_t *ready,
                       uint32_t *ready_bytes_out, uint32_t *ready_codec_out);

/* `ready` has room for `bytes` + XCI_BLOCK_SLACK and `scratch` for XCI_TRANSCODE_SCRATCH(bytes).
 * `*ready_bytes_out` is 0 if the block changes nothing. Fails as xci_codec_decode does. */
xorcast_status xci_transcode(xorcast_context *context, xci_place place, const xci_backend *backend,
                             uint32_t codec, const uint8_t *block, uint64_t block_bytes,
                             uint32_t bytes, uint8_t *scratch, uint8_t *ready,
                             uint32_t *ready_bytes_out, uint32_t *ready_codec_out);

#endif
